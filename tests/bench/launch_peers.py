#!/usr/bin/env python3
"""The host's cost of a hot launch: kiln's rows (launch_bench) beside CuPy, cuda.core and Triton, in one call on one GPU.

    tests/bench/launch_peers.py --build DIR

Every peer launches a kernel of seven arguments that does nothing (pointers, ints and a float, like rms_norm's).
On one stream: batches of 256 calls; the wait between batches is not timed; the figure is the median of 200 batches.
On 8 threads with a stream each: calls per second of all threads together, waits included.
A peer that is not installed, or has another interface than expected, is left out with a message.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
build = pathlib.Path(parser.parse_args().build).resolve()
BATCH, BATCHES, THREADS = 256, 200, 8
SOURCE = 'extern "C" __global__ void nothing(void* out, const void* x, const void* w, int rows, long long sx, long long so, float eps) {}'


def cupy_peer():
    import cupy

    kernel = cupy.RawKernel(SOURCE, "nothing", backend="nvrtc")
    a = cupy.zeros(16)

    def make():
        stream = cupy.cuda.Stream(non_blocking=True)

        def call(n):
            with stream:
                for _ in range(n):
                    kernel((1,), (128,), (a, a, a, cupy.int32(8), cupy.int64(4096), cupy.int64(4096), cupy.float32(1e-6)))

        return call, stream.synchronize

    return make


def cuda_core_peer():
    import ctypes

    try:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    except ImportError:
        from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch
    device = Device()
    device.set_current()
    program = Program(SOURCE, code_type="c++", options=ProgramOptions(arch=f"sm_{device.arch}"))
    kernel = program.compile("cubin").get_kernel("nothing")
    try:
        buffer = device.allocate(256)
    except TypeError:
        buffer = device.allocate(256, stream=device.create_stream())
    config = LaunchConfig(grid=1, block=128)
    args = (buffer, buffer, buffer, ctypes.c_int(8), ctypes.c_longlong(4096), ctypes.c_longlong(4096), ctypes.c_float(1e-6))

    def make():
        device.set_current()
        stream = device.create_stream()

        def call(n):
            for _ in range(n):
                launch(stream, config, kernel, *args)

        return call, stream.sync

    return make


def triton_peer():
    import torch
    import triton

    @triton.jit
    def nothing(out, x, w, rows, sx, so, eps):
        pass

    a = torch.zeros(256, device="cuda")

    def make():
        stream = torch.cuda.Stream()

        def call(n):
            with torch.cuda.stream(stream):
                for _ in range(n):
                    nothing[(1,)](a, a, a, 8, 4096, 4096, 1e-6, num_warps=4)

        return call, stream.synchronize

    return make


def one_stream(make):
    call, wait = make()
    call(BATCH), wait()
    times = []
    for _ in range(BATCHES):
        start = time.perf_counter_ns()
        call(BATCH)
        times.append((time.perf_counter_ns() - start) / BATCH)
        wait()
    return statistics.median(times)


def many_streams(make):
    barrier, done = threading.Barrier(THREADS + 1), []

    def work():
        call, wait = make()
        call(BATCH), wait()
        barrier.wait()
        for _ in range(20):
            call(BATCH), wait()
        done.append(1)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    [t.start() for t in threads]
    barrier.wait()
    start = time.perf_counter()
    [t.join() for t in threads]
    return THREADS * 20 * BATCH / (time.perf_counter() - start) if len(done) == THREADS else None


environment = dict(os.environ, LD_LIBRARY_PATH=f"{build}:" + os.environ.get("LD_LIBRARY_PATH", ""))
subprocess.run([build / "launch_bench"], env=environment, check=False)
print(f"{'peer':<12} {'ns per call':>12} {'8 threads, calls/s':>20}")
for name, prepare in (("CuPy", cupy_peer), ("cuda.core", cuda_core_peer), ("Triton", triton_peer)):
    try:
        make = prepare()
        print(f"{name:<12} {one_stream(make):>12.0f} {many_streams(make):>20.0f}")
    except Exception as error:  # a peer may change its interface
        print(f"{name:<12} not measured: {type(error).__name__}: {str(error)[:150]}")
