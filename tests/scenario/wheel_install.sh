#!/usr/bin/env bash
# wheel_install.sh WHEEL...: installs each wheel into a Debian with Python, without a compiler and a CUDA toolkit.
# A wheel for Python 3.11 goes into Debian 12, and one for 3.12 and later into Debian 13. With the extra `nvrtc` it
# diagnoses the machine, compiles the shipped templates, and runs Python. A wheel for aarch64 runs under QEMU.
# Needs root, debootstrap, and for aarch64 qemu-user-static. The systems stay in build/systems/wheel-*.
set -euo pipefail
# shellcheck source=systems.sh
source "$(dirname "${BASH_SOURCE[0]}")/systems.sh"
# shellcheck source=inside.sh
source "$(dirname "${BASH_SOURCE[0]}")/inside.sh"

check_wheel() {
  local wheel=$1 name release arch machine python
  name=$(basename "$wheel")
  case $name in *-cp311-*) release=bookworm python=311 ;; *-abi3-*) release=trixie python=313 ;; *) fail "no Python for $name" ;; esac
  case $name in *_x86_64.whl) arch=amd64 machine=x86_64 ;; *_aarch64.whl) arch=arm64 machine=aarch64 ;; esac
  make_system "$release-$arch" "$release" "$arch"
  local system=$systems/wheel-$release-$arch packages=$systems/packages-$machine
  rm -rf --one-file-system "$system"
  cp -a "$systems/$release-$arch" "$system"
  # The wheels are fetched here, so that the system needs no network. pip keeps a file of the same name that is there.
  rm -f "$packages"/kiln-*.whl
  python3 -m pip download -q --disable-pip-version-check -d "$packages" --only-binary :all: --python-version "$python" \
    --platform "manylinux2014_$machine" --platform "manylinux_2_28_$machine" "${wheel}[nvrtc]"
  cp -r "$packages" "$system/root/packages"
  local kiln=(inside "$system" /root/venv/bin/kiln)
  if [ "$machine" = "$(uname -m)" ]; then
    inside "$system" python3 -m venv /root/venv
    inside "$system" /root/venv/bin/pip install -q --disable-pip-version-check --no-index --find-links /root/packages \
      "/root/packages/${name}[nvrtc]"
  else # pip of Python 3.13 fails under QEMU, so this machine's pip unpacks the wheels
    inside "$system" python3 -m venv --without-pip /root/venv
    python3 -m pip install -q --disable-pip-version-check --no-index --find-links "$packages" --only-binary :all: \
      --python-version "$python" --platform "manylinux2014_$machine" --platform "manylinux_2_28_$machine" \
      --target "$(echo "$system"/root/venv/lib/python3*/site-packages)" "${wheel}[nvrtc]"
    kiln=(inside "$system" /root/venv/bin/python -m kiln)
  fi
  ! inside "$system" sh -c 'command -v cc || command -v g++ || command -v nvcc' || fail "the system has a compiler"

  "${kiln[@]}" --version --json
  "${kiln[@]}" doctor || fail "kiln doctor"
  if [ "$machine" = "$(uname -m)" ]; then
    "${kiln[@]}" prewarm
  else # one kernel: QEMU is some 20 times slower
    "${kiln[@]}" compile rms_norm T=bf16 H=4096
  fi
  inside "$system" /root/venv/bin/python -c '
import kiln

service = kiln.Service()
print(kiln.__version__, service.prewarm([{"template": "rms_norm", "T": "bf16", "H": 4096}]))
print(service.compile("rms_norm", T="bf16", H=4096, arch="sm_90a").outcome)'
  # Programs are built with the wheel's CMake package on this machine, because the system has no compiler.
  if [ "$machine" = "$(uname -m)" ]; then
    local package part version program=$systems/program-$release
    package=$system$(inside "$system" /root/venv/bin/python -m kiln --cmake-dir)
    rm -rf "$program"
    version=${name#kiln-}
    if ! { cmake -S "$root/tests/runtime/install/consumer" -B "$program" -Dkiln_DIR="$package" -DPARTS="shared;headers" -DVERSION="${version%%-*}" &&
      cmake --build "$program"; } >"$program.log" 2>&1; then
      tail -20 "$program.log" >&2
      fail "no program builds with the wheel's CMake package"
    fi
    for part in shared headers; do
      LD_LIBRARY_PATH=$package/../.. KILN_CACHE_DIR=$program/cache "$program/$part"
    done
    # shellcheck disable=SC2046  # pkg-config gives several words
    c++ -std=c++17 "$root/tests/runtime/install/consumer/version.cpp" -o "$program/by_pkg_config" \
      $(PKG_CONFIG_PATH=$package/../../pkgconfig pkg-config --cflags --libs kiln) || fail "no program links with the wheel's kiln.pc"
    LD_LIBRARY_PATH=$package/../.. KILN_CACHE_DIR=$program/cache "$program/by_pkg_config"
    # shellcheck disable=SC2046
    PKG_CONFIG_PATH=$package/../../pkgconfig bash -c 'c++ -std=c++17 "$1" -o "$2" $(pkg-config --cflags --libs kiln) \
      -Wl,-rpath,"$(pkg-config --variable=libdir kiln)"' - "$root/tests/runtime/install/consumer/version.cpp" "$program/by_rpath"
    env -u LD_LIBRARY_PATH KILN_CACHE_DIR="$program/cache" "$program/by_rpath" || fail "no program finds the library by kiln.pc's libdir"
  fi
  echo "$name: installed and used in Debian $release for $arch"
}
for wheel in "$@"; do check_wheel "$(realpath "$wheel")"; done
