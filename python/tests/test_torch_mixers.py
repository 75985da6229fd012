"""kiln.torch.GatedDeltaNet and RWKV7 on the host, where operators compute in plain torch; and operators that pick by length."""

import pytest

torch = pytest.importorskip("torch")

import kiln
import kiln.torch
import mixer_checks as checks
import torch._dynamo.testing
from kiln.torch import GatedDeltaNet, _by_length
from kiln.torch._generated import descriptions
from operator_references import of_reference

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
EACH = pytest.mark.parametrize("kind", ["gated", "rwkv7"])
#: operators of the mixers
OPERATORS = (
    "conv1d_pool",
    "delta_rule_pool",
    "gated_rms_norm",
    "rwkv7_shift_mix",
    "rwkv7_kprep",
    "rwkv7_kvprep",
    "rwkv7_out",
    "wkv7_pool",
)


@pytest.fixture(scope="module", autouse=True)
def computing():
    library = torch.library.Library("kiln", "IMPL")
    for name in OPERATORS:
        library.impl(name, of_reference(name), "CPU")
    with torch.no_grad():
        yield
    library._destroy()


@EACH
def test_a_prompt_and_then_steps(kind):
    checks.prompt_then_steps(kind, "cpu", F32, 1e-5, tokens=11)


@EACH
def test_a_prompt_and_then_steps_with_states_v_first(kind):
    options = {"taps_first": True} if kind == "gated" else {}
    checks.prompt_then_steps(kind, "cpu", F32, 1e-5, tokens=11, v_first=True, **options)


@EACH
def test_sequences_of_any_length(kind):
    checks.sequences_of_any_length(kind, "cpu", F32, 1e-5, lengths=(5, 0, 7, 1, 3))


@EACH
def test_rejected_tokens_are_undone(kind):
    checks.rejected_tokens_are_undone(kind, "cpu", F32, 1e-5)


def test_layer_zero_and_channel_mix():
    checks.layer_zero_gives_its_value("cpu", F32, 1e-5)
    checks.channel_mix("cpu", F32, 1e-5)


# ---- the operators that pick by length


def delta(batch, tokens, heads=2, key=128, value=128, dtype=BF16, gates=2, **named):
    """The inputs of delta_rule."""
    x, beta = torch.zeros(batch, tokens, heads, key, dtype=dtype), torch.zeros(batch, tokens, heads, dtype=dtype)
    g = {0: None, 2: beta, 3: torch.zeros(batch, tokens, heads, key)}[gates]
    return (x, x, torch.zeros(batch, tokens, heads, value, dtype=dtype), beta, g), named


def pooled(call, sequences, state_out_indices=None, **named):
    """The inputs of delta_rule_pool, from a call of delta()."""
    (q, k, v, beta, g), _ = call
    state = torch.zeros(4, v.shape[2], q.shape[3], v.shape[3])
    return (q, k, v, state, torch.zeros(sequences, dtype=torch.int32), beta, g), named | {"state_out_indices": state_out_indices}


def least_of(name, hopper=True):
    """The least number of tokens of one sequence that the manifest gives to the chunked operator."""
    return next(
        tokens
        for tokens in range(1, 200)
        if picked(name, *(delta(1, tokens) if name == "delta_rule" else pooled(delta(1, tokens), 1)), hopper=hopper)
    )


def picked(name, arguments, named, hopper=True):
    """The chunked operator that takes a call, on Hopper or on another GPU; or None."""
    members = _by_length.MEMBERS[name]
    choice = _by_length.Choice({one: descriptions[one] for one in members.chunked}, descriptions[members.recurrent])
    return choice.pick(choice.given(arguments, named), [one for one in members.chunked if hopper or one not in _by_length.HOPPER])


@pytest.mark.parametrize("name", ["delta_rule", "delta_rule_pool"])
def test_long_sequences_go_to_the_chunked_operator(name):
    call = (lambda *a, **n: delta(*a, **n)) if name == "delta_rule" else (lambda *a, **n: pooled(delta(*a, **n), a[0]))
    least = least_of(name)
    assert 1 < least <= 64, "chunks have 64 tokens"
    assert picked(name, *call(8, least)) and not picked(name, *call(8, least - 1)), "the number is that of each sequence"
    assert picked(name, *call(1, 2048)) == name.replace("rule", "chunk"), "a cluster shares the columns of few states"
    assert picked(name, *call(64, 2048)) == name.replace("rule", "chunk_mma"), "many states fill the GPU"
    for gates, tokens, heads in ((3, 512, 29), (3, 1024, 38), (2, 512, 29), (2, 4096, 38), (0, 4096, 38)):
        assert picked(name, *call(1, tokens, heads, gates=gates)) == name.replace("rule", "chunk")
        assert picked(name, *call(1, tokens - 1, heads, gates=gates)) == name.replace("rule", "chunk_mma")
        assert picked(name, *call(1, tokens, heads + (1 if heads == 29 else 10), gates=gates)) == name.replace("rule", "chunk_mma")
    assert picked(name, *call(1, 2048, dtype=F16, key=64, value=192)) and picked(name, *call(1, 2048, gates=0))
    assert not picked(name, *call(1, 2048, dtype=F32))
    assert not picked(name, *call(1, 2048, key=96, value=96)) and not picked(name, *call(1, 2048, value=96))


@pytest.mark.parametrize("name", ["delta_rule", "delta_rule_pool"])
def test_other_gpus_and_many_states_have_chunks_of_16_tokens(name):
    call = (lambda *a, **n: delta(*a, **n)) if name == "delta_rule" else (lambda *a, **n: pooled(delta(*a, **n), a[0]))
    chunked, least = name.replace("rule", "chunk_mma"), least_of(name, hopper=False)
    assert 1 < least <= 64
    for hopper in (False, True):
        assert picked(name, *call(64, 2048, gates=3), hopper=hopper) == chunked
        assert picked(name, *call(8, least, gates=3), hopper=hopper) == chunked
        assert picked(name, *call(8, least - 1, gates=3), hopper=hopper) is None
    for gates in (0, 2, 3):
        assert picked(name, *call(1, 2048, gates=gates), hopper=False) == chunked
        assert picked(name, *call(8, least - 1, gates=gates), hopper=False) is None
    assert picked(name, *call(1, 2048, dtype=F32), hopper=False) is None
    assert picked(name, *call(1, 2048, key=96, value=96), hopper=False) is None


def test_chunked_operators_of_a_choice_have_the_same_inputs():
    for members in _by_length.MEMBERS.values():
        inputs = [descriptions[one]["inputs"] for one in members.chunked]
        assert all(one == inputs[0] for one in inputs)


def test_sequences_of_any_length_count_with_their_mean():
    least = least_of("delta_rule_pool")
    ends = torch.tensor([0, 1, 2, 3 * least])
    assert picked("delta_rule_pool", *pooled(delta(1, 3 * least), 3, cu_seqlens=ends))
    assert not picked("delta_rule_pool", *pooled(delta(1, 3 * least - 1), 3, cu_seqlens=ends))
    arguments, named = delta(1, 3 * least - 1, cu_seqlens=ends)
    assert not picked("delta_rule", arguments, named)


def test_states_after_each_token_need_the_recurrent_operator():
    out = torch.zeros(1, 2048, dtype=torch.int32)
    assert picked("delta_rule_pool", *pooled(delta(1, 2048), 1)) and not picked("delta_rule_pool", *pooled(delta(1, 2048), 1, out))


def test_the_picked_operator_gets_every_input(monkeypatch):
    """By place and by name, on a device that has all templates, on one without that of Hopper, and on one that has none."""
    got = []
    monkeypatch.setattr(
        _by_length, "_kernels", {name: lambda *a, name=name, **n: got.append((name, a, n)) for name in _by_length._kernels}
    )
    monkeypatch.setattr(_by_length, "_runs_on", lambda device, name: True)
    arguments, _ = delta(1, 2048)
    a_log = torch.zeros(2)
    real = _by_length._registry._operators["kiln::delta_rule"].real
    real(*arguments, 0.5, l2norm=True, gate_input="softplus", a_log=a_log)
    (name, given, _), names = got[0], [one["name"] for one in descriptions["delta_chunk"]["inputs"]]
    given = dict(zip(names, given, strict=True))
    assert name == "delta_chunk" and given["scale"] == 0.5 and given["l2norm"] and given["a_log"] is a_log
    assert given["gate_input"] == "softplus" and given["beta_input"] == "plain" and given["initial_state"] is None
    monkeypatch.setattr(_by_length, "_runs_on", lambda device, name: name not in _by_length.HOPPER)
    real(*arguments, 0.5, l2norm=True)
    assert got[1][0] == "delta_chunk_mma" and dict(zip(names, got[1][1], strict=True))["scale"] == 0.5
    monkeypatch.setattr(_by_length, "_runs_on", lambda device, name: False)
    real(*arguments, 0.5, l2norm=True)
    assert got[2][0] == "delta_recurrent" and got[2][1][5] == 0.5 and got[2][2] == {"l2norm": True}


def test_a_size_that_changes_needs_no_guard():
    """The choice is made in the call, so one graph serves decode steps and prompts."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    rule = torch.compile(lambda q, k, v, beta, g: torch.ops.kiln.delta_rule(q, k, v, beta, g)[0], backend=counter)
    library = torch.library.Library("kiln", "IMPL")
    library.impl("delta_rule", lambda q, k, v, *_: (v.clone(), v.new_zeros(v.shape[0], *k.shape[2:], v.shape[3], dtype=F32)), "CPU")
    for tokens in (2, 3, 500):
        arguments, _ = delta(2, tokens)
        for tensor in arguments:
            torch._dynamo.mark_dynamic(tensor, 1)
        assert rule(*arguments).shape == (2, tokens, 2, 128)
    library._destroy()
    assert counter.frame_count == 1


# ---- errors, moves, and weights of other modules


def test_the_gates_vectors_stay_f32():
    mixer = checks.gated("cpu", BF16)
    assert mixer.a_log.dtype == mixer.dt_bias.dtype == F32 and mixer.conv.dtype == mixer.in_proj.weight.dtype == BF16
    assert mixer.states(3, BF16).recurrent.dtype == BF16 and mixer.states(3).recurrent.dtype == F32


def test_wrong_weights_and_inputs_are_refused_by_name():
    x = torch.zeros
    good = {"in_proj": x(2 * 2 * 8 + 4 * 8 + 4 * 8 + 8, 16), "conv": x(64, 4), "a_log": x(4), "dt_bias": x(4)}
    good |= {"norm": x(8), "out_proj": x(16, 32), "heads": 2}
    GatedDeltaNet(**good)
    for wrong, text in (
        ({"conv": x(63, 4)}, r"conv is \[63, 4\], expected \[64, 4\]"),
        ({"dt_bias": x(5)}, r"dt_bias is \[5\], expected \[4\]"),
        ({"out_proj": x(16, 31)}, r"out_proj is \[16, 31\], expected \[16, 32\]"),
        ({"heads": 3}, "a_log has 4 value heads, expected a multiple of heads = 3"),
        ({"in_proj": x(74, 16)}, "in_proj has 74 rows, expected those of q, k, v, z, b and a"),
    ):
        with pytest.raises(kiln.Error, match=text):
            GatedDeltaNet(**good | wrong)
    mixer = checks.gated("cpu", F32)
    with pytest.raises(kiln.Error, match=r"x is \[4, 128\], expected \[sequences, tokens, hidden\]"):
        mixer(x(4, 128), mixer.states(1), checks.indices("cpu", 0))
    with pytest.raises(kiln.Error, match="the module is Linear, expected Qwen3NextGatedDeltaNet"):
        GatedDeltaNet.of(torch.nn.Linear(2, 2))
    with pytest.raises(kiln.Error, match="the module is Linear, expected RWKV7Attention"):
        kiln.torch.RWKV7.of(torch.nn.Linear(2, 2))
    mix = checks.time_mix("cpu", F32)
    with pytest.raises(kiln.Error, match="v_first must be given in all layers but the first"):
        mix(x(1, 2, 128), mix.states(1), checks.indices("cpu", 0))
    with pytest.raises(kiln.Error, match=r"x is \[1, 2, 64\], expected \[sequences, tokens, 128\]"):
        mix(x(1, 2, 64), mix.states(1), checks.indices("cpu", 0), x(1, 2, 64))
