// Errors, and the check of a status.

use std::fmt;

use kiln_sys as sys;

use crate::text::copy_from_c;

pub type Result<T> = std::result::Result<T, Error>;

/// The kinds of errors, by what a caller can do about them. `include/kiln/error.hpp` documents each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    InvalidArgument,
    UnknownTemplate,
    UnknownParameter,
    InvalidValue,
    Requirement,
    Manifest,
    Source,
    UnsupportedArch,
    CompileFailed,
    CompileTimeout,
    CompileCrashed,
    NoCompiler,
    NoDriver,
    Driver,
    NotReady,
    Deadline,
    Io,
    Internal,
    /// A status that only a newer kiln has.
    Other(i32),
}

impl Code {
    fn from_status(status: sys::kiln_status) -> Code {
        match status {
            1 => Code::InvalidArgument,
            2 => Code::UnknownTemplate,
            3 => Code::UnknownParameter,
            4 => Code::InvalidValue,
            5 => Code::Requirement,
            6 => Code::Manifest,
            7 => Code::Source,
            8 => Code::UnsupportedArch,
            9 => Code::CompileFailed,
            10 => Code::CompileTimeout,
            11 => Code::CompileCrashed,
            12 => Code::NoCompiler,
            13 => Code::NoDriver,
            14 => Code::Driver,
            15 => Code::NotReady,
            16 => Code::Deadline,
            17 => Code::Io,
            18 => Code::Internal,
            other => Code::Other(other),
        }
    }
}

/// An error of kiln.
///
/// Both `Display` and `Debug` print the whole message, and the compiler's log after it if there is one.
/// So a `main` that returns the error prints what went wrong.
#[derive(Clone)]
pub struct Error {
    code: Code,
    message: String,
    specialization: String,
    options: String,
    log: String,
}

impl Error {
    pub(crate) fn new(code: Code, message: String) -> Error {
        Error { code, message, specialization: String::new(), options: String::new(), log: String::new() }
    }

    /// The error of this thread's last failing call.
    fn last() -> Error {
        // SAFETY: kiln_last_error() never returns null. The error and its texts stay as they are until this
        // thread's next failing call, and they are copied before that.
        unsafe {
            let error = &*sys::kiln_last_error();
            Error {
                code: Code::from_status(error.status),
                message: copy_from_c(error.message),
                specialization: copy_from_c(error.specialization),
                options: copy_from_c(error.options),
                log: copy_from_c(error.log),
            }
        }
    }

    pub fn code(&self) -> Code {
        self.code
    }
    /// Names the thing, the value and what was allowed.
    pub fn message(&self) -> &str {
        &self.message
    }
    /// The specialisation that failed to compile: "rms_norm T=bf16 H=4096". Empty for other errors.
    pub fn specialization(&self) -> &str {
        &self.specialization
    }
    /// The options of the failed compile, one a line. Empty for other errors.
    pub fn options(&self) -> &str {
        &self.options
    }
    /// The first 16 KB of the compiler's log. Empty for errors that are not a compiler's.
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)?;
        if !self.log.is_empty() {
            write!(out, "\n{}", self.log.trim_end())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {self}", self.code)
    }
}

impl std::error::Error for Error {}

/// Makes a result of a status. Call it in the thread of the failed call, before any other call of kiln.
pub(crate) fn check(status: sys::kiln_status) -> Result<()> {
    if status == sys::KILN_OK as sys::kiln_status {
        Ok(())
    } else {
        Err(Error::last())
    }
}
