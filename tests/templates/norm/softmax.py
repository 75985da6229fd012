"""softmax against float64, in corner cases that `kiln run --check` does not draw; and
its time beside PyTorch.
"""

import itertools

import torch
from harness import (
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
    "softmax T=f32 H=128256 rows=5",
    "softmax T=bf16 H=32000 rows=33 CLUSTER=4",
    "softmax T=bf16 H=1000 rows=37",
    "softmax T=bf16 H=50257 rows=3 LOG=true",
    "softmax T=f32 H=0 columns=9000 rows=5",
]


def reference(x, temperature=1.0, log=False):
    v = x.double() / temperature
    return torch.log_softmax(v, -1) if log else torch.softmax(v, -1)


def run(x, dtype="f32", temperature=1.0, out=None, temperatures=None, **parameters):
    rows, h = x.shape
    result = out if out is not None else Guarded(rows, h, dtype=parameters.get("OUT", dtype))
    view = result.view if isinstance(result, Guarded) else result
    kernel("softmax", T=dtype, H=h, **parameters)(view, x, rows, x.stride(0), view.stride(0), temperature, temperatures)
    return result


def tolerance(dtype, want):
    """The manifest's tolerance, and the error of small probabilities in f16's subnormals, as
    `kiln run --check` allows it.
    """
    quantum = {"f16": 2.0**-24}.get(dtype, 0.0)
    return (TOLERANCE[dtype] ** 2 + (quantum / 12**0.5 / float(want.pow(2).mean().sqrt())) ** 2) ** 0.5


def test_every_dtype_and_width():
    widths = [1, 2, 3, 7, 64, 97, 128, 257, 1000, 4096, 5001, 10240, 16384, 16385, 32000, 32002, 50257, 65536, 128256, 151936]
    for dtype, h in itertools.product(("f32", "f16", "bf16"), widths):
        prefetch("softmax", T=dtype, H=h)
    for dtype, h in itertools.product(("f32", "f16", "bf16"), widths):
        for rows in (1, 3, 65):
            x = normal(rows, h, dtype=dtype, scale=3.0)
            out, want = run(x, dtype), reference(x)
            expect_close(out.view, want, tolerance(dtype, want), f"{dtype} H={h} rows={rows}")
            out.check(f"{dtype} H={h} rows={rows}")


def test_clusters():
    """Blocks share rows, down to empty parts of a row. The bits are the same in every run, in
    place, and for any rows.
    """
    most = {9: 16, 10: 16}.get(torch.cuda.get_device_capability()[0], 8 if torch.cuda.get_device_capability()[0] > 10 else 1)
    cases = [
        (dtype, h, {"CLUSTER": cluster, "THREADS": threads, **more})
        for cluster in (2, 4, 8, 16)
        if cluster <= most
        for dtype, h, threads, more in (
            ("f32", 32000, 1024, {}),
            ("bf16", 128256, 96, {}),
            ("f32", 1000, 64, {}),
            ("f16", 5001, 224, {"LOG": True}),
            ("bf16", 32008, 512, {"OUT": "f32"}),
        )
    ]
    for dtype, h, more in cases:
        prefetch("softmax", T=dtype, H=h, **more)
    for dtype, h, more in cases:
        x, ts = normal(301, h, dtype=dtype, scale=3.0), torch.rand(301, device="cuda") + 0.5
        x[7, : h // 2], x[8, h // 2 :], x[9] = float("-inf"), float("-inf"), 0
        want, what, out_type = (
            reference(x, ts.double()[:, None], more.get("LOG", False)),
            f"{dtype} H={h} {more}",
            more.get("OUT", dtype),
        )
        out = run(x, dtype, temperatures=ts, **more)
        first = out.view.clone()
        masked = torch.isinf(want)
        assert bool((torch.isinf(first) == masked).all()), what
        expect_close(
            first.masked_fill(masked, 0), want.masked_fill(masked, 0), tolerance(out_type, want.masked_fill(masked, 0)), what
        )
        out.check(what)
        for rows in (1, 17, 301):
            expect_same_bits(run(x[:rows], dtype, temperatures=ts, **more).view, first[:rows], f"{what} rows={rows}")
        if out_type == dtype:
            run(x, dtype, temperatures=ts, out=x, **more)
            expect_same_bits(x, first, f"{what} in place")


def test_log_and_temperature():
    for dtype, h in itertools.product(("f32", "bf16"), (64, 1000, 32000, 128256)):
        for log, t in itertools.product((False, True), (0.1, 0.7, 3.0)):
            x = normal(9, h, dtype=dtype, scale=3.0)
            out = run(x, dtype, temperature=t, LOG=log)
            expect_close(
                out.view,
                reference(x, t, log),
                TOLERANCE[dtype] * (4 if t < 0.5 and dtype == "f32" else 1),
                f"{dtype} H={h} t={t} log={log}",
            )
            out.check()
        ts = torch.rand(9, device="cuda") + 0.5
        expect_close(run(x, dtype, temperatures=ts).view, reference(x, ts.double()[:, None]), TOLERANCE[dtype], "temperatures")


def test_run_time_width():
    k = kernel("softmax", T="f32", H=0)
    for h in (4, 100, 12344, 128256):
        x, out = normal(17, h, dtype="f32"), Guarded(17, h, dtype="f32")
        k(out.view, x, 17, h, h, 1.0, None, h)
        expect_close(out.view, reference(x), TOLERANCE["f32"], f"columns={h}")
        out.check()
    expect_refused(lambda: k(x, x, 17, 12, 12, 1.0, None, 10), "columns", "VEC")
    expect_refused(lambda: k(x, x, 17, 12, 12, 1.0, None, (1 << 31) - 4), "columns", "2147483644")


def test_special_values():
    for dtype, h in itertools.product(("f32", "bf16"), (128, 4096, 128256)):
        x = normal(8, h, dtype=dtype)
        x[0] = 0
        x[1, h // 2] = float("nan")
        x[2, 3] = float("inf")
        x[3, : h - 1] = float("-inf")
        x[4] = float("-inf")
        x[5, 0] = 3e38
        x[6, ::2] = float("-inf")
        out = run(x, dtype)
        y, want = out.view, reference(x)
        expect_close(y[0], want[0], TOLERANCE[dtype])
        assert bool(y[1].isnan().all()), "a NaN reaches its whole row"
        assert bool(y[2].isnan().any()), "infinity minus infinity is NaN"
        assert float(y[3, h - 1]) == 1.0 and bool((y[3, : h - 1] == 0).all())
        assert bool(y[4].isnan().all()), "nothing but masked: NaN"
        assert float(y[5, 0]) == 1.0 and bool((y[5, 1:] == 0).all())
        expect_close(y[6], want[6], TOLERANCE[dtype])
        expect_close(y[7], want[7], TOLERANCE[dtype])
        out.check()


def test_log_of_masks_stays_finite():
    for dtype, h in itertools.product(("f32", "bf16"), (128, 4096, 128256)):
        x = normal(3, h, dtype=dtype)
        x[:, ::3] = torch.finfo(x.dtype).min
        want = reference(x, log=True)
        out = run(x, dtype, LOG=True)
        assert bool(torch.isfinite(out.view).all()), f"{dtype} H={h}"
        assert float(((out.view.double() - want) / want).abs().max()) < {"f32": 1e-5, "bf16": 5e-3}[dtype]
        out.check()


def test_strides_and_misaligned_views():
    stride = (1 << 31) + 64
    for rows, h, s in ((3, 4096, stride), (33, 32000, 32008), (33, 1000, 1004)):
        x = Guarded(rows, h, dtype="f32", strides=(s, 1))
        x.view.copy_(normal(rows, h, dtype="f32"))
        out = Guarded(rows, h, dtype="f32", strides=(s, 1))
        kernel("softmax", T="f32", H=h)(out.view, x.view, rows, s, s)
        expect_close(out.view, reference(x.view), TOLERANCE["f32"], f"H={h} stride={s}")
        out.check()
    x, out = Guarded(5, 4096, dtype="f32", shift=1), Guarded(5, 4096, dtype="f32", shift=1)
    x.view.copy_(normal(5, 4096, dtype="f32"))
    expect_refused(lambda: kernel("softmax", T="f32", H=4096)(out.view, x.view, 5, 4096, 4096), "align")
    kernel("softmax", T="f32", H=4096, VEC=1)(out.view, x.view, 5, 4096, 4096)
    expect_close(out.view, reference(x.view), TOLERANCE["f32"])


def test_in_place_and_identical():
    for h in (100, 4096, 128256):
        x = normal(65, h, dtype="f32")
        want, first = reference(x), run(x).view
        for _ in range(5):
            expect_same_bits(run(x).view, first)
        run(x, out=x)
        expect_close(x, want, TOLERANCE["f32"])
        expect_same_bits(x, first, f"H={h}")


def test_large():
    x = normal(20000, 128256, dtype="bf16")
    out = run(x, "bf16")
    for first in (0, 10000, 19900):
        part = slice(first, first + 100)
        expect_close(out.view[part], reference(x[part]), TOLERANCE["bf16"])
    out.check()


def bench():
    for dtype, kind in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        size = 4 if dtype == "f32" else 2
        for rows, h in (
            (1, 128256),
            (8, 128256),
            (64, 128256),
            (256, 128256),
            (1, 32000),
            (64, 32000),
            (1024, 32000),
            (64, 4096),
            (8192, 1024),
            (4096, 8192),
            (8192, 16384),
        ):
            if dtype == "bf16" and h < 16384 and rows < 4096:
                continue
            k = kernel("softmax", T=dtype, H=h)
            launches = {"kiln": lambda o, x, k=k, rows=rows, h=h: k(o, x, rows, h, h), "eager": lambda o, x: torch.softmax(x, -1)}
            if rows in (1, 64, 256, 8192):
                launches["compile"] = compiled(lambda o, x: torch.softmax(x, -1))
            if dtype == "f32":
                for label, peer in peers.get("softmax").items():
                    launches[label] = lambda o, x, peer=peer: peer(o, x)
            yield Row(
                f"softmax {dtype} {rows} x {h}",
                size * rows * h,
                size * rows * h,
                lambda rows=rows, h=h, kind=kind, dtype=dtype: (
                    torch.empty(rows, h, device="cuda", dtype=kind),
                    normal(rows, h, dtype=dtype),
                ),
                launches,
            )
