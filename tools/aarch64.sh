#!/usr/bin/env bash
# Compiles the unit tests for aarch64 and runs them under QEMU's user mode: tools/aarch64.sh [ARGUMENT OF ctest...]
#
# Debian's cross compiler builds them with the libraries of Debian 12 for arm64, which are only unpacked. NVRTC comes from
# NVIDIA's wheel for aarch64. Everything lies in build/aarch64, and a second run uses it. Needs root, for packages.
# shellcheck source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
# shellcheck source=debian.sh
source "$root/tools/debian.sh"
cd "$root"

here=$root/build/aarch64
sysroot=$here/sysroot
build=$here/build
mkdir -p "$here"
exec 9>"$here/lock"
flock 9

install_packages g++-aarch64-linux-gnu qemu-user-static cmake ninja-build pkg-config python3 python3-pip
libraries=(liblmdb-dev liblmdb0 libspdlog-dev libspdlog1.10 libfmt-dev libfmt9 libxxhash-dev libcli11-dev libtomlplusplus-dev
           nlohmann-json3-dev libsodium-dev libsodium23 libzstd-dev libzstd1 libhiredis-dev libssl-dev libssl3 libgtest-dev
           libvalijson-dev)
if [ "$(cat "$sysroot.ready" 2>/dev/null)" != "${libraries[*]}" ]; then
  say "unpacking packages for arm64"
  rm -rf "$sysroot"
  unpack_packages arm64 bookworm "$sysroot" "${libraries[@]}"
  echo "${libraries[*]}" >"$sysroot.ready"
fi
toolkit=$here/toolkit
if [ ! -e "$toolkit.ready" ]; then
  say "fetching NVRTC for aarch64"
  rm -rf "$toolkit"
  python3 -m pip install -q --disable-pip-version-check --target "$toolkit" --only-binary :all: --no-deps --platform manylinux2014_aarch64 \
    --platform manylinux_2_27_aarch64 "${toolkit_wheels[@]}"
  touch "$toolkit.ready"
fi
export KILN_CUDA_HOME=$toolkit/nvidia/cu13
unset CUDA_HOME CUDA_PATH

say "compiling for aarch64"
PKG_CONFIG_SYSROOT_DIR=$sysroot PKG_CONFIG_LIBDIR=$sysroot/usr/lib/aarch64-linux-gnu/pkgconfig:$sysroot/usr/share/pkgconfig \
  cmake --preset dev -B "$build" -DCMAKE_TOOLCHAIN_FILE="$root/tools/aarch64/debian.cmake" -DKILN_SYSROOT="$sysroot" \
  -DCMAKE_CROSSCOMPILING_EMULATOR="qemu-aarch64-static;-L;/usr/aarch64-linux-gnu" \
  -DKILN_NVTX_INCLUDE_DIR="$KILN_CUDA_HOME/include" -DKILN_TEST_CUDA_INCLUDE="$KILN_CUDA_HOME/include" >"$here/cmake.log" 2>&1 ||
  { tail -30 "$here/cmake.log" >&2; exit 1; }
# The executables that have tests with the label `unit`, and what they open at run time.
cmake --build "$build" --target base_tests toolchain_tests driver_load_test fake_driver_test source_tests cache_tests bundle_tests \
  attention_tests fleet_tests fleet_envelope_test compile_tests runtime_tests fault_store_tests tools_unit_tests \
  kiln-library kiln-worker kiln_fake_cuda

left_out=(
  # They check the build and the sources, and nothing of them is compiled for aarch64.
  'Executables\.' 'Layout\.' 'Bench\.' 'Wheel\.'
  # QEMU starts in a user namespace whose only user is root, so no file can belong to another user.
  'ScanMemoTest\.IsIgnoredWhenOthersCouldHaveWrittenIt$'
  'Catalog\.FindsWhatLiesInADirectoryThatMayNotBeListed$'
  'BoardTest\.WhatIsNotOursIsNeitherReadNorTouched$'
  'Interposer\.StandsBeforeTheCommandToo$' # preloads a library of aarch64 into a program of this machine
)
say "unit tests under QEMU"
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu # where QEMU finds libc for programs that a test starts
tools/aarch64/emulate.sh "$here/rules" ctest --test-dir "$build" -j "$(nproc)" -L '^unit$' -E "^($(IFS='|' && echo "${left_out[*]}"))" \
  --no-tests=error --output-on-failure "$@" | tee "$here/tests.log"
grep -F '***Skipped' "$here/tests.log" | sed 's/ *\.\.\..*//' >"$here/skipped.log" || true
echo "skipped: $(wc -l <"$here/skipped.log"), listed in build/aarch64/skipped.log"
