//! The declarations of kiln's C interface, as bindgen makes them from `kiln/kiln.h`.
//!
//! The crate `kiln` is the safe wrapper. The comments of the header document every declaration.
#![allow(non_camel_case_types, non_upper_case_globals)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
