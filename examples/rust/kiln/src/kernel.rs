// A loaded kernel.

use std::marker::PhantomData;
use std::mem;
use std::os::raw::c_void;
use std::ptr;

use kiln_sys as sys;

use crate::argument::Argument;
use crate::error::{check, Result};
use crate::image::Outcome;
use crate::service::Service;
use crate::text::str_from_c;

/// A launch with at most this many arguments allocates nothing.
const ARGUMENTS_ON_STACK: usize = 32;

/// A kernel that is loaded. It borrows its service, and copies are cheap.
#[derive(Clone, Copy)]
pub struct Kernel<'s> {
    pub(crate) handle: *const sys::kiln_kernel,
    pub(crate) service: PhantomData<&'s Service>,
}

// SAFETY: kiln.h says that every handle may be used by several threads at once.
unsafe impl Send for Kernel<'_> {}
// SAFETY: as above.
unsafe impl Sync for Kernel<'_> {}

/// Facts about a kernel.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info<'s> {
    pub outcome: Outcome,
    /// The key as 64 hex digits.
    pub key: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread spills, stores and loads.
    pub spill_bytes: u32,
    /// Static shared memory of a block, in bytes.
    pub shared_bytes: u32,
    pub argument_count: u32,
    /// "rms_norm T=bf16 H=4096".
    pub specialization: &'s str,
    /// The arch of the image: "sm_90a", or "sm_100f" where that serves a device of 10.3.
    pub arch: &'s str,
}

impl<'s> Kernel<'s> {
    /// Launches the kernel with the grid, block and shared memory of its manifest.
    ///
    /// Arguments are in the manifest's order: `kernel.launch(stream, &[&out, &x, &w, &rows])`.
    /// kiln checks their number and types, their values, and the alignment of pointers.
    /// It reads them before this returns.
    ///
    /// # Safety
    ///
    /// kiln cannot check what the kernel does on the device. The caller promises this:
    ///
    /// - The context that the template was opened with is current, and `stream` is null or belongs to it.
    /// - Each pointer is null where the manifest allows that. Otherwise it leads to memory of the shape that
    ///   the manifest gives it, which the kernel may use until it has ended.
    /// - The service lives until the kernel has ended on the device: synchronise the stream before.
    pub unsafe fn launch(&self, stream: sys::CUstream, arguments: &[&dyn Argument]) -> Result<()> {
        let count = arguments.len();
        let no_type = sys::kiln_arg_type { kind: 0, size: 0 };
        if count <= ARGUMENTS_ON_STACK {
            let mut types = [no_type; ARGUMENTS_ON_STACK];
            let mut data = [ptr::null(); ARGUMENTS_ON_STACK];
            // SAFETY: the caller keeps the promises of this function.
            unsafe { self.launch_with(stream, arguments, &mut types[..count], &mut data[..count]) }
        } else {
            let mut types = vec![no_type; count];
            let mut data = vec![ptr::null(); count];
            // SAFETY: the caller keeps the promises of this function.
            unsafe { self.launch_with(stream, arguments, &mut types, &mut data) }
        }
    }

    /// Launches by way of `types` and `data`, which have the length of `arguments`.
    ///
    /// # Safety
    ///
    /// As for `launch`.
    unsafe fn launch_with(
        &self,
        stream: sys::CUstream,
        arguments: &[&dyn Argument],
        types: &mut [sys::kiln_arg_type],
        data: &mut [*const c_void],
    ) -> Result<()> {
        for ((argument, arg_type), address) in arguments.iter().zip(&mut *types).zip(&mut *data) {
            *arg_type = argument.arg_type();
            *address = (*argument as *const dyn Argument).cast();
        }
        // SAFETY: the service is alive, because the kernel borrows it. Each address leads to as many bytes as
        // its type says (Argument), and kiln reads them before it returns. The caller vouches for the rest.
        check(unsafe {
            let (types, data) = (types.as_ptr(), data.as_ptr());
            sys::kiln_kernel_launch(self.handle, stream, types, data, arguments.len())
        })
    }

    /// Reads the facts about the kernel. Makes no driver call.
    pub fn info(&self) -> Result<Info<'s>> {
        let struct_size = mem::size_of::<sys::kiln_kernel_info>();
        let mut raw = sys::kiln_kernel_info { struct_size, ..Default::default() };
        // SAFETY: the service is alive, and `raw` is valid for the write of struct_size bytes.
        check(unsafe { sys::kiln_kernel_get_info(self.handle, &mut raw) })?;
        // SAFETY: kiln ends the key with a zero byte. The texts live as long as the kernel, which its service
        // owns, and 's is no longer than that.
        unsafe {
            Ok(Info {
                outcome: Outcome::from_c(raw.outcome),
                key: str_from_c(raw.key.as_ptr()).to_owned(),
                registers: raw.registers,
                spill_bytes: raw.spill_bytes,
                shared_bytes: raw.shared_bytes,
                argument_count: raw.argument_count,
                specialization: str_from_c(raw.specialization),
                arch: str_from_c(raw.arch),
            })
        }
    }

    /// The handle, for calls of [`sys`]. It is valid as long as the service.
    pub fn as_ptr(&self) -> *const sys::kiln_kernel {
        self.handle
    }
}
