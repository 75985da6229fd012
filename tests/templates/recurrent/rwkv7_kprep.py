"""rwkv7_kprep against float64; and its time beside PyTorch and Flash Linear Attention."""

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
SANITIZE = [
    "rwkv7_kprep T=bf16 D=64 tokens=37 heads=3 WITH_B=true",
    "rwkv7_kprep T=f32 D=100 tokens=11 heads=5",
    "rwkv7_kprep T=f16 D=255 tokens=9 heads=2 WITH_B=true",
    "rwkv7_kprep T=bf16 D=64 tokens=38 heads=3 TOKENS=2",
    "rwkv7_kprep T=bf16 D=100 tokens=37 heads=3 WITH_V=true",
]


def inputs(tokens, heads, d, dtype="bf16"):
    """Random k, a, k_k, k_a."""
    return (
        normal(tokens, heads, d, dtype=dtype),
        torch.rand(tokens, heads, d, device="cuda").to(DTYPES[dtype]),
        normal(heads, d, dtype=dtype),
        (torch.rand(heads, d, device="cuda") + 0.5).to(DTYPES[dtype]),
    )


def reference(k, a, k_k, k_a, eps=1e-6):
    """k', kk and b in float64."""
    k, a, k_k, k_a = (t.double() for t in (k, a, k_k, k_a))
    kk = k * k_k
    kk = kk * torch.rsqrt(kk.pow(2).sum(-1, keepdim=True) + eps)
    return k * (1 + (a - 1) * k_a), kk, kk * a


def run(x, dtype="bf16", eps=1e-6, with_b=True, k_out=None, **parameters):
    tokens, heads, d = x[0].shape
    out = [Guarded(tokens, heads, d, dtype=dtype) for _ in range(3 if with_b else 2)]
    kernel("rwkv7_kprep", T=dtype, D=d, WITH_B=with_b, **parameters)(
        out[0].view if k_out is None else k_out, out[1].view, *x, tokens, heads, eps, out[2].view if with_b else None
    )
    return out


def compare(x, dtype, what, eps=1e-6, **parameters):
    for name, got, want in zip(("k", "kk", "b"), run(x, dtype, eps, **parameters), reference(*x, eps)):
        expect_close(got.view, want, TOLERANCE[dtype], f"{what}: {name}")
        got.check(f"{what}: {name}")


def conditioned_inputs(tokens, heads, d, dtype):
    """Inputs whose k' is not the rest of two terms that cancel: the relative error of
    such a rest has no bound.
    """
    while True:
        x = inputs(tokens, heads, d, dtype)
        k, a, _, k_a = (t.double() for t in x)
        if (k * (1 + (a - 1) * k_a)).norm() >= k.norm() / 8:
            return x


def test_every_dtype_and_head_size():
    sizes = [1, 3, 32, 33, 60, 64, 96, 100, 128, 192, 255, 256]
    for dtype, d in itertools.product(TYPES, sizes):
        prefetch("rwkv7_kprep", T=dtype, D=d, WITH_B=True)
    for dtype, d in itertools.product(TYPES, sizes):
        for tokens, heads in ((1, 1), (3, 5), (65, 32)):
            compare(conditioned_inputs(tokens, heads, d, dtype), dtype, f"{dtype} D={d} {tokens} x {heads}")


def test_tokens_per_thread():
    for dtype, tokens in itertools.product(TYPES, (1, 2, 3, 5, 66)):
        compare(inputs(tokens, 7, 64, dtype), dtype, f"{dtype} {tokens} tokens", TOKENS=2)
    compare(inputs(7, 7, 64), "bf16", "4 each", TOKENS=4, VEC=4)


def test_without_b():
    x = inputs(20, 4, 64)
    for one, other in zip(run(x, with_b=False), run(x)):
        expect_same_bits(one.view, other.view)


def with_value(x, value, dtype, v_out=None, **parameters):
    """The results of a call that also mixes the value: k', kk and v'."""
    tokens, heads, d = x[0].shape
    out = [Guarded(tokens, heads, d, dtype=dtype) for _ in range(3)]
    last = out[2].view if v_out is None else v_out
    launch = kernel("rwkv7_kprep", T=dtype, D=d, WITH_V=True, **parameters)
    launch(out[0].view, out[1].view, *x, tokens, heads, 1e-6, None, last, *value)
    return out


def test_the_value():
    for dtype, d in itertools.product(TYPES, (1, 33, 60, 64, 128, 256)):
        for tokens, heads in ((1, 1), (3, 5), (65, 32)):
            x, value = inputs(tokens, heads, d, dtype), inputs(tokens, heads, d, dtype)
            value = (value[0], normal(tokens, heads, d, dtype=dtype), value[1])
            out = with_value(x, value, dtype)
            for one, other in zip(out, run(x, dtype, with_b=False)):
                expect_same_bits(one.view, other.view)
            what = f"{dtype} D={d} {tokens} x {heads}: v"
            expect_close(out[2].view, torch.lerp(*(one.double() for one in value)), TOLERANCE[dtype], what)
            out[2].check(what)


def test_the_value_in_place():
    x = inputs(33, 4, 64)
    value = (normal(33, 4, 64), normal(33, 4, 64), x[1])
    for tokens in (1, 2):
        want = with_value(x, value, "bf16", TOKENS=tokens)[2].view
        own = value[0].clone()
        with_value(x, (own, *value[1:]), "bf16", v_out=own, TOKENS=tokens)
        expect_same_bits(own, want)


def test_zeros_and_large_values():
    for dtype in TYPES:
        x = inputs(6, 4, 64, dtype)
        x[0][0] = 0
        x[0][1] *= 100
        x[0][2] *= 1e-3
        compare(x, dtype, f"{dtype}")
        out = run(x, dtype)
        assert bool((out[1].view[0] == 0).all()), "a head of zeros has no direction"
    x[0][3, 2, 5] = float("nan")
    kk = run(x, "bf16")[1].view
    assert bool(kk[3, 2].isnan().all()) and not bool(kk[3, 1].isnan().any()) and not bool(kk[2].isnan().any()), (
        "a NaN stays in its head"
    )


def test_eps():
    x = inputs(5, 3, 64, "f32")
    x[0].mul_(1e-2)
    for eps in (1e-6, 1e-2, 1e-24):
        compare(x, "f32", f"eps={eps}", eps)


def test_the_key_in_place():
    x = inputs(33, 4, 64)
    apart = run(x)
    together = run(x, k_out=x[0])
    expect_same_bits(x[0], apart[0].view)
    expect_same_bits(together[1].view, apart[1].view)


def test_large_and_identical():
    x = inputs(32768, 32, 64)
    out = run(x)
    for first in (0, 16000, 32000):
        part = slice(first, first + 700)
        for got, want in zip(out, reference(x[0][part], x[1][part], *x[2:])):
            expect_close(got.view[part], want, TOLERANCE["bf16"])
    for one, other in zip(run(x), out):
        expect_same_bits(one.view, other.view)


def test_offsets_beyond_31_bits():
    tokens, heads, d = (1 << 31) // 2048 + 9, 32, 64
    k, a, k_k, k_a = inputs(tokens, heads, d)
    kk = torch.full_like(k, float("nan"))
    kernel("rwkv7_kprep", T="bf16", D=d, WITH_B=False)(k, kk, k.clone(), a, k_k, k_a, tokens, heads)
    small = inputs(9, heads, d)
    assert not bool(kk[-9:].isnan().any()) and not bool(kk[:9].isnan().any())
    k[-9:], a[-9:] = small[0], small[1]
    kernel("rwkv7_kprep", T="bf16", D=d, WITH_B=False)(k, kk, k.clone(), a, k_k, k_a, tokens, heads)
    want = reference(small[0], small[1], k_k, k_a)
    expect_close(k[-9:], want[0], TOLERANCE["bf16"])
    expect_close(kk[-9:], want[1], TOLERANCE["bf16"])


def test_refusals_and_nothing_to_do():
    x = inputs(4, 2, 64)
    out = torch.empty_like(x[0])
    plain, with_b = (kernel("rwkv7_kprep", T="bf16", D=64, WITH_B=w) for w in (False, True))
    expect_refused(lambda: with_b(out, out, *x, 4, 2, 1e-6), "WITH_B")
    expect_refused(lambda: plain(out, out, *x, 4, 2, 1e-6, out), "WITH_B")
    expect_refused(lambda: plain(out, out, *x, -4, 2, 1e-6), "tokens", "-4")
    expect_refused(lambda: kernel("rwkv7_kprep", T="bf16", D=257), "D", "257")
    expect_refused(lambda: kernel("rwkv7_kprep", T="bf16", D=60, VEC=8), "VEC")
    value = kernel("rwkv7_kprep", T="bf16", D=64, WITH_V=True)
    expect_refused(lambda: value(out, out, *x, 4, 2, 1e-6, None, out, out, out, None), "WITH_V")
    expect_refused(lambda: plain(out, out, *x, 4, 2, 1e-6, None, out, out, out, out), "WITH_V")
    plain(out, out, *x, 0, 2)


def eager(k, a, k_k, k_a):
    kk = torch.nn.functional.normalize(k * k_k, dim=-1)
    return k.addcmul(k * (a - 1), k_a), kk, kk * a


def bench():
    """Peer "fla_kprep" is called with k, a, k_k, k_a: its l2norm and key update, and kk * a in torch."""
    for tokens, heads, d in (
        (1, 32, 64),
        (8, 32, 64),
        (64, 32, 64),
        (512, 32, 64),
        (4096, 32, 64),
        (32768, 32, 64),
        (32768, 16, 128),
    ):
        launches = {}
        for label, parameters in {"": {}, " TOKENS=2": dict(TOKENS=2)}.items():
            k = kernel("rwkv7_kprep", T="bf16", D=d, WITH_B=True, **parameters)
            launches["kiln" + label] = lambda k_out, kk, b, *x, k=k, tokens=tokens, heads=heads: k(
                k_out, kk, *x, tokens, heads, 1e-6, b
            )
        launches["eager"] = lambda k_out, kk, b, *x: eager(*x)
        if tokens in (64, 32768):
            launches["compile"] = compiled(lambda k_out, kk, b, *x: eager(*x))
        for label, peer in peers.get("fla_kprep").items():
            launches[label] = lambda k_out, kk, b, *x, peer=peer: peer(*x)
        size = 2 * tokens * heads * d

        def make(tokens=tokens, heads=heads, d=d):
            return *(torch.empty(tokens, heads, d, device="cuda", dtype=torch.bfloat16) for _ in range(3)), *inputs(
                tokens, heads, d
            )

        yield Row(f"rwkv7_kprep bf16 {tokens} x {heads} x {d}", 2 * size + 4 * heads * d, 3 * size, make, launches)
