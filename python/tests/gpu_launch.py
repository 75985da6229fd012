"""The host's cost of one hot call from Python, compared with other libraries, on a GPU:

    python python/tests/gpu_launch.py             # every row
    python python/tests/gpu_launch.py kiln Triton # rows whose name has one of the words

Every row launches a kernel that takes three pointers, three integers and a float. Its call is written out in
a loop. A batch is 256 calls on one stream; the wait between batches is not timed. A batch of cuLaunchKernel,
in a loop in C, follows each batch. The table is measured REPETITIONS times, with BATCHES batches a row each
time. A peer that is not installed, or that has another interface, is left out with a message.
"""

import ctypes
import functools
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import kiln
import kiln.torch
import torch
from kiln.torch import _registry

BATCH, BATCHES, REPETITIONS, ROWS, WIDTH = 256, 24, 5, 8, 4096
SOURCE = 'extern "C" __global__ void nothing(void* out, const void* x, const void* w, int rows, long long sx, long long so, float eps) {}'
MANIFEST = (
    """format = 1
[template]
name = "nothing"
source = "nothing.cu"
instantiate = "nothing<{N}>"
[param.N]
kind = "int"
range = [0, 9]
"""
    + "".join(
        f'[[arg]]\nname = "{n}"\ntype = "{t}"\n'
        for n, t in (
            ("out", "ptr<void>"),
            ("x", "ptr<void>"),
            ("w", "ptr<void>"),
            ("rows", "i32"),
            ("sx", "i64"),
            ("so", "i64"),
            ("eps", "f32"),
        )
    )
    + """
[launch]
grid = ["1"]
block = ["128"]
"""
)

x = torch.randn(ROWS, WIDTH, device="cuda")
w, out = torch.randn(WIDTH, device="cuda"), torch.empty_like(x)
service = kiln.Service()
kiln.torch.use_service(service)
service.add_template(MANIFEST, "template <int N> " + SOURCE.replace('extern "C" ', ""))
tensors, arguments = {"out": out, "x": x, "w": w}, f"out, x, w, {ROWS}, {WIDTH}, {WIDTH}, 1e-6"


LOOP = """typedef int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
int loop(launch call, void* function, void* stream, void** arguments, int count) {
  for (int i = 0; i < count; ++i) {
    const int status = call(function, 1, 1, 1, 128, 1, 1, 0, stream, arguments, 0);
    if (status) return status;
  }
  return 0;
}"""


def c_library(text, load=ctypes.CDLL):
    with tempfile.TemporaryDirectory() as directory:
        source, library = pathlib.Path(directory, "loop.c"), pathlib.Path(directory, "loop.so")
        source.write_text(text)
        subprocess.run([shutil.which("cc") or "gcc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        return load(str(library))


def raw_launches():
    """A function that launches a whole batch in one call, which costs what the driver costs."""
    loop, kernel = c_library(LOOP).loop, service.open("nothing").get(0)
    values = [ctypes.c_void_p(t.data_ptr()) for t in (out, x, w)]
    values += [ctypes.c_int(ROWS), ctypes.c_longlong(WIDTH), ctypes.c_longlong(WIDTH), ctypes.c_float(1e-6)]
    parameters = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
    entry = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)
    function, stream = ctypes.c_void_p(kernel.function), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def batch(count):
        assert loop(entry, function, stream, parameters, count) == 0, values

    return batch


def hot(call, /, **names):
    """A function batch(count) that has the call in a loop; the names in the call are
    local variables of the loop.
    """
    space = {}
    exec(f"def batch(count, {', '.join(names)}):\n    for _ in range(count):\n        {call}", space)
    return functools.partial(space["batch"], **names)


def nothing_at_all():
    return hot("pass")


def plain_nothing():
    return hot(f"kernel({arguments})", kernel=service.open("nothing").get(0), **tensors)


def plain_nothing_given_stream():
    return hot(
        f"kernel({arguments}, stream=stream)",
        kernel=service.open("nothing").get(0),
        stream=torch.cuda.current_stream().cuda_stream,
        **tensors,
    )


def plain_addresses():
    pointers = {name: kiln.DevicePtr(t.data_ptr()) for name, t in tensors.items()}
    return hot(
        f"kernel({arguments}, stream=stream)",
        kernel=service.open("nothing").get(0),
        stream=torch.cuda.current_stream().cuda_stream,
        **pointers,
    )


def plain_rms_norm():
    return hot(f"kernel({arguments})", kernel=service.open("rms_norm").get("f32", WIDTH), **tensors)


def operator_overload():
    return hot("operator(x, w)", operator=kiln.torch.rms_norm, x=x, w=w)


def operator_in_inference():
    return torch.inference_mode()(operator_overload())  # entered once a batch, as engines do


def operator_packet():
    return hot("torch.ops.kiln.rms_norm(x, w)", torch=torch, x=x, w=w)


def operator_mutating():
    return hot("operator(x, residual, w)", operator=kiln.torch.fused_add_rms_norm, x=x, residual=torch.randn_like(x), w=w)


_body = _registry._operators["kiln::rms_norm"].real


def same_body(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    return _body(x, w, eps)


def body_alone():
    return hot("body(x, w, 1e-6)", body=_body, x=x, w=w)


def vllm_way():
    """vLLM's direct_register_custom_op: define and impl, one Python function."""
    library = torch.library.Library("kiln_bench", "FRAGMENT")
    library.define("norm(Tensor x, Tensor w, float eps) -> Tensor")
    library.impl("norm", same_body, "CUDA")
    vllm_way.keep = library
    return hot("torch.ops.kiln_bench.norm(x, w, 1e-6)", torch=torch, x=x, w=w)


def custom_op():
    operator = torch.library.custom_op("kiln_bench::norm_custom", same_body, mutates_args=())
    return hot("operator(x, w, 1e-6)", operator=operator, x=x, w=w)


def allocation():
    return hot("empty_like(x)", empty_like=torch.empty_like, x=x)


def compiled_torch():
    call = torch.compile(lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w, fullgraph=True)
    return hot("call(x, w)", call=call, x=x, w=w)


def compiled_operator():
    call = torch.compile(lambda x, w: torch.ops.kiln.rms_norm(x, w), fullgraph=True)
    return hot("call(x, w)", call=call, x=x, w=w)


def cuda_core():
    try:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    except ImportError:
        from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch
    device = Device()
    device.set_current()
    kernel = (
        Program(SOURCE, code_type="c++", options=ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("nothing")
    )
    stream, config = device.create_stream(), LaunchConfig(grid=1, block=128)
    values = {name: t.data_ptr() for name, t in tensors.items()}
    values |= {
        "rows": ctypes.c_int(ROWS),
        "sx": ctypes.c_longlong(WIDTH),
        "so": ctypes.c_longlong(WIDTH),
        "eps": ctypes.c_float(1e-6),
    }
    return hot(
        "launch(stream, config, kernel, out, x, w, rows, sx, so, eps)",
        launch=launch,
        stream=stream,
        config=config,
        kernel=kernel,
        **values,
    )


def cupy():
    import cupy as cp

    kernel = cp.RawKernel(SOURCE, "nothing", backend="nvrtc")
    a = cp.zeros(16)
    prepared = (a, a, a, cp.int32(ROWS), cp.int64(WIDTH), cp.int64(WIDTH), cp.float32(1e-6))
    return hot("kernel((1,), (128,), prepared)", kernel=kernel, prepared=prepared)


def kiln_with_cupy():
    import cupy as cp

    a = cp.zeros(16)
    return hot(f"kernel({arguments})", kernel=service.open("nothing").get(0), out=a, x=a, w=a)


def triton():
    import triton as t

    @t.jit
    def nothing(out, x, w, rows, sx, so, eps):
        pass

    return hot(f"nothing[(1,)]({arguments}, num_warps=4)", nothing=nothing, **tensors)


ROWS_OF_TABLE = [
    ("the loop alone", nothing_at_all),
    ("kiln, plain call", plain_nothing),
    ("kiln, stream= given", plain_nothing_given_stream),
    ("kiln, DevicePtr and stream=", plain_addresses),
    ("kiln, plain call of rms_norm", plain_rms_norm),
    ("kiln, CuPy arrays", kiln_with_cupy),
    ("cuda.core", cuda_core),
    ("CuPy RawKernel", cupy),
    ("Triton", triton),
    ("torch.empty_like, for scale", allocation),
    ("operator's body alone", body_alone),
    ("kiln.torch.rms_norm", operator_overload),
    ("kiln.torch.rms_norm, inference_mode", operator_in_inference),
    ("torch.ops.kiln.rms_norm", operator_packet),
    ("kiln.torch.fused_add_rms_norm", operator_mutating),
    ("same body, direct_register_custom_op", vllm_way),
    ("same body, torch.library.custom_op", custom_op),
    ("operator in torch.compile", compiled_operator),
    ("plain torch in torch.compile", compiled_torch),
]


def measure(batch, raw):
    """Median microseconds of a call, and of the raw launches between the batches."""

    def once(of):
        start = time.perf_counter_ns()
        of(BATCH)
        took = (time.perf_counter_ns() - start) / BATCH / 1e3
        torch.cuda.synchronize()
        return took

    once(raw), once(batch)
    times = [(once(raw), once(batch)) for _ in range(BATCHES)]
    return statistics.median(t for _, t in times), statistics.median(t for t, _ in times)


def table(rows):
    """Measures rows of (name, batch) and prints them."""
    raw = raw_launches()
    measured = {name: [] for name, _ in rows}
    for _ in range(REPETITIONS):
        for name, batch in rows:
            measured[name].append(measure(batch, raw))
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}; us per call, {REPETITIONS} repetitions of "
        f"{BATCHES} x {BATCH} calls: median of their medians, least, greatest; raw launches between the calls; the difference: median, least, greatest"
    )
    for name, times in measured.items():
        calls, beside, over = [t for t, _ in times], [r for _, r in times], [t - r for t, r in times]
        print(
            f"{name:42s} {statistics.median(calls):7.2f} {min(calls):6.2f} {max(calls):6.2f} {statistics.median(beside):7.2f} "
            f"{statistics.median(over):8.2f} {min(over):6.2f} {max(over):6.2f}",
            flush=True,
        )


def main(words):
    rows = []
    for name, make in ROWS_OF_TABLE:
        if words and not any(word in name for word in words):
            continue
        try:
            rows.append((name, make()))
            rows[-1][1](1)
        except Exception as error:  # a peer with another interface
            print(f"{name:42s} left out: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            rows = [row for row in rows if row[0] != name]
    table(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
