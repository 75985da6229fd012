#!/usr/bin/env python3
"""tvm-ffi and FlashInfer on kiln, on a GPU: numbers against float64, streams, graphs, allocation, modules.

    python3 python/tests/gpu_engines_ffi.py tvm_ffi       # needs torch and apache-tvm-ffi
    python3 python/tests/gpu_engines_ffi.py flashinfer    # needs flashinfer-python, too, whose package is written to

Prints a line for each operation. Exits with 1 when a result is wrong.
"""

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

os.environ["FLASHINFER_USE_CUDA_NORM"] = "1"
os.environ["FLASHINFER_DISABLE_JIT"] = "1"  # what runs comes from kiln's modules, and from no compile of FlashInfer's
_scratch = tempfile.TemporaryDirectory(prefix="kiln-gpu-ffi-")
os.environ.setdefault("FLASHINFER_WORKSPACE_BASE", _scratch.name)

import kiln
import torch

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
RELATIVE = {torch.bfloat16: 2**-8, torch.float16: 2**-10, torch.float32: 2**-18, torch.float8_e4m3fn: 2**-3.9}
rows = []


def note(operation, dtype, status, detail=""):
    rows.append((operation, dtype, status))
    print(f"{operation:44} {dtype:5} {status:14} {detail}", flush=True)


def compare(out, reference):
    """'' when every element of `out` is the reference in float64 up to its type's rounding, else the difference."""
    got = out.to(torch.float64)
    limit = RELATIVE[out.dtype] * reference.abs() + (2**-9 if out.dtype == torch.float8_e4m3fn else 4e-6)
    bad = ~((got - reference).abs() <= limit)
    return f"{int(bad.sum())} of {bad.numel()} elements, at most {float((got - reference).abs().max()):.3g}" if bad.any() else ""


def check(operation, dtype, function):
    """function() returns pairs of a tensor and its reference."""
    try:
        pairs = function()
        torch.cuda.synchronize()
    except Exception as error:
        expected = "make it contiguous" in str(error) or "kiln has no operator" in str(error)
        note(operation, dtype, "refused" if expected else "wrong", f"{type(error).__name__}: {str(error)[:150]}")
        return
    wrong = "; ".join(filter(None, (compare(*pair) for pair in pairs)))
    note(operation, dtype, "wrong" if wrong else "runs on kiln", wrong)


def norm(x, weight, eps, bias=0.0):
    x = x.to(torch.float64)
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * (weight.to(torch.float64) + bias)


def gated(x, act):
    gate, up = x.to(torch.float64).chunk(2, -1)
    made = {
        "silu": torch.nn.functional.silu,
        "gelu": torch.nn.functional.gelu,
        "gelu_tanh": lambda g: torch.nn.functional.gelu(g, approximate="tanh"),
    }
    return made[act](gate) * up


def random(*shape, dtype, scale=1.0):
    return (torch.randn(*shape, device="cuda") * scale).to(dtype)


# ---- tvm-ffi


def tvm_ffi_cases():
    import kiln.tvm_ffi
    import tvm_ffi

    print(f"tvm-ffi {tvm_ffi.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    function = kiln.tvm_ffi.function("rms_norm")
    into = kiln.tvm_ffi.function("rms_norm", ["out", "x", "weight", "eps"])
    for name, dtype in DTYPES.items():
        x, w = random(37, 4096, dtype=dtype, scale=1e-3), random(4096, dtype=dtype)

        def allocated():
            out = function(x, w, 1e-5)
            assert isinstance(out, torch.Tensor) and out.is_cuda, type(out)
            return [(out, norm(x, w, 1e-5))]

        def given():
            out = torch.empty_like(x)
            assert into(out, x, w, 1e-6) is None
            return [(out, norm(x, w, 1e-6))]

        def dtype_given():
            return [(function(x, w, 1e-5, False, torch.float32), norm(x, w, 1e-5))]

        check("function, torch allocates", name, allocated)
        check("function, caller's output", name, given)
        check("function, out_dtype=torch.float32", name, dtype_given)
        check("function in a graph", name, lambda: in_a_graph(lambda out: into(out, x, w, 1e-5), x, w))
        check("function on two streams", name, lambda: on_streams(lambda out: into(out, x, w, 1e-5), x, w))
        check("function in a new thread", name, lambda: in_a_thread(lambda: function(x, w, 1e-5), norm(x, w, 1e-5)))
    check("two outputs, one with strides", "bf16", two_outputs)
    modules()
    cost(tvm_ffi, into)


def in_a_graph(call, x, w):
    out = torch.empty_like(x)
    call(out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(out)
    x.copy_(x.flip(0))
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    return [(out, norm(x, w, 1e-5))]


def on_streams(call, x, w):
    """On each stream the input is written late. A launch on another stream would read what was there before."""
    pairs = []
    wanted = x.clone()
    out = [torch.empty_like(x) for _ in range(2)]
    torch.cuda.synchronize()
    for i in range(2):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x.zero_()
            torch.cuda._sleep(20_000_000)
            x.copy_(wanted)
            call(out[i])
        stream.synchronize()
        pairs.append((out[i], norm(wanted, w, 1e-5)))
    return pairs


def in_a_thread(call, reference):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return [(found[0], reference)]


def two_outputs():
    import kiln.tvm_ffi

    x = random(6, 256, dtype=torch.bfloat16)
    quantise = kiln.tvm_ffi.function("fp8_quant_group", ["x", "column_major"])
    values, scales = (each if isinstance(each, torch.Tensor) else torch.from_dlpack(each) for each in quantise(x, True))
    assert scales.stride()[0] == 1, scales.stride()
    groups = x.to(torch.float64).view(6, 2, 128)
    scaled = groups / scales.to(torch.float64)[:, :, None]
    return [(scales.contiguous(), groups.abs().amax(-1) / 448), (values, scaled.view(6, 256).clamp(-448, 448))]


LOADER = """
import sys
sys.modules["kiln"] = None  # an import of kiln would fail
import torch, tvm_ffi
m = tvm_ffi.load_module(sys.argv[1])
x = torch.randn(5, 512, device="cuda", dtype=torch.bfloat16)
w = torch.ones(512, device="cuda", dtype=torch.bfloat16)
y = m.rms_norm(x, w, 1e-5)
z = m.act_and_mul(x)
r = x.double() * torch.rsqrt((x.double() ** 2).mean(-1, keepdim=True) + 1e-5)
assert ((y.double() - r).abs() <= 2**-8 * r.abs() + 1e-6).all() and z.shape == (5, 256)
try:
    m.rms_norm(x, w[1:], 1e-5)
except ValueError as error:
    assert "rms_norm: weight is bf16 [511], expected [H = 512]" in str(error), error
else:
    sys.exit("a wrong weight was taken")
print("loaded without kiln's package")
"""


def modules():
    import kiln.tvm_ffi
    from kiln import _tvm_module

    path = kiln.tvm_ffi.export(_scratch.name, ["rms_norm", "act_and_mul"], library=_tvm_module.loaded_library())
    done = subprocess.run([sys.executable, "-c", LOADER, str(path)], capture_output=True, text=True)
    note("export and load_module in another process", "bf16", "wrong" if done.returncode else "runs on kiln", done.stderr[-600:])


def cost(tvm_ffi, function):
    nothing = ctypes.cast(ctypes.CDLL(None).pthread_condattr_destroy, ctypes.c_void_p).value
    arguments = [torch.ones(1, 256, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    arguments += [torch.ones(256, device="cuda", dtype=torch.bfloat16), 1e-5]
    functions = {
        "empty tvm-ffi function": tvm_ffi.Function.__from_extern_c__(nothing),
        "kiln.tvm_ffi": function,
        "torch.add": lambda out, x, w, eps: torch.add(out, x, out=out),
    }
    times = {name: [] for name in functions}
    for _ in range(15):
        for name, call in functions.items():
            torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            for _ in range(300):  # fewer than the driver queues
                call(*arguments)
            times[name].append((time.perf_counter_ns() - begin) / 300)
    for name, of in times.items():
        print(f"cost of a call: {name}: {statistics.median(of):.0f} ns")


# ---- FlashInfer


def flashinfer_cases():
    import kiln.engines.flashinfer as adapter

    installed = adapter.install()
    print(adapter.explain())
    import flashinfer

    print(f"FlashInfer {flashinfer.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    assert len(installed) == 4, installed
    for name, dtype in DTYPES.items():
        norms(flashinfer, name, dtype)
        activations(flashinfer, name, dtype)
    trace_apply(flashinfer, adapter)
    adapter.uninstall()


def norms(flashinfer, name, dtype):
    w = random(4096, dtype=dtype, scale=0.5)
    packed = random(37, 48 * 128, dtype=dtype)
    inputs = {
        "37x4096": random(37, 4096, dtype=dtype, scale=1e-3),
        "1x4096": random(1, 4096, dtype=dtype, scale=1e-3),
        "rows of a wider tensor": random(37, 8192, dtype=dtype)[:, :4096],
        "qk 37x32x128": random(37, 32, 128, dtype=dtype),
        "qk of packed rows": packed[:, : 32 * 128].view(37, 32, 128),
    }
    for function, bias in (("rmsnorm", 0.0), ("gemma_rmsnorm", 1.0)):
        call = getattr(flashinfer.norm, function)
        for what, x in inputs.items():
            weight = w[: x.shape[-1]]
            for eps in (1e-5, 1e-6):
                check(f"{function} {what} eps={eps}", name, lambda: [(call(x, weight, eps=eps), norm(x, weight, eps, bias))])
    for function, bias in (("fused_add_rmsnorm", 0.0), ("gemma_fused_add_rmsnorm", 1.0)):
        for eps in (1e-5, 1e-6):

            def added():
                x, residual = random(37, 4096, dtype=dtype, scale=1e-3), random(37, 4096, dtype=dtype, scale=1e-3)
                total = x.to(torch.float64) + residual.to(torch.float64)
                getattr(flashinfer.norm, function)(x, residual, w, eps=eps)
                return [(x, norm(total, w, eps, bias)), (residual, total)]

            check(f"{function} eps={eps}", name, added)
    scale = torch.full((1,), 0.02, device="cuda")

    def quantised():
        out = torch.empty(37, 4096, device="cuda", dtype=torch.float8_e4m3fn)
        flashinfer.norm.rmsnorm_quant(out, inputs["37x4096"], w, scale, eps=1e-5)
        return [(out, (norm(inputs["37x4096"], w, 1e-5) / 0.02).clamp(-448, 448))]

    def added_quantised():
        out = torch.empty(37, 4096, device="cuda", dtype=torch.float8_e4m3fn)
        x, residual = random(37, 4096, dtype=dtype), random(37, 4096, dtype=dtype)
        total = x.to(torch.float64) + residual.to(torch.float64)
        flashinfer.norm.fused_add_rmsnorm_quant(out, x, residual, w, scale, eps=1e-5)
        return [(out, (norm(total, w, 1e-5) / 0.02).clamp(-448, 448)), (residual, total)]

    def captured():
        x = random(37, 4096, dtype=dtype, scale=1e-3)
        return in_a_graph(lambda out: flashinfer.norm.rmsnorm(x, w, eps=1e-5, out=out), x, w)

    check("rmsnorm_quant e4m3", name, quantised)
    check("fused_add_rmsnorm_quant e4m3", name, added_quantised)
    check("rmsnorm in a graph", name, captured)
    f32 = torch.ones(4096, device="cuda")
    check("layernorm", name, lambda: [(flashinfer.norm.layernorm(inputs["37x4096"], f32, f32 * 0), w)])


def activations(flashinfer, name, dtype):
    for act in ("silu", "gelu", "gelu_tanh"):
        call = getattr(flashinfer, f"{act}_and_mul")
        for shape in ((37, 2 * 4096), (1, 2 * 14336), (4, 9, 2 * 1000)):
            x = random(*shape, dtype=dtype)
            check(f"{act}_and_mul {'x'.join(map(str, shape))}", name, lambda: [(call(x), gated(x, act))])


def trace_apply(flashinfer, adapter):
    import flashinfer.trace_apply as apply

    def solved():
        x, wide, w = (random(*s, dtype=torch.bfloat16) for s in ((5, 4096), (5, 8192), (4096,)))
        apply.enable_apply(adapter.solutions(["rmsnorm_h4096", "silu_and_mul_h8192"], eps_is_1e_6=True))
        pairs = [(flashinfer.norm.rmsnorm(x, w), norm(x, w, 1e-6)), (flashinfer.silu_and_mul(wide), gated(wide, "silu"))]
        print("Trace Apply:", apply.stats())
        apply.disable_apply()
        return pairs

    check("Trace Apply: rmsnorm, silu_and_mul", "bf16", solved)


if __name__ == "__main__":
    torch.manual_seed(0)
    {"tvm_ffi": tvm_ffi_cases, "flashinfer": flashinfer_cases}[sys.argv[1]]()
    counts = {status: sum(row[2] == status for row in rows) for status in ("runs on kiln", "refused", "wrong")}
    print(", ".join(f"{count} {status}" for status, count in counts.items()), "- compiles:", kiln.service().stats()["compiles"])
    sys.exit(1 if counts["wrong"] else 0)
