"""moe_gemm against float64: every layout of rows, every tile, every epilogue, skewed routings, edges and strides. Its time stands
beside PyTorch's. moe_gemm_fp8 has the tests of fp8, and moe_gemm_places has the tests of rows at places.
"""

import dataclasses
import functools
import itertools

import torch
from harness import Guarded, expect_close, expect_refused, expect_same_bits, kernel, normal
from moe_align import capacity_of, topk_ids
from moe_gemm_times import bench  # noqa: F401 (run.py asks for it)
from moe_products import (
    ACTIVATIONS,
    BLOCKS,
    LAYOUTS,
    TOLERANCE,
    case,
    contiguous,
    masked,
    portable,
    product,
    routed,
    run_all,
    skewed,
    some_rows,
)

SANITIZE = [
    *[f"moe_gemm T=bf16 N=264 K=200 E=8 BLOCK={block} rows=70 k=2" for block in BLOCKS],
    "moe_gemm T=bf16 N=264 K=200 E=8 LAYOUT=contiguous BLOCK=128 rows=300",
    "moe_gemm T=f16 N=264 K=200 E=5 LAYOUT=masked BLOCK=32 rows=37 BIAS=true ACT=gelu WEIGHT=result",
    "moe_gemm T=bf16 N=264 K=200 E=8 GATED=true ACT=swigluoai BIAS=true ORDER=up_first WEIGHT=product rows=130 k=2",
    "moe_gemm T=bf16 N=264 K=200 E=8 BLOCK=128 GATED=true ACT=silu rows=300",
    "moe_gemm T=bf16 N=1032 K=1200 E=8 BLOCK=8 SPLIT=4 STAGES=4 EARLY_B=true rows=70 k=2",
]

CUTS = [  # BLOCK, and the tile
    *[(block, dict(SWAP=True, LEFT=left)) for block in (8, 16, 32, 64) for left in (64, 128)],
    *[(block, dict(SWAP=True, LEFT=256, BLOCKS=1)) for block in (8, 32, 64)],
    *[(8, dict(LEFT=64, BLOCKS=blocks)) for blocks in (1, 2, 3, 4)],
    (128, dict(SWAP=True, LEFT=64, RIGHT=128)),
    (128, dict(SWAP=True, LEFT=128, RIGHT=128, BLOCKS=1)),
    *[(128, dict(RIGHT=right)) for right in (64, 128, 192, 256)],
    *[(64, dict(SWAP=False, RIGHT=right)) for right in (64, 128, 192, 256)],
    (128, dict(RIGHT=64, BLOCKS=2)),
    *[(128, dict(PAIR=1, RIGHT=right)) for right in (128, 256)],
    *[(128, dict(GROUP=group)) for group in (2, 32)],
    *[(block, dict(STAGES=2)) for block in (8, 64, 128)],
    *[(block, dict(EARLY_B=True)) for block in (8, 64, 128)],
    *[(block, dict(SPLIT=split)) for block in (8, 16, 32) for split in (2, 4)],
]


def test_layouts_and_blocks():
    # Tails of N and K; fewer and more rows than a block has.
    run_all(
        (some_rows(layout, 9, block, size), 264, 200, 9, block, dict(LAYOUT=layout, GATED=gated, ACT="silu" if gated else "none"))
        for layout, block, gated in itertools.product(LAYOUTS, BLOCKS, (False, True))
        for size in (3, 50, 200)
    )


def test_experts_of_a_token():
    for k, tokens, block in itertools.product((1, 2, 8, 9), (1, 7, 133), BLOCKS):
        ids = topk_ids(tokens, k, 16)
        case(routed(ids, 16, block), 264, 200, 16, block)
        case(routed(ids, 16, block, k=1), 264, 200, 16, block, WEIGHT="result")


def test_every_tile():
    run_all(
        (some_rows("routed", 12, block, size), 520, 584, 12, block, {**cut, **epilogue})
        for block, cut in CUTS
        for epilogue in ({}, dict(GATED=True, ACT="silu", BIAS=True))
        if not epilogue or (cut.get("LEFT", 128) >= 128 and cut.get("RIGHT", 128) >= 128)
        for size in (2, 90)
    )


def test_clusters_share_a_tile():
    """More and fewer tiles than clusters, blocks without an expert, and loads before the kernel before this one has ended."""
    local = torch.full((64,), -1, device="cuda", dtype=torch.int32)
    local[8:24] = torch.arange(16, device="cuda", dtype=torch.int32)
    gated = dict(GATED=True, ACT="silu", BIAS=True, WEIGHT="result")
    run_all(
        (some_rows(layout, 16, block, size), n, 584, 16, block, dict(LAYOUT=layout, SPLIT=split, STAGES=stages, **more))
        for layout, block, split in itertools.product(LAYOUTS, (8, 16), (2, 4))
        for size, n, stages, more in ((2, 72, 2, {}), (30, 1032, 4, gated))
    )
    for split, (tokens, early) in itertools.product((2, 4), ((1, False), (7, True), (90, True))):
        rows = routed(topk_ids(tokens, 8, 64), 64, 8, local=local)
        case(rows, 264, 1160, 16, 8, SPLIT=split, EARLY_B=early)
    for split, (_, ids) in itertools.product((2, 4), skewed(16)):
        case(routed(ids, 16, 8, spare=3), 264, 328, 16, 8, SPLIT=split)


def test_more_tiles_than_blocks_of_a_grid():
    run_all(
        (some_rows("routed", 64, block, size), 2056, 584, 64, block, dict(GATED=gated, ACT="gelu" if gated else "none"))
        for block, size in ((8, 5), (64, 100), (128, 300))
        for gated in (False, True)
    )


def test_pairs_of_blocks():
    """Pairs whose blocks have one expert, two experts, an expert and none, or an expert and no block."""
    run_all(
        (some_rows(layout, 12, 128, size), n, 584, 12, 128, dict(PAIR=pair, LAYOUT=layout, STAGES=stages, EARLY_B=early))
        for layout, size, pair in itertools.product(LAYOUTS, (60, 200, 700), (1, 2))
        for n, stages, early in ((520, 2, False), (1032, 3, layout == "routed"))
    )
    run_all(
        (some_rows("routed", 12, 128, size), 384, 640, 12, 128, dict(PAIR=pair, T="e4m3", EARLY_B=True, **more))
        for size, pair in itertools.product((60, 400), (1, 2))
        for more in ({}, dict(OUT="e4m3", GATED=True, ACT="silu"))
    )
    local = torch.full((64,), -1, device="cuda", dtype=torch.int32)
    local[8:24] = torch.arange(16, device="cuda", dtype=torch.int32)
    for pair, (tokens, early) in itertools.product((1, 2), ((1, False), (90, True), (700, True))):
        rows = routed(topk_ids(tokens, 8, 64), 64, 128, local=local)
        case(rows, 520, 200, 16, 128, PAIR=pair, EARLY_B=early)
    for pair, (_, ids) in itertools.product((1, 2), skewed(16)):
        case(routed(ids, 16, 128, spare=3), 264, 200, 16, 128, PAIR=pair)
    for pair in (1, 2):
        rows = contiguous([3, (5, -1), 0, 300, (170, -1), 1], 128)
        for out in ("bf16", "e4m3"):
            case(rows, 256, 200, 6, 128, LAYOUT="contiguous", PAIR=pair, OUT=out, RIGHT=128)


def test_skewed_routing():
    for block, (what, ids) in itertools.product(BLOCKS, skewed(16)):
        for spare, pad in ((0, None), (1, 2**31 - 1), (9, None)):
            try:
                case(routed(ids, 16, block, spare=spare, pad=pad), 264, 200, 16, block)
            except AssertionError as error:
                raise AssertionError(f"{what}, {spare} spare blocks: {error}") from None


def test_blocks_without_an_expert_are_zeros():
    local = torch.full((64,), -1, device="cuda", dtype=torch.int32)
    local[8:24] = torch.arange(16, device="cuda", dtype=torch.int32)
    for block, epilogue in itertools.product(BLOCKS, ({}, dict(BIAS=True, ACT="swigluoai", GATED=True, WEIGHT="result"))):
        for tokens in (1, 90):
            rows = routed(topk_ids(tokens, 8, 64), 64, block, local=local)
            case(rows, 264, 200, 16, block, **epilogue)
        rows = contiguous([3, (5, -1), 0, 200, (130, -1), 1], block)
        case(rows, 264, 200, 16, block, LAYOUT="contiguous", **epilogue)
    for block in (8, 64, 128):
        rows = routed(topk_ids(30, 8, 64), 64, block, local=local)
        case(rows, 256, 200, 16, block, OUT="e4m3", BIAS=True)


def test_numbers_of_rows():
    for block, count in itertools.product(BLOCKS, (1, 7, 129)):
        case(routed(topk_ids(count, 1, 5), 5, block), 264, 200, 5, block)
        case(masked([count, 0, 1, 0, count], count), 264, 200, 5, block, LAYOUT="masked")
        case(masked([0] * 5, count), 264, 200, 5, block, LAYOUT="masked")
        case(contiguous([count, 0, count], block, rows=-(-count // block) * block + count), 264, 200, 5, block, LAYOUT="contiguous")


def test_no_rows_launch_nothing():
    a, b = normal(0, 64), normal(4, 64, 64)
    empty = torch.zeros(64, device="cuda", dtype=torch.int32)
    for layout in LAYOUTS:
        out = Guarded(0, 64)
        routing = (empty, empty, empty, 0, 1, 64) if layout == "routed" else (empty, None, None, 0, 1, 0)
        kernel("moe_gemm", T="bf16", N=64, K=64, E=4, LAYOUT=layout)(out.view, a, b, *routing, 64, 64, 64, 64 * 64)
        out.check(layout)


def test_epilogues():
    gates = [(act, True, order) for act in (*ACTIVATIONS, "swigluoai") for order in ("gate_first", "up_first")]
    plain = [(act, False, "gate_first") for act in ACTIVATIONS]
    run_all(
        (some_rows("routed", 6, block, 40), 264, 200, 6, block, dict(ACT=act, GATED=gated, ORDER=order, T=dtype, **more))
        for i, (act, gated, order) in enumerate(gates + plain)
        for block, dtype in ((8, "bf16"), (64, "f16"), (128, "bf16"))
        for more in ({}, dict(BIAS=True, WEIGHT=("result", "product")[i % 2]))
    )
    run_all(  # limits that decide
        (some_rows("routed", 6, block, 40), 264, 200, 6, block, dict(ACT="swigluoai", GATED=True, BIAS=True, alpha=0.7, limit=1.5))
        for block in (8, 128)
    )


def test_weights():
    run_all(
        (some_rows(layout, 6, block, 40), 264, 200, 6, block, dict(LAYOUT=layout, WEIGHT=weight, BIAS=True, ACT="silu"))
        for layout, block, weight in itertools.product(LAYOUTS, (16, 64, 128), ("result", "product"))
    )


def test_types_of_results_and_bias():
    run_all(
        (some_rows("routed", 6, block, 40), 264, 200, 6, block, dict(T=dtype, OUT=out, BIAS=True, BIAS_T=bias))
        for block in (8, 64, 128)
        for dtype, out, bias in (("bf16", "f32", "f32"), ("bf16", "f16", "bf16"), ("f16", "bf16", "f32"), ("f16", "f32", "f16"))
    )


def test_small_matrices():
    run_all(
        (some_rows("routed", 3, block, 4), n, kk, 3, block, dict(GATED=gated, ACT="silu" if gated else "none"))
        for block, (n, kk), gated in itertools.product((8, 64, 128), ((8, 8), (40, 72)), (False, True))
    )


def test_strides():
    run_all(
        (some_rows(layout, 6, block, 40), 264, 200, 6, block, dict(LAYOUT=layout, T=dtype, GATED=True, ACT="silu", pad=3))
        for layout, block, dtype in itertools.product(LAYOUTS, (8, 64, 128), ("bf16", "f16"))
    )


def test_offsets_beyond_32_bits():
    """Weights and results of more than 2^31 elements each. Some rows are compared."""
    experts, n, kk, tokens, k = 257, 4096, 2056, 65537, 8
    need = 2 * (experts * n * kk + tokens * k * n + tokens * kk) + (6 << 30)
    free = torch.cuda.mem_get_info()[0]
    if free < need:
        return f"skipped: needs {need >> 30} GiB of memory, and {free >> 30} GiB are free"
    b = torch.empty(experts, n, kk, dtype=torch.bfloat16, device="cuda").normal_()
    a = normal(tokens, kk)
    ids = topk_ids(tokens, k, experts)
    ids[-40:, 0] = experts - 1
    ids[-40:, 1:] = topk_ids(40, k - 1, experts - 1)
    for block, template in ((64, "moe_gemm"), (128, "moe_gemm"), (64, portable())):
        rows = routed(ids, experts, block)
        out = Guarded(rows.rows, n)
        kernel(template, T="bf16", N=n, K=kk, E=experts, BLOCK=block)(
            out.view, a, b, *rows.arguments, rows.rows, rows.k, rows.capacity, n, kk, kk, n * kk
        )
        some = torch.cat([torch.arange(16, device="cuda"), torch.arange(rows.rows - 320, rows.rows, device="cuda")])
        want = torch.stack([b[rows.expert[r]].double() @ a[rows.source[r]].double() for r in some])
        expect_close(out.view[some], want, TOLERANCE["bf16"], f"{template} BLOCK={block}")
        assert not bool(out.view.isnan().any(1).any()), f"{template} BLOCK={block}: rows are missing"
        out.check(f"{template} BLOCK={block}")
        del out


def test_runs_give_the_same_bits():
    a, b = normal(200, 1024), normal(32, 512, 1024)
    for block, gated in itertools.product(BLOCKS, (False, True)):
        rows = routed(topk_ids(200, 4, 32), 32, block)
        runs = [torch.empty(800, 256 if gated else 512, dtype=torch.bfloat16, device="cuda") for _ in range(4)]
        for out in runs:
            product(out, a, b, rows, block, GATED=gated, ACT="silu" if gated else "none")
        for out in runs[1:]:
            expect_same_bits(out, runs[0], f"BLOCK={block} GATED={gated}")
    rows = routed(topk_ids(200, 4, 32), 32, 8)
    for split in (2, 4):
        first, second = (torch.empty(800, 512, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        product(first, a, b, rows, 8, SPLIT=split), product(second, a, b, rows, 8, SPLIT=split)
        expect_same_bits(first, second, f"SPLIT={split}")


def test_a_row_does_not_depend_on_its_neighbours():
    a, b = normal(200, 1024), normal(32, 512, 1024)
    for block in BLOCKS:
        ids = topk_ids(200, 4, 32)
        whole, part = (torch.empty(800, 512, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        product(whole, a, b, routed(ids, 32, block), block)
        product(part[:40], a, b, routed(ids[:10], 32, block), block)
        expect_same_bits(part[:40], whole[:40], f"BLOCK={block}")


def test_a_graph_replays_with_another_routing():
    a, b = normal(64, 1024), normal(16, 512, 1024)
    for block in (8, 64, 128):
        routings = [
            routed(ids, 16, block)
            for ids in (topk_ids(64, 4, 16), torch.full((64, 4), 3, device="cuda", dtype=torch.int32), topk_ids(64, 4, 5) + 11)
        ]
        first = routings[0]
        held = dataclasses.replace(first, arguments=tuple(t.clone() for t in first.arguments))
        out = torch.empty(256, 512, dtype=torch.bfloat16, device="cuda")
        product(out, a, b, held, block)  # compiles before the capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            product(out, a, b, held, block)
        for rows in (*routings[1:], first):
            for to, new in zip(held.arguments, rows.arguments):
                to.copy_(new)
            out.fill_(float("nan"))
            graph.replay()
            want = torch.einsum("rk,rnk->rn", a.double()[rows.source], b.double()[rows.expert])
            expect_close(out, want, TOLERANCE["bf16"], f"BLOCK={block}")


def test_a_layer_of_experts():
    """moe_align and both products, one after the other on a stream, without a wait of the host."""
    experts, k, hidden, inner = 16, 4, 512, 264
    up, down = normal(experts, 2 * inner, hidden, scale=hidden**-0.5), normal(experts, hidden, inner, scale=inner**-0.5)
    for tokens, block in itertools.product((1, 37, 200), (8, 64, 128)):
        x, ids, weights = normal(tokens, hidden), topk_ids(tokens, k, experts), torch.rand(tokens, k, device="cuda")
        capacity, n = capacity_of(tokens * k, experts, block), tokens * k
        align = kernel("moe_align", ID="i32", E=experts, BLOCK=block)
        first = kernel("moe_gemm", T="bf16", N=inner, K=hidden, E=experts, BLOCK=block, GATED=True, ACT="silu")
        second = kernel("moe_gemm", T="bf16", N=hidden, K=inner, E=experts, BLOCK=block, WEIGHT="result", EARLY_B=True)
        places, of_block, used, inverse = (
            torch.empty(size, device="cuda", dtype=torch.int32) for size in (capacity, capacity // block, 1, n)
        )
        h = torch.full((n, inner), float("nan"), device="cuda", dtype=torch.bfloat16)
        y = torch.full((n, hidden), float("nan"), device="cuda", dtype=torch.bfloat16)
        torch.cuda.synchronize()
        align(places, of_block, used, inverse, ids, tokens, k, k, capacity)
        routing = (of_block, places, used, n)
        first(h, x, up, *routing, k, capacity, inner, hidden, hidden, 2 * inner * hidden)
        second(
            *(y, h, down, *routing, 1, capacity, hidden, inner, inner, hidden * inner),
            *(None, 0, 0, None, None, weights, 1.702, 7.0),
        )
        expert, source = ids.reshape(-1).long(), torch.arange(n, device="cuda") // k
        gate, value = torch.einsum("rk,rnk->rn", x.double()[source], up.double()[expert]).chunk(2, 1)
        want = torch.nn.functional.silu(gate) * value
        expect_close(h, want, TOLERANCE["bf16"], f"h, {tokens} tokens, BLOCK={block}")
        want = torch.einsum("rk,rnk->rn", h.double(), down.double()[expert]) * weights.double().reshape(-1, 1)
        expect_close(y, want, TOLERANCE["bf16"], f"y, {tokens} tokens, BLOCK={block}")


def test_portable_kernel():
    for layout, block in itertools.product(LAYOUTS, BLOCKS):
        for size in (3, 90):
            case(some_rows(layout, 9, block, size), 264, 200, 9, block, template=portable(), LAYOUT=layout)
        gated = dict(GATED=True, ACT="silu", BIAS=True, WEIGHT="result", ORDER="up_first")
        case(some_rows(layout, 9, block, 40), 264, 200, 9, block, "f16", 3, portable(), LAYOUT=layout, **gated)
    for block, dtype in itertools.product((8, 64, 128), ("bf16", "e4m3")):
        places = functools.partial(case, some_rows("routed", 6, block, 40), 384, 1152, 6, block, dtype, 1, portable())
        places(PLACED_A=True, WEIGHT="result")
        places(PLACED_A=True, PLACED_D=True, OUT="e4m3", GATED=True, ACT="silu")
    for layout, block in itertools.product(LAYOUTS, (8, 128)):
        fp8 = functools.partial(case, dtype="e4m3", template=portable(), LAYOUT=layout)
        fp8(some_rows(layout, 6, block, 40), 264, 1152, 6, block, pad=1)
        fp8(some_rows(layout, 6, block, 40), 576, 1152, 6, block, column_major=3, GATED=True, ACT="gelu", WEIGHT="product")
    for layout, block in itertools.product(LAYOUTS, (8, 64, 128)):
        for dtype, gated in itertools.product(("bf16", "e4m3"), (False, True)):
            more = dict(GATED=gated, ACT="swigluoai" if gated else "none", OUT="e4m3", LAYOUT=layout)
            case(some_rows(layout, 6, block, 40), 384, 1152, 6, block, dtype, 1, portable(), **more)
    local = torch.full((64,), -1, device="cuda", dtype=torch.int32)
    local[8:24] = torch.arange(16, device="cuda", dtype=torch.int32)
    for block, (_, ids) in itertools.product(BLOCKS, skewed(16)):
        case(routed(ids, 16, block, spare=3), 264, 200, 16, block, template=portable())
    for block in (8, 64):
        rows = routed(topk_ids(30, 8, 64), 64, block, local=local)
        case(rows, 256, 200, 16, block, template=portable(), OUT="e4m3", BIAS=True)
        case(rows, 264, 200, 16, block, template=portable(), BIAS=True, ACT="swigluoai", GATED=True)


def test_refusals():
    a, b, out = normal(8, 64), normal(4, 64, 64), normal(8, 64)
    rows = routed(topk_ids(8, 1, 4), 4, 64)

    def call(a=a, capacity=rows.capacity, stride_a=64, k=1, more=(), **parameters):
        kernel("moe_gemm", **{"T": "bf16", "N": 64, "K": 64, "E": 4, **parameters})(
            out, a, b, *rows.arguments, 8, k, capacity, 64, stride_a, 64, 64 * 64, *more
        )

    expect_refused(lambda: call(a[:, 1:]), "a")
    expect_refused(lambda: call(stride_a=63), "stride_a")
    expect_refused(lambda: call(capacity=rows.capacity - 1), "capacity")
    expect_refused(lambda: call(k=0), "k = 0")
    expect_refused(lambda: call(k=2, LAYOUT="contiguous"), "k = 2")
    expect_refused(lambda: call(k=2, PLACED_A=True), "k = 2")
    ones = torch.ones(64, device="cuda")
    expect_refused(lambda: call(more=(ones, 2, 1, ones), T="e4m3", K=128, PLACED_A=True), "stride_scale_a = 2")
    expect_refused(lambda: call(PLACED_D=True, WEIGHT="result"), "PLACED_D")
    expect_refused(lambda: call(BIAS=True), "bias")
    expect_refused(lambda: call(WEIGHT="result"), "weights")
    expect_refused(lambda: call(more=(None, 0, 0, None, None, torch.ones(8, device="cuda"))), "weights")
    for parameters, word in (
        (dict(N=60), "N = 60"),
        (dict(SCALES="block"), "SCALES"),
        (dict(T="e4m3", K=64), "K = 64"),
        (dict(OUT="e4m3"), "N = 64"),
        (dict(OUT="e4m3", N=128, BLOCK=128, RIGHT=256), "it has 256"),
        (dict(ACT="swigluoai"), "GATED"),
        (dict(EARLY_B=True, LAYOUT="masked"), "EARLY_B"),
        (dict(PLACED_A=True, LAYOUT="masked"), "PLACED_A"),
        (dict(T="e4m3", N=192, K=128, BLOCK=128, RIGHT=256), "N = 192"),
        (dict(PAIR=2, BLOCK=8), "PAIR = 2"),
        (dict(SPLIT=2, BLOCK=128), "SPLIT = 2"),
        (dict(SPLIT=2, BLOCK=8), "SPLIT = 2"),  # K has one step
    ):
        expect_refused(lambda parameters=parameters: call(**parameters), word)
