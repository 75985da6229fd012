"""rope against float64: pairs, angles, elements that are not rotated, and the variant that
appends to the paged cache.

Peers (harness.peers) rotate in place and are called as (q, k, cos_sin, positions). q and k are [tokens,
heads, D]; cos_sin is f32 [rows, ROTARY]. Peers of "rope_append" are called as (q, k, v, k_cache, v_cache,
cos_sin, positions, *, q_out, slots, kv_indices, kv_indptr, batch_indices, kv_positions); each uses the
arguments that it needs.
"""

import itertools
import math

import torch
from append_paged_kv import Cache, PageTable, paged, slots, ulps
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

SANITIZE = [
    "rope T=bf16 D=128 tokens=37",
    "rope T=f32 D=192 ROTARY=64 INTERLEAVE=true ANGLES=theta tokens=33 q_heads=7 kv_heads=3",
    "rope T=f16 D=80 ANGLES=llama31 PAGING=slot_mapping tokens=37",
    "rope T=bf16 D=128 PAGING=page_table KV=e4m3 tokens=3000",
]
LLAMA31 = {"theta": 500000.0, "scale": 8.0, "low": 1.0, "high": 4.0, "context": 8192.0}


def frequencies(rotary, theta=10000.0, scale=1.0, low=1.0, high=4.0, context=8192.0, llama31=False):
    # Rounded as the argument is.
    theta, scale = (float(torch.tensor(x, dtype=torch.float32)) for x in (theta, scale))
    full = theta ** (-torch.arange(0, rotary, 2, device="cuda", dtype=torch.float64) / rotary)
    share = ((full * context / (2 * math.pi) - low) / (high - low)).clamp(0, 1) if llama31 else torch.zeros_like(full)
    return (1 - share) * full / scale + share * full


def cos_sin_of(positions, **kw):
    angle = positions.double().view(-1, 1) * frequencies(**kw)
    return angle.cos(), angle.sin()


def make_table(rows, rotary, dtype="f32"):
    cos, sin = cos_sin_of(torch.arange(rows, device="cuda"), rotary=rotary)
    return torch.cat((cos, sin), 1).to(DTYPES[dtype])


def rotated(x, cos, sin, interleave=False):
    """x rotated in float64. Only the first 2 * cos.shape[1] elements of each head are rotated."""
    out, n = x.double().clone(), cos.shape[1]
    a, b = (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if interleave else (slice(0, n), slice(n, 2 * n))
    cos, sin = cos.double()[:, None], sin.double()[:, None]
    out[..., a], out[..., b] = (
        x[..., a].double() * cos - x[..., b].double() * sin,
        x[..., b].double() * cos + x[..., a].double() * sin,
    )
    return out


def run(
    q,
    k,
    positions,
    table=None,
    q_out=None,
    k_out=None,
    v=None,
    cache=None,
    slot_mapping=None,
    pages=None,
    cache_positions=None,
    k_scale=None,
    v_scale=None,
    stride_scale=0,
    angles=LLAMA31,
    **parameters,
):
    dtype = next(n for n, t in DTYPES.items() if t == q.dtype)
    if table is not None:
        parameters.setdefault("TABLE", next(n for n, t in DTYPES.items() if t == table.dtype))
    if cache is not None:
        parameters["PAGING"] = "slot_mapping" if pages is None else "page_table"
        index = slot_mapping if pages is None else pages.kv_indices
        parameters["PAGE_IDTYPE"] = "i32" if index.dtype == torch.int32 else "i64"
    rope = kernel("rope", T=dtype, D=q.shape[2], IDTYPE="i32" if positions.dtype == torch.int32 else "i64", **parameters)
    strides = [s for x in (q, k, q if q_out is None else q_out, k if k_out is None else k_out) for s in x.stride()[:2]]
    arguments = [q_out, k_out, q, k, positions, q.shape[0], q.shape[1], k.shape[1], *strides, table, *angles.values()]
    if cache is not None:
        tables = (None,) * 3 if pages is None else (pages.kv_indices, pages.kv_indptr, pages.batch_indices)
        arguments += [
            v,
            *v.stride()[:2],
            *cache.views,
            cache.page_size,
            *cache.strides,
            slot_mapping,
            *tables,
            cache_positions,
            k_scale,
            v_scale,
            stride_scale,
        ]
    rope(*arguments)


def test_every_dtype_and_head():
    heads_of = [
        (64, 64),
        (80, 80),
        (80, 32),
        (96, 96),
        (128, 128),
        (128, 64),
        (128, 32),
        (192, 192),
        (192, 64),
        (256, 256),
        (256, 64),
        (2, 2),
        (65, 64),
        (67, 10),
        (512, 512),
    ]
    kinds = list(itertools.product(("f32", "f16", "bf16"), heads_of, (False, True)))
    for dtype, (d, rotary), interleave in kinds:
        prefetch("rope", T=dtype, D=d, IDTYPE="i64", ROTARY=rotary, INTERLEAVE=interleave, TABLE="f32")
    for dtype, (d, rotary), interleave in kinds:
        table = make_table(4096, rotary)
        for tokens, hq, hkv in ((1, 1, 1), (3, 5, 1), (67, 7, 3), (65, 32, 8), (130, 1, 0)):
            q, k, positions = (
                normal(tokens, hq, d, dtype=dtype),
                normal(tokens, hkv, d, dtype=dtype),
                torch.randint(0, 4096, (tokens,), device="cuda"),
            )
            q_out, k_out = Guarded(tokens, hq, d, dtype=dtype), Guarded(tokens, max(1, hkv), d, dtype=dtype)
            run(q, k, positions, table, q_out.view, k_out.view, ROTARY=rotary, INTERLEAVE=interleave)
            cos, sin = table[positions].split(rotary // 2, 1)
            for x, out in ((q, q_out), (k, k_out)):
                what = f"{dtype} D={d} ROTARY={rotary} INTERLEAVE={interleave} {tokens} x {hq}, {hkv}"
                if x.shape[1]:
                    expect_close(out.view, rotated(x, cos, sin, interleave), TOLERANCE[dtype], what)
                    expect_same_bits(out.view[..., rotary:], x[..., rotary:], what)
                out.check(what)


def test_tables_of_every_dtype():
    for dtype, table_dtype in itertools.product(("f32", "bf16"), ("f32", "f16", "bf16")):
        table, positions = make_table(512, 128, table_dtype), torch.randint(0, 512, (33,), device="cuda", dtype=torch.int32)
        q, k = normal(33, 4, 128, dtype=dtype), normal(33, 2, 128, dtype=dtype)
        want = [rotated(x, *table[positions].split(64, 1)) for x in (q, k)]
        run(q, k, positions, table, q, k)
        expect_close(q, want[0], TOLERANCE[dtype])
        expect_close(k, want[1], TOLERANCE[dtype])


def test_angles_far_out():
    """q = (1, 0) gives cos and sin themselves, which are compared with float64 in f32.

    At these positions a product in float would be off by a tenth.
    """
    worst = {}
    kinds = [
        ("theta", {"theta": 10000.0}),
        ("theta", {"theta": 500000.0, "scale": 4.0}),
        ("theta", {"theta": 1e6, "scale": 0.1}),
        ("llama31", LLAMA31),
        ("llama31", {"theta": 10000.0, "scale": 32.0, "low": 1.0, "high": 4.0, "context": 8192.0}),
    ]
    near = torch.arange(0, 70000, 7)
    for (angles, _), rotary, interleave, idtype in itertools.product(kinds[1::2], (128, 64, 80), (False, True), ("i32", "i64")):
        prefetch("rope", T="f32", D=128, IDTYPE=idtype, ANGLES=angles, ROTARY=rotary, INTERLEAVE=interleave)
    for dtype, positions in (
        ("i32", torch.cat((near, torch.randint(0, 1 << 20, (20000,)), torch.tensor([999983, 1000000])))),
        ("i64", torch.tensor([(1 << 31) - 1, 1 << 30])),
    ):
        positions = positions.to("cuda", DTYPES[dtype])
        for (angles, values), rotary, interleave in itertools.product(kinds, (128, 64, 80), (False, True)):
            q = torch.zeros(len(positions), 1, 128, device="cuda")
            q[..., slice(0, rotary, 2) if interleave else slice(0, rotary // 2)] = 1
            settings = {"theta": 10000.0, "scale": 1.0, "low": 1.0, "high": 4.0, "context": 8192.0, **values}
            out = torch.full_like(q, float("nan"))
            run(q, q[:, :0], positions, None, out, out[:, :0], ANGLES=angles, ROTARY=rotary, INTERLEAVE=interleave, angles=settings)
            cos, sin = cos_sin_of(positions, rotary=rotary, llama31=angles == "llama31", **settings)
            error = float((out.double() - rotated(q, cos, sin, interleave)).abs().max())
            worst[dtype] = max(worst.get(dtype, 0.0), error if settings["scale"] >= 1 else 0.0)
            # The second term is float64's own error.
            allowed = (
                2**-22
                + float(positions.double().max() * frequencies(rotary, llama31=angles == "llama31", **settings).max()) * 2**-51
            )
            assert error < allowed, f"{angles} {settings} ROTARY={rotary} {dtype}: cos or sin off by {error:.3g}"
    return f"largest error {worst['i32']:.2e} to 2^20, {worst['i64']:.2e} at 2^31"


def test_every_dtype_from_theta():
    cases = list(itertools.product(("f32", "f16", "bf16"), ((128, 128), (192, 64), (80, 80)), ("theta", "llama31")))
    for dtype, (d, rotary), angles in cases:
        prefetch("rope", T=dtype, D=d, IDTYPE="i64", ROTARY=rotary, ANGLES=angles)
    for dtype, (d, rotary), angles in cases:
        q, k, positions = (
            normal(67, 7, d, dtype=dtype),
            normal(67, 3, d, dtype=dtype),
            torch.randint(0, 1000001, (67,), device="cuda"),
        )
        want = [rotated(x, *cos_sin_of(positions, rotary=rotary, llama31=angles == "llama31", **LLAMA31)) for x in (q, k)]
        run(q, k, positions, None, q, k, ROTARY=rotary, ANGLES=angles)
        expect_close(q, want[0], TOLERANCE[dtype], f"{dtype} D={d} {angles}")
        expect_close(k, want[1], TOLERANCE[dtype], f"{dtype} D={d} {angles}")


def test_in_place_and_apart():
    table = make_table(512, 64)
    for interleave, d in itertools.product((False, True), (64, 128)):
        q, k, positions = normal(77, 8, d), normal(77, 2, d), torch.randint(0, 512, (77,), device="cuda")
        apart = torch.empty_like(q), torch.empty_like(k)
        run(q, k, positions, table, *apart, ROTARY=64, INTERLEAVE=interleave)
        run(q, k, positions, table, q, k, ROTARY=64, INTERLEAVE=interleave)
        expect_same_bits(q, apart[0])
        expect_same_bits(k, apart[1])


def test_strides():
    table = make_table(512, 128)
    for hq, hkv in ((32, 8), (6, 1)):
        packed, positions = normal(65, hq + 2 * hkv, 128), torch.randint(0, 512, (65,), device="cuda")
        before = packed.clone()
        q, k, v = packed.split((hq, hkv, hkv), 1)
        run(q, k, positions, table, q, k)  # in place, in one tensor of q, k and v
        cos, sin = table[positions].split(64, 1)
        expect_close(packed[:, : hq + hkv], rotated(before[:, : hq + hkv], cos, sin), TOLERANCE["bf16"])
        expect_same_bits(v, before[:, hq + hkv :])
        q, k, _ = before.split((hq, hkv, hkv), 1)
        q_out, k_out = Guarded(65, hq, 128, strides=(hq * 144 + 8, 144, 1)), Guarded(65, hkv, 128, strides=(136, 65 * 136, 1))
        run(q, k, positions, table, q_out.view, k_out.view)
        expect_close(q_out.view, rotated(q, cos, sin), TOLERANCE["bf16"])
        expect_close(k_out.view, rotated(k, cos, sin), TOLERANCE["bf16"])
        q_out.check()
        k_out.check()


def test_strides_beyond_31_bits():
    stride = (1 << 31) + 64
    q, k = Guarded(2, 3, 128, strides=(stride, 128, 1)), Guarded(2, 2, 128, strides=(128, stride, 1))
    for x in (q, k):
        x.view.copy_(normal(*x.view.shape))
    table, positions = make_table(64, 128), torch.tensor([3, 60], device="cuda")
    cos, sin = table[positions].split(64, 1)
    want = [rotated(x.view, cos, sin) for x in (q, k)]
    run(q.view, k.view, positions, table, q.view, k.view)
    for x, w in zip((q, k), want):
        expect_close(x.view, w, TOLERANCE["bf16"])
        x.check()


def test_misaligned_views():
    table, positions = make_table(512, 128), torch.arange(5, device="cuda")
    for interleave in (False, True):
        q = Guarded(5, 4, 128, strides=(513, 128, 1), shift=1)
        q.view.copy_(normal(5, 4, 128))
        want = rotated(q.view, *table[positions].split(64, 1), interleave)
        none = q.view[:, :0]
        expect_refused(lambda: run(q.view, none, positions, table, q.view, none, INTERLEAVE=interleave), "align")
        run(q.view, none, positions, table, q.view, none, INTERLEAVE=interleave, VEC=1)
        expect_close(q.view, want, TOLERANCE["bf16"])
        q.check()
        even = Guarded(5, 4, 128, strides=(513, 128, 1)).view
        expect_refused(
            lambda: run(even, even[:, :0], positions, table, even, even[:, :0], INTERLEAVE=interleave), "strides", "513", "VEC"
        )
        odd, x = Guarded(512, 128, dtype="f32", shift=1).view, normal(5, 4, 128)
        odd.copy_(table)
        want = rotated(x, *table[positions].split(64, 1), interleave)
        expect_refused(lambda: run(x, x[:, :0], positions, odd, x, x[:, :0], INTERLEAVE=interleave), "cos_sin", "align")
        run(x, x[:, :0], positions, odd, x, x[:, :0], INTERLEAVE=interleave, VEC=1)
        expect_close(x, want, TOLERANCE["bf16"])


def test_special_values():
    table, positions = make_table(512, 64), torch.randint(1, 512, (9,), device="cuda")
    cos, sin = table[positions].split(32, 1)
    for dtype, interleave in itertools.product(("f32", "f16", "bf16"), (False, True)):
        q, k = normal(9, 4, 128, dtype=dtype), normal(9, 1, 128, dtype=dtype)
        q[0, 1, 5], q[2, 0, 40], q[3, 3, 100], q[4, 2, 127] = float("nan"), float("inf"), float("nan"), float("-inf")
        q[5, 0] = 0
        q[6, 0, :] = torch.finfo(q.dtype).smallest_normal / 4
        want = rotated(q, cos, sin, interleave)
        out, k_out = Guarded(9, 4, 128, dtype=dtype), torch.empty_like(k)
        run(q, k, positions, table, out.view, k_out, ROTARY=64, INTERLEAVE=interleave)
        assert torch.equal(out.view.isfinite(), want.isfinite()), "NaN and infinities are where they belong"
        expect_close(out.view, want, TOLERANCE[dtype])
        expect_same_bits(out.view[..., 64:], q[..., 64:])
        assert bool((out.view[5, 0] == 0).all()), "zeros stay zeros"
        quantum = torch.finfo(q.dtype).smallest_normal * torch.finfo(q.dtype).eps
        assert float((out.view[6, 0].double() - want[6, 0]).abs().max()) <= quantum, "subnormal values are rotated"
        out.check()


def test_append():
    """Rotated k and v are appended to the cache: both ways to address it, every layout and element
    type, with k_out or null.
    """
    kinds = list(
        itertools.product(("slot_mapping", "page_table"), ("NHD", "HND", "one"), ("bf16", "e4m3", "e5m2"), (None, False, True))
    )
    for paging, _, kv, _ in kinds:
        for idtype in ("i32", "i64"):
            prefetch("rope", T="bf16", D=128, IDTYPE="i64", ROTARY=64, TABLE="f32", KV=kv, PAGING=paging, PAGE_IDTYPE=idtype)
    table = make_table(512, 64)
    worst = 0
    for n, (paging, layout, kv, per_head) in enumerate(kinds):
        what = f"{paging} {layout} {kv} scales {per_head}"
        page_size, idtype, hq, hkv = (1, 16, 24)[n % 3], ("i32", "i64")[n % 2], *((7, 1), (32, 8), (5, 5))[n % 3]
        pages = PageTable([0, 37, 1, 128, 0, 64], page_size, idtype)
        tokens = pages.tokens
        slot = slots(tokens, pages.pages * page_size, dtype=idtype)
        q, k, v = normal(tokens, hq, 128), normal(tokens, hkv, 128), normal(tokens, hkv, 128)
        positions = torch.randint(0, 512, (tokens,), device="cuda")
        cache = Cache(pages.pages, page_size, hkv, 128, kv, layout)
        scale = [
            None if kv == "bf16" or per_head is None else torch.rand(hkv if per_head else 1, device="cuda") * 0.02 + 0.01
            for _ in "kv"
        ]
        q_out, k_out = Guarded(tokens, hq, 128), Guarded(tokens, hkv, 128) if n % 4 < 2 else None
        if paging == "slot_mapping":
            stored = (slot >= 0).nonzero().flatten()
            page, entry, where = slot[stored].long() // page_size, slot[stored].long() % page_size, {"slot_mapping": slot}
        else:
            stored, page, entry, where = pages.stored, pages.page, pages.entry, {"pages": pages, "cache_positions": pages.positions}
        run(
            q,
            k,
            positions,
            table,
            q_out.view,
            None if k_out is None else k_out.view,
            v,
            cache,
            k_scale=scale[0],
            v_scale=scale[1],
            stride_scale=int(bool(per_head)),
            ROTARY=64,
            KV=kv,
            **where,
        )
        cos, sin = table[positions].split(32, 1)
        expect_close(q_out.view, rotated(q, cos, sin), TOLERANCE["bf16"], what)
        q_out.check(what)
        turned = rotated(k, cos, sin)
        if k_out is not None:
            expect_close(k_out.view, turned, TOLERANCE["bf16"], what)
            k_out.check(what)
        rows = [(x.double() / (1.0 if s is None else s.double().view(-1, 1)))[stored] for x, s in zip((turned, v), scale)]

        def compare(got, want):
            nonlocal worst
            if kv == "bf16":
                expect_close(got, want, TOLERANCE["bf16"], what)
            else:
                worst = max(worst, ulps(got, want, kv))
                assert worst <= 1, f"{what}: {worst} ulp from the exact rounding"

        cache.expect(page, entry, rows, compare, what)
    return f"fp8 at most {worst} ulp"


def test_append_of_every_dtype_and_head():
    kinds = list(itertools.product(("f32", "f16", "bf16"), ((80, 80), (192, 64), (67, 10)), (False, True), (None, "e4m3")))
    for dtype, (d, rotary), interleave, kv in kinds:
        prefetch(
            "rope",
            T=dtype,
            D=d,
            IDTYPE="i32",
            ROTARY=rotary,
            INTERLEAVE=interleave,
            ANGLES="theta",
            PAGING="slot_mapping",
            PAGE_IDTYPE="i64",
            KV=kv or dtype,
        )
    for dtype, (d, rotary), interleave, kv in kinds:
        what = f"{dtype} D={d} ROTARY={rotary} INTERLEAVE={interleave} {kv}"
        q, k, v = normal(37, 3, d, dtype=dtype), normal(37, 3, d, dtype=dtype), normal(37, 3, d, dtype=dtype)
        positions, slot = torch.randint(0, 100000, (37,), device="cuda", dtype=torch.int32), slots(37, 64)
        cache = Cache(4, 16, 3, d, kv or dtype)
        cos, sin = cos_sin_of(positions, rotary=rotary, **LLAMA31)
        want = rotated(q, cos, sin, interleave)
        run(q, k, positions, None, q, None, v, cache, slot, ANGLES="theta", ROTARY=rotary, INTERLEAVE=interleave, KV=kv or dtype)
        expect_close(q, want, TOLERANCE[dtype], what)
        stored = (slot >= 0).nonzero().flatten()

        def compare(got, want):
            if kv:
                assert ulps(got, want, kv) <= 1, what
            else:
                expect_close(got, want, TOLERANCE[dtype], what)

        cache.expect(
            slot[stored] // 16, slot[stored] % 16, [rotated(k, cos, sin, interleave)[stored], v.double()[stored]], compare, what
        )


def test_append_is_rope_then_append():
    """In bf16 the bits equal rope followed by append_paged_kv, and v is copied without arithmetic."""
    table, positions, slot = make_table(512, 128), torch.randint(0, 512, (203,), device="cuda"), slots(203, 16 * 16)
    q, k = normal(203, 32, 128), normal(203, 8, 128)
    v = torch.randint(-(1 << 15), 1 << 15, (203, 8, 128), device="cuda", dtype=torch.int16).view(torch.bfloat16)
    one, two = Cache(16, 16, 8, 128), Cache(16, 16, 8, 128)
    for a, b in zip(one.bits, two.bits):
        b.copy_(a)
    q_out, k_out = torch.empty_like(q), torch.empty_like(k)
    run(q, k, positions, table, q_out, None, v, one, slot)
    run(q, k, positions, table, q, k_out)
    kernel("append_paged_kv", T="bf16", D=128)(*two.views, k_out, v, 203, 8, 16, 1024, 128, 1024, 128, *two.strides, slot)
    for a, b in zip(one.bits, two.bits):
        assert torch.equal(a, b)


def test_page_table_takes_the_positions():
    table, pages = make_table(512, 128), PageTable([50, 3, 100], 16, "i64", skip=0)
    q, k, v = normal(pages.tokens, 4, 128), normal(pages.tokens, 2, 128), normal(pages.tokens, 2, 128)
    cache = Cache(pages.pages, 16, 2, 128)
    run(q, k, pages.positions, table, q.clone(), None, v, cache, pages=pages)  # no cache_positions
    turned = rotated(k, *table[pages.positions].split(64, 1))
    cache.expect(pages.page, pages.entry, (turned, v.double()), lambda got, want: expect_close(got, want, TOLERANCE["bf16"]))


def test_candidates_and_runs_are_identical():
    q, k, positions = normal(517, 12, 128), normal(517, 3, 128), torch.randint(0, 1 << 20, (517,), device="cuda")
    for interleave in (False, True):
        want = None
        for vec, threads, unroll in [(8, 256, 2)] * 5 + [(4, 128, 1), (8, 512, 4), (1, 256, 1), (2, 512, 2)]:
            out = torch.full_like(q, float("nan")), torch.full_like(k, float("nan"))
            run(q, k, positions, None, *out, ANGLES="theta", INTERLEAVE=interleave, VEC=vec, THREADS=threads, UNROLL=unroll)
            for got, w in zip(out, want or out):
                expect_same_bits(got, w, f"VEC={vec} THREADS={threads} UNROLL={unroll}")
            want = out


def test_refused():
    q, k, positions, table = normal(5, 4, 128), normal(5, 2, 128), torch.arange(5, device="cuda"), make_table(16, 128)
    expect_refused(lambda: run(q, k, positions, None, q, k), "cos_sin")
    expect_refused(lambda: run(q, k, positions, table, q, None), "k_out")
    expect_refused(
        lambda: kernel("rope", T="bf16", D=128, PAGING="slot_mapping")(
            q, None, q, k, positions, 5, 4, 2, *((512, 128, 256, 128) * 2), table
        ),
        "needs v",
    )
    expect_refused(lambda: kernel("rope", T="bf16", D=128, ROTARY=130), "ROTARY", "130")
    expect_refused(lambda: kernel("rope", T="bf16", D=128, ROTARY=7), "even")
    before = q.clone()
    rope = kernel("rope", T="bf16", D=128)
    rope(q, k, q, k, positions, 0, 4, 2, *((512, 128, 256, 128) * 2), table)
    rope(q, k, q, k, positions, 5, 0, 0, *((512, 128, 256, 128) * 2), table)
    expect_same_bits(q, before, "no tokens, or no heads")
    expect_refused(lambda: rope(q, k, q, k, positions, -1, 4, 2, *((512, 128, 256, 128) * 2), table), "tokens", "-1")


def bench():
    hq, hkv, d, page_size, rows = 32, 8, 128, 16, 32768
    table = make_table(rows, d)
    row = 2 * d  # bytes of a head

    def in_torch(q, k, cos_sin, positions):
        cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, -1)
        for x in (q, k):
            a, b = x.float().chunk(2, -1)
            x.copy_(torch.cat((a * cos - b * sin, b * cos + a * sin), -1))

    strides = (hq * d, d, hkv * d, d) * 2
    for tokens in (1, 8, 64, 4096, 8192):

        def make(tokens=tokens):
            return normal(tokens, hq, d), normal(tokens, hkv, d), torch.randint(0, rows, (tokens,), device="cuda")

        for angles in ("table", "theta") if tokens in (64, 8192) else ("table",):
            rope = kernel("rope", T="bf16", D=d, ANGLES=angles)
            launches = {"kiln": lambda q, k, p, rope=rope, tokens=tokens: rope(q, k, q, k, p, tokens, hq, hkv, *strides, table)}
            if angles == "table":
                launches["eager"] = lambda q, k, p: in_torch(q, k, table, p)
                launches["compile"] = compiled(launches["eager"])
                for label, peer in peers.get("rope").items():
                    launches[label] = lambda q, k, p, peer=peer: peer(q, k, table, p)
            yield Row(
                f"rope bf16 {tokens} tokens x {hq}, {hkv} x {d} {angles}",
                tokens * ((hq + hkv) * row + 8 + (4 * d if angles == "table" else 0)),
                tokens * (hq + hkv) * row,
                make,
                launches,
            )
    cached = (page_size * hkv * d, hkv * d, d)
    for tokens, kv in ((1, "bf16"), (8, "bf16"), (64, "bf16"), (4096, "bf16"), (8192, "bf16"), (64, "e4m3"), (8192, "e4m3")):
        by_slot = kernel("rope", T="bf16", D=d, PAGING="slot_mapping", KV=kv)

        def make(tokens=tokens, kv=kv):
            where, pages = paged(tokens, page_size)
            cache = [torch.zeros(pages, page_size, hkv, d, device="cuda").to(DTYPES[kv]) for _ in "kv"]
            p = torch.randint(0, rows, (tokens,), device="cuda")
            return (
                normal(tokens, hq, d),
                normal(tokens, hkv, d),
                normal(tokens, hkv, d),
                *cache,
                p,
                p.int(),
                torch.full((1,), 0.02, device="cuda"),
                torch.empty(tokens, hq, d, device="cuda", dtype=torch.bfloat16),
                *where.values(),
            )

        def eager(q, k, v, kc, vc, p, p32, scale, q_out, slot, *_):
            in_torch(q, k, table, p)
            for x, cache in ((k, kc), (v, vc)):
                if cache.dtype == torch.bfloat16:
                    cache.view(-1, hkv, d).index_copy_(0, slot, x)
                else:
                    cache.view(torch.uint8).view(-1, hkv, d).index_copy_(
                        0, slot, (x.float() / scale).clamp(-448, 448).to(cache.dtype).view(torch.uint8)
                    )

        launches = {
            "kiln": lambda q, k, v, kc, vc, p, p32, scale, q_out, slot, *_, run=by_slot, tokens=tokens: run(
                q,
                None,
                q,
                k,
                p,
                tokens,
                hq,
                hkv,
                *strides,
                table,
                1e4,
                1.0,
                1.0,
                4.0,
                8192.0,
                v,
                hkv * d,
                d,
                kc,
                vc,
                page_size,
                *cached,
                slot,
                None,
                None,
                None,
                None,
                scale,
                scale,
            ),
            "eager": eager,
            "compile": compiled(eager),
        }
        # With fp8 peers quantise q, too.
        for label, peer in peers.get("rope_append").items() if kv == "bf16" else ():
            flashinfer = "FlashInfer" in label
            launches[label] = (
                lambda q, k, v, kc, vc, p, p32, scale, q_out, slot, indices, indptr, request, position, peer=peer, flashinfer=flashinfer: (
                    peer(
                        q,
                        k,
                        v,
                        kc,
                        vc,
                        table,
                        p32 if flashinfer else p,
                        q_out=q_out if flashinfer else None,
                        slots=slot,
                        kv_indices=indices,
                        kv_indptr=indptr,
                        batch_indices=request,
                        kv_positions=position,
                    )
                )
            )
        size = DTYPES[kv].itemsize
        yield Row(
            f"rope and append bf16 {tokens} tokens x {hq}, {hkv} x {d}" + ("" if kv == "bf16" else f" to {kv}"),
            tokens * ((hq + 2 * hkv) * row + 16 + 4 * d),
            tokens * (hq * row + 2 * hkv * d * size),
            make,
            launches,
        )
