"""kiln.torch.Linear: the same numbers on the operator and in plain torch, its errors, and how it packs layers."""

import copy

import pytest

torch = pytest.importorskip("torch")

import kiln
import kiln.torch
import operator_references
import torch._dynamo.testing
from kiln.torch import Linear, _linear
from torch import nn
from torch_support import launching, on_host_memory  # noqa: F401

BF16, F16 = torch.bfloat16, torch.float16
#: options of a layer, and whether its calls have a residual
EPILOGUES = [
    ({}, False),
    ({"bias": True}, False),
    ({"act": "relu"}, True),
    ({"act": "relu_squared"}, False),
    ({"act": "silu", "bias": True}, True),
    ({"act": "gelu"}, False),
    ({"act": "gelu_tanh"}, False),
    ({"act": "sigmoid", "bias": True}, False),
    ({"act": "tanh"}, True),
    ({"act": "log_decay"}, False),
    ({"gated": True}, False),
    ({"act": "silu", "gated": True, "bias": True}, True),
]


def layer_of(dtype=BF16, rows=32, columns=64, bias=False, **options):
    torch.manual_seed(3)
    weight = torch.randn(rows, columns).to(dtype)
    return Linear(weight, torch.randn(rows).to(dtype) if bias else None, **options)


def inputs_of(layer, *leading, residual=False, dtype=BF16):
    torch.manual_seed(4)
    x = torch.randn(*leading, layer.in_features).to(dtype)
    return (x, torch.randn(*leading, layer.out_features).to(dtype)) if residual else (x,)


def expected_of(layer, x, residual=None):
    weight = layer.weight.detach()
    return operator_references.gemm(
        x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0),
        weight,
        layer.bias,
        None if residual is None else residual.reshape(-1, residual.shape[-1]),
        layer.act,
        layer.gated,
    )[0][0].view(*x.shape[:-1], -1)


def error_of(got, expected):
    return ((got.double() - expected).square().mean() / expected.square().mean()).sqrt().item()


@pytest.fixture
def on_host(launching, monkeypatch):
    """Lets the layer take the host for a GPU. The fake driver's kernels write nothing."""
    monkeypatch.setattr(_linear, "DEVICE", "cpu")
    with torch.no_grad():
        yield launching


@pytest.fixture
def computing(monkeypatch):
    """The layer takes the host for a GPU, and its operator computes there. Yields the calls' arguments."""
    calls = []

    def gemm(*arguments):
        calls.append(arguments)
        return operator_references.gemm(*arguments)[0][0].to(arguments[0].dtype)

    monkeypatch.setattr(_linear, "DEVICE", "cpu")
    monkeypatch.setattr(_linear, "_gemm", gemm)
    with torch.no_grad():
        yield calls


# ---- numbers


@pytest.mark.parametrize("options, residual", EPILOGUES)
def test_plain_torch_gives_the_epilogue_of_the_operator(options, residual):
    for dtype, most in ((torch.float32, 1e-5), (torch.float64, 1e-12), (BF16, 1e-2), (F16, 1e-3)):
        layer = layer_of(dtype, **options)
        given = inputs_of(layer, 2, 3, residual=residual, dtype=dtype)
        assert layer.explain(*given)
        assert error_of(layer(*given), expected_of(layer, *given)) < most


@pytest.mark.parametrize("leading", [(), (5,), (2, 3), (2, 1, 3), (0,), (2, 0)])
@pytest.mark.parametrize("options, residual", EPILOGUES)
def test_a_call_gives_the_operator_flattened_rows_and_its_epilogue(options, residual, leading, computing):
    layer = layer_of(**options)
    given = inputs_of(layer, *leading, residual=residual)
    assert layer.explain(*given) == ""
    got = layer(*given)
    assert got.shape == (*leading, layer.out_features) and got.dtype == BF16
    rows, weight, bias, added, act, gated, early = computing[-1]
    assert rows.dim() == 2 and weight is layer.weight and bias is layer.bias and (added is None) == (not residual)
    assert (act, gated, early) == (options.get("act", "none"), options.get("gated", False), True)
    if got.numel():
        assert error_of(got, expected_of(layer, *given)) < 4e-3


@pytest.mark.parametrize("options, residual", EPILOGUES[::4])
def test_a_call_is_one_launch(options, residual, on_host, driver):
    layer = layer_of(**options)
    layer(*inputs_of(layer, 2, 3, residual=residual))
    before = driver.launches()
    out = layer(*inputs_of(layer, 2, 3, residual=residual))
    assert driver.launches() == before + 1 and out.shape == (2, 3, layer.out_features)


def test_rows_that_a_tensor_map_cannot_describe_are_copied(on_host, computing):
    layer = layer_of()
    wide = torch.randn(6, 3 * 64 + 1).to(BF16)
    whole = torch.randn(6 * 64 + 1).to(BF16)
    for x in (wide[:, :64], wide[:, 1:65], whole[1:].view(6, 64), torch.randn(64, 6).to(BF16).t(), wide[:1, 3:67]):
        assert error_of(layer(x), expected_of(layer, x)) < 4e-3
        rows = computing[-1][0]
        assert rows.is_contiguous() and rows.data_ptr() % 16 == 0
    x = torch.randn(6, 128).to(BF16)[:, 64:]
    layer(x)
    assert computing[-1][0].data_ptr() == x.data_ptr(), "aligned rows of a wider tensor are read where they lie"


def test_early_is_the_callers_word(computing):
    layer = layer_of(early=False)
    layer(*inputs_of(layer, 2))
    assert computing[-1][-1] is False
    layer.early = True
    layer(*inputs_of(layer, 2))
    assert computing[-1][-1] is True


# ---- what runs in plain torch


def test_explain_says_why_a_call_runs_in_plain_torch(on_host, driver):
    assert layer_of().explain() == ""
    assert "torch.float32, expected torch.float16 or torch.bfloat16" in layer_of(torch.float32).explain()
    assert layer_of(rows=20).explain() == "the layer has 64 inputs and 20 outputs, expected multiples of 8"
    assert layer_of(columns=36).explain() == "the layer has 36 inputs and 32 outputs, expected multiples of 8"
    assert "64 inputs and 12 outputs" in layer_of(rows=24, gated=True).explain()
    assert "strides [1, 32]" in Linear(nn.Parameter(torch.randn(64, 32).to(BF16).t(), requires_grad=False)).explain()
    before = driver.launches()
    for layer in (layer_of(rows=20), layer_of(columns=36), layer_of(rows=24, gated=True)):
        given = inputs_of(layer, 3)
        assert error_of(layer(*given), expected_of(layer, *given)) < 1e-2
    assert driver.launches() == before


def test_on_another_device_plain_torch_runs(launching, driver):
    before = driver.launches()
    layer = layer_of()
    assert layer.explain() == "the weight is on cpu, expected cuda"
    layer(*inputs_of(layer, 3))
    assert driver.launches() == before


def test_gradients_run_in_plain_torch(on_host, driver):
    before = driver.launches()
    source = nn.Linear(64, 32, dtype=BF16)
    layer = Linear.of(source, act="silu")
    x = torch.randn(3, 64).to(BF16)
    with torch.enable_grad():
        assert "gradients are enabled and required" in layer.explain(x)
        layer(x).sum().backward()
        expected = torch.autograd.grad(nn.functional.silu(source(x)).sum(), source.weight)[0]
        assert torch.equal(source.weight.grad, expected) and driver.launches() == before
        frozen = layer_of()
        assert frozen.explain(x) == "" and frozen.explain(x.clone().requires_grad_()) and driver.launches() == before
        frozen(x)
    layer(x)
    assert driver.launches() == before + 2


# ---- errors


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda w: Linear(w, act="softsign"), "act = 'softsign', expected one of none, relu"),
        (lambda w: Linear(w[0]), r"weight is torch.bfloat16 \[64\], expected \[outputs, inputs\]"),
        (lambda w: Linear(w.to(torch.float8_e4m3fn)), r"weight is torch.float8_e4m3fn \[32, 64\]"),
        (lambda w: Linear(w[:31], gated=True), "weight has 31 rows and gated = True, expected an even number"),
        (lambda w: Linear(w, w[0]), r"bias is torch.bfloat16 \[64\], expected torch.bfloat16 \[32\]"),
        (lambda w: Linear(w, w[0, :32].float()), r"bias is torch.float32 \[32\], expected torch.bfloat16 \[32\]"),
        (lambda w: Linear.of([]), "no layer is given"),
        (lambda w: Linear.of(nn.Bilinear(8, 8, 8)), "a layer is torch.nn.modules.linear.Bilinear, expected torch.nn.Linear"),
        (lambda w: Linear.of([nn.Linear(8, 8), nn.Linear(16, 8)]), "a layer has 16 inputs in torch.float32 on cpu, expected 8"),
        (lambda w: Linear.of([nn.Linear(8, 8), nn.Linear(8, 16)], gated=True), "gated = True with layers of 8, 16 outputs"),
        (lambda w: Linear.of([nn.Linear(8, 8)] * 3, gated=True), "gated = True with layers of 8, 8, 8 outputs"),
        (lambda w: Linear(w)(w[:, :32]), r"x is torch.bfloat16 \[32, 32\] on cpu, expected torch.bfloat16 \[..., 64\] on cpu"),
        (lambda w: Linear(w)(w.float()), r"x is torch.float32 \[32, 64\] on cpu, expected torch.bfloat16"),
        (lambda w: Linear(w)(w.to("meta")), "on meta, expected .* on cpu"),
        (lambda w: Linear(w)(torch.tensor(1.0)), r"x is torch.float32 \[\] on cpu"),
        (lambda w: Linear(w)(w, w), r"residual is torch.bfloat16 \[32, 64\] on cpu, expected torch.bfloat16 \[32, 32\] on cpu"),
        (lambda w: Linear(w, gated=True)(w, w[:, :32]), r"residual is .*, expected torch.bfloat16 \[32, 16\]"),
        (lambda w: Linear(w)(w, w[:, :32].float()), r"residual is torch.float32 \[32, 32\]"),
    ],
)
def test_wrong_tensors_are_refused_by_name(make, text):
    with pytest.raises(kiln.Error, match=text) as raised:
        make(torch.randn(32, 64).to(BF16))
    assert raised.value.code == kiln.Code.invalid_argument


# ---- packing and state


def test_layers_are_packed_into_one(computing):
    q, k, v = nn.Linear(64, 32, dtype=BF16), nn.Linear(64, 16, bias=False, dtype=BF16), nn.Linear(64, 16, dtype=BF16)
    qkv = Linear.of([q, k, v])
    x = torch.randn(2, 3, 64).to(BF16)
    assert (qkv.in_features, qkv.out_features, qkv.sizes) == (64, 64, (32, 16, 16))
    for part, layer in zip(qkv(x).split(qkv.sizes, -1), (q, k, v)):
        assert error_of(part, layer(x).double()) < 1e-2
    assert len(computing) == 1


def test_gate_and_up_are_packed_into_one(computing):
    gate, up = (nn.Linear(64, 32, dtype=BF16) for _ in range(2))
    both = Linear.of([gate, up], act="silu", gated=True)
    x = torch.randn(3, 64).to(BF16)
    assert (both.out_features, both.sizes) == (32, (32,))
    assert error_of(both(x), (nn.functional.silu(gate(x)) * up(x)).double()) < 1e-2


def test_one_layer_is_shared_and_several_are_copied():
    source = nn.Linear(64, 32, dtype=BF16)
    alone, packed = Linear.of(source), Linear.of([source, source])
    assert alone.weight is source.weight and alone.bias is source.bias
    assert not packed.weight.requires_grad and packed.weight.data_ptr() != source.weight.data_ptr()
    assert not Linear(torch.randn(8, 8)).weight.requires_grad


def test_state_and_copies_are_a_modules(computing):
    layer, other = layer_of(bias=True, act="silu"), layer_of(bias=True, act="silu")
    assert list(layer.state_dict()) == ["weight", "bias"] and list(layer_of().state_dict()) == ["weight"]
    other.load_state_dict({name: value * 2 for name, value in layer.state_dict().items()})
    given = inputs_of(layer, 3)
    assert error_of(other(*given), expected_of(other, *given)) < 4e-3
    assert torch.equal(copy.deepcopy(layer)(*given), layer(*given))
    layer.to(F16)
    assert layer.weight.dtype == layer.bias.dtype == F16
    assert "in_features=64, out_features=32, bias=True, act=silu" in repr(layer)


def test_a_layer_waits_for_the_writes_of_its_own_methods(monkeypatch):
    waits = []
    monkeypatch.setattr(Linear, "_settle", lambda self: waits.append("waited"))
    layer = layer_of()
    assert not waits
    for write in (
        lambda: Linear.of([nn.Linear(8, 8)] * 2),
        lambda: layer.to(F16),
        lambda: layer.load_state_dict(layer.state_dict()),
        lambda: copy.deepcopy(layer),
    ):
        waits.clear()
        write()
        assert waits


# ---- compiled


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up = layer_of(rows=64, act="silu", gated=True)
        self.down = layer_of(rows=64, columns=32, bias=True)

    def forward(self, x):
        return self.down(self.gate_up(x), x)


def test_a_compiled_block_is_one_graph_for_any_number_of_rows(on_host, driver):
    torch._dynamo.reset()
    block, counter = Block(), torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(block, backend=counter, fullgraph=True)
    for rows in (4, 7, 19, 200):
        before = driver.launches()
        assert compiled(torch.randn(2, rows, 64).to(BF16)).shape == (2, rows, 64)
        assert driver.launches() == before + 2
    assert counter.frame_count == 2  # static sizes, then any number of rows


def test_a_compiled_block_in_plain_torch_is_one_graph():
    torch._dynamo.reset()
    block, x = Block(), torch.randn(2, 5, 64).to(BF16)
    assert torch.equal(torch.compile(block, backend="aot_eager", fullgraph=True)(x), block(x))


def test_an_exported_block_calls_the_operator(on_host, driver):
    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(Block(), (torch.randn(4, 64).to(BF16),), dynamic_shapes={"x": {0: rows}})
    assert str(exported.graph).count("kiln.gemm") == 2
    before = driver.launches()
    assert exported.module()(torch.randn(9, 64).to(BF16)).shape == (9, 64)
    assert driver.launches() == before + 2
