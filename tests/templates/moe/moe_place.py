"""moe_place against float64 and fp8_quant, with places that nothing may write, and its time beside PyTorch."""

import itertools

import torch
from harness import Guarded, Row, between_nans, expect_close, expect_refused, expect_same_bits, kernel

SANITIZE = [
    "moe_place T=bf16 H=2048 tokens=7",
    "moe_place T=bf16 H=384 OUT=e4m3 tokens=33 k=9",
    "moe_place T=f16 H=40 tokens=5 k=1",
]


def inverse_of(tokens, k, places, absent=0.0):
    """Different places below `places`, of which some are -1."""
    made = torch.randperm(places, device="cuda")[: tokens * k].int().view(tokens, k)
    return torch.where(torch.rand(tokens, k, device="cuda") < absent, -1, made)


def quantised(x):
    """The codes and scales of fp8_quant."""
    rows, h = x.shape
    codes = torch.empty(rows, h, dtype=torch.float8_e4m3fn, device="cuda")
    scales = torch.empty(rows, h // 128, device="cuda")
    name = {torch.bfloat16: "bf16", torch.float16: "f16"}[x.dtype]
    kernel("fp8_quant", T=name, H=h, GROUP=128)(codes, x, rows, x.stride(0), h, None, scales, h // 128, 1)
    return codes, scales


def case(tokens, k, h, dtype="bf16", quantise=False, pad=0, absent=0.3, spare=5):
    what = f"{dtype} {tokens} x {k} x {h} quantise={quantise} pad={pad}"
    places = tokens * k + spare
    x = between_nans((tokens, h), (h + 8 * pad, 1), dtype, 3.0)
    if tokens > 2:
        x[1, : h // 2] = 0.0
    inverse = inverse_of(tokens, k, places, absent)
    out_dtype = "e4m3" if quantise else dtype
    out = Guarded(places, h, dtype=out_dtype, strides=(h + 16 * pad, 1))
    scales = Guarded(places, h // 128, dtype="f32", strides=(1, places + pad)) if quantise else None
    launch = kernel("moe_place", T=dtype, H=h, OUT=out_dtype)
    launch(out.view, x, inverse, places, tokens, k, h + 8 * pad, h + 16 * pad, scales.view if scales else None, places + pad)
    pair = (inverse.flatten() >= 0).nonzero().flatten()
    at = inverse.flatten()[pair].long()
    left = torch.ones(places, dtype=torch.bool, device="cuda")
    left[at] = False
    codes, factors = quantised(x) if quantise else (x, None)
    expect_same_bits(out.view[at], codes[pair // k], what)
    assert bool((out.bits[left] == (255 if quantise else -1)).all()), f"{what}: a place of no pair was written"
    if quantise:
        expect_same_bits(scales.view[at], factors[pair // k], f"scales of {what}")
        assert bool(scales.view[left].isnan().all()), f"{what}: a scale of no pair was written"
        wide = out.view[at].double() * scales.view[at].double().repeat_interleave(128, 1)
        expect_close(wide, x.double()[pair // k], 4e-2, what)
        scales.check(what)
    out.check(what)


def test_sizes():
    for (tokens, k), h, dtype in itertools.product(((1, 1), (7, 2), (33, 8), (300, 9)), (128, 384, 4096), ("bf16", "f16")):
        for quantise, pad in ((False, 0), (True, 0), (True, 4)):
            case(tokens, k, h, dtype, quantise, pad)
    for h in (8, 40, 2056):
        case(9, 3, h, pad=1)


def test_places_of_no_pair():
    case(20, 4, 256, quantise=True, absent=1.0)
    case(20, 4, 256, quantise=True, absent=0.0, spare=0)
    case(20, 4, 256, absent=1.0)


def test_values_that_are_not_finite():
    x = torch.ones(2, 128, dtype=torch.bfloat16, device="cuda")
    x[0, 3], x[1, 5] = float("nan"), float("inf")
    out, scales = Guarded(2, 128, dtype="e4m3"), Guarded(2, 1, dtype="f32")
    kernel("moe_place", T="bf16", H=128, OUT="e4m3")(
        *(out.view, x, torch.tensor([[0], [1]], dtype=torch.int32, device="cuda"), 2, 2, 1, 128, 128, scales.view, 2)
    )
    codes, factors = quantised(x)
    expect_same_bits(out.view, codes, "codes")
    expect_same_bits(scales.view, factors, "scales")


def test_more_than_2_to_the_31_elements():
    tokens, k, h = 40000, 14, 4096
    if torch.cuda.mem_get_info()[0] < 8 << 30:
        return "skipped: needs 8 GiB of memory"
    x, inverse = torch.randn(tokens, h, device="cuda").bfloat16(), inverse_of(tokens, k, tokens * k)
    out = torch.zeros(tokens * k, h, dtype=torch.float8_e4m3fn, device="cuda")
    scales = torch.zeros(h // 128, tokens * k, device="cuda")
    kernel("moe_place", T="bf16", H=h, OUT="e4m3")(out, x, inverse, tokens * k, tokens, k, h, h, scales, tokens * k)
    codes, factors = quantised(x)
    some = torch.cat([torch.arange(8, device="cuda"), torch.arange(tokens - 8, tokens, device="cuda")])
    for slot in range(k):
        at = inverse[some, slot].long()
        expect_same_bits(out[at], codes[some], f"slot {slot}")
        expect_same_bits(scales[:, at].t(), factors[some], f"scales of slot {slot}")


def test_refusals():
    x, out = torch.zeros(2, 256, dtype=torch.bfloat16, device="cuda"), torch.zeros(4, 256, dtype=torch.bfloat16, device="cuda")
    inverse = inverse_of(2, 2, 4)

    def call(out=out, x=x, tokens=2, k=2, stride_x=256, scales=None, **parameters):
        kernel("moe_place", **{"T": "bf16", "H": 256, **parameters})(out, x, inverse, 4, tokens, k, stride_x, 256, scales, 4)

    call(tokens=0)
    expect_refused(lambda: call(tokens=-1), "tokens = -1")
    expect_refused(lambda: call(k=0), "k = 0")
    expect_refused(lambda: call(stride_x=255), "stride_x = 255")
    expect_refused(lambda: call(x=x[:, 1:]), "x")
    expect_refused(lambda: call(scales=torch.zeros(8, device="cuda")), "out_scale")
    expect_refused(lambda: call(OUT="e4m3"), "out_scale")
    expect_refused(lambda: call(OUT="f16"), "OUT = f16")
    expect_refused(lambda: call(H=40, OUT="e4m3"), "H = 40")


def bench():
    for tokens, k, h in ((4096, 8, 2048), (4096, 2, 4096), (32768, 2, 4096)):

        def make(tokens=tokens, k=k, h=h):
            x, inverse = torch.randn(tokens, h, device="cuda").bfloat16(), inverse_of(tokens, k, tokens * k)
            out = torch.empty(tokens * k, h, dtype=torch.float8_e4m3fn, device="cuda")
            return x, inverse, out, torch.empty(h // 128, tokens * k, device="cuda")

        def launch(x, inverse, out, scales, tokens=tokens, k=k, h=h):
            kernel("moe_place", T="bf16", H=h, OUT="e4m3")(out, x, inverse, tokens * k, tokens, k, h, h, scales, tokens * k)

        def copied(x, inverse, out, scales, k=k):
            return torch.index_select(x, 0, inverse.flatten().long().argsort() // k)

        yield Row(
            case=f"{tokens} tokens x {k} of {h}",
            read=tokens * h * 2 + tokens * k * 4,
            write=tokens * k * (h + h // 128 * 4),
            make=make,
            launches={"kiln": launch, "torch": copied},
            bar=0,
            beats={"kiln": ["torch"]},
        )
