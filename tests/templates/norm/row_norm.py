"""row_norm (gated_rms_norm, layer_norm, l2norm) against float64 in torch, and its time beside torch's."""

import itertools

import torch
from harness import (
    DTYPES,
    TOLERANCE,
    Guarded,
    Row,
    between_nans,
    compiled,
    expect_close,
    expect_refused,
    expect_same_bits,
    kernel,
    prefetch,
)

SANITIZE = [
    "row_norm T=bf16 H=128 GATE=silu tokens=37 heads=5",
    "row_norm T=bf16 H=4096 NORM=layer tokens=9",
    "row_norm T=f32 H=129 NORM=l2 tokens=33 heads=3",
    "row_norm T=f16 H=100003 NORM=layer GATE=silu_first tokens=2",
]


class Data:
    """The inputs of a call. Memory between the tokens of x and z is NaN."""

    def __init__(
        self,
        tokens,
        heads,
        H,
        dtype="bf16",
        NORM="rms",
        GATE="none",
        weight="shared",
        bias=False,
        gap=8,
        WEIGHT=None,
        offset=0.0,
        **words,
    ):
        self.tokens, self.heads, self.H, self.dtype, self.eps = tokens, heads, H, dtype, 1e-5
        self.norm, self.gate = NORM, GATE
        self.parameters = dict(T=dtype, H=H, NORM=NORM, GATE=GATE, WEIGHT=WEIGHT or dtype, **words)
        strides = (heads * H + gap, H, 1)
        self.x = between_nans((tokens, heads, H), strides, dtype)
        self.x.add_(offset)
        self.z = between_nans((tokens, heads, H), (heads * H + 2 * gap, H, 1), dtype) if GATE != "none" else None
        rows, kind = (heads if weight == "heads" else 1), DTYPES[WEIGHT or dtype]
        self.w = None if weight is None else torch.randn(rows, H, device="cuda").to(kind)
        self.bias = torch.randn(rows, H, device="cuda").to(kind) if bias else None
        self.stride_w = H if weight == "heads" else 0

    def run(self, out=None, **parameters):
        H, heads = self.H, self.heads
        out = out or Guarded(self.tokens, heads, H, dtype=self.dtype, strides=(heads * H + 8, H, 1))
        kernel("row_norm", **{**self.parameters, **parameters})(
            out.view,
            self.x,
            self.tokens,
            heads,
            self.x.stride(0),
            out.view.stride(0),
            self.eps,
            self.w,
            self.bias,
            self.stride_w,
            self.z,
            0 if self.z is None else self.z.stride(0),
        )
        return out

    def want(self):
        x = self.x.double()
        z = None if self.z is None else self.z.double()
        if self.gate == "silu_first":
            x = x * z * torch.sigmoid(z)
        if self.norm == "layer":
            x = x - x.mean(-1, keepdim=True)
        squares = x.square().sum(-1, keepdim=True) if self.norm == "l2" else x.square().mean(-1, keepdim=True)
        y = x * torch.rsqrt(squares + self.eps)
        if self.w is not None:
            y = y * self.w.double()
        if self.bias is not None:
            y = y + self.bias.double()
        if self.gate in ("silu", "sigmoid"):
            y = y * torch.sigmoid(z) * (z if self.gate == "silu" else 1)
        return y

    def expect_right(self, what="", **parameters):
        what = f"{what} {self.parameters} {parameters}"
        out = self.run(**parameters)
        expect_close(out.view, self.want(), TOLERANCE[self.dtype], what)
        out.check(what)
        return out


def test_every_size_and_mode():
    modes = [dict(NORM=n, GATE=g) for n, g in itertools.product(("rms", "layer", "l2"), ("none", "silu", "sigmoid", "silu_first"))]
    cases = [
        (H, dict(dtype=t, **mode))
        for (H, t), mode in itertools.product(((128, "bf16"), (129, "f32"), (64, "f16"), (1000, "bf16")), modes)
    ]
    cases += [
        (H, dict(dtype=t, NORM=n))
        for H, t, n in itertools.product((1, 7, 2048, 5120, 8192, 40000, 100003), ("f32", "bf16"), ("layer", "l2"))
    ]
    for H, words in cases:
        prefetch("row_norm", **Data(1, 1, H, **words).parameters)
    for H, words in cases:
        for tokens, heads in ((33, 3), (1, 1)) if H <= 1000 else ((5, 1), (3, 2)):
            Data(tokens, heads, H, bias=words.get("NORM") == "layer", **words).expect_right()


def test_weights():
    for weight, bias, kind in itertools.product((None, "shared", "heads"), (False, True), ("f32", "bf16")):
        for norm, gate in (("rms", "silu"), ("layer", "none")):
            Data(19, 5, 128, NORM=norm, GATE=gate, weight=weight, bias=bias and weight is not None, WEIGHT=kind).expect_right(
                f"{weight}"
            )


def test_a_large_mean_does_not_cancel():
    """The variance comes from the values less their mean.

    The mean of values around 300 has an error of some 2^-24 of 300. The difference of two mean squares would
    have an error of about 2^-24 of 300^2.
    """
    for tokens, H in ((40, 4096), (7, 50000)):
        data = Data(tokens, 1, H, dtype="f32", NORM="layer", offset=300.0)
        expect_close(data.run().view, data.want(), 1e-4, f"H = {H}")


def test_in_place():
    for words in (dict(NORM="layer"), dict(GATE="silu"), dict(NORM="layer", GATE="silu_first")):
        for H in (128, 40000):
            data = Data(9, 2, H, gap=0, **words)
            want = data.run().view.clone()
            for target in ("x", "z") if data.z is not None else ("x",):
                held = getattr(data, target).clone()
                data.run(out=Given(getattr(data, target)))
                expect_same_bits(getattr(data, target).contiguous(), want, f"{words} {H} {target}")
                getattr(data, target).copy_(held)


class Given:
    def __init__(self, view):
        self.view = view


def test_zero_rows_and_limits():
    for norm in ("rms", "layer", "l2"):
        data = Data(6, 2, 128, NORM=norm, bias=norm == "layer")
        data.x[2] = 0
        data.x[3, 1] = 7.0
        data.expect_right(norm)


def test_offsets_beyond_31_bits():
    data = Data(3, 2, 64, gap=1 << 30, GATE="silu")
    data.expect_right("tokens far apart")


def test_nothing_to_do():
    kernel("row_norm", T="bf16", H=64)(None, None, 0, 4, 64, 64, 1e-6)
    kernel("row_norm", T="bf16", H=64)(None, None, 4, 0, 64, 64, 1e-6)


def test_refusals():
    data = Data(4, 2, 64, GATE="silu")
    data.z = None
    expect_refused(data.run, "z must", "GATE")
    data = Data(4, 2, 64)
    data.stride_w = 3
    expect_refused(data.run, "stride_w")
    expect_refused(lambda: kernel("row_norm", T="bf16", H=60, VEC=8), "VEC")
    expect_refused(lambda: kernel("row_norm", T="bf16", H=64, GATE="relu"), "GATE")


def bench():
    for tokens, heads in ((64, 32), (8192, 32)):
        H = 128

        def make(tokens=tokens, heads=heads, H=H):
            x = torch.randn(tokens, heads, H, device="cuda").bfloat16()
            return torch.empty_like(x), x, torch.randn_like(x), torch.randn(H, device="cuda").bfloat16()

        def eager(out, x, z, w):
            y = torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), None, 1e-6) * w.float()
            return (y * torch.nn.functional.silu(z.float())).to(x.dtype)

        run = kernel("row_norm", T="bf16", H=H, GATE="silu")
        launches = {
            "kiln": lambda o, x, z, w, run=run, t=tokens, h=heads, H=H: run(o, x, t, h, h * H, h * H, 1e-6, w, None, 0, z, h * H),
            "torch.compile": compiled(eager),
        }
        size = tokens * heads * H * 2
        yield Row(f"row_norm rms silu bf16 {tokens} x {heads} heads of {H}", 2 * size + 2 * H, size, make, launches)
    for rows, H, norm in ((8192, 4096, "layer"), (64, 4096, "layer"), (8192 * 32, 128, "l2")):

        def make(rows=rows, H=H):
            x = torch.randn(rows, H, device="cuda").bfloat16()
            return torch.empty_like(x), x, torch.randn(H, device="cuda").bfloat16(), torch.randn(H, device="cuda").bfloat16()

        run = kernel("row_norm", T="bf16", H=H, NORM=norm)
        launches = {
            "kiln": lambda o, x, w, b, run=run, n=rows, H=H, norm=norm: run(
                o, x, n, 1, H, H, 1e-5, w if norm == "layer" else None, b if norm == "layer" else None
            ),
            "torch": (lambda o, x, w, b: torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b))
            if norm == "layer"
            else (lambda o, x, w, b: torch.nn.functional.normalize(x, dim=-1)),
        }
        size = rows * H * 2
        yield Row(f"row_norm {norm} bf16 {rows} x {H}", size + (4 * H if norm == "layer" else 0), size, make, launches)
