"""attn_merge against float64: states that saw nothing, far-apart and equal lse, strides, in place.

Attention in merged parts is also compared with attention at once.
"""

import itertools

import torch
from harness import (
    TOLERANCE,
    Guarded,
    Row,
    compiled,
    expect_close,
    expect_refused,
    expect_same_bits,
    kernel,
    normal,
    peers,
    prefetch,
)

SANITIZE = [
    "attn_merge T=bf16 D=128 tokens=37",
    "attn_merge T=f32 D=80 OUT=bf16 states=11 tokens=33 heads=3",
    "attn_merge T=f16 D=256 PAIR=true tokens=37",
]


def reference(v, s):
    """Merges v [tokens, states, heads, D] and s [tokens, states, heads] in float64.

    A state that saw nothing (lse of -inf) does not count, for any v.
    """
    v, s = v.double(), s.double() * 0.6931471805599453
    if s.shape[1] == 0:
        return torch.zeros_like(v.sum(1)), torch.full_like(s.sum(1), float("-inf"))
    v = torch.where(s.isinf().unsqueeze(-1), 0.0, v)
    weights = torch.softmax(s, 1)
    weights = torch.where(weights.isnan(), 0.0, weights)
    return (weights.unsqueeze(-1) * v).sum(1), torch.logsumexp(s, 1) * 1.4426950408889634


def merge(v, s, dtype="bf16", out=None, s_out=True, pair=False, **parameters):
    """out and s_out in guarded memory."""
    tokens, states, heads, d = v.shape
    result = (
        out
        if out is not None
        else Guarded(tokens, heads, d, dtype=parameters.get("OUT", dtype), strides=(heads * (d + 16), d + 16, 1))
    )
    view = result.view if isinstance(result, Guarded) else result
    lse = Guarded(tokens, heads, dtype="f32", strides=(heads + 3, 1)) if s_out else None
    second = (v[:, 1], s[:, 1]) if pair else ()
    kernel("attn_merge", T=dtype, D=d, PAIR=pair, **parameters)(
        view,
        v,
        s,
        tokens,
        states,
        heads,
        view.stride(0),
        view.stride(1),
        *v.stride()[:3],
        *s.stride(),
        lse.view if lse else None,
        *(lse.view.stride() if lse else (0, 0)),
        *second,
    )
    return result, lse


def lse(*shape):
    """Random lse of states: some saw nothing, and some saw far more than the others."""
    s = torch.randn(*shape, device="cuda") * 4
    s[torch.rand(*shape, device="cuda") < 0.2] = float("-inf")
    s[torch.rand(*shape, device="cuda") < 0.05] += 300
    return s


def check(v, s, dtype, what, **options):
    v[s.isinf()] = float("nan")  # v of states that saw nothing
    out, merged = merge(v, s, dtype, **options)
    want, want_s = reference(v, s)
    expect_close(out.view, want, TOLERANCE[options.get("OUT", dtype)], what)
    expect_close(merged.view, want_s, 2e-6, what + " lse")
    out.check(what)
    merged.check(what)


def test_every_dtype_head_and_number_of_states():
    kinds = list(itertools.product(("f32", "f16", "bf16"), (1, 64, 80, 97, 128, 192, 256)))
    for dtype, d in kinds:
        prefetch("attn_merge", T=dtype, D=d, PAIR=False)
    for dtype, d in kinds:
        for tokens, states, heads in ((1, 1, 1), (3, 2, 5), (67, 3, 8), (5, 7, 32), (2, 300, 3)):
            check(
                normal(tokens, states, heads, d, dtype=dtype), lse(tokens, states, heads), dtype, f"{dtype} D={d} {states} states"
            )
    for dtype, out in (("f32", "bf16"), ("f32", "f16"), ("bf16", "f32")):
        check(normal(9, 5, 4, 128, dtype=dtype), lse(9, 5, 4), dtype, f"{dtype} to {out}", OUT=out)


def test_pairs():
    for dtype, d in itertools.product(("f32", "f16", "bf16"), (64, 97, 128, 256)):
        check(normal(67, 2, 8, d, dtype=dtype), lse(67, 2, 8), dtype, f"pair {dtype} D={d}", pair=True)


def test_nothing_seen_and_no_states():
    v, s = normal(7, 3, 4, 128), torch.full((7, 3, 4), float("-inf"), device="cuda")
    v.fill_(float("nan"))
    for states in (3, 0):
        out, merged = merge(v[:, :states], s[:, :states])
        assert bool((out.view == 0).all()) and bool((merged.view == float("-inf")).all()), f"{states} states"
    merge(v[:0], s[:0])


def test_one_state_comes_back_bit_for_bit():
    for dtype in ("f32", "f16", "bf16"):
        v, s = normal(33, 1, 4, 128, dtype=dtype), torch.randn(33, 1, 4, device="cuda") * 100
        out, merged = merge(v, s, dtype)
        expect_same_bits(out.view, v[:, 0])
        expect_close(merged.view, s[:, 0], 1e-7)


def test_strides_and_in_place():
    heads_first = lse(8, 3, 65).permute(2, 1, 0)  # vLLM's order: [heads, tokens] for each state
    check(normal(65, 3, 8, 128), heads_first, "bf16", "lse with heads first")
    packed = normal(65, 3, 8, 160)[..., :128]
    check(packed, lse(65, 3, 8), "bf16", "padded heads")
    v, s = normal(65, 2, 8, 128), lse(65, 2, 8)
    s[s.isinf()] = 0.0
    want, _ = reference(v, s)
    for target in (0, 1):
        copy = v.clone()
        merge(copy, s, out=copy[:, target], pair=True)
        expect_close(copy[:, target], want, TOLERANCE["bf16"], f"into state {target}")
        expect_same_bits(copy[:, 1 - target], v[:, 1 - target])


def test_parts_of_attention_are_attention():
    q, k, v = (torch.randn(37, 8, n, 64, device="cuda", dtype=torch.float64) for n in (1, 500, 500))
    x = (q @ k.transpose(-1, -2)).squeeze(2) / 8
    cuts = [0, 1, 100, 100, 350, 500]
    means, lses = [], []
    for a, b in zip(cuts, cuts[1:]):
        means.append((torch.softmax(x[..., a:b], -1).unsqueeze(-1) * v[:, :, a:b]).sum(2))
        lses.append(torch.logsumexp(x[..., a:b], -1) * 1.4426950408889634)
    out, merged = merge(torch.stack(means, 1).float(), torch.stack(lses, 1).float(), "f32")
    expect_close(out.view, (torch.softmax(x, -1).unsqueeze(-1) * v).sum(2), 4e-6)
    expect_close(merged.view, torch.logsumexp(x, -1) * 1.4426950408889634, 1e-6)


def test_refused():
    v, s, out = normal(5, 3, 4, 128), lse(5, 3, 4), normal(5, 4, 128)
    call = lambda *a, **p: kernel("attn_merge", T="bf16", D=128, **p)(*a)
    strides = (512, 128, 1536, 512, 128, 12, 4, 1)
    expect_refused(lambda: call(out, v, s, -1, 3, 4, *strides), "tokens", "-1")
    expect_refused(lambda: call(out, v, s, 5, 3, 4, *strides, PAIR=True), "PAIR", "states", "3")
    expect_refused(lambda: call(out, v, s, 5, 3, 4, 513, *strides[1:]), "strides", "513", "VEC")
    expect_refused(lambda: call(out, v, s, 5, 3, 4, *strides, s), "s_out")
    expect_refused(lambda: call(v, v, s, 5, 3, 4, *strides), "out may be v")


def test_runs_are_identical():
    v, s = normal(517, 9, 8, 128), lse(517, 9, 8)
    first, _ = merge(v, s)
    for vec, threads in ((8, 128), (4, 256), (1, 64)):
        again, _ = merge(v, s, VEC=vec, THREADS=threads)
        expect_same_bits(again.view, first.view, f"VEC={vec} THREADS={threads}")


def bench():
    heads, d = 32, 128
    for tokens, states, pair in (
        (64, 2, True),
        (4096, 2, True),
        (16384, 2, True),
        (64, 8, False),
        (4096, 4, False),
        (4096, 16, False),
    ):

        def make(tokens=tokens, states=states, pair=pair):
            v = [normal(tokens, 1 if pair else states, heads, d) for _ in range(2 if pair else 1)]
            s = [torch.randn(tokens, 1 if pair else states, heads, device="cuda") for _ in v]
            return (
                torch.empty(tokens, heads, d, device="cuda", dtype=torch.bfloat16),
                torch.empty(tokens, heads, device="cuda"),
                v[0],
                s[0],
                v[-1],
                s[-1],
            )

        def ours(
            out, s_out, v, s, v_b, s_b, run=kernel("attn_merge", T="bf16", D=d, PAIR=pair), tokens=tokens, states=states, pair=pair
        ):
            run(
                out,
                v,
                s,
                tokens,
                states,
                heads,
                heads * d,
                d,
                *v.stride()[:3],
                *s.stride(),
                s_out,
                heads,
                1,
                *((v_b, s_b) if pair else ()),
            )

        def eager(out, s_out, v, s, v_b, s_b, pair=pair):
            if pair:
                v, s = torch.cat([v, v_b], 1), torch.cat([s, s_b], 1)
            return (torch.softmax(s * 0.6931471805599453, 1).unsqueeze(-1) * v).sum(1).to(v.dtype), torch.logsumexp(
                s * 0.6931471805599453, 1
            )

        launches = {"kiln": ours, "compile": compiled(eager)}
        for label, peer in peers.get("attn_merge_pair" if pair else "attn_merge").items():
            launches[label] = peer
        yield Row(
            f"attn_merge bf16 {tokens} tokens x {states} states x {heads} x {d}" + (" pair" if pair else ""),
            tokens * states * heads * (d * 2 + 4),
            tokens * heads * (d * 2 + 4),
            make,
            launches,
        )
