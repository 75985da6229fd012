"""fp8_quant and amax, byte for byte, in corner cases that `kiln run --check` does not draw;
and times beside PyTorch.

Codes must equal a float32 division rounded to fp8, (x.float() / scale).to(float8). The tests also print how
many codes differ from the exact quotient, rounded once: never by more than one code.
"""

import itertools

import torch
from harness import DTYPES, Guarded, Row, compiled, expect_refused, expect_same_bits, kernel, normal, peers, prefetch

LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
TORCH = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
FLOAT_MAX = torch.finfo(torch.float32).max
ALL = [("static", 0), ("tensor", 0), ("token", 0), ("group", 64), ("group", 128)]

SANITIZE = [
    "fp8_quant T=bf16 H=7168 GROUP=128 rows=37",
    "fp8_quant T=f32 H=384 GROUP=64 SCALE=u8 rows=33",
    "fp8_quant T=f16 H=65536 SCALING=token rows=3",
    "fp8_quant T=bf16 H=5001 SCALING=tensor rows=37 parts=300",
    "amax T=bf16 H=5001 rows=37 parts=40",
]

# ---- what is expected ---------------------------------------------------------------------------------------------------------------------


def to_fp8(y, out="e4m3"):
    """The fp8 codes of f32 values, saturated; every NaN is 0x7f."""
    codes = y.clamp(-LARGEST[out], LARGEST[out]).to(TORCH[out]).view(torch.uint8)
    return torch.where(y.isnan(), 0x7F, codes.int()).to(torch.uint8)


def divided(x, scale, out="e4m3"):
    """The codes of an f32 division, which equals a double quotient rounded to f32."""
    return to_fp8((x.double() / scale.double()).float(), out)


def exact(x, scale, out="e4m3"):
    """The codes of the exact quotient, rounded once.

    The quotient goes through an f32 that is rounded to odd, which keeps the side of a
    midpoint that it lies on.
    """
    q = x.double() / scale.double()
    f = q.float()
    bits = f.view(torch.int32)
    inexact = torch.isfinite(f) & (f.double() != q)
    bits = torch.where(inexact & (f.double().abs() > q.abs()), bits - 1, bits)
    return to_fp8(torch.where(inexact, bits | 1, bits).view(torch.float32), out)


def codes_apart(a, b):
    """The distance in codes of each element; 1 is a neighbour. A NaN is far from every code but NaN."""

    def ordinal(c):
        c = c.int()
        return torch.where(c >= 128, 128 - c, c)

    nan = ((a & 0x7F) == 0x7F) | ((b & 0x7F) == 0x7F)
    return torch.where(nan, (a != b).int() * 1000, (ordinal(a) - ordinal(b)).abs())


def scale_of(amax, out="e4m3", pow2=False, eps=1e-10):
    """The f32 scale for amax in f64: max(amax, eps) / largest, correctly rounded.

    With pow2 it is the least power of two that is not below the exact quotient.
    """
    q = amax.double().clamp(float(torch.tensor(eps, dtype=torch.float32)), FLOAT_MAX) / LARGEST[out]
    if not pow2:
        return q.float()
    mantissa, exponent = torch.frexp(q)
    return torch.ldexp(torch.ones_like(q), exponent - (mantissa == 0.5).int()).float()


def magnitudes(x):
    return x.double().abs().nan_to_num(nan=0.0, posinf=FLOAT_MAX)


# ---- running it ---------------------------------------------------------------------------------------------------------------------------


class Quantised:
    """One call: codes [rows, H] as bytes, and scales in f32 (packed u8 exponents are
    unpacked), in guarded memory.

    REQUIRES: rows > 0.
    """

    def __init__(self, x, scaling, group=0, dtype="bf16", scale=None, layout="row", out="e4m3", stride_out=None, **parameters):
        rows, h = x.shape
        self.groups = h // group if group else 1
        packed = parameters.get("SCALE") == "u8"
        self.out = Guarded(rows, h, dtype="e4m3", strides=(stride_out or h, 1))
        k = kernel("fp8_quant", T=dtype, H=h, GROUP=group, SCALING=scaling, OUT=out, **parameters)
        pointers = (self.out.view, x, rows, x.stride(0), stride_out or h)
        self.codes = self.out.view.view(torch.uint8)
        if scaling == "static":
            k(*pointers, scale)
            self.scale_out = None
            return
        words = -(-self.groups // 4) if packed else self.groups
        strides = (words, 1) if layout == "row" else (1, rows if layout == "column" else -(-rows // 4) * 4)
        self.scale_out = Guarded(1 if scaling == "tensor" else rows, words, dtype="i32", strides=strides)
        amax = None
        if scaling == "tensor":
            parts = min(rows, 200)
            amax = Guarded(parts, dtype="i32")
            kernel("amax", T=dtype, H=h, **({"VEC": parameters["VEC"]} if parameters.get("VEC", 16) < 4 else {}))(
                amax.view, x, rows, x.stride(0), parts
            )
        k(*pointers, None, self.scale_out.view, *strides, 1e-10, amax.view if amax else None, parts if amax else 0)
        raw = self.scale_out.view.clone(memory_format=torch.contiguous_format)
        if packed:
            bytes_ = raw.view(torch.uint8).reshape(rows, 4 * words)
            assert bool((bytes_[:, self.groups :] == 0).all()), "bytes that a row's last word has left are cleared"
            raw = bytes_[:, : self.groups].int() << 23
        self.scale = raw.view(torch.float32)

    def check(self, what):
        self.out.check(what)
        if self.scale_out:
            self.scale_out.check(what + " scales")


def expect_right(x, scaling, group=0, dtype="bf16", what="", scale=None, out="e4m3", **parameters):
    """Expects the exact codes and scales. Returns the share of codes that differ from the exact
    quotient's, by one at most.
    """
    rows, h = x.shape
    q = Quantised(x, scaling, group, dtype, scale, out=out, **parameters)
    what = f"{what} {dtype} {rows} x {h} {scaling} {group} {parameters}"
    pow2 = parameters.get("POW2", parameters.get("SCALE") == "u8")
    if scaling == "static":
        used = scale if scale is not None else torch.ones(1, device="cuda")
    else:
        spans = magnitudes(x).reshape(rows, -1, group) if group else magnitudes(x).reshape(rows, 1, h)
        amax = spans.amax(dim=2) if scaling != "tensor" else spans.max().reshape(1, 1)
        used = scale_of(amax, out, pow2)
        expect_same_bits(q.scale, used, what + ": scales")
    each = used.reshape(-1, 1, 1) if used.numel() in (1, rows) and not group else used.reshape(rows, -1, 1)
    spans = x.reshape(rows, -1, group) if group else x.reshape(rows, 1, h)
    got = q.codes.reshape(spans.shape)
    want = divided(spans, each, out)
    expect_same_bits(got, want, f"{what}: codes, {int(codes_apart(got, want).max())} apart at most,")
    off = codes_apart(got, exact(spans, each, out))
    assert int(off.max()) <= 1, f"{what}: {int(off.max())} codes from the exact quotient"
    q.check(what)
    return int((off > 0).sum()) / off.numel()


# ---- tests --------------------------------------------------------------------------------------------------------------------------------


def test_every_dtype_width_and_scaling():
    widths = [1, 2, 3, 7, 31, 64, 97, 128, 257, 768, 1009, 2048, 4096, 5001, 5120, 7168, 8192, 12288, 16384, 28672, 65536]
    kinds = [
        (d, s, g, h)
        for d, (s, g), h in itertools.product(DTYPES, ALL, widths)
        if d in ("f32", "f16", "bf16") and (not g or h % g == 0)
    ]
    for d, s, g, h in kinds:
        prefetch("fp8_quant", T=d, H=h, GROUP=g, SCALING=s, OUT="e4m3")
    for d, s, g, h in kinds:
        for rows in (1, 3, 65):
            x = normal(rows, h, dtype=d) * torch.rand(rows, 1, device="cuda").to(DTYPES[d])
            expect_right(x, s, g, d, scale=torch.rand(1, device="cuda") * 0.01 + 0.001)


def test_distance_from_the_exact_quotient():
    said = []
    for d, (s, g) in itertools.product(("f32", "f16", "bf16"), ALL):
        share = expect_right(normal(2048, 4096, dtype=d), s, g, d, scale=torch.rand(1, device="cuda") * 0.01 + 0.001)
        assert share < (1e-5 if d == "f32" else 5e-3), f"{d} {s} {g}: {share}"
        said.append(f"{d} {s} {g or ''} {share:.1e}")
    return "share of codes one from it: " + ", ".join(said)


def test_powers_of_two_are_exact():
    for d, (s, g) in itertools.product(("f32", "f16", "bf16"), ALL[1:]):
        x = normal(65, 4096, dtype=d)
        x[:32] *= torch.exp2(torch.randint(-12, 12, (32, 1), device="cuda").float()).to(x.dtype)
        x[40] = torch.where(torch.rand(4096, device="cuda") < 0.1, 448.0, 1.0).to(x.dtype)  # amax / 448 is a power of two itself
        # amax / 448 is just above a power of two.
        x[41] = torch.where(torch.rand(4096, device="cuda") < 0.1, 450.0, 1.0).to(x.dtype)
        share = expect_right(x, s, g, d, POW2=True)
        assert share == 0, "a product with a power of two is exact"
    x = torch.full((1, 128), 448.0, device="cuda")
    x[0, 0] = torch.nextafter(x[0, 0], torch.tensor(500.0, device="cuda"))
    expect_right(x, "group", 128, "f32", POW2=True)


def test_packed_exponents():
    for g, h, rows, layout in itertools.product(
        (64, 128), (128, 384, 640, 4096, 7168), (1, 3, 33, 64), ("row", "column", "aligned")
    ):
        expect_right(normal(rows, h), "group", g, SCALE="u8", layout=layout)


def test_layouts_leave_the_padding_alone():
    for rows, layout, pow2 in itertools.product((1, 3, 33, 64), ("row", "column", "aligned"), (False, True)):
        expect_right(normal(rows, 1024), "group", 128, POW2=pow2, layout=layout)
        expect_right(normal(rows, 1000), "token", 0, POW2=pow2, layout=layout)


def test_e5m2():
    for s, g in ALL:
        for pow2 in (False, True) if s != "static" else (False,):
            expect_right(normal(33, 4096), s, g, out="e5m2", POW2=pow2)


def test_special_values():
    """NaN is 0x7f and does not count for a scale. An infinity saturates and counts as the largest
    float. Zeros keep their sign.
    """
    for d, (s, g), pow2 in itertools.product(("f32", "f16", "bf16"), ALL, (False, True)):
        if s == "static" and pow2:
            continue
        x = normal(12, 512, dtype=d)
        tiny = torch.finfo(x.dtype).smallest_normal
        x[0], x[1] = 0.0, -0.0
        x[2, 5], x[2, 300] = float("nan"), -float("nan")
        x[3] = float("nan")
        x[4] *= tiny / 64  # subnormal
        if s != "tensor":
            x[5, 7], x[5, 400] = float("inf"), float("-inf")
            x[6] = torch.finfo(x.dtype).max
            x[7, ::2], x[7, 1::2] = float("inf"), float("-inf")
        x[8, 3:] = 0.0
        expect_right(x, s, g, d, POW2=pow2)
        q = Quantised(x, s, g, d, POW2=pow2)
        assert bool((q.codes[0] == 0).all()) and bool((q.codes[1] == 0x80).all()), "zeros keep their sign"
        assert bool((q.codes[3] == 0x7F).all()) and int(q.codes[2, 5]) == 0x7F and int((q.codes[2] == 0x7F).sum()) == 2, (
            "NaN stays in its place"
        )
        if s != "tensor":
            assert int(q.codes[5, 7]) == 0x7E and int(q.codes[5, 400]) == 0xFE, "infinities saturate"
        if s != "static":
            assert bool((q.scale > 0).all()) and bool(torch.isfinite(q.scale).all()), "scales are finite and above 0"


def test_static_scales_saturate():
    x = normal(33, 4096, dtype="f32") * 100
    for scale in (1e-3, 0.1, 0.125, 1.0, 3e4, 1e30, 1e-30):
        expect_right(x, "static", dtype="f32", scale=torch.tensor([scale], device="cuda"))
    expect_right(x, "static", dtype="f32")


def test_every_value_of_16_bits():
    """All f16 and all bf16 values, in groups with all kinds of amax, and with a static scale."""
    every = torch.arange(65536, device="cuda", dtype=torch.int32).to(torch.int16)
    for d in ("f16", "bf16"):
        x = every.view(DTYPES[d]).reshape(-1, 64)
        expect_right(x, "group", 64, d)
        expect_right(x[:, torch.randperm(64, device="cuda")].contiguous().reshape(-1, 128), "group", 128, d, POW2=True)
        expect_right(every[torch.randperm(65536, device="cuda")].view(DTYPES[d]).reshape(-1, 128), "group", 128, d)
        for scale in (0.37, 2.0**-9, 1.0):
            expect_right(x, "static", 0, d, scale=torch.tensor([scale], device="cuda"))


def test_eps():
    x = normal(5, 256) * 1e-3
    out, scale = Guarded(5, 256, dtype="e4m3"), Guarded(5, 2, dtype="i32")
    kernel("fp8_quant", T="bf16", H=256, GROUP=128)(out.view, x, 5, 256, 256, None, scale.view, 2, 1, 1e-4 * 448)
    assert bool((scale.view.view(torch.float32) == scale_of(torch.full((5, 2), 0.0, device="cuda"), eps=1e-4 * 448)).all())
    for pow2 in (False, True):  # eps 0 means 2^-100: a row of zeros has a normal scale, and codes of 0
        x.zero_()
        kernel("fp8_quant", T="bf16", H=256, GROUP=128, POW2=pow2)(out.view, x, 5, 256, 256, None, scale.view, 2, 1, 0.0)
        found = scale.view.view(torch.float32)
        assert bool(((found > 0) & (found < 2.0**-100)).all()) and bool((out.view.view(torch.uint8) == 0).all())


def test_large():
    rows, h = 175000, 12288
    x = normal(rows, h)
    for s, g in ALL:
        q = Quantised(x, s, g, scale=torch.tensor([0.01], device="cuda"))
        for first in (0, 87000, 174000):
            part = x[first : first + 1000]
            spans = part.reshape(1000, -1, g or h)
            scale = (
                torch.tensor([0.01], device="cuda")
                if s == "static"
                else q.scale
                if s == "tensor"
                else q.scale[first : first + 1000].reshape(1000, -1, 1)
            )
            expect_same_bits(q.codes[first : first + 1000].reshape(spans.shape), divided(spans, scale), f"{s} {g} from row {first}")
            if s not in ("static", "tensor"):
                expect_same_bits(scale.reshape(1000, -1), scale_of(magnitudes(spans).amax(dim=2)), f"{s} {g} from row {first}")
        if s == "tensor":
            expect_same_bits(q.scale, scale_of(x.abs().max().reshape(1, 1)), "tensor")
        q.check(f"{s} {g}")


def test_strides_beyond_31_bits():
    stride = (1 << 31) + 64
    x = Guarded(3, 4096, strides=(stride, 1))
    x.view.copy_(normal(3, 4096))
    for s, g in ALL:
        expect_right(x.view, s, g, stride_out=stride)


def test_row_strides_and_misaligned_views():
    for h, stride, (s, g) in itertools.product((4096, 5001), (5008, 5003), ALL):
        if g and h % g:
            continue
        x = Guarded(33, h, strides=(stride, 1))
        x.view.copy_(normal(33, h))
        narrow = {} if stride % 16 == 0 or h % 2 else {"VEC": 1, "THREADS": 32, "SPANS": 8} if s != "token" else {"VEC": 1}
        expect_right(x.view, s, g, stride_out=stride, **narrow)
    x = Guarded(5, 4096, strides=(4097, 1), shift=1)
    x.view.copy_(normal(5, 4096))
    expect_refused(lambda: Quantised(x.view, "token"), "align")
    expect_refused(lambda: Quantised(normal(5, 4096), "token", stride_out=4097), "strides", "4097", "VEC")
    expect_right(x.view, "token", stride_out=4097, VEC=1)


def test_refusals():
    x, out = normal(5, 200), torch.empty(5, 200, device="cuda", dtype=torch.float8_e4m3fn)
    for named, words in (
        ({"GROUP": 128}, ("GROUP", "128", "H")),
        ({"SCALE": "u8"}, ("SCALE",)),
        ({"POW2": True}, ("POW2",)),
        ({"SCALING": "group"}, ("GROUP",)),
        ({"GROUP": 64, "SCALING": "token"}, ("GROUP",)),
    ):
        expect_refused(lambda: kernel("fp8_quant", T="bf16", H=200, **named), *words)
    for named, words in (({"SCALING": "token"}, ("out_scale",)), ({"SCALING": "tensor"}, ("out_scale",))):
        expect_refused(lambda: kernel("fp8_quant", T="bf16", H=200, **named)(out, x, 5, 200, 200), *words)
    expect_refused(lambda: kernel("fp8_quant", T="bf16", H=200, SCALING="tensor")(out, x, 5, 200, 200, None, x), "amax")
    expect_refused(lambda: kernel("fp8_quant", T="bf16", H=200)(out, x, -1, 200, 200), "rows", "-1")
    expect_refused(lambda: kernel("fp8_quant", T="bf16", H=200)(x, x, 5, 200, 200), "overlap")


def test_runs_and_candidates_give_the_same_bits():
    x = normal(1025, 7168)
    for s, g in ALL:
        first = Quantised(x, s, g)
        for _ in range(3):
            expect_same_bits(Quantised(x, s, g).codes, first.codes)
        for vec, threads in itertools.product(
            (4, 8, 16) if g or s == "token" else (4, 8), {"token": (64, 128, 256, 512)}.get(s, (g // 16,) if g else (16, 32))
        ):
            q = Quantised(x, s, g, VEC=vec, THREADS=threads, **({} if s == "token" else {"SPANS": 512 // threads}))
            expect_same_bits(q.codes, first.codes, f"{s} {g} VEC={vec} THREADS={threads}")
            if s != "static":
                expect_same_bits(q.scale, first.scale, f"{s} {g} VEC={vec} THREADS={threads}")


def test_no_rows():
    out = Guarded(4, 4096, dtype="e4m3")
    kernel("fp8_quant", T="bf16", H=4096, GROUP=128)(out.view, out.view, 0, 4096, 4096, None, out.view)
    assert bool((out.view.view(torch.uint8) == 255).all())


def test_amax():
    for d, h, rows, parts in itertools.product(("f32", "f16", "bf16"), (1, 97, 4096, 5001, 28672), (1, 7, 1000), (1, 5, 300)):
        x = normal(rows, h, dtype=d)
        x[rows // 2, h // 2] = float("nan")
        out = Guarded(parts, dtype="i32")
        kernel("amax", T=d, H=h)(out.view, x, rows, h, parts)
        want = torch.zeros(parts, rows // parts + 1, device="cuda", dtype=torch.float64)
        per_row = magnitudes(x).amax(dim=1)
        index = torch.arange(rows, device="cuda")
        want[index % parts, index // parts] = per_row
        expect_same_bits(out.view.view(torch.float32), want.amax(dim=1).float(), f"{d} {rows} x {h} in {parts}")
        out.check()


# ---- the table ----------------------------------------------------------------------------------------------------------------------------


def torch_group(x, g=128):
    v = x.float().reshape(x.shape[0], -1, g)
    scale = v.abs().amax(dim=2, keepdim=True).clamp(min=1e-10) / 448.0
    return (v / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn).reshape(x.shape), scale.squeeze(2)


def torch_token(x):
    v = x.float()
    scale = v.abs().amax(dim=1, keepdim=True).clamp(min=1e-10) / 448.0
    return (v / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn), scale


def torch_static(x, scale):
    return (x.float() / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


def torch_tensor(x):
    scale = x.abs().amax().float().clamp(min=1e-10) / 448.0
    return (x.float() / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn), scale


def bench():
    e4m3 = torch.float8_e4m3fn

    def buffers(rows, h, *scales):
        return torch.empty(rows, h, device="cuda", dtype=e4m3), torch.empty(*scales, device="cuda"), normal(rows, h)

    common = ((1, 7168), (8, 7168), (64, 7168), (4096, 7168), (8192, 7168), (8192, 16384))
    for s, g, sizes, theirs in (
        ("group", 128, common + ((64, 2048),), torch_group),
        ("token", 0, common + ((64, 2048),), torch_token),
    ):
        for rows, h in sizes:
            k, n = kernel("fp8_quant", T="bf16", H=h, GROUP=g, SCALING=s), h // g if g else 1
            launches = {"kiln": lambda o, sc, x, k=k, n=n, rows=rows, h=h: k(o, x, rows, h, h, None, sc, n, 1)}
            if h == 7168:  # torch.compile is slow
                launches["eager"] = lambda o, sc, x, f=theirs: f(x)
                launches["compile"] = compiled(lambda o, sc, x, f=theirs: f(x))
            for label, peer in peers.get(f"fp8_{s}").items():  # (out, scales [rows, groups] f32, x)
                launches[label] = lambda o, sc, x, peer=peer: peer(o, sc, x)
            yield Row(
                f"fp8_quant bf16 {rows} x {h} {s} {g or ''}",
                2 * rows * h,
                rows * h + 4 * rows * n,
                lambda rows=rows, h=h, n=n: buffers(rows, h, rows, n),
                launches,
            )
    for rows, h in ((64, 7168), (8192, 7168)):
        k = kernel("fp8_quant", T="bf16", H=h)
        launches = {"kiln": lambda o, sc, x, k=k, rows=rows, h=h: k(o, x, rows, h, h, sc)}
        launches["compile"] = compiled(lambda o, sc, x: torch_static(x, sc))
        for label, peer in peers.get("fp8_tensor_static").items():  # (out, scale [1], x)
            launches[label] = lambda o, sc, x, peer=peer: peer(o, sc, x)
        yield Row(
            f"fp8_quant bf16 {rows} x {h} static",
            2 * rows * h,
            rows * h,
            lambda rows=rows, h=h: (
                torch.empty(rows, h, device="cuda", dtype=e4m3),
                torch.full((1,), 0.01, device="cuda"),
                normal(rows, h),
            ),
            launches,
        )
    for rows, h in ((64, 7168), (8192, 7168)):
        find, k, parts = kernel("amax", T="bf16", H=h), kernel("fp8_quant", T="bf16", H=h, SCALING="tensor"), min(rows, 132)

        def both(o, sc, x, a, find=find, k=k, rows=rows, h=h, parts=parts):
            find(a, x, rows, h, parts)
            k(o, x, rows, h, h, None, sc, 1, 1, 1e-10, a, parts)

        launches = {
            "kiln": both,
            "kiln (amax alone)": lambda o, sc, x, a, find=find, rows=rows, h=h, parts=parts: find(a, x, rows, h, parts),
            "compile": compiled(lambda o, sc, x, a: torch_tensor(x)),
        }
        for label, peer in peers.get("fp8_tensor_dynamic").items():  # (out, scale [1], x)
            launches[label] = lambda o, sc, x, a, peer=peer: peer(o, sc, x)
        yield Row(
            f"fp8_quant bf16 {rows} x {h} tensor (and amax)",
            4 * rows * h,
            rows * h,
            lambda rows=rows, h=h, parts=parts: (*buffers(rows, h, 1), torch.empty(parts, device="cuda")),
            launches,
        )
    k = kernel("fp8_quant", T="bf16", H=7168, SCALE="u8", GROUP=128)
    yield Row(
        "fp8_quant bf16 8192 x 7168 group 128, packed columns",
        2 * 8192 * 7168,
        8192 * 7168 + 8192 * 56,
        lambda: (*buffers(8192, 7168, 14, 8192),),
        {"kiln": lambda o, sc, x: k(o, x, 8192, 7168, 7168, None, sc, 1, 8192)},
    )
