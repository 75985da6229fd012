# shellcheck shell=bash
# shellcheck disable=SC2034  # build_packages and test_python are for the scripts that source this one
# Sourced by quickstart.sh and test.sh. Installs missing packages and finds a toolkit, on Debian 12, Ubuntu 24.04 or newer,
# with root or sudo.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\n\033[1m==> %s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }

# install_packages NAME...: installs the packages that dpkg does not know. Uses no network when
# all are installed.
install_packages() {
  local missing=() name as_root=()
  for name in "$@"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "need root or sudo to install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(g++ cmake ninja-build pkg-config liblmdb-dev libspdlog-dev libfmt-dev libxxhash-dev libcli11-dev
                libtomlplusplus-dev nlohmann-json3-dev libsodium-dev libzstd-dev libhiredis-dev libssl-dev)

# NVRTC and its headers, as wheels.
toolkit_wheels=('nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*' 'nvidia-cuda-crt==13.0.*'
                'nvidia-nvtx==13.0.*')

# Finds NVRTC and the toolkit's headers in kiln's own first search places. Else it fetches wheels into build/.
find_toolkit() {
  local place
  for place in "${KILN_CUDA_HOME:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr; do
    [ -n "$place" ] || continue
    local directory
    for directory in lib64 lib 'lib/*-linux-gnu'; do  # `ls | grep` fails for a missing one
      compgen -G "$place/$directory/libnvrtc.so.*" > /dev/null && return 0
    done
  done
  local wheels=$root/build/cuda-wheels
  if [ ! -e "$wheels/ready" ]; then
    install_packages python3 python3-venv
    say "no CUDA toolkit: fetching NVRTC and its headers as pip wheels into build/cuda-wheels"
    python3 -m venv "$wheels"
    "$wheels/bin/pip" install -q --disable-pip-version-check "${toolkit_wheels[@]}"
    touch "$wheels/ready"
  fi
  KILN_CUDA_HOME=$(echo "$wheels"/lib/python3*/site-packages/nvidia/cu13)
  export KILN_CUDA_HOME
}

# Sets $test_python to a Python for the package in python/ and its tests, or makes one in build/. TEST_TORCH=1
# adds torch, which is 3 GB; without torch the tests of kiln.torch are skipped. Without Python only the
# package's tests are skipped.
find_python() {
  [ -z "${test_python:-}" ] || return 0
  test_python=$root/build/python-tools/bin/python
  local wanted=(nanobind pytest numpy ${TEST_TORCH:+torch}) ready=$root/build/python-tools/ready${TEST_TORCH:+-torch}
  if [ ! -e "$ready" ]; then
    install_packages python3 python3-venv python3-dev
    say "fetching ${wanted[*]} into build/python-tools"
    { python3 -m venv "$root/build/python-tools" && "$test_python" -m pip install -q --disable-pip-version-check "${wanted[@]}" && touch "$ready"; } ||
      say "the Python package's tests will be skipped"
  fi
}
