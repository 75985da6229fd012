//! Compiles the shipped template rms_norm for sm_90a, which needs no GPU. With a driver it also gets the
//! kernel, launches it, and compares the results with the formula in f64 on the CPU.
//!
//!     rms_norm [--require-gpu]     exit status: 0 done, 1 an error, 2 results differ,
//!                                  77 no GPU although one was required
#![deny(unsafe_op_in_unsafe_fn)]

mod bfloat16;
mod driver;

use std::error::Error;
use std::process::ExitCode;

use bfloat16::BFloat16;
use driver::Driver;
use kiln::{Device, Dtype, Service, Value};

const HIDDEN: usize = 4096;
const ROWS: usize = 7;
const EPS: f32 = 1e-5;
/// The manifest's `tolerance` for bf16, of the relative RMS error.
const TOLERANCE: f64 = 4e-3;

fn parameters() -> [(&'static str, Value<'static>); 3] {
    [("T", Dtype::BF16.into()), ("H", (HIDDEN as i64).into()), ("FUSED_ADD", true.into())]
}

/// Reproducible numbers in [-0.875, 1.125), not symmetric.
fn number(i: usize) -> f32 {
    ((i.wrapping_mul(2654435761) >> 8) % 65536) as f32 / 32768.0 - 1.0 + 0.125
}

fn numbers(count: usize, at: impl Fn(usize) -> f32) -> Vec<BFloat16> {
    (0..count).map(|i| BFloat16::from_f32(at(i))).collect()
}

/// Prints how far results are from what was expected, and returns whether that is within the tolerance.
fn compare(what: &str, got: &[BFloat16], expected: &[f64]) -> bool {
    let (mut largest, mut squares, mut reference) = (0f64, 0f64, 0f64);
    for (got, expected) in got.iter().zip(expected) {
        let error = (got.to_f64() - expected).abs();
        largest = largest.max(error);
        squares += error * error;
        reference += expected * expected;
    }
    let rms = (squares / reference).sqrt();
    println!("{what}: max error {largest:.3e}, relative RMS error {rms:.3e} (tolerance {TOLERANCE:.0e})");
    rms <= TOLERANCE // false for a NaN, too
}

fn compile_only(service: &Service) -> kiln::Result<()> {
    let rms_norm = service.open("rms_norm", Device::None(Some("sm_90a")))?;
    let image = rms_norm.compile_named(&parameters())?;
    let (bytes, key) = (image.bytes().len(), image.key());
    println!(
        "{} for {}: {}, key {key}, {bytes} bytes",
        image.specialization(),
        image.arch(),
        image.outcome()
    );
    Ok(())
}

/// Returns whether the results are right.
fn run_on_gpu(service: &Service, driver: &Driver) -> Result<bool, Box<dyn Error>> {
    driver.use_first_device()?;
    let kernel = service.open("rms_norm", Device::Current)?.get_named(&parameters())?;
    let info = kernel.info()?;
    println!(
        "{}: {}, key {}, {} registers, {} spill bytes",
        info.specialization, info.outcome, info.key, info.registers, info.spill_bytes
    );

    let x = numbers(ROWS * HIDDEN, |i| 3.0 * number(i));
    let residual = numbers(ROWS * HIDDEN, |i| number(7 * i + 1));
    let w = numbers(HIDDEN, |i| number(3 * i));
    let d_x = driver.upload(&x)?;
    let d_residual = driver.upload(&residual)?;
    let d_w = driver.upload(&w)?;
    let d_out = driver.upload(&vec![BFloat16::default(); ROWS * HIDDEN])?;
    let stream = driver.make_stream()?;
    let (rows, stride) = (ROWS as i32, HIDDEN as i64);
    // SAFETY: the context that the template was opened with is current, and the stream was made in it. The
    // buffers have the shapes of the manifest. They and the service live until the stream is synchronised.
    unsafe {
        kernel.launch(
            stream.handle(),
            &[
                &d_out.address(),
                &d_x.address(),
                &d_w.address(),
                &rows,
                &stride,
                &stride,
                &EPS,
                &d_residual.address(),
                &stride,
            ],
        )?;
    }
    stream.synchronize()?;

    let sum: Vec<f64> = x.iter().zip(&residual).map(|(x, r)| x.to_f64() + r.to_f64()).collect();
    let mut normalised = Vec::with_capacity(sum.len());
    for row in sum.chunks(HIDDEN) {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / HIDDEN as f64;
        let scale = 1.0 / (mean + f64::from(EPS)).sqrt();
        normalised.extend(row.iter().zip(&w).map(|(v, w)| v * scale * w.to_f64()));
    }
    let out_is_right = compare("rms_norm, out", &d_out.download()?, &normalised);
    let residual_is_right = compare("rms_norm, residual", &d_residual.download()?, &sum);
    Ok(out_is_right && residual_is_right)
}

fn run(require_gpu: bool) -> Result<ExitCode, Box<dyn Error>> {
    let service = Service::new()?;
    compile_only(&service)?;
    match Driver::find() {
        Ok(driver) if run_on_gpu(&service, &driver)? => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::from(2)),
        Err(why) => {
            println!("no GPU: {why}");
            Ok(if require_gpu { ExitCode::from(77) } else { ExitCode::SUCCESS })
        }
    }
}

fn main() -> ExitCode {
    let require_gpu = std::env::args().nth(1).as_deref() == Some("--require-gpu");
    run(require_gpu).unwrap_or_else(|error| {
        eprintln!("rms_norm: {error}");
        ExitCode::FAILURE
    })
}
