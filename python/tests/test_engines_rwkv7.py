"""kiln.engines.transformers on RWKV7 of Flash Linear Attention, for which plain torch stands in (fla_stand_in).

Operators compute in plain torch on the host, as in test_engines_transformers.
"""

import collections
import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.17.0", reason="transformers 5.17 is not installed")

import fla_stand_in as fla
import kiln
import kiln.engines.transformers as engine
import kiln.torch
import transformers
import transformers_support as support
from kiln.engines import _transformers_attention as attention
from kiln.torch import _linear
from transformers_support import calls

if not transformers.__version__.startswith(engine.RELEASE + "."):
    pytest.skip(f"transformers is {transformers.__version__}, expected {engine.RELEASE}", allow_module_level=True)

BF16, F32 = torch.bfloat16, torch.float32
OPERATORS = ("rwkv7_shift_mix", "rwkv7_kprep", "rwkv7_kvprep", "wkv7", "rwkv7_out")
#: functions of Flash Linear Attention that an operator stands for
FUNCTIONS = {
    "rwkv7_shift_mix": {"token_shift", "fused_addcmul_rwkv7"},
    "rwkv7_kprep": {"l2_norm", "fused_k_rwkv7"},
    "wkv7": {"chunk_rwkv7", "fused_mul_recurrent_rwkv7"},
    "rwkv7_out": {"gate_output_correction"},
}


@pytest.fixture(scope="module", autouse=True)
def computing():
    library = support.compute_on_host()
    with fla.installed():
        yield
    library._destroy()


@pytest.fixture(autouse=True)
def on_host(driver, host_memory, monkeypatch):
    """Lets the adapter take the host for a GPU."""
    monkeypatch.setattr(attention, "DEVICE", "cpu")
    monkeypatch.setattr(_linear, "DEVICE", "cpu")
    calls.update(dict.fromkeys(calls, 0))
    fla.calls.clear()
    with kiln.Service() as service, torch.no_grad():
        kiln.torch.use_service(service)
        yield
    kiln.torch.use_service(kiln.Service())


def model_of(dtype=BF16, fuse_norm=True, **options):
    torch.manual_seed(1)
    model = fla.RWKV7Model(fuse_norm=fuse_norm, **options).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data += torch.randn_like(parameter) * 0.2
    return model.to(dtype)


def inputs(dtype=BF16, batch=2, tokens=9):
    torch.manual_seed(2)
    return torch.randn(batch, tokens, 128).to(dtype)


def forced(model, x, ends=(5, 6, 8, 9)):
    """Results for the tokens up to each of `ends`, with a cache."""
    cache, begins = fla.Cache(), (0, *ends)
    return torch.cat([model(x[:, a:b], past_key_values=cache) for a, b in zip(begins, ends)], 1).float()


def error_of(got, expected):
    return ((got - expected).square().mean() / expected.square().mean()).sqrt().item()


def reasons(table):
    return {(row.place, row.operator): row.reason for row in table.rows if not row.runs}


@pytest.mark.parametrize("fuse_norm", [True, False])
def test_every_operation_runs(fuse_norm):
    table = engine.apply(model_of(fuse_norm=fuse_norm))
    mixer = {row.operator for row in table.rows if row.place.startswith("layers.1.attn") and "norm" not in row.place}
    assert mixer == {*OPERATORS, "gemm_batched", "gemm"}
    ffn = [(row.place, row.operator) for row in table.rows if row.place.startswith("layers.1.ffn") and "norm" not in row.place]
    assert ffn == [("layers.1.ffn", "rwkv7_shift_mix"), ("layers.1.ffn.key", "gemm"), ("layers.1.ffn.value", "gemm")]
    norms = {row.place for row in table.rows if row.operator == "layer_norm"}
    assert norms == {"layers.0.pre_norm", "norm", *(f"layers.{i}.{kind}_norm" for i in (0, 1) for kind in ("attn", "ffn"))}
    assert not reasons(table)


@pytest.mark.parametrize("fuse_norm", [True, False])
def test_products_of_f32_leave_the_additions_to_the_norms(fuse_norm):
    table = engine.apply(model_of(F32, fuse_norm))
    left = {place for place, operator in reasons(table) if operator == "layer_norm"}
    assert left == ({"layers.0.ffn_norm", "layers.1.ffn_norm"} if fuse_norm else set())


@pytest.mark.parametrize("fuse_norm", [True, False])
def test_f32_gives_the_plain_models_results(fuse_norm):
    """Without the roundings of bf16 every operator has to agree."""
    x, model = inputs(F32), model_of(F32, fuse_norm)
    expected = forced(model, x)
    engine.apply(model)
    fla.calls.clear()
    assert error_of(forced(model, x), expected) < 1e-5 and error_of(model(x), expected) < 1e-5
    assert calls["wkv7"] == 10 and calls["rwkv7_shift_mix"] == 20 and not fla.calls


def test_bf16_is_as_near_to_f32_as_the_plain_model():
    x, model = inputs(), model_of()
    expected = forced(model_of(F32), x.float())
    plain = forced(model, x)
    table = engine.apply(model)
    got = forced(model, x)
    assert error_of(got, expected) <= 1.1 * error_of(plain, expected)
    assert calls["gemm_batched"] == 8 and calls["gemm"] == 4 * sum(row.operator == "gemm" and row.runs for row in table.rows)


def test_products_have_the_activations_and_the_additions(monkeypatch):
    model, x, whole = model_of(), inputs(), _linear.multiply
    engine.apply(model)
    made = []

    def multiply(x, weight, bias=None, residual=None, **named):
        made.append((named.get("act", "none"), residual is not None))
        return whole(x, weight, bias, residual, **named)

    monkeypatch.setattr(_linear, "multiply", multiply)
    model(x)
    plain = {("tanh", False): 2, ("log_decay", False): 2, ("sigmoid", False): 5, ("relu_squared", False): 2, ("none", False): 5}
    assert collections.Counter(made) == plain | {("none", True): 4}


def test_hooks_and_copies_that_come_later():
    model, x, seen = model_of(), inputs(), []
    engine.apply(model)
    expected = forced(model, x)
    assert error_of(forced(copy.deepcopy(model), x), expected) < 2e-2
    model.layers[0].attn.register_forward_hook(lambda mixer, args, out: seen.append(out[0]))
    model.layers[1].ffn.value.register_forward_hook(lambda layer, args, out: seen.append(out))
    model.layers[1].attn.w_lora.lora[0].register_forward_hook(lambda layer, args, out: seen.append(out))
    assert error_of(forced(model, x), expected) < 2e-2 and len(seen) == 12


@pytest.mark.parametrize("off", [*OPERATORS, "gemm_batched", "gemm", "layer_norm"])
@pytest.mark.parametrize("fuse_norm", [True, False])
def test_each_operator_can_be_turned_off(off, fuse_norm, monkeypatch):
    monkeypatch.setenv("KILN_ENGINES_OFF", off)
    dtype = BF16 if off.startswith("gemm") else F32
    x, model = inputs(dtype, tokens=70), model_of(dtype, fuse_norm)
    expected = forced(model, x, (66, 69, 70))
    table = engine.apply(model)
    fla.calls.clear()
    assert error_of(forced(model, x, (66, 69, 70)), expected) < (2e-2 if dtype == BF16 else 1e-5)
    assert all(row.operator != off for row in table.running()) and calls[off] == 0
    expected_calls = FUNCTIONS.get(off, set()) - (set() if fuse_norm else {"l2_norm"})
    assert set(fla.calls) == expected_calls


def test_padding_and_packed_sequences():
    x, model = inputs(F32), model_of(F32)
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :4] = 0
    packed, ends = x.reshape(1, 18, 128), torch.tensor([0, 5, 5, 18])
    expected = model(x, attention_mask=mask)[mask.bool()], model(packed, cu_seqlens=ends)
    engine.apply(model)
    assert error_of(model(x, attention_mask=mask)[mask.bool()], expected[0]) < 1e-5
    assert error_of(model(packed, cu_seqlens=ends), expected[1]) < 1e-5
    assert error_of(model(packed, cu_seqlens=ends.int()), expected[1]) < 1e-5


def test_calls_of_both_kinds_share_a_cache():
    x, plain, ours = inputs(F32), model_of(F32), model_of(F32)
    engine.apply(ours)
    expected, cache, ends = forced(plain, x), fla.Cache(), (0, 4, 6, 7, 9)
    got = [m(x[:, a:b], past_key_values=cache) for m, a, b in zip((ours, plain, ours, plain), ends, ends[1:])]
    assert error_of(torch.cat(got, 1), expected) < 1e-5


def test_undo_restores_the_model():
    model, x = model_of(), inputs()
    before, expected = {name: value.clone() for name, value in model.state_dict().items()}, forced(model, x)
    engine.apply(model)
    after = model.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    engine.undo(model)
    calls.update(dict.fromkeys(calls, 0))
    assert torch.equal(forced(model, x), expected) and not any(calls.values())


def test_weights_that_change_afterwards():
    model, other, x = model_of(), model_of(), inputs()
    engine.apply(model)
    for m in (model, other):
        m.layers[0].attn.r_proj.weight.mul_(2)
        m.layers[1].attn.x_r.mul_(0.5)
        m.layers[1].attn.k_proj.weight = torch.nn.Parameter(m.layers[1].attn.k_proj.weight * 3)
    engine.apply(other)
    assert error_of(forced(model, x), forced(other, x)) < 1e-2


def test_calls_that_kiln_does_not_run():
    model, x = model_of(F32), inputs(F32)
    expected = model(x)
    engine.apply(model)
    with torch.enable_grad():
        assert torch.equal(model(x), expected)
    model.train()
    assert torch.equal(model.layers[0].attn(x)[0], model_of(F32).train().layers[0].attn(x)[0])
    assert not calls["wkv7"]


def test_reasons():
    with fla.installed("0.5.1"):
        (row,) = engine.explain(model_of()).rows
        assert row.reason == "flash-linear-attention is 0.5.1, expected 0.6"
    model = model_of()
    model.layers[0].attn.register_forward_hook(lambda *_: None)
    model.layers[1].ffn.act_fn = torch.relu
    model.layers[1].attn.value_dim = 64
    table = reasons(engine.explain(model))
    assert "hooks" in table["layers.0.attn", "wkv7"] and "hooks" in table["layers.0.attn.r_proj+k_proj+v_proj", "gemm_batched"]
    assert table["layers.1.attn", "wkv7"] == "it has 128 key and 64 value elements, expected as many of both"
    assert table["layers.1.ffn.key", "gemm"] == "its activation is not sqrelu"
    assert ("layers.1.ffn", "rwkv7_shift_mix") not in table
