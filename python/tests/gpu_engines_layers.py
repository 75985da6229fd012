"""An engine's released layers on kiln, compared with their own forward_native and with float64, on a GPU:

    python python/tests/gpu_engines_layers.py vllm
    python python/tests/gpu_engines_layers.py sglang

Prints one line for each layer and dtype: calls that ran on kiln, that fell through, and that were wrong.
Exits with 1 when a call was wrong, or ran elsewhere than expected.
KILN_TEST_ENGINES names the folders that have the engines' Python files (engines_support).
"""

import collections
import os
import pathlib
import subprocess
import sys
import tempfile

ENGINE = sys.argv[1]
os.environ["KILN_" + ENGINE.upper()] = "1"
os.environ.setdefault("KILN_CACHE_DIR", tempfile.mkdtemp(prefix="kiln-engines-"))

import engines_support
import torch

E = getattr(engines_support, ENGINE)()
import kiln.engines
import kiln.torch

adapter = __import__(f"kiln.engines.{ENGINE}", fromlist=["register"])
adapter.register()

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
#: largest relative RMS error against float64: the templates' tolerances
TOLERANCE = {F32: 1e-5, F16: 1e-3, BF16: 8e-3}
DEVICE = "cuda"


class Case:
    """One call of a layer. `reference` is a function of float64 copies of the tensors."""

    def __init__(self, layer, arguments, reference, runs=True, native=None, **named):
        self.layer, self.arguments, self.named, self.reference, self.runs = layer, arguments, named, reference, runs
        self.native = native or layer.forward_native


def copies(values, dtype=None):
    def copy(t):
        if not torch.is_tensor(t):
            return t
        if dtype and t.is_floating_point():
            return t.to(dtype)
        base = torch.empty(t.untyped_storage().nbytes() // t.element_size(), dtype=t.dtype, device=t.device)
        return base.as_strided(t.shape, t.stride(), t.storage_offset()).copy_(t)

    return [copy(v) for v in values]


def flat(result):
    return [t for t in (result if isinstance(result, (tuple, list)) else (result,)) if torch.is_tensor(t)]


def error(got, expected):
    if not got.numel():
        return 0.0
    difference = (got.double() - expected.double()).square().mean().sqrt()
    return float(difference / expected.double().square().mean().sqrt().clamp(min=1e-30))


def fp8(t):
    return t.dtype == torch.float8_e4m3fn


# ---- references in float64


def norm64(x, residual, weight, eps, gemma):
    total = x if residual is None else x + residual
    y = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * (weight.double() + gemma)
    return (y,) if residual is None else (y, total)


def gated64(x, activation):
    gate, up = x.chunk(2, -1)
    return activation(gate) * up


def rope64(positions, q, k, table, size, neox):
    """Rotates heads of `size` by cosines and sines in the columns of `table`."""
    cos, sin = table.double()[positions.flatten()].chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    out = []
    for x in (q, k):
        heads = x.reshape(positions.numel(), -1, size)
        turned, rest = heads[..., : table.shape[1]], heads[..., table.shape[1] :]
        a, b = turned.chunk(2, -1) if neox else (turned[..., ::2], turned[..., 1::2])
        pair = a * cos - b * sin, b * cos + a * sin
        turned = torch.cat(pair, -1) if neox else torch.stack(pair, -1).flatten(-2)
        out.append(torch.cat((turned, rest), -1).reshape(x.shape))
    return tuple(out)


# ---- cases


def rows(*shape, dtype, gap=0, offset=0):
    """A tensor with `gap` unused elements after each row, `offset` elements into its storage."""
    width = shape[-1] + gap
    count = max(1, torch.Size(shape[:-1]).numel())
    base = torch.randn(count * width + offset + 16, device=DEVICE).to(dtype)
    strides, step = [], width
    for size in reversed(shape[:-1]):
        strides.insert(0, step)
        step *= max(size, 1)
    return base.as_strided(shape, (*strides, 1), offset)


def filled(layer, dtype):
    layer = layer.to(DEVICE)
    if getattr(layer, "weight", None) is not None:
        layer.weight.data = torch.randn(layer.weight.shape, device=DEVICE).mul(0.5).to(dtype)
    return layer


def norm_cases(dtype):
    shapes = [(1, 4096), (0, 4096), (17, 4096), (512, 2048), (3, 5, 128), (33, 100), (4, 8192)]
    for kind, gemma in ((E.norm.RMSNorm, 0), (E.norm.GemmaRMSNorm, 1)):
        for shape in shapes:
            for fused in (False, True):
                layer = filled(kind(shape[-1], eps=1e-5), dtype)
                x = rows(*shape, dtype=dtype)
                arguments = (x, rows(*shape, dtype=dtype)) if fused else (x,)
                yield Case(layer, arguments, lambda x, r=None, m=layer, g=gemma: norm64(x, r, m.weight, 1e-5, g), shape[0] > 0)
        layer = filled(kind(256, eps=1e-6), dtype)
        for x, runs in (
            (rows(9, 256, dtype=dtype, gap=64), True),
            (rows(9, 256, dtype=dtype, gap=1), False),
            (rows(9, 256, dtype=dtype, offset=1), False),
            (rows(256, 9, dtype=dtype).t(), True),
            (rows(4, 8, 256, dtype=dtype).transpose(0, 1), True),
        ):
            yield Case(layer, (x,), lambda x, m=layer, g=gemma: norm64(x, None, m.weight, 1e-6, g), runs)
        x, wide = rows(9, 256, dtype=dtype), rows(9, 256, dtype=dtype, gap=128)
        yield Case(layer, (x, wide), lambda x, r, m=layer, g=gemma: norm64(x, r, m.weight, 1e-6, g))
        if dtype is not F32:
            other = filled(kind(256), F32)
            yield Case(other, (x,), lambda x, m=other, g=gemma: norm64(x, None, m.weight, 1e-6, g), False)
    if ENGINE == "vllm":
        part = filled(E.norm.RMSNorm(256, var_hidden_size=128), dtype)
        yield Case(part, (rows(5, 256, dtype=dtype),), None, False)
        bare = E.norm.RMSNorm(256, has_weight=False)
        yield Case(bare, (rows(5, 256, dtype=dtype),), None, False)
    else:
        layer = filled(E.norm.RMSNorm(256), dtype)
        three = [rows(7, 256, dtype=dtype) for _ in range(3)]
        yield Case(layer, three, lambda x, r, p, m=layer: norm64(x, r + p, m.weight, 1e-6, 0))
        for options in ({"var_hidden_size": 128}, {"cast_x_before_out_mul": True}):
            yield Case(filled(E.norm.RMSNorm(256, **options), dtype), (three[0],), None, False)


def activation_cases(dtype):
    functional = torch.nn.functional
    kinds = [
        (E.activation.SiluAndMul(), functional.silu),
        (E.activation.GeluAndMul("none"), functional.gelu),
        (E.activation.GeluAndMul("tanh"), lambda x: functional.gelu(x, approximate="tanh")),
    ]
    for layer, activation in kinds:
        for x, runs in (
            (rows(1, 2 * 11008, dtype=dtype), True),
            (rows(0, 512, dtype=dtype), False),
            (rows(300, 2 * 2048, dtype=dtype), True),
            (rows(2, 7, 256, dtype=dtype), True),
            (rows(5, 2 * 99, dtype=dtype), True),
            (rows(5, 512, dtype=dtype, gap=32), True),
            (rows(5, 512, dtype=dtype, gap=3), False),
        ):
            yield Case(layer, (x,), lambda x, a=activation: (gated64(x, a),), runs)


def rotary_cases(dtype):
    if ENGINE != "vllm":
        return
    make = E.rotary.RotaryEmbedding
    llama = E.rotary.Llama3RotaryEmbedding(128, 128, 4096, 500000.0, True, dtype, 8.0, 1.0, 4.0, 8192)
    for layer, heads, kv_heads in (
        (make(128, 128, 4096, 10000.0, True, dtype), 32, 8),
        (make(64, 64, 4096, 10000.0, True, dtype), 16, 16),
        (make(128, 64, 4096, 10000.0, True, dtype), 8, 1),
        (make(128, 128, 4096, 10000.0, False, dtype), 8, 2),
        (make(256, 64, 4096, 10000.0, False, dtype), 4, 4),
        (make(80, 32, 4096, 10000.0, True, dtype), 8, 8),
        (llama, 32, 8),
    ):
        layer, size = layer.to(DEVICE), layer.head_size

        def reference(p, q, k, m=layer):
            return rope64(p, q, k, m.cos_sin_cache, m.head_size, m.is_neox_style)

        for tokens in (0, 1, 77):
            p = torch.randint(0, 4096, (tokens,), device=DEVICE)
            qkv = rows(tokens, (heads + 2 * kv_heads) * size, dtype=dtype)
            q, k, _ = qkv.split([heads * size, kv_heads * size, kv_heads * size], -1)
            yield Case(layer, (p, q, k), reference, tokens > 0)
            yield Case(layer, (p.int(), q.contiguous(), k.contiguous()), reference, tokens > 0)
        three = rows(77, heads, size, dtype=dtype), rows(77, kv_heads, size, dtype=dtype)
        yield Case(layer, (p, *three), reference)
        batched = rows(7, 11, heads * size, dtype=dtype), rows(7, 11, kv_heads * size, dtype=dtype)
        yield Case(layer, (p.view(7, 11), *batched), reference)
    yield Case(layer, (p, three[0], None), None, False)


def quant_cases(dtype):
    if ENGINE != "vllm":
        return
    shape, make = E.quant.GroupShape, E.quant.QuantFP8
    for tokens, width in ((1, 4096), (16, 512), (300, 7168), (5, 384)):
        x = rows(tokens, width, dtype=dtype)
        scale = torch.tensor([0.013], device=DEVICE, dtype=F32)
        yield Case(make(True, shape.PER_TENSOR), (x, scale), None)
        yield Case(make(False, shape.PER_TENSOR), (x,), None)
        yield Case(make(False, shape.PER_TOKEN), (x,), None)
        for ue8m0 in (False, True):
            layer = make(False, shape(1, 128), use_ue8m0=ue8m0)
            yield Case(layer, (x,), None)
            tma = make(False, shape(1, 128), column_major_scales=True, tma_aligned_scales=True, use_ue8m0=ue8m0)
            yield Case(tma, (x,), None)
        yield Case(make(False, shape(1, 64), use_ue8m0=False), (x,), None)
    yield Case(make(False, shape.PER_TOKEN), (rows(0, 512, dtype=dtype),), None, False)
    yield Case(make(False, shape.PER_TOKEN), (rows(6, 512, dtype=dtype, gap=512),), None)
    for layer, arguments, named in (
        (make(False, shape(1, 128), column_major_scales=True, use_ue8m0=False), (x,), {}),
        (make(False, shape(1, 32), use_ue8m0=False), (x,), {}),
        (make(False, shape.PER_TOKEN), (x,), {"scale_ub": torch.ones(1, device=DEVICE)}),
        (make(False, shape.PER_TOKEN, num_token_padding=17), (x,), {}),
        (make(True, shape.PER_TOKEN), (x, torch.ones(5, 1, device=DEVICE)), {}),
    ):
        yield Case(layer, arguments, None, False, **named)


# ---- verdicts


def check_fp8(case, got, native):
    """Values that differ by more than one code step, and scales that differ, from forward_native's."""
    (values, scales), (expected, expected_scales) = got[:2], native[:2]
    if values.shape != expected.shape or scales.shape != expected_scales.shape:
        return f"shapes {list(values.shape)} {list(scales.shape)}, expected {list(expected.shape)} {list(expected_scales.shape)}"
    if not values.numel():
        return ""
    if error(scales, expected_scales) > 1e-6:
        return f"scales differ by {error(scales, expected_scales):.1e}"
    steps = (codes(values) - codes(expected)).abs()
    if steps.max() > 1 or (steps > 0).double().mean() > 0.01:
        return f"values differ by {int(steps.max())} codes, {float((steps > 0).double().mean()):.2%} of them"
    if getattr(case.layer, "tma_aligned_scales", False) and scales.stride(0) != 1:
        return f"scales have strides {scales.stride()}"
    return ""


def codes(values):
    """fp8 codes as integers that are in the order of the values."""
    bits = values.view(torch.uint8).int()
    return torch.where(bits > 127, 128 - bits, bits)


def verdict(case):
    """("kiln" | "engine" | "wrong", note) of one call."""
    with engines_support.Operators() as called:
        arguments = copies(case.arguments)
        try:
            result = case.layer(*arguments, **case.named)
        except Exception as failure:
            if any(n.startswith("kiln::") for n in called.names) or case.runs:
                return "wrong", f"{type(failure).__name__}: {failure}"[:300]
            return "engine", "its compiled kernel is not on this machine"
    on_kiln = any(n.startswith("kiln::") for n in called.names)
    if on_kiln != case.runs:
        return (
            "wrong",
            f"ran on {'kiln' if on_kiln else 'the engine'}: {kiln.engines._layers.notes.met.get(case.layer._kiln_number)}",
        )
    if not on_kiln:
        return "engine", ""
    got = flat(result)
    torch.cuda.synchronize()
    try:
        native = flat(case.native(*copies(case.arguments), **case.named))
    except Exception as failure:
        if case.reference is None:
            return ("kiln", "no native result") if not got[0].numel() else ("wrong", f"forward_native: {failure}"[:300])
        native = []
    if fp8(got[0]):
        wrong = check_fp8(case, got, native)
        return ("wrong", wrong) if wrong else ("kiln", "")
    expected = flat(case.reference(*copies(case.arguments, torch.float64)))
    for which, other, factor in (("float64", expected, 1), ("forward_native", native, 2)):
        for i, (one, two) in enumerate(zip(got, other)):
            if one.shape != two.shape:
                return "wrong", f"result {i} is {list(one.shape)}, {which} {list(two.shape)}"
            if not error(one, two) <= factor * TOLERANCE[one.dtype]:
                return "wrong", f"result {i}: {error(one, two):.1e} from {which}"
    if len(got) != len(expected):
        return "wrong", f"{len(got)} results, expected {len(expected)}"
    if "rope" in "".join(called.names) and got[0].data_ptr() != arguments[1].data_ptr():
        return "wrong", "query was not rotated in place"
    return "kiln", ""


def table():
    """Runs all cases, and prints the table. Returns the number of wrong calls."""
    counts, notes = collections.defaultdict(collections.Counter), []
    for dtype in (BF16, F16, F32):
        for cases in (norm_cases, activation_cases, rotary_cases, quant_cases):
            torch.manual_seed(5)
            torch.set_default_dtype(dtype)
            for case in cases(dtype):
                torch.set_default_dtype(F32)
                what, note = verdict(case)
                name = type(case.layer).__name__.removeprefix("Kiln")
                counts[name, str(dtype)[6:]][what] += 1
                if what == "wrong":
                    shapes = [tuple(a.shape) if torch.is_tensor(a) else a for a in case.arguments]
                    notes.append(f"WRONG {name} {dtype} {shapes} {case.named or ''}: {note}")
                torch.set_default_dtype(dtype)
    torch.set_default_dtype(F32)
    print(f"{'engine':8} {'layer':22} {'dtype':9} {'kiln':>5} {'engine':>7} {'wrong':>6}")
    for (name, dtype), count in sorted(counts.items()):
        print(f"{ENGINE:8} {name:22} {dtype:9} {count['kiln']:5} {count['engine']:7} {count['wrong']:6}")
    print("\n".join(notes))
    return len(notes)


def compiled():
    """Each layer in torch.compile and in a captured graph gives what it gives in a plain call."""
    wrong = 0
    cases = [c for make in (norm_cases, activation_cases, rotary_cases, quant_cases) for c in make(BF16) if c.runs]
    chosen = {}
    for case in cases:
        if case.arguments[0].shape[0] > 1:
            chosen.setdefault((type(case.layer).__name__, len(case.arguments)), case)
    for (name, count), case in chosen.items():
        expected = flat(case.layer(*copies(case.arguments)))
        arguments = copies(case.arguments)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                captured = flat(case.layer(*arguments))
        for to, value in zip(arguments, case.arguments):
            to.copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        torch._dynamo.reset()
        traced = torch.compile(lambda *a, m=case.layer: m._forward_method(*a), fullgraph=True)
        for way, got in (("captured", captured), ("compiled", flat(traced(*copies(case.arguments))))):
            same = all(
                torch.equal(a.view(torch.uint8), b.view(torch.uint8)) if fp8(a) else torch.equal(a, b)
                for a, b in zip(got, expected)
            )
            wrong += not same
            print(f"{name} with {count} tensors, {way}: {'same bits' if same else 'WRONG'}")
    return wrong


def restart():
    """Starts this script twice with a trace between: the second start compiles nothing."""
    with tempfile.TemporaryDirectory() as folder:
        trace, cache = pathlib.Path(folder, "asked.toml"), pathlib.Path(folder, "cache")
        command = [sys.executable, __file__, ENGINE, "--once"]
        for which in ("first", "second"):
            environment = os.environ | {"KILN_CACHE_DIR": f"{folder}/{which}", "KILN_RECORD": str(trace)}
            if which == "second":
                program = "import kiln, pathlib, sys; kiln.Service(cache_dir=sys.argv[2]).prewarm(pathlib.Path(sys.argv[1]))"
                subprocess.run([sys.executable, "-c", program, trace, cache], check=True)
                environment |= {"KILN_CACHE_DIR": str(cache)}
                del environment["KILN_RECORD"]
            out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
            print(f"{which} start: {out.splitlines()[-1]}")
    return not out.splitlines()[-1].startswith("0 compiles")


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        sys.exit(77)
    if "--once" in sys.argv:
        torch.set_default_dtype(BF16)
        for case in [c for make in (norm_cases, activation_cases, rotary_cases, quant_cases) for c in make(BF16) if c.runs]:
            case.layer(*copies(case.arguments), **case.named)
        torch.cuda.synchronize()
        print(f"{kiln.torch.service().stats()['compiles']} compiles")
        sys.exit(0)
    wrong = table()
    torch.set_default_dtype(BF16)
    wrong += compiled()
    torch.set_default_dtype(F32)
    wrong += restart()
    print(adapter.explain())
    print(f"{ENGINE}: {wrong} wrong")
    sys.exit(1 if wrong else 0)
