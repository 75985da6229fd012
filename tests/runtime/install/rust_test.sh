#!/usr/bin/env bash
# rust_test.sh BUILD_DIR SOURCE_DIR FAKE_CUDA HOST_KERNELS
# Builds examples/rust against the library of this build, without a network. Runs its tests, and its program with and
# without a driver. Cargo's files stay below BUILD_DIR/rust.
set -euo pipefail
build=$1 source=$2 fake=$3 host_kernels=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 77; }

[ -n "${KILN_TEST_NIGHTLY:-}" ] || skip "this runs at night (tools/nightly.sh rust), because cargo builds everything anew"
for program in cargo rustc bindgen; do
  "$program" --version >"$work/version" 2>&1 ||
    skip "$program is not installed or does not run; the packages cargo, rustc, bindgen and libclang-dev have what this test needs"
done
echo '#include <stddef.h>' >"$work/empty.h"
bindgen "$work/empty.h" >"$work/empty.rs" 2>"$work/bindgen.err" ||
  skip "bindgen finds no libclang or no headers of clang (package libclang-dev): $(head -n 1 "$work/bindgen.err")"

# Settings of this environment must not reach kiln, except the place of the toolkit.
for variable in $(compgen -e KILN_); do
  [ "$variable" = KILN_CUDA_HOME ] || unset "$variable"
done
export CARGO_HOME=$build/rust/home CARGO_TARGET_DIR=$build/rust
export LIBKILN_INCLUDE_DIR=$source/include LIBKILN_LIB_DIR=$build
export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cd "$source/examples/rust"
cargo build --offline --locked --jobs 2 || fail "examples/rust does not build"

# run OUT [VARIABLE=VALUE]...: runs the program.
run() {
  local out=$1
  shift
  env KILN_CACHE_DIR="$work/cache" "$@" "$build/rust/debug/rms_norm" >"$work/$out.out" 2>"$work/$out.err"
}
show() { cat "$work/$1.out" "$work/$1.err"; fail "$1: exit status $2"; }
# expect OUT PATTERN COUNT: expects COUNT lines of that run's output to match, and no warning.
expect() {
  [ "$(grep -c -- "$2" "$work/$1.out" || true)" = "$3" ] || { cat "$work/$1.out" "$work/$1.err"; fail "$1: expected $3 lines with '$2'"; }
  [ ! -s "$work/$1.err" ] || { cat "$work/$1.err"; fail "$1: warned"; }
}

run none KILN_LIBCUDA=/nonexistent || {
  status=$?
  grep -q NVRTC "$work/none.err" && skip "no NVRTC on this machine"
  show none $status
}
expect none 'for sm_90a: compiled, key' 1
expect none '^no GPU' 1
run fake KILN_LIBCUDA="$fake" LD_PRELOAD="$host_kernels" || show fake $?
expect fake 'for sm_90a: disk, key' 1
expect fake ': memory, key' 1 # the image that was compiled without a device is the device's
expect fake 'max error' 2
cat "$work/none.out" "$work/fake.out"
status=0
run idle KILN_LIBCUDA="$fake" || status=$?
[ "$status" = 2 ] || show idle "$status, where a kernel that computes nothing must be noticed"

KILN_CACHE_DIR=$work/cache KILN_LIBCUDA=/nonexistent cargo test --offline --locked --jobs 2 --package kiln || fail "a test of the wrapper"
echo "built, run and tested with $(rustc --version) and $(bindgen --version)"
