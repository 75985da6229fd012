"""rms_norm against float64, in corner cases that `kiln run --check` does not draw; and
its time beside PyTorch.
"""

import torch
import torch.nn.functional as F
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

EPS = 1e-6

SANITIZE = [
    "rms_norm T=bf16 H=4096 rows=37",
    "rms_norm T=f16 H=65536 rows=3",
    "rms_norm T=f32 H=129 rows=70 FUSED_ADD=true GEMMA=true",
    "rms_norm T=bf16 H=128 rows=1000 OUT=e4m3",
]


def reference(x, w, eps=EPS, gemma=False):
    x, w = x.double(), w.double()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (w + gemma)


def run(x, w, dtype="bf16", out=None, **parameters):
    rows, h = x.shape
    if out is None:
        out = Guarded(rows, h, dtype=parameters.get("OUT", dtype))
        view = out.view
    else:
        view = out
    kernel("rms_norm", T=dtype, H=h, **parameters)(view, x, w, rows, x.stride(0), view.stride(0), EPS)
    return out


def test_every_dtype_and_width():
    widths = [
        1,
        2,
        3,
        7,
        31,
        64,
        97,
        128,
        257,
        768,
        1000,
        1009,
        2048,
        4096,
        5001,
        5120,
        7168,
        8192,
        8209,
        12288,
        16384,
        28672,
        65536,
    ]
    for dtype in ("f32", "f16", "bf16"):
        for h in widths:
            prefetch("rms_norm", T=dtype, H=h)
    for dtype in ("f32", "f16", "bf16"):
        for h in widths:
            for rows in (1, 3, 65):
                x, w = normal(rows, h, dtype=dtype), normal(h, dtype=dtype)
                out = run(x, w, dtype)
                expect_close(out.view, reference(x, w), TOLERANCE[dtype], f"{dtype} H={h} rows={rows}")
                out.check(f"{dtype} H={h} rows={rows}")


def test_heads():
    x, w = normal(327680, 128), normal(128)
    expect_close(run(x, w).view, reference(x, w), TOLERANCE["bf16"])


def test_large():
    x, w = normal(175000, 12288), normal(12288)
    out = Guarded(175000, 12288)
    kernel("rms_norm", T="bf16", H=12288)(out.view, x, w, 175000, 12288, 12288, EPS)
    for first in (0, 87000, 174000):  # float64 of all rows would take 50 GB
        part = slice(first, first + 1000)
        expect_close(out.view[part], reference(x[part], w), TOLERANCE["bf16"])
    assert not bool(out.view.isnan().any())
    out.check()


def test_strides_beyond_31_bits():
    stride = (1 << 31) + 64
    x = Guarded(3, 4096, strides=(stride, 1))
    x.view.copy_(normal(3, 4096))
    out, w = Guarded(3, 4096, strides=(stride, 1)), normal(4096)
    kernel("rms_norm", T="bf16", H=4096)(out.view, x.view, w, 3, stride, stride, EPS)
    expect_close(out.view, reference(x.view, w), TOLERANCE["bf16"])
    out.check()


def test_row_strides_keep_the_padding():
    for h, stride in ((4096, 4104), (128, 136), (5001, 5003), (768, 1536)):
        x = Guarded(33, h, strides=(stride, 1))
        x.view.copy_(normal(33, h))
        out, w = Guarded(33, h, strides=(stride + 8, 1)), normal(h)
        kernel("rms_norm", T="bf16", H=h)(out.view, x.view, w, 33, stride, stride + 8, EPS)
        expect_close(out.view, reference(x.view, w), TOLERANCE["bf16"], f"H={h}")
        out.check(f"H={h}")


def test_misaligned_views():
    x = Guarded(5, 4096, strides=(4097, 1), shift=1)
    x.view.copy_(normal(5, 4096))
    w = normal(4096)
    out = Guarded(5, 4096, shift=3)
    expect_refused(lambda: kernel("rms_norm", T="bf16", H=4096)(out.view, x.view, w, 5, 4097, 4096, EPS), "align")
    kernel("rms_norm", T="bf16", H=4096, VEC=1)(out.view, x.view, w, 5, 4097, 4096, EPS)
    expect_close(out.view, reference(x.view, w), TOLERANCE["bf16"])
    out.check()
    aligned = Guarded(5, 4096, strides=(4097, 1))
    expect_refused(
        lambda: kernel("rms_norm", T="bf16", H=4096)(aligned.view, aligned.view, w, 5, 4097, 4097, EPS), "strides", "4097", "VEC"
    )


def test_in_place():
    for h in (128, 4096, 65536):
        x, w = normal(77, h), normal(h)
        want, apart = reference(x, w), run(x, w).view
        run(x, w, out=x)
        expect_close(x, want, TOLERANCE["bf16"])
        expect_same_bits(x, apart, f"H={h}")


def test_in_place_with_another_stride_is_refused():
    x = normal(4, 8192)
    expect_refused(lambda: kernel("rms_norm", T="bf16", H=4096)(x, x, normal(4096), 4, 8192, 4096, EPS), "stride", "8192", "4096")


def test_special_values():
    for dtype in ("f32", "f16", "bf16"):
        for h in (128, 4096, 65536):
            x, w = normal(8, h, dtype=dtype), normal(h, dtype=dtype)
            x[0] = 0
            x[1, h // 2] = float("nan")
            x[2, 3] = float("inf")
            x[3] = torch.finfo(x.dtype).smallest_normal / 4  # subnormal: the mean square vanishes beside eps
            x[4] = -0.0
            out = run(x, w, dtype)
            y, want = out.view, reference(x, w)
            assert bool((y[0] == 0).all()) and bool((y[4] == 0).all()), "a row of zeros gives zeros"
            assert bool(y[1].isnan().all()), "a NaN reaches its whole row"
            assert bool(y[2][3].isnan()) and bool((y[2][torch.arange(h, device="cuda") != 3] == 0).all()), (
                "infinity: 0, and NaN in its place"
            )
            for row in (5, 6, 7):
                expect_close(y[row], want[row], TOLERANCE[dtype], f"{dtype} H={h}: a neighbour of special rows")
            assert bool(torch.isfinite(y[3]).all())
            out.check()


def test_fused_add():
    for dtype in ("f32", "f16", "bf16"):
        for h in (1, 127, 128, 4096, 8192, 28672):
            for gemma in (False, True):
                x, w, residual = normal(33, h, dtype=dtype), normal(h, dtype=dtype), Guarded(33, h, dtype=dtype)
                residual.view.copy_(normal(33, h, dtype=dtype))
                total = x.double() + residual.view.double()
                out = Guarded(33, h, dtype=dtype)
                kernel("rms_norm", T=dtype, H=h, FUSED_ADD=True, GEMMA=gemma)(out.view, x, w, 33, h, h, EPS, residual.view, h)
                # The sum is normalised before it is rounded. After rounding the error
                # would be 2.4e-3 in bf16.
                expect_close(
                    out.view,
                    reference(total, w, gemma=gemma),
                    {"bf16": 2e-3}.get(dtype, TOLERANCE[dtype]) if h > 64 else TOLERANCE[dtype],
                    f"{dtype} H={h}",
                )
                expect_same_bits(
                    residual.view, total.to(DTYPES[dtype]) if dtype != "f32" else total.float(), f"residual {dtype} H={h}"
                )
                out.check()
                residual.check()
    expect_refused(lambda: kernel("rms_norm", T="bf16", H=128, FUSED_ADD=True)(x, x, x, 1, 128, 128, EPS), "residual")


def test_runs_are_identical():
    x, w = normal(4097, 5120), normal(5120)
    first = run(x, w).view
    for _ in range(10):
        expect_same_bits(run(x, w).view, first)


def test_no_rows():
    out = Guarded(4, 4096)
    kernel("rms_norm", T="bf16", H=4096)(out.view, out.view, out.view, 0, 4096, 4096, EPS)
    assert bool(out.view.isnan().all())
    expect_refused(lambda: kernel("rms_norm", T="bf16", H=4096)(out.view, out.view, out.view, -1, 4096, 4096, EPS), "rows", "-1")


def bench():
    for rows in (1, 8, 64, 4096, 8192):
        for h in (2048, 4096, 8192, 16384):
            k = kernel("rms_norm", T="bf16", H=h)
            launches = {
                "kiln": lambda o, x, w, k=k, rows=rows, h=h: k(o, x, w, rows, h, h, EPS),
                "eager": lambda o, x, w, h=h: F.rms_norm(x, (h,), w, EPS),
            }
            if h in (4096, 8192):
                launches["compile"] = compiled(
                    lambda o, x, w: (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + EPS) * w.float()).to(x.dtype)
                )
            for label, peer in peers.get("rms_norm").items():
                launches[label] = lambda o, x, w, peer=peer: peer(o, x, w, EPS)
            yield Row(
                f"rms_norm bf16 {rows} x {h}",
                2 * (rows * h + h),
                2 * rows * h,
                lambda rows=rows, h=h: (torch.empty(rows, h, device="cuda", dtype=torch.bfloat16), normal(rows, h), normal(h)),
                launches,
            )
    for rows, h in ((64, 4096), (64, 8192), (8192, 4096), (8192, 8192)):
        k = kernel("rms_norm", T="bf16", H=h, FUSED_ADD=True)

        def fused(o, x, w, r):
            s = x.float() + r.float()
            r.copy_(s.to(x.dtype))
            return (s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + EPS) * w.float()).to(x.dtype)

        launches = {"kiln": lambda o, x, w, r, k=k, rows=rows, h=h: k(o, x, w, rows, h, h, EPS, r, h), "compile": compiled(fused)}
        for label, peer in peers.get("fused_add_rms_norm").items():
            launches[label] = lambda o, x, w, r, peer=peer: peer(x, r, w, EPS)  # in place
        yield Row(
            f"rms_norm bf16 {rows} x {h} FUSED_ADD",
            2 * (2 * rows * h + h),
            4 * rows * h,
            lambda rows=rows, h=h: (
                torch.empty(rows, h, device="cuda", dtype=torch.bfloat16),
                normal(rows, h),
                normal(h),
                normal(rows, h),
            ),
            launches,
        )
    k = kernel("rms_norm", T="bf16", H=128)
    yield Row(
        "rms_norm bf16 327680 x 128 (heads)",
        2 * 327680 * 128,
        2 * 327680 * 128,
        lambda: (torch.empty(327680, 128, device="cuda", dtype=torch.bfloat16), normal(327680, 128), normal(128)),
        {
            "kiln": lambda o, x, w: k(o, x, w, 327680, 128, 128, EPS),
            "eager": lambda o, x, w: F.rms_norm(x, (128,), w, EPS),
            **{label: lambda o, x, w, peer=peer: peer(o, x, w, EPS) for label, peer in peers.get("rms_norm").items()},
        },
    )
