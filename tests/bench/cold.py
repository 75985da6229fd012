#!/usr/bin/env python3
"""Cold first launch of rms_norm (bf16, hidden 4096) beside its peers, in one call on a GPU machine.

    tests/bench/cold.py --build DIR [--runs 5] [--json FILE]

DIR holds compile_bench and kiln-worker. Every figure is the median over fresh processes, which take turns, with caches off or in a new
directory. The clock starts when the interpreter, the imports, the CUDA context and the buffers are ready. It stops when the first
launch has been synchronised. The time includes:
- raw          dlopen of NVRTC, one compile of kiln's slim source, cuLibraryLoadData, launch (NVRTC's own cache off)
- kiln         Service with an empty cache, worker spawned, its dlopen of NVRTC, compile, load, launch
- cuda.core    Program of the plain kernel below, compile to cubin, get_kernel, launch (cache off)
- cupy         RawModule of the same text, get_function, launch (CUPY_CACHE_DIR new, NVRTC's own cache in a new directory)
- triton       @triton.jit of the same computation, first call (TRITON_CACHE_DIR new)
Peers load NVRTC (or ptxas) inside the clock unless their import has already loaded it. A peer that is not installed is left out.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time

HIDDEN, ROWS = 4096, 64
SOURCE = r"""
#include <cuda_bf16.h>
extern "C" __global__ void __launch_bounds__(256) rms_norm(__nv_bfloat16* out, const __nv_bfloat16* x, const __nv_bfloat16* w, int rows, float eps) {
  constexpr int H = 4096;
  __shared__ float partial[8];
  const __nv_bfloat16* row = x + (long long)blockIdx.x * H;
  float sum = 0.f;
  for (int i = threadIdx.x; i < H; i += 256) { const float v = __bfloat162float(row[i]); sum += v * v; }
  for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.f;
  for (int i = 0; i < 8; ++i) sum += partial[i];
  const float scale = rsqrtf(sum / H + eps);
  for (int i = threadIdx.x; i < H; i += 256)
    out[(long long)blockIdx.x * H + i] = __float2bfloat16(__bfloat162float(row[i]) * scale * __bfloat162float(w[i]));
}
"""


def toolkit_include():
    """The directory of cuda_bf16.h: a toolkit's, or else a wheel's."""
    places = [os.environ.get(n, "") + "/include" for n in ("KILN_CUDA_HOME", "CUDA_HOME", "CUDA_PATH")] + [
        "/usr/local/cuda/include"
    ]
    for path in sys.path:
        places += [f"{path}/nvidia/cu13/include", f"{path}/nvidia/cuda_runtime/include"]
    for place in places:
        if pathlib.Path(place, "cuda_bf16.h").exists():
            return place
    raise RuntimeError("no cuda_bf16.h found; set CUDA_HOME")


def child_cuda_core():
    try:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    except ImportError:
        from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch
    device = Device()
    device.set_current()
    stream = device.create_stream()
    out, x, w = (device.allocate(2 * HIDDEN * ROWS, stream=stream) for _ in range(3))
    arch, include = device.arch, toolkit_include()
    arch += "a" if int(arch) >= 90 else ""
    stream.sync()
    import ctypes

    start = time.perf_counter()
    options = dict(arch="sm_" + arch, include_path=[include])
    try:
        options = ProgramOptions(**options, no_cache=True)  # NVRTC has its own cache since 12.9
    except TypeError:
        options = ProgramOptions(**options)
    kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("rms_norm")
    pointers = [int(b.handle) for b in (out, x, w)]
    launch(stream, LaunchConfig(grid=ROWS, block=256), kernel, *pointers, ctypes.c_int(ROWS), ctypes.c_float(1e-6))
    stream.sync()
    return time.perf_counter() - start


def child_cupy():
    import cupy
    import numpy

    out, x, w = (cupy.zeros(HIDDEN * ROWS, dtype=cupy.uint16) for _ in range(3))
    include = toolkit_include()
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    kernel = cupy.RawModule(code=SOURCE, options=("-I" + include,)).get_function("rms_norm")
    kernel((ROWS,), (256,), (out, x, w, numpy.int32(ROWS), numpy.float32(1e-6)))
    cupy.cuda.Device().synchronize()
    return time.perf_counter() - start


TRITON = """
import triton
import triton.language as tl

@triton.jit
def rms_norm(out, x, w, eps, H: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, H)
    v = tl.load(x + row * H + columns).to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / H + eps)
    tl.store(out + row * H + columns, (v * scale * tl.load(w + columns).to(tl.float32)).to(tl.bfloat16))
"""


def child_triton():
    import importlib.util

    import torch
    import triton  # noqa: F401

    out, x, w = (torch.zeros(HIDDEN * ROWS, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    # triton.jit reads its function's source from a file.
    path = pathlib.Path(os.environ["TRITON_CACHE_DIR"]).parent / "triton_rms_norm.py"
    path.write_text(textwrap.dedent(TRITON))
    spec = importlib.util.spec_from_file_location("triton_rms_norm", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.cuda.synchronize()
    start = time.perf_counter()
    module.rms_norm[(ROWS,)](out, x, w, 1e-6, H=HIDDEN)
    torch.cuda.synchronize()
    return time.perf_counter() - start


PEERS = {"cuda.core": child_cuda_core, "cupy": child_cupy, "triton": child_triton}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", default=None)
    args = parser.parse_args()
    bench = pathlib.Path(args.build).resolve() / "compile_bench"
    commands = {"raw": [bench, "first", "raw"], "kiln": [bench, "first", "kiln"]}
    commands.update({name: [sys.executable, __file__, "--child", name] for name in PEERS})
    times = {name: [] for name in commands}
    failed = {}
    for run in range(args.runs + 1):  # the first run warms the page cache and is dropped
        for name, command in commands.items():
            if name in failed:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                environment = dict(
                    os.environ,
                    CUPY_CACHE_DIR=f"{scratch}/cupy",
                    TRITON_CACHE_DIR=f"{scratch}/triton",
                    CUDA_CACHE_DISABLE="1",
                    CUDA_CACHE_PATH=f"{scratch}/cuda",
                    XDG_CACHE_HOME=f"{scratch}/xdg",
                    HOME=scratch,
                )
                if "PYTHONPATH" not in environment:  # a user's site-packages lie in the real HOME
                    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
                try:
                    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
                except (OSError, subprocess.TimeoutExpired) as error:
                    failed[name] = str(error)
                    continue
            try:
                value = float(done.stdout.split()[-1])
                if done.returncode == 0 and run > 0:
                    times[name].append(value)
                elif done.returncode != 0:
                    failed[name] = done.stderr.strip()[-300:]
            except (IndexError, ValueError):
                failed[name] = (done.stderr or done.stdout).strip()[-300:]
    result = {name: {"median_ms": statistics.median(t), "all_ms": t} for name, t in times.items() if t}
    raw = result.get("raw", {}).get("median_ms")
    print(f"cold first launch of rms_norm bf16 H={HIDDEN}, fresh processes, median of {args.runs} (ms; times raw NVRTC)")
    for name, r in sorted(result.items(), key=lambda item: item[1]["median_ms"]):
        print(
            f"  {name:10} {r['median_ms']:9.1f}"
            + (f"  {r['median_ms'] / raw:6.2f}" if raw else "")
            + "   "
            + " ".join(f"{t:.1f}" for t in r["all_ms"])
        )
    for name, why in failed.items():
        print(f"  {name:10} not measured: {why}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"times": result, "failed": failed}, indent=1))
    return 0 if {"raw", "kiln"} <= result.keys() else 1


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--child":
        print(PEERS[sys.argv[2]]() * 1e3)
    else:
        sys.exit(main())
