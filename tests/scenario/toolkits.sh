#!/usr/bin/env bash
# kiln with other versions of NVRTC than the one it is developed with. Fetches the wheels of each version, compiles a
# small plan for every kind of target, and prints a table: one row for each version, one column for each target. Every
# image but PTX is disassembled with the newest nvdisasm, which is also fetched as a wheel.
#   toolkits.sh KILN PYTHON DIRECTORY
set -euo pipefail
kiln=$1 python=$2 directory=$3
archs=(sm_80 sm_87 sm_90a sm_100_base sm_100f sm_100a sm_103a sm_110_base sm_120f sm_121a compute_80)
unset CUDA_HOME CUDA_PATH KILN_CACHE_LAYERS KILN_REMOTE

# fetch NAME REQUIREMENT...: one toolkit with lib/ and include/, made of links into the wheels.
fetch() {
  local root=$directory/$1 part
  shift
  [ ! -e "$root/ready" ] || return 0
  rm -rf "$root" && mkdir -p "$root/lib" "$root/include"
  "$python" -m pip install -q --disable-pip-version-check --no-deps --target "$root/site" "$@"
  for part in "$root"/site/nvidia/*/; do
    [ ! -d "$part/lib" ] || find "$part/lib" -maxdepth 1 -name '*.so*' -exec ln -sf -t "$root/lib" {} +
    [ ! -d "$part/include" ] || cp -rsn "$(realpath "$part/include")/." "$root/include/"
  done
  touch "$root/ready"
}
for version in 12.8 12.9; do
  fetch "$version" "nvidia-cuda-nvrtc-cu12==$version.*" "nvidia-cuda-runtime-cu12==$version.*" \
    "nvidia-cuda-cccl-cu12==$version.*" "nvidia-cuda-nvcc-cu12==$version.*"
done
fetch 13.0 'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*' 'nvidia-cuda-crt==13.0.*'
fetch alone nvidia-cuda-nvrtc # the newest wheel of NVRTC has the headers that kernels need inside
fetch newest nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt
fetch disassembler nvidia-cuda-nvdisasm
disassembler=$(echo "$directory"/disassembler/site/nvidia/*/bin)
[ -x "$disassembler/nvdisasm" ] || { echo "the wheel of nvdisasm has no program $disassembler/nvdisasm" >&2; exit 1; }
export PATH=$disassembler:$PATH # where `kiln show --sass` looks first

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/plan.toml" <<'PLAN'
[[prewarm]]
template = "rms_norm"
T = "bf16"
H = 4096
[[prewarm]]
template = "attn_prefill"
T = "bf16"
D = 128
GROUP = 4
[[prewarm]]
template = "moe_align"
E = 64
BLOCK = 64
PLAN
failed=0
"$disassembler/nvdisasm" --version | sed -n 's/^Cuda compilation tools/nvdisasm/p'
printf '%-8s' NVRTC; printf ' %-11s' "${archs[@]}"; printf '\n'
for version in 12.8 12.9 13.0 newest alone; do
  printf '%-8s' "$version"
  for arch in "${archs[@]}"; do
    export KILN_CUDA_HOME=$directory/$version KILN_CACHE_DIR=$scratch/cache-$version
    cell=yes
    if ! "$kiln" prewarm "$scratch/plan.toml" --arch "$arch" --json >"$scratch/out" 2>"$scratch/err"; then
      # 12.8 knows no family targets, and versions before 13.0 lack the newest GPUs.
      if grep -q 'has no code for\|invalid value for --gpu-architecture' "$scratch/out" "$scratch/err"; then
        cell=unknown
        case $version-$arch in 13.0-* | newest-* | alone-* | *-sm_80 | *-sm_87 | *-sm_90a | *-compute_80) cell=FAILED failed=1 ;; esac
      else
        cell=FAILED failed=1
        head -c 600 "$scratch/err" >&2
      fi
    elif [ "$arch" != compute_80 ]; then
      keys=$("$python" -c 'import json, sys; print(*(e["key"] for e in json.load(sys.stdin)["entries"]))' <"$scratch/out")
      [ "$(wc -w <<<"$keys")" = 3 ] || { echo "NVRTC $version, $arch: the plan has 3 kernels, and these are: $keys" >&2; cell=FAILED failed=1; }
      for key in $keys; do # nvdisasm 13.5 warns about images of 12.x
        if ! "$kiln" show "$key" --sass >"$scratch/sass" 2>"$scratch/err" || ! grep -q '\bEXIT\b' "$scratch/sass"; then
          cell=FAILED failed=1
          head -c 600 "$scratch/err" >&2
        fi
      done
    fi
    printf ' %-11s' "$cell"
  done
  printf '\n'
done
exit $failed
