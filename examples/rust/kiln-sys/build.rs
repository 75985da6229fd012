// Makes the declarations with the program `bindgen`, and links libkiln.
//
// Header and library are found in the directories of the C compiler. Environment variables name others.
// The names do not begin with KILN_, because kiln warns of such variables when it does not know them.
// - LIBKILN_INCLUDE_DIR: the directory that has kiln/kiln.h
// - LIBKILN_LIB_DIR: the directory that has libkiln.so
// - BINDGEN: the program, unless it is called bindgen

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The value of an environment variable. Cargo runs this program again when the variable changes.
fn setting(name: &str) -> Option<String> {
    println!("cargo:rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns what the command printed, and ends this build with a clear sentence when it fails.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?} cannot be run: {error}. Install bindgen, or let BINDGEN name it.")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{errors}");
    String::from_utf8(output.stdout).expect("bindgen writes UTF-8")
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let bindgen = setting("BINDGEN").unwrap_or_else(|| "bindgen".to_owned());
    let header = out.join("header.h");
    fs::write(&header, "#include <kiln/kiln.h>\n").expect("OUT_DIR is writable");

    let mut command = Command::new(&bindgen);
    command.args(["--allowlist-function", "kiln_.*"]);
    command.args(["--allowlist-type", "kiln_.*"]);
    command.args(["--allowlist-var", "KILN_.*"]);
    command.args(["--no-layout-tests", "--with-derive-default"]);
    // Since 0.61 bindgen takes size_t for usize without being told, and has no such option.
    let help = run(Command::new(&bindgen).arg("--help"));
    if help.split_whitespace().any(|word| word == "--size_t-is-usize") {
        command.arg("--size_t-is-usize");
    }
    command.arg(&header).arg("--");
    if let Some(directory) = setting("LIBKILN_INCLUDE_DIR") {
        println!("cargo:rerun-if-changed={directory}/kiln/kiln.h");
        command.arg(format!("-I{directory}"));
    }
    fs::write(out.join("bindings.rs"), run(&mut command)).expect("OUT_DIR is writable");

    if let Some(directory) = setting("LIBKILN_LIB_DIR") {
        println!("cargo:rustc-link-search=native={directory}");
    }
    println!("cargo:rustc-link-lib=dylib=kiln");
}
