#!/usr/bin/env bash
# install_static_test.sh CMAKE BUILD_DIR SOURCE_DIR COMPILER
# Installs the static library without the shared one into another prefix than the configured one, and builds the engine against it.
# The engine lies elsewhere. It finds templates and worker through the package that it was built with.
# When these have moved, its error says where it looked and what to set.
set -euo pipefail
cmake=$1 build=$2 source=$3 compiler=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

"$cmake" --install "$build" --prefix "$work/a" >/dev/null
library=$(find "$work/a" -name 'libkiln.so')
rm -f "$library"*
[ -e "${library%.so}.a" ] || fail "libkiln.a is not installed"

# build_engine NAME PREFIX: builds $work/NAME/bin/engine with the package under PREFIX.
build_engine() {
  if ! { "$cmake" -S "$source/examples/engine" -B "$work/$1/bin" -DCMAKE_PREFIX_PATH="$2" -DCMAKE_CXX_COMPILER="$compiler" -G Ninja >"$work/log" 2>&1 &&
    "$cmake" --build "$work/$1/bin" >>"$work/log" 2>&1; }; then
    cat "$work/log"
    fail "the engine does not build"
  fi
}
mkdir "$work/tmp"
# run PROGRAM [VARIABLE=VALUE]...: runs it with an empty HOME, a new cache and nothing
# else of this environment.
run() {
  local program=$1
  shift
  rm -rf "$work/cache"
  (cd "$work/tmp" && env -i PATH="$PATH" HOME= TMPDIR="$work/tmp" KILN_CACHE_DIR="$work/cache" KILN_LIBCUDA=/nonexistent \
     ${KILN_CUDA_HOME:+KILN_CUDA_HOME="$KILN_CUDA_HOME"} ${CUDA_HOME:+CUDA_HOME="$CUDA_HOME"} "$@" "$program") >"$work/out" 2>"$work/err"
}
show() { cat "$work/out" "$work/err"; fail "$*"; }
# compiles CASE PROGRAM [VARIABLE=VALUE]...: expects that it compiles both kernels in a
# worker without a warning.
compiles() {
  local case=$1
  shift
  run "$@" || {
    grep -q NVRTC "$work/err" && { echo "no NVRTC on this machine"; exit 77; }
    show "$case: exit status $?"
  }
  [ "$(grep -c 'for sm_90a: compiled, key' "$work/out")" = 2 ] || show "$case: expected two compiles"
  [ ! -s "$work/err" ] || show "$case: warned"
}
# says PART...: expects every part in the last run's standard error.
says() {
  local part
  for part in "$@"; do grep -qF -- "$part" "$work/err" || show "the message lacks '$part'"; done
}

build_engine engine "$work/a"
program=$work/engine/bin/engine
! ldd "$program" | grep -q libkiln || fail "the engine was linked to a shared kiln"
compiles "the package's prefix" "$program"

# The directories around the program are searched first, then the package's prefix.
cp -a "$work/a" "$work/whole"
cp "$program" "$work/whole/bin/engine"
mv "$work/a" "$work/b"
compiles "around the program" "$work/whole/bin/engine"

run "$program" && fail "templates were found outside of the installation"
says "no template is called 'rms_norm'" "looked for" "$work/engine/bin/share/kiln/templates" "$work/engine/share/kiln/templates" \
  "$work/a/share/kiln/templates" KILN_TEMPLATE_PATH
templates=KILN_TEMPLATE_PATH=$work/b/share/kiln/templates
run "$program" "$templates" || show "without a worker: exit status $?"
says "no kiln-worker executable found" "$work/engine/bin/kiln-worker" "$work/engine/libexec/kiln/kiln-worker" \
  "$work/a/libexec/kiln/kiln-worker" KILN_WORKER
mkdir "$work/part"
cp "$work/b"/share/kiln/templates/norm/rms_norm.* "$work/part"
run "$program" KILN_TEMPLATE_PATH="$work/part" && fail "kiln's headers were found outside of the installation"
says '"kiln/' "looked for" "$work/a/share/kiln/templates" KILN_TEMPLATE_PATH
compiles "the variables" "$program" "$templates" KILN_WORKER="$work/b/libexec/kiln/kiln-worker"

build_engine another "$work/b"
compiles "the moved package" "$work/another/bin/engine"
# A copy of the templates that the user names replaces the installed templates.
mkdir "$work/own"
cp -a "$work/b/share/kiln/templates" "$work/own/templates"
compiles "a copy of the templates" "$work/another/bin/engine" KILN_TEMPLATE_PATH="$work/own/templates"
echo "a static program found templates and worker, or said where it looked"
