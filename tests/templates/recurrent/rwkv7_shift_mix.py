"""rwkv7_shift_mix against float64: sequence boundaries, caches, every number of outputs.

Its time is compared with Flash Linear Attention's two kernels.
"""

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

DTYPES_HERE = ("f32", "f16", "bf16")

SANITIZE = [
    "rwkv7_shift_mix T=bf16 D=768 sequences=3 length=17",
    "rwkv7_shift_mix T=f32 D=129 OUTPUTS=5 sequences=2 length=9",
    "rwkv7_shift_mix T=bf16 D=256 OUTPUTS=1 VARLEN=true sequences=9 length=40",
    "rwkv7_shift_mix T=f16 D=2048 sequences=64 length=1",
]


def reference(x, mu, lengths, cache=None):
    """The mixes [OUTPUTS, tokens, D] and the new cache in float64, of x [tokens, D]
    with sequences of `lengths`.
    """
    x, mu = x.double(), mu.double()
    before, last, begin = torch.zeros_like(x), torch.zeros(len(lengths), x.shape[1], dtype=torch.float64, device="cuda"), 0
    for n, length in enumerate(lengths):
        own = cache[n].double() if cache is not None else torch.zeros_like(last[n])
        last[n] = own
        if length:
            before[begin] = own
            before[begin + 1 : begin + length] = x[begin : begin + length - 1]
            last[n] = x[begin + length - 1]
        begin += length
    return x + (before - x) * mu[:, None], last


def run(x, mu, sequences, length, dtype="bf16", cache=None, cu_seqlens=None, cache_out=None, **parameters):
    tokens, d = x.shape
    out = Guarded(mu.shape[0], tokens, d, dtype=dtype)
    last = Guarded(sequences, d, dtype=dtype) if cache_out is None else cache_out
    k = kernel("rwkv7_shift_mix", T=dtype, D=d, OUTPUTS=mu.shape[0], VARLEN=cu_seqlens is not None, **parameters)
    k(
        out.view,
        x,
        mu,
        sequences,
        length,
        x.stride(0) if tokens else d,
        d,
        tokens * d,
        cache,
        last.view if last else None,
        cu_seqlens,
    )
    return out, last


def compare(lengths, d, outputs, dtype, given, varlen, **parameters):
    what = f"{dtype} D={d} OUTPUTS={outputs} {lengths[:9]} cache={given} varlen={varlen} {parameters}"
    x, mu = normal(sum(lengths), d, dtype=dtype), torch.rand(outputs, d, device="cuda").to(DTYPES[dtype])
    cache = normal(len(lengths), d, dtype=dtype) if given else None
    cu = torch.tensor([0, *itertools.accumulate(lengths)], device="cuda", dtype=torch.int64) if varlen else None
    out, last = run(x, mu, len(lengths), sum(lengths) if varlen else lengths[0], dtype, cache, cu, **parameters)
    want, want_last = reference(x, mu, lengths, cache)
    expect_close(out.view, want, TOLERANCE[dtype], what)
    expect_same_bits(last.view, want_last.to(DTYPES[dtype]), what + ": the new cache")
    out.check(what)
    last.check(what)


def test_every_dtype_width_and_number_of_outputs():
    widths = [1, 7, 64, 129, 768, 1000, 2048, 2560, 4096]
    for dtype, d, outputs in itertools.product(DTYPES_HERE, widths, (1, 5, 6)):
        prefetch("rwkv7_shift_mix", T=dtype, D=d, OUTPUTS=outputs, VARLEN=False)
    for dtype, d, outputs in itertools.product(DTYPES_HERE, widths, (1, 5, 6)):
        for lengths in ([1], [2, 2, 2], [13, 13]):
            compare(lengths, d, outputs, dtype, True, False)


def test_lengths_and_caches():
    for length, batch, given, tokens in itertools.product((0, 1, 2, 3, 4, 5, 8, 15, 100), (1, 4), (False, True), (1, 2, 4)):
        compare([length] * batch, 256, 6, "bf16", given, False, TOKENS=tokens)


def test_variable_lengths():
    for lengths in (
        [0, 15, 100, 300, 1200, 1599, 1800, 2000],
        [0, 0, 15, 1, 0, 300, 0],
        [1] * 77,
        [0, 0, 0],
        [5],
        [1, 0, 0, 0, 1, 2, 0, 3],
        [0, 1],
    ):
        for given, tokens in itertools.product((False, True), (1, 2, 4)):
            compare(lengths, 256, 6, "bf16", given, True, TOKENS=tokens)
        compare(lengths, 100, 1, "f32", True, True)


def test_the_new_cache_is_of_each_sequence():
    """The cache has the last row of each sequence. Flash Linear Attention's channel mixing
    takes the batch's last row.
    """
    x, mu = normal(12, 64), torch.rand(1, 64, device="cuda").to(torch.bfloat16)
    _, last = run(x, mu, 3, 4)
    expect_same_bits(last.view, x[[3, 7, 11]])


def test_calls_continue_each_other():
    x, mu = normal(3, 50, 128), torch.rand(6, 128, device="cuda").to(torch.bfloat16)
    whole, whole_last = run(x.view(150, 128), mu, 3, 50)
    cache, begin = None, 0
    for length in (1, 1, 5, 13, 30):
        part, last = run(x[:, begin : begin + length].reshape(-1, 128), mu, 3, length, cache=cache)
        expect_same_bits(
            part.view.view(6, 3, length, 128), whole.view.view(6, 3, 50, 128)[:, :, begin : begin + length], f"from {begin}"
        )
        cache, begin = last.view.clone(), begin + length
    expect_same_bits(cache, whole_last.view)


def test_decode_replaces_its_cache_in_place():
    x, mu, cache = normal(9, 2048), torch.rand(6, 2048, device="cuda").to(torch.bfloat16), Guarded(9, 2048)
    cache.view.copy_(normal(9, 2048))
    want, _ = reference(x, mu, [1] * 9, cache.view)
    out, _ = run(x, mu, 9, 1, cache=cache.view, cache_out=cache)
    expect_close(out.view, want, TOLERANCE["bf16"])
    expect_same_bits(cache.view, x)
    cache.check()
    y = normal(36, 2048)
    expect_refused(lambda: run(y, mu, 9, 4, cache=cache.view, cache_out=cache), "cache_out", "TOKENS")


def test_strides():
    k = kernel("rwkv7_shift_mix", T="bf16", D=256, OUTPUTS=5, VARLEN=False)
    for stride_x, stride_out, stride_mix in ((264, 256, 26 * 256), (256, 512, 26 * 512 + 8), ((1 << 31) // 16, 272, 1 << 31)):
        x, out = Guarded(26, 256, strides=(stride_x, 1)), Guarded(5, 26, 256, strides=(stride_mix, stride_out, 1))
        x.view.copy_(normal(26, 256))
        mu = torch.rand(5, 256, device="cuda").to(torch.bfloat16)
        k(out.view, x.view, mu, 2, 13, stride_x, stride_out, stride_mix)
        expect_close(
            out.view, reference(x.view, mu, [13, 13])[0], TOLERANCE["bf16"], f"strides {stride_x} {stride_out} {stride_mix}"
        )
        out.check()
    expect_refused(lambda: k(out.view, x.view, mu, 2, 13, 257, 256, 26 * 256), "strides", "257", "VEC")


def test_special_values():
    x, mu = normal(8, 64, dtype="f32"), torch.rand(6, 64, device="cuda")
    x[2, 5] = float("nan")
    x[4, 7] = float("inf")
    out, _ = run(x, mu, 2, 4, "f32")
    want, _ = reference(x, mu, [4, 4])
    finite = torch.isfinite(want)
    assert bool((torch.isfinite(out.view) == finite).all()), "what is not finite stays in its column, its token and the next"
    expect_close(out.view[finite], want[finite], TOLERANCE["f32"])


def test_refusals_and_nothing_to_do():
    x, mu = normal(4, 64), torch.rand(6, 64, device="cuda").to(torch.bfloat16)
    cu = torch.tensor([0, 4], device="cuda")
    out = torch.empty(6, 4, 64, device="cuda", dtype=torch.bfloat16)
    fixed, several = (kernel("rwkv7_shift_mix", T="bf16", D=64, OUTPUTS=6, VARLEN=v) for v in (False, True))
    expect_refused(lambda: fixed(out, x, mu, 1, 4, 64, 64, 256, None, None, cu), "cu_seqlens", "VARLEN")
    expect_refused(lambda: several(out, x, mu, 1, 4, 64, 64, 256), "cu_seqlens", "VARLEN")
    expect_refused(lambda: fixed(out, x, mu, -1, 4, 64, 64, 256), "sequences", "-1")
    expect_refused(lambda: several(out, x, mu, 0, 4, 64, 64, 256, None, None, cu[:1]), "of no sequence")
    expect_refused(lambda: kernel("rwkv7_shift_mix", T="bf16", D=64, OUTPUTS=3), "OUTPUTS")
    fixed(out, x, mu, 0, 4, 64, 64, 256)


def test_large():
    x, mu = normal(8 * 4096, 2048), torch.rand(6, 2048, device="cuda").to(torch.bfloat16)
    cache = normal(8, 2048)
    out, _last = run(x, mu, 8, 4096, cache=cache)
    for n in (0, 3, 7):
        part = slice(n * 4096, (n + 1) * 4096)
        expect_close(out.view[:, part], reference(x[part], mu, [4096], cache[n : n + 1])[0], TOLERANCE["bf16"], f"sequence {n}")
    assert not bool(out.view.isnan().any())
    out.check()


def eager(x, mu, cache, batch, length):
    x = x.view(batch, length, -1)
    d = torch.cat((cache[:, None], x[:, :-1]), 1) - x
    return [torch.addcmul(x, d, m) for m in mu], x[:, -1].clone()


def bench():
    """Peer "fla_shift_mix" is called with x [B, T, D], mu [OUTPUTS, D], cache [B, D]. It shifts, then mixes."""
    for batch, length, d, outputs in (
        (1, 1, 2048, 6),
        (8, 1, 2048, 6),
        (64, 1, 2048, 6),
        (64, 1, 4096, 6),
        (8, 64, 2048, 6),
        (1, 4096, 2048, 6),
        (8, 4096, 2048, 6),
        (8, 4096, 2048, 5),
        (8, 4096, 2048, 1),
        (8, 4096, 4096, 6),
    ):
        tokens = batch * length
        launches = {}
        for label, parameters in {"": {}, " TOKENS=1": dict(TOKENS=1), " TOKENS=4": dict(TOKENS=4)}.items():
            k = kernel("rwkv7_shift_mix", T="bf16", D=d, OUTPUTS=outputs, VARLEN=False, **parameters)
            launches["kiln" + label] = lambda o, last, x, mu, cache, k=k, batch=batch, length=length, d=d, tokens=tokens: k(
                o, x, mu, batch, length, d, d, tokens * d, cache, last
            )
        launches["eager"] = lambda o, last, x, mu, cache, batch=batch, length=length: eager(x, mu, cache, batch, length)
        if tokens in (64, 32768):
            launches["compile"] = compiled(
                lambda o, last, x, mu, cache, batch=batch, length=length: eager(x, mu, cache, batch, length)
            )
        for label, peer in peers.get("fla_shift_mix").items():
            launches[label] = lambda o, last, x, mu, cache, peer=peer, batch=batch, length=length: peer(
                x.view(batch, length, -1), mu, cache
            )

        def make(batch=batch, tokens=tokens, d=d, outputs=outputs):
            return (
                torch.empty(outputs, tokens, d, device="cuda", dtype=torch.bfloat16),
                torch.empty(batch, d, device="cuda", dtype=torch.bfloat16),
                normal(tokens, d),
                torch.rand(outputs, d, device="cuda").to(torch.bfloat16),
                normal(batch, d),
            )

        yield Row(
            f"rwkv7_shift_mix bf16 B{batch} T{length} D{d} -> {outputs}",
            2 * d * (tokens + batch + outputs),
            2 * d * (tokens * outputs + batch),
            make,
            launches,
        )
