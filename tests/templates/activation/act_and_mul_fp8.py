"""act_and_mul with OUT = e4m3, with static scales and group scales: codes differ by at most
one from rounded float64.
"""

import itertools

import torch
from act_and_mul import ALPHA, LIMIT, reference
from fp8_quant import FLOAT_MAX, codes_apart, exact
from harness import Guarded, expect_same_bits, kernel, normal, prefetch


def run(x, dtype="bf16", scale=None, group=0, layout="row", **parameters):
    """The codes and, with a group, the scales [rows, groups] in f32."""
    rows, d = x.shape[0], x.shape[1] // 2
    out, scales = Guarded(rows, d, dtype="e4m3"), Guarded(rows, d // group, dtype="i32") if group else None
    k = kernel("act_and_mul", T=dtype, D=d, OUT="e4m3", GROUP=group, **parameters)
    k(out.view, x, rows, x.stride(0), d, ALPHA, LIMIT, scale, scales.view if group else None, d // group if group else 0)
    codes, made = out.view.view(torch.uint8).clone(), scales.view.view(torch.float32).clone() if group else None
    out.check("codes")
    if group:
        scales.check("scales")
    return codes, made


def expect_within_one(x, what, dtype="bf16", scale=None, group=0, act="silu", order="gate_first", **parameters):
    rows, d = x.shape[0], x.shape[1] // 2
    codes, made = run(x, dtype, scale, group, ACT=act, ORDER=order, **parameters)
    want = reference(x, act, order)
    spans = want.reshape(rows, -1, group or d)
    if group:
        expected = spans.abs().amax(dim=2).clamp(min=1e-10) / 448.0
        off = float(((made.double() - expected) / expected).abs().max())
        assert off < 4e-6, f"{what}: scales are off by {off:.2g}"
        scale = made.reshape(rows, -1, 1)
    apart = codes_apart(codes.reshape(spans.shape), exact(spans, torch.ones(1, device="cuda") if scale is None else scale))
    assert int(apart.max()) <= 1, (
        f"{what}: {int((apart > 1).sum())} codes are more than one from the exact one, {int(apart.max())} at most"
    )
    return int((apart > 0).sum()) / apart.numel()


def test_every_dtype_width_and_group():
    kinds = [
        (t, d, g)
        for t, d, g in itertools.product(("f32", "f16", "bf16"), (1, 7, 97, 128, 1009, 4096, 7168, 14336, 28672), (0, 64, 128))
        if not g or d % g == 0
    ]
    for t, d, g in kinds:
        prefetch("act_and_mul", T=t, D=d, OUT="e4m3", GROUP=g, ACT="silu", ORDER="gate_first")
    worst = 0.0
    for t, d, g in kinds:
        for rows, s in ((1, 0.01), (65, 0.003), (3, None)):
            scale = None if s is None or g else torch.tensor([s], device="cuda")
            share = expect_within_one(normal(rows, 2 * d, dtype=t), f"{t} {rows} x {d} GROUP={g} scale {s}", t, scale, g)
            worst = max(worst, share) if rows * d > 100000 else worst
    assert worst < 1e-4, worst
    return f"share of codes one off: {worst:.1e} at most"


def test_every_activation_and_order():
    kinds = list(
        itertools.product(("silu", "gelu", "gelu_tanh", "swigluoai"), ("gate_first", "up_first", "interleaved"), (0, 64, 128))
    )
    for act, order, g in kinds:
        prefetch("act_and_mul", T="bf16", D=1024, OUT="e4m3", GROUP=g, ACT=act, ORDER=order)
    for act, order, g in kinds:
        expect_within_one(
            normal(65, 2048, scale=3.0),
            f"{act} {order} GROUP={g}",
            "bf16",
            None if g else torch.tensor([0.02], device="cuda"),
            g,
            act,
            order,
        )


def test_special_values():
    """Special values are as in fp8_quant.

    NaN is 0x7f and does not count for a scale. An infinity saturates and counts as the largest float.
    Zeros make the least scale.
    """
    for t, g in itertools.product(("f32", "f16", "bf16"), (64, 128)):
        x = normal(5, 1024, dtype=t)
        x[:, 512:] = 1.0
        x[0, :512], x[1, 5], x[2, 7] = 0.0, float("nan"), float("inf")
        codes, scales = run(x, t, None, g)
        want = reference(x)
        assert (
            bool((codes[0] == 0).all())
            and bool((scales[0] == scales[0, 0]).all())
            and abs(float(scales[0, 0]) * 448 / 1e-10 - 1) < 1e-6
        ), "zeros"
        assert int(codes[1, 5]) == 0x7F and int((codes[1] == 0x7F).sum()) == 1, f"{t} {g}: NaN stays in its place"
        rest = torch.arange(g, device="cuda") != 5
        assert abs(float(scales[1, 0]) * 448 / float(want[1, :g][rest].abs().max()) - 1) < 4e-6, "NaN decides over nothing"
        assert int(codes[2, 7]) == 0x7E and abs(float(scales[2, 0]) * 448 / FLOAT_MAX - 1) < 1e-6, (
            f"{t} {g}: infinity: code {int(codes[2, 7])}, scale {float(scales[2, 0])}"
        )
        assert bool(((codes[2, 8:g] & 0x7F) == 0).all()), "beside an infinity: zeros"


def test_runs_are_identical():
    x = normal(1025, 2 * 7168)
    for g in (0, 128):
        first, scales = run(x, group=g)
        for _ in range(5):
            again, scales_again = run(x, group=g)
            expect_same_bits(again, first)
            if g:
                expect_same_bits(scales_again, scales)
