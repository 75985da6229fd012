// A template that is bound to a device.

use std::ffi::CString;
use std::marker::PhantomData;
use std::mem;
use std::os::raw::c_char;
use std::ptr;

use kiln_sys as sys;

use crate::error::{check, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::service::Service;
use crate::text::to_c;
use crate::value::Value;

/// A template that is bound to a device, a context and an arch.
///
/// It borrows its service, and copies are cheap. Each call takes parameters in the manifest's order, or by
/// name. Parameters that are left out take their defaults.
#[derive(Clone, Copy)]
pub struct Template<'s> {
    pub(crate) handle: *mut sys::kiln_template,
    pub(crate) service: PhantomData<&'s Service>,
}

// SAFETY: kiln.h says that every handle may be used by several threads at once.
unsafe impl Send for Template<'_> {}
// SAFETY: as above.
unsafe impl Sync for Template<'_> {}

/// Parameters as the C interface takes them. `names` is null when the values are in the manifest's order.
struct Parameters {
    names: *const *const c_char,
    values: *const sys::kiln_value,
    count: usize,
}

impl Parameters {
    fn in_order(values: &[Value<'_>]) -> Parameters {
        // A Value is a kiln_value (repr(transparent)), so this is the address of C's array.
        Parameters { names: ptr::null(), values: values.as_ptr().cast(), count: values.len() }
    }
}

/// Calls `action` with named parameters, which live until it returns.
fn with_names<R>(named: &[(&str, Value<'_>)], action: impl FnOnce(&Parameters) -> Result<R>) -> Result<R> {
    let texts: Vec<CString> =
        named.iter().map(|(name, _)| to_c("the parameter name", name)).collect::<Result<_>>()?;
    let names: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    let values: Vec<Value<'_>> = named.iter().map(|(_, value)| *value).collect();
    action(&Parameters { names: names.as_ptr(), ..Parameters::in_order(&values) })
}

impl<'s> Template<'s> {
    /// Returns the kernel for these parameters, and makes it ready when it is not.
    ///
    /// For a ready kernel this takes no lock and allocates nothing.
    /// Otherwise the kernel comes from disk, from the fleet's tier or from the compiler, and is loaded.
    /// The template's context must be current then.
    pub fn get(&self, values: &[Value<'_>]) -> Result<Kernel<'s>> {
        self.got(&Parameters::in_order(values))
    }
    /// Does so with parameters by name. Each call copies the names, which `get` does not have to.
    pub fn get_named(&self, named: &[(&str, Value<'_>)]) -> Result<Kernel<'s>> {
        with_names(named, |parameters| self.got(parameters))
    }
    /// Gets only the image. Needs no GPU and loads nothing.
    pub fn compile(&self, values: &[Value<'_>]) -> Result<Image> {
        self.compiled(&Parameters::in_order(values))
    }
    /// Does so with parameters by name.
    pub fn compile_named(&self, named: &[(&str, Value<'_>)]) -> Result<Image> {
        with_names(named, |parameters| self.compiled(parameters))
    }

    /// The handle, for calls of [`sys`]. It is valid as long as the service.
    pub fn as_ptr(&self) -> *mut sys::kiln_template {
        self.handle
    }

    fn got(&self, p: &Parameters) -> Result<Kernel<'s>> {
        let mut handle = ptr::null();
        // SAFETY: the service is alive, because the template borrows it. The callers' parameters live until
        // the call returns, null stands for the default way to wait, and `handle` is valid for the write.
        check(unsafe {
            sys::kiln_template_get(self.handle, p.names, p.values, p.count, ptr::null(), &mut handle)
        })?;
        Ok(Kernel { handle, service: PhantomData })
    }

    fn compiled(&self, p: &Parameters) -> Result<Image> {
        let struct_size = mem::size_of::<sys::kiln_image>();
        let mut raw = sys::kiln_image { struct_size, ..Default::default() };
        // SAFETY: as in got(), and `raw` is valid for the write of struct_size bytes.
        check(unsafe { sys::kiln_template_compile(self.handle, p.names, p.values, p.count, &mut raw) })?;
        Ok(Image { raw })
    }
}
