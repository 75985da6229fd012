#!/usr/bin/env bash
# Runs what is too slow for .ci/run, or needs an idle machine: tools/nightly.sh [PART...] [-- ARGUMENT OF ctest...]
# Without a part it runs all of them, in this order:
#
#   - alone: each file is compiled without precompiled headers, which shows that it includes what it uses
#   - tidy: clang-tidy over the whole product; runs `alone` first
#   - fuzz: the fuzz programs, built
#   - site: the site of the documentation, built with warnings as errors and loaded in a browser
#   - versions: the command of 0.1 and this one, side by side on one cache directory and one Redis server
#   - clones: `kiln caches restore` on filesystems that can clone files, XFS and Btrfs in image files
#   - rust: examples/rust, built with cargo and bindgen of the distribution, run on the fake driver
#   - toolkits: other versions of NVRTC, from their wheels, compile a small plan for every kind of target
#   - lint: every shipped template, in all combinations of the values of its prewarm rows
#   - tests: all tests, with strict time limits and with the cases that CI leaves out (KILN_TEST_NIGHTLY)
#   - aarch64: the unit tests, compiled for aarch64 and run under QEMU
#   - wheel: the wheels of both architectures, checked, installed without a compiler and a toolkit, and compared
#   - conda: the conda recipe, rendered and checked
#   - container: the instructions of examples/container/Dockerfile, run in chroots with the wheel
#   - packages: the Debian packages and the tar.gz, checked, and installed in a clean Debian 12 and a clean Debian 13
set -e
# shellcheck source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"

all=(alone tidy fuzz site versions clones rust toolkits lint tests aarch64 wheel conda container packages)
parts=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  [[ " ${all[*]} " == *" $1 "* ]] || { echo "unknown part $1; the parts are: ${all[*]}" >&2; exit 2; }
  parts+=("$1")
  shift
done
[ $# -eq 0 ] || shift
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")

find_toolkit
find_python

run_alone() {
  say "each file alone"
  install_packages "${build_packages[@]}"
  cmake --preset dev -B build/alone -DCMAKE_UNITY_BUILD=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
    -DKILN_PYTHON_EXECUTABLE="$test_python"
  cmake --build build/alone
}

run_tidy() {
  [[ " ${parts[*]} " == *" alone "* ]] || run_alone
  say "clang-tidy"
  install_packages clang-tidy-14
  run-clang-tidy-14 -p build/alone -quiet -j "$(nproc)" "$root/(src|cache|tools|python/src)/.*\.cpp$" \
    >build/clang-tidy.log 2>&1 || { grep -A3 'error:' build/clang-tidy.log; exit 1; }
}

run_fuzz() {
  say "fuzz programs"
  install_packages clang-14 libclang-rt-14-dev
  cmake --preset fuzz
  cmake --build --preset fuzz
}

run_site() { tools/site.sh; }

run_versions() {
  say "0.1 beside this version"
  install_packages git redis-server
  local first=a4738da # the last commit with key schema 1
  [ -d build/first ] || git worktree add --detach build/first "$first"
  (cd build/first && cmake --preset release >/dev/null && cmake --build --preset release --target kiln-cli kiln-worker)
  cmake --preset dev -DKILN_PYTHON_EXECUTABLE="$test_python" >/dev/null
  cmake --build --preset dev --target kiln-cli kiln-worker
  tests/scenario/two_versions.sh build/first/build/release/kiln build/dev/kiln
}

run_clones() {
  say "filesystems that can clone files"
  install_packages "${build_packages[@]}" xfsprogs btrfs-progs e2fsprogs
  cmake --preset dev -DKILN_PYTHON_EXECUTABLE="$test_python" >/dev/null
  cmake --build --preset dev --target kiln-cli kiln-worker
  tests/scenario/clone.sh build/dev/kiln
}

run_rust() {
  say "Rust"
  install_packages "${build_packages[@]}" libgtest-dev cargo rustc bindgen libclang-dev
  cmake --preset dev -DKILN_PYTHON_EXECUTABLE="$test_python" >/dev/null
  cmake --build --preset dev --target libkiln.so kiln-worker kiln_fake_cuda kiln_host_kernels
  KILN_TEST_NIGHTLY=1 PATH=/usr/bin:$PATH RUSTFLAGS='-D warnings' ctest --preset dev -R '^ExampleRust\.' --no-tests=error --output-on-failure | tee build/rust.log
  if grep -q Skipped build/rust.log; then echo "the row must run here" >&2; exit 1; fi
}

run_toolkits() {
  say "other versions of NVRTC"
  cmake --preset dev -DKILN_PYTHON_EXECUTABLE="$test_python" >/dev/null
  cmake --build --preset dev --target kiln-cli kiln-worker
  tests/scenario/toolkits.sh build/dev/kiln "$test_python" "$root/build/toolkits"
}

run_lint() {
  say "all combinations of the shipped templates"
  cmake --preset dev -DKILN_PYTHON_EXECUTABLE="$test_python" >/dev/null
  cmake --build --preset dev --target kiln-cli kiln-worker
  env -u KILN_TEMPLATE_PATH -u KILN_CACHE_LAYERS -u KILN_REMOTE KILN_CACHE_DIR="$root/build/lint-cache" build/dev/kiln lint --compile --strict
}

run_tests() {
  install_packages clang-format-14 python3-clang-14 rustfmt shellcheck redis-server git
  "$test_python" -m pip install -q --disable-pip-version-check 'ruff==0.17.*' # another version formats differently
  KILN_TEST_NIGHTLY=1 KILN_TEST_TIMES=strict tools/test.sh "$@"
}

run_aarch64() { tools/aarch64.sh; }

run_wheel() {
  install_packages debootstrap qemu-user-static
  tools/wheel.sh
  tools/wheel.sh --arch aarch64
  tests/scenario/wheel_install.sh build/wheel/dist/kiln-*.whl
  tests/scenario/two_architectures.sh
}

run_conda() {
  say "conda recipe"
  python3 -m venv build/conda-tools
  build/conda-tools/bin/pip install -q --disable-pip-version-check 'py-rattler-build==0.73.*'
  build/conda-tools/bin/python tests/scenario/conda_recipe.py
}

run_container() {
  say "container"
  install_packages "${build_packages[@]}" libgtest-dev debootstrap
  tools/wheel.sh
  cmake --preset dev -DKILN_PYTHON_EXECUTABLE="$test_python" >/dev/null
  cmake --build --preset dev --target kiln_fake_cuda
  tests/scenario/container.sh build/wheel/dist build/dev/tests/libkiln_fake_cuda.so
}

run_packages() {
  install_packages debootstrap
  tools/packages.sh
  tests/scenario/packages_install.sh build/packages/dist "${KILN_CUDA_HOME:-/usr/local/cuda}"
}

for part in "${parts[@]}"; do
  if [ "$part" = tests ]; then run_tests "$@"; else "run_$part"; fi
done
