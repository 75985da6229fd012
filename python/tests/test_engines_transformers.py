"""kiln.engines.transformers on tiny random models: the table, the numbers, fall-backs, and undo().

Operators compute in plain torch on the host from plans that kiln's planner made (transformers_support).
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
from transformers import DynamicCache, StaticCache
from transformers_support import FAMILIES, calls, model_of

if not transformers.__version__.startswith(engine.RELEASE + "."):
    pytest.skip(f"transformers is {transformers.__version__}, expected {engine.RELEASE}", allow_module_level=True)

BF16 = torch.bfloat16
PROMPT, TOKENS, LENGTH = 5, 18, 24
OPERATORS = {"rms_norm", "fused_add_rms_norm", "gemm", "rope", "attn_prefill", "attn_decode_paged"}
WITH_HEAD_NORMS = {"qwen3", "qwen3-moe", "gemma3"}
#: layers, of two, whose MLP is a mixture of experts
MIXTURES = {"qwen3-moe": 1, "mixtral": 2}


def products_of(family):
    """Calls of gemm in a forward of both layers."""
    attention, mlps = 4 if family in WITH_HEAD_NORMS else 2, 2 - MIXTURES.get(family, 0)
    return 2 * attention + 2 * mlps


@pytest.fixture(scope="module", autouse=True)
def computing():
    library, threads = support.compute_on_host(), torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
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


def applied(family, dtype=BF16, **options):
    model = model_of(family, dtype, **options)
    return model, engine.apply(model)


def tokens(batch=2, length=TOKENS):
    torch.manual_seed(2)
    return torch.randint(1, 99, (batch, length))


def cache_of(kind, model):
    return DynamicCache(config=model.config) if kind == "dynamic" else StaticCache(config=model.config, max_cache_len=LENGTH)


def forced(model, ids, kind, step=None, **options):
    """Logits for given tokens: a prompt, then one token at a time."""
    cache = cache_of(kind, model)
    out = [model(ids[:, :PROMPT], past_key_values=cache, use_cache=True, **options).logits]
    for i in range(PROMPT, ids.shape[1]):
        out.append(
            (step if step is not None else model)(ids[:, i : i + 1], past_key_values=cache, use_cache=True, **options).logits
        )
    return torch.cat(out, 1).float()


def error_of(got, expected):
    return ((got - expected).square().mean() / expected.square().mean()).sqrt().item()


def reasons(table):
    return {row.reason for row in table.rows if not row.runs}


# ---- the table


@pytest.mark.parametrize("family", FAMILIES)
def test_every_operation_of_a_known_model_runs(family):
    _, table = applied(family)
    assert {row.operator for row in table.rows} == OPERATORS | ({"fused_moe"} if family in MIXTURES else set())
    assert not reasons(table)


def test_the_table_names_each_module_once():
    model, table = applied("qwen3")
    norms = [row.place for row in table.rows if row.operator == "rms_norm"]
    assert norms == [name for name, module in model.named_modules() if type(module).__name__ == "Qwen3RMSNorm"]
    assert "rms_norm" in str(table) and table.to_dict()[0]["runs"]


def test_explain_says_before_apply_what_apply_would_do():
    model = model_of("gemma3", BF16)
    before = engine.explain(model).rows
    assert not any("forward" in module.__dict__ for module in model.modules())
    assert engine.apply(model).rows == before == engine.explain(model).rows


def test_the_variable_turns_operators_off(monkeypatch, on_host):
    monkeypatch.setenv("KILN_ENGINES_OFF", "rms_norm, attn_prefill")
    model, table = applied("llama")
    assert {row.operator for row in table.rows if not row.runs} == {"rms_norm", "attn_prefill"}
    forced(model, tokens(), "dynamic")
    assert calls["rms_norm"] == calls["attn_prefill"] == 0 and calls["attn_decode_paged"] and calls["rope"]
    assert "the operator is off" in reasons(engine.explain(model))


def test_without_gemm_the_products_are_torchs(monkeypatch, on_host):
    monkeypatch.setenv("KILN_ENGINES_OFF", "gemm")
    model, table = applied("llama")
    assert {row.operator for row in table.rows if not row.runs} == {"gemm"} and reasons(table) == {"KILN_ENGINES_OFF names it"}
    assert {row.operator for row in table.running()} == OPERATORS - {"gemm"} | {"act_and_mul"}
    expected = model_of("llama")(tokens()).logits
    assert error_of(model(tokens()).logits.float(), expected) < 2e-2
    assert calls["gemm"] == 0 and calls["act_and_mul"] == 2
    monkeypatch.setenv("KILN_ENGINES_OFF", "rope")
    engine.undo(model)
    calls.update(dict.fromkeys(calls, 0))
    assert reasons(engine.apply(model)) == {"KILN_ENGINES_OFF names it"}
    assert error_of(model(tokens()).logits.float(), expected) < 2e-2
    assert calls["gemm"] == 2 * 6 and calls["rope"] == 0, "without kiln's rotation q, k and v are products of their own"


@pytest.mark.parametrize(
    "family, options, operators, reason",
    [
        ("llama", {"head_dim": 32}, {"attn_prefill", "attn_decode_paged"}, "heads have 32 elements"),
        (
            "llama",
            {"attn_implementation": "flex_attention"},
            {"attn_prefill", "attn_decode_paged"},
            "attn_implementation is flex_attention",
        ),
        ("llama", {"mlp_bias": True}, {"gemm", "act_and_mul"}, "a projection has a bias"),
        ("llama", {"hidden_act": "relu"}, {"gemm", "act_and_mul"}, "its activation is ReLU"),
        ("llama", {"intermediate_size": 252}, {"gemm"}, "expected multiples of 8"),
        ("gemma2", {"attn_implementation": "sdpa"}, {"attn_prefill", "attn_decode_paged"}, "ignores the model's soft cap"),
        ("gemma3", {"use_bidirectional_attention": True}, {"attn_prefill", "attn_decode_paged"}, "bidirectional"),
    ],
)
def test_what_does_not_fit_stays_as_it_is(family, options, operators, reason):
    model, table = applied(family, **options)
    assert {row.operator for row in table.rows if not row.runs} == operators
    assert all(reason in text for text in reasons(table))
    if "attn_prefill" in operators:
        assert model.config._attn_implementation == options.get("attn_implementation", "sdpa")


def test_an_unknown_model_or_release_stays_as_it_is(monkeypatch):
    assert reasons(engine.apply(torch.nn.Linear(2, 2))) == {f"Linear is none of {engine.KNOWN}"}
    model = model_of("llama", BF16)
    monkeypatch.setattr(engine.transformers, "__version__", "5.20.2")
    assert reasons(engine.apply(model)) == {"transformers is 5.20.2, expected 5.17"}
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_replaced_forwards_and_hooks_of_others_are_left_alone():
    model = model_of("llama", BF16)
    model.model.norm.forward = theirs = model.model.norm.forward
    model.model.layers[0].mlp.up_proj.register_forward_hook(lambda *_: None)
    model.model.layers[1].self_attn.register_forward_hook(lambda *_: None)
    table = engine.apply(model)
    assert reasons(table) == {"its forward was replaced already", "a projection has hooks", "its attention has forward hooks"}
    assert model.model.norm.forward is theirs


def _tripled(original):
    return lambda *arguments, **named: original(*arguments, **named) * 3


def _first_tripled(original):
    def call(*arguments, **named):
        first, *rest = original(*arguments, **named)
        return first * 3, *rest

    return call


def _with_class(module, change):
    """Gives the module a class of the user's, whose forward differs."""
    own = type(module)
    module.__class__ = type(own.__name__, (own,), {"__module__": "theirs", "forward": change(own.forward)})


def _with_forward(module, change):
    module.forward = change(module.forward)


def _with_hook(module, change):
    module.register_forward_hook(lambda _, arguments, result: change(lambda: result)())


@pytest.mark.parametrize(
    "place, ways, change",
    [
        ("self_attn", (_with_class, _with_forward, _with_hook), _first_tripled),
        ("post_attention_layernorm", (_with_class, _with_forward, _with_hook), _tripled),
        ("mlp.act_fn", (_with_class, _with_forward, _with_hook), _tripled),
    ],
)
def test_modules_that_a_user_changed_keep_their_results(place, ways, change, on_host):
    for way in ways:
        model = model_of("llama")
        plain = model(tokens(), use_cache=False).logits
        way(model.model.layers[0].get_submodule(place), change)
        expected = model(tokens(), use_cache=False).logits
        assert error_of(plain, expected) > 0.01, "the change shows"
        engine.apply(model)
        assert error_of(model(tokens(), use_cache=False).logits, expected) < 1e-5, way.__name__
        engine.undo(model)
        assert torch.equal(model(tokens(), use_cache=False).logits, expected), way.__name__


def test_an_apply_that_fails_leaves_the_model_as_it_was(monkeypatch, on_host):
    model = model_of("llama")
    before = {name: set(module.__dict__) for name, module in model.named_modules()}
    fuse, made = engine._modules.fuse, []

    def failing(module, *names):
        if len(made) == 2:
            raise torch.OutOfMemoryError("no memory")
        made.append(fuse(module, *names))

    monkeypatch.setattr(engine._modules, "fuse", failing)
    with pytest.raises(torch.OutOfMemoryError):
        engine.apply(model)
    assert {name: set(module.__dict__) for name, module in model.named_modules()} == before
    monkeypatch.undo()
    assert engine.apply(model).running()


# ---- numbers


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_as_near_to_f32_as_the_plain_models(family, kind, on_host):
    ids = tokens()
    expected = forced(model_of(family), ids, kind)
    plain = forced(model_of(family, BF16), ids, kind)
    model, _ = applied(family)
    got = forced(model, ids, kind)
    assert error_of(got, expected) <= 1.1 * error_of(plain, expected)
    assert calls["attn_prefill"] == 2 and calls["attn_decode_paged"] == 2 * (TOKENS - PROMPT)
    layers = 2 * (TOKENS - PROMPT + 1)
    assert calls["fused_add_rms_norm"] == calls["rope"] == layers and calls["act_and_mul"] == 0
    assert calls["gemm"] == layers // 2 * products_of(family)
    assert calls["fused_moe"] == layers // 2 * MIXTURES.get(family, 0)
    assert not model.model.kiln_attention.refusals


def test_a_prompt_may_come_in_parts_and_without_a_cache(on_host):
    ids, (model, _) = tokens(), applied("mistral-window")
    expected = model_of("mistral-window")(ids).logits
    cache = cache_of("dynamic", model)
    parts = [model(ids[:, a:b], past_key_values=cache, use_cache=True).logits for a, b in ((0, 3), (3, 14), (14, 18))]
    assert error_of(torch.cat(parts, 1).float(), expected) < 2e-2
    assert error_of(model(ids, use_cache=False).logits.float(), expected) < 2e-2
    assert calls["attn_prefill"] == 8 and not model.model.kiln_attention.refusals


@pytest.mark.parametrize("kind", [{}, {"cache_implementation": "static"}], ids=["dynamic", "static"])
@pytest.mark.parametrize("padding", [0, 3])
def test_generate_gives_the_plain_models_tokens(kind, padding, on_host):
    ids, mask = tokens(length=7), torch.ones(2, 7, dtype=torch.long)
    mask[0, :padding] = 0
    options = {"attention_mask": mask, "max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False} | kind
    model, _ = applied("llama", torch.float16)
    assert torch.equal(model.generate(ids, **options), model_of("llama").generate(ids, **options))
    assert (calls["attn_decode_paged"] == 0) == bool(padding)
    assert any("padding" in reason for reason in reasons(engine.explain(model))) == bool(padding)


@pytest.mark.parametrize("family", ["llama", "qwen3-moe", "gemma3"])
def test_a_compiled_decode_step_is_one_graph_and_right_for_each_length(family, on_host):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    ids, (model, _) = tokens(), applied(family)
    expected = forced(model, ids, "static")
    calls.update(dict.fromkeys(calls, 0))
    step = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.equal(forced(model, ids, "static", step), expected)
    assert calls["attn_decode_paged"] == 2 * (TOKENS - PROMPT)
    if family == "llama":
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_compiled_step_without_plans_uses_sdpa_and_prepare_makes_them(on_host):
    torch._dynamo.reset()
    ids, (model, _) = tokens(), applied("llama")
    cache = cache_of("static", model)
    assert not engine.prepare(model, cache)
    cache.early_initialization(2, 2, 64, BF16, torch.device("cpu"))
    expected = forced(model_of("llama", BF16), ids, "static")[:, :1]
    for prepared in (False, True):
        torch._dynamo.reset()
        cache.reset()
        calls.update(dict.fromkeys(calls, 0))
        if prepared:
            assert engine.prepare(model, cache) and engine.prepare(model, cache)
        step = torch.compile(model, backend="aot_eager", fullgraph=True)
        assert error_of(step(ids[:, :1], past_key_values=cache, use_cache=True).logits.float(), expected) < 2e-2
        assert bool(calls["attn_decode_paged"]) == prepared


def test_layers_of_one_shape_share_a_plan(on_host):
    model, _ = applied("gemma3")
    cache = cache_of("static", model)
    model(tokens()[:, :PROMPT], past_key_values=cache, use_cache=True)
    sliding, full = cache.kiln_decode.steps
    assert (sliding.length, full.length) == (8, LENGTH) and cache.kiln_decode.slots == [0, 1]
    again = cache_of("static", model)
    model(tokens()[:, :PROMPT], past_key_values=again, use_cache=True)
    assert again.kiln_decode.steps == [sliding, full]
    model, _ = applied("llama")
    cache = cache_of("static", model)
    model(tokens()[:, :PROMPT], past_key_values=cache, use_cache=True)
    assert len(cache.kiln_decode.steps) == 1 and cache.kiln_decode.slots == [0, 0]


def test_a_cache_of_too_many_sequences_for_a_plan_of_the_device_is_not_prepared(monkeypatch, on_host):
    model, _ = applied("llama")
    monkeypatch.setattr(engine._attention, "MOST_ROWS", 3)
    cache = cache_of("static", model)
    model(tokens()[:, :PROMPT], past_key_values=cache, use_cache=True)
    assert not engine.prepare(model, cache) and not hasattr(cache, "kiln_decode")


# ---- products


@pytest.fixture
def products(monkeypatch):
    """The named arguments of each product that ran on kiln."""
    made, multiply = [], engine._linear.multiply

    def noted(x, weight, bias=None, residual=None, **named):
        made.append({"bias": bias is not None, "residual": residual is not None, **named})
        return multiply(x, weight, bias, residual, **named)

    monkeypatch.setattr(engine._linear, "multiply", noted)
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_products_have_the_activation_and_the_residual_as_epilogues(family, on_host, products):
    model, table = applied(family)
    model(tokens())
    gated = [p for p in products if p.get("gated")]
    mlps = 2 - MIXTURES.get(family, 0)
    assert [p["act"] for p in gated] == ["gelu_tanh" if family.startswith("gemma") else "silu"] * mlps
    # Gemma 2 and 3 have a norm between the product and the residual.
    assert sum(p["residual"] for p in products) == (0 if family in ("gemma2", "gemma3") else mlps)
    assert all(p["early"] for p in products)
    places = [row.place.removeprefix("model.layers.0.") for row in table.rows if row.operator == "gemm" and ".0." in row.place]
    queries = [f"self_attn.{p}" for p in ("q_proj", "k_proj", "v_proj")]
    if family not in WITH_HEAD_NORMS:
        queries = ["self_attn.q_proj+k_proj+v_proj"]
    mlp = [] if family in MIXTURES else ["mlp.gate_proj+up_proj", "mlp.down_proj"]
    assert places == [*mlp, *queries, "self_attn.o_proj"]


def test_biases_are_epilogues_too(on_host, products):
    options = {"attention_bias": True, "mlp_bias": True}
    model, _ = applied("llama", **options)
    plain = model_of("llama", **options)
    for one in (model, plain):
        for name, parameter in one.named_parameters():
            if name.endswith("proj.bias"):
                parameter.data.copy_(torch.linspace(-1, 1, len(parameter)))
    assert error_of(model(tokens()).logits.float(), plain(tokens()).logits) < 2e-2
    assert len(products) == 2 * 5 and all(p["bias"] for p in products)


def test_a_hook_sees_the_results_of_its_module_alone(on_host, products):
    model, _ = applied("llama")
    expected, seen = model(tokens()).logits, []
    products.clear()
    model.model.layers[0].mlp.register_forward_hook(lambda module, arguments, result: seen.append(result))
    model.model.layers[1].mlp.down_proj.register_forward_hook(lambda module, arguments, result: seen.append(result))
    assert error_of(model(tokens()).logits.float(), expected.float()) < 2e-2
    assert not any(p["residual"] for p in products) and len(seen) == 2


@pytest.mark.parametrize("place", ["self_attn.o_proj", "self_attn.q_proj", "mlp.down_proj", "mlp.up_proj"])
def test_a_layer_of_another_class_stays_as_it_is(place, on_host):
    class Theirs(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * 3

    model = model_of("llama", BF16)
    model.model.layers[0].get_submodule(place).__class__ = Theirs
    expected = model(tokens()).logits
    table = engine.apply(model)
    refused = [row for row in table.rows if not row.runs and row.operator == "gemm"]
    assert len(refused) == 1 and refused[0].reason == "a projection is Theirs with a weight Parameter"
    assert error_of(model(tokens()).logits.float(), expected.float()) < 2e-2
    assert calls["gemm"] == 2 * 4 + (1 if place == "self_attn.q_proj" else -1)


def test_writes_of_weights_are_waited_for_before_products_load_them_early(monkeypatch, on_host, products):
    waits = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append("waited"))
    model = model_of("llama", BF16)
    state = model.state_dict()
    engine.apply(model)
    assert waits
    for write in (lambda: model.load_state_dict(state), lambda: model.to(torch.float16), lambda: model.model.layers[0].mlp.half()):
        waits.clear()
        write()
        assert waits
    monkeypatch.undo()


def test_new_weights_are_not_loaded_early(on_host, products):
    model, _ = applied("llama")
    model(tokens())
    assert len(products) == 2 * 4
    products.clear()
    copy.deepcopy(model)(tokens())
    assert not products
    attention = model.model.layers[0].self_attn
    attention.o_proj.weight = torch.nn.Parameter(attention.o_proj.weight * 2)
    model(tokens())
    assert len(products) == 2 * 4 - 1
    products.clear()
    model.to(torch.float16)(tokens())
    assert len(products) == 2 * 4


def test_early_can_be_turned_off(on_host, products):
    model = model_of("llama", BF16)
    engine.apply(model, early=False)
    model(tokens())
    assert len(products) == 2 * 4 and not any(p["early"] for p in products)


# ---- mixtures of experts


@pytest.fixture
def mixtures(monkeypatch):
    """The named arguments of each mixture of experts that ran on kiln."""
    made, operator = [], engine._modules.fused_moe

    def noted(x, w13, w2, **named):
        made.append({"weight": w13, **named})
        return operator(x, w13, w2, **named)

    monkeypatch.setattr(engine._modules, "fused_moe", noted)
    return made


def test_a_block_of_experts_is_one_operator_that_adds_the_residual(on_host, mixtures):
    model, table = applied("mixtral")
    assert [row.place for row in table.running() if row.operator == "fused_moe"] == ["model.layers.0.mlp", "model.layers.1.mlp"]
    model(tokens())
    assert len(mixtures) == 2
    for layer, call in zip(model.model.layers, mixtures):
        assert call["weight"] is layer.mlp.experts.gate_up_proj, "weights are neither copied nor packed"
        assert call["residual"].shape == call["logits"].shape[:1] + (128,)
        assert (call["act"], call["k"], call["renormalize"]) == ("silu", 2, True)


@pytest.mark.parametrize("renormalize", [True, False])
def test_weights_are_renormalized_as_the_model_says(renormalize, on_host, mixtures):
    options = {"norm_topk_prob": renormalize, "mlp_only_layers": []}
    model, _ = applied("qwen3-moe", torch.float16, **options)
    assert error_of(model(tokens()).logits.float(), model_of("qwen3-moe", **options)(tokens()).logits) < 5e-3
    assert [call["renormalize"] for call in mixtures] == [renormalize] * 2


def test_recorded_router_logits_are_the_models(on_host, mixtures):
    model, _ = applied("mixtral")
    expected = model_of("mixtral")(tokens(), output_router_logits=True).router_logits
    got = model(tokens(), output_router_logits=True).router_logits
    assert len(got) == 2 and all(error_of(one.float(), other) < 2e-2 for one, other in zip(got, expected))
    assert all(call["ids"].shape == (2 * TOKENS, 2) and "logits" not in call for call in mixtures)


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda block: block.experts.register_forward_hook(lambda *_: None), "its experts have hooks, or a forward of their own"),
        (lambda block: setattr(block.experts, "act_fn", torch.nn.Tanh()), "its activation is Tanh"),
        (lambda block: _with_class(block.experts, _tripled), "a part of it is MixtralExperts of theirs"),
        (lambda block: _with_class(block.gate, _first_tripled), "a part of it is MixtralTopKRouter of theirs"),
        (lambda block: setattr(block, "forward", block.forward), "its forward was replaced already"),
    ],
)
def test_a_changed_block_of_experts_stays_as_it_is(change, reason, on_host, mixtures):
    model = model_of("mixtral", BF16)
    change(model.model.layers[0].mlp)
    expected = model(tokens()).logits
    table = engine.apply(model)
    assert [row.reason for row in table.rows if not row.runs] == [reason]
    assert error_of(model(tokens()).logits.float(), expected.float()) < 2e-2
    assert len(mixtures) == 1


def test_hooks_that_come_later_see_what_their_module_gives(on_host, mixtures):
    model, _ = applied("mixtral")
    expected, seen = model(tokens()).logits, []
    mixtures.clear()
    model.model.layers[0].mlp.register_forward_hook(lambda module, arguments, result: seen.append(result))
    model.model.layers[1].mlp.experts.register_forward_hook(lambda module, arguments, result: seen.append(result))
    assert error_of(model(tokens()).logits.float(), expected.float()) < 2e-2
    assert len(seen) == 2 and [call["residual"] for call in mixtures] == [None]


def test_the_variable_turns_mixtures_off(monkeypatch, on_host):
    monkeypatch.setenv("KILN_ENGINES_OFF", "fused_moe")
    model, table = applied("mixtral")
    assert [(row.operator, row.reason) for row in table.rows if not row.runs] == [("fused_moe", "KILN_ENGINES_OFF names it")] * 2
    assert error_of(model(tokens()).logits.float(), model_of("mixtral")(tokens()).logits) < 2e-2
    assert calls["fused_moe"] == 0


# ---- calls that do not fit


def test_under_grad_the_original_forwards_run(on_host):
    model, _ = applied("qwen3")
    with torch.enable_grad():
        model(tokens()).logits.sum().backward()
    plain = model_of("qwen3", BF16)
    with torch.enable_grad():
        plain(tokens()).logits.sum().backward()
    assert not any(calls.values())
    for (name, got), expected in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(got.grad, expected.grad), name
    assert any("gradients are enabled" in reason for reason in reasons(engine.explain(model)))


def test_on_another_device_the_original_forwards_run(driver):
    model, _ = applied("llama")
    with torch.no_grad():
        assert torch.equal(model(tokens()).logits, model_of("llama", BF16)(tokens()).logits)
    assert reasons(engine.explain(model)) == {"tensors are on cpu"}


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"output_attentions": True}, "output_attentions"),
        ({"attention_mask": torch.tensor([[0] * 4 + [1] * 14, [1] * 18])}, "padding"),
        ({"attention_mask": torch.zeros(2, 1, 18, 18).masked_fill(torch.ones(18, 18).triu(1).bool(), -1e9).to(BF16)}, "not causal"),
        ({"position_ids": torch.arange(18).remainder(9).repeat(2, 1), "use_cache": False}, "pack several sequences"),
    ],
)
def test_calls_that_do_not_fit_use_transformers_attention(options, reason, on_host):
    model, _ = applied("llama")
    got = model(tokens(), **options).logits.float()
    assert (
        error_of(
            got,
            model_of("llama")(
                tokens(),
                **{k: v.float() if v is not True and k == "attention_mask" and v.dim() == 4 else v for k, v in options.items()},
            ).logits,
        )
        < 2e-2
    )
    assert calls["attn_prefill"] == 0 and calls["rope"] == 2
    assert any(reason in text for text in reasons(engine.explain(model)))


# ---- weights and undo


def test_weights_stay_what_they_were():
    plain, (model, _) = model_of("gemma", BF16), applied("gemma")
    expected, got = plain.state_dict(), model.state_dict()
    assert list(got) == list(expected) and all(torch.equal(got[name], expected[name]) for name in got)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]
    other = model_of("gemma", BF16, seed=7).state_dict()
    model.load_state_dict(other)
    mlp = model.model.layers[0].mlp
    assert torch.equal(
        mlp.kiln_weight, torch.cat([other["model.layers.0.mlp.gate_proj.weight"], other["model.layers.0.mlp.up_proj.weight"]])
    )


def test_saved_models_are_whole(tmp_path):
    model, _ = applied("llama")
    model.save_pretrained(tmp_path)
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=BF16)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))
    assert again.config._attn_implementation == "sdpa"


def test_weights_that_move_or_are_replaced_are_followed(on_host):
    model, _ = applied("llama", torch.float32)
    model.to(BF16)
    mlp = model.model.layers[0].mlp
    assert mlp.kiln_weight.dtype == BF16 and mlp.gate_proj.weight.data_ptr() == mlp.kiln_weight.data_ptr()
    before = model(tokens()).logits
    assert calls["act_and_mul"] == 2
    for module in (mlp, model.model.layers[1].mlp):
        module.up_proj.weight = torch.nn.Parameter(module.up_proj.weight * 2)
    assert not torch.equal(model(tokens()).logits, before) and calls["act_and_mul"] == 2  # gate_up is not theirs any more


def test_a_deep_copy_has_weights_of_its_own(on_host):
    model, _ = applied("llama")
    before = model(tokens()).logits
    other = copy.deepcopy(model)
    assert error_of(other(tokens()).logits.float(), before.float()) < 2e-2
    other.model.layers[0].mlp.up_proj.weight.mul_(2)
    assert torch.equal(model(tokens()).logits, before)
    for step in (other, torch.compile(other, backend="aot_eager")):
        assert error_of(step(tokens()).logits.float(), before.float()) > 5e-2


@pytest.mark.parametrize("family", ["llama", "mixtral", "gemma2"])
def test_apply_is_idempotent_and_undo_restores_everything(family, on_host):
    plain = model_of(family, BF16)
    model = model_of(family, BF16)
    members = {name: set(module.__dict__) for name, module in model.named_modules()}
    buffers = [name for name, _ in model.named_buffers()]
    table = engine.apply(model)
    forwards = [module.__dict__.get("forward") for module in model.modules()]
    assert engine.apply(model) is table and [module.__dict__.get("forward") for module in model.modules()] == forwards
    assert model.config._attn_implementation.startswith("kiln")
    model(tokens())
    engine.undo(model)
    engine.undo(model)
    calls.update(dict.fromkeys(calls, 0))
    assert {name: set(module.__dict__) for name, module in model.named_modules()} == members
    assert [name for name, _ in model.named_buffers()] == buffers
    assert model.config._attn_implementation == plain.config._attn_implementation
    assert torch.equal(model(tokens()).logits, plain(tokens()).logits) and not any(calls.values())
    for layer in model.model.layers if family not in MIXTURES else ():
        gate, up = layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight
        assert gate.untyped_storage().data_ptr() != up.untyped_storage().data_ptr()
    assert not {row.reason for row in engine.apply(model).rows} - {""}
