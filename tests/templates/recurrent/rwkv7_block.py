"""The time mix and the channel mix of an RWKV7 block through kiln, end to end against float64 in torch.

Matrix products are left out: r, k and v are their mixes, and w, a and g are their mixes
after a layer's activations.
"""

import torch
from harness import expect_close, expect_same_bits, kernel, normal

HEADS, SIZE = 8, 64
WIDTH = HEADS * SIZE


def weights(dtype="bf16"):
    return dict(
        mu=torch.rand(6, WIDTH, device="cuda").to(torch.bfloat16),
        channel_mu=torch.rand(1, WIDTH, device="cuda").to(torch.bfloat16),
        k_k=normal(HEADS, SIZE, dtype=dtype),
        k_a=normal(HEADS, SIZE, dtype=dtype),
        r_k=normal(HEADS, SIZE, dtype=dtype, scale=0.1),
        norm_weight=normal(HEADS, SIZE, dtype=dtype),
        norm_bias=normal(HEADS, SIZE, dtype=dtype),
    )


def activations(w, a, g):
    """The activations in the dtype of their inputs, as in a layer of torch."""
    return -0.6065306597126334 * torch.sigmoid(w), torch.sigmoid(a), torch.sigmoid(g)


class Kiln:
    """A block. Its state is three buffers, which decode (length 1) replaces in place."""

    def __init__(self, batch, p):
        self.batch, self.p = batch, p
        self.time_cache, self.channel_cache = (torch.zeros(batch, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        self.state = torch.zeros(batch, HEADS, SIZE, SIZE, device="cuda")
        self.kernels = [
            kernel("rwkv7_shift_mix", T="bf16", D=WIDTH, OUTPUTS=6, VARLEN=False),
            kernel("rwkv7_shift_mix", T="bf16", D=WIDTH, OUTPUTS=1, VARLEN=False),
            kernel("rwkv7_kprep", T="bf16", D=SIZE, WITH_B=False),
            kernel("wkv7_recurrent", T="bf16", K=SIZE, V=SIZE, FORM="kk_a", VARLEN=False),
            kernel("rwkv7_out", T="bf16", D=SIZE, NORM=True),
        ]

    def __call__(self, x):
        length, tokens, p = x.shape[1], x.shape[0] * x.shape[1], self.p
        shift6, shift1, kprep, wkv, out = self.kernels
        mixes, k, kk, o, y = (torch.empty(n, *x.shape, device="cuda", dtype=torch.bfloat16) for n in (6, 1, 1, 1, 1))
        time_cache = self.time_cache if length == 1 else torch.empty_like(self.time_cache)
        shift6(mixes, x, p["mu"], self.batch, length, WIDTH, WIDTH, tokens * WIDTH, self.time_cache, time_cache)
        w, a, g = activations(mixes[1], mixes[4], mixes[5])
        kprep(k, kk, mixes[2], a, p["k_k"], p["k_a"], tokens, HEADS)
        wkv(o, mixes[0], w, k, mixes[3], a, self.batch, length, HEADS, None, kk, 1.0, self.state, self.state)
        out(y, o, mixes[0], k, mixes[3], g, p["r_k"], tokens, HEADS, p["norm_weight"], p["norm_bias"], 64e-5)
        channel_cache = self.channel_cache if length == 1 else torch.empty_like(self.channel_cache)
        z = torch.empty(1, *x.shape, device="cuda", dtype=torch.bfloat16)
        shift1(z, y, p["channel_mu"], self.batch, length, WIDTH, WIDTH, tokens * WIDTH, self.channel_cache, channel_cache)
        self.time_cache, self.channel_cache = time_cache, channel_cache
        return torch.relu(z[0]).square()


def expected(x, p):
    """The block's result for all of x [B, T, WIDTH] from zero states, in float64. w, a and
    g are rounded as in Kiln.
    """
    p = {name: t.double() for name, t in p.items()}
    batch, length, _ = x.shape

    def shifted(t, mu):
        t = t.double()
        before = torch.cat((torch.zeros_like(t[:, :1]), t[:, :-1]), 1)
        return t + (before - t) * mu[:, None, None]

    r, w, k, v, a, g = (m.view(batch, length, HEADS, SIZE) for m in shifted(x, p["mu"]))
    w, a, g = activations(w, a, g)
    kk = k * p["k_k"]
    kk = kk * torch.rsqrt(kk.pow(2).sum(-1, keepdim=True) + 1e-6)
    k = k * (1 + (a - 1) * p["k_a"])
    s, o = torch.zeros(batch, HEADS, SIZE, SIZE, device="cuda", dtype=torch.float64), torch.empty_like(r)
    for t in range(length):
        a_s = torch.einsum("nhk,nhkv->nhv", -kk[:, t], s)
        s = w[:, t].exp()[..., None] * s + (kk * a)[:, t][..., None] * a_s[:, :, None] + k[:, t][..., None] * v[:, t][:, :, None]
        o[:, t] = torch.einsum("nhk,nhkv->nhv", r[:, t], s)
    o = (o - o.mean(-1, keepdim=True)) * torch.rsqrt(o.var(-1, unbiased=False, keepdim=True) + 64e-5) * p["norm_weight"] + p[
        "norm_bias"
    ]
    y = ((o + (r * k * p["r_k"]).sum(-1, keepdim=True) * v) * g).view(batch, length, WIDTH)
    return torch.relu(shifted(y, p["channel_mu"])[0]).square()


def test_prefill_and_decode():
    p, x = weights(), normal(3, 120, WIDTH)
    want = expected(x, p)
    block = Kiln(3, p)
    got = torch.cat(
        [block(x[:, begin:end].contiguous()) for begin, end in ((0, 64), (64, 101), *((t, t + 1) for t in range(101, 120)))], 1
    )
    found = expect_close(
        got, want, 2e-2, "a block"
    )  # every intermediate is rounded to bf16: about ten roundings of 1.7e-3, squared at the end
    whole = Kiln(3, p)(x)
    expect_same_bits(got, whole, "a block in pieces")
    return f"relative RMS {found:.2g}"


def test_decode_of_200_steps_in_a_graph():
    p, x = weights(), normal(200, 4, 1, WIDTH)
    block = Kiln(4, p)
    plain = [block(step) for step in x]
    captured = Kiln(4, p)
    graph, out = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for step in x:
            out.append(captured(step))
    graph.replay()
    torch.cuda.synchronize()
    for t in (0, 1, 100, 199):
        expect_same_bits(out[t], plain[t], f"token {t}")
    expect_same_bits(captured.state, block.state, "state")
