"""moe_gemm_w4a16 against float64 products of the weights that its codes stand for: int4 with and without zeros, MXFP4, every size
of a group, every tile, skewed routings, edges and epilogues; and its time.
"""

import dataclasses
import itertools

import torch
from harness import DTYPES, Guarded, Row, between_nans, expect_close, expect_refused, expect_same_bits, kernel, normal
from moe_align import capacity_of, topk_ids
from moe_products import LEFT_ALONE, finished, routed, run_cases, skewed, some_rows

TOLERANCE = {"bf16": 4e-3, "f16": 6e-4, "f32": 2e-5}
BLOCKS = (8, 16, 32, 64)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# The place of pair j of a word of e2m1 in each half: three bits, and the sign.
BITS_OF_PAIR, SIGN_OF_PAIR = (6, 9, 3, 0), (15, 14, 12, 13)
FORMATS = [
    *[dict(CODES="int4", GROUP=group) for group in (32, 64, 128)],
    *[dict(CODES="int4", GROUP=group, ZEROS=True) for group in (32, 128)],
    dict(CODES="e2m1"),
]

SANITIZE = [
    *[f"moe_gemm_w4a16 T=bf16 N=272 K=200 E=8 BLOCK={block} CODES=e2m1 rows=70 k=2" for block in BLOCKS],
    "moe_gemm_w4a16 T=bf16 N=272 K=200 E=8 CODES=int4 GROUP=128 ZEROS=true GATED=true ACT=silu rows=130 k=2",
    "moe_gemm_w4a16 T=f16 N=272 K=200 E=8 CODES=int4 GROUP=64 BIAS=true WEIGHT=result rows=130 EARLY_B=true",
]

# ---- packed weights -----------------------------------------------------------------------------------------------------------------------


def packed(codes, codes_are):
    """The words of codes u8 [E, rows, K], one element at a time in the order of the words."""
    experts, rows, kk = codes.shape
    codes = torch.nn.functional.pad(codes, (0, -kk % 64)).int()
    tiles = codes.view(experts, rows // 16, 2, 8, -1, 2, 4, 2, 2, 2)  # tile, row / 8, g, tile of K, s / 2, t, s % 2, pair / 2, half
    tiles = tiles.permute(0, 1, 4, 3, 6, 5, 7, 8, 2, 9)  # ..., tile of K, g, t, s / 2, s % 2, pair / 2, row / 8, half
    words = torch.zeros(tiles.shape[:-3], dtype=torch.int64, device=codes.device)
    for pair, half in itertools.product(range(4), range(2)):
        code = tiles[..., pair // 2, pair % 2, half].long()
        if codes_are == "int4":
            words |= code << (4 * pair + 16 * half)
        else:
            words |= (code & 7) << (BITS_OF_PAIR[pair] + 16 * half) | (code >> 3) << (SIGN_OF_PAIR[pair] + 16 * half)
    words = torch.where(words >= 2**31, words - 2**32, words).int()
    return words.reshape(experts, rows // 16, -1, 128).contiguous()


def packed_scales(scales, groups):
    """Scales or zeros [E, rows, groups] in the order of the kernel. Groups that lie beyond K have ones."""
    experts, rows, given = scales.shape
    out = torch.ones(experts, rows // 16, groups, 8, 2, dtype=torch.float32, device=scales.device)
    out[:, :, :given] = scales.float().view(experts, rows // 16, 2, 8, given).permute(0, 1, 4, 3, 2)
    return out.to(scales.dtype).view(experts, rows // 16, groups, 16).contiguous()


class Weights:
    """Random weights [E, rows, K]: packed, with scales and zeros, and their values in float64."""

    def __init__(self, experts, rows, kk, dtype, CODES, GROUP=32, ZEROS=False):
        device = "cuda"
        codes = torch.randint(0, 16, (experts, rows, kk), dtype=torch.uint8, device=device)
        given, groups = -(-kk // GROUP), -(-(-(-kk // 64) * 64) // GROUP)
        factor = kk**-0.5 / (4 if CODES == "int4" else 3)  # sums are then about 1
        if CODES == "int4":
            scales = ((torch.rand(experts, rows, given, device=device) + 0.5) * factor).to(DTYPES[dtype])
            wide_scales = scales.double()
        else:
            exponents = (
                torch.randint(-2, 3, (experts, rows, given), device=device) + 127 + round(torch.tensor(factor).log2().item())
            )
            scales, wide_scales = exponents.to(torch.uint8).view(torch.float8_e8m0fnu), torch.exp2(exponents.double() - 127)
        zeros = torch.randint(0, 16, (experts, rows, given), dtype=torch.uint8, device=device) if ZEROS else None
        self.codes, self.scales, self.zeros = (
            packed(codes, CODES),
            packed_scales(scales, groups),
            packed_scales(zeros, groups) if ZEROS else None,
        )
        if CODES == "int4":
            values = codes.double() - (8 if zeros is None else zeros.double().repeat_interleave(GROUP, 2)[:, :, :kk])
        else:
            table = torch.tensor(E2M1, dtype=torch.float64, device=device)
            values = table[(codes & 7).long()] * torch.where(codes > 7, -1.0, 1.0).double()
        self.wide = values * wide_scales.repeat_interleave(GROUP, 2)[:, :, :kk]


# ---- one call -----------------------------------------------------------------------------------------------------------------------------


def case(rows, n, kk, experts, block, dtype="bf16", pad=0, alpha=1.702, limit=7.0, **parameters):
    """Runs one product between guards and compares it with float64. `rows` is a Routed."""
    gated, weight = parameters.get("GATED", False), parameters.get("WEIGHT", "none")
    count_b, count_d, out_dtype = 2 * n if gated else n, len(rows.expert), parameters.get("OUT", dtype)
    a = between_nans((rows.rows_a, kk), (kk + pad * 8, 1), dtype)
    b = Weights(
        experts, count_b, kk, dtype, **{name: parameters[name] for name in ("CODES", "GROUP", "ZEROS") if name in parameters}
    )
    bias = normal(experts, count_b, dtype=parameters.get("BIAS_T", out_dtype)) if parameters.get("BIAS") else None
    weights = torch.rand(count_d, device="cuda") + 0.5 if weight != "none" else None
    stride_d = n + 16 * pad
    out = Guarded(count_d, n, dtype=out_dtype, strides=(stride_d, 1))

    kernel("moe_gemm_w4a16", T=dtype, N=n, K=kk, E=experts, BLOCK=block, **parameters)(
        *(out.view, a, b.codes, *rows.arguments, rows.rows, rows.k, rows.capacity, stride_d, a.stride(0)),
        *(b.scales, b.zeros, bias, weights, alpha, limit),
    )

    y = torch.zeros(count_d, count_b, dtype=torch.float64, device="cuda")
    for expert in range(experts):
        of_expert = (rows.expert == expert).nonzero().flatten()
        y[of_expert] = a.double()[rows.source[of_expert]] @ b.wide[expert].t()
    names = dict(gated=gated, act=parameters.get("ACT", "none"), order=parameters.get("ORDER", "gate_first"), weight=weight)
    y = finished(y, rows.expert, bias, weights, n, alpha=alpha, limit=limit, **names)
    y[rows.expert == -1] = 0.0
    y[rows.expert == LEFT_ALONE] = float("nan")
    what = f"rows={rows.rows} k={rows.k} N={n} K={kk} E={experts} BLOCK={block} {dtype} pad={pad} {parameters}"
    expect_close(out.view, y, TOLERANCE[out_dtype], what)
    out.check(what)


def run_all(cases):
    run_cases("moe_gemm_w4a16", case, cases)


# ---- tests --------------------------------------------------------------------------------------------------------------------------------


def test_formats():
    """Results in f32 show that no weight and no product is rounded. Tails of K: of a group, of 32 and of 64."""
    run_all(
        (some_rows("routed", 5, block, size), 272, kk, 5, block, dict(T=dtype, OUT="f32", **form))
        for form, block in itertools.product(FORMATS, BLOCKS)
        for dtype, kk, size in (("bf16", 200, 3), ("f16", 576, 50))
    )


def test_gates():
    run_all(
        (some_rows("routed", 5, block, 20), 272, 328, 5, block, dict(T=("bf16", "f16")[i % 2], GATED=True, ACT="silu", **form))
        for i, form in enumerate(FORMATS)
        for block in BLOCKS
    )


def test_experts_of_a_token():
    for k, tokens, block in itertools.product((1, 2, 8), (1, 7, 133), BLOCKS):
        ids = topk_ids(tokens, k, 16)
        case(routed(ids, 16, block), 272, 200, 16, block, CODES="e2m1")
        case(routed(ids, 16, block, k=1), 272, 200, 16, block, CODES="int4", WEIGHT="result", EARLY_B=True)


CUTS = [  # BLOCK, and the tile
    *[(8, dict(SPLIT=split, WARPS=warps)) for split, warps in ((2, 4), (4, 4), (4, 8), (8, 8))],
    *[(16, dict(SPLIT=split, WARPS=warps)) for split, warps in ((1, 4), (2, 8), (8, 8))],
    *[(32, dict(SPLIT=split)) for split in (1, 2, 4)],
    *[(64, dict(SPLIT=split)) for split in (1, 2)],
    *[(block, dict(TILES=tiles)) for block in BLOCKS for tiles in (1, 2, 4) if block * tiles <= 128],
    *[(block, dict(STAGES=stages)) for block in BLOCKS for stages in (2, 3)],
]


def test_every_tile():
    run_all(
        (some_rows("routed", 5, block, size), 528, 584, 5, block, {**cut, **FORMATS[i % len(FORMATS)], **epilogue})
        for i, (block, cut) in enumerate(CUTS)
        for epilogue in ({}, dict(GATED=True, ACT="silu", BIAS=True))
        if not epilogue or cut.get("TILES", 2) > 1
        for size in (2, 90)
    )


def test_skewed_routing():
    for block, (what, ids) in itertools.product(BLOCKS, skewed(16)):
        for spare, pad in ((0, None), (1, 2**31 - 1), (9, None)):
            try:
                case(routed(ids, 16, block, spare=spare, pad=pad), 272, 200, 16, block, CODES="e2m1", EARLY_B=spare > 0)
            except AssertionError as error:
                raise AssertionError(f"{what}, {spare} spare blocks: {error}") from None


def test_blocks_without_an_expert_are_zeros():
    local = torch.full((64,), -1, device="cuda", dtype=torch.int32)
    local[8:24] = torch.arange(16, device="cuda", dtype=torch.int32)
    for block, epilogue in itertools.product(BLOCKS, ({}, dict(BIAS=True, ACT="swigluoai", GATED=True, WEIGHT="result"))):
        for tokens in (1, 90):
            rows = routed(topk_ids(tokens, 8, 64), 64, block, local=local)
            case(rows, 272, 200, 16, block, CODES="e2m1", EARLY_B=tokens == 1, **epilogue)


def test_no_rows_launch_nothing():
    weights, empty = Weights(4, 64, 64, "bf16", "int4"), torch.zeros(64, device="cuda", dtype=torch.int32)
    out = Guarded(0, 64)
    kernel("moe_gemm_w4a16", T="bf16", N=64, K=64, E=4, CODES="int4")(
        out.view, normal(0, 64), weights.codes, empty, empty, empty, 0, 1, 64, 64, 64, weights.scales
    )
    out.check()


def test_epilogues():
    acts = ("none", "relu", "relu_squared", "silu", "gelu", "gelu_tanh")
    gates = [(act, True, order) for act in (*acts, "swigluoai") for order in ("gate_first", "up_first")]
    plain = [(act, False, "gate_first") for act in acts]
    run_all(
        (
            some_rows("routed", 6, block, 20),
            272,
            200,
            6,
            block,
            dict(ACT=act, GATED=gated, ORDER=order, CODES="e2m1", T=dtype, **more),
        )
        for i, (act, gated, order) in enumerate(gates + plain)
        for block, dtype in (((8, "bf16"), (64, "f16"))[i % 2],)
        for more in ({}, dict(BIAS=True, WEIGHT=("result", "product")[i % 2]))
    )
    run_all(  # limits that decide
        (some_rows("routed", 6, 8, 20), 272, 200, 6, 8, dict(ACT="swigluoai", GATED=True, CODES=codes, alpha=0.7, limit=0.5))
        for codes in ("int4", "e2m1")
    )


def test_sizes_strides_and_types():
    run_all(
        (some_rows("routed", 3, block, 9), n, kk, 3, block, dict(CODES="int4", GROUP=128, pad=3))
        for block, (n, kk) in itertools.product(BLOCKS, ((16, 8), (48, 72), (528, 1096)))
    )
    run_all(
        (some_rows("routed", 3, 8, 9), 272, 200, 3, 8, dict(CODES="int4", T=dtype, S=scale, OUT=out, BIAS=True, BIAS_T=bias))
        for dtype, scale, out, bias in (("bf16", "f16", "f32", "bf16"), ("f16", "bf16", "bf16", "f32"))
        if scale == dtype  # Weights makes scales of the type of a
    )


def test_every_code():
    """One row of a picks one column of the weight, so that each result is one weight."""
    for dtype, form in itertools.product(("bf16", "f16"), FORMATS):
        weights = Weights(1, 64, 128, dtype, **form)
        out = torch.full((128, 64), float("nan"), device="cuda")
        rows = routed(torch.zeros(128, 1, dtype=torch.int32, device="cuda"), 1, 32)
        kernel("moe_gemm_w4a16", T=dtype, N=64, K=128, E=1, OUT="f32", **form)(
            *(
                out,
                torch.eye(128, device="cuda", dtype=DTYPES[dtype]),
                weights.codes,
                *rows.arguments,
                128,
                1,
                rows.capacity,
                64,
                128,
            ),
            *(weights.scales, weights.zeros),
        )
        assert torch.equal(out.double(), weights.wide[0].t()), f"{dtype} {form}"


def test_weights_of_more_than_2_to_the_31_bytes():
    experts, n, kk = 129, 4096, 8192
    free = torch.cuda.mem_get_info()[0]
    if free < 8 << 30:
        return f"skipped: needs 8 GiB of memory, and {free >> 30} GiB are free"
    part = Weights(1, n, kk, "bf16", "int4", 128)
    codes, scales = part.codes.expand(experts, -1, -1, -1).contiguous(), part.scales.expand(experts, -1, -1, -1).contiguous()
    codes[:-1] = -1
    a, ids = normal(8, kk), torch.full((8, 1), experts - 1, dtype=torch.int32, device="cuda")
    rows, out = routed(ids, experts, 8), Guarded(8, n)
    kernel("moe_gemm_w4a16", T="bf16", N=n, K=kk, E=experts, BLOCK=8, CODES="int4", GROUP=128)(
        out.view, a, codes, *rows.arguments, 8, 1, rows.capacity, n, kk, scales
    )
    expect_close(out.view, a.double() @ part.wide[0].t(), TOLERANCE["bf16"], "the last expert")
    out.check()


def product(out, a, b, rows, block, **parameters):
    experts, kk = b.codes.shape[0], a.shape[1]
    kernel("moe_gemm_w4a16", T="bf16", N=out.shape[1], K=kk, E=experts, BLOCK=block, **parameters)(
        out, a, b.codes, *rows.arguments, rows.rows, rows.k, rows.capacity, out.shape[1], kk, b.scales
    )


def test_runs_give_the_same_bits_and_rows_are_independent():
    a, b = normal(100, 1024), Weights(16, 512, 1024, "bf16", "e2m1")
    for block in BLOCKS:
        ids = topk_ids(100, 4, 16)
        rows, part = routed(ids, 16, block), routed(ids[:10], 16, block)
        runs = [torch.full((400, 512), float("nan"), dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        for out in runs:
            product(out, a, b, rows, block, CODES="e2m1")
        few = torch.empty(40, 512, dtype=torch.bfloat16, device="cuda")
        product(few, a, b, part, block, CODES="e2m1")
        for out in runs[1:]:
            expect_same_bits(out, runs[0], f"BLOCK={block}")
        expect_same_bits(few, runs[0][:40], f"BLOCK={block}: a part of the rows")


def test_a_graph_replays_with_another_routing():
    a, b = normal(64, 1024), Weights(16, 512, 1024, "bf16", "e2m1")
    for block in (8, 64):
        routings = [
            routed(ids, 16, block)
            for ids in (topk_ids(64, 4, 16), torch.full((64, 4), 3, device="cuda", dtype=torch.int32), topk_ids(64, 4, 5) + 11)
        ]
        held = dataclasses.replace(routings[0], arguments=tuple(t.clone() for t in routings[0].arguments))
        out = torch.empty(256, 512, dtype=torch.bfloat16, device="cuda")
        product(out, a, b, held, block, CODES="e2m1")  # compiles before the capture
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            product(out, a, b, held, block, CODES="e2m1")
        for rows in (*routings[1:], routings[0]):
            for to, new in zip(held.arguments, rows.arguments):
                to.copy_(new)
            out.fill_(float("nan"))
            graph.replay()
            want = torch.einsum("rk,rnk->rn", a.double()[rows.source], b.wide[rows.expert])
            expect_close(out, want, TOLERANCE["bf16"], f"BLOCK={block}")


def test_a_layer_of_experts():
    """moe_align and both products, one after the other on a stream, without a wait of the host."""
    experts, k, hidden, inner = 16, 4, 512, 272
    up, down = Weights(experts, 2 * inner, hidden, "bf16", "e2m1"), Weights(experts, hidden, inner, "bf16", "int4")
    for tokens, block in itertools.product((1, 37, 200), (8, 32)):
        x, ids, weights = normal(tokens, hidden), topk_ids(tokens, k, experts), torch.rand(tokens, k, device="cuda")
        capacity, n = capacity_of(tokens * k, experts, block), tokens * k
        align = kernel("moe_align", ID="i32", E=experts, BLOCK=block)
        common = dict(T="bf16", E=experts, BLOCK=block)
        first = kernel("moe_gemm_w4a16", N=inner, K=hidden, GATED=True, ACT="silu", CODES="e2m1", **common)
        second = kernel("moe_gemm_w4a16", N=hidden, K=inner, WEIGHT="result", EARLY_B=True, CODES="int4", **common)
        places, of_block, used, inverse = (
            torch.empty(size, device="cuda", dtype=torch.int32) for size in (capacity, capacity // block, 1, n)
        )
        h = torch.full((n, inner), float("nan"), device="cuda", dtype=torch.bfloat16)
        y = torch.full((n, hidden), float("nan"), device="cuda", dtype=torch.bfloat16)
        torch.cuda.synchronize()
        align(places, of_block, used, inverse, ids, tokens, k, k, capacity)
        routing = (of_block, places, used, n)
        first(h, x, up.codes, *routing, k, capacity, inner, hidden, up.scales)
        second(y, h, down.codes, *routing, 1, capacity, hidden, inner, down.scales, None, None, weights)
        expert, source = ids.reshape(-1).long(), torch.arange(n, device="cuda") // k
        gate, value = torch.einsum("rk,rnk->rn", x.double()[source], up.wide[expert]).chunk(2, 1)
        want = torch.nn.functional.silu(gate) * value
        expect_close(h, want, TOLERANCE["bf16"], f"h, {tokens} tokens, BLOCK={block}")
        want = torch.einsum("rk,rnk->rn", h.double(), down.wide[expert]) * weights.double().reshape(-1, 1)
        expect_close(y, want, TOLERANCE["bf16"], f"y, {tokens} tokens, BLOCK={block}")


def test_refusals():
    a, b, out, rows = normal(8, 64), Weights(4, 64, 64, "bf16", "int4"), normal(8, 64), routed(topk_ids(8, 1, 4), 4, 32)

    def call(capacity=rows.capacity, stride_a=64, k=1, more=(b.scales,), **parameters):
        kernel("moe_gemm_w4a16", **{"T": "bf16", "N": 64, "K": 64, "E": 4, "CODES": "int4", **parameters})(
            out, a, b.codes, *rows.arguments, 8, k, capacity, 64, stride_a, *more
        )

    expect_refused(lambda: call(stride_a=63), "stride_a")
    expect_refused(lambda: call(capacity=rows.capacity - 1), "capacity")
    expect_refused(lambda: call(k=0), "k = 0")
    expect_refused(lambda: call(BIAS=True), "bias")
    expect_refused(lambda: call(ZEROS=True), "zero_b")
    expect_refused(lambda: call(WEIGHT="result"), "weights")
    for parameters, word in (
        (dict(N=40), "N = 40"),
        (dict(K=60), "K = 60"),
        (dict(CODES="e2m1", S="bf16"), "S = bf16"),
        (dict(CODES="e2m1", GROUP=64), "GROUP = 64"),
        (dict(CODES="e2m1", ZEROS=True), "ZEROS"),
        (dict(ACT="swigluoai"), "GATED"),
        (dict(GATED=True, TILES=1), "TILES = 1"),
        (dict(BLOCK=8, SPLIT=1), "SPLIT = 1"),
        (dict(BLOCK=64, TILES=4), "TILES"),
    ):
        expect_refused(lambda parameters=parameters: call(**parameters), word)


# ---- times --------------------------------------------------------------------------------------------------------------------------------

MODELS = {  # experts, experts of a token, hidden, inner, weights, activation
    "gpt-oss-20b": (32, 4, 2880, 2880, dict(CODES="e2m1"), "swigluoai"),
    "Qwen3-30B-A3B": (128, 8, 2048, 768, dict(CODES="int4", GROUP=128), "silu"),
}


def block_of(rows, experts):
    """BLOCK with room for the rows of nearly every expert, as the operator fused_moe chooses it."""
    mean = rows / experts
    return next((block for block in BLOCKS if block >= mean + 2 * mean**0.5), 64)


def bench_row(model, tokens, gated, **cut):
    """One product of a layer. The floor reads the weights of the experts that have rows."""
    experts, k, hidden, inner, form, act = MODELS[model]
    block, pairs = block_of(tokens * k, experts), tokens * k
    busy = experts * (1 - (1 - k / experts) ** tokens)
    n, kk = (inner, hidden) if gated else (hidden, inner)
    rows_a, count_b, bias = tokens if gated else pairs, 2 * n if gated else n, act == "swigluoai"
    named = dict(GATED=True, ACT=act, **form, **cut) if gated else dict(WEIGHT="result", **form, **cut)
    groups, scale_size = -(-kk // form.get("GROUP", 32)), 1 if form["CODES"] == "e2m1" else 2

    def make():
        rows = routed(topk_ids(tokens, k, experts), experts, block, k=None if gated else 1)
        shape = (experts, count_b // 16, -(-kk // 64), 128)
        codes = torch.randint(-(2**31), 2**31 - 1, shape, dtype=torch.int32, device="cuda")
        scales = torch.randint(120, 124, (experts, count_b // 16, groups, 16), dtype=torch.uint8, device="cuda")
        scales = scales.view(torch.float8_e8m0fnu) if scale_size == 1 else torch.exp2(scales.float() - 127).bfloat16()
        biases = normal(experts, count_b) if bias else None
        weights = None if gated else torch.rand(pairs, device="cuda")
        out = torch.empty(pairs, n, dtype=torch.bfloat16, device="cuda")
        return (out, normal(rows_a, kk), codes, *rows.arguments, rows.capacity, scales, biases, weights)

    def launch(out, a, codes, of_block, places, used, capacity, scales, biases, weights):
        kernel("moe_gemm_w4a16", T="bf16", N=n, K=kk, E=experts, BLOCK=block, BIAS=bias, **named)(
            *(out, a, codes, of_block, places, used, pairs, k if gated else 1, capacity, n, kk), *(scales, None, biases, weights)
        )

    return Row(
        case=f"{model} {'up' if gated else 'down'}: tokens {tokens}, BLOCK {block}",
        read=int(busy * count_b * (kk / 2 + groups * scale_size) + 2 * rows_a * kk),
        write=2 * pairs * n,
        flops=2 * pairs * count_b * kk,
        make=make,
        launches={"kiln": launch},
        bar=0,
    )


def bench():
    for model, tokens, gated in itertools.product(MODELS, (1, 4, 16, 64, 256, 1024), (True, False)):
        yield bench_row(model, tokens, gated)
