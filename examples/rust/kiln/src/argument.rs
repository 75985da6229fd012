// Arguments of a launch.

use std::mem;

use kiln_sys as sys;

/// A value that a launch may pass to a kernel.
///
/// kiln converts integers and floats to the width that the manifest declares, when the value fits.
/// Implement this for a struct that a kernel takes by value, with the kind `sys::KILN_ARG_BYTES`.
///
/// # Safety
///
/// `arg_type()` returns the kind of the value, and the size of `Self` in bytes.
/// The launch reads all bytes of the value, so none of them may be padding.
pub unsafe trait Argument {
    fn arg_type(&self) -> sys::kiln_arg_type;
}

/// An address in device memory, as the driver's CUdeviceptr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct DevicePtr(pub u64);

const fn type_of<T>(kind: u32) -> sys::kiln_arg_type {
    sys::kiln_arg_type { kind, size: mem::size_of::<T>() as u32 }
}

macro_rules! argument {
    ($kind:ident: $($type:ty),+) => {$(
        // SAFETY: the kind is that of the type, the size is computed, and the type has no padding.
        unsafe impl Argument for $type {
            fn arg_type(&self) -> sys::kiln_arg_type {
                type_of::<$type>(sys::$kind)
            }
        }
    )+};
}
argument!(KILN_ARG_POINTER: DevicePtr);
argument!(KILN_ARG_SIGNED: i8, i16, i32, i64, isize);
argument!(KILN_ARG_UNSIGNED: bool, u8, u16, u32, u64, usize);
argument!(KILN_ARG_FLOAT: f32, f64);

// SAFETY: a pointer to a sized type is an address of 8 bytes.
unsafe impl<T> Argument for *const T {
    fn arg_type(&self) -> sys::kiln_arg_type {
        type_of::<*const T>(sys::KILN_ARG_POINTER)
    }
}
// SAFETY: as above.
unsafe impl<T> Argument for *mut T {
    fn arg_type(&self) -> sys::kiln_arg_type {
        type_of::<*mut T>(sys::KILN_ARG_POINTER)
    }
}
