// Values of parameters.

use std::marker::PhantomData;
use std::os::raw::c_char;
use std::ptr;

use kiln_sys as sys;

/// Element types. The ordinals are part of the C interface (`include/kiln/dtype.hpp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Dtype {
    F32 = 0,
    F16,
    BF16,
    E4M3,
    E5M2,
    F64,
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
}

/// The value of a parameter: a number, a truth value, an element type or a text.
///
/// A slice of values has the layout of C's array, so that a get copies nothing.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Value<'a> {
    #[allow(dead_code)] // kiln reads it
    raw: sys::kiln_value,
    text: PhantomData<&'a str>,
}

impl Value<'static> {
    /// The manifest's default.
    pub fn unset() -> Value<'static> {
        Value::integer(sys::KILN_VALUE_UNSET as i32, 0)
    }
    fn integer(kind: i32, integer: i64) -> Value<'static> {
        Value { raw: sys::kiln_value { kind, text_size: 0, integer, text: ptr::null() }, text: PhantomData }
    }
}

impl From<i64> for Value<'static> {
    fn from(value: i64) -> Self {
        Value::integer(sys::KILN_VALUE_INTEGER as i32, value)
    }
}
impl From<i32> for Value<'static> {
    fn from(value: i32) -> Self {
        Value::from(i64::from(value))
    }
}
impl From<u32> for Value<'static> {
    fn from(value: u32) -> Self {
        Value::from(i64::from(value))
    }
}
impl From<bool> for Value<'static> {
    fn from(value: bool) -> Self {
        Value::integer(sys::KILN_VALUE_BOOLEAN as i32, i64::from(value))
    }
}
impl From<Dtype> for Value<'static> {
    fn from(value: Dtype) -> Self {
        Value::integer(sys::KILN_VALUE_DTYPE as i32, value as i64)
    }
}
/// A text is accepted for every kind of parameter.
impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        // A text of more than 2 GiB is cut. No parameter accepts one.
        let text_size = i32::try_from(value.len()).unwrap_or(i32::MAX);
        let text = value.as_ptr() as *const c_char;
        let kind = sys::KILN_VALUE_TEXT as i32;
        Value { raw: sys::kiln_value { kind, text_size, integer: 0, text }, text: PhantomData }
    }
}
