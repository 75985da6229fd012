"""The host's cost of one hot call from Python, beside other libraries, on a GPU:

    python python/tests/gpu_launch.py             # every row
    python python/tests/gpu_launch.py kiln Triton # those whose name has one of the words

Every row launches a kernel that takes three pointers, three integers and a float: batches of 256 calls on one stream, the wait between batches
not timed, median and least of 100 batches, each beside a batch of cuLaunchKernel in a loop in C. A peer that is not installed, or whose interface is
not the expected one, is left out aloud.
"""

import contextlib
import ctypes
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import kiln
import kiln.torch
from kiln.torch import _registry

BATCH, BATCHES, ROWS, WIDTH = 256, 100, 8, 4096
SOURCE = 'extern "C" __global__ void nothing(void* out, const void* x, const void* w, int rows, long long sx, long long so, float eps) {}'
MANIFEST = """format = 1
[template]
name = "nothing"
source = "nothing.cu"
instantiate = "nothing<{N}>"
[param.N]
kind = "int"
range = [0, 9]
""" + "".join(f'[[arg]]\nname = "{n}"\ntype = "{t}"\n' for n, t in (
    ("out", "ptr<void>"), ("x", "ptr<void>"), ("w", "ptr<void>"), ("rows", "i32"), ("sx", "i64"), ("so", "i64"), ("eps", "f32"))) + """
[launch]
grid = ["1"]
block = ["128"]
"""

x = torch.randn(ROWS, WIDTH, device="cuda")
w, out = torch.randn(WIDTH, device="cuda"), torch.empty_like(x)
service = kiln.Service()
kiln.torch.use_service(service)
service.add_template(MANIFEST, "template <int N> " + SOURCE.replace('extern "C" ', ""))
numbers = (ROWS, WIDTH, WIDTH, 1e-6)


LOOP = """typedef int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
int loop(launch call, void* function, void* stream, void** arguments, int count) {
  for (int i = 0; i < count; ++i) {
    const int status = call(function, 1, 1, 1, 128, 1, 1, 0, stream, arguments, 0);
    if (status) return status;
  }
  return 0;
}"""


def raw_launches():
    """All of a batch in one call: the driver's own cost."""
    with tempfile.TemporaryDirectory() as directory:
        source, library = pathlib.Path(directory, "loop.c"), pathlib.Path(directory, "loop.so")
        source.write_text(LOOP)
        subprocess.run([shutil.which("cc") or "gcc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        loop = ctypes.CDLL(str(library)).loop
    kernel = service.open("nothing").get(0)
    values = [ctypes.c_void_p(t.data_ptr()) for t in (out, x, w)]
    values += [ctypes.c_int(ROWS), ctypes.c_longlong(WIDTH), ctypes.c_longlong(WIDTH), ctypes.c_float(1e-6)]
    arguments = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
    entry = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)
    function, stream = ctypes.c_void_p(kernel.function), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def batch():
        assert loop(entry, function, stream, arguments, BATCH) == 0, values

    batch.calls = BATCH
    return batch


def plain_nothing():
    kernel = service.open("nothing").get(0)
    return lambda: kernel(out, x, w, *numbers)


def plain_nothing_given_stream():
    kernel, stream = service.open("nothing").get(0), torch.cuda.current_stream().cuda_stream
    return lambda: kernel(out, x, w, *numbers, stream=stream)


def plain_addresses():
    kernel, stream = service.open("nothing").get(0), torch.cuda.current_stream().cuda_stream
    pointers = [kiln.DevicePtr(t.data_ptr()) for t in (out, x, w)]
    return lambda: kernel(*pointers, *numbers, stream=stream)


def plain_rms_norm():
    kernel = service.open("rms_norm").get("f32", WIDTH)
    return lambda: kernel(out, x, w, *numbers)


def operator_overload():
    operator = kiln.torch.rms_norm
    return lambda: operator(x, w)


def operator_in_inference():
    operator = kiln.torch.rms_norm
    inference = torch.inference_mode()  # for the process: engines run so
    inference.__enter__()
    contexts.callback(inference.__exit__, None, None, None)
    return lambda: operator(x, w)


def operator_packet():
    return lambda: torch.ops.kiln.rms_norm(x, w)


def operator_mutating():
    operator, residual = kiln.torch.fused_add_rms_norm, torch.randn_like(x)
    return lambda: operator(x, residual, w)


_body = _registry._operators["kiln::rms_norm"].real


def same_body(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    return _body(x, w, eps)


def body_alone():
    return lambda: _body(x, w, 1e-6)


def vllm_way():
    """direct_register_custom_op: define and impl, one Python function."""
    library = torch.library.Library("kiln_bench", "FRAGMENT")
    library.define("norm(Tensor x, Tensor w, float eps) -> Tensor")
    library.impl("norm", same_body, "CUDA")
    vllm_way.keep = library
    return lambda: torch.ops.kiln_bench.norm(x, w, 1e-6)


def custom_op():
    operator = torch.library.custom_op("kiln_bench::norm_custom", same_body, mutates_args=())
    return lambda: operator(x, w, 1e-6)


def allocation():
    return lambda: torch.empty_like(x)


def compiled_torch():
    call = torch.compile(lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w, fullgraph=True)
    return lambda: call(x, w)


def compiled_operator():
    call = torch.compile(lambda x, w: torch.ops.kiln.rms_norm(x, w), fullgraph=True)
    return lambda: call(x, w)


def cuda_core():
    try:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    except ImportError:
        from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch
    device = Device()
    device.set_current()
    kernel = Program(SOURCE, code_type="c++", options=ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("nothing")
    stream, config = device.create_stream(), LaunchConfig(grid=1, block=128)
    arguments = [t.data_ptr() for t in (out, x, w)]
    arguments += [ctypes.c_int(ROWS), ctypes.c_longlong(WIDTH), ctypes.c_longlong(WIDTH), ctypes.c_float(1e-6)]
    return lambda: launch(stream, config, kernel, *arguments)


def cupy():
    import cupy as cp

    kernel = cp.RawKernel(SOURCE, "nothing", backend="nvrtc")
    a = cp.zeros(16)
    arguments = (a, a, a, cp.int32(ROWS), cp.int64(WIDTH), cp.int64(WIDTH), cp.float32(1e-6))
    return lambda: kernel((1,), (128,), arguments)


def kiln_with_cupy():
    import cupy as cp

    kernel, a = service.open("nothing").get(0), cp.zeros(16)
    return lambda: kernel(a, a, a, *numbers)


def triton():
    import triton as t

    @t.jit
    def nothing(out, x, w, rows, sx, so, eps):
        pass

    return lambda: nothing[(1,)](out, x, w, *numbers, num_warps=4)


contexts = contextlib.ExitStack()  # of one row
ROWS_OF_TABLE = [
    ("kiln, plain call", plain_nothing), ("kiln, stream= given", plain_nothing_given_stream), ("kiln, DevicePtr and stream=", plain_addresses),
    ("kiln, plain call of rms_norm", plain_rms_norm), ("kiln, CuPy arrays", kiln_with_cupy), ("cuda.core", cuda_core), ("CuPy RawKernel", cupy),
    ("Triton", triton), ("torch.empty_like, for scale", allocation), ("operator's body alone", body_alone),
    ("kiln.torch.rms_norm", operator_overload), ("kiln.torch.rms_norm, inference_mode", operator_in_inference),
    ("torch.ops.kiln.rms_norm", operator_packet), ("kiln.torch.fused_add_rms_norm", operator_mutating),
    ("same body, direct_register_custom_op", vllm_way), ("same body, torch.library.custom_op", custom_op),
    ("operator in torch.compile", compiled_operator), ("plain torch in torch.compile", compiled_torch),
]


def measure(call, raw):
    """Microseconds of a call: (median, least, median of raw launches). A batch of raw launches comes before each of the call's: machines have moods."""
    def batch(of):
        calls = getattr(of, "calls", 1)  # that one call makes
        start = time.perf_counter_ns()
        for _ in range(BATCH // calls):
            of()
        took = (time.perf_counter_ns() - start) / BATCH / 1e3
        torch.cuda.synchronize()
        return took

    batch(raw), batch(call)
    times = [(batch(raw), batch(call)) for _ in range(BATCHES)]
    ours = [t for _, t in times]
    return statistics.median(ours), min(ours), statistics.median(t for t, _ in times)


def main(words):
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}; us per call: median, least, median of raw "
          "launches between the calls, the difference")
    raw = raw_launches()
    for name, make in ROWS_OF_TABLE:
        if words and not any(word in name for word in words):
            continue
        try:
            with contexts:
                median, least, beside = measure(make(), raw)
        except Exception as error:  # a peer's interface
            print(f"{name:42s} left out: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            continue
        print(f"{name:42s} {median:8.2f} {least:8.2f} {beside:8.2f} {median - beside:8.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
