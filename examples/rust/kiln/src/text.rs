// Strings at the border of the C interface.

use std::ffi::{CStr, CString};
use std::os::raw::c_char;

use crate::error::{Code, Error, Result};

/// Copies a text for kiln, which wants a zero byte at its end and none before. `what` names it in the error.
pub(crate) fn to_c(what: &str, text: &str) -> Result<CString> {
    CString::new(text)
        .map_err(|_| Error::new(Code::InvalidArgument, format!("{what} {text:?} contains a zero byte")))
}

/// Borrows a text of kiln. Null is the empty text.
///
/// # Safety
///
/// `text` is null, or ends with a zero byte and does not change during `'a`.
pub(crate) unsafe fn from_c<'a>(text: *const c_char) -> &'a CStr {
    if text.is_null() {
        return Default::default();
    }
    // SAFETY: the caller promises the zero byte and the lifetime.
    unsafe { CStr::from_ptr(text) }
}

/// Borrows a text of kiln that is UTF-8 for certain: a specialisation, an arch, a key or a symbol.
///
/// # Safety
///
/// As for `from_c`.
pub(crate) unsafe fn str_from_c<'a>(text: *const c_char) -> &'a str {
    // SAFETY: the caller keeps the promises of from_c().
    unsafe { from_c(text) }.to_str().unwrap_or("(not UTF-8)")
}

/// Copies a text of kiln, and replaces bytes that are not UTF-8.
/// Paths may have such bytes, and the log of a compiler may be cut within a character.
///
/// # Safety
///
/// As for `from_c`, during the call.
pub(crate) unsafe fn copy_from_c(text: *const c_char) -> String {
    // SAFETY: the caller keeps the promises of from_c().
    unsafe { from_c(text) }.to_string_lossy().into_owned()
}
