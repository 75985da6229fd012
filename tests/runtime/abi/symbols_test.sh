#!/usr/bin/env bash
# symbols_test.sh LIBRARY: the library exports only kiln_*, and it loads without the CUDA driver and NVRTC.
set -euo pipefail
symbols=$(nm -D --defined-only "$1" | awk '{ print $NF }')
grep -qx kiln_template_get <<<"$symbols" || { echo "kiln_template_get is not exported"; exit 1; }
if grep -v '^kiln_' <<<"$symbols"; then
  echo "FAILED: the symbols above are exported too"
  exit 1
fi
readelf -d "$1" | grep -q 'SONAME.*\[libkiln\.so\.[0-9]*\]' || { echo "FAILED: no versioned soname"; exit 1; }
needed=$(readelf -d "$1" | grep NEEDED)
if grep -E 'libcuda|libcudart|libnvrtc|libspdlog|libfmt|libxxhash|libsodium|libzstd|libhiredis|libssl|libcrypto' <<<"$needed"; then
  echo "FAILED: must not be needed"
  exit 1
fi
echo "$needed"
