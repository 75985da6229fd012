// The service, which owns templates and kernels.

use std::marker::PhantomData;
use std::ptr;

use kiln_sys as sys;

use crate::error::{check, Result};
use crate::template::Template;
use crate::text::to_c;

/// The place where a template's kernels run.
#[derive(Clone, Copy, Debug)]
pub enum Device<'a> {
    /// The calling thread's current context, and its device.
    Current,
    /// The current context, which must be on the device of this ordinal.
    Ordinal(u16),
    /// No device: the template can only compile, for this arch. `None`: the configured arch, or else sm_90a.
    None(Option<&'a str>),
}

/// Configuration, cache, compiler and templates. One for each process is usual.
///
/// Dropping it ends the compiles that it started, waits for them, and unloads its kernels.
pub struct Service {
    handle: *mut sys::kiln_service,
}

// SAFETY: kiln.h says that every handle may be used by several threads at once.
unsafe impl Send for Service {}
// SAFETY: as above.
unsafe impl Sync for Service {}

impl Service {
    /// A service that KILN_*, the configuration file and the defaults configure.
    /// It touches no GPU and starts no process.
    pub fn new() -> Result<Service> {
        // SAFETY: null stands for no options.
        unsafe { Service::create(ptr::null()) }
    }

    /// A service with options of its own: `sys::kiln_options { struct_size, mode, ..Default::default() }`.
    ///
    /// # Safety
    ///
    /// - `struct_size` is the size of the struct in bytes.
    /// - Each text is null or ends with a zero byte.
    /// - `on_event` is null, or a function that keeps the promises of `kiln_event_callback`.
    ///   `event_user` is what that function expects, as long as the service lives.
    pub unsafe fn with_options(options: &sys::kiln_options) -> Result<Service> {
        // SAFETY: the caller promises what kiln.h asks for.
        unsafe { Service::create(options) }
    }

    /// # Safety
    ///
    /// `options` is null, or points to options as in `with_options`.
    unsafe fn create(options: *const sys::kiln_options) -> Result<Service> {
        let mut handle = ptr::null_mut();
        // SAFETY: the caller vouches for the options, and `handle` is valid for the write.
        check(unsafe { sys::kiln_service_create(options, &mut handle) })?;
        Ok(Service { handle })
    }

    /// Parses the manifest of a template and binds the template to a context. Repeated calls are cheap.
    pub fn open(&self, name: &str, device: Device<'_>) -> Result<Template<'_>> {
        let name = to_c("the template name", name)?;
        let (ordinal, arch) = match device {
            Device::Current => (sys::KILN_DEVICE_CURRENT, None),
            Device::Ordinal(ordinal) => (i32::from(ordinal), None),
            Device::None(arch) => (sys::KILN_DEVICE_NONE, arch),
        };
        let arch = arch.map(|text| to_c("the arch", text)).transpose()?;
        let arch = arch.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let mut handle = ptr::null_mut();
        // SAFETY: the service is alive, both texts live until the call returns, and `handle` is valid for
        // the write.
        check(unsafe { sys::kiln_service_open(self.handle, name.as_ptr(), ordinal, arch, &mut handle) })?;
        Ok(Template { handle, service: PhantomData })
    }

    /// The handle, for calls of [`sys`]. It is valid as long as the service.
    pub fn as_ptr(&self) -> *mut sys::kiln_service {
        self.handle
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // SAFETY: nothing uses the handle after this. Templates and kernels borrow the service, so none is
        // left. The callers of Kernel::launch() promised that their kernels have ended.
        unsafe { sys::kiln_service_destroy(self.handle) }
    }
}
