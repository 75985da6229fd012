//! A safe wrapper of kiln's C interface: open a template, get or compile a kernel, launch it.
//!
//! ```no_run
//! use kiln::{Device, Dtype, Service};
//!
//! fn main() -> kiln::Result<()> {
//!     let service = Service::new()?;
//!     let rms_norm = service.open("rms_norm", Device::None(Some("sm_90a")))?;
//!     let image = rms_norm.compile(&[Dtype::BF16.into(), 4096.into()])?;
//!     println!("{}: {} bytes", image.specialization(), image.bytes().len());
//!     Ok(())
//! }
//! ```
//!
//! Templates and kernels borrow their service, so none of them outlives it.
//! Neither of these functions compiles:
//!
//! ```compile_fail,E0505
//! fn template_outlives_service(service: kiln::Service) -> kiln::Result<()> {
//!     let rms_norm = service.open("rms_norm", kiln::Device::Current)?;
//!     drop(service);
//!     rms_norm.get(&[]).map(|_| ())
//! }
//! ```
//!
//! ```compile_fail,E0515
//! fn kernel_outlives_service() -> kiln::Result<kiln::Kernel<'static>> {
//!     let service = kiln::Service::new()?;
//!     service.open("rms_norm", kiln::Device::Current)?.get(&[])
//! }
//! ```
//!
//! A launch is `unsafe`, because the kernel reads and writes memory through the pointers that it is given.
//! So is `Service::with_options`, which takes the pointers of the C struct.
//! All other calls are safe, and every handle may be used by several threads at once.
//! Calls that this wrapper lacks are in [`sys`], and take the handles that `as_ptr` returns.
#![deny(unsafe_op_in_unsafe_fn)]

mod argument;
mod error;
mod image;
mod kernel;
mod service;
mod template;
mod text;
mod value;

pub use argument::{Argument, DevicePtr};
pub use error::{Code, Error, Result};
pub use image::{Image, Outcome};
pub use kernel::{Info, Kernel};
pub use kiln_sys as sys;
pub use service::{Device, Service};
pub use template::Template;
pub use value::{Dtype, Value};
