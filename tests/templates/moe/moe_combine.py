"""moe_combine against float64, with rows of NaN where nothing may be read, and its time beside PyTorch."""

import itertools

import torch
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
    prefetch,
)

SANITIZE = [
    "moe_combine T=bf16 H=2048 INVERSE=true tokens=7",
    "moe_combine T=f16 H=97 WEIGHTS=true SHARED=true SHARED_GATE=true RESIDUAL=true OUT=f32 tokens=33 k=11",
    "moe_combine T=f32 H=4096 WEIGHTS=true INVERSE=true RESIDUAL=true tokens=1 k=1",
]
ALL = dict(WEIGHTS=True, INVERSE=True, SHARED=True, SHARED_GATE=True, RESIDUAL=True)


def padded(*shape, stride, dtype, shift=0, scale=1.0):
    """Normal numbers in rows that are `stride` elements apart. Between the rows lie NaN."""
    arena = torch.full((shift + shape[0] * stride + 8,), float("nan"), device="cuda", dtype=DTYPES[dtype])
    made = arena[shift:].as_strided(shape, (stride, 1))
    return made.copy_(normal(*shape, dtype=dtype, scale=scale))


class Call:
    """The inputs of one call; those that `options` leave out are None.

    A pair without a place has a weight of NaN and a row of NaN in y.
    """

    def __init__(self, tokens, k, h, dtype="bf16", out=None, pad=0, shift=0, skip=0.3, **options):
        self.tokens, self.k, self.h, self.dtype, self.out_dtype = tokens, k, h, dtype, out or dtype
        self.stride, self.shift, self.options = h + pad, shift, options
        has = {name: options.get(name, False) for name in ALL}

        def rows(count, kind):
            return padded(count, h, stride=self.stride, dtype=kind, shift=shift)

        self.y = rows(tokens * k, dtype)
        self.weights = torch.rand(tokens, k, device="cuda") if has["WEIGHTS"] else None
        self.inverse = None
        if has["INVERSE"]:
            self.inverse = torch.randint(0, 1 << 30, (tokens, k), device="cuda", dtype=torch.int32)
            self.inverse[torch.rand(tokens, k, device="cuda") < skip] = -1
            absent = (self.inverse < 0).flatten()
            self.y[absent] = float("nan")
            if self.weights is not None:
                self.weights.view(-1)[absent] = float("nan")
        self.shared = rows(tokens, dtype) if has["SHARED"] else None
        self.shared_gate = padded(tokens, 1, stride=3, dtype=dtype, scale=3.0) if has["SHARED_GATE"] else None
        self.residual = rows(tokens, self.out_dtype) if has["RESIDUAL"] else None

    def want(self):
        y = self.y.double().reshape(self.tokens, self.k, self.h)
        if self.weights is not None:
            y = y * self.weights.double()[:, :, None]
        if self.inverse is not None:
            y = torch.where((self.inverse < 0)[:, :, None], 0.0, y)
        total = y.sum(1)
        if self.shared is not None:
            gate = 1.0 if self.shared_gate is None else self.shared_gate.double().sigmoid()
            total = total + self.shared.double() * gate
        return total if self.residual is None else total + self.residual.double()

    def launch(self, out, **more):
        s = self.stride
        combine = kernel("moe_combine", T=self.dtype, H=self.h, OUT=self.out_dtype, **self.options, **more)
        experts = (self.y, self.tokens, self.k, s, s, self.weights, self.inverse)
        combine(out, *experts, self.shared, s, self.shared_gate, 3, self.residual, s)
        return out

    def run(self, **more):
        out = Guarded(self.tokens, self.h, dtype=self.out_dtype, strides=(self.stride, 1), shift=self.shift)
        self.launch(out.view, **more)
        return out

    def check(self, what, **more):
        out = self.run(**more)
        expect_close(out.view, self.want(), TOLERANCE[self.out_dtype], what)
        out.check(what)


def options():
    yield {}
    yield dict(WEIGHTS=True)
    yield dict(INVERSE=True)
    yield dict(WEIGHTS=True, INVERSE=True)
    yield dict(SHARED=True)
    yield dict(SHARED=True, SHARED_GATE=True, INVERSE=True)
    yield dict(RESIDUAL=True, WEIGHTS=True)
    yield dict(ALL)


def test_every_size_and_option():
    for h, dtype, chosen in itertools.product((97, 2048), ("bf16", "f16", "f32"), options()):
        prefetch("moe_combine", T=dtype, H=h, OUT=dtype, **chosen)
    for h, dtype, chosen in itertools.product((97, 2048), ("bf16", "f16", "f32"), options()):
        for tokens, k in ((1, 1), (1, 8), (7, 2), (7, 9), (512, 8), (33, 32), (2, 16), (5, 17)):
            Call(tokens, k, h, dtype, **chosen).check(f"{dtype} {tokens} x {k} x {h} {chosen}")


def test_odd_rows_and_output_types():
    for h, (dtype, out) in itertools.product(
        (1, 2, 8, 100, 4096, 5001, 7168), (("bf16", "f32"), ("f16", "f32"), ("f32", "bf16"), ("f32", "f16"), ("bf16", "f16"))
    ):
        for tokens, k in ((1, 8), (130, 3)):
            Call(tokens, k, h, dtype, out, **ALL).check(f"{dtype} to {out} {tokens} x {k} x {h}")


def test_strides_and_misaligned_views():
    for pad in (8, 64):
        Call(19, 6, 2048, pad=pad, **ALL).check(f"padding of {pad}")
    Call(19, 6, 2047, pad=2, **ALL).check("odd rows with padding")
    Call(19, 6, 2048, pad=4, shift=4, **ALL).check("VEC=4", VEC=4)
    Call(19, 6, 2048, pad=1, shift=1, **ALL).check("VEC=1", VEC=1)
    expect_refused(lambda: Call(19, 6, 2048, pad=4).run(), "stride_y", "VEC")
    expect_refused(lambda: Call(1, 1, 2048, shift=4).run(), "align")
    Call(3, 2, 2048, pad=1 << 29, INVERSE=True, skip=0.0).check("rows of y beyond 2^31 elements")


def test_more_than_2_to_the_31_elements():
    """The last token's rows of y lie behind 2^31 elements; only the first and the last tokens are compared."""
    tokens, k, h = 32800, 32, 2048
    y = torch.empty(tokens * k, h, device="cuda", dtype=torch.bfloat16)
    for part in y.split(1 << 17):
        part.normal_()
    out = Guarded(tokens, h, dtype="bf16")
    kernel("moe_combine", T="bf16", H=h)(out.view, y, tokens, k, h, h)
    for some in (slice(0, 100), slice(tokens - 100, tokens)):
        want = y.view(tokens, k, h)[some].double().sum(1)
        expect_close(out.view[some], want, TOLERANCE["bf16"], f"tokens {some}")
    out.check("2^31 elements")


def test_the_sum_has_the_order_of_the_slots():
    """Large numbers that cancel show the order: a sum in f32, slot by slot, has these bits and no others."""
    for k in (3, 8, 9, 32):
        call = Call(64, k, 512, "f32", INVERSE=True, WEIGHTS=True, RESIDUAL=True, SHARED=True)
        call.y.mul_(torch.exp2(torch.randint(-12, 13, call.y.shape, device="cuda").float()))
        call.weights[call.inverse >= 0] = 2.0
        want = torch.zeros(64, 512, device="cuda")
        for slot in range(k):
            y = call.y.reshape(64, k, 512)[:, slot] * 2.0
            want = torch.where((call.inverse[:, slot] < 0)[:, None], want, want + y)
        want = want + call.shared + call.residual
        expect_same_bits(call.run().view, want, f"k = {k}")


def test_candidates_and_runs_give_the_same_bits():
    for tokens in (1, 64, 700):
        call = Call(tokens, 10, 4096, **ALL)
        first = call.run().view
        for more in (
            ({},) * 5
            + tuple({"THREADS": t} for t in (64, 128, 512))
            + tuple({"SLOTS": s} for s in (2, 4))
            + tuple({"VEC": v} for v in (1, 4))
        ):
            expect_same_bits(call.run(**more).view, first, f"{tokens} tokens, {more}")


def test_out_may_be_the_residual():
    call = Call(37, 8, 2048, **ALL)
    want = call.want()
    expect_close(call.launch(call.residual), want, TOLERANCE["bf16"], "in place")


def test_a_token_without_any_expert():
    call = Call(5, 8, 2048, INVERSE=True, WEIGHTS=True, skip=1.0)
    assert bool((call.run().view == 0).all()), "no slot: zeros"
    Call(5, 8, 2048, skip=1.0, **ALL).check("shared expert and residual only")


def test_no_tokens_and_refusals():
    out, y = Guarded(4, 2048), normal(4, 2048)
    kernel("moe_combine", T="bf16", H=2048)(out.view, y, 0, 8, 2048, 2048)
    assert bool((out.bits == -1).all()), "no tokens: nothing written"
    plain = kernel("moe_combine", T="bf16", H=2048)
    expect_refused(lambda: plain(out.view, y, 1, 33, 2048, 2048), "k = 33")
    expect_refused(lambda: plain(out.view, y, 1, 0, 2048, 2048), "k = 0")
    expect_refused(lambda: plain(y, y, 1, 1, 2048, 2048), "overlap")
    expect_refused(lambda: kernel("moe_combine", T="bf16", H=2048, SHARED_GATE=True), "SHARED")
    expect_refused(lambda: kernel("moe_combine", T="bf16", H=97, VEC=8), "VEC = 8")
    for name, argument in (("WEIGHTS", "weights"), ("INVERSE", "inverse"), ("SHARED", "shared"), ("RESIDUAL", "residual")):
        expect_refused(
            lambda name=name: kernel("moe_combine", T="bf16", H=2048, **{name: True})(out.view, y, 1, 4, 2048, 2048), argument
        )


def eager(y, weights, inverse, residual, tokens, k):
    """The sum in PyTorch, by one product of matrices for each token when there are weights."""
    rows = y.view(tokens, k, -1)
    if inverse is not None:
        rows = rows.masked_fill((inverse < 0)[:, :, None], 0)
    total = (rows.float() * weights[:, :, None]).sum(1) if weights is not None else rows.float().sum(1)
    return (total if residual is None else total + residual).to(y.dtype)


def bench():
    for tokens, k, h, chosen in [(t, 8, 2048, {}) for t in (1, 8, 64, 512, 4096, 32768)] + [
        (1, 8, 4096, {}),
        (1, 8, 7168, {}),
        (4096, 8, 7168, {}),
        (4096, 2, 4096, {}),
        (4096, 8, 2048, dict(INVERSE=True)),
        (1, 8, 2048, dict(INVERSE=True, RESIDUAL=True)),
        (4096, 8, 2048, dict(WEIGHTS=True, RESIDUAL=True)),
        (4096, 10, 4096, dict(WEIGHTS=True, RESIDUAL=True)),
    ]:
        combine = kernel("moe_combine", T="bf16", H=h, **chosen)
        names = [name for name in ("WEIGHTS", "INVERSE", "RESIDUAL") if chosen.get(name)]

        def make(tokens=tokens, k=k, h=h, names=names):
            return (
                torch.empty(tokens, h, device="cuda", dtype=torch.bfloat16),
                normal(tokens * k, h),
                torch.rand(tokens, k, device="cuda") if "WEIGHTS" in names else None,
                torch.zeros(tokens, k, device="cuda", dtype=torch.int32) if "INVERSE" in names else None,
                normal(tokens, h) if "RESIDUAL" in names else None,
            )

        def ours(out, y, w, i, r, combine=combine, tokens=tokens, k=k, h=h):
            combine(out, y, tokens, k, h, h, w, i, None, h, None, 1, r, h)

        def theirs(out, y, w, i, r, tokens=tokens, k=k):
            return eager(y, w, i, r, tokens, k)

        launches = {"kiln": ours, "eager": theirs}
        if tokens in (1, 4096):
            launches["compile"] = compiled(theirs)
        read = tokens * (k * h * 2 + ("WEIGHTS" in names) * k * 4 + ("INVERSE" in names) * k * 4 + ("RESIDUAL" in names) * h * 2)
        yield Row(
            f"moe_combine bf16 {tokens} x {k} x {h}{''.join(' ' + name.lower() for name in names)}",
            read,
            tokens * h * 2,
            make,
            launches,
            bar=-1.0 if tokens >= 4096 else 0.0,
            bar_us=4.0 if tokens <= 8 else 0.0,
        )
