// The few driver calls that a program makes itself, loaded with dlopen: the build needs no CUDA toolkit.

use std::env;
use std::ffi::{CStr, CString};
use std::mem;
use std::os::raw::{c_char, c_int, c_uint, c_void};
use std::ptr;

use kiln::sys::CUstream;
use kiln::DevicePtr;

use crate::bfloat16::BFloat16;

// In glibc before 2.34 these two are in libdl.
#[link(name = "dl")]
extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}
const RTLD_NOW: c_int = 2;

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

/// The driver of a machine that has a device.
pub struct Driver {
    retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    set_current: unsafe extern "C" fn(*mut c_void) -> c_int,
    stream_create: unsafe extern "C" fn(*mut CUstream, c_uint) -> c_int,
    stream_synchronize: unsafe extern "C" fn(CUstream) -> c_int,
    alloc: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64) -> c_int,
    to_device: unsafe extern "C" fn(u64, *const c_void, usize) -> c_int,
    to_host: unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int,
}

fn check(result: c_int, call: &str) -> Result<(), String> {
    if result == 0 {
        Ok(())
    } else {
        Err(format!("{call} returned {result}"))
    }
}

/// Makes a function pointer of an address.
///
/// # Safety
///
/// `F` is the type of a C function, and the address leads to a function of this type.
unsafe fn function<F: Copy>(address: *mut c_void) -> F {
    assert_eq!(mem::size_of::<F>(), mem::size_of_val(&address));
    // SAFETY: the sizes are equal, and the caller vouches for the type.
    unsafe { mem::transmute_copy(&address) }
}

fn text(value: &str) -> CString {
    CString::new(value).expect("the text has no zero byte")
}

impl Driver {
    /// Loads the driver, or says why there is none. KILN_LIBCUDA names another one, as for kiln.
    pub fn find() -> Result<Driver, String> {
        let named = env::var("KILN_LIBCUDA").ok().filter(|name| !name.is_empty());
        let name = text(named.as_deref().unwrap_or("libcuda.so.1"));
        // SAFETY: the name ends with a zero byte. dlerror() returns a text after a failed dlopen().
        let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
        if library.is_null() {
            // SAFETY: as above; no other thread calls dlopen() now.
            return Err(unsafe { CStr::from_ptr(dlerror()) }.to_string_lossy().into_owned());
        }
        // SAFETY: the library is loaded and stays so, and the name ends with a zero byte.
        let get = unsafe { dlsym(library, text("cuGetProcAddress_v2").as_ptr()) };
        if get.is_null() {
            return Err("the driver lacks cuGetProcAddress_v2".to_owned());
        }
        // SAFETY: cuda.h declares the function so.
        let get: GetProcAddress = unsafe { function(get) };
        let find = |symbol: &str, version: c_int| {
            let mut found = ptr::null_mut();
            let mut status = 0;
            // SAFETY: both results are valid for the write, and the name ends with a zero byte.
            let result = unsafe { get(text(symbol).as_ptr(), &mut found, version, 0, &mut status) };
            if result != 0 || found.is_null() {
                return Err(format!("the driver lacks {symbol}"));
            }
            Ok(found)
        };
        // SAFETY: cuda.h declares each function of this version as the field or the local type says.
        let (driver, init, count) = unsafe {
            type Init = unsafe extern "C" fn(c_uint) -> c_int;
            type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
            let driver = Driver {
                retain: function(find("cuDevicePrimaryCtxRetain", 7000)?),
                set_current: function(find("cuCtxSetCurrent", 4000)?),
                stream_create: function(find("cuStreamCreate", 2000)?),
                stream_synchronize: function(find("cuStreamSynchronize", 2000)?),
                alloc: function(find("cuMemAlloc", 3020)?),
                free: function(find("cuMemFree", 3020)?),
                to_device: function(find("cuMemcpyHtoD", 3020)?),
                to_host: function(find("cuMemcpyDtoH", 3020)?),
            };
            let init: Init = function(find("cuInit", 2000)?);
            let count: Count = function(find("cuDeviceGetCount", 2000)?);
            (driver, init, count)
        };
        let mut devices = 0;
        // SAFETY: the flags must be 0, and `devices` is valid for the write.
        unsafe {
            check(init(0), "cuInit")?;
            check(count(&mut devices), "cuDeviceGetCount")?;
        }
        if devices == 0 {
            return Err("the driver has no device".to_owned());
        }
        Ok(driver)
    }

    /// Makes the first device's primary context current in this thread. It is never released.
    pub fn use_first_device(&self) -> Result<(), String> {
        let mut context = ptr::null_mut();
        // SAFETY: `context` is valid for the write, and is a context after it.
        unsafe {
            check((self.retain)(&mut context, 0), "cuDevicePrimaryCtxRetain")?;
            check((self.set_current)(context), "cuCtxSetCurrent")
        }
    }

    /// Makes a stream in the current context. It is never destroyed, because the process is short.
    pub fn make_stream(&self) -> Result<Stream<'_>, String> {
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is valid for the write.
        check(unsafe { (self.stream_create)(&mut handle, 0) }, "cuStreamCreate")?;
        Ok(Stream { driver: self, handle })
    }

    /// Allocates device memory with the contents of `from`.
    pub fn upload(&self, from: &[BFloat16]) -> Result<Buffer<'_>, String> {
        let bytes = mem::size_of_val(from);
        let mut address = 0;
        // SAFETY: `address` is valid for the write.
        check(unsafe { (self.alloc)(&mut address, bytes) }, "cuMemAlloc")?;
        let buffer = Buffer { driver: self, address, count: from.len() };
        // SAFETY: both sides have that number of bytes.
        check(unsafe { (self.to_device)(address, from.as_ptr().cast(), bytes) }, "cuMemcpyHtoD")?;
        Ok(buffer)
    }
}

/// A stream of the context in which it was made.
pub struct Stream<'d> {
    driver: &'d Driver,
    handle: CUstream,
}

impl Stream<'_> {
    pub fn handle(&self) -> CUstream {
        self.handle
    }
    /// Waits for the work of the stream.
    pub fn synchronize(&self) -> Result<(), String> {
        // SAFETY: the stream is never destroyed.
        check(unsafe { (self.driver.stream_synchronize)(self.handle) }, "cuStreamSynchronize")
    }
}

/// Device memory with bf16 elements.
pub struct Buffer<'d> {
    driver: &'d Driver,
    address: u64,
    count: usize,
}

impl Buffer<'_> {
    pub fn address(&self) -> DevicePtr {
        DevicePtr(self.address)
    }
    pub fn download(&self) -> Result<Vec<BFloat16>, String> {
        let mut out = vec![BFloat16::default(); self.count];
        let bytes = mem::size_of_val(&out[..]);
        // SAFETY: both sides have that number of bytes, and any two bytes are a BFloat16.
        let result = unsafe { (self.driver.to_host)(out.as_mut_ptr().cast(), self.address, bytes) };
        check(result, "cuMemcpyDtoH")?;
        Ok(out)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing uses the memory after this. The driver waits for kernels that do.
        unsafe { (self.driver.free)(self.address) };
    }
}
