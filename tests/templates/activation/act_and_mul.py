"""act_and_mul against float64, in corner cases that `kiln run --check` does not draw; and
its time beside PyTorch.
"""

import itertools

import torch
import torch.nn.functional as F
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

ALPHA, LIMIT = 1.702, 7.0

SANITIZE = [
    "act_and_mul T=bf16 D=4096 rows=37",
    "act_and_mul T=f32 D=97 rows=70 ORDER=interleaved ACT=gelu",
    "act_and_mul T=f16 D=1024 rows=33 OUT=e4m3 GROUP=128",
]


def activation(act, x):
    if act == "silu":
        return x * torch.sigmoid(x)
    if act == "gelu":
        return F.gelu(x)
    if act == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    g = x.clamp(max=LIMIT)
    return g * torch.sigmoid(ALPHA * g)


def reference(x, act="silu", order="gate_first"):
    x = x.double()
    d = x.shape[1] // 2
    gate, up = (
        (x[:, ::2], x[:, 1::2])
        if order == "interleaved"
        else (x[:, :d], x[:, d:])
        if order == "gate_first"
        else (x[:, d:], x[:, :d])
    )
    return activation(act, gate) * (up.clamp(-LIMIT, LIMIT) + 1 if act == "swigluoai" else up)


def run(x, dtype="bf16", **parameters):
    rows, d = x.shape[0], x.shape[1] // 2
    out = Guarded(rows, d, dtype=dtype)
    kernel("act_and_mul", T=dtype, D=d, **parameters)(out.view, x, rows, x.stride(0), d, ALPHA, LIMIT)
    return out


def test_every_dtype_and_width():
    widths = [1, 2, 3, 7, 64, 97, 128, 768, 1009, 4096, 5001, 11008, 14336, 28672]
    for dtype, d in itertools.product(("f32", "f16", "bf16"), widths):
        prefetch("act_and_mul", T=dtype, D=d)
    for dtype, d in itertools.product(("f32", "f16", "bf16"), widths):
        for rows in (1, 3, 65):
            x = normal(rows, 2 * d, dtype=dtype)
            out = run(x, dtype)
            expect_close(out.view, reference(x), TOLERANCE[dtype], f"{dtype} D={d} rows={rows}")
            out.check(f"{dtype} D={d} rows={rows}")


def test_every_activation_and_order():
    kinds = list(
        itertools.product(("silu", "gelu", "gelu_tanh", "swigluoai"), ("gate_first", "up_first", "interleaved"), ("f32", "bf16"))
    )
    for act, order, dtype in kinds:
        prefetch("act_and_mul", T=dtype, D=768, ACT=act, ORDER=order)
    for act, order, dtype in kinds:
        x = normal(65, 1536, dtype=dtype, scale=4.0)
        out = run(x, dtype, ACT=act, ORDER=order)
        expect_close(out.view, reference(x, act, order), TOLERANCE[dtype], f"{dtype} {act} {order}")
        out.check()


def test_round_gate():
    x = normal(65, 8192)
    gate = activation("silu", x[:, :4096].double()).to(torch.bfloat16)
    want = (gate.float() * x[:, 4096:].float()).to(torch.bfloat16)
    differ = float((run(x, ROUND_GATE=True).view.view(torch.int16) != want.view(torch.int16)).float().mean())
    # Near a tie the approximate gate may round the other way.
    assert differ < 2e-3, f"{differ:.2%} of the elements are not those of the rounded gate"
    plain = float((run(x).view.view(torch.int16) != want.view(torch.int16)).float().mean())
    assert plain > 0.1, "the comparison tells a rounded gate from one that is not"


def test_overlap_is_refused():
    x = normal(4, 8192)
    expect_refused(lambda: kernel("act_and_mul", T="bf16", D=4096)(x, x, 4, 8192, 8192), "overlap")


def test_large():
    x = normal(100000, 24576)
    out = run(x)
    for first in (0, 50000, 99000):
        part = slice(first, first + 1000)
        expect_close(out.view[part], reference(x[part]), TOLERANCE["bf16"])
    assert not bool(out.view.isnan().any())
    out.check()


def test_strides_beyond_31_bits():
    stride = (1 << 31) + 64
    x = Guarded(3, 8192, strides=(stride, 1))
    x.view.copy_(normal(3, 8192))
    out = Guarded(3, 4096, strides=(stride, 1))
    kernel("act_and_mul", T="bf16", D=4096)(out.view, x.view, 3, stride, stride)
    expect_close(out.view, reference(x.view), TOLERANCE["bf16"])
    out.check()


def test_row_strides_and_misaligned_views():
    for d, stride in ((4096, 8200), (97, 200)):
        x = Guarded(33, 2 * d, strides=(stride, 1))
        x.view.copy_(normal(33, 2 * d))
        out = Guarded(33, d, strides=(stride, 1))
        kernel("act_and_mul", T="bf16", D=d)(out.view, x.view, 33, stride, stride)
        expect_close(out.view, reference(x.view), TOLERANCE["bf16"], f"D={d}")
        out.check(f"D={d}")
    x = Guarded(5, 8192, strides=(8193, 1), shift=1)
    x.view.copy_(normal(5, 8192))
    out = Guarded(5, 4096, shift=3)
    expect_refused(lambda: kernel("act_and_mul", T="bf16", D=4096)(out.view, x.view, 5, 8193, 4096), "align")
    kernel("act_and_mul", T="bf16", D=4096, VEC=1)(out.view, x.view, 5, 8193, 4096)
    expect_close(out.view, reference(x.view), TOLERANCE["bf16"])
    out.check()


def test_special_values():
    for dtype in ("f32", "f16", "bf16"):
        for act in ("silu", "gelu", "gelu_tanh", "swigluoai"):
            x = normal(4, 512, dtype=dtype)
            x[:, 256:] = 1.0
            x[0, :8] = torch.tensor(
                [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 100.0, -100.0, torch.finfo(x.dtype).smallest_normal / 2]
            )
            out = run(x, dtype, ACT=act)
            want, y = reference(x, act), out.view
            expect_close(y[1:], want[1:], TOLERANCE[dtype], f"{dtype} {act}")
            assert bool(y[0, 2].isnan()), f"{act}: NaN stays NaN"
            if act == "swigluoai":
                assert abs(float(y[0, 3]) - 14.0) < 0.1, "infinity is clamped to the limit"
            else:
                assert bool(y[0, 3] == float("inf")), f"{act}: infinity stays"
            for i in (0, 1, 5, 6, 7):
                assert abs(float(y[0, i]) - float(want[0, i])) <= 4e-3 * abs(float(want[0, i])) + 1e-37, (
                    f"{dtype} {act} element {i}: {float(y[0, i])} {float(want[0, i])}"
                )
            out.check()


def test_runs_are_identical():
    x = normal(4097, 10240)
    first = run(x).view
    for _ in range(10):
        expect_same_bits(run(x).view, first)


def test_candidates_give_the_same_bits():
    x = normal(129, 2 * 7168)
    first = run(x).view
    for threads, unroll, vec in itertools.product((128, 256, 512), (1, 2, 4), (4, 8)):
        expect_same_bits(
            run(x, THREADS=threads, UNROLL=unroll, VEC=vec).view, first, f"THREADS={threads} UNROLL={unroll} VEC={vec}"
        )


def test_no_rows():
    out = Guarded(4, 4096)
    kernel("act_and_mul", T="bf16", D=4096)(out.view, out.view, 0, 8192, 4096)
    assert bool(out.view.isnan().all())


def bench():
    for rows in (1, 8, 64, 4096, 8192):
        for d in (2048, 4096, 8192, 14336):
            k = kernel("act_and_mul", T="bf16", D=d)
            launches = {"kiln": lambda o, x, k=k, rows=rows, d=d: k(o, x, rows, 2 * d, d)}
            launches["compile"] = compiled(lambda o, x, d=d: F.silu(x[:, :d].float()).to(x.dtype) * x[:, d:])
            if rows in (64, 8192):
                launches["eager"] = lambda o, x, d=d: F.silu(x[:, :d]) * x[:, d:]
            for label, peer in peers.get("silu_and_mul").items():
                launches[label] = lambda o, x, peer=peer: peer(o, x)
            yield Row(
                f"act_and_mul bf16 {rows} x {d}",
                4 * rows * d,
                2 * rows * d,
                lambda rows=rows, d=d: (torch.empty(rows, d, device="cuda", dtype=torch.bfloat16), normal(rows, 2 * d)),
                launches,
            )
    for rows in (64, 8192):
        d = 14336
        k = kernel("act_and_mul", T="bf16", D=d, OUT="e4m3", GROUP=128)
        launches = {"kiln": lambda o, s, x, k=k, rows=rows, d=d: k(o, x, rows, 2 * d, d, ALPHA, LIMIT, None, s, d // 128)}
        for label, peer in peers.get("silu_and_mul_fp8").items():
            launches[label] = lambda o, s, x, peer=peer: peer(o, s, x)
        yield Row(
            f"act_and_mul bf16 {rows} x {d} e4m3 GROUP=128",
            4 * rows * d,
            rows * d + rows * d // 32,
            lambda rows=rows, d=d: (
                torch.empty(rows, d, device="cuda", dtype=torch.float8_e4m3fn),
                torch.empty(rows, d // 128, device="cuda"),
                normal(rows, 2 * d),
            ),
            launches,
        )
