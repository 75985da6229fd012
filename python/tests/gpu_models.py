"""Common layers as compiled models, on a GPU: python -m pytest -q python/tests/gpu_models.py

One layer is a DeltaNet layer that decodes token by token. Another is an RWKV7 block's time mixing, with and
without variable lengths. The third is a mixture of experts with its router. They are compiled with fullgraph=True and mode="reduce-overhead", and compared with
the same layer in plain torch and double (operator_references).
"""

import kiln.torch
import operator_references as plain
import pytest
import torch
import torch._dynamo
import torch.nn.functional as F

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICE, DTYPE = "cuda", torch.bfloat16


class Operators:
    """torch.ops.kiln, or functions that give the results of operator_references in the inputs' types."""

    def __init__(self, kiln_operators):
        self.kiln = kiln_operators

    def __getattr__(self, name):
        if self.kiln:
            return getattr(torch.ops.kiln, name)
        return lambda *a, **k: tuple(
            r.float() if i == 1 and name.endswith("recurrent") else r.to(a[0].dtype)  # states are f32
            for i, r in enumerate(getattr(plain, name)(*a, **k)[0])
        )


def weight(*shape):
    return torch.nn.Parameter((torch.randn(*shape) * shape[-1] ** -0.5).to(DEVICE, DTYPE), requires_grad=False)


class DeltaNet(torch.nn.Module):
    """q, k, v and beta of the hidden state, one recurrent step for each token, output projection.

    The state is an input and an output.
    """

    def __init__(self, hidden=512, heads=4, size=128):
        super().__init__()
        self.heads, self.size = heads, size
        self.qkv, self.beta, self.out = weight(3 * heads * size, hidden), weight(heads, hidden), weight(hidden, heads * size)
        self.use = Operators(True)

    def forward(self, x, state):
        q, k, v = (F.linear(x, self.qkv).view(*x.shape[:2], 3, self.heads, self.size)).unbind(2)
        beta = torch.sigmoid(F.linear(x, self.beta))
        o, state = self.use.delta_recurrent(q, k, v, beta, initial_state=state, l2norm=True)
        return F.linear(o.flatten(2), self.out), state


class TimeMix(torch.nn.Module):
    """RWKV7's time mixing: shift and mix, projections, preparation of keys, recurrence, output with group
    norm and gate.
    """

    def __init__(self, hidden=256, size=64):
        super().__init__()
        self.heads, self.size = hidden // size, size
        self.mu = torch.nn.Parameter(torch.rand(6, hidden).to(DEVICE, DTYPE), requires_grad=False)
        self.projections = torch.nn.ParameterList([weight(hidden, hidden) for _ in range(6)])
        self.k_k, self.k_a, self.r_k, self.norm_weight, self.norm_bias = (weight(self.heads, size) for _ in range(5))
        self.out = weight(hidden, hidden)
        self.use = Operators(True)

    def forward(self, x, cache, state, cu_seqlens=None):
        mixed = self.use.rwkv7_shift_mix(x, self.mu, cache, cu_seqlens)
        r, w, k, v, a, g = (
            F.linear(m, p).unflatten(-1, (self.heads, self.size)) for m, p in zip(mixed[0].unbind(0), self.projections)
        )
        w, a, g = -0.6065 * torch.sigmoid(w), torch.sigmoid(a), torch.sigmoid(g)
        k, kk = self.use.rwkv7_kprep(k, a, self.k_k, self.k_a)
        o, state = self.use.wkv7_recurrent(r, w, k, v, a, kk=kk, initial_state=state, cu_seqlens=cu_seqlens)
        y = self.use.rwkv7_out(o, r, k, v, g, self.r_k, self.norm_weight, self.norm_bias, norm=True)
        y = y[0] if isinstance(y, tuple) else y
        return F.linear(y.flatten(2), self.out), mixed[1], state


class Mixture(torch.nn.Module):
    """A router, experts, a shared expert and the residual. The logits are a result, so that a reference chooses alike."""

    def __init__(self, fp8, hidden=512, inner=256, experts=32):
        super().__init__()
        self.router, self.norm = weight(experts, hidden), weight(hidden)
        shared = torch.nn.Linear(hidden, hidden, bias=False, device=DEVICE, dtype=DTYPE).requires_grad_(False)
        w13, w2 = weight(experts, 2 * inner, hidden), weight(experts, hidden, inner)
        self.moe = kiln.torch.FusedMoE(w13, w2, 4, score="sigmoid", scale=2.5, shared=shared, fp8=fp8)

    def forward(self, x):
        normed = torch.ops.kiln.rms_norm(x, self.norm)
        logits = F.linear(normed, self.router)
        return self.moe(normed, logits, x), normed, logits


def relative(got, expected):
    return ((got.double() - expected.double()).square().mean() / expected.double().square().mean().clamp(min=1e-30)).sqrt().item()


def run(layer, call, steps):
    """The results of all steps. Each step begins with the states of the previous step."""
    results, states = [], None
    for arguments in steps:
        torch.compiler.cudagraph_mark_step_begin()
        y, *after = call(arguments[0], *(states or arguments[1]), *arguments[2:])
        results.append(y.clone())
        states = [s.clone() for s in after]
    return [*results, *states]


@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead"}], ids=["fullgraph", "reduce-overhead"])
@pytest.mark.parametrize(
    "model, steps",
    [
        ("DeltaNet", [((4, 1), None)] * 6),
        ("DeltaNet", [((2, 33), None)]),
        ("TimeMix", [((4, 1), None)] * 6),
        ("TimeMix", [((2, 33), None)]),
        ("TimeMix", [((1, 33), [0, 5, 5, 20, 33])]),
    ],
    ids=["DeltaNet-decode", "DeltaNet", "RWKV7-decode", "RWKV7", "RWKV7-varlen"],
)
def test_a_compiled_layer_gives_what_plain_torch_gives(model, steps, options):
    torch.manual_seed(1)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    layer = {"DeltaNet": DeltaNet, "TimeMix": TimeMix}[model]()
    inputs = []
    for (batch, tokens), ends in steps:
        n = batch if ends is None else len(ends) - 1
        hidden = layer.out.shape[0]
        state = torch.randn(n, layer.heads, layer.size, layer.size, device=DEVICE) * 0.1
        states = [state] if model == "DeltaNet" else [torch.randn(n, hidden, device=DEVICE).to(DTYPE), state]
        inputs.append(
            (
                torch.randn(batch, tokens, hidden, device=DEVICE).to(DTYPE),
                states,
                *([torch.tensor(ends, device=DEVICE)] if ends is not None else []),
            )
        )
    got = run(layer, torch.compile(layer, fullgraph=True, **options), inputs)
    assert not torch._dynamo.utils.counters["graph_break"]
    layer.use = Operators(False)
    for i, (one, other) in enumerate(zip(got, run(layer, layer, inputs), strict=True)):
        assert relative(one, other) < 2e-2, f"{model}, result {i}"


@pytest.mark.parametrize("mode", [None, "reduce-overhead"], ids=["fullgraph", "reduce-overhead"])
@pytest.mark.parametrize("fp8", [False, True], ids=["bf16", "fp8"])
@pytest.mark.parametrize("shape", [(1, 1), (16, 1), (2, 100), (2, 600)], ids=lambda s: "x".join(map(str, s)))
@torch.no_grad()
def test_a_compiled_mixture_of_experts_gives_what_a_loop_gives(shape, fp8, mode):
    """Each call has another x, and so another routing: the third and later ones replay a graph."""
    torch.manual_seed(1)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    layer = Mixture(fp8)
    compiled, moe = torch.compile(layer, fullgraph=True, mode=mode), layer.moe
    for _ in range(4):
        x = torch.randn(*shape, 512, device=DEVICE).to(DTYPE)
        assert moe.explain(x) == ""
        torch.compiler.cudagraph_mark_step_begin()
        y, normed, logits = (t.flatten(0, 1) for t in compiled(x))
        named = {"score": "sigmoid", "scale": 2.5, "w13_scale": moe.w13_scale, "w2_scale": moe.w2_scale}
        named |= {"shared": moe.shared(normed), "residual": x.flatten(0, 1)}
        expected = plain.fused_moe(normed, moe.w13, moe.w2, logits, None, None, 4, **named)[0][0]
        assert relative(y, expected) < 4e-3
    assert not torch._dynamo.utils.counters["graph_break"]
