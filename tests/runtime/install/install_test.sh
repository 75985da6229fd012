#!/usr/bin/env bash
# install_test.sh CMAKE BUILD_DIR SOURCE_DIR COMPILER FAKE_CUDA HOST_KERNELS
# Installs into a temporary prefix and builds the example engine against it.
# Runs the engine from another directory without HOME, with and without a driver. Then moves the installation.
# The engine must find everything relative to the library's own place.
set -euo pipefail
cmake=$1 build=$2 source=$3 compiler=$4 fake=$5 host_kernels=$6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

"$cmake" --install "$build" --prefix "$work/a" >/dev/null
for file in include/kiln/kiln.h include/kiln/kiln.hpp libexec/kiln/kiln-worker bin/kiln share/kiln/templates/norm/rms_norm.toml \
            share/kiln/templates/kiln/vector.cuh share/kiln/templates/.clangd share/kiln/templates/kiln/editor.cuh \
            share/kiln/templates/shim/type_traits; do
  [ -e "$work/a/$file" ] || fail "$file is not installed"
done
library=$(cd "$work/a" && find . -name 'libkiln.so' | head -n 1)
[ -n "$library" ] || fail "libkiln.so is not installed"
libdir=${library%/*}

for example in engine decoder; do
  if ! { "$cmake" -S "$source/examples/$example" -B "$work/$example" -DCMAKE_PREFIX_PATH="$work/a" -DCMAKE_CXX_COMPILER="$compiler" -G Ninja >"$work/log" 2>&1 &&
    "$cmake" --build "$work/$example" >>"$work/log" 2>&1; }; then
    cat "$work/log"
    fail "the example $example does not build"
  fi
done

mkdir "$work/tmp" "$work/elsewhere"
# run OUT CACHE [VARIABLE=VALUE]...: runs the engine with an empty HOME and nothing else of this environment.
run() {
  local out=$1 cache=$2
  shift 2
  (cd "$work/elsewhere" && env -i PATH="$PATH" HOME= TMPDIR="$work/tmp" KILN_CACHE_DIR="$cache" ${KILN_CUDA_HOME:+KILN_CUDA_HOME="$KILN_CUDA_HOME"} \
     ${CUDA_HOME:+CUDA_HOME="$CUDA_HOME"} "$@" "$work/engine/engine") >"$work/$out.out" 2>"$work/$out.err"
}
# expect OUT PATTERN COUNT: expects COUNT lines of that run's output to match.
expect() {
  [ "$(grep -c -- "$2" "$work/$1.out" || true)" = "$3" ] || { cat "$work/$1.out" "$work/$1.err"; fail "$1: expected $3 lines with '$2'"; }
}
quiet() { [ ! -s "$work/$1.err" ] || { cat "$work/$1.err"; fail "$1: warned"; }; }
show() { cat "$work/$1.out" "$work/$1.err"; fail "$1: exit status $2"; }

run none "$work/cache1" KILN_LIBCUDA=/nonexistent || {
  grep -q NVRTC "$work/none.err" && { echo "no NVRTC on this machine"; exit 77; }
  show none $?
}
expect none '^no GPU' 1
expect none 'for sm_90a: compiled, key' 2
expect none 'nothing was launched$' 1
quiet none
run again "$work/cache1" KILN_LIBCUDA=/nonexistent || show again $?
expect again 'for sm_90a: disk, key' 2
cmp <(grep -o 'key [0-9a-f]*' "$work/none.out") <(grep -o 'key [0-9a-f]*' "$work/again.out") || fail "keys differ"
[ -z "$(ls -A "$work/elsewhere")" ] || fail "it left files in its working directory"

run fake "$work/cache1" KILN_LIBCUDA="$fake" LD_PRELOAD="$host_kernels" || show fake $?
expect fake '^rms_norm T=bf16 .*: compiled' 1    # with FUSED_ADD, which no earlier run compiled
expect fake '^softmax T=f32 .*: disk' 1          # the same key as without a GPU
expect fake 'max error' 3
quiet fake
status=0
run idle "$work/cache1" KILN_LIBCUDA="$fake" || status=$?
[ "$status" = 2 ] || show idle "$status, where kernels that compute nothing must be noticed"

run nohome "" KILN_LIBCUDA=/nonexistent env -u HOME || show nohome $?
expect nohome 'compiled, key' 2
[ -n "$(find "$work/tmp" -name data.mdb)" ] || fail "without HOME the store is not under TMPDIR"

# Moves the installation to another prefix.
cp -a "$work/a" "$work/b"
rm -rf "$work/a"
run moved "$work/cache2" KILN_LIBCUDA=/nonexistent LD_LIBRARY_PATH="$work/b/$libdir" || show moved $?
expect moved 'for sm_90a: compiled, key' 2
quiet moved
cmp <(grep -o 'key [0-9a-f]*' "$work/none.out") <(grep -o 'key [0-9a-f]*' "$work/moved.out") || fail "keys depend on the prefix"
env -i PATH="$PATH" HOME= TMPDIR="$work/tmp" KILN_CACHE_DIR="$work/cache2" ${CUDA_HOME:+CUDA_HOME="$CUDA_HOME"} ${KILN_CUDA_HOME:+KILN_CUDA_HOME="$KILN_CUDA_HOME"} \
  "$work/b/bin/kiln" compile rms_norm T=bf16 H=4096 --json >"$work/command.out" 2>"$work/command.err" || { cat "$work/command.err"; fail "the moved command"; }
grep -q '"outcome": *"disk"' "$work/command.out" || { cat "$work/command.out"; fail "command and library do not share their keys"; }

rm -rf "$work/b/share/kiln/templates"
run bare "$work/cache2" KILN_LIBCUDA=/nonexistent LD_LIBRARY_PATH="$work/b/$libdir" && fail "templates were found outside of the installation"
for part in "no template is called 'rms_norm'" "looked for" "$work/b/share/kiln/templates" "$work/engine/share/kiln/templates" KILN_TEMPLATE_PATH; do
  grep -qF -- "$part" "$work/bare.err" || { cat "$work/bare.err"; fail "bare: the message lacks '$part'"; }
done
echo "installed, built against, run and moved"
