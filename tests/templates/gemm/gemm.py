"""gemm against float64: every way to cut the work, every epilogue, edges, strides and scales; and its time beside
PyTorch.
"""

import math

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
    relative_rms,
)

TOLERANCE = {"bf16": 4e-3, "f16": 6e-4, "f32": 2e-5}
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "relu_squared": lambda x: torch.relu(x) ** 2,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "log_decay": lambda x: -torch.sigmoid(x) * math.exp(-0.5),
}

SANITIZE = [
    "gemm T=bf16 N=264 K=200 m=70",
    "gemm T=bf16 N=264 K=200 M_BUCKET=8 m=5",
    "gemm T=bf16 N=264 K=520 M_BUCKET=64 SPLIT=4 m=37",
    "gemm T=bf16 N=512 K=512 M_BUCKET=256 SPLIT=2 LEFT=128 RIGHT=96 m=300",
    "gemm T=f16 N=512 K=256 PAIR=2 m=300 BIAS=true ACT=gelu RESIDUAL=true",
    "gemm T=bf16 N=264 K=200 GATED=true ACT=silu m=130",
    "gemm T=e4m3 N=264 K=256 SCALES=block m=130",
    "gemm T=e4m3 N=264 K=256 SCALES=block LEFT=256 RIGHT=128 SPLIT=1 m=300",
    "gemm T=e4m3 N=264 K=256 SCALES=block M_BUCKET=16 m=13",
]


def padded(rows, columns, stride, dtype, batch=None):
    """Random rows with NaN between them."""
    shape, strides = (rows, columns), (stride, 1)
    if batch:
        shape, strides = (batch, *shape), (rows * stride + 64, *strides)
    return between_nans(shape, strides, dtype)


def scales_of(kind, m, n, k):
    """scale_a, its stride, scale_b, and both as matrices of factors of a and b."""
    if kind == "none":
        return None, 0, None, 1.0, 1.0
    uniform = lambda *shape: torch.rand(*shape, device="cuda") + 0.5
    if kind == "tensor":
        a, b = uniform(1), uniform(1)
        return a, 0, b, a.double(), b.double()
    if kind == "row":
        a, b = uniform(m), uniform(n)
        return a, 0, b, a.double()[:, None], b.double()[:, None]
    pitch = -(-m // 4) * 4
    a, b = torch.full((k // 128, pitch), float("nan"), device="cuda"), uniform(-(-n // 128), k // 128)
    a[:, :m] = uniform(k // 128, m)
    wide = b.double().repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)
    return a, pitch, b, a[:, :m].double().t().repeat_interleave(128, 1), wide


def case(m, n, k, dtype="bf16", batch=None, pad=0, template="gemm", **parameters):
    """Runs one product between guards and compares it with float64."""
    gated, act = parameters.get("GATED", False), parameters.get("ACT", "none")
    rows_b = 2 * n if gated else n
    out_dtype = parameters.get("OUT", "bf16" if dtype == "e4m3" else dtype)
    unit = 16 // torch.empty(0, dtype=DTYPES[dtype]).element_size()
    a, b = padded(m, k, k + pad * unit, dtype, batch), padded(rows_b, k, k + pad * unit, dtype, batch)
    bias = normal(rows_b, dtype=out_dtype) if parameters.get("BIAS") else None
    residual = padded(m, n, n + 8 * pad, out_dtype, batch) if parameters.get("RESIDUAL") else None
    scale_a, pitch, scale_b, by_a, by_b = scales_of(parameters.get("SCALES", "none"), m, rows_b, k)
    stride_d = n + 8 * pad
    shape, strides = (m, n), (stride_d, 1)
    if batch:
        shape, strides = (batch, *shape), (m * stride_d + 64, *strides)
    out = Guarded(*shape, dtype=out_dtype, strides=strides)
    step = lambda t: t.stride(0) if batch and t is not None else 0
    kernel(template, T=dtype, N=n, K=k, **parameters)(
        *(out.view, a, b, m, a.stride(-2), b.stride(-2), stride_d, batch or 1),
        *(step(a) or m * a.stride(-2), step(b) or rows_b * b.stride(-2), step(out.view) or m * stride_d),
        *(scale_a, pitch, scale_b, bias, residual),
        *(residual.stride(-2) if residual is not None else 0, step(residual)),
    )
    y = (a.double() * by_a) @ (b.double() * by_b).transpose(-1, -2)
    if bias is not None:
        y = y + bias.double()
    y = ACTIVATIONS[act](y[..., :n]) * y[..., n:] if gated else ACTIVATIONS[act](y)
    if residual is not None:
        y = y + residual.double()
    what = f"m={m} N={n} K={k} {dtype} batch={batch} pad={pad} {parameters}"
    expect_close(out.view, y, TOLERANCE[out_dtype], what)
    out.check(what)


CUTS = [  # ways to cut the work, for few rows and for many
    *[dict(M_BUCKET=bucket) for bucket in (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)],
    *[dict(M_BUCKET=8, LEFT=64, SPLIT=split, BLOCKS=blocks) for split in (1, 2, 4, 8) for blocks in (1, 2, 3)],
    *[dict(M_BUCKET=bucket, SPLIT=split, LEFT=left) for bucket in (16, 64) for split in (1, 2, 4, 8) for left in (64, 128)],
    *[dict(M_BUCKET=64, RIGHT=right, BLOCKS=1) for right in (48, 96, 128)],
    *[dict(M_BUCKET=64, PAIR=2, SPLIT=1, LEFT=left) for left in (64, 128)],
    *[
        dict(SWAP=False, LEFT=left, RIGHT=right, PAIR=1)
        for left in (64, 128)
        for right in (48, 64, 80, 112, 128, 160, 192, 224, 256)
    ],
    *[dict(SWAP=False, LEFT=64, RIGHT=right, PAIR=2) for right in (64, 80, 96, 128)],
    *[dict(SWAP=False, LEFT=128, RIGHT=right, PAIR=2) for right in (64, 80, 128, 144, 176, 192, 224, 256)],
    *[dict(SWAP=False, LEFT=left, RIGHT=128, PAIR=pair) for left in (192, 256) for pair in (1, 2)],
    *[dict(SWAP=False, LEFT=128, RIGHT=right, SPLIT=split) for right in (64, 80, 96, 112, 128, 160, 192) for split in (2, 4)],
    *[dict(M_BUCKET=8, BOXES=boxes, SPLIT=split) for boxes in (2, 4) for split in (1, 2)],
    *[dict(SWAP=False, RIGHT=64, BOXES=2, PAIR=pair) for pair in (1, 2)],
    dict(M_BUCKET=8, EARLY_B=True),
    dict(EARLY_B=True),
]


def run_all(cases):
    cases = list(cases)
    for _, n, k, parameters in cases:
        compiled = {name: value for name, value in parameters.items() if name not in ("batch", "pad")}
        prefetch("gemm", **{"T": "bf16", **compiled, "N": n, "K": k})
    for m, n, k, parameters in cases:
        parameters = dict(parameters)
        case(m, n, k, parameters.pop("T", "bf16"), parameters.pop("batch", None), parameters.pop("pad", 0), **parameters)


def test_every_cut():
    # Tails of m, N and K; more tiles than blocks.
    run_all([(m, 520, 1160, cut) for cut in CUTS for m in (1, 77, 300)])
    run_all([(5, 16392, 584, cut) for cut in CUTS[:4]])
    run_all([(5, 16392, 200, dict(M_BUCKET=8, LEFT=128, SPLIT=1))])  # the next tile's sums come soon
    run_all([(2100, 2056, 584, cut) for cut in CUTS if cut.get("SPLIT", 1) == 1])


def test_small_matrices():
    run_all([(m, n, k, cut) for m in (1, 9) for n, k in ((8, 8), (40, 72)) for cut in (dict(M_BUCKET=8), dict(M_BUCKET=8192))])


def test_epilogues():
    run_all(
        (m, 520, 584, dict(ACT=act, BIAS=bias, GATED=gated, RESIDUAL=bias, T=dtype, **cut))
        for act, bias, gated, dtype in [
            *[(act, False, False, "bf16") for act in ACTIVATIONS],
            ("gelu", True, False, "f16"),
            ("none", True, False, "bf16"),
            ("silu", False, True, "bf16"),
            ("gelu_tanh", True, True, "bf16"),
        ]
        for m, cut in [
            (5, dict(M_BUCKET=8)),
            (60, dict(M_BUCKET=64, SPLIT=4)),
            (60, dict(M_BUCKET=64, PAIR=2, SPLIT=1)),
            (300, {}),
            (300, dict(SWAP=False, RIGHT=128, PAIR=1, SPLIT=1)),
            (300, dict(SWAP=False, LEFT=64, RIGHT=80, PAIR=1)),
            (300, dict(SWAP=False, RIGHT=224, PAIR=2)),
            (200, dict(SWAP=False, RIGHT=128, SPLIT=2)),
        ]
    )


def test_outputs_of_f32():
    run_all([(m, 520, 584, dict(OUT="f32", BIAS=True, RESIDUAL=True, **cut)) for m in (5, 300) for cut in (dict(M_BUCKET=8), {})])


def test_strides_and_batches():
    run_all(
        (m, 520, 584, dict(pad=pad, batch=batch, RESIDUAL=True, **cut))
        for pad, batch in ((1, None), (3, 3), (0, 5))
        for m, cut in ((5, dict(M_BUCKET=8)), (60, dict(M_BUCKET=64, SPLIT=2)), (300, {}), (300, dict(PAIR=1)), (300, dict(PAIR=2)))
    )


def test_fp8():
    run_all(
        (m, n, 1152, dict(T="e4m3", SCALES=scales, GATED=gated, ACT="silu" if gated else "none", pad=pad, **cut))
        for scales in ("none", "tensor", "row", "block")
        for gated, n in ((False, 520), (True, 576))
        for m, cut, pad in [
            (5, dict(M_BUCKET=8), 0),
            (60, dict(M_BUCKET=64), 1),
            (37, dict(M_BUCKET=64, SPLIT=4), 0),
            (301, {}, 1),
            (300, dict(PAIR=2), 0),
            (300, dict(M_BUCKET=128, SPLIT=2), 0),
            (600, dict(M_BUCKET=128), 0),
            *[(600, dict(LEFT=left, RIGHT=128, SPLIT=1, PAIR=pair), 1) for left in (192, 256) for pair in (1, 2)],
        ]
    )


def test_fp8_sums_keep_their_bits():
    """Positive data and a long K: sums of 14 bits would lose the small products."""
    m, n, k = 64, 256, 16384
    for cut in (dict(M_BUCKET=64), {}, dict(LEFT=256, RIGHT=128, SPLIT=1)):
        a = (torch.rand(m, k, device="cuda") + 0.5).to(torch.float8_e4m3fn)
        b = (torch.rand(n, k, device="cuda") + 0.5).to(torch.float8_e4m3fn)
        out = torch.empty(m, n, device="cuda")
        kernel("gemm", T="e4m3", N=n, K=k, OUT="f32", **cut)(out, a, b, m, k, k, n)
        expect_close(out, a.double() @ b.double().t(), 3e-4, f"{cut}")


def portable():
    """The kernel of the other architectures, on this GPU."""
    return portable_template("gemm", "gemm", "portable.cu", "portable")


def test_portable_kernel():
    for m, n, k in ((1, 8, 8), (77, 520, 1160), (300, 200, 72)):
        case(m, n, k, template=portable())
        case(m, n, k, "f16", template=portable(), pad=1, batch=3, RESIDUAL=True)
        case(m, n, k, template=portable(), BIAS=True, ACT="gelu", OUT="f32")
        case(m, n, k, template=portable(), BIAS=True, ACT="silu", GATED=True, RESIDUAL=True)
    for scales in ("none", "tensor", "row", "block"):
        case(77, 520, 1152, "e4m3", template=portable(), SCALES=scales)
        case(130, 576, 1152, "e4m3", template=portable(), SCALES=scales, GATED=True, ACT="silu", pad=1)


def test_runs_give_the_same_bits():
    for cut in (dict(M_BUCKET=64, SPLIT=8), dict(M_BUCKET=8), {}):
        a, b = normal(64, 4096), normal(1024, 4096)
        runs = [torch.empty(64, 1024, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        for out in runs:
            kernel("gemm", T="bf16", N=1024, K=4096, **cut)(out, a, b, 64, 4096, 4096, 1024)
        for out in runs[1:]:
            expect_same_bits(out, runs[0], f"{cut}")


def test_no_less_accurate_than_torch():
    a, b = normal(256, 8192), normal(512, 8192)
    out = torch.empty(256, 512, dtype=torch.bfloat16, device="cuda")
    want = a.double() @ b.double().t()
    for bucket in (64, 256, 8192):
        kernel("gemm", T="bf16", N=512, K=8192, M_BUCKET=bucket)(out, a, b, 256, 8192, 8192, 512)
        ours, torchs = relative_rms(out, want), relative_rms(a @ b.t(), want)
        assert ours <= 1.02 * torchs, f"bucket {bucket}: {ours:.3g}, torch {torchs:.3g}"


def test_no_rows_launch_nothing():
    a, b, out = normal(0, 64), normal(64, 64), Guarded(0, 64)
    kernel("gemm", T="bf16", N=64, K=64)(out.view, a, b, 0, 64, 64, 64)
    out.check()


def test_refusals():
    a, b, out = normal(8, 64), normal(64, 64), normal(8, 64)
    expect_refused(lambda: kernel("gemm", T="bf16", N=64, K=64)(out, a[:, 1:], b, 8, 64, 64, 64), "a")
    expect_refused(lambda: kernel("gemm", T="bf16", N=64, K=64)(out, a, b, 8, 63, 64, 64), "stride_a")
    expect_refused(lambda: kernel("gemm", T="bf16", N=60, K=64), "N = 60")


LAYERS = {  # N, K
    "Llama-3-8B qkv": (6144, 4096),
    "Llama-3-8B o": (4096, 4096),
    "Llama-3-8B gate_up": (28672, 4096),
    "Llama-3-8B down": (4096, 14336),
    "Llama-3-70B/8 qkv": (1280, 8192),
    "Llama-3-70B/8 gate_up": (7168, 8192),
    "DeepSeek-V3 q_b": (24576, 1536),
    "RWKV7-2.9B": (2560, 2560),
}
ROWS = {  # the core list
    1: list(LAYERS),
    16: list(LAYERS),
    64: list(LAYERS),
    128: list(LAYERS)[:2],
    256: list(LAYERS)[:5],
    1024: list(LAYERS)[:4],
    4096: list(LAYERS)[:4] + ["DeepSeek-V3 q_b"],
}


def bucket(m):
    return next((b for b in (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) if m <= b), 8192)


def bench():
    for m, layers in ROWS.items():
        for name in layers:
            n, k = LAYERS[name]

            def launch(out, a, b, m=m, n=n, k=k):
                kernel("gemm", T="bf16", N=n, K=k, M_BUCKET=bucket(m), EARLY_B=True)(out, a, b, m, k, k, n)

            yield Row(
                case=f"{name}: m {m}, N {n}, K {k}",
                read=2 * (m + n) * k,
                write=2 * m * n,
                flops=2 * m * n * k,
                make=lambda m=m, n=n, k=k: (torch.empty(m, n, dtype=torch.bfloat16, device="cuda"), normal(m, k), normal(n, k)),
                launches={"kiln": launch, "torch": lambda out, a, b: torch.mm(a, b.t(), out=out), **peers.get("gemm")},
                bar=0,
                beats={"kiln": ["torch"]},
            )
    n, k = 4096, 7168
    for m in (16, 128, 1024, 4096):

        def launch_fp8(out, a, b, scale_a, scale_b, m=m):
            member = kernel("gemm", T="e4m3", SCALES="block", N=n, K=k, M_BUCKET=bucket(m), EARLY_B=True)
            member(out, a, b, m, k, k, n, 1, m * k, n * k, m * n, scale_a, scale_a.shape[1], scale_b)

        def torch_fp8(out, a, b, scale_a, scale_b):
            torch._scaled_mm(a, b.t(), scale_a.t(), scale_b.t(), out_dtype=torch.bfloat16, out=out)

        yield Row(
            case=f"fp8 with scales of blocks: m {m}, N {n}, K {k}",
            read=(m + n) * k + 4 * (m + n // 128) * (k // 128),
            write=2 * m * n,
            flops=2 * m * n * k,
            make=lambda m=m: (
                torch.empty(m, n, dtype=torch.bfloat16, device="cuda"),
                normal(m, k).to(torch.float8_e4m3fn),
                normal(n, k).to(torch.float8_e4m3fn),
                torch.rand(k // 128, m, device="cuda") + 0.5,
                torch.rand(n // 128, k // 128, device="cuda") + 0.5,
            ),
            launches={"kiln": launch_fp8, "torch": torch_fp8},
            bar=0,
            beats={"kiln": ["torch"]},
        )
