// The bytes of a compiled kernel.

use std::fmt;
use std::slice;

use kiln_sys as sys;

use crate::text::str_from_c;

/// Where an image came from. `KILN_OUTCOME_*` in kiln.h documents each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    Memory,
    Disk,
    Layer,
    Remote,
    Compiled,
    Waited,
    /// An outcome that only a newer kiln has.
    Other(i32),
}

impl Outcome {
    pub(crate) fn from_c(outcome: i32) -> Outcome {
        match u32::try_from(outcome) {
            Ok(sys::KILN_OUTCOME_MEMORY) => Outcome::Memory,
            Ok(sys::KILN_OUTCOME_DISK) => Outcome::Disk,
            Ok(sys::KILN_OUTCOME_LAYER) => Outcome::Layer,
            Ok(sys::KILN_OUTCOME_REMOTE) => Outcome::Remote,
            Ok(sys::KILN_OUTCOME_COMPILED) => Outcome::Compiled,
            Ok(sys::KILN_OUTCOME_WAITED) => Outcome::Waited,
            _ => Outcome::Other(outcome),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// Owns the bytes of an image. It may outlive its service.
pub struct Image {
    pub(crate) raw: sys::kiln_image,
}

// SAFETY: nothing changes the image after kiln_template_compile(), and any thread may release it.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    pub fn outcome(&self) -> Outcome {
        Outcome::from_c(self.raw.outcome)
    }
    /// The key as 64 hex digits.
    pub fn key(&self) -> &str {
        // SAFETY: kiln ends the array with a zero byte, and it lives as long as self.
        unsafe { str_from_c(self.raw.key.as_ptr()) }
    }
    /// "sm_90a".
    pub fn arch(&self) -> &str {
        // SAFETY: kiln ends the array with a zero byte, and it lives as long as self.
        unsafe { str_from_c(self.raw.arch.as_ptr()) }
    }
    /// The cubin.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `bytes` points to `size` bytes until the release, which drop() does. It is never null,
        // because only a compile that succeeded makes an Image.
        unsafe { slice::from_raw_parts(self.raw.bytes.cast(), self.raw.size) }
    }
    /// The kernel's symbol in the cubin.
    pub fn lowered_name(&self) -> &str {
        // SAFETY: the text lives until the release, which drop() does.
        unsafe { str_from_c(self.raw.lowered_name) }
    }
    /// "rms_norm T=bf16 H=4096".
    pub fn specialization(&self) -> &str {
        // SAFETY: the text lives until the release, which drop() does.
        unsafe { str_from_c(self.raw.specialization) }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: kiln_template_compile() has filled the image, and nothing uses it after this.
        unsafe { sys::kiln_image_release(&mut self.raw) }
    }
}
