#!/usr/bin/env bash
# container.sh WHEELS [LIBCUDA]: runs the instructions of examples/container/Dockerfile in chroots of a Debian 12.
# WHEELS is a folder with kiln's wheels. The image must serve its kernels sealed: it must have no compiler and no NVRTC,
# and a process in it must compile nothing. With LIBCUDA, a fake driver, a process also gets the kernels.
# Needs root and debootstrap. Docker itself does not run here.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=systems.sh
source "$root/tests/scenario/systems.sh"
wheels=$(realpath "$1") libcuda=${2:-}
image=$systems/image
make_system bookworm-amd64 bookworm amd64

# The wheels of NVRTC are fetched here, because the stage `build` uses no network.
context=$systems/wheels-of-image
rm -rf "$context" && mkdir -p "$context"
python3 -m pip download -q --disable-pip-version-check -d "$context" --only-binary :all: --python-version 311 \
  --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 "$(echo "$wheels"/kiln-*-cp311-*_x86_64.whl)[nvrtc]"
# pip's index has another project with the name kiln, as PyPI has, and nothing else. The image must not take that project.
index=$systems/index
rm -rf "$index" && mkdir -p "$index/kiln"
python3 - "$index/kiln/kiln-99.0-py3-none-any.whl" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("kiln-99.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: kiln\nVersion: 99.0\nProvides-Extra: nvrtc\n")
    wheel.writestr("kiln-99.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("kiln-99.0.dist-info/RECORD", "")
PYTHON
exec 3< <(exec python3 -u -m http.server --bind 127.0.0.1 --directory "$index" 0 2>"$index/log")
server=$!
trap 'kill "$server"' EXIT
read -r line <&3 # Serving HTTP on 127.0.0.1 port 40000 (http://127.0.0.1:40000/) ...
port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' <<<"$line")
python3 "$root/tests/scenario/dockerfile.py" "$root/examples/container/Dockerfile" "$image" --base "$systems/bookworm-amd64" \
  --context wheels="$context" --environment "PIP_INDEX_URL=http://127.0.0.1:$port" --environment PIP_DISABLE_PIP_VERSION_CHECK=1

# inside COMMAND...: runs the command as the image would run it.
mapfile -t settings < <(python3 -c '
import json, sys
image = json.load(open(sys.argv[1]))
print(image["user"], *(f"{name}={value}" for name, value in image["environment"].items()), sep="\n")' "$image.json")
inside() {
  # shellcheck disable=SC2016  # the inner shell expands these
  unshare --mount bash -c 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot --userspec="$1" "$0" /usr/bin/env -i HOME=/tmp "${@:2}"' \
    "$image" "${settings[0]}" "${settings[@]:1}" "$@"
}
must_not() { if "$@" >"$systems/image.log" 2>&1; then cat "$systems/image.log" >&2; fail "this should have failed: $*"; fi; }

echo "== nothing in the image can compile"
must_not inside sh -c 'command -v cc || command -v gcc || command -v g++ || command -v nvcc'
found=$(find "$image" -xdev -name 'libnvrtc*' -o -xdev -name 'cuda_fp16.h')
[ -z "$found" ] || fail "the image has $found"

echo "== the plan is in the layer, and what is not there is an error"
inside kiln prewarm /opt/kernels/plan.toml --arch sm_90a --check
inside kiln why rms_norm T=bf16 H=4096 --arch sm_90a | tee "$systems/image.log"
grep -q '^hit' "$systems/image.log" || fail "kiln why names no hit"
must_not inside kiln compile rms_norm T=bf16 H=8192 --arch sm_90a
grep -q sealed "$systems/image.log" || { cat "$systems/image.log" >&2; fail "a miss does not name the mode"; }

echo "== a process gets the kernels and compiles nothing"
fake=
if [ -n "$libcuda" ]; then
  cp "$libcuda" "$image/opt/fake_cuda.so"
  fake=KILN_LIBCUDA=/opt/fake_cuda.so
fi
cp "$root/tests/scenario/container_process.py" "$image/opt/"
inside env $fake python /opt/container_process.py
echo "the image serves its kernels"
