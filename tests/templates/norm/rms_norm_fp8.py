"""rms_norm with OUT = e4m3 and static scales: codes differ by at most one from rounded float64."""

import itertools

import torch
from fp8_quant import codes_apart, exact
from harness import DTYPES, Guarded, expect_same_bits, kernel, normal, prefetch
from rms_norm import EPS, reference

NAN, ZERO = 0x7F, 0x00


def run(x, w, dtype, scale, residual=None, **parameters):
    rows, h = x.shape
    out = Guarded(rows, h, dtype="e4m3")
    kernel("rms_norm", T=dtype, H=h, OUT="e4m3", **parameters)(out.view, x, w, rows, x.stride(0), h, EPS, residual, h, scale)
    return out


def expect_within_one(out, want, scale, what):
    """Compares with `want`, which is f64 before the division. Returns the share of codes that differ by one."""
    apart = codes_apart(out.view.view(torch.uint8), exact(want, torch.ones(1, device="cuda") if scale is None else scale))
    assert int(apart.max()) <= 1, (
        f"{what}: {int((apart > 1).sum())} codes are more than one from the exact one, {int(apart.max())} at most"
    )
    out.check(what)
    return int((apart > 0).sum()) / apart.numel()


def test_every_dtype_and_width():
    kinds = list(itertools.product(("f32", "f16", "bf16"), (1, 2, 7, 97, 128, 768, 1009, 4096, 5001, 7168, 8192, 28672, 65536)))
    for d, h in kinds:
        prefetch("rms_norm", T=d, H=h, OUT="e4m3")
    worst = 0.0
    for d, h in kinds:
        for rows, s in ((1, 0.01), (65, 0.003), (33, 0.25), (3, None)):
            x, w = normal(rows, h, dtype=d), normal(h, dtype=d)
            scale = None if s is None else torch.tensor([s], device="cuda")
            share = expect_within_one(run(x, w, d, scale), reference(x, w), scale, f"{d} {rows} x {h} scale {s}")
            worst = max(worst, share) if rows * h > 100000 else worst
    assert worst < 1e-4, worst
    return f"share of codes one off: {worst:.1e} at most"


def test_fused_add_and_gemma():
    for d, h, gemma in itertools.product(("f32", "f16", "bf16"), (128, 4096, 8192), (False, True)):
        x, w, residual, scale = (
            normal(33, h, dtype=d),
            normal(h, dtype=d),
            normal(33, h, dtype=d),
            torch.tensor([0.02], device="cuda"),
        )
        total = x.double() + residual.double()
        out = run(x, w, d, scale, residual, FUSED_ADD=True, GEMMA=gemma)
        expect_within_one(out, reference(total, w, gemma=gemma), scale, f"{d} H={h} gemma={gemma}")
        expect_same_bits(residual, total.float().to(DTYPES[d]), f"{d} residual")


def test_saturates_and_keeps_zeros():
    x, w, scale = normal(5, 4096), normal(4096), torch.tensor([1e-4], device="cuda")
    x[0], x[1], x[2, 7] = 0.0, -0.0, float("nan")
    w = w.abs()
    out = run(x, w, "bf16", scale)
    codes, want = out.view.view(torch.uint8), reference(x, w)
    assert bool((codes[0] == 0).all()) and bool((codes[1] == 0x80).all()) and bool((codes[2] == NAN).all())
    beyond = want[3:].abs() > 448 * 1e-4 * 1.1
    assert int(beyond.sum()) > 1000 and bool(((codes[3:] & 0x7F)[beyond] == 0x7E).all()), "largest finite code, not NaN"


def test_runs_are_identical():
    x, w, scale = normal(1025, 7168), normal(7168), torch.tensor([0.01], device="cuda")
    first = run(x, w, "bf16", scale).view
    for _ in range(5):
        expect_same_bits(run(x, w, "bf16", scale).view, first)
