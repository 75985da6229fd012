"""mla_append against the same scatter in torch, bit for bit, and its fp8 rows against float64. Other bytes must not change.

Peers (harness.peers) are called as (kv_cache, c_kv, k_pe, slot_mapping). The cache is [pages, 64, 576], or u8 [pages, 64, 656].
"""

import itertools

import torch
from harness import DTYPES, Guarded, Row, compiled, expect_refused, expect_same_bits, kernel, normal, peers, prefetch

SANITIZE = [
    "mla_append T=bf16 tokens=37",
    "mla_append T=f16 KV=e4m3 tokens=301 page_size=7",
    "mla_append T=bf16 KV=e4m3 POW2=true IDTYPE=i32 WARPS=8 tokens=37",
]
VALUES, ROTATED, BYTES = 512, 64, 656


class Cache:
    """A cache in guarded memory, filled with random bits. Rows are 576 elements of `dtype`, or 656 bytes where fp8 is true."""

    def __init__(self, pages, page_size, dtype="bf16", fp8=False, pad=0):
        self.page_size, self.fp8 = page_size, fp8
        row = BYTES if fp8 else VALUES + ROTATED
        pad *= 16
        strides = ((page_size * (row + pad)) + pad, row + pad, row, 1)
        self.guard = Guarded(pages, page_size, 1, row, dtype="e4m3" if fp8 else dtype, strides=strides)
        self.view, self.bits = self.guard.view, self.guard.bits
        self.bits.copy_(torch.randint(-100, 100, self.bits.shape, dtype=torch.int16, device="cuda").to(self.bits.dtype))
        self.before = self.bits.clone()

    def rows(self, slot):
        """The rows at these slots, as bytes."""
        found = self.bits[slot // self.page_size, slot % self.page_size, 0].contiguous()
        return found.view(torch.uint8)

    def expect_nothing_else(self, slot, what):
        after, then = self.bits.clone(), self.before.clone()
        for bits in (after, then):
            bits[slot // self.page_size, slot % self.page_size] = 0
        assert torch.equal(after, then), f"{what}: a place that is not addressed has changed"
        self.guard.check(what)


def append(cache, c_kv, k_pe, slot_mapping, **parameters):
    dtype = next(n for n, t in DTYPES.items() if t == c_kv.dtype)
    idtype = "i32" if slot_mapping.dtype == torch.int32 else "i64"
    kernel("mla_append", T=dtype, KV="e4m3" if cache.fp8 else dtype, IDTYPE=idtype, **parameters)(
        cache.view,
        c_kv,
        k_pe,
        len(slot_mapping),
        cache.page_size,
        c_kv.stride(0),
        k_pe.stride(0),
        cache.view.stride(0),
        cache.view.stride(1),
        slot_mapping,
    )


def slots(tokens, count, skip=0.2, dtype="i64"):
    """Distinct slots below `count`, some of them replaced by -1."""
    out = torch.randperm(count, device="cuda")[:tokens].to(DTYPES[dtype])
    out[torch.rand(tokens, device="cuda") < skip] = -1
    return out


def expect_fp8(rows, c_kv, k_pe, pow2, what):
    """Expects rows of 656 bytes: scales within one ulp (exactly, with pow2), and codes next to the exact quotient."""
    n = len(rows)
    if n == 0:
        return
    expect_same_bits(rows[:, VALUES + 16 :].contiguous().view(k_pe.dtype), k_pe, f"{what} rotated")
    scales = rows[:, VALUES : VALUES + 16].contiguous().view(torch.float32).double()
    groups = c_kv.double().view(n, 4, 128)
    largest = groups.abs().nan_to_num(nan=0.0, posinf=3.40282347e38).amax(-1).clamp(min=2.0**-100)
    want = largest / 448
    if pow2:
        want = (2.0 ** torch.ceil(torch.log2(want.cpu()))).cuda()  # a GPU's powers of two are not exact
        assert torch.equal(scales, want), f"{what}: scales are not the next powers of two"
    assert bool(((scales - want).abs() <= want * 2.0**-23).all()), f"{what}: scales"
    exact = (groups / scales[..., None]).clamp(-448, 448).view(n, VALUES)
    codes = rows[:, :VALUES].contiguous().view(torch.float8_e4m3fn).double()
    assert torch.equal(codes.isnan(), exact.isnan()), f"{what}: NaN"
    spacing = 2.0 ** torch.floor(torch.log2(exact.nan_to_num().abs().clamp(min=2.0**-6))) * 2.0**-3
    error = ((codes - exact).abs() / spacing).nan_to_num()
    assert float(error.max()) <= 0.5001, f"{what}: {float(error.max()):.4f} of the distance of two codes"


def test_rows_and_pages():
    for dtype, idtype in itertools.product(("bf16", "f16"), ("i32", "i64")):
        prefetch("mla_append", T=dtype, KV=dtype, IDTYPE=idtype)
        prefetch("mla_append", T=dtype, KV="e4m3", IDTYPE=idtype)
    for dtype, fp8, idtype in itertools.product(("bf16", "f16"), (False, True), ("i32", "i64")):
        for tokens, page_size, pad in ((1, 64, 0), (3, 1, 1), (67, 7, 0), (130, 64, 1), (1000, 64, 0)):
            what = f"{dtype} fp8={fp8} {idtype} {tokens} tokens, pages of {page_size}"
            c_kv, k_pe = normal(tokens, VALUES, dtype=dtype), normal(tokens, ROTATED, dtype=dtype)
            cache = Cache(-(-tokens // page_size) + 2, page_size, dtype, fp8, pad)
            slot = slots(tokens, cache.view.shape[0] * page_size, dtype=idtype)
            append(cache, c_kv, k_pe, slot)
            stored = (slot >= 0).nonzero().flatten()
            rows, at = cache.rows(slot[stored].long()), slot[stored].long()
            if fp8:
                expect_fp8(rows, c_kv[stored], k_pe[stored], False, what)
            else:
                expect_same_bits(rows.view(c_kv.dtype), torch.cat([c_kv, k_pe], 1)[stored], what)
            cache.expect_nothing_else(at, what)


def test_scales():
    for dtype, pow2 in itertools.product(("bf16", "f16"), (False, True)):
        tokens = 200
        c_kv = normal(tokens, VALUES, dtype=dtype) * (2.0 ** torch.randint(-12, 8, (tokens, 1), device="cuda")).to(DTYPES[dtype])
        c_kv[0] = 0
        c_kv[1, 128:256] = 0
        c_kv[2, 0] = float("nan")
        c_kv[3, 130] = float("inf")
        c_kv[4, :] = float("nan")
        c_kv[5, :128] = 448.0  # the scale is 1
        c_kv[6, :128] = 2.0**-14
        k_pe = normal(tokens, ROTATED, dtype=dtype)
        k_pe[0, :3] = torch.tensor([float("nan"), float("inf"), -0.0])
        cache = Cache(5, 64, dtype, True)
        slot = slots(tokens, 320, skip=0)
        append(cache, c_kv, k_pe, slot, POW2=pow2)
        expect_fp8(cache.rows(slot), c_kv, k_pe, pow2, f"{dtype} pow2={pow2}")


def test_strides():
    packed = normal(65, 1536 + VALUES + ROTATED)  # one projection of q, c_kv and k_pe
    for fp8 in (False, True):
        cache = Cache(3, 64, fp8=fp8, pad=2)
        slot = slots(65, 192)
        c_kv, k_pe = packed[:, 1536 : 1536 + VALUES], packed[:, 1536 + VALUES :]
        append(cache, c_kv, k_pe, slot)
        stored = (slot >= 0).nonzero().flatten()
        rows = cache.rows(slot[stored])
        if fp8:
            expect_fp8(rows, c_kv[stored].contiguous(), k_pe[stored].contiguous(), False, "strides")
        else:
            expect_same_bits(rows.view(torch.bfloat16), packed[stored, 1536:], "strides")
        cache.expect_nothing_else(slot[stored], "strides")


def test_strides_beyond_31_bits():
    stride = (1 << 31) + 64
    c_kv = Guarded(2, VALUES, strides=(stride, 1))
    c_kv.view.copy_(normal(2, VALUES))
    k_pe = normal(2, ROTATED)
    cache = Guarded(3, 64, 1, 576, strides=(stride, 576, 576, 1))
    slot = torch.tensor([131, 3], device="cuda")
    kernel("mla_append", T="bf16")(cache.view, c_kv.view, k_pe, 2, 64, stride, ROTATED, stride, 576, slot)
    for page, token in ((2, 0), (0, 1)):
        expect_same_bits(cache.view[page, 3, 0], torch.cat([c_kv.view[token], k_pe[token]]))
        cache.view[page, 3] = float("nan")
    assert bool(cache.view.isnan().all())
    cache.check()


def test_candidates_and_runs_are_identical():
    c_kv, k_pe, slot, want = normal(517, VALUES), normal(517, ROTATED), slots(517, 640), None
    for warps in (1, 2, 4, 8, 4):
        cache = Cache(10, 64, fp8=True)
        cache.bits.zero_()
        append(cache, c_kv, k_pe, slot, WARPS=warps)
        assert want is None or torch.equal(cache.bits, want), f"WARPS={warps}"
        want = cache.bits.clone()


def test_refused():
    cache, c_kv, k_pe, slot = Cache(2, 64), normal(5, VALUES), normal(5, ROTATED), torch.arange(5, device="cuda")
    run = kernel("mla_append", T="bf16")
    strides = (VALUES, ROTATED, 64 * 576, 576)
    expect_refused(lambda: run(cache.view, c_kv, k_pe, 5, 64, *strides, None), "slot_mapping")
    expect_refused(lambda: run(cache.view, c_kv, k_pe, -1, 64, *strides, slot), "tokens", "-1")
    expect_refused(lambda: run(cache.view, c_kv, k_pe, 5, 0, *strides, slot), "page_size")
    expect_refused(lambda: run(cache.view, c_kv, k_pe, 5, 64, 516, *strides[1:], slot), "strides", "516")
    expect_refused(lambda: kernel("mla_append", T="bf16", KV="f16"), "KV", "e4m3")
    expect_refused(lambda: kernel("mla_append", T="bf16", POW2=True), "POW2")
    run(cache.view, c_kv, k_pe, 0, 64, *strides, slot)
    cache.expect_nothing_else(slot[:0], "no tokens")


def bench():
    for tokens, kv in itertools.product((1, 64, 8192), ("bf16", "e4m3")):
        row = 576 if kv == "bf16" else BYTES
        run = kernel("mla_append", T="bf16", KV=kv)

        def make(tokens=tokens, kv=kv, row=row):
            pages = -(-tokens // 64)
            return (
                torch.zeros(pages, 64, row, device="cuda", dtype=torch.uint8 if kv == "e4m3" else torch.bfloat16).view(DTYPES[kv]),
                normal(tokens, VALUES),
                normal(tokens, ROTATED),
                torch.randperm(pages * 64, device="cuda")[:tokens],
            )

        def ours(cache, c_kv, k_pe, slot, run=run, tokens=tokens, row=row):
            run(cache, c_kv, k_pe, tokens, 64, VALUES, ROTATED, 64 * row, row, slot)

        def eager(cache, c_kv, k_pe, slot):
            cache.view(-1, 576).index_copy_(0, slot, torch.cat([c_kv, k_pe], 1))

        launches = {"kiln": ours}
        if kv == "bf16":
            launches |= {"eager": eager, "compile": compiled(eager)}
        for label, peer in peers.get("mla_append").items():
            launches[label] = lambda *tensors, peer=peer: peer(*tensors)
        yield Row(
            f"mla_append bf16 {tokens} tokens to {kv}",
            tokens * (576 * 2 + 8),
            tokens * row * (2 if kv == "bf16" else 1),
            make,
            launches,
        )
