"""Checks of kiln.torch.GatedDeltaNet and RWKV7 that hold on the host, with operators in plain torch, and on a GPU."""

import operator_references as plain
import torch
import torch.nn.functional as F
from kiln.torch import RWKV7, GatedDeltaNet, RWKV7ChannelMix

F64 = torch.float64


def error_of(got, expected):
    return ((got.double() - expected.double()).square().mean() / expected.double().square().mean()).sqrt().item()


def random(*shape, scale=1.0):
    return torch.randn(*shape) * scale


def to_double(module):
    return {name: value.detach().double() for name, value in module.state_dict().items()}


# ---- the mixers


def gated(device, dtype, hidden=128, heads=2, value_heads=4, size=64, **options):
    torch.manual_seed(5)
    channels = 2 * heads * size + value_heads * size
    mixer = GatedDeltaNet(
        random(channels + value_heads * size + 2 * value_heads, hidden, scale=hidden**-0.5),
        random(channels, 4, scale=0.5),
        random(value_heads),
        random(value_heads),
        1 + random(size, scale=0.2),
        random(hidden, value_heads * size, scale=(value_heads * size) ** -0.5),
        heads=heads,
        **options,
    )
    return mixer.to(device, dtype)


def gated_in_double(mixer, x, state=None):
    """(the result, the states) of one sequence [S, hidden] in float64, which starts from states (inputs, recurrent)."""
    s, w = mixer.sizes, to_double(mixer)
    y = x.double() @ w["in_proj.weight"].T
    qkv, z, b, a = y.split((s.channels, s.value_heads * s.value, s.value_heads, s.value_heads), -1)
    taps = mixer.conv.shape[1] - 1
    before = torch.zeros(taps, s.channels, dtype=F64, device=x.device) if state is None else state[0]
    inputs = torch.cat([before, qkv])
    mixed = F.silu(sum(w["conv"][:, tap] * inputs[tap : tap + len(x)] for tap in range(taps + 1)))
    q, k, v = mixed.split((s.heads * s.key, s.heads * s.key, s.value_heads * s.value), -1)
    heads = lambda x, n: x.unflatten(-1, (n, -1)).unsqueeze(0)
    g = -w["a_log"].exp() * F.softplus(a + w["dt_bias"])
    (o, last), _ = plain.delta_recurrent(
        heads(q, s.heads),
        heads(k, s.heads),
        heads(v, s.value_heads),
        torch.sigmoid(b).unsqueeze(0),
        g.unsqueeze(0),
        initial_state=None if state is None else state[1].unsqueeze(0),
        l2norm=True,
    )
    y = plain.gated_rms_norm(o, heads(z, s.value_heads), w["norm"], mixer.eps)[0][0]
    return y[0].flatten(1) @ w["out_proj.weight"].T, (inputs[len(x) :], last[0])


def time_mix(device, dtype, layer=1, heads=2, size=64, **options):
    torch.manual_seed(6)
    hidden = heads * size
    pair = lambda bias: (random(32, hidden, scale=hidden**-0.5), random(hidden, 32, scale=0.2), random(hidden) if bias else None)
    by_head = lambda: random(heads, size)
    mixer = RWKV7(
        torch.rand(6, hidden),
        random(3, hidden, hidden, scale=hidden**-0.5),
        pair(True),
        pair(True),
        pair(False),
        pair(True) if layer else None,
        by_head(),
        by_head(),
        by_head() * 0.2,
        1 + by_head() * 0.2,
        by_head() * 0.2,
        random(hidden, hidden, scale=hidden**-0.5),
        **options,
    )
    return mixer.to(device, dtype)


def time_mix_in_double(mixer, x, v_first=None, state=None):
    """(the result, the value of layer 0, the states) of one sequence [S, hidden] in float64."""
    w, heads = to_double(mixer), (mixer.heads, mixer.size)
    x = x.double()
    before = torch.zeros_like(x[:1]) if state is None else state[0]
    (mixed, _), _ = plain.rwkv7_shift_mix(x.unsqueeze(0), w["mix"], before)
    r, k, v = (mixed[i, 0] @ w["rkv"][i].T for i in range(3))

    def low_rank(name, at, act=lambda y: y):
        y = act(mixed[at, 0] @ w[f"{name}.down.weight"].T) @ w[f"{name}.up.weight"].T
        return y + w.get(f"{name}.up.bias", 0)

    decay = -0.6065306597126334 * torch.sigmoid(low_rank("w", 3, torch.tanh))
    a, g = torch.sigmoid(low_rank("a", 4)), low_rank("g", 5, torch.sigmoid)
    v_first = v if v_first is None else v_first.double()
    v = v if mixer.v is None else torch.lerp(v, v_first, torch.sigmoid(low_rank("v", 2)))
    r, decay, k, v, a, g = (one.unflatten(-1, heads).unsqueeze(0) for one in (r, decay, k, v, a, g))
    (k, kk), _ = plain.rwkv7_kprep(k, a, w["k_k"], w["k_a"], 1e-24)
    initial = None if state is None else state[1].unsqueeze(0)
    (o, last), _ = plain.wkv7_recurrent(r, decay, k, v, a, kk=kk, initial_state=initial)
    y = plain.rwkv7_out(o, r, k, v, g, w["r_k"], w["norm_weight"], w["norm_bias"], mixer.eps, True)[0][0]
    return y[0].flatten(1) @ w["out_proj.weight"].T, v_first, (x[-1:], last[0])


class Mixer:
    """One interface for both mixers: a call of the module, and the same in float64."""

    def __init__(self, kind, device, dtype, **options):
        self.kind, self.module = kind, (gated if kind == "gated" else time_mix)(device, dtype, **options)
        self.hidden = self.module.in_proj.in_features if kind == "gated" else self.module.mix.shape[1]

    def __call__(self, x, states, slots, v_first=None, **named):
        if self.kind == "gated":
            return self.module(x, states, slots, **named)
        return self.module(x, states, slots, v_first if self.module.v is not None else None, **named)[0]

    def in_double(self, x, v_first=None, state=None):
        if self.kind == "gated":
            return gated_in_double(self.module, x, state)
        y, _, after = time_mix_in_double(self.module, x, v_first, state)
        return y, after


def inputs(mixer, device, dtype, *shape):
    torch.manual_seed(8)
    x = torch.randn(*shape, mixer.hidden).to(device, dtype)
    return x, torch.randn(*shape, mixer.hidden).to(device, dtype)


def indices(device, *slots):
    return torch.tensor(slots, dtype=torch.int32, device=device)


# ---- checks


def prompt_then_steps(kind, device, dtype, most, tokens=70, **options):
    """A prompt of each sequence, then tokens one by one; the pool has other slots, which stay as they are."""
    mixer = Mixer(kind, device, dtype, **options)
    x, first = inputs(mixer, device, dtype, 2, tokens + 4)
    states, slots = mixer.module.states(4), indices(device, 2, 0)
    for pool in states:
        pool[[1, 3]] = 7
    got = [mixer(x[:, :tokens], states, slots, first[:, :tokens])]
    got += [mixer(x[:, i : i + 1], states, slots, first[:, i : i + 1]) for i in range(tokens, tokens + 4)]
    expected = torch.stack([mixer.in_double(x[n], first[n])[0] for n in range(2)])
    assert error_of(torch.cat(got, 1), expected) <= most, error_of(torch.cat(got, 1), expected)
    assert all((pool[[1, 3]] == 7).all() and not (pool[[0, 2]] == 7).all() for pool in states)


def sequences_of_any_length(kind, device, dtype, most, lengths=(5, 0, 67, 1, 3), **options):
    """Sequences one after another: the fourth has no states, and the fifth starts from zeros although its slot is full."""
    mixer = Mixer(kind, device, dtype, **options)
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], device=device)
    x, first = inputs(mixer, device, dtype, 1, int(ends[-1]))
    states, slots = mixer.module.states(6), indices(device, 4, 0, 2, -1, 5)
    starts = torch.tensor([1, 1, 1, 1, 0], dtype=torch.uint8, device=device)
    warm, warm_first = inputs(mixer, device, dtype, 5, 6)
    mixer(warm, states, indices(device, 4, 0, 2, 1, 5), warm_first)
    before = [pool.clone() for pool in states]
    y = mixer(x, states, slots, first, cu_seqlens=ends, has_initial_state=starts)
    for n, length in enumerate(lengths):
        part = slice(int(ends[n]), int(ends[n]) + length)
        after_warm = mixer.in_double(warm[n], warm_first[n])[1]
        if slots[n] < 0 or not length:
            continue
        expected, _ = mixer.in_double(x[0, part], first[0, part], after_warm if starts[n] else None)
        assert error_of(y[0, part], expected) <= most, (n, error_of(y[0, part], expected))
    assert all(torch.equal(pool[one], was[one]) for pool, was in zip(states, before) for one in (0, 1, 3)), (
        "an empty and a free slot"
    )
    assert not any(torch.equal(pool[one], was[one]) for pool, was in zip(states, before) for one in (2, 4, 5))


def rejected_tokens_are_undone(kind, device, dtype, most, **options):
    """Four guessed tokens, of which two are taken: the next call starts from the slot that has the state after the second."""
    mixer = Mixer(kind, device, dtype, **options)
    x, first = inputs(mixer, device, dtype, 2, 12)
    states, slots = mixer.module.states(12), indices(device, 0, 1)
    mixer(x[:, :6], states, slots, first[:, :6])
    out = torch.tensor([[2, 3, 4, 5], [6, 7, -1, 8]], dtype=torch.int32, device=device)
    guessed = mixer(x[:, 6:10], states, slots, first[:, 6:10], state_out_indices=out)
    y = mixer(x[:, 8:9], states, indices(device, 3, 7), first[:, 8:9])
    expected = torch.stack([mixer.in_double(x[n, :10], first[n, :10])[0] for n in range(2)])
    assert error_of(guessed, expected[:, 6:10]) <= most and error_of(y, expected[:, 8:9]) <= most


def layer_zero_gives_its_value(device, dtype, most):
    mixer = time_mix(device, dtype, layer=0)
    x = torch.randn(1, 9, mixer.mix.shape[1]).to(device, dtype)
    y, v_first = mixer(x, mixer.states(1), indices(device, 0))
    expected, value, _ = time_mix_in_double(mixer, x[0])
    assert error_of(y[0], expected) <= most and error_of(v_first[0], value) <= most


def channel_mix(device, dtype, most):
    torch.manual_seed(9)
    ffn = RWKV7ChannelMix(torch.rand(128), random(256, 128, scale=0.1), random(128, 256, scale=0.1)).to(device, dtype)
    x, pool = torch.randn(2, 9, 128).to(device, dtype), ffn.states(2)
    slots = indices(device, 1, 0)
    y = torch.cat([ffn(x[:, :8], pool, slots, x[:, :8]), ffn(x[:, 8:], pool, slots, x[:, 8:])], 1)
    w = to_double(ffn)
    before = F.pad(x.double(), (0, 0, 1, -1))
    middle = (x.double() + (before - x.double()) * w["mix"]) @ w["key.weight"].T
    expected = x.double() + F.relu(middle).square() @ w["value.weight"].T
    assert error_of(y, expected) <= most
