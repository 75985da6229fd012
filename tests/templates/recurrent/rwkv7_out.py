"""rwkv7_out against float64; and its time beside PyTorch and Flash Linear Attention."""

import itertools

import torch
from harness import (
    DTYPES,
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

TYPES = ("f32", "f16", "bf16")
EPS = 64e-5
SANITIZE = [
    "rwkv7_out T=bf16 D=64 tokens=37 heads=3",
    "rwkv7_out T=f32 D=100 tokens=11 heads=5 NORM=true",
    "rwkv7_out T=f16 D=255 tokens=9 heads=2 NORM=true",
    "rwkv7_out T=bf16 D=64 tokens=37 heads=3 TOKENS=2 NORM=true",
]


def inputs(tokens, heads, d, dtype="bf16"):
    """Random o, r, k, v, g, r_k."""
    return (*(normal(tokens, heads, d, dtype=dtype) for _ in range(5)), normal(heads, d, dtype=dtype, scale=0.1))


def affine(heads, d, dtype="bf16"):
    return (torch.rand(heads, d, device="cuda") + 0.5).to(DTYPES[dtype]), normal(heads, d, dtype=dtype)


def reference(o, r, k, v, g, r_k, weight=None, bias=None, norm=False, eps=EPS):
    o, r, k, v, g, r_k = (t.double() for t in (o, r, k, v, g, r_k))
    if norm:
        o = (o - o.mean(-1, keepdim=True)) * torch.rsqrt(o.var(-1, unbiased=False, keepdim=True) + eps)
        o = o * (1.0 if weight is None else weight.double()) + (0.0 if bias is None else bias.double())
    return (o + (r * k * r_k).sum(-1, keepdim=True) * v) * g


def run(x, dtype="bf16", weight=None, bias=None, norm=False, eps=EPS, out=None, **parameters):
    tokens, heads, d = x[0].shape
    guarded = Guarded(tokens, heads, d, dtype=dtype)
    kernel("rwkv7_out", T=dtype, D=d, NORM=norm, **parameters)(
        guarded.view if out is None else out, *x, tokens, heads, weight, bias, eps
    )
    return guarded


def compare(x, dtype, what, weight=None, bias=None, norm=False, eps=EPS, **parameters):
    out = run(x, dtype, weight, bias, norm, eps, **parameters)
    expect_close(out.view, reference(*x, weight, bias, norm, eps), TOLERANCE[dtype], what)
    out.check(what)


def test_every_dtype_and_head_size():
    sizes = [1, 3, 32, 33, 60, 64, 96, 100, 128, 192, 255, 256]
    for dtype, d, norm in itertools.product(TYPES, sizes, (False, True)):
        prefetch("rwkv7_out", T=dtype, D=d, NORM=norm)
    for dtype, d, norm in itertools.product(TYPES, sizes, (False, True)):
        for tokens, heads in ((1, 1), (3, 5), (65, 32)):
            what = f"{dtype} D={d} NORM={norm} {tokens} x {heads}"
            x = inputs(tokens, heads, d, dtype)
            compare(x, dtype, what, *(affine(heads, d, dtype) if norm else (None, None)), norm)


def test_weight_and_bias_are_optional():
    x = inputs(9, 4, 64)
    weight, bias = affine(4, 64)
    for w, b in itertools.product((None, weight), (None, bias)):
        compare(x, "bf16", f"weight={w is not None} bias={b is not None}", w, b, True)


def test_norm_is_that_of_torch():
    x = inputs(40, 6, 64, "f32")
    weight, bias = affine(6, 64, "f32")
    o = torch.nn.functional.group_norm(x[0].view(40, -1), 6, weight.view(-1), bias.view(-1), EPS).view(40, 6, 64)
    expect_close(run(x, "f32", weight, bias, True).view, reference(o, *x[1:]), 1e-5)


def test_norm_of_a_large_mean_and_of_zeros():
    x = inputs(8, 4, 64, "f32")
    x[0].add_(10.0)
    x[0][3] = 0
    x[0][4] = 7.0
    compare(x, "f32", "mean 10", norm=True, eps=1e-2)


def test_tokens_per_thread():
    for dtype, tokens, norm in itertools.product(TYPES, (1, 2, 3, 65), (False, True)):
        compare(inputs(tokens, 7, 64, dtype), dtype, f"{dtype} {tokens} tokens", norm=norm, TOKENS=2)


def test_special_values_stay_in_their_head():
    x = inputs(6, 4, 64)
    x[0][1, 2, 3] = float("nan")
    x[1][2, 1, 0] = float("inf")
    for norm in (False, True):
        out = run(x, norm=norm).view
        assert bool(out[1, 2].isnan().all()) == norm and bool(out[1, 2, 3].isnan()), (
            "a NaN of o: its head with NORM, else its element"
        )
        assert not bool(torch.isfinite(out[2, 1]).any()), "an infinite bonus reaches its whole head"
        out[1, 2], out[2, 1] = 0, 0
        assert bool(torch.isfinite(out).all())


def test_in_place_and_identical():
    for norm in (False, True):
        x = inputs(4097, 8, 64)
        first = run(x, norm=norm).view
        for _ in range(5):
            expect_same_bits(run(x, norm=norm).view, first)
        run(x, norm=norm, out=x[0])
        expect_same_bits(x[0], first)


def test_large():
    x = inputs(32768, 32, 64)
    weight, bias = affine(32, 64)
    out = run(x, "bf16", weight, bias, True)
    for first in (0, 16000, 32000):
        part = slice(first, first + 700)
        expect_close(out.view[part], reference(*(t[part] for t in x[:5]), x[5], weight, bias, True), TOLERANCE["bf16"])
    out.check()


def test_offsets_beyond_31_bits():
    tokens, heads, d = (1 << 31) // 2048 + 9, 32, 64
    x = [torch.zeros(tokens, heads, d, device="cuda", dtype=torch.bfloat16) for _ in range(5)]
    small = inputs(9, heads, d)
    for large, part in zip(x, small):
        large[-9:] = part
    out = torch.full_like(x[0], float("nan"))
    kernel("rwkv7_out", T="bf16", D=d, NORM=False)(out, *x, small[5], tokens, heads)
    expect_close(out[-9:], reference(*small), TOLERANCE["bf16"])
    assert bool((out[:-9] == 0).all())


def test_refusals_and_nothing_to_do():
    x = inputs(4, 2, 64)
    out = torch.empty_like(x[0])
    plain = kernel("rwkv7_out", T="bf16", D=64, NORM=False)
    expect_refused(lambda: plain(out, *x, 4, 2, x[5]), "NORM")
    expect_refused(lambda: plain(out, *x, 4, -2), "heads", "-2")
    expect_refused(lambda: kernel("rwkv7_out", T="bf16", D=257), "D", "257")
    plain(out, *x, 0, 2)


def eager(o, r, k, v, g, r_k, weight, bias, norm):
    if norm:
        o = torch.nn.functional.group_norm(o.view(o.shape[0], -1), o.shape[1], weight.view(-1), bias.view(-1), EPS).view(o.shape)
    return (o + (r * k * r_k).sum(-1, keepdim=True) * v) * g


def bench():
    """Peer "fla_out" is called with o, r, k, v, g, r_k, weight, bias, norm (False:
    without its group norm), eps.
    """
    for tokens, heads, d, norm in (
        (1, 32, 64, True),
        (64, 32, 64, False),
        (64, 32, 64, True),
        (512, 32, 64, True),
        (4096, 32, 64, True),
        (32768, 32, 64, False),
        (32768, 32, 64, True),
        (32768, 16, 128, True),
    ):
        launches = {}
        for label, parameters in {"": {}, " TOKENS=2": dict(TOKENS=2)}.items():
            k = kernel("rwkv7_out", T="bf16", D=d, NORM=norm, **parameters)
            launches["kiln" + label] = lambda out, weight, bias, *x, k=k, tokens=tokens, heads=heads, norm=norm: k(
                out, *x, tokens, heads, weight if norm else None, bias if norm else None, EPS
            )
        launches["eager"] = lambda out, weight, bias, *x, norm=norm: eager(*x, weight, bias, norm)
        if tokens in (64, 32768):
            launches["compile"] = compiled(lambda out, weight, bias, *x, norm=norm: eager(*x, weight, bias, norm))
        for label, peer in peers.get("fla_out").items():
            launches[label] = lambda out, weight, bias, *x, peer=peer, norm=norm: peer(*x, weight, bias, norm, EPS)
        size = 2 * tokens * heads * d

        def make(tokens=tokens, heads=heads, d=d):
            return torch.empty(tokens, heads, d, device="cuda", dtype=torch.bfloat16), *affine(heads, d), *inputs(tokens, heads, d)

        yield Row(
            f"rwkv7_out bf16 {tokens} x {heads} x {d}{' NORM' if norm else ''}",
            5 * size + (6 if norm else 2) * heads * d,
            size,
            make,
            launches,
        )
