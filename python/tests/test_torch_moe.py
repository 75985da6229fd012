"""The operator fused_moe and kiln.torch.FusedMoE: numbers, launches, shapes, errors, and how experts are packed."""

import copy

import pytest

torch = pytest.importorskip("torch")

import kiln
import kiln.torch
import moe_cases
import operator_references as reference
import torch._dynamo.testing
from kiln import _kiln
from kiln.torch import FusedMoE, _four_bits, _fused_moe, _linear, _moe
from kiln.torch._fused_moe import Call
from moe_cases import different_ids, weight
from operator_cases import with_rows
from torch import nn
from torch._subclasses import FakeTensorMode
from torch_support import launching, on_host_memory  # noqa: F401

BF16, F16, F32, F64, E4M3 = torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn
E8M0 = torch.float8_e8m0fnu
fused_moe = torch.ops.kiln.fused_moe
CASES = moe_cases.named_cases()
EACH = pytest.mark.parametrize("case", CASES)
#: largest relative RMS error that rounding each step to a type explains
MOST = {F64: 1e-12, F32: 1e-5, F16: 2e-3, BF16: 1e-2}


def made(case, device="cpu"):
    torch.manual_seed(7)
    return CASES[case](device)


def error_of(got, expected):
    return ((got.double() - expected).square().mean() / expected.square().mean()).sqrt().item()


def expected_of(arguments, named):
    return reference.fused_moe(*arguments, **named)[0][0]


def of_type(dtype, arguments, named):
    """The arguments with all bf16 and f16 tensors but scales in another type."""

    def changed(value):
        return value.to(dtype) if torch.is_tensor(value) and value.dtype in (BF16, F16) else value

    return tuple(map(changed, arguments)), {n: v if n.endswith("_scale") else changed(v) for n, v in named.items()}


# ---- kernels on the host


def _typed(name, results, arguments, named):
    """Results of a reference in the types of the operator."""
    like = (BF16 if arguments[0].dtype == E4M3 else arguments[0].dtype) if not name.startswith("moe_route") else F32
    like = named.get("out_dtype") or like
    small = {"moe_gemm_fp8_quant": F32, "fp8_quant_group": F32, "moe_place_quant": F32, "topk_gate": F32}.get(name, like)
    typed = [r.to(small) if r.dtype == F64 else r for r in results]
    return typed[0] if len(typed) == 1 else tuple(typed)


@pytest.fixture
def computing(monkeypatch):
    """fused_moe's kernels compute on the host, and the layer takes the host for a GPU. Yields the kernels' calls."""
    calls = []
    for name in [
        "moe_route",
        "moe_route_quant",
        "topk_gate",
        "moe_align",
        "moe_gemm",
        "moe_gemm_fp8",
        "moe_gemm_fp8_quant",
        "moe_gemm_w4a16",
        "fp8_quant_group",
        "moe_place",
        "moe_place_quant",
        "moe_combine",
    ]:

        def call(*arguments, name=name, **named):
            calls.append((name, arguments, named))
            return _typed(name, getattr(reference, name)(*arguments, **named)[0], arguments, named)

        monkeypatch.setitem(_fused_moe._kernels, name, call)
    monkeypatch.setattr(_linear, "DEVICE", "cpu")
    with torch.no_grad():
        yield calls


@pytest.fixture
def on_host(launching, monkeypatch):
    """Lets the layer take the host for a GPU. The fake driver's kernels write nothing."""
    monkeypatch.setattr(_linear, "DEVICE", "cpu")
    with torch.no_grad():
        yield launching


def names_of(calls):
    return [name for name, _, _ in calls]


# ---- numbers


@EACH
def test_plain_torch_gives_what_a_loop_in_double_gives(case):
    fp8 = case.startswith("fp8")
    for dtype in (BF16, F32) if fp8 else MOST:
        arguments, named = of_type(dtype, *made(case))
        got = _moe.plain(Call(*arguments, **named))
        assert got.dtype == dtype and got.shape == arguments[0].shape
        # In plain torch neither x nor the activations are quantised to e4m3.
        assert error_of(got, expected_of(arguments, named)) < (8e-2 if fp8 else MOST[dtype])


def test_scores_that_vanish_weigh_alike():
    call = _call(logits=torch.full((3, _E), -200.0), k=4, score="sigmoid")
    assert (_moe.route(call)[0] == 0.25).all()


@EACH
def test_the_operator_gives_what_a_loop_in_double_gives(case, computing):
    arguments, named = made(case)
    got = fused_moe(*arguments, **named)
    assert got.dtype == arguments[0].dtype
    assert error_of(got, expected_of(arguments, named)) < 4e-3
    assert len(computing) == moe_cases.LAUNCHES[case]


@pytest.mark.parametrize("tokens", [1, 5, 33, 512, 513])
def test_any_number_of_tokens_is_routed(tokens, computing):
    arguments = moe_cases._logits("cpu", tokens=tokens)
    assert error_of(fused_moe(*arguments), expected_of(arguments, {})) < 4e-3
    assert names_of(computing)[0] == ("moe_route" if tokens <= 512 else "topk_gate")


@pytest.mark.parametrize(
    "ids",
    [
        [[3, 1]] * 40,  # all tokens have the same experts, and most experts have no tokens
        [[-1, 2], [2, -1], [-1, -1]],
        [[99, 0], [0, 1]],
    ],
)
def test_ids_may_be_uneven_or_name_no_expert(ids, computing):
    ids = torch.tensor(ids)
    x, (w13, w2) = torch.randn(len(ids), 128).to(BF16), moe_cases._weights("cpu", experts=4)
    arguments = (x, w13, w2, None, torch.rand(ids.shape), ids)
    expected = expected_of(arguments, {})
    assert error_of(fused_moe(*arguments), expected) < 4e-3
    assert error_of(_moe.plain(Call(*arguments)), expected) < 1e-2
    combine = computing[-1]
    assert combine[0] == "moe_combine" and (combine[1][2] < 0).sum() == ((ids < 0) | (ids > 3)).sum()


def test_the_parts_of_all_places_sum_to_the_whole(computing):
    (x, w13, w2, logits, _, _, k), _ = made("logits")
    whole, parts = expected_of((x, w13, w2, logits, None, None, k), {}), 0
    for first in range(0, 16, 2):  # two experts are here, fewer than the four of a token
        expert_map = torch.full((16,), -1, dtype=torch.int32)
        expert_map[first : first + 2] = torch.arange(2, dtype=torch.int32)
        here = slice(first, first + 2)
        parts = parts + fused_moe(x, w13[here], w2[here], logits, k=k, expert_map=expert_map).double()
    assert error_of(parts, whole) < 8e-3


def test_the_block_has_room_for_the_rows_of_nearly_every_expert():
    pairs_of_128_experts = {8: 8, 512: 8, 513: 16, 1248: 16, 1249: 32, 2881: 32, 2882: 64, 6384: 64, 6385: 128, 1 << 20: 128}
    for pairs, block in pairs_of_128_experts.items():
        assert _fused_moe.block_of(pairs, 128) == _fused_moe.block_of(pairs, 128, E4M3) == block
        assert _fused_moe.block_of(pairs, 128, torch.int32) == min(block, 64)


def test_x_may_be_rows_of_a_wider_tensor(computing):
    arguments, _ = made("logits")
    wide = torch.randn(6, 3 * 128 + 1).to(BF16)
    for x in (wide[:, 1:129], torch.randn(128, 6).to(BF16).t()):
        given = (x, *arguments[1:])
        assert error_of(fused_moe(*given), expected_of(given, {})) < 4e-3
        assert next(a[0] for name, a, _ in computing if name == "moe_gemm").data_ptr() % 16 == 0
        computing.clear()


def test_every_tensor_of_tokens_may_be_columns_of_a_wider_one(computing):
    def columns(value, last):
        return torch.cat([value.new_zeros(*value.shape[:-1], 3), value], -1)[..., 3:] if last else value

    for case in ("ids", "deepseek", "map"):
        arguments, named = made(case)
        expected, tokens = expected_of(arguments, named), arguments[0].shape[0]
        wider = [columns(v, torch.is_tensor(v) and v.dim() == 2 and v.shape[0] == tokens) for v in (*arguments, *named.values())]
        given, options = wider[: len(arguments)], dict(zip(named, wider[len(arguments) :]))
        assert not any(v.is_contiguous() for v in given if torch.is_tensor(v) and v.dim() == 2)
        assert error_of(fused_moe(*given, **options), expected) < 4e-3


def test_kernels_take_columns_of_wider_tensors(launching, driver):
    (x, w13, w2, _, weights, ids), _ = made("ids")
    given = (x, weights, ids, torch.zeros(6, 1).to(BF16), x, x, torch.zeros(6, 16).to(BF16))
    for before_them in (3, 8):
        wide = [torch.cat([v.new_zeros(6, before_them), v], 1)[:, before_them:] for v in given]
        x, weights, ids, gate, shared, residual, logits = wide
        for routing in ({"weights": weights, "ids": ids}, {"logits": logits, "k": 4}):
            before = driver.launches()
            fused_moe(x, w13, w2, **routing, shared=shared, shared_gate=gate, residual=residual)
            assert driver.launches() == before + 4


def test_the_second_product_loads_its_weights_early_after_the_first(computing):
    for case in ("logits", "fp8", "fp8-many"):
        arguments, named = made(case)
        computing.clear()
        fused_moe(*arguments, **named)
        up, down = (named for name, _, named in computing if name.startswith("moe_gemm"))
        assert down["early_b"] is True and "early_b" not in up


# ---- launches and tracing


@EACH
def test_launches_and_shapes(case, launching, driver):
    calls = driver.calls()
    with FakeTensorMode():
        arguments, named = made(case, "cuda")
        traced = fused_moe(*arguments, **named)
    assert driver.calls() == calls and not any(launching.stats().values()), "tracing touches neither driver nor cache"
    arguments, named = made(case)
    fused_moe(*arguments, **named)
    before = driver.launches()
    out = fused_moe(*arguments, **named)
    assert driver.launches() == before + moe_cases.LAUNCHES[case]
    assert traced.device.type == "cuda"
    assert (traced.shape, traced.stride(), traced.dtype) == (out.shape, out.stride(), out.dtype)


@pytest.mark.parametrize("tokens, launches", [(1, 4), (64, 4), (512, 4), (513, 6)])
def test_few_tokens_take_four_launches_in_fp8(tokens, launches, launching, driver):
    arguments, named = moe_cases._fp8("cpu", tokens=tokens)
    before = driver.launches()
    fused_moe(*arguments, **named)
    assert driver.launches() == before + launches


@EACH
def test_no_tokens_give_an_empty_result_without_a_launch(case, launching, driver):
    arguments, named = made(case)
    tokens = arguments[0].shape[0]

    def none_of(value):
        return value[:0].clone() if torch.is_tensor(value) and value.dim() and value.shape[0] == tokens else value

    before = driver.launches()
    out = fused_moe(*map(none_of, arguments), **{n: none_of(v) for n, v in named.items()})
    assert out.shape == (0, arguments[0].shape[1]) and driver.launches() == before


@EACH
def test_opcheck(case, launching):
    arguments, named = made(case)
    tests = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if case.startswith("fp8") or E8M0 in [getattr(v, "dtype", None) for v in named.values()]:
        tests.remove("test_schema")  # does arithmetic on its arguments, and torch has none for fp8 on the CPU
    _kiln.zero_outputs(True)  # the fake driver's kernels write nothing, and opcheck compares results
    try:
        torch.library.opcheck(fused_moe.default, arguments, named, test_utils=tests)
    finally:
        _kiln.zero_outputs(False)


@pytest.mark.parametrize("case", ["logits", "ids", "deepseek", "fp8"])
def test_a_compiled_call_is_one_graph_for_any_number_of_tokens(case, launching, driver):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda *a, **n: fused_moe(*a, **n), backend=counter, fullgraph=True)
    for times in (1, 2, 3, 5, 200):
        arguments, named = with_rows("fused_moe", *made(case), times)
        assert compiled(*arguments, **named).shape == arguments[0].shape
    assert counter.frame_count == 2  # static sizes, then any number of tokens


def test_an_exported_layer_calls_the_operator(on_host, driver):
    layer, (x, logits) = layer_of(), inputs_of(4)
    rows = torch.export.Dim("rows", min=2, max=1024)
    exported = torch.export.export(layer, (x, logits), dynamic_shapes=({0: rows}, {0: rows}))
    assert str(exported.graph).count("kiln.fused_moe") == 1
    x, logits = inputs_of(600)
    before = driver.launches()
    assert exported.module()(x, logits).shape == (600, 128)
    assert driver.launches() == before + 5


# ---- errors


@pytest.mark.parametrize(
    "rows, pairs, text", [(16, 20, "it has 16 rows, expected 24"), (24, -1, "pairs = -1 must not be negative")]
)
def test_a_product_refuses_rows_at_places_that_are_not_one_for_each_place(rows, pairs, text, launching, driver):
    """Its kernel would read, and write, beyond them."""
    blocks = torch.zeros(3, dtype=torch.int32), torch.arange(24, dtype=torch.int32), torch.full((1,), 24, dtype=torch.int32)
    wide, codes = torch.zeros(rows, 128, dtype=BF16), torch.zeros(rows, 128, dtype=torch.uint8).view(E4M3)
    of_fp8 = torch.zeros(4, 128, 128, dtype=torch.uint8).view(E4M3), torch.ones(1, rows).t(), torch.ones(4, 1, 1)
    before = driver.launches()
    for name, arguments in (
        ("moe_gemm", (wide, torch.zeros(4, 128, 128, dtype=BF16))),
        ("moe_gemm_fp8", (codes, *of_fp8)),
        ("moe_gemm_fp8_quant", (codes, *of_fp8)),
    ):
        with pytest.raises(kiln.Error, match=text):
            getattr(torch.ops.kiln, name)(*arguments, *blocks, 1, 8, pairs=pairs)
    assert driver.launches() == before


def test_scales_at_places_are_read_sixteen_bytes_at_a_time(launching, driver):
    """They must be aligned for that. The step between the scales of a row has no part where a row has one scale."""
    blocks = torch.zeros(3, dtype=torch.int32), torch.arange(24, dtype=torch.int32), torch.full((1,), 24, dtype=torch.int32)

    def product(scale):
        width = 128 * scale.shape[1]
        a, b = (torch.zeros(*shape, width, dtype=torch.uint8).view(E4M3) for shape in ((24,), (4, 128)))
        return torch.ops.kiln.moe_gemm_fp8(a, b, scale, torch.ones(4, 1, scale.shape[1]), *blocks, 1, 8, pairs=20)

    before = driver.launches()
    with pytest.raises(kiln.Error, match="'scale_a' = 0x[0-9a-f]+ is not aligned to 16 bytes"):
        product(torch.ones(49)[1:].view(2, 24).t())
    with pytest.raises(kiln.Error, match="step_scale_a = 26 a multiple of 4"):
        product(torch.ones(2, 26)[:, :24].t())
    assert driver.launches() == before
    assert product(torch.ones(2, 24).t()).shape == product(torch.ones(24, 1)).shape == (20, 128)
    assert driver.launches() == before + 2


def _call(**changes):
    arguments, named = made("logits")
    return Call(*arguments, **named)._replace(**changes)


_E, _H, _I = moe_cases.EXPERTS, moe_cases.HIDDEN, moe_cases.INNER


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"x": torch.zeros(2, 6, _H)}, r"x is \[2, 6, 128\], expected \[tokens, H\]"),
        ({"w13": torch.zeros(2 * _I, _H)}, r"w13 is \[128, 128\], expected \[experts, rows, H\]"),
        ({"w13": torch.zeros(_E, 2 * _I, 64).to(BF16)}, r"w13 is \[16, 128, 64\], expected \[16, 128, 128\]"),
        ({"w13": torch.zeros(_E, 127, _H).to(BF16)}, "w13 has 127 rows and gated = True, expected an even number"),
        ({"w2": torch.zeros(_E, _H, 32).to(BF16)}, r"w2 is \[16, 128, 32\], expected \[16, 128, 64\]"),
        ({"w2": torch.zeros(_E, _H, _I)}, "w2 is torch.float32, expected torch.bfloat16"),
        ({"bias13": torch.zeros(_E, _I).to(BF16)}, r"bias13 is \[16, 64\], expected \[16, 128\]"),
        ({"bias2": torch.zeros(_E, _H)}, "bias2 is torch.float32, expected torch.bfloat16"),
        ({"logits": None}, "the routing is given by nothing, expected logits, or weights and ids"),
        ({"ids": torch.zeros(6, 4).int()}, "the routing is given by logits, ids, expected logits, or weights and ids"),
        ({"logits": torch.zeros(6, 8)}, r"logits is \[6, 8\], expected \[6, 16\]"),
        ({"logits": torch.zeros(5, _E)}, r"logits is \[5, 16\], expected \[6, 16\]"),
        ({"k": 0}, "k = 0, expected 1 to 16, the number of experts that a token may choose from"),
        ({"k": 17}, "k = 17, expected 1 to 16"),
        ({"k": 9, "groups": 4, "topk_groups": 2}, "k = 9, expected 1 to 8"),
        ({"groups": 3}, "groups = 3 and topk_groups = 0, expected groups that divide 16 experts"),
        ({"groups": 2, "topk_groups": 3}, "groups = 2 and topk_groups = 3, expected groups that divide 16 experts"),
        (
            {"logits": None, "ids": torch.zeros(6, 2).int(), "weights": torch.zeros(6, 2)},
            r"ids is \[6, 2\] and k = 4, expected \[6, k\]",
        ),
        (
            {"logits": None, "ids": torch.zeros(6, 4), "weights": torch.zeros(6, 4)},
            "ids is torch.float32, expected torch.int32 or torch.int64",
        ),
        (
            {"logits": None, "ids": torch.zeros(6, 4).int(), "weights": torch.zeros(6, 4).to(BF16)},
            "weights is torch.bfloat16, expected torch.float32",
        ),
        ({"logits": None, "ids": torch.zeros(6, 4).int(), "weights": torch.zeros(6, 3)}, r"weights is \[6, 3\], expected \[6, 4\]"),
        ({"score": "relu"}, "score = 'relu', expected one of softmax, sigmoid"),
        ({"act": "tanh"}, "act = 'tanh', expected one of none, relu"),
        ({"order": "interleaved"}, "order = 'interleaved', expected one of gate_first, up_first"),
        ({"act": "swigluoai", "gated": False}, "act = 'swigluoai' and gated = False"),
        ({"correction_bias": torch.zeros(8)}, r"correction_bias is \[8\], expected \[16\]"),
        ({"expert_map": torch.zeros(16)}, "expert_map is torch.float32, expected torch.int32"),
        ({"expert_map": torch.zeros(4, 4).int()}, r"expert_map is \[4, 4\], expected \[experts\]"),
        ({"expert_map": torch.zeros(8).int()}, r"logits is \[6, 16\], expected \[6, 8\]"),
        ({"shared": torch.zeros(5, _H).to(BF16)}, r"shared is \[5, 128\], expected \[6, 128\]"),
        ({"residual": torch.zeros(6, _H)}, "residual is torch.float32, expected torch.bfloat16"),
        ({"shared_gate": torch.zeros(6).to(BF16)}, "shared_gate is given without shared"),
        (
            {"shared": torch.zeros(6, _H).to(BF16), "shared_gate": torch.zeros(6, 2).to(BF16)},
            r"shared_gate is \[6, 2\], expected \[6, 1\]",
        ),
        ({"w13_scale": torch.zeros(1)}, "w13 is torch.bfloat16 with w13_scale, expected both scales for torch.float8_e4m3fn"),
        ({"w13": torch.zeros(_E, 128, _H).to(E4M3)}, "w2 is torch.bfloat16, expected torch.float8_e4m3fn"),
        (
            {"w13": torch.zeros(_E, 128, _H).to(E4M3), "w2": torch.zeros(_E, _H, _I).to(E4M3)},
            "w13 is torch.float8_e4m3fn with no scales",
        ),
        (
            {
                "w13": torch.zeros(_E, 128, _H).to(E4M3),
                "w2": torch.zeros(_E, _H, _I).to(E4M3),
                "w13_scale": torch.zeros(_E, 1, 2),
                "w2_scale": torch.zeros(_E, 1, 1),
            },
            r"w13_scale is \[16, 1, 2\], expected \[16, 1, 1\]",
        ),
    ],
)
def test_wrong_arguments_are_refused_by_name(changes, text, launching):
    call = _call(**changes)
    for way in (fused_moe, lambda *a: _moe.plain(Call(*a))):
        with pytest.raises(kiln.Error, match=text) as raised:
            way(*call)
        assert raised.value.code == kiln.Code.invalid_argument


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda w, v: FusedMoE(w, v, 9), "k = 9, expected 1 to 4"),
        (lambda w, v: FusedMoE(w, v[:, :, :32], 2), r"w2 is \[4, 128, 32\], expected \[4, 128, 64\]"),
        (
            lambda w, v: FusedMoE(w, v, 2, local=range(4), experts=2),
            r"local = range\(0, 4\) and experts = 2, expected a range of 4",
        ),
        (
            lambda w, v: FusedMoE(w, v, 2, local=range(3), experts=8),
            r"local = range\(0, 3\) and experts = 8, expected a range of 4",
        ),
        (
            lambda w, v: FusedMoE(w, v, 2, local=range(4), experts=8, expert_map=torch.zeros(8).int()),
            "expert_map and local are given, expected one of them",
        ),
        (lambda w, v: FusedMoE.of([], 2), "no expert is given"),
        (lambda w, v: FusedMoE.of([nn.Linear(8, 8)], 2), "an expert is Linear, expected a module with gate_proj"),
        (lambda w, v: FusedMoE.of([Expert(), Expert(inner=32)], 2), r"gate_proj of expert 1 is \[32, 128\], expected the shape"),
        (lambda w, v: FusedMoE.of([Expert(), Expert(bias=True)], 2), "some layers of the experts have a bias and some have none"),
        (lambda w, v: FusedMoE(w, v, 2)(w[0]), "the routing is given by nothing"),
    ],
)
def test_wrong_layers_are_refused_by_name(make, text):
    with pytest.raises(kiln.Error, match=text) as raised:
        make(*moe_cases._weights("cpu", experts=4))
    assert raised.value.code == kiln.Code.invalid_argument


# ---- the layer


class Expert(nn.Module):
    def __init__(self, names=("gate_proj", "up_proj", "down_proj"), inner=_I, bias=False, dtype=BF16):
        super().__init__()
        for name, (inputs, outputs) in zip(names, ((_H, inner), (_H, inner), (inner, _H))):
            setattr(self, name, nn.Linear(inputs, outputs, bias=bias, dtype=dtype))


def layer_of(dtype=BF16, k=4, **options):
    torch.manual_seed(3)
    return FusedMoE(*moe_cases._weights("cpu", dtype=dtype), k, **options)


def inputs_of(*leading, dtype=BF16):
    torch.manual_seed(4)
    return torch.randn(*leading, _H).to(dtype), torch.randn(*leading, _E).to(dtype)


@pytest.mark.parametrize("leading", [(), (5,), (2, 3), (0,)])
def test_a_call_flattens_rows(leading, computing):
    layer, (x, logits) = layer_of(), inputs_of(*leading)
    assert layer.explain(x, logits) == layer.explain() == ""
    got = layer(x, logits, x)
    assert got.shape == x.shape and got.dtype == BF16
    if got.numel():
        rows = x.reshape(-1, _H)
        expected = expected_of((rows, layer.w13, layer.w2, logits.reshape(-1, _E), None, None, 4), {"residual": rows})
        assert error_of(got.view(-1, _H), expected) < 4e-3


@pytest.mark.parametrize("names", [("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")])
@pytest.mark.parametrize("bias", [False, True])
def test_a_list_of_experts_is_packed(names, bias, computing):
    experts = nn.ModuleList(Expert(names, bias=bias) for _ in range(4))
    layer, x, ids = FusedMoE.of(experts, k=2), torch.randn(3, _H).to(BF16), different_ids("cpu", 3, 2, 4)
    weights, expected = torch.rand(3, 2), torch.zeros(3, _H, dtype=F64)
    for token in range(3):
        for expert, factor in zip(ids[token], weights[token]):
            gate, up, down = (getattr(experts[expert], name) for name in names)
            expected[token] += (down(nn.functional.silu(gate(x[token])) * up(x[token])) * factor).double()
    assert error_of(layer(x, weights=weights, ids=ids), expected) < 1e-2
    assert not layer.w13.requires_grad and (layer.bias13 is None) == (not bias)


class Packed(nn.Module):
    """All experts in one module, as gpt-oss has them."""

    is_transposed, is_concatenated = True, False

    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Parameter(weight("cpu", 4, _H, 2 * _I))
        self.gate_up_proj_bias = nn.Parameter(torch.randn(4, 2 * _I).to(BF16))
        self.down_proj = nn.Parameter(weight("cpu", 4, _I, _H))
        self.down_proj_bias = nn.Parameter(torch.randn(4, _H).to(BF16))

    def forward(self, x, expert):
        gate_up = x @ self.gate_up_proj[expert] + self.gate_up_proj_bias[expert]
        gate, up = gate_up[..., ::2].clamp(max=7.0), gate_up[..., 1::2].clamp(-7.0, 7.0)
        return ((up + 1) * gate * torch.sigmoid(gate * 1.702)) @ self.down_proj[expert] + self.down_proj_bias[expert]


def test_interleaved_and_transposed_experts_are_laid_out_anew(computing):
    packed = Packed()
    layer, x = FusedMoE.of(packed, k=1, act="swigluoai"), torch.randn(4, _H).to(BF16)
    ids = torch.tensor([[2], [0], [3], [2]])
    expected = torch.stack([packed(row, int(expert)) for row, expert in zip(x, ids)])
    assert error_of(layer(x, weights=torch.ones(4, 1), ids=ids), expected.double()) < 1e-2


def test_a_module_with_the_operators_layout_is_shared():
    source = nn.Module()
    w13, w2 = moe_cases._weights("cpu")
    source.gate_up_proj, source.down_proj = nn.Parameter(w13), nn.Parameter(w2)
    layer = FusedMoE.of(source, k=4)
    assert layer.w13 is source.gate_up_proj and layer.w2 is source.down_proj and layer.bias13 is None


def test_shared_experts_and_their_gate(computing):
    shared, gate = nn.Linear(_H, _H, bias=False, dtype=BF16), nn.Linear(_H, 1, bias=False, dtype=BF16)
    x, logits = inputs_of(2, 3)
    alone, layer = layer_of(), layer_of(shared=shared, shared_gate=gate)
    expected = alone(x, logits).double() + (shared(x).double() * torch.sigmoid(gate(x).double()))
    assert error_of(layer(x, logits), expected) < 5e-3


def test_a_layer_of_a_range_of_experts_gives_their_part(computing):
    w13, w2 = moe_cases._weights("cpu")
    x, logits = inputs_of(5)
    parts = [FusedMoE(w13[a : a + 4], w2[a : a + 4], 4, local=range(a, a + 4), experts=16) for a in range(0, 16, 4)]
    assert parts[1].expert_map.tolist() == [-1] * 4 + [0, 1, 2, 3] + [-1] * 8
    whole = expected_of((x, w13, w2, logits, None, None, 4), {})
    assert error_of(sum(part(x, logits).double() for part in parts), whole) < 8e-3
    assert "experts=4 of 16" in repr(parts[0])


def test_fp8_packs_weights_in_squares_with_scales(computing):
    w13, w2 = weight("cpu", 4, 512, 256), weight("cpu", 4, 256, 256)
    w13[0, 3, 5] = 9.0  # the largest number of its square
    layer = FusedMoE(w13, w2, 2, fp8=True)
    assert layer.w13.dtype == layer.w2.dtype == E4M3 and layer.w13_scale.shape == (4, 4, 2) and layer.w2_scale.shape == (4, 2, 2)
    assert layer.w13_scale[0, 0, 0] == torch.tensor(9.0) / 448 and layer.w13[0, 3, 5].float() == 448
    back = reference._unquantized(layer.w13, layer.w13_scale, True)
    assert error_of(back, w13.double()) < 4e-2
    x, logits = torch.randn(5, 256).to(BF16), torch.randn(5, 4)
    assert layer.explain(x, logits) == ""
    got, exact = layer(x, logits), expected_of((x, w13, w2, logits, None, None, 2), {})
    assert error_of(got, exact) < 8e-2
    named = {"w13_scale": layer.w13_scale, "w2_scale": layer.w2_scale}
    assert error_of(got, expected_of((x, layer.w13, layer.w2, logits, None, None, 2), named)) < 4e-3
    assert names_of(computing) == ["moe_route_quant", "moe_gemm_fp8_quant", "moe_gemm_fp8", "moe_combine"]


def test_packed_codes_come_back():
    codes = torch.randint(0, 16, (2, 48, 200), dtype=torch.uint8)
    for group in (32, 64, 128):
        scales, zeros = (torch.rand(2, 48, -(-200 // group)) + 0.5).to(BF16), torch.randint(0, 16, (2, 48, -(-200 // group)))
        wide = scales.float().repeat_interleave(group, 2)[:, :, :200]
        assert torch.equal(_four_bits.unpacked(kiln.torch.pack_int4(codes, scales), 200), (codes.float() - 8) * wide)
        packed = kiln.torch.pack_int4(codes, scales, zeros.to(torch.uint8))
        offset = zeros.repeat_interleave(group, 2)[:, :, :200]
        assert torch.equal(_four_bits.unpacked(packed, 200), (codes.float() - offset) * wide)
    exponents = torch.randint(110, 130, (2, 48, 7), dtype=torch.uint8)
    values = torch.tensor([*_four_bits.E2M1, *(-x for x in _four_bits.E2M1)])[codes.long()]
    wide = torch.exp2(exponents.float() - 127).repeat_interleave(32, 2)[:, :, :200]
    assert torch.equal(_four_bits.unpacked(kiln.torch.pack_mxfp4(codes, exponents), 200), values * wide)


def test_mxfp4_of_gpt_oss_has_two_codes_in_a_byte():
    codes, scales = torch.randint(0, 16, (2, 32, 128), dtype=torch.uint8), torch.full((2, 32, 4), 127, dtype=torch.uint8)
    blocks = (codes[..., ::2] | codes[..., 1::2] << 4).view(2, 32, 4, 16)
    assert torch.equal(kiln.torch.pack_mxfp4(blocks, scales).codes, kiln.torch.pack_mxfp4(codes, scales).codes)


def test_a_weight_is_quantized_to_the_nearest_codes():
    w = weight("cpu", 2, 32, 200)
    w[0, 0, :32] = 0
    for packed, most in ((kiln.torch.quantize_int4(w, 32), 0.1), (kiln.torch.quantize_mxfp4(w), 0.15)):
        assert error_of(_four_bits.unpacked(packed, 200), w.double()) < most
        assert not _four_bits.unpacked(packed, 200)[0, 0, :32].any()
    exact = torch.tensor([*_four_bits.E2M1, *(-x for x in _four_bits.E2M1)]).repeat(2).expand(1, 16, 32) * 0.25
    assert torch.equal(_four_bits.unpacked(kiln.torch.quantize_mxfp4(exact), 32), exact)


@pytest.mark.parametrize("quantize", [kiln.torch.quantize_mxfp4, kiln.torch.quantize_int4])
def test_a_layer_takes_packed_weights(quantize, computing):
    w13, w2 = quantize(weight("cpu", 4, 256, 192)), quantize(weight("cpu", 4, 192, 128))
    layer = FusedMoE(w13, w2, 2)
    assert layer.in_features == 192 and "hidden=192, inner=128" in repr(layer)
    x, logits = torch.randn(5, 192).to(BF16), torch.randn(5, 4)
    assert layer.explain(x, logits) == ""
    wide = _four_bits.unpacked(w13, 192), _four_bits.unpacked(w2, 128)
    expected = expected_of((x, *wide, logits, None, None, 2), {})
    assert error_of(layer(x, logits), expected) < 4e-3
    assert names_of(computing) == ["moe_route", "moe_gemm_w4a16", "moe_gemm_w4a16", "moe_combine"]
    again = FusedMoE(w13, w2, 2)
    again.load_state_dict(layer.state_dict())
    moved = again.to(F16)
    assert moved.w13.dtype == torch.int32 and moved.w13_scale.dtype == w13.scales.dtype
    assert torch.equal(moved.w13_scale.view(torch.uint8), w13.scales.view(torch.uint8))


def test_unfit_weights_of_4_bits_are_refused():
    w13, w2 = kiln.torch.quantize_int4(weight("cpu", 4, 256, 192)), kiln.torch.quantize_mxfp4(weight("cpu", 4, 192, 128))
    with pytest.raises(kiln.Error, match="expected both or none, and without fp8"):
        FusedMoE(w13, weight("cpu", 4, 192, 128), 2)
    with pytest.raises(kiln.Error, match=r"w2 is \[4, 12, 2, 128\], expected \[4, 12, 3, 128\]"):
        FusedMoE(kiln.torch.quantize_int4(weight("cpu", 4, 272, 192)), w2, 2)
    with pytest.raises(kiln.Error, match="w13_scale is not given"):
        FusedMoE(w13._replace(scales=None), w2, 2)
    with pytest.raises(kiln.Error, match=r"w2_scale is \[4, 12, 3, 16\], expected \[4, 12, 4, 16\]"):
        FusedMoE(w13, w2._replace(scales=w2.scales[:, :, :3]), 2)
    with pytest.raises(kiln.Error, match="w2_zero is given with scales in torch.float8_e8m0fnu"):
        FusedMoE(w13, w2._replace(zeros=torch.zeros(4, 12, 4, 16, dtype=torch.uint8)), 2)
    with pytest.raises(kiln.Error, match="codes is .* rows in multiples of 16"):
        kiln.torch.quantize_int4(weight("cpu", 1, 40, 64))
    with pytest.raises(kiln.Error, match=r"scales is \[1, 16, 3\], expected \[1, 16\] and one of 2, 1, 1 groups"):
        kiln.torch.pack_int4(torch.zeros(1, 16, 64, dtype=torch.uint8), torch.ones(1, 16, 3, dtype=BF16))
    with pytest.raises(kiln.Error, match="group = 16, expected one of 32, 64, 128"):
        kiln.torch.quantize_int4(weight("cpu", 1, 16, 64), 16)
    x, logits = torch.randn(3, 192).to(BF16), torch.randn(3, 4)
    with pytest.raises(kiln.Error, match="w13_zero or w2_zero is given"):
        wide = weight("cpu", 4, 256, 192), weight("cpu", 4, 192, 128)
        fused_moe(x, *wide, logits, k=2, w13_zero=torch.zeros(4, 16, 2, 16, dtype=torch.uint8))


def test_quantized_squares_need_not_be_whole():
    codes, scales = _moe.quantize(w := weight("cpu", 2, 200, 72))
    assert codes.shape == w.shape and scales.shape == (2, 2, 1)
    assert error_of(reference._unquantized(codes, scales, True), w.double()) < 4e-2
    zeros, scales = _moe.quantize(torch.zeros(1, 128, 128))
    assert not zeros.float().any() and scales.isfinite().all()


def test_explain_says_why_a_call_runs_in_plain_torch(on_host, driver):
    assert layer_of().explain() == ""
    assert "torch.float32, expected torch.float16, torch.bfloat16 or torch.float8_e4m3fn" in layer_of(F32).explain()
    w13, w2 = weight("cpu", 4, 40, 36), weight("cpu", 4, 36, 20)
    odd = FusedMoE(w13, w2, 2)
    assert odd.explain() == "the experts have 36 inputs and 20 inner elements, expected multiples of 8"
    small = FusedMoE(*moe_cases._weights("cpu"), 4, fp8=True)
    assert small.explain() == "the experts have 128 inputs and 64 inner elements, expected multiples of 128"
    transposed = nn.Parameter(weight("cpu", 16, _H, 2 * _I).transpose(1, 2), requires_grad=False)
    assert "w13 has strides [16384, 1, 128]" in FusedMoE(transposed, layer_of().w2, 4).explain()
    wide = FusedMoE(weight("cpu", 520, 16, 8), weight("cpu", 520, 8, 8), 2)
    assert wide.explain() == "a token has 2 of 520 experts, expected at most 32 of 512"
    flat = torch.zeros(1 + layer_of().w13.numel(), dtype=BF16)
    shifted = nn.Parameter(flat[1:].view(layer_of().w13.shape), requires_grad=False)
    assert FusedMoE(shifted, layer_of().w2, 4).explain() == "w13 begins at an address that is no multiple of 16 bytes"
    x, logits = inputs_of(3)
    assert (
        layer_of().explain(x, logits.double()) == "logits is torch.float64, expected torch.float32, torch.float16 or torch.bfloat16"
    )
    many = FusedMoE(weight("cpu", 128, 16, 8), weight("cpu", 128, 8, 8), 2, groups=64)
    assert many.explain(torch.zeros(1, 8, dtype=BF16), torch.zeros(1, 128)) == "groups = 64, expected at most 32"
    before = driver.launches()
    for layer in (odd, wide):
        x, logits = torch.randn(3, layer.in_features).to(BF16), torch.randn(3, len(layer.w13))
        expected = expected_of((x, layer.w13, layer.w2, logits, None, None, 2), {})
        assert error_of(layer(x, logits), expected) < 1e-2
    assert driver.launches() == before


def test_on_another_device_plain_torch_runs(launching, driver):
    before, layer = driver.launches(), layer_of()
    assert layer.explain() == "the weights are on cpu, expected cuda"
    layer(*inputs_of(3))
    assert driver.launches() == before


def test_gradients_run_in_plain_torch(on_host, driver):
    before = driver.launches()
    w13, w2 = (nn.Parameter(w.float()) for w in moe_cases._weights("cpu"))
    layer, (x, logits) = FusedMoE(w13, w2, 4), inputs_of(3, dtype=F32)
    half = layer_of()
    with torch.enable_grad():
        assert "gradients are enabled and required" in half.explain(x.to(BF16).requires_grad_())
        layer(x, logits.requires_grad_()).square().sum().backward()
        assert all(t.grad is not None and t.grad.abs().sum() > 0 for t in (w13, w2, logits))
        assert half.explain(x.to(BF16)) == ""
    assert driver.launches() == before


def test_state_and_copies_are_a_modules(computing):
    layer, (x, logits) = layer_of(correction_bias=torch.randn(_E), score="sigmoid"), inputs_of(3)
    other = layer_of(correction_bias=torch.zeros(_E), score="sigmoid")
    assert list(layer.state_dict()) == ["w13", "w2", "correction_bias"]
    other.load_state_dict({name: value * 2 for name, value in layer.state_dict().items()})
    assert error_of(other.w13, layer.w13.double() * 2) == 0
    assert torch.equal(copy.deepcopy(layer)(x, logits), layer(x, logits))
    layer.to(F16)
    assert layer.w13.dtype == F16 and layer.correction_bias.dtype == F32


def test_codes_and_scales_keep_their_types():
    layer = FusedMoE(weight("cpu", 4, 512, 256), weight("cpu", 4, 256, 256), 2, bias2=torch.randn(4, 256).to(BF16), fp8=True)
    codes, scales = layer.w13.detach().clone(), layer.w13_scale.clone()
    layer.to(F16)
    assert layer.bias2.dtype == F16 and torch.equal(layer.w13.view(torch.uint8), codes.view(torch.uint8))
    assert torch.equal(layer.w13_scale, scales)
    assert list(layer.state_dict()) == ["w13", "w2", "bias2", "w13_scale", "w2_scale"]
    again = copy.deepcopy(layer)
    again.load_state_dict(layer.state_dict())
    x, logits = torch.randn(3, 256).to(F16), torch.randn(3, 4)
    assert torch.equal(again(x, logits), layer(x, logits))


@pytest.mark.parametrize("options", [{}, {"correction_bias": torch.zeros(_E), "groups": 4, "topk_groups": 2, "score": "sigmoid"}])
def test_a_compiled_layer_in_plain_torch_is_one_graph(options):
    torch._dynamo.reset()
    layer, (x, logits) = layer_of(F32, **options), inputs_of(2, 5, dtype=F32)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert error_of(compiled(x, logits), layer(x, logits).double()) < 1e-5


def test_a_compiled_layer_is_one_graph_for_any_number_of_tokens(on_host, driver):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer_of(), backend=counter, fullgraph=True)
    for tokens, launches in ((4, 4), (7, 4), (200, 4), (300, 5)):
        before = driver.launches()
        x, logits = inputs_of(2, tokens)
        assert compiled(x, logits, x).shape == x.shape
        assert driver.launches() == before + launches
    assert counter.frame_count == 2


def test_the_arrays_of_another_block_are_refused(on_host):
    a, b = torch.zeros(2, 16, dtype=BF16), torch.zeros(2, 8, 16, dtype=BF16)
    experts, places, used = torch.zeros(2, dtype=torch.int32), torch.zeros(32, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    torch.ops.kiln.moe_gemm(a, b, experts, places, used, block=16)
    with pytest.raises(kiln.Error, match="sorted_token_ids"):
        torch.ops.kiln.moe_gemm(a, b, experts, places, used, block=8)
