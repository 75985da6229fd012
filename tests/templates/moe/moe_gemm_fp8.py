"""moe_gemm in fp8 against float64: scales of a and b, results in e4m3 with their scales, tiles of many rows, and long sums."""

import itertools

import torch
from harness import Guarded, expect_close, kernel, normal
from moe_align import topk_ids
from moe_products import FP8_SUMS, LAYOUTS, case, routed, run_all, skewed, some_rows

SANITIZE = [
    "moe_gemm T=e4m3 N=264 K=256 E=8 BLOCK=16 rows=70 k=2",
    "moe_gemm T=e4m3 N=264 K=256 E=8 BLOCK=128 rows=300",
    "moe_gemm T=e4m3 N=384 K=256 E=8 BLOCK=128 RIGHT=256 rows=300",
    "moe_gemm T=e4m3 N=256 K=256 E=8 BLOCK=128 OUT=e4m3 GATED=true ACT=silu rows=300",
    "moe_gemm T=e4m3 N=256 K=256 E=8 OUT=e4m3 GATED=true ACT=silu rows=70 k=2",
    "moe_gemm T=e4m3 N=1152 K=640 E=8 BLOCK=8 SPLIT=2 OUT=e4m3 GATED=true ACT=silu rows=70 k=2",
]


def test_fp8():
    run_all(
        (some_rows(layout, 6, block, 40), n, 1152, 6, block, dict(T="e4m3", LAYOUT=layout, column_major=column_major, **more))
        for layout, block in itertools.product(LAYOUTS, (8, 32, 64, 128))
        for n, column_major, more in (
            (264, False, {}),
            (264, True, dict(WEIGHT="result", pad=1)),
            (576, True, dict(GATED=True, ACT="silu", OUT="f32")),
        )
    )


def test_fp8_tiles_of_many_rows():
    """Tiles of 128 and 256 columns: of one expert, with a block that has none, and with tails of N."""
    rights = (128, 256)
    run_all(
        (some_rows(layout, 6, 128, size), n, kk, 6, 128, dict(T="e4m3", LAYOUT=layout, RIGHT=right, **more))
        for layout, right, size in itertools.product(LAYOUTS, rights, (40, 400))
        for n, kk, more in (
            (384, 1152, dict(WEIGHT="result", pad=1)),
            (640, 128, dict(GATED=True, ACT="silu")),
            (2048, 640, dict(BIAS=True, STAGES=2)),
        )
    )
    local = torch.full((64,), -1, device="cuda", dtype=torch.int32)
    local[8:24] = torch.arange(16, device="cuda", dtype=torch.int32)
    for right, (tokens, early) in itertools.product(rights, ((1, True), (90, False), (500, True))):
        rows = routed(topk_ids(tokens, 8, 64), 64, 128, local=local)
        case(rows, 384, 384, 16, 128, "e4m3", EARLY_B=early, RIGHT=right)
    for right, (_, ids) in itertools.product(rights, skewed(16)):
        case(routed(ids, 16, 128, spare=3), 256, 384, 16, 128, "e4m3", RIGHT=right)
    case(some_rows("routed", 6, 64, 90), 384, 640, 6, 64, "e4m3", SWAP=False)


def test_fp8_clusters_share_a_tile():
    """More and fewer tiles than clusters, a K that the blocks share unevenly, and blocks without an expert."""
    up = dict(T="e4m3", OUT="e4m3", GATED=True, ACT="silu")
    local = torch.full((64,), -1, device="cuda", dtype=torch.int32)
    local[8:24] = torch.arange(16, device="cuda", dtype=torch.int32)
    run_all(
        (some_rows(layout, 12, block, size), n, 1152, 12, block, dict(LAYOUT=layout, SPLIT=split, **more))
        for layout, block, split in itertools.product(LAYOUTS, (8, 16, 64), (2, 4))
        for size, n, more in ((2, 384, up), (30, 1536, up), (9, 264, dict(T="e4m3", WEIGHT="result", column_major=True)))
    )
    for split, (tokens, early) in itertools.product((2, 4), ((1, True), (7, False), (90, True))):
        rows = routed(topk_ids(tokens, 8, 64), 64, 8, local=local)
        run_all([(rows, 384, 1152, 16, 8, dict(SPLIT=split, EARLY_B=early, **up))])
    for split, (_, ids) in itertools.product((2, 4), skewed(16)):
        run_all([(routed(ids, 16, 8, spare=3), 256, 640, 16, 8, dict(SPLIT=split, **up))])


def test_fp8_results():
    run_all(
        (some_rows(layout, 6, block, 40), 384, 1152, 6, block, dict(T=dtype, OUT="e4m3", LAYOUT=layout, pad=pad, **more))
        for layout, block, dtype in itertools.product(LAYOUTS, (8, 16, 32, 64, 128), ("bf16", "e4m3"))
        for pad, more in ((0, {}), (1, dict(GATED=True, ACT="silu")), (0, dict(GATED=True, ACT="swigluoai", BIAS=True)))
    )


def test_fp8_results_of_zeros_have_the_smallest_factor():
    for block in (8, 64, 128):
        rows = some_rows("routed", 4, block, 9)
        a, b = torch.zeros(rows.rows_a, 256, device="cuda").bfloat16(), normal(4, 256, 256)
        out, factors = Guarded(rows.rows, 256, dtype="e4m3"), Guarded(rows.rows, 2, dtype="f32")
        kernel("moe_gemm", T="bf16", N=256, K=256, E=4, BLOCK=block, OUT="e4m3")(
            *(out.view, a, b, *rows.arguments, rows.rows, rows.k, rows.capacity, 256, 256, 256, 256 * 256),
            *(None, 0, 0, None, None, None, 1.702, 7.0, factors.view, 2),
        )
        assert bool((out.view.float() == 0).all()) and float((factors.view * 448 / 1e-10 - 1).abs().max()) < 1e-6
        out.check(), factors.check()


def test_fp8_sums_keep_their_bits():
    """Positive data and a long K: sums of 14 bits would lose the small products."""
    for block in (8, 64, 128):
        rows = routed(topk_ids(50, 2, 4), 4, block)
        a = (torch.rand(50, 16384, device="cuda") + 0.5).to(torch.float8_e4m3fn)
        b = (torch.rand(4, 256, 16384, device="cuda") + 0.5).to(torch.float8_e4m3fn)
        ones = [torch.ones(50, 128, device="cuda"), torch.ones(4, 2, 128, device="cuda")]
        out = torch.empty(100, 256, device="cuda")
        kernel("moe_gemm", T="e4m3", N=256, K=16384, E=4, BLOCK=block, OUT="f32")(
            *(out, a, b, *rows.arguments, rows.rows, rows.k, rows.capacity, 256, 16384, 16384, 256 * 16384),
            *(ones[0], 128, 1, ones[1]),
        )
        want = torch.einsum("rk,rnk->rn", a.double()[rows.source], b.double()[rows.expert])
        expect_close(out, want, FP8_SUMS, f"BLOCK={block}")
