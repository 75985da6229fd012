#!/usr/bin/env bash
# two_architectures.sh: compares the kernels of the wheels for x86-64 and for aarch64, which wheel_install.sh has
# installed in Debian 12 with the same version of NVRTC. The wheel for aarch64 runs under QEMU.
#
#   1. Both compile one plan into a layer. The specialisation halves of the keys are equal, and so are the images.
#   2. A sealed process of each architecture takes the kernels of its own layer, which is counted as `layer_hits`.
#   3. A sealed process of each architecture takes the kernels of the other architecture's layer, which is counted as
#      `foreign_toolchain`. The process of aarch64 does so with pages of 4 KiB and of 64 KiB.
set -euo pipefail
# shellcheck source=systems.sh
source "$(dirname "${BASH_SOURCE[0]}")/systems.sh"
# shellcheck source=inside.sh
source "$(dirname "${BASH_SOURCE[0]}")/inside.sh"
here=$root/tests/scenario
results=$systems/two_architectures
mkdir -p "$results"

# in_venv ARCH COMMAND...: runs the command with the Python of the system's venv.
in_venv() {
  local arch=$1
  shift
  inside "$systems/wheel-bookworm-$arch" "${environment[@]}" /root/venv/bin/python "$@"
}
# take ARCH LAYER COUNTER [VARIABLE=VALUE]...: a sealed process with an empty cache takes the kernels of that layer.
take() {
  local environment=(KILN_MODE=sealed "KILN_CACHE_LAYERS=/root/layer-of-$2" KILN_CACHE_DIR=/root/empty "${@:4}")
  rm -rf "$systems/wheel-bookworm-$1/root/empty"
  in_venv "$1" /root/process.py /root/plan.toml "$3" >"$results/$1-$2" || fail "a sealed process of $1 with the layer of $2"
  echo "  a sealed process of $1 takes $(wc -l <"$results/$1-$2") kernels of the layer of $2: $3 ${*:4}"
}

environment=()
for arch in amd64 arm64; do
  [ -d "$systems/wheel-bookworm-$arch/root/venv" ] || fail "no wheel is installed in $systems/wheel-bookworm-$arch: run tests/scenario/wheel_install.sh"
  home=$systems/wheel-bookworm-$arch/root
  rm -rf "$home"/layer-of-*
  cp "$here/two_architectures.toml" "$home/plan.toml"
  cp "$here/two_architectures_process.py" "$home/process.py"
  in_venv "$arch" -c 'import platform; print(platform.machine())'
  in_venv "$arch" -m kiln doctor | grep -E '^[a-z]+ +(nvrtc|builtins|versions)'
  in_venv "$arch" -m kiln prewarm /root/plan.toml --arch sm_90a --layer "/root/layer-of-$arch"
done
cp -r "$systems/wheel-bookworm-amd64/root/layer-of-amd64" "$systems/wheel-bookworm-arm64/root/"
cp -r "$systems/wheel-bookworm-arm64/root/layer-of-arm64" "$systems/wheel-bookworm-amd64/root/"

take amd64 amd64 layer_hits
take arm64 arm64 layer_hits
take amd64 arm64 foreign_toolchain
take arm64 amd64 foreign_toolchain
# Some machines with aarch64 have such pages. QEMU tells the process this size, and the files come from this machine.
take arm64 amd64 foreign_toolchain QEMU_PAGESIZE=65536

python3 - "$results/amd64-amd64" "$results/arm64-arm64" <<'END'
import pathlib
import sys

one, other = ([line.split(maxsplit=3) for line in pathlib.Path(path).read_text().splitlines()] for path in sys.argv[1:])
for (key, digest, size, name), (other_key, other_digest, _, other_name) in zip(one, other, strict=True):
    assert name == other_name, (name, other_name)
    assert key[:32] == other_key[:32], f"the specialisation half of {name} differs: {key} and {other_key}"
    assert key[32:] != other_key[32:], f"both NVRTCs of {name} have one identity: {key}"
    assert digest == other_digest, f"the images of {name} differ"
    print(f"  {name.split()[0]}: half {key[:32]}, image of {size} bytes with SHA-256 {digest[:16]} on both")
END
echo "both architectures make the same kernels, and serve each other's layers"
