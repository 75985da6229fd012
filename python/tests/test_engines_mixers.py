"""kiln.engines.transformers on a tiny Qwen3-Next: a layer with a gated delta net, and one with gated attention and experts.

Operators compute in plain torch on the host, as in test_engines_transformers.
"""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.17.0", reason="transformers 5.17 is not installed")

import kiln
import kiln.engines.transformers as engine
import kiln.torch
import torch._dynamo
import transformers
import transformers_support as support
from kiln.engines import _transformers_attention as attention
from kiln.torch import GatedDeltaNet
from transformers import DynamicCache, StaticCache
from transformers_support import calls, model_of

if not transformers.__version__.startswith(engine.RELEASE + "."):
    pytest.skip(f"transformers is {transformers.__version__}, expected {engine.RELEASE}", allow_module_level=True)

BF16, FAMILY = torch.bfloat16, "qwen3-next"
PROMPT, TOKENS = 5, 18
MIXER = "model.layers.0.linear_attn"


@pytest.fixture(scope="module", autouse=True)
def computing():
    library = support.compute_on_host()
    yield
    library._destroy()


@pytest.fixture
def on_host(driver, host_memory, monkeypatch):
    """Lets the adapter take the host for a GPU, and makes plans for kernels of the fake driver."""
    monkeypatch.setattr(attention, "DEVICE", "cpu")
    calls.update(dict.fromkeys(calls, 0))
    with kiln.Service() as service, torch.no_grad():
        kiln.torch.use_service(service)
        yield
    kiln.torch.use_service(kiln.Service())


def applied(dtype=BF16, **options):
    model = model_of(FAMILY, dtype, **options)
    return model, engine.apply(model)


def tokens(batch=2, length=TOKENS):
    torch.manual_seed(2)
    return torch.randint(1, 99, (batch, length))


def cache_of(kind, model):
    return DynamicCache(config=model.config) if kind == "dynamic" else StaticCache(config=model.config, max_cache_len=24)


def forced(model, ids, kind, parts=(PROMPT,), step=None):
    """Logits for given tokens: prompts up to each of `parts`, then one token at a time."""
    cache, ends = cache_of(kind, model), [*parts, *range(parts[-1] + 1, ids.shape[1] + 1)]
    out = []
    for begin, end in zip([0, *ends], ends):
        run = step if step is not None and end - begin == 1 else model
        out.append(run(ids[:, begin:end], past_key_values=cache, use_cache=True).logits)
    return torch.cat(out, 1).float()


def error_of(got, expected):
    return ((got - expected).square().mean() / expected.square().mean()).sqrt().item()


def reasons(table):
    return {row.operator: row.reason for row in table.rows if not row.runs}


def test_every_operation_runs():
    _, table = applied()
    mixer = {row.operator for row in table.rows if row.place.startswith(MIXER)}
    assert mixer == {"conv1d_pool", "delta_rule_pool", "gated_rms_norm", "gemm"} and not reasons(table)
    attention = {row.operator for row in table.rows if row.place.startswith("model.layers.1.self_attn")}
    assert attention == {"gemm", "rms_norm"}
    assert {row.operator for row in table.rows} - mixer - attention == {
        "rope",
        "attn_prefill",
        "attn_decode_paged",
        "fused_moe",
        "fused_add_rms_norm",
    }


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("parts", [(PROMPT,), (2, 3, 11)], ids=["prompt", "parts"])
def test_logits_are_as_near_to_f32_as_the_plain_models(kind, parts, on_host):
    ids = tokens()
    expected, plain = (forced(model_of(FAMILY, dtype), ids, kind, parts) for dtype in (torch.float32, BF16))
    model, _ = applied()
    got = forced(model, ids, kind, parts)
    assert error_of(got, expected) <= 1.1 * error_of(plain, expected)
    steps = len(parts) + TOKENS - parts[-1]
    assert calls["conv1d_pool"] == calls["delta_rule_pool"] == calls["gated_rms_norm"] == calls["fused_moe"] == steps
    assert calls["fused_add_rms_norm"] == 2 * steps and calls["rope"] == steps
    if kind == "dynamic":
        assert calls["attn_prefill"] + calls["attn_decode_paged"] == steps and not model.model.kiln_attention.refusals
    else:
        assert not calls["attn_prefill"] and not calls["attn_decode_paged"], "keys lie in some layers of the static cache alone"


def test_f32_gives_the_plain_models_logits(on_host):
    """Without the roundings of bf16 every operator has to agree."""
    ids, (model, _) = tokens(), applied(torch.float32)
    assert error_of(forced(model, ids, "dynamic"), forced(model_of(FAMILY), ids, "dynamic")) < 1e-5
    assert calls["delta_rule_pool"] and error_of(model(ids, use_cache=False).logits, model_of(FAMILY)(ids).logits) < 1e-5
    assert calls["delta_rule"] == calls["conv1d"] == 1, "without a cache there are no states"


def test_padding_is_masked_as_in_the_plain_model(on_host):
    ids, mask = tokens(), torch.ones(2, TOKENS, dtype=torch.long)
    mask[0, :4] = 0
    model, _ = applied(torch.float32)
    got, expected = (m(ids, attention_mask=mask).logits[mask.bool()] for m in (model, model_of(FAMILY)))
    assert error_of(got, expected) < 1e-5 and calls["delta_rule_pool"] == 1


@pytest.mark.parametrize("first", ["kiln", "transformers"])
def test_calls_of_both_kinds_share_a_cache(first, on_host):
    """A prompt by one, steps by the other, whose states of the convolution have another length."""
    ids, (ours, _), plain = tokens(), applied(torch.float32), model_of(FAMILY)
    expected, cache = forced(plain, ids, "dynamic"), cache_of("dynamic", plain)
    order = (ours, plain, ours, plain) if first == "kiln" else (plain, ours, plain, ours)
    ends = (0, 6, 7, 9, 10)
    got = [m(ids[:, a:b], past_key_values=cache, use_cache=True).logits for m, a, b in zip(order, ends, ends[1:])]
    assert error_of(torch.cat(got, 1), expected[:, :10]) < 1e-5


def test_generate_with_beams_gives_the_plain_models_tokens(on_host):
    """Beam search reorders the states in the cache."""
    ids, (model, _) = tokens(length=7), applied(torch.float32)
    for options in ({}, {"num_beams": 3}):
        options |= {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "attention_mask": torch.ones_like(ids)}
        assert torch.equal(model.generate(ids, **options), model_of(FAMILY).generate(ids, **options))
    assert calls["delta_rule_pool"] > 10


def test_a_compiled_step_is_one_graph(on_host):
    torch._dynamo.reset()
    ids, (model, _) = tokens(), applied()
    expected = forced(model, ids, "static")
    step = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert error_of(forced(model, ids, "static", step=step), expected) < 1e-3


def test_the_variable_turns_operators_off(monkeypatch, on_host):
    ids = tokens()
    expected = forced(model_of(FAMILY), ids, "dynamic")
    for off, also in (("conv1d_pool", "delta_rule_pool"), ("delta_rule_pool", "conv1d_pool"), ("gated_rms_norm", None)):
        monkeypatch.setenv("KILN_ENGINES_OFF", off)
        model, table = applied(torch.float32)
        given = {operator: reason for operator, reason in reasons(table).items() if operator in (off, also)}
        assert given.pop(off) == "KILN_ENGINES_OFF names it" and given == ({also: f"{off} is off"} if also else {})
        calls.update(dict.fromkeys(calls, 0))
        assert error_of(forced(model, ids, "dynamic"), expected) < 1e-5
        assert calls[off] == 0 and (also is None or calls[also] == 0)
    monkeypatch.setenv("KILN_ENGINES_OFF", "gemm")
    model, _ = applied(torch.float32)
    assert error_of(forced(model, ids, "dynamic"), expected) < 1e-5 and calls["gemm"] == 0 and calls["delta_rule_pool"]


def test_what_does_not_fit_stays_as_it_is():
    for options, text in (
        ({"linear_conv_kernel_dim": 5}, "its convolution has 5 taps, expected 2 to 4"),
        ({"linear_key_head_dim": 18}, "heads have 18 and 32 elements, expected multiples of 4"),
        ({"hidden_act": "gelu"}, "its activation is gelu"),
    ):
        _, table = applied(**options)
        assert {row.reason for row in table.rows if row.place == MIXER} == {
            text if "heads" not in text else text + " up to 256 and 1,024"
        }
    model = model_of(FAMILY, BF16)
    model.model.layers[0].linear_attn.in_proj_ba.register_forward_hook(lambda *_: None)
    assert {row.reason for row in engine.apply(model).rows if row.place == MIXER} == {"a projection has hooks"}


def test_the_packed_weight_follows_the_projections(on_host):
    """Writes in place, other parameters, deep copies, load_state_dict, other types, and undo()."""
    ids, (model, _) = tokens(), applied(torch.float32)
    plain = model_of(FAMILY)
    names = set(plain.state_dict())

    def same(one):
        mine, theirs = (forced(m, ids, "dynamic") for m in (one, plain))
        return error_of(mine, theirs) < 1e-5

    assert same(model) and set(model.state_dict()) == names
    for m in (model, plain):
        m.model.layers[0].linear_attn.in_proj_qkvz.weight.mul_(1.5)
    assert same(model)
    other = copy.deepcopy(model)
    for m in (other, plain):
        weight = m.model.layers[0].linear_attn.in_proj_ba.weight
        m.model.layers[0].linear_attn.in_proj_ba.weight = torch.nn.Parameter(weight * 2)
    assert same(other) and not same(model)
    model.load_state_dict(plain.state_dict())
    assert same(model)
    model.double().float()
    assert same(model)
    engine.undo(model)
    assert not any("kiln" in name for name, _ in model.named_buffers()) and torch.equal(
        forced(model, ids, "dynamic"), forced(plain, ids, "dynamic")
    )


def test_the_mixer_of_kiln_torch_has_the_modules_weights(on_host):
    """kiln.torch.GatedDeltaNet.of() against transformers' module, with a pool of states."""
    theirs = model_of(FAMILY).model.layers[0].linear_attn
    ours, x = GatedDeltaNet.of(theirs), torch.randn(2, 9, 128)
    states, slots = ours.states(5), torch.tensor([3, 1], dtype=torch.int32)
    cache = DynamicCache(config=model_of(FAMILY).config)
    for a, b in ((0, 6), (6, 7), (7, 9)):
        expected = theirs(x[:, a:b], cache_params=cache)
        assert error_of(ours(x[:, a:b], states, slots), expected) < 1e-5
    assert error_of(states.recurrent[[3, 1]], cache.layers[0].recurrent_states[0]) < 1e-5
