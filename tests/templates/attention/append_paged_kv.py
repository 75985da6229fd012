"""append_paged_kv against the same scatter in torch, bit for bit, in every layout.
Other bytes must not change.

Peers (harness.peers) are called as (k, v, k_cache, v_cache, *, slots, kv_indices, kv_indptr, batch_indices,
kv_positions); each uses the arguments that it needs. The caches are NHD [pages, page_size, kv_heads, D].
"""

import itertools

import torch
from harness import DTYPES, Guarded, Row, compiled, expect_refused, expect_same_bits, kernel, normal, peers, prefetch

SANITIZE = [
    "append_paged_kv T=bf16 D=128 tokens=37",
    "append_paged_kv T=f32 D=80 PAGING=page_table tokens=33 kv_heads=3",
    "append_paged_kv T=f16 D=128 KV=e4m3 tokens=37",
]
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}


def bits_of(x):
    return x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])


def ulps(got, want, dtype):
    """The distance in fp8 codes of `got` from the exact rounding of the float64 `want`; 0 for two NaN."""
    exact = want.clamp(-LARGEST[dtype], LARGEST[dtype]).to(torch.float32).to(DTYPES[dtype])
    order = lambda v: torch.where(v >= 128, 128 - v, v)  # order of the codes: the sign bit is a minus
    distance = (order(bits_of(got.contiguous()).int()) - order(bits_of(exact).int())).abs()
    nan, expected = got.float().isnan(), want.isnan()
    distance = torch.where(nan & expected, 0, torch.where(nan | expected, 999, distance))
    return int(distance.max()) if got.numel() else 0


class Cache:
    """k and v of a paged cache in guarded memory, filled with random bits, among them NaN of all kinds."""

    def __init__(self, pages, page_size, heads, d, dtype="bf16", layout="NHD", pad=0, shift=0):
        self.page_size = page_size
        if layout == "one":  # one tensor [pages, 2, page_size, heads, D]
            self.guards = [Guarded(pages, 2, page_size, heads, d, dtype=dtype)]
            views, bits = self.guards[0].view.unbind(1), self.guards[0].bits.unbind(1)
        else:
            dims, order = ((page_size, heads), (0, 1, 2, 3)) if layout == "NHD" else ((heads, page_size), (0, 2, 1, 3))
            inner = dims[1] * (d + pad) + pad
            strides = (dims[0] * inner + pad, inner, d + pad, 1)
            self.guards = [Guarded(pages, *dims, d, dtype=dtype, strides=strides, shift=shift) for _ in "kv"]
            views, bits = [g.view.permute(order) for g in self.guards], [g.bits.permute(order) for g in self.guards]
        for b in bits:
            size = b.element_size()
            b.copy_(torch.randint(0, 256, (*b.shape, size), dtype=torch.uint8, device="cuda").view(b.dtype)[..., 0])
        self.views, self.bits = views, bits  # [pages, page_size, heads, D]
        self.before = [b.clone() for b in bits]

    @property
    def strides(self):
        return self.views[0].stride()[:3]

    def expect(self, page, entry, rows, compare, what=""):
        """Expects rows[0][i] (k) and rows[1][i] (v) of token i at (page[i], entry[i]), by compare(got, want).

        All other bytes must be unchanged.
        """
        for view, bits, before, row in zip(self.views, self.bits, self.before, rows):
            compare(bits[page, entry].view(view.dtype), row)
            after, then = bits.clone(), before.clone()
            after[page, entry] = 0
            then[page, entry] = 0
            assert torch.equal(after, then), f"{what}: a place that is not addressed has changed"
        for g in self.guards:
            g.check(what)


def slots(tokens, count, skip=0.2, dtype="i64"):
    """Distinct slots below `count`, some of them replaced by -1."""
    out = torch.randperm(count, device="cuda")[:tokens].to(DTYPES[dtype])
    out[torch.rand(tokens, device="cuda") < skip] = -1
    return out


class PageTable:
    """Requests of random lengths, some of them 0, with scattered pages.

    The last tokens of each request are appended, in random order.
    """

    def __init__(self, lengths, page_size, dtype="i32", spare=3, skip=0.1):
        kind = DTYPES[dtype]
        pages_of = [-(-n // page_size) for n in lengths]
        self.pages = sum(pages_of) + spare
        indices = torch.randperm(self.pages)[: sum(pages_of)]
        indptr = torch.tensor([0] + list(itertools.accumulate(pages_of)))
        request, position = [], []
        for i, n in enumerate(lengths):
            first = n // 2
            request += [i] * (n - first)
            position += range(first, n)
        order = torch.randperm(len(request))
        request, position = torch.tensor(request)[order], torch.tensor(position)[order]
        page, entry = indices[indptr[request] + position // page_size], position % page_size
        skipped = torch.rand(len(request)) < skip
        self.stored = (~skipped).nonzero().flatten().cuda()  # tokens
        self.page, self.entry = page.cuda()[self.stored], entry.cuda()[self.stored]
        request = torch.where(skipped, -1, request)
        self.kv_indices, self.kv_indptr, self.batch_indices, self.positions = (
            t.to("cuda", kind) for t in (indices, indptr, request, position)
        )
        self.tokens = len(position)


def append(k, v, cache, slot_mapping=None, table=None, k_scale=None, v_scale=None, stride_scale=0, **parameters):
    tokens, heads, d = k.shape
    tokens = len(slot_mapping) if slot_mapping is not None else table.tokens
    index = slot_mapping if slot_mapping is not None else table.kv_indices
    idtype = "i32" if index.dtype == torch.int32 else "i64"
    dtype = next(n for n, t in DTYPES.items() if t == k.dtype)
    paging = "slot_mapping" if table is None else "page_table"
    pages = (None,) * 4 if table is None else (table.kv_indices, table.kv_indptr, table.batch_indices, table.positions)
    kernel("append_paged_kv", T=dtype, D=d, IDTYPE=idtype, PAGING=paging, **parameters)(
        cache.views[0],
        cache.views[1],
        k,
        v,
        tokens,
        heads,
        cache.page_size,
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        *cache.strides,
        slot_mapping,
        *pages,
        k_scale,
        v_scale,
        stride_scale,
    )


def test_every_dtype_and_head():
    kinds = list(itertools.product(("f32", "f16", "bf16", "e4m3"), (1, 3, 64, 80, 96, 97, 128, 192, 256, 512)))
    for dtype, d in kinds:
        prefetch("append_paged_kv", T=dtype, D=d, IDTYPE="i64", PAGING="slot_mapping")
    for dtype, d in kinds:
        for tokens, heads, page_size in ((1, 1, 16), (3, 8, 1), (67, 5, 7), (130, 8, 64)):
            k, v = normal(tokens, heads, d, dtype=dtype), normal(tokens, heads, d, dtype=dtype)
            cache = Cache(-(-tokens // page_size) + 2, page_size, heads, d, dtype)
            slot = slots(tokens, cache.views[0].shape[0] * page_size)
            append(k, v, cache, slot)
            stored = (slot >= 0).nonzero().flatten()
            rows = [bits_of(x)[stored].view(x.dtype) for x in (k, v)]
            cache.expect(
                slot[stored] // page_size, slot[stored] % page_size, rows, expect_same_bits, f"{dtype} D={d} tokens={tokens}"
            )


def test_layouts_and_page_tables():
    for layout, page_size, dtype in itertools.product(("NHD", "HND", "one"), (1, 16, 48), ("i32", "i64")):
        table = PageTable([0, 1, 37, 0, 128, 5, 64, 0], page_size, dtype)
        k, v = normal(table.tokens, 8, 128), normal(table.tokens, 8, 128)
        cache = Cache(table.pages, page_size, 8, 128, layout=layout)
        append(k, v, cache, table=table)
        cache.expect(
            table.page, table.entry, (k[table.stored], v[table.stored]), expect_same_bits, f"{layout} pages of {page_size}, {dtype}"
        )
        cache = Cache(table.pages, page_size, 8, 128, layout=layout)
        slot = slots(table.tokens, table.pages * page_size, dtype=dtype)
        append(k, v, cache, slot)
        stored = (slot >= 0).nonzero().flatten()
        cache.expect(
            slot[stored].long() // page_size,
            slot[stored].long() % page_size,
            (k[stored], v[stored]),
            expect_same_bits,
            f"{layout} slots, {dtype}",
        )


def test_fp8():
    worst = 0
    for dtype, kv, layout in itertools.product(("f32", "f16", "bf16"), ("e4m3", "e5m2"), ("NHD", "HND")):
        for per_head in (None, False, True):
            k, v = normal(133, 8, 128, dtype=dtype), normal(133, 8, 128, dtype=dtype)
            for x in (k, v):
                x[0, 0, :4] = torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0])
                x[1, 3, 0] = 3e4  # saturates
            scale = [None if per_head is None else torch.rand(8 if per_head else 1, device="cuda") * 0.02 + 0.003 for _ in "kv"]
            cache = Cache(12, 16, 8, 128, kv, layout)
            slot = slots(133, 12 * 16)
            append(k, v, cache, slot, None, *scale, int(bool(per_head)), KV=kv)
            stored = (slot >= 0).nonzero().flatten()
            rows = [x.double() / (1.0 if s is None else s.double().view(-1, 1)) for x, s in zip((k, v), scale)]

            def compare(got, want):
                nonlocal worst
                worst = max(worst, ulps(got, want, kv))
                assert worst <= 1, f"{dtype} to {kv}, scales {per_head}: {worst} ulp from the exact rounding"

            cache.expect(slot[stored] // 16, slot[stored] % 16, [r[stored] for r in rows], compare, f"{dtype} to {kv}")
    return f"at most {worst} ulp"


def test_nan_payloads_and_infinities_are_copied():
    k = torch.randint(-(1 << 15), 1 << 15, (64, 8, 128), device="cuda", dtype=torch.int16).view(torch.bfloat16)
    v = k.flip(0).contiguous()
    cache = Cache(8, 16, 8, 128)
    slot = slots(64, 128, skip=0)
    append(k, v, cache, slot)
    cache.expect(slot // 16, slot % 16, (k, v), expect_same_bits)


def test_strides():
    packed = normal(65, 48, 128)  # one tensor of q, k and v
    k, v = packed[:, 32:40], packed[:, 40:]
    for layout in ("NHD", "HND"):
        cache = Cache(8, 16, 8, 128, layout=layout, pad=8)
        slot = slots(65, 128)
        append(k, v, cache, slot)
        stored = (slot >= 0).nonzero().flatten()
        cache.expect(slot[stored] // 16, slot[stored] % 16, (k[stored], v[stored]), expect_same_bits, f"{layout} with padding")


def test_strides_beyond_31_bits():
    stride = (1 << 31) + 64
    k = Guarded(2, 8, 128, strides=(stride, 128, 1))
    k.view.copy_(normal(2, 8, 128))
    cache = [Guarded(3, 16, 8, 128, strides=(stride, 1024, 128, 1)) for _ in "kv"]
    slot = torch.tensor([35, 3], device="cuda")
    kernel("append_paged_kv", T="bf16", D=128)(
        cache[0].view, cache[1].view, k.view, k.view, 2, 8, 16, stride, 128, stride, 128, stride, 1024, 128, slot
    )
    for c in cache:
        expect_same_bits(c.view[2, 3], k.view[0])
        expect_same_bits(c.view[0, 3], k.view[1])
        c.view[2, 3] = float("nan")
        c.view[0, 3] = float("nan")
        assert bool(c.view.isnan().all())
        c.check()


def test_misaligned_views():
    k = Guarded(5, 4, 128, strides=(513, 128, 1), shift=1)
    k.view.copy_(normal(5, 4, 128))
    cache = Cache(2, 16, 4, 128, shift=3)
    slot = torch.arange(5, device="cuda") * 3
    expect_refused(lambda: append(k.view, k.view, cache, slot), "align")
    append(k.view, k.view, cache, slot, VEC=1)
    cache.expect(slot // 16, slot % 16, (k.view, k.view), expect_same_bits)
    even = Guarded(5, 4, 128, strides=(513, 128, 1))
    expect_refused(lambda: append(even.view, even.view, Cache(2, 16, 4, 128), slot), "strides", "513", "VEC")


def test_refused():
    k, cache = normal(5, 4, 128), Cache(2, 16, 4, 128)
    run = kernel("append_paged_kv", T="bf16", D=128)
    common = (cache.views[0], cache.views[1], k, k)
    strides = (512, 128, 512, 128, 8192, 512, 128)
    expect_refused(lambda: run(*common, 5, 4, 16, *strides, None), "slot_mapping")
    expect_refused(lambda: run(*common, -1, 4, 16, *strides, torch.arange(5, device="cuda")), "tokens", "-1")
    expect_refused(lambda: run(*common, 5, 4, 0, *strides, torch.arange(5, device="cuda")), "page_size")
    expect_refused(lambda: kernel("append_paged_kv", T="e4m3", D=128, KV="bf16"), "KV", "copied")
    expect_refused(lambda: kernel("append_paged_kv", T="bf16", D=128, KV="f16"), "KV", "fp8")
    run(*common, 0, 4, 16, *strides, torch.arange(5, device="cuda"))
    none = torch.empty(0, dtype=torch.long, device="cuda")
    cache.expect(none, none, (k[:0], k[:0]), expect_same_bits, "no tokens")


def test_candidates_and_runs_are_identical():
    k, v = normal(517, 8, 128), normal(517, 8, 128)
    slot = slots(517, 33 * 16)
    scale = torch.rand(8, device="cuda") + 0.5
    want = None
    for vec, threads, unroll in [(8, 256, 1)] * 5 + [(4, 128, 2), (8, 512, 4), (1, 1024, 1), (2, 64, 4)]:
        cache = Cache(33, 16, 8, 128, "e4m3")
        for b in cache.bits:
            b.zero_()
        append(k, v, cache, slot, None, scale, scale, 1, KV="e4m3", VEC=vec, THREADS=threads, UNROLL=unroll)
        got = torch.cat([b.flatten() for b in cache.bits])
        assert want is None or torch.equal(got, want), f"VEC={vec} THREADS={threads} UNROLL={unroll}"
        want = got


def paged(tokens, page_size):
    """The page tables that peers take besides a slot mapping, by argument names.

    Requests have 16 pages, and the tokens are their first ones.
    """
    per = 16 * page_size
    requests = -(-tokens // per)
    indices = torch.randperm(16 * requests, device="cuda")
    token = torch.arange(tokens, device="cuda")
    request, position = token // per, token % per
    slot = indices[request * 16 + position // page_size] * page_size + position % page_size
    indptr = torch.arange(requests + 1, device="cuda") * 16
    return {
        "slots": slot,
        "kv_indices": indices.int(),
        "kv_indptr": indptr.int(),
        "batch_indices": request.int(),
        "kv_positions": position.int(),
    }, 16 * requests


def bench():
    heads, d, page_size = 8, 128, 16
    strides = (heads * d, d) * 2 + (page_size * heads * d, heads * d, d)
    for tokens, kv in itertools.product((1, 8, 64, 4096, 8192), ("bf16", "e4m3")):
        by_slot = kernel("append_paged_kv", T="bf16", D=d, KV=kv)

        def make(tokens=tokens, kv=kv):
            where, pages = paged(tokens, page_size)
            cache = [torch.zeros(pages, page_size, heads, d, device="cuda").to(DTYPES[kv]) for _ in "kv"]
            return (
                normal(tokens, heads, d),
                normal(tokens, heads, d),
                *cache,
                torch.full((1,), 0.01, device="cuda"),
                *where.values(),
            )

        def eager(k, v, kc, vc, scale, slot, *_):
            for x, cache in ((k, kc), (v, vc)):
                if cache.dtype == torch.bfloat16:
                    cache.view(-1, heads, d).index_copy_(0, slot, x)
                else:  # index_copy_ lacks fp8, so the bytes are copied
                    cache.view(torch.uint8).view(-1, heads, d).index_copy_(
                        0, slot, (x.float() / scale).clamp(-448, 448).to(cache.dtype).view(torch.uint8)
                    )

        launches = {
            "kiln": lambda k, v, kc, vc, scale, slot, *_, run=by_slot, tokens=tokens: run(
                kc, vc, k, v, tokens, heads, page_size, *strides, slot, None, None, None, None, scale, scale
            ),
            "eager": eager,
            "compile": compiled(eager),
        }
        for label, peer in peers.get("append_paged_kv").items():
            if kv == "bf16":
                launches[label] = lambda k, v, kc, vc, scale, slot, indices, indptr, request, position, peer=peer: peer(
                    k, v, kc, vc, slots=slot, kv_indices=indices, kv_indptr=indptr, batch_indices=request, kv_positions=position
                )
            elif "vLLM" in label:  # the only peer that quantises
                launches[label] = lambda k, v, kc, vc, scale, slot, *_, peer=peer: peer(
                    k, v, kc.view(torch.uint8), vc.view(torch.uint8), slots=slot, k_scale=scale, v_scale=scale
                )
        size = DTYPES[kv].itemsize
        yield Row(
            f"append_paged_kv bf16 {tokens} tokens x {heads} x {d}" + ("" if kv == "bf16" else f" to {kv}"),
            tokens * (2 * heads * d * 2 + 8),
            tokens * 2 * heads * d * size,
            make,
            launches,
        )
