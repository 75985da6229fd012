#!/usr/bin/env bash
# Goes from a fresh clone to real kernels: compiles and caches them, and lists ten. On a GPU it also launches,
# checks and times three. A second run takes everything from disk.
# shellcheck source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root" && mkdir -p build
install_packages "${build_packages[@]}"
find_toolkit
if [ ! -x build/release/kiln ]; then
  say "building kiln (release)"
fi
cmake --preset release >build/quickstart-cmake.log 2>&1 || { cat build/quickstart-cmake.log >&2; exit 1; }
cmake --build --preset release --target kiln-cli kiln-worker

say "compiling the shipped templates (what is in the cache already comes from disk)"
build/release/kiln prewarm

say "ten of the kernels that are cached now"
build/release/kiln ls -n 10

if build/release/kiln doctor | grep -q '^ok  *gpu'; then
  say "on this GPU: launched, checked against a float64 reference, timed against a stream of the same bytes"
  build/release/kiln run rms_norm T=bf16 H=4096 --check --bench
  build/release/kiln run act_and_mul T=bf16 D=14336 --check --bench
  build/release/kiln run softmax T=f32 H=32000 --check --bench
else
  say "no GPU here: kernels were compiled for sm_90a. On a GPU this script also launches, checks and times them."
fi
echo
echo "To use kiln in this shell:"
echo "  export PATH=\"$root/build/release:\$PATH\""
if [ -n "${KILN_CUDA_HOME:-}" ]; then
  echo "  export KILN_CUDA_HOME=\"$KILN_CUDA_HOME\"   # where NVRTC is"
fi
echo "  kiln compile rms_norm T=bf16 H=3000 --json"
