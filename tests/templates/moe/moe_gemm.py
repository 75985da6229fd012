"""moe_gemm against float64: every layout of rows, every tile, every epilogue, skewed routings, edges, strides and fp8; and
its time beside PyTorch.
"""

import dataclasses
import functools
import itertools

import torch
from harness import (
    DTYPES,
    Guarded,
    Row,
    between_nans,
    expect_close,
    expect_refused,
    expect_same_bits,
    kernel,
    normal,
    peers,
    portable_template,
    prefetch,
)
from moe_align import capacity_of, reference, topk_ids

TOLERANCE = {"bf16": 4e-3, "f16": 6e-4, "f32": 2e-5, "e4m3": 4e-2}
FP8_SUMS = 3e-4  # tensor cores keep about 14 bits of the sums of 128 products of fp8
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "relu_squared": lambda x: torch.relu(x) ** 2,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}
BLOCKS = (8, 16, 32, 64, 128)

SANITIZE = [
    *[f"moe_gemm T=bf16 N=264 K=200 E=8 BLOCK={block} rows=70 k=2" for block in BLOCKS],
    "moe_gemm T=bf16 N=264 K=200 E=8 LAYOUT=contiguous BLOCK=128 rows=300",
    "moe_gemm T=f16 N=264 K=200 E=5 LAYOUT=masked BLOCK=32 rows=37 BIAS=true ACT=gelu WEIGHT=result",
    "moe_gemm T=bf16 N=264 K=200 E=8 GATED=true ACT=swigluoai BIAS=true ORDER=up_first WEIGHT=product rows=130 k=2",
    "moe_gemm T=bf16 N=264 K=200 E=8 BLOCK=128 GATED=true ACT=silu rows=300",
    "moe_gemm T=e4m3 N=264 K=256 E=8 BLOCK=16 rows=70 k=2",
    "moe_gemm T=e4m3 N=264 K=256 E=8 BLOCK=128 rows=300",
    "moe_gemm T=e4m3 N=384 K=256 E=8 BLOCK=128 RIGHT=256 rows=300",
    "moe_gemm T=e4m3 N=256 K=256 E=8 BLOCK=128 OUT=e4m3 GATED=true ACT=silu rows=300",
    "moe_gemm T=e4m3 N=256 K=256 E=8 OUT=e4m3 GATED=true ACT=silu rows=70 k=2",
]

# ---- rows and their experts ---------------------------------------------------------------------------------------------------------------

LEFT_ALONE = -2


@dataclasses.dataclass
class Routed:
    """The rows of a call. For each row of d, `source` is its row of a, and `expert` its expert.

    An expert of -1 makes zeros, and LEFT_ALONE is a row that the call must not write.
    """

    arguments: tuple  # expert_ids, sorted_token_ids, num_tokens_post_padded
    rows: int  # the argument
    k: int
    capacity: int
    source: torch.Tensor
    expert: torch.Tensor
    rows_a: int


def ints(values):
    return torch.as_tensor(values, dtype=torch.int32, device="cuda")


def routed(ids, experts, block, k=None, local=None, spare=0, pad=None):
    """The rows of `ids`, [tokens, experts of a token], as moe_align sorts them.

    - k: 1 for the second product, whose a has a row for each pair; None: the experts of a token.
    - local: the expert_map; pairs of an expert with -1 there have blocks with the expert -1.
    - spare: blocks of places that are not in use. They name rows that belong to other experts.
    - pad: what the places of no row hold.
    """
    n, k = ids.numel(), ids.shape[1] if k is None else k
    capacity = capacity_of(n, experts, block) + spare * block
    places, of_block, used, inverse = reference(ids, experts, block, capacity, local)
    places = torch.where(places >= n, n if pad is None else pad, places)
    flat = ids.reshape(-1).long()
    expert = flat if local is None else local.long()[flat.clamp(0, experts - 1)]
    expert = torch.where(inverse >= 0, expert, LEFT_ALONE)
    if n:
        places[used:] = 0
        of_block[used // block :] = (max(int(expert[0]), 0) + 1) % (experts if local is None else int(local.max()) + 1)
    source = torch.arange(n, device="cuda") // k
    return Routed((of_block, places, ints([used])), n, k, capacity, source, expert, -(-n // k))


def placed(rows, a=False, d=False):
    """Returns `rows` with a row of a or of d for each place."""
    places = rows.arguments[1].long()
    at = torch.arange(rows.capacity, device="cuda")
    named = (at < rows.arguments[2]) & (places < rows.rows)
    source, expert = rows.source, rows.expert
    if a:
        source = torch.zeros(rows.rows, dtype=torch.long, device="cuda")
        source[places[named]] = at[named]
    if d:
        of_row = places.where(named, 0)
        source, expert = source[of_row], expert[of_row].where(named, LEFT_ALONE)
    return dataclasses.replace(rows, source=source, expert=expert, rows_a=rows.capacity if a else rows.rows_a, k=1 if a else rows.k)


def contiguous(counts, block, rows=None):
    """counts[i] rows of expert i, which begin at a multiple of `block`. A pair (count, -1) has no expert."""
    expert = []
    for i, count in enumerate(counts):
        count, i = count if isinstance(count, tuple) else (count, i)
        expert += [i] * (-(-count // block) * block)
    expert = expert[:rows]
    rows = len(expert)
    arguments = (ints(expert), None, None)
    return Routed(arguments, rows, 1, 0, torch.arange(rows, device="cuda"), torch.tensor(expert, device="cuda"), rows)


def masked(counts, rows):
    """The first counts[i] of the `rows` rows of expert i."""
    total = rows * len(counts)
    expert = torch.arange(total, device="cuda") // max(rows, 1)
    used = torch.arange(total, device="cuda") % max(rows, 1) < torch.tensor(counts, device="cuda")[expert]
    expert = torch.where(used, expert, LEFT_ALONE)
    return Routed((ints(counts), None, None), rows, 1, 0, torch.arange(total, device="cuda"), expert, total)


def some_rows(layout, experts, block, size):
    """Rows of any layout: about `size` for each expert, some experts without any."""
    counts = torch.randint(0, 2 * size, (experts,)).tolist()
    counts[experts // 2] = 0
    if layout == "contiguous":
        return contiguous(counts, block)
    if layout == "masked":
        return masked(counts, 2 * size)
    k = min(2, experts)
    return routed(topk_ids(-(-size * experts // k), k, experts), experts, block)


# ---- one call -----------------------------------------------------------------------------------------------------------------------------


def scales_of(rows_a, experts, rows_b, kk, column_major):
    """scale_a and scale_b, and both as matrices of factors of a and b."""
    shape, strides = (rows_a, kk // 128), (1, rows_a + column_major) if column_major else (kk // 128 + 1, 1)
    a = between_nans(shape, strides, "f32").uniform_(0.5, 1.5)
    b = torch.rand(experts, -(-rows_b // 128), kk // 128, device="cuda") + 0.5
    wide = b.double().repeat_interleave(128, 1)[:, :rows_b].repeat_interleave(128, 2)
    return a, b, a.double().repeat_interleave(128, 1), wide


def finished(y, expert, bias, weights, n, gated, act, order, weight, alpha, limit):
    """The epilogue, in float64, of the sums of rows."""
    if weight == "product":
        y = y * weights.double()[:, None]
    if bias is not None:
        y = y + bias.double()[expert.clamp(min=0)]
    if gated:
        gate, up = (y[:, :n], y[:, n:]) if order == "gate_first" else (y[:, n:], y[:, :n])
        if act == "swigluoai":
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            y = gate * torch.sigmoid(alpha * gate) * (up + 1)
        else:
            y = ACTIVATIONS[act](gate) * up
    else:
        y = ACTIVATIONS[act](y)
    return y * weights.double()[:, None] if weight == "result" else y


def case(
    rows, n, kk, experts, block, dtype="bf16", pad=0, template="moe_gemm", alpha=1.702, limit=7.0, column_major=0, **parameters
):
    """Runs one product between guards and compares it with float64. `rows` is a Routed.

    column_major: the scales of a column lie side by side. The next column begins this many scales after the last row of a.
    """
    placed_a, placed_d = parameters.get("PLACED_A", False), parameters.get("PLACED_D", False)
    if placed_a or placed_d:
        rows = placed(rows, placed_a, placed_d)
    gated, weight = parameters.get("GATED", False), parameters.get("WEIGHT", "none")
    count_b, count_d = 2 * n if gated else n, len(rows.expert)
    out_dtype = parameters.get("OUT", "f16" if dtype == "f16" else "bf16")
    unit = 16 // torch.empty(0, dtype=DTYPES[dtype]).element_size()
    stride = kk + pad * unit
    a = between_nans((rows.rows_a, kk), (stride, 1), dtype)
    unused = torch.zeros(rows.rows_a, dtype=torch.bool, device="cuda")
    if parameters.get("LAYOUT", "routed") != "routed" or placed_a:
        unused.fill_(True)
        unused[rows.source[rows.expert >= 0]] = False
        a.view(torch.uint8 if dtype == "e4m3" else torch.int16)[unused] = 255 if dtype == "e4m3" else -1  # NaN
    scale = 1.0 if dtype == "e4m3" else kk**-0.5  # products of two activations would not be finite in f16
    b = between_nans((experts, count_b, kk), (count_b * stride + 4 * pad * unit, stride, 1), dtype, scale)
    bias_dtype = parameters.get("BIAS_T", out_dtype if out_dtype != "e4m3" else "bf16")
    bias = normal(experts, count_b, dtype=bias_dtype) if parameters.get("BIAS") else None
    weights = torch.rand(count_d, device="cuda") + 0.5 if weight != "none" else None
    scale_a = scale_b = None
    by_a = by_b = 1.0
    if dtype == "e4m3":
        scale_a, scale_b, by_a, by_b = scales_of(rows.rows_a, experts, count_b, kk, 4 if placed_a else column_major)
        scale_a[unused] = float("nan")
    stride_d = n + 16 * pad
    out = Guarded(count_d, n, dtype=out_dtype, strides=(stride_d, 1))
    groups = -(-n // 128)
    strides = (1, count_d + pad) if placed_d else (groups + pad, 1)
    factors = Guarded(count_d, groups, dtype="f32", strides=strides) if out_dtype == "e4m3" else None

    kernel(template, T=dtype, N=n, K=kk, E=experts, BLOCK=block, **parameters)(
        *(out.view, a, b, *rows.arguments, rows.rows, rows.k, rows.capacity),
        *(stride_d, a.stride(0), b.stride(1), b.stride(0)),
        *(scale_a, scale_a.stride(0) if scale_a is not None else 0, scale_a.stride(1) if scale_a is not None else 0, scale_b),
        *(bias, weights, alpha, limit),
        *(factors.view if factors else None, *strides),
    )

    wide_a, wide_b = a.double() * by_a, b.double() * by_b
    y = torch.zeros(count_d, count_b, dtype=torch.float64, device="cuda")
    for expert in range(experts):
        of_expert = (rows.expert == expert).nonzero().flatten()
        y[of_expert] = wide_a[rows.source[of_expert]] @ wide_b[expert].t()
    names = dict(gated=gated, act=parameters.get("ACT", "none"), order=parameters.get("ORDER", "gate_first"), weight=weight)
    y = finished(y, rows.expert, bias, weights, n, alpha=alpha, limit=limit, **names)
    y[rows.expert == -1] = 0.0
    y[rows.expert == LEFT_ALONE] = float("nan")
    exact = FP8_SUMS if dtype == "e4m3" and template == "moe_gemm" else TOLERANCE["f32"]
    what = f"rows={rows.rows} k={rows.k} N={n} K={kk} E={experts} BLOCK={block} {dtype} pad={pad} {parameters}"
    if factors:
        # A row of which a group has no finite result has the factor of zeros.
        want = torch.nn.functional.pad(y.nan_to_num(0.0).abs(), (0, groups * 128 - n)).unflatten(1, (groups, 128)).amax(-1)
        want = want.clamp(min=1e-10) / 448
        want[rows.expert == LEFT_ALONE] = float("nan")
        expect_close(factors.view, want, exact, f"scale_d of {what}")
        got = out.view.double() * factors.view.double().repeat_interleave(128, 1)[:, :n]
        expect_close(got, y, TOLERANCE["e4m3"], what)
        factors.check(what)
    else:
        expect_close(out.view, y, exact if out_dtype == "f32" else TOLERANCE[out_dtype], what)
    out.check(what)


def run_cases(template, case, cases):
    """Runs case() for each (rows, n, kk, experts, block, parameters) of `cases`. Their kernels of `template` compile side by side."""
    cases = list(cases)
    for _, n, kk, experts, block, parameters in cases:
        compiled = {name: value for name, value in parameters.items() if name.isupper() and name != "T"}
        prefetch(template, T=parameters.get("T", "bf16"), N=n, K=kk, E=experts, BLOCK=block, **compiled)
    for rows, n, kk, experts, block, parameters in cases:
        parameters = dict(parameters)
        case(rows, n, kk, experts, block, parameters.pop("T", "bf16"), **parameters)


def run_all(cases):
    run_cases("moe_gemm", case, cases)


LAYOUTS = ("routed", "contiguous", "masked")

# ---- tests --------------------------------------------------------------------------------------------------------------------------------


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


def placed_cases():
    """Rows of a and d at places: each type, tile and epilogue, pairs of blocks, and experts that are not here."""
    both, first, second = dict(PLACED_A=True, PLACED_D=True), dict(PLACED_D=True), dict(PLACED_A=True, WEIGHT="result")
    up = dict(T="e4m3", OUT="e4m3", GATED=True, ACT="silu")
    some = functools.partial(some_rows, "routed", 12)
    for block, size in itertools.product(BLOCKS, (3, 90)):
        for more in (both, first, dict(**second, EARLY_B=True)):
            yield some(block, size), 520, 584, 12, block, more
        yield some(block, size), 384, 640, 12, block, {**up, **both}
        yield some(block, size), 648, 640, 12, block, dict(T="e4m3", EARLY_B=True, **second)
    local = torch.full((64,), -1, device="cuda", dtype=torch.int32)
    local[8:24] = torch.arange(16, device="cuda", dtype=torch.int32)
    for pair, size in itertools.product((1, 2), (60, 400, 1500)):
        yield some(128, size), 520, 584, 12, 128, dict(PAIR=pair, GATED=True, ACT="silu", **both)
        yield some(128, size), 384, 640, 12, 128, dict(PAIR=pair, **up, **both)
        yield some(128, size), 384, 640, 12, 128, dict(PAIR=pair, **up, **first)
        for right in (64, 128, 256):
            yield some(128, size), 896, 1152, 12, 128, dict(T="e4m3", PAIR=pair, RIGHT=right, EARLY_B=True, **second)
        rows = routed(topk_ids(size, 8, 64), 64, 128, local=local)
        yield rows, 384, 640, 16, 128, dict(PAIR=pair, **up, **both)
        yield rows, 648, 640, 16, 128, dict(T="e4m3", PAIR=pair, STAGES=2, EARLY_B=True, **second)
        for _, ids in skewed(16):
            yield routed(ids, 16, 128, spare=3), 264, 256, 16, 128, dict(T="e4m3", PAIR=pair, BIAS=True, pad=1, **both)


def test_rows_at_places():
    run_all(placed_cases())


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
]


def test_every_tile():
    run_all(
        (some_rows("routed", 12, block, size), 520, 584, 12, block, {**cut, **epilogue})
        for block, cut in CUTS
        for epilogue in ({}, dict(GATED=True, ACT="silu", BIAS=True))
        if not epilogue or (cut.get("LEFT", 128) >= 128 and cut.get("RIGHT", 128) >= 128)
        for size in (2, 90)
    )


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


def skewed(experts):
    """Pairs (name, ids)."""
    one = torch.full((130, 2), experts // 2, device="cuda", dtype=torch.int32)
    yield "all rows on one expert", one
    yield "all rows on the last expert", torch.full_like(one, experts - 1)
    first = topk_ids(77, 2, experts)
    first[first % 2 == 1] -= 1
    yield "half of the experts without rows", first
    absent = topk_ids(77, 4, experts)
    absent[torch.rand(77, 4, device="cuda") < 0.4] = -1
    yield "ids of -1", absent
    yield "no id but -1", torch.full_like(absent, -1)
    yield "one row", topk_ids(1, 1, experts)


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


def product(out, a, b, rows, block, **parameters):
    experts, count_b, kk = b.shape
    n = out.shape[1]
    kernel("moe_gemm", T="bf16", N=n, K=kk, E=experts, BLOCK=block, **parameters)(
        out, a, b, *rows.arguments, rows.rows, rows.k, rows.capacity, n, kk, kk, count_b * kk
    )


def test_runs_give_the_same_bits():
    a, b = normal(200, 1024), normal(32, 512, 1024)
    for block, gated in itertools.product(BLOCKS, (False, True)):
        rows = routed(topk_ids(200, 4, 32), 32, block)
        runs = [torch.empty(800, 256 if gated else 512, dtype=torch.bfloat16, device="cuda") for _ in range(4)]
        for out in runs:
            product(out, a, b, rows, block, GATED=gated, ACT="silu" if gated else "none")
        for out in runs[1:]:
            expect_same_bits(out, runs[0], f"BLOCK={block} GATED={gated}")


def test_rows_at_places_have_the_same_bits():
    a, b = normal(200, 1024), normal(32, 512, 1024)
    for block in BLOCKS:
        rows = routed(topk_ids(200, 4, 32), 32, block)
        sorted_rows = placed(rows, a=True)
        at = sorted_rows.source  # the place of each row of d
        sorted_a = torch.full((rows.capacity, 1024), float("nan"), dtype=torch.bfloat16, device="cuda")
        sorted_a[at] = a[rows.source]
        plain, first, second, both = (
            torch.empty(n, 512, dtype=torch.bfloat16, device="cuda") for n in (800, 800) + (rows.capacity,) * 2
        )
        product(plain, a, b, rows, block)
        product(first, sorted_a, b, sorted_rows, block, PLACED_A=True)
        product(second, a, b, rows, block, PLACED_D=True)
        product(both, sorted_a, b, sorted_rows, block, PLACED_A=True, PLACED_D=True)
        for out, what in ((first, "a"), (second[at], "d"), (both[at], "a and d")):
            expect_same_bits(out, plain, f"BLOCK={block}: places of {what}")


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


def portable():
    """The kernel of the other architectures, on this GPU."""
    return portable_template("moe", "moe_gemm", "moe_gemm_portable.cu", "moe_portable")


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
    ):
        expect_refused(lambda parameters=parameters: call(**parameters), word)


# ---- times --------------------------------------------------------------------------------------------------------------------------------

MODELS = {  # experts, experts of a token, hidden, inner
    "Qwen3-30B-A3B": (128, 8, 2048, 768),
    "gpt-oss-120b": (128, 4, 2880, 2880),
    "Mixtral-8x7B": (8, 2, 4096, 14336),
}


def block_of(rows, experts):
    """BLOCK with room for the rows of nearly every expert, as the operator fused_moe chooses it."""
    mean = rows / experts
    return next((block for block in BLOCKS if block >= mean + 2 * mean**0.5), 128)


def bench_rows(model, tokens):
    """The two products of a layer. The peer grouped_mm has rows that are sorted already, and no epilogue."""
    experts, k, hidden, inner = MODELS[model]
    block, pairs = block_of(tokens * k, experts), tokens * k
    busy = experts * (1 - (1 - k / experts) ** tokens)  # experts that have rows
    for what, n, kk, rows_a, of_row in (("up", inner, hidden, tokens, k), ("down", hidden, inner, pairs, 1)):
        gated = what == "up"
        count_b = 2 * n if gated else n
        named = dict(GATED=True, ACT="silu") if gated else dict(WEIGHT="result")

        def make(n=n, kk=kk, count_b=count_b, rows_a=rows_a, of_row=of_row):
            rows = routed(topk_ids(tokens, k, experts), experts, block, k=of_row)
            order = rows.expert.sort(stable=True).indices
            ends = torch.bincount(rows.expert, minlength=experts).cumsum(0).int()
            out = torch.empty(pairs, n, dtype=torch.bfloat16, device="cuda")
            weights = torch.rand(pairs, device="cuda")
            a, b = normal(rows_a, kk), torch.empty(experts, count_b, kk, dtype=torch.bfloat16, device="cuda").normal_()
            source = rows.source[order]
            return (out, a, b, *rows.arguments, rows.capacity, weights, source, order, ends, a[source])

        def launch(
            out, a, b, of_block, places, used, capacity, weights, *_, n=n, kk=kk, count_b=count_b, of_row=of_row, named=named
        ):
            kernel("moe_gemm", T="bf16", N=n, K=kk, E=experts, BLOCK=block, **named)(
                *(out, a, b, of_block, places, used, pairs, of_row, capacity, n, kk, kk, count_b * kk),
                *(None, 0, 0, None, None, None if "GATED" in named else weights),
            )

        def grouped(out, a, b, of_block, places, used, capacity, weights, source, order, ends, in_order):
            return torch._grouped_mm(in_order, b.transpose(-2, -1), offs=ends)

        def whole(out, a, b, of_block, places, used, capacity, weights, source, order, ends, in_order, gated=gated):
            y = torch._grouped_mm(a[source], b.transpose(-2, -1), offs=ends)
            if gated:
                gate, up = y.chunk(2, -1)
                y = torch.nn.functional.silu(gate) * up
            else:
                y = y * weights[order, None]
            return out.index_copy_(0, order, y.to(out.dtype))

        yield Row(
            case=f"{model} {what}: tokens {tokens}, BLOCK {block}",
            read=int(2 * (busy * count_b * kk + rows_a * kk)),
            write=2 * pairs * n,
            flops=2 * pairs * count_b * kk,
            make=make,
            launches={"kiln": launch, "torch": whole, "grouped_mm": grouped, **peers.get("moe_gemm")},
            bar=0,
            beats={"kiln": ["torch"]},
        )


def bench_rows_fp8(tokens, block):
    """DeepSeek-V3 on one of eight GPUs: 32 of the 256 experts."""
    experts, hidden, inner = 32, 7168, 2048
    pairs = tokens
    busy = experts * (1 - (1 - 1 / experts) ** pairs)
    for what, n, kk, count_b, named in (
        ("up", inner, hidden, 2 * inner, dict(GATED=True, ACT="silu", OUT="e4m3")),
        ("down", hidden, inner, hidden, {}),
    ):

        def make(n=n, kk=kk, count_b=count_b, named=named):
            rows = routed(topk_ids(pairs, 1, experts), experts, block)
            a = normal(pairs, kk, dtype="e4m3")
            b = torch.empty(experts, count_b, kk, dtype=torch.bfloat16, device="cuda").normal_().to(torch.float8_e4m3fn)
            scale_a, scale_b = (
                torch.rand(pairs, kk // 128, device="cuda"),
                torch.rand(experts, count_b // 128, kk // 128, device="cuda"),
            )
            out = torch.empty(pairs, n, dtype=DTYPES[named.get("OUT", "bf16")], device="cuda")
            scale_d = torch.empty(pairs, n // 128, device="cuda")
            return (out, a, b, *rows.arguments, rows.capacity, scale_a, scale_b, scale_d)

        def launch(
            out, a, b, of_block, places, used, capacity, scale_a, scale_b, scale_d, n=n, kk=kk, count_b=count_b, named=named
        ):
            kernel("moe_gemm", T="e4m3", N=n, K=kk, E=experts, BLOCK=block, **named)(
                *(out, a, b, of_block, places, used, pairs, 1, capacity, n, kk, kk, count_b * kk),
                *(scale_a, kk // 128, 1, scale_b, None, None, 1.702, 7.0, scale_d if "OUT" in named else None, n // 128),
            )

        yield Row(
            case=f"DeepSeek-V3/8 fp8 {what}: rows {pairs}, BLOCK {block}",
            read=int(busy * count_b * kk + pairs * kk),
            write=pairs * n * (1 if "OUT" in named else 2),
            flops=2 * pairs * count_b * kk,
            make=make,
            launches={"kiln": launch, **peers.get("moe_gemm_fp8")},
            bar=0,
        )


def bench():
    for tokens in (1, 4, 16, 64, 256, 1024, 8192):
        yield from bench_rows("Qwen3-30B-A3B", tokens)
    for tokens in (1, 64, 1024):
        yield from bench_rows("gpt-oss-120b", tokens)
        yield from bench_rows("Mixtral-8x7B", tokens)
    for rows in (16, 128, 1024, 8192):
        yield from bench_rows_fp8(rows, block_of(rows, 32))
