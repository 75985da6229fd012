#!/usr/bin/env bash
# worker_symbols_test.sh WORKER: the worker exports its mmap for NVRTC, and nothing else.
set -euo pipefail
symbols=$(nm -D --defined-only "$1" | awk '{ print $NF }' | paste -sd ' ')
[ "$symbols" = mmap ] || { echo "FAILED: the worker exports: $symbols"; exit 1; }
