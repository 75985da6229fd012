"""attn_sm90_e4m3 against float64: what attn_sm90's tests check, for e4m3 codes. Batches and comparisons come from
attn_prefill.py. A batch holds values that are codes times a scale, so that codes and values say the same.
"""

import copy
import functools
import itertools
import math

import attn_prefill as prefill
import attn_sm90
import torch
from attn_prefill import MIXED, Batch, check, check_all
from harness import Row, expect_refused, kernel

CAPABILITY = 9  # wgmma
SANITIZE = [
    "attn_sm90_e4m3 T=bf16 D=128 GROUP=4 kv_heads=2 qo_tokens=60 kv_rows=4001 workers=64",
    "attn_sm90_e4m3 T=f16 D=64 GROUP=3 kv_heads=2 PAGING=table page_size=16 SOFT_CAP=true soft_cap=20 qo_tokens=60 kv_rows=4000 workers=64",
]


@functools.cache
def error_of_a_product(d):
    """The RMS error of q k^T for normal q and k, of the tensor cores' arithmetic.

    A wgmma adds 32 products to its sum. Before that it truncates all of them to 13 bits below the power of two of the largest.
    """
    torch.manual_seed(d)
    q, k = (torch.randn(20000, d, device="cuda").to(torch.float8_e4m3fn).double() for _ in range(2))
    total = torch.zeros(len(q), 1, device="cuda", dtype=torch.float64)
    for i in range(0, d, 32):
        terms = torch.cat((q[:, i : i + 32] * k[:, i : i + 32], total), 1)
        unit = torch.exp2(terms.abs().amax(1, keepdim=True).log2().floor() - 13)
        total = ((terms / unit).trunc() * unit).sum(1, keepdim=True)
    return float((total[:, 0] - (q * k).sum(1)).square().mean().sqrt())


class Options(attn_sm90.Options):
    """`scales` says how many scales q, k and v have: "head", "tensor" or "none"."""

    template = "attn_sm90_e4m3"
    largest_scale = 1.0  # of the product of the scales of q and k with which the values of a batch are multiplied

    def __init__(self, *positional, scales="head", **named):
        super().__init__(*positional, **named)
        self.scales = scales

    def scale(self, which):
        """The scales of q (0), k (1) or v (2), or None. Powers of two leave the values of a batch exact."""
        if self.scales == "none":
            return None
        heads = torch.arange(self.kv_heads if self.scales == "head" else 1, device="cuda")
        return 2.0 ** ((heads + which) % 3 - 1)

    def codes(self, batch):
        """The codes of q, k and v, in the order of their strides. Rounds the batch's values to what the codes say."""
        out = []
        for i, x in enumerate((batch.q, batch.k, batch.v)):
            scale = self.scale(i)
            unit = 1.0 if scale is None else scale.expand(self.kv_heads).repeat_interleave(x.shape[-2] // self.kv_heads)[:, None]
            codes = (x.float() / unit).clamp(-448, 448).to(torch.float8_e4m3fn)
            x.copy_(codes.float() * unit)
            out.append(laid_out_like(codes, x))
        return out

    def prepare(self, batch):
        self.codes(batch)

    def expect_lse(self, got, want, what):
        """The error of a row that sees one key is that of its product, and no row has a larger one on average.

        A batch of few rows may be above the average, by less than a half. The rest of the arithmetic is that of f32.
        """
        seen = want > -math.inf
        assert bool((got[~seen] == -math.inf).all()), f"{what}: rows that see nothing"
        error, size = (float(x[seen].double().square().mean().nan_to_num().sqrt()) for x in (got.double() - want, want))
        scale = (self.sm_scale or self.d**-0.5) * self.largest_scale * math.log2(math.e)
        allowed = 1.5 * scale * error_of_a_product(self.d) + 1e-5 * size
        assert error <= allowed, f"{what}: RMS error {error:.3g}, allowed {allowed:.3g}"

    def arguments(self, batch, plan, lse):
        q, k, v = self.codes(batch)
        s = [x.stride(i) for x in (batch.out, q, k, v) for i in (-3, -2)]
        rows = len(k) * (self.page or 1)
        pages = (batch.kv_indices, self.page, k.stride(0), v.stride(0)) if self.page else (None, 0, 0, 0)
        return (
            *(batch.out, q, k, v, plan.words, plan.workspace, plan.workers, self.kv_heads, rows, *s),
            *(self.sm_scale, batch.lse if lse else None, self.cap, self.window, *pages, self.right, batch.sinks),
            *(self.scale(0), self.scale(1), self.scale(2), int(self.scales == "head")),
        )


def laid_out_like(codes, x):
    """`codes` in memory whose dimensions have the order of x's strides. Rows have 16 bytes of NaN behind them if x has gaps."""
    order = sorted(range(x.dim()), key=lambda i: -x.stride(i))
    shape = [x.shape[i] for i in order]
    gap = 16 if x.numel() and x.stride(order[-2]) != shape[-1] else 0
    memory = torch.full((*shape[:-1], shape[-1] + gap), 0x7F, device="cuda", dtype=torch.uint8)
    memory = memory[..., : shape[-1]].permute([order.index(i) for i in range(x.dim())])
    return memory.copy_(codes.view(torch.uint8)).view(torch.float8_e4m3fn)


def test_lengths():
    for n in (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 500, 1023, 4097):
        check(Options(), [(n, n)])
        check(Options(causal=False), [(max(1, n // 3), n)])
    check(Options(group=1, kv_heads=1), [(16384, 16384)])
    check(Options(group=8, kv_heads=1), [(300, 16384)])


def test_mixtures():
    attn_sm90.check_mixtures(Options)
    for gap in (0, 3, 200):
        check(Options(), MIXED, gap=gap)


def test_options_and_their_combinations():
    return attn_sm90.check_windows_and_caps(Options)


def test_whatever_engines_may_combine():
    def drawn(draw):
        d, dv = draw.choice(((64, 64), (96, 96), (128, 128), (128, 128), (256, 256), (192, 128), (128, 96)))
        return Options(
            T=draw.choice(("bf16", "f16")),
            d=d,
            dv=dv,
            group=draw.choice((1, 2, 4, 6, 8, 12, 64)),
            kv_heads=draw.choice((1, 2, 5)),
            causal=draw.random() < 0.6,
            window=draw.choice((-1, -1, 0, 20, 1000)),
            cap=draw.choice((0.0, 0.0, 5.0)),
            page=draw.choice((0, 0, 16, 64, 112, 1024)),
            sink=draw.random() < 0.3,
            scales=draw.choice(("head", "tensor", "none")),
        )

    return attn_sm90.check_combinations(drawn, 12, 30)


def test_head_sizes():
    sizes = ((64, 64), (96, 96), (192, 128), (256, 256), (128, 64), (192, 192), (256, 128), (256, 64))
    return check_all(
        [
            (Options(d=d, dv=dv, group=5, **more), MIXED)
            for (d, dv), more in itertools.product(sizes, ({}, {"causal": False, "window": 33}))
        ]
    )


def test_groups():
    return check_all([(Options(group=g, kv_heads=3, d=64), MIXED) for g in (1, 2, 3, 5, 8, 16, 33, 64)])


def test_tiles():
    shapes = ((64, 64, 3), (64, 96, 3), (128, 64, 3), (128, 80, 2), (128, 128, 3), (128, 112, 1), (192, 96, 2), (256, 64, 1))
    return check_all(
        [(Options(d=d, TILE_KV=tokens, STAGES=stages), [*MIXED, (130, 700)]) for d, tokens, stages in shapes]
        + [(Options(page=48, d=128, TILE_KV=tokens, cap=9.0), MIXED) for tokens in (80, 112)]
    )


def test_pages():
    return prefill.check_pages(Options, (16, 64, 112, 4096))


def test_sinks():
    prefill.check_sinks(Options)


def test_right_windows():
    prefill.check_right_windows(Options)


def test_several_tokens_of_each_request():
    for group, tokens in itertools.product((1, 8, 16), (1, 4, 8)):
        check(Options(group=group, page=16), [(tokens, n) for n in (4096, 17, 1, 300, 129)])


def test_layouts():
    prefill.check_layouts([Options(), Options(T="f16", d=64, group=3), Options(d=256, causal=False)])


def test_any_scales():
    """Scales that are not powers of two, and how they are laid out. The values of the reference are f64."""
    for scales, page in itertools.product(("head", "tensor", "none"), (0, 16)):
        options = Options(scales=scales, page=page, kv_heads=3)
        given = [None if scales == "none" else torch.rand(3 if scales == "head" else 1, device="cuda") + 0.5 for _ in range(3)]
        b = Batch(options, [*MIXED, (40, 3000)])
        options.scale = lambda which: None  # the batch holds the codes
        options.largest_scale = 1.0 if scales == "none" else float(given[0].max() * given[1].max())
        arguments = list(options.arguments(b, b.plan(), True))
        arguments[-4:] = [*given, int(scales == "head")]
        options.kernel()(*arguments)
        for name, scale in zip("qkv", given):
            x = getattr(b, name)
            unit = 1.0 if scale is None else scale.double().expand(3).repeat_interleave(x.shape[-2] // 3)[:, None]
            setattr(b, name, x.double() * unit)
        b.expect(f"scales {scales}, pages of {page}")


def test_large_codes():
    """Codes of 448, and equal logits of -2e5 and less for all tokens: the result is the mean of the values."""
    for T, more in itertools.product(("f16", "bf16"), ({}, {"window": 40}, {"cap": 30.0}, {"page": 16})):
        b = Batch(Options(T=T, sm_scale=10.0, scales="none", **more), [(200, 300), (5, 70)])
        b.q.fill_(-12.0)
        for r, n in enumerate(b.kv_len):
            b.write(b.k, r, 12.0)
            b.write(b.v, r, torch.randint(0, 2, (n, *b.v.shape[-2:]), device="cuda").to(b.v.dtype) * 896 - 448)
        b.launch(b.plan())
        b.expect(f"large codes {b.options}")


def test_rows_that_see_nothing():
    check(Options(), [(300, 100), (64, 1), (5, 0)])
    check(Options(window=0), [(300, 100), (64, 1)])


def test_without_lse_and_with_a_scale():
    prefill.check_without_lse(Options(sm_scale=0.125))


def test_parts_agree_and_runs_give_the_same_bits():
    return prefill.check_parts(
        (
            (Options(), [(40, 5000)]),
            (Options(d=256, causal=False, group=1), [(128, 3000), (1, 700)]),
            (Options(d=64, group=16, kv_heads=1), MIXED),
            (Options(window=600), [(1000, 4000)]),
            (Options(group=8, kv_heads=1, page=16), [(4, 8192)] * 3),
        )
    )


def test_a_graph_replays_after_a_new_plan():
    return prefill.check_graph((Options(window=300), Options(scales="tensor")))


def test_what_is_refused():
    expect_refused(lambda: kernel("attn_sm90_e4m3", T="bf16", D=80, GROUP=1), "D", "80")
    expect_refused(lambda: kernel("attn_sm90_e4m3", T="e4m3", D=128, GROUP=1), "T", "e4m3")
    expect_refused(lambda: kernel("attn_sm90_e4m3", T="bf16", D=64, DV=128, GROUP=1), "DV = 128")
    expect_refused(lambda: kernel("attn_sm90_e4m3", T="bf16", D=256, GROUP=1, TILE_KV=80), "TILE_KV = 80", "registers")
    b = Batch(Options(), [(5, 5)])
    plan = b.plan()
    arguments = list(b.options.arguments(b, plan, True))
    arguments[-1] = 2
    expect_refused(lambda: b.options.kernel()(*arguments), "stride_scale = 2", "each kv head")
    arguments[-1], arguments[12] = 1, arguments[12] + 8
    expect_refused(lambda: b.options.kernel()(*arguments), "multiples of 16 elements")
    paged = Batch(Options(page=24), [(5, 5)])
    expect_refused(lambda: paged.launch(paged.plan()), "page_size = 24", "multiple of 16")


def test_requests_without_kv_tokens():
    for lengths in ([(3, 0)], [(70, 0), (0, 0), (200, 0)]):
        b = Batch(Options(), lengths, gap=0)
        assert b.k.numel() == 0
        b.launch(b.plan())
        b.expect(str(lengths))


def bench_row(o, batch, qo, kv):
    """The row of `batch` requests, beside attn_sm90 in bf16."""
    heads, tokens = o.kv_heads * o.group, batch * qo
    wide = attn_sm90.Options(d=o.d, dv=o.dv, group=o.group, kv_heads=o.kv_heads, causal=o.causal, page=o.page)

    def make():
        b = Batch(o, [(qo, kv)] * batch, gap=0)
        other = copy.copy(b)
        other.options = wide
        plan = b.plan()
        return b.q, b.k, b.v, b.out, o.arguments(b, plan, False), other, other.plan()

    return Row(
        f"{o.template} HQ{heads} HKV{o.kv_heads} D{o.d} {batch} x {f'{qo} tokens over ' if qo != kv else ''}{kv} {'causal' if o.causal else 'full'}{f' pages of {o.page}' if o.page else ''}{''.join(f' {name} {n}' for name, n in o.tile.items())}",
        tokens * heads * o.d + batch * kv * o.kv_heads * (o.d + o.dv),
        tokens * heads * o.dv * 2,
        make,
        {
            "kiln": lambda q, k, v, out, arguments, *_: o.kernel()(*arguments),
            "kiln attn_sm90 bf16": lambda q, k, v, out, arguments, other, plan: other.launch(plan, lse=False),
        },
        flops=2 * tokens * kv * heads * (o.d + o.dv) // (2 if o.causal and qo == kv else 1),
        bar=0.0,
        beats={"kiln": ["kiln attn_sm90 bf16"]},
    )


def bench():
    for o, *shape in (
        (Options(group=4, kv_heads=8), 16, 1024, 1024),
        (Options(group=4, kv_heads=8), 4, 4096, 4096),
        (Options(group=4, kv_heads=8, causal=False), 4, 4096, 4096),
        (Options(group=4, kv_heads=8, page=16), 4, 4096, 4096),
        *((Options(group=4, kv_heads=8, page=16), 64, tokens, 8192) for tokens in (1, 4)),
        (Options(d=64, group=4, kv_heads=8), 8, 2048, 2048),
        (Options(d=192, group=1, kv_heads=16), 8, 2048, 2048),
        (Options(d=256, group=8, kv_heads=2), 8, 2048, 2048),
    ):
        yield bench_row(o, *shape)
