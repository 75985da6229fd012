"""Rows of experts, one call of moe_gemm between guards, and its result in float64: what the tests of moe_gemm share."""

import dataclasses

import torch
from harness import DTYPES, Guarded, between_nans, expect_close, kernel, normal, portable_template, prefetch
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
LAYOUTS = ("routed", "contiguous", "masked")

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


def product(out, a, b, rows, block, **parameters):
    experts, count_b, kk = b.shape
    n = out.shape[1]
    kernel("moe_gemm", T="bf16", N=n, K=kk, E=experts, BLOCK=block, **parameters)(
        out, a, b, *rows.arguments, rows.rows, rows.k, rows.capacity, n, kk, kk, count_b * kk
    )


def portable():
    """The kernel of the other architectures, on this GPU."""
    return portable_template("moe", "moe_gemm", "moe_gemm_portable.cu", "moe_portable")
