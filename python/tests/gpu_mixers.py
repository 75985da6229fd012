"""kiln.torch.GatedDeltaNet and RWKV7 on a GPU: python -m pytest -q python/tests/gpu_mixers.py"""

import copy

import mixer_checks as checks
import pytest
import torch
import torch._dynamo

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
BF16 = torch.bfloat16
#: relative RMS errors that rounding of each step to bf16 explains
MOST = {"gated": 1.2e-2, "rwkv7": 1.5e-2}
EACH = pytest.mark.parametrize("kind", MOST)


@EACH
@pytest.mark.parametrize("tokens", [7, 70, 300])
def test_a_prompt_and_then_steps(kind, tokens):
    checks.prompt_then_steps(kind, "cuda", BF16, MOST[kind], tokens)


@EACH
def test_a_prompt_and_then_steps_with_states_v_first(kind):
    checks.prompt_then_steps(kind, "cuda", BF16, MOST[kind], v_first=True)


@EACH
def test_sequences_of_any_length(kind):
    checks.sequences_of_any_length(kind, "cuda", BF16, MOST[kind])
    checks.sequences_of_any_length(kind, "cuda", BF16, MOST[kind], lengths=(200, 0, 67, 1, 130))


@EACH
def test_rejected_tokens_are_undone(kind):
    checks.rejected_tokens_are_undone(kind, "cuda", BF16, MOST[kind])


def test_layer_zero_and_channel_mix():
    checks.layer_zero_gives_its_value("cuda", BF16, MOST["rwkv7"])
    checks.channel_mix("cuda", BF16, MOST["rwkv7"])


@EACH
@pytest.mark.parametrize("tokens", [1, 40])
def test_compiled_with_graphs(kind, tokens):
    """Results and states equal the ones of eager calls, call after call."""
    mixer = checks.Mixer(kind, "cuda", BF16)
    x, first = checks.inputs(mixer, "cuda", BF16, 3, tokens)
    slots, eager = checks.indices("cuda", 2, -1, 1), mixer.module.states(4)
    compiled_states = copy.deepcopy(eager)
    torch._dynamo.reset()
    step = torch.compile(lambda x, states, first: mixer(x, states, slots, first), fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            got = step(x, compiled_states, first).clone()
            expected = mixer(x, eager, slots, first)
            assert checks.error_of(got[[0, 2]], expected[[0, 2]]) <= (1e-6 if kind == "gated" else 8e-3)
    assert all(checks.error_of(one, other) <= 8e-3 for one, other in zip(compiled_states, eager))


def test_a_step_is_as_many_launches_as_the_module_says():
    mixer = checks.Mixer("gated", "cuda", BF16)
    x, _ = checks.inputs(mixer, "cuda", BF16, 3, 1)
    states, slots = mixer.module.states(4), checks.indices("cuda", 2, 0, 1)
    with torch.no_grad():
        mixer(x, states, slots)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            mixer(x, states, slots)
            torch.cuda.synchronize()
    kernels = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert len(kernels) == 6, kernels
