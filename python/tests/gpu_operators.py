"""Every operator on a GPU, compared with plain torch and with itself in each way that engines run it:

    python -m pytest -q python/tests/gpu_operators.py

The ways are eager, torch.compile(fullgraph=True), mode="reduce-overhead", dynamic=True, torch.export, a
captured graph, two streams and two processes. opcheck runs, too.
"""

import hashlib
import os
import subprocess
import sys

import attention_cases
import kiln
import kiln.torch
import moe_cases
import operator_references
import pytest
import recurrent_cases
import torch
import torch._dynamo
import torch._dynamo.testing
from kiln.torch import FusedMoE, _four_bits, _fused_moe, _moe
from operator_cases import cases, with_rows

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
CASES = cases() + recurrent_cases.cases() + attention_cases.cases() + moe_cases.cases()
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]
EACH = pytest.mark.parametrize("name, make", CASES, ids=IDS)
#: largest relative RMS error that rounding to a type explains
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 4e-3, torch.float8_e4m3fn: 4e-2, torch.float8_e5m2: 8e-2}


def copied(arguments, named):
    """Copies with the same strides, so that an operator that writes finds the first call's inputs again."""

    def copy(value):
        return (
            torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)
            if torch.is_tensor(value)
            else value
        )

    return [copy(a) for a in arguments], {n: copy(v) for n, v in named.items()}


def outcome(call, arguments, named):
    """The results of a call, then its arguments, which the call may have written to."""
    arguments, named = copied(arguments, named)
    results = call(*arguments, **named)
    results = results if isinstance(results, tuple) else () if results is None else (results,)
    return [*results, *(a for a in arguments if torch.is_tensor(a))]


def bits(tensors):
    return [t.contiguous().flatten().view(torch.uint8) for t in tensors]


def assert_same(got, expected):
    for one, other in zip(bits(got), bits(expected), strict=True):
        assert torch.equal(one, other)


def made(make):
    torch.manual_seed(7)
    return make("cuda")


def plain(name):
    """The operator as a function that Dynamo traces."""
    operator = getattr(torch.ops.kiln, name)

    def call(*arguments, **named):
        return operator(*arguments, **named)

    return call


def assert_close(got, expected, name, tolerance=None):
    if expected.dtype in (torch.int32, torch.int64) or got.dtype == torch.int32:
        assert torch.equal(got, expected), name
        return
    error = (got.double() - expected.double()).square().mean().sqrt() / expected.double().square().mean().sqrt().clamp(min=1e-30)
    assert error <= (tolerance or TOLERANCE[got.dtype]), f"{name}: relative RMS {error:.2e}"


def parts_of(name, tensor):
    """The tensors that a written argument holds: a packed row of latents holds codes, scales and elements of 16 bits."""
    if name != "mla_append" or tensor.dtype != torch.float8_e4m3fn:
        return [tensor]
    rows = tensor.view(torch.uint8)
    ends = [(0, 512, torch.float8_e4m3fn), (512, 528, torch.float32), (528, 656, torch.float16)]
    return [rows[..., first:last].contiguous().view(dtype) for first, last, dtype in ends]


def tolerance_of(name, dtype, named):
    """None, or the relative RMS error that explains itself otherwise than by the rounding of the result."""
    if dtype == torch.float32 and name.startswith("attn_sm90_e4m3"):
        return 4e-4  # 14 bits of sums of fp8 products: 1.8e-4 for one key of 128 elements, times scales of up to 1.5 of q and of k
    if dtype == torch.float32 and name.startswith("attn_"):
        return 1e-4  # logarithms of sums of bf16 products
    if dtype == torch.float32 and name == "moe_gemm_fp8_quant":
        return 3e-4  # factors of sums of fp8 products, of which tensor cores keep about 14 bits
    if name.startswith(("delta_chunk", "delta_rule", "dplr_chunk")) or name in ("wkv7", "wkv7_pool"):
        return 6e-3  # operands of its products are rounded to bf16
    if getattr(named.get("w13_scale"), "dtype", None) == torch.float32:
        return 8e-3  # the errors of these sums move some elements of the first product to the next e4m3 value
    return None


@EACH
def test_gives_what_plain_torch_gives(name, make):
    arguments, named = made(make)
    expected, written = getattr(operator_references, name)(*copied(arguments, named)[0], **named)
    got = outcome(getattr(torch.ops.kiln, name), arguments, named)
    names = [
        a.name for a, value in zip(getattr(torch.ops.kiln, name).default._schema.arguments, arguments) if torch.is_tensor(value)
    ]
    after = dict(zip(names, got[len(got) - len(names) :]))
    if name == "amax":
        assert got[0].max() == arguments[0].abs().max().float()
        return
    for i, (one, other) in enumerate(zip(got, expected)):
        assert_close(one, other, f"{name} result {i}", tolerance_of(name, one.dtype, named))
    for argument, value in zip(names, (a for a in arguments if torch.is_tensor(a))):
        if argument in written:
            for got_part, expected_part in zip(parts_of(name, after[argument]), parts_of(name, written[argument]), strict=True):
                assert_close(got_part, expected_part, f"{name} {argument}", tolerance_of(name, got_part.dtype, named))
        else:
            assert_same([after[argument]], [value])


@EACH
def test_compiled(name, make):
    arguments, named = made(make)
    expected = outcome(getattr(torch.ops.kiln, name), arguments, named)
    for options in ({}, {"mode": "reduce-overhead"}):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(plain(name), fullgraph=True, **options)
        for _ in range(3):  # warm-up, capture, replay
            torch.compiler.cudagraph_mark_step_begin()
            assert_same(outcome(compiled, arguments, named), expected)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
        assert not torch._dynamo.utils.counters["graph_break"]


@EACH
def test_dynamic(name, make):
    """Every size is symbolic, and parameters become guards on values."""
    arguments, named = made(make)
    torch._dynamo.reset()
    kiln.torch.specialize(True)
    try:
        compiled = torch.compile(plain(name), fullgraph=True, dynamic=True)
        assert_same(outcome(compiled, arguments, named), outcome(getattr(torch.ops.kiln, name), arguments, named))
    finally:
        kiln.torch.specialize(False)


@EACH
def test_exported(name, make):
    arguments, named = made(make)

    class Module(torch.nn.Module):
        def forward(self, *a):
            return getattr(torch.ops.kiln, name)(*a, **named)

    program = torch.export.export(Module(), tuple(copied(arguments, named)[0])).module()
    assert_same(outcome(lambda *a, **_: program(*a), arguments, {}), outcome(getattr(torch.ops.kiln, name), arguments, named))


@EACH
def test_captured_and_replayed(name, make):
    arguments, named = made(make)
    operator = getattr(torch.ops.kiln, name)
    expected = outcome(operator, arguments, named)
    static, static_named = copied(arguments, named)
    operator(*copied(arguments, named)[0], **named)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = operator(*static, **static_named)
    results = results if isinstance(results, tuple) else () if results is None else (results,)
    for _ in range(3):
        for to, value in zip(static, arguments):
            if torch.is_tensor(to):
                to.copy_(value)
        filler = torch.full((1 << 20,), -1, dtype=torch.int32, device="cuda")  # overwrites free memory
        graph.replay()
        assert_same([*results, *(s for s in static if torch.is_tensor(s))], expected)
        del filler


@EACH
def test_two_streams(name, make):
    arguments, named = made(make)
    operator = getattr(torch.ops.kiln, name)
    expected = outcome(operator, arguments, named)
    torch.cuda.synchronize()
    streams, got = [torch.cuda.Stream() for _ in range(2)], []
    for _ in range(5):
        for stream in streams:
            with torch.cuda.stream(stream):
                got.append(outcome(operator, arguments, named))
    torch.cuda.synchronize()
    for each in got:
        assert_same(each, expected)


@EACH
def test_opcheck(name, make):
    arguments, named = made(make)
    tests = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if any(torch.is_tensor(a) and a.dtype in (torch.float8_e4m3fn, torch.float8_e8m0fnu) for a in (*arguments, *named.values())):
        tests.remove("test_schema")  # the test does arithmetic on its arguments
    kiln.torch.specialize(True)
    try:
        torch.library.opcheck(getattr(torch.ops.kiln, name).default, tuple(arguments), named, test_utils=tests)
    finally:
        kiln.torch.specialize(False)


@EACH
def test_recompiles_for_other_numbers_of_rows(name, make):
    """There is one recompile after the first graph, for any number of rows."""
    calls = [with_rows(name, *made(make), times) for times in (1, 2, 3, 5)]
    if calls[0] is None:
        pytest.skip("its rows are those of a plan or of cu_seqlens: gpu_attention, gpu_models")
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    compiled = torch.compile(plain(name), backend=counter, fullgraph=True)
    for arguments, named in calls:
        assert_same(outcome(compiled, arguments, named), outcome(getattr(torch.ops.kiln, name), arguments, named))
    assert counter.frame_count == 2


# ---- mixtures of experts


def mixture(tokens, experts=32, k=4, hidden=512, inner=256, dtype=torch.bfloat16):
    """Arguments of fused_moe whose routing is random."""
    torch.manual_seed(tokens)
    x, logits = (torch.randn(tokens, n, device="cuda").to(dtype) for n in (hidden, experts))
    return x, *moe_cases._weights("cuda", experts, inner, hidden, dtype=dtype), logits, None, None, k


def in_double(arguments, rows=slice(None), **named):
    """fused_moe of some rows in plain torch and double. test_torch_moe compares that path with a loop over tokens."""
    call = _fused_moe.Call(*arguments, **named)
    call = call._replace(**{n: getattr(call, n)[rows] for n in ("x", "logits", "weights", "ids") if getattr(call, n) is not None})
    wide = (t.double() if torch.is_tensor(t) and t.dtype in (torch.bfloat16, torch.float16) else t for t in call)
    return _moe.plain(_fused_moe.Call(*wide))


@pytest.mark.parametrize("tokens", [1, 2, 4, 16, 64, 256, 512, 513, 4096, 20000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_a_mixture_of_experts_for_any_number_of_tokens(tokens, dtype):
    arguments = mixture(tokens, dtype=dtype)
    got = torch.ops.kiln.fused_moe(*arguments)
    assert_close(got, in_double(arguments), f"fused_moe, {tokens} tokens")
    for _ in range(5):
        assert_same([torch.ops.kiln.fused_moe(*arguments)], [got])


def routings(tokens, experts, k):
    """Ids i64 [tokens, k]: random; the same experts for all tokens; some and all of them no expert; half of the experts."""
    spread = torch.rand(tokens, experts, device="cuda").argsort(1)[:, :k]
    yield spread
    yield torch.arange(k, device="cuda").expand(tokens, k).contiguous()
    yield spread.masked_fill(torch.rand(tokens, k, device="cuda") < 0.5, -1)
    yield torch.full_like(spread, -1)
    yield torch.rand(tokens, experts // 2, device="cuda").argsort(1)[:, :k]


@pytest.mark.parametrize("tokens", [1, 16, 300, 2000])
@pytest.mark.parametrize("local", [32, 2], ids=["all-local", "two-local"])
def test_a_captured_mixture_replays_any_routing(tokens, local):
    """Nothing but the numbers in memory changes between replays. With two local experts a token has more than are here."""
    x, w13, w2, _, _, _, k = mixture(tokens)
    ids, weights = torch.zeros(tokens, k, dtype=torch.int64, device="cuda"), torch.zeros(tokens, k, device="cuda")
    expert_map = None if local == 32 else moe_cases._map("cuda", 32, local)
    arguments, named = (x, w13[:local], w2[:local], None, weights, ids), {"expert_map": expert_map}
    torch.ops.kiln.fused_moe(*arguments, **named)  # no kernel is made while a stream captures
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = torch.ops.kiln.fused_moe(*arguments, **named)
    for routing in routings(tokens, 32, k):
        x.copy_(torch.randn_like(x)), ids.copy_(routing), weights.copy_(torch.rand_like(weights))
        filler = torch.full((1 << 20,), -1, dtype=torch.int32, device="cuda")  # overwrites free memory
        graph.replay()
        assert_same([got], [torch.ops.kiln.fused_moe(*arguments, **named)])
        expected = in_double(arguments, **named)
        if expected.any():
            assert_close(got, expected, "fused_moe replayed")
        else:
            assert not got.any()
        del filler


def test_a_mixture_of_experts_never_waits_for_the_device():
    calls = [mixture(16), mixture(600)]
    for arguments in calls:
        torch.ops.kiln.fused_moe(*arguments)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for arguments in calls:
            torch.ops.kiln.fused_moe(*arguments)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_mixture_with_more_than_2_to_the_31_elements():
    if torch.cuda.get_device_properties(0).total_memory < 40 << 30:
        pytest.skip("it takes about 8 GB")
    tokens, k, hidden = 65536, 8, 4608  # the second product has tokens * k * hidden elements
    assert tokens * k * hidden > 1 << 31
    arguments = mixture(tokens, experts=16, k=k, hidden=hidden, inner=64)
    got = torch.ops.kiln.fused_moe(*arguments)
    for rows in (slice(0, 64), slice(32000, 32064), slice(tokens - 64, tokens)):
        assert_close(got[rows], in_double(arguments, rows), f"fused_moe, rows {rows}")


@pytest.mark.parametrize("tokens", [1, 16, 256, 600, 5000])
def test_a_mixture_in_fp8_is_near_the_one_in_bf16(tokens):
    x, w13, w2, logits, _, _, k = arguments = mixture(tokens)
    layer = FusedMoE(w13, w2, k, fp8=True)
    with torch.no_grad():
        assert layer.explain(x, logits) == ""
        got = layer(x, logits)
    expected = in_double(arguments)
    error = (got.double() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    # A rounding to e4m3 has a relative RMS error of about 2.6 %. There are two such operands in each of two products.
    assert error < 7e-2, f"{error:.2e}"


@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 256, 512, 513, 4096])
@pytest.mark.parametrize("quantize", [kiln.torch.quantize_mxfp4, kiln.torch.quantize_int4], ids=["mxfp4", "int4"])
def test_a_mixture_of_4_bits_for_any_number_of_tokens(tokens, quantize):
    x, w13, w2, logits, _, _, k = mixture(tokens, hidden=576, inner=288)
    w13, w2 = quantize(w13), quantize(w2)
    biases = {"bias13": moe_cases.weight("cuda", 32, 576), "bias2": moe_cases.weight("cuda", 32, 576)}
    layer = FusedMoE(w13, w2, k, act="swigluoai", **biases)
    with torch.no_grad():
        assert layer.explain(x, logits) == ""
        got = layer(x, logits)
        assert_same([layer(x, logits)], [got])
    wide = (_four_bits.unpacked(weight, columns).double() for weight, columns in ((w13, 576), (w2, 288)))
    assert_close(got, in_double((x, *wide, logits, None, None, k), act="swigluoai", **biases), f"fused_moe, {tokens} tokens")


def test_rows_change_without_recompiling():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    weight = torch.nn.Parameter(torch.ones(4096, device="cuda", dtype=torch.bfloat16), requires_grad=False)
    compiled = torch.compile(
        lambda x: torch.ops.kiln.act_and_mul(torch.ops.kiln.rms_norm(x, weight)), backend=counter, fullgraph=True
    )
    compiles = None
    for rows in (8, 16, 3, 100, 1024):
        x = torch.randn(rows, 4096, device="cuda", dtype=torch.bfloat16)
        assert compiled(x).shape == (rows, 2048)
        if rows == 16:
            compiles = kiln.torch.service().stats()["compiles"]
    assert counter.frame_count == 2  # a static graph, then a graph for any number of rows
    assert kiln.torch.service().stats()["compiles"] == compiles


def test_a_thread_of_its_own_launches():
    import threading

    x, w, got = torch.randn(4, 64, device="cuda"), torch.ones(64, device="cuda"), []
    expected = torch.ops.kiln.rms_norm(x, w)
    torch.cuda.synchronize()
    thread = threading.Thread(target=lambda: got.append(torch.ops.kiln.rms_norm(x, w)))
    thread.start(), thread.join()
    torch.cuda.synchronize()
    assert_same(got, [expected])


def test_a_kernel_that_is_not_ready_is_refused_in_a_capture():
    x, w = torch.randn(4, 1144, device="cuda"), torch.ones(1144, device="cuda")
    graph, caught = torch.cuda.CUDAGraph(), []
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kept = x + 1
        try:
            torch.ops.kiln.rms_norm(x, w)
        except kiln.NotReady as error:
            caught.append(error)
    assert caught
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(kept, x + 1)


def test_cupy_arrays_and_its_current_stream():
    cupy = pytest.importorskip("cupy")
    kernel = kiln.torch.service().open("rms_norm").get("f32", 64)
    x, w, out = cupy.ones((4, 64), cupy.float32), cupy.full(64, 2, cupy.float32), cupy.zeros((4, 64), cupy.float32)
    cupy.cuda.get_current_stream().synchronize()  # the arrays were made on this stream
    with cupy.cuda.Stream(non_blocking=True) as stream:
        kernel(out, x, w, 4, 64, 64, 1e-6)
        stream.synchronize()
    assert float(abs(out - 2).max()) < 1e-4


def test_a_stream_of_cuda_core():
    core = pytest.importorskip("cuda.core", reason="cuda.core")
    if not hasattr(core, "Device"):
        core = pytest.importorskip("cuda.core.experimental")
    kernel = kiln.torch.service().open("rms_norm").get("f32", 64)
    device = core.Device()
    device.set_current()
    stream = device.create_stream()
    x, w, out = torch.ones(4, 64, device="cuda"), torch.ones(64, device="cuda"), torch.zeros(4, 64, device="cuda")
    torch.cuda.synchronize()  # torch's stream made the tensors
    kernel(out, x, w, 4, 64, 64, 1e-6, stream=stream)
    stream.sync()
    assert torch.allclose(out, torch.ones_like(out), atol=1e-4)


def digest():
    """A hash of the results of every fifth case."""
    h = hashlib.sha256()
    for name, make in CASES[::5]:
        for each in bits(outcome(getattr(torch.ops.kiln, name), *made(make))):
            h.update(each.cpu().numpy().tobytes())
    return h.hexdigest()


def test_two_processes(tmp_path):
    """Two processes at once with an empty cache, then one from disk: the same bits, and each kernel is
    compiled once.
    """
    environment = os.environ | {"KILN_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    program = "import gpu_operators as g, kiln.torch as k; print(g.digest(), k.service().stats()['compiles'])"

    def start():
        return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)

    both = [p.communicate()[0].split() for p in [start(), start()]]
    again = start().communicate()[0].split()
    assert both[0][0] == both[1][0] == again[0] == digest()
    assert again[1] == "0"
    assert sum(int(p[1]) for p in both) == alone_compiles(tmp_path / "alone", environment, program), "each kernel once for both"


def alone_compiles(directory, environment, program):
    out = subprocess.run(
        [sys.executable, "-c", program], env=environment | {"KILN_CACHE_DIR": str(directory)}, capture_output=True, text=True
    )
    return int(out.stdout.split()[1])
