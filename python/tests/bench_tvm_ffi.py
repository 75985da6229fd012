"""Measures what a call of rms_norm by tvm-ffi, with three tensors and a number, costs over an empty function.

    KILN_TEST_FAKE_CUDA=.../libkiln_fake_cuda.so PYTHONPATH=build/dev/python python3 python/tests/bench_tvm_ffi.py

Prints medians of interleaved rounds, in ns. It judges nothing.
"""

import ctypes
import statistics
import tempfile
import time

import conftest
import kiln
import kiln.tvm_ffi
import tvm_ffi
from cuda_tensors import ones

ROUNDS, CALLS = 41, 5000
ORDER = ["out", "x", "weight", "eps"]


def ns(function, arguments):
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        function(*arguments)
    return (time.perf_counter_ns() - begin) / CALLS


def main():
    driver = conftest.FakeDriver(conftest.FAKE)
    driver.quiet(True)
    # A function of libc that does nothing and returns 0, as an empty safe call does.
    nothing = ctypes.CDLL(None).pthread_condattr_destroy
    empty = tvm_ffi.Function.__from_extern_c__(ctypes.cast(nothing, ctypes.c_void_p).value)
    directory = tempfile.TemporaryDirectory()
    text = kiln.tvm_ffi.signature("rms_norm", ORDER)
    module = tvm_ffi.load_module(str(kiln.tvm_ffi.export(directory.name, {"rms_norm": text})))
    functions = {"empty": empty, "function": kiln.tvm_ffi.function("rms_norm", ORDER), "module": module.rms_norm}
    arguments = ones(4, 64), ones(4, 64), ones(64), 1e-5
    rounds = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            rounds[name].append(ns(function, arguments))
    medians = {name: statistics.median(of[1:]) for name, of in rounds.items()}
    for name, median in medians.items():
        print(f"tvm-ffi {tvm_ffi.__version__} {name}: {median:.0f} ns, over empty {median - medians['empty']:.0f} ns")


if __name__ == "__main__":
    main()
