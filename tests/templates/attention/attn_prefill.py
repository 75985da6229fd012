"""attn_prefill against float64: ragged and paged batches with all options and combinations, merged parts of
tiles, new plans in a graph.
"""

import copy
import itertools
import math
import random

import torch
from attention_plan import AttentionPlan
from harness import (
    DTYPES,
    Guarded,
    Row,
    expect_close,
    expect_refused,
    expect_same_bits,
    expect_traps,
    kernel,
    normal,
    peers,
    prefetch,
)

TOLERANCE = {"f16": 1e-3, "bf16": 4e-3}
SANITIZE = [
    "attn_prefill T=bf16 D=128 GROUP=4 kv_heads=2 qo_tokens=60 kv_rows=4001 workers=64",
    "attn_prefill T=f16 D=64 GROUP=3 kv_heads=2 MASK=true ALIBI=true SOFT_CAP=true soft_cap=20 WINDOW=true window_left=1500 qo_tokens=99 kv_rows=8003 workers=65",
    "attn_prefill T=bf16 D=256 GROUP=1 kv_heads=2 CAUSAL=false qo_tokens=130 kv_rows=6007 workers=33",
    "attn_prefill T=bf16 D=128 GROUP=4 kv_heads=2 PAGING=table page_size=16 qo_tokens=60 kv_rows=4000 workers=64",
]


class Options:
    """The parameters and arguments of a launch. `mask` is the share of kv tokens that are seen, and `page` the rows of a
    page, 0 for ragged k and v.
    """

    template = "attn_prefill"

    def __init__(
        self,
        T="bf16",
        d=128,
        dv=None,
        group=4,
        kv_heads=2,
        causal=True,
        window=-1,
        cap=0.0,
        alibi=False,
        mask=None,
        sm_scale=0.0,
        page=0,
        right=-1,
        sink=False,
        **tile,
    ):
        self.T, self.d, self.dv, self.group, self.kv_heads, self.causal, self.window = (
            T,
            d,
            dv or (128 if d == 192 else d),
            group,
            kv_heads,
            causal,
            window,
        )
        self.cap, self.alibi, self.mask, self.sm_scale, self.page, self.tile = cap, alibi, mask, sm_scale, page, tile
        self.right, self.sink = right, sink

    @property
    def parameters(self):
        return (
            dict(
                T=self.T,
                D=self.d,
                DV=self.dv,
                GROUP=self.group,
                CAUSAL=self.causal,
                WINDOW=self.window >= 0 or self.right >= 0,
                SOFT_CAP=self.cap > 0,
                ALIBI=self.alibi,
                MASK=self.mask is not None,
                PAGING="table" if self.page else "none",
                SINK=self.sink,
            )
            | self.tile
        )

    def arguments(self, batch, plan, lse):
        s = [x.stride(i) for x in (batch.out, batch.q, batch.k, batch.v) for i in (-3, -2)]
        rows = len(batch.k) * (self.page or 1)
        pages = (batch.kv_indices, self.page, batch.k.stride(0), batch.v.stride(0)) if self.page else (None, 0, 0, 0)
        return (
            *(batch.out, batch.q, batch.k, batch.v, plan.words, plan.workspace, plan.workers, self.kv_heads, rows, *s),
            *(self.sm_scale, batch.lse if lse else None, self.cap, self.window, batch.slopes, *batch.bits, *pages),
            *(self.right, batch.sinks),
        )

    def prepare(self, batch):
        """Changes the values of a new batch to those that the kernel's elements can hold."""

    def expect_lse(self, got, want, what):
        expect_close(got, want, 1e-4, what)

    def kernel(self):
        return kernel(self.template, **self.parameters)

    def __str__(self):
        return " ".join(f"{k}={v}" for k, v in vars(self).items())


def laid_out(tokens, heads, d, dtype, layout):
    """A view [tokens, heads, d] of NaN: NHD, HND, or padded by rows of other tensors."""
    if layout == "NHD":
        return torch.full((tokens, heads, d), math.nan, device="cuda", dtype=DTYPES[dtype])
    if layout == "HND":
        return torch.full((heads, tokens, d), math.nan, device="cuda", dtype=DTYPES[dtype]).transpose(0, 1)
    return torch.full((tokens, 3 * heads + 1, d + 8), math.nan, device="cuda", dtype=DTYPES[dtype])[:, heads : 2 * heads, :d]


def caches(pages, o, layout):
    """k and v [pages, page, kv_heads, d] of NaN: halves of one tensor (NHD), HND, or padded."""
    nans = lambda *shape: torch.full(shape, math.nan, device="cuda", dtype=DTYPES[o.T])
    if layout == "NHD" and o.d == o.dv:
        return nans(pages, 2, o.page, o.kv_heads, o.d).unbind(1)
    if layout == "HND":
        return [nans(pages, o.kv_heads, o.page, d).transpose(1, 2) for d in (o.d, o.dv)]
    return [nans(pages, o.page, o.kv_heads + 1, d + 8)[:, :, : o.kv_heads, :d] for d in (o.d, o.dv)]


class Batch:
    """Requests of (qo_len, kv_len) tokens. After each request of k and v there are `gap` rows of NaN, or, with pages, `gap`
    entries of the page table that name no page. Pages lie in a random order.
    """

    def __init__(self, options, lengths, layout="NHD", scale=1.0, gap=3):
        self.options = o = options
        self.lengths = lengths
        self.qo_indptr = [0, *itertools.accumulate(q for q, _ in lengths)]
        pages = [-(-k // o.page) if o.page else k for _, k in lengths]
        self.kv_indptr = [0, *itertools.accumulate(n + gap for n in pages)]
        self.kv_len = [k for _, k in lengths]
        heads, tokens, kv_tokens = o.kv_heads * o.group, self.qo_indptr[-1], self.kv_indptr[-1]
        self.q = laid_out(tokens, heads, o.d, o.T, layout)
        if o.page:
            self.k, self.v = caches(sum(pages) + 3, o, layout)
            order = torch.randperm(sum(pages) + 3, device="cuda").int()
            self.kv_indices = torch.full((max(1, kv_tokens),), -(1 << 30), device="cuda", dtype=torch.int32)
            for begin, first, n in zip(self.kv_indptr, itertools.accumulate(pages, initial=0), pages):
                self.kv_indices[begin : begin + n] = order[first : first + n]
        else:
            self.k, self.v = (laid_out(kv_tokens, o.kv_heads, d, o.T, layout) for d in (o.d, o.dv))
        self.q.copy_(normal(*self.q.shape, dtype=o.T, scale=scale))
        for r, length in enumerate(self.kv_len):
            for x in (self.k, self.v):
                self.write(x, r, normal(length, *x.shape[-2:], dtype=o.T))
        self.slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1, device="cuda") / heads) if o.alibi else None
        self.sinks = torch.randn(heads, device="cuda") * 4 + 2 if o.sink else None
        self.mask = None if o.mask is None else [torch.rand(a, b, device="cuda") < o.mask for a, b in lengths]
        self.bits = (None, None) if o.mask is None else pack_mask(self.mask)
        strides = {"NHD": None, "HND": (o.dv, tokens * o.dv, 1)}.get(layout, (heads * o.dv + 24, o.dv, 1))
        self.guards = [Guarded(tokens, heads, o.dv, dtype=o.T, strides=strides), Guarded(tokens, heads, dtype="f32")]
        self.out, self.lse = (g.view for g in self.guards)
        o.prepare(self)

    def place(self, r):
        """The index of a request's rows in k and v."""
        begin, token = self.kv_indptr[r], torch.arange(self.kv_len[r], device="cuda")
        page = self.options.page
        return (self.kv_indices[begin + token // page].long(), token % page) if page else slice(begin, begin + len(token))

    def write(self, x, r, values):
        x[self.place(r)] = values

    def plan(self, workers=0, max_requests=0, max_tokens=0):
        o = self.options
        made = AttentionPlan(
            o.kernel(), max(max_requests, len(self.lengths)), o.kv_heads, max(max_tokens, self.qo_indptr[-1]), workers
        )
        return self.replan(made)

    def replan(self, plan):
        o = self.options
        windows = {"window_left": o.window, "window_right": o.right}
        return plan(self.kv_indptr, self.qo_indptr, self.kv_len, page_size=o.page, **windows)

    def launch(self, plan, lse=True):
        self.options.kernel()(*self.options.arguments(self, plan, lse))

    def expect(self, what=""):
        out, lse = reference(self)
        self.options.expect_lse(self.lse, lse, f"{what} lse")
        error = expect_close(self.out, out, TOLERANCE[self.options.T], what)
        unseen = lse == -math.inf
        assert bool((self.out[unseen] == 0).all()) and bool((self.lse[unseen] == -math.inf).all()), f"{what}: rows that see nothing"
        for guard in self.guards:
            guard.check(what)
        return error


def pack_mask(mask):
    """(bytes, begins): the masks' bits, lowest first. Each request begins at a new byte,
    whose index is in `begins`.
    """
    parts, begins = [torch.zeros(0, device="cuda", dtype=torch.uint8)], [0]
    for m in mask:
        bits = torch.nn.functional.pad(m.flatten().to(torch.uint8), (0, -m.numel() % 8)).view(-1, 8)
        parts.append((bits << torch.arange(8, device="cuda", dtype=torch.uint8)).sum(1).to(torch.uint8))
        begins.append(begins[-1] + len(parts[-1]))
    return torch.nn.functional.pad(torch.cat(parts), (0, 4)), torch.tensor(begins, device="cuda", dtype=torch.int32)


def reference(batch, rows=2048):
    """o [nnz, HQ, DV] and lse (base 2) [nnz, HQ] in float64."""
    o, scale = batch.options, batch.options.sm_scale or batch.options.d**-0.5
    out = torch.zeros(*batch.q.shape[:2], o.dv, device="cuda", dtype=torch.float64)
    lse = torch.full(batch.q.shape[:2], -math.inf, device="cuda", dtype=torch.float64)
    if o.sink:
        lse[:] = batch.sinks / math.log(2)
    for r, (qo_len, kv_len) in enumerate(batch.lengths):
        keys, values = (x[batch.place(r)] for x in (batch.k, batch.v))
        for first, head in itertools.product(range(0, qo_len if kv_len else 0, rows), range(batch.q.shape[1])):
            i, j = (
                torch.arange(first, min(first + rows, qo_len), device="cuda")[:, None],
                torch.arange(kv_len, device="cuda")[None, :],
            )
            own = slice(batch.qo_indptr[r] + first, batch.qo_indptr[r] + first + len(i))
            x = batch.q[own, head].double() @ keys[:, head // o.group].double().T * scale
            if o.alibi:
                x += batch.slopes[head].double() * (j - i)
            if o.cap:
                x = o.cap * torch.tanh(x / o.cap)
            if o.mask is not None:
                x.masked_fill_(~batch.mask[r][first : first + rows], -math.inf)
            elif o.causal:
                x.masked_fill_(j > i + kv_len - qo_len, -math.inf)
            if o.window >= 0:
                x.masked_fill_(j + qo_len + o.window < kv_len + i, -math.inf)
            if o.right >= 0:
                x.masked_fill_(j + qo_len > kv_len + i + o.right, -math.inf)
            sums = torch.logsumexp(x, 1)
            if o.sink:
                sums = torch.logaddexp(sums, batch.sinks[head].double())
            lse[own, head] = sums / math.log(2)
            out[own, head] = torch.exp(x - sums.nan_to_num(neginf=0.0)[:, None]) @ values[:, head // o.group].double()
    return out, lse


def check(options, lengths, what="", workers=0, **how):
    batch = Batch(options, lengths, **how)
    batch.launch(batch.plan(workers))
    return batch.expect(f"{what or options} {lengths if len(lengths) < 6 else len(lengths)}")


def check_all(cases):
    """Checks all cases (options, lengths), whose kernels compile in parallel. Returns the worst errors."""
    for options, _ in cases:
        prefetch(options.template, **options.parameters)
    worst = {t: max((check(o, lengths) for o, lengths in cases if t == o.T), default=0.0) for t in TOLERANCE}
    return f"{len(cases)} specialisations, worst {worst}"


MIXED = [(17, 900), (1, 33), (0, 5), (400, 400), (3, 0), (129, 1000), (64, 64), (1, 1)]


def test_lengths():
    for n in (1, 2, 31, 32, 33, 63, 64, 65, 127, 129, 500, 1023, 4097):
        check(Options(), [(n, n)])
        check(Options(causal=False), [(max(1, n // 3), n)])
    check(Options(group=1, kv_heads=1), [(16384, 16384)])
    check(Options(group=1, kv_heads=1, causal=False), [(16384, 16384)])


def test_mixtures():
    generator = torch.Generator().manual_seed(5)
    draw = lambda top: int(2 ** (torch.rand(1, generator=generator) * math.log2(top + 1))) - 1
    for requests in (12, 128):
        lengths = [(draw(600), draw(2000)) for _ in range(requests)]
        lengths[3:5] = [(0, 0), (0, 77)]
        check(Options(), lengths)
        check(Options(causal=False, T="f16", d=64), lengths)
    check(Options(), MIXED)
    check(Options(), [(0, 0), (0, 9)])


def test_options_and_their_combinations():
    cases = []
    for causal, window, cap, alibi, mask in itertools.product((False, True), (-1, 70), (0.0, 5.0), (False, True), (None, 0.5)):
        number = len(cases)
        cases.append(
            (
                Options(
                    T=("f16", "bf16")[number % 2],
                    causal=causal,
                    window=window,
                    cap=cap,
                    alibi=alibi,
                    mask=mask,
                    group=(4, 3)[number % 2],
                ),
                MIXED,
            )
        )
    return check_all(cases)


def test_whatever_engines_may_combine():
    """Combinations of options, drawn at random from a fixed seed. Other tests have some of them."""
    draw, cases = random.Random(11), []
    for _ in range(40):
        d, dv = draw.choice(((64, 64), (80, 80), (96, 96), (112, 112), (128, 128), (128, 128), (256, 256), (192, 128)))
        options = Options(
            T=draw.choice(("bf16", "f16")),
            d=d,
            dv=dv,
            group=draw.randint(1, 16),
            kv_heads=draw.choice((1, 2, 5)),
            causal=draw.random() < 0.6,
            window=draw.choice((-1, -1, 0, 20, 1000)),
            cap=draw.choice((0.0, 0.0, 5.0)),
            alibi=draw.random() < 0.3,
            mask=draw.choice((None, None, 0.5)),
            sm_scale=draw.choice((0.0, 0.2)),
            page=draw.choice((0, 0, 1, 5, 16, 64, 1000)),
            sink=draw.random() < 0.3,
        )
        if not options.causal:
            options.right = draw.choice((-1, -1, 0, 7, 300))
        token = lambda: draw.choice((0, 1, draw.randint(2, 200), draw.randint(200, 1500)))
        cases.append(
            (
                options,
                [(token(), token()) for _ in range(draw.randint(1, 12))],
                dict(
                    layout=draw.choice(("NHD", "HND", "padded")),
                    gap=draw.choice((0, 3)),
                    workers=draw.choice((0, 0, 1, 5, 131, 1000)),
                ),
            )
        )
        prefetch(options.template, **options.parameters)
    for options, lengths, how in cases:
        check(options, lengths, f"{options} {how} {lengths}", **how)
    return f"{len(cases)} combinations"


def test_head_sizes():
    cases = []
    for T, d, options in itertools.product(
        ("f16", "bf16"),
        (64, 192, 256),
        ({}, {"causal": False, "window": 33}, {"alibi": True, "cap": 7.0}, {"mask": 0.3, "window": 200}),
    ):
        cases.append((Options(T=T, d=d, group=5, **options), MIXED))
    return check_all(cases + [(Options(d=d, dv=dv), MIXED) for d, dv in ((128, 64), (192, 192), (112, 80), (80, 64))])


def check_head_sizes_of_vision(make_options):
    """Checks heads whose rows in shared memory are longer than they are, with NaN after each head in memory."""
    cases = []
    for d, more in itertools.product((80, 96, 112), ({}, {"causal": False}, {"page": 16, "sink": True}, {"T": "f16", "cap": 7.0})):
        cases.append((make_options(d=d, group=3, **more), [*MIXED, (40, 3000)]))
    for o, _ in cases:
        prefetch(o.template, **o.parameters)
    for o, lengths in cases:
        for layout in ("NHD", "padded"):
            check(o, lengths, f"{o} {layout}", layout=layout)
    check_parts(((make_options(d=80), [(40, 5000)] * 2),))


def test_head_sizes_of_vision():
    check_head_sizes_of_vision(Options)


def test_groups():
    return check_all([(Options(group=g, kv_heads=3, d=64), MIXED) for g in (*range(1, 17), 33, 64)])


def test_tiles():
    shapes = [
        dict(TILE_ROWS=64, TILE_KV=16),
        dict(TILE_ROWS=64, TILE_KV=64, STAGES=1),
        dict(TILE_ROWS=128, TILE_KV=32, WARPS=8, STAGES=2),
        dict(TILE_ROWS=64, TILE_KV=16, WARPS=2),
        dict(TILE_ROWS=256, WARPS=8, BLOCKS=1),
    ]
    return check_all(
        [(Options(d=64, **options, **shape), MIXED) for shape in shapes for options in ({"window": 70}, {"mask": 0.5, "T": "f16"})]
    )


def check_pages(options, sizes, **tile):
    """Checks pages of all sizes and layouts, parts of tiles, and requests without pages. `options` makes options."""
    lengths = [*MIXED, (40, 5000), (0, 0), (7, 16), (16, 64)]
    cases = [
        (options(page=page, d=d, group=group, window=window, causal=causal), layout)
        for page, layout in itertools.product(sizes, ("NHD", "HND", "padded"))
        for d, group, window, causal in ((128, 4, -1, True), (64, 3, 70, True), (192, 1, -1, False))
    ]
    for o, _ in cases:
        prefetch(o.template, **o.parameters)
    for o, layout in cases:
        check(o, lengths, f"{o} {layout}", layout=layout)
    for workers in (1, 5, 1000):
        check(options(page=16), lengths, f"{workers} workers", workers=workers)
    check(options(page=16), [(3, 0), (0, 0)], "no pages", gap=0)
    check_graph((options(page=16),))
    return f"{len(cases)} cases"


def test_pages():
    check(Options(page=16, mask=0.5, alibi=True, cap=9.0), MIXED)
    check(Options(page=16, STAGES=1, TILE_KV=32), MIXED)
    return check_pages(Options, (1, 7, 16, 64, 100, 4096))


def check_sinks(make_options):
    """Checks sinks alone, in parts of tiles and in pages; far above and below the logits; and for rows that see nothing."""
    for o in (
        make_options(sink=True),
        make_options(sink=True, window=70, page=16),
        make_options(sink=True, d=64, group=3, cap=5.0),
    ):
        check(o, [*MIXED, (300, 100), (40, 5000), (5, 0)])
    for far in (-200.0, 200.0):
        b = Batch(make_options(sink=True), [(40, 5000), (100, 30)])
        b.sinks += far
        b.launch(b.plan())
        if far < 0:
            b.expect(f"sinks of {far}")
        else:  # the weights of v are less than an f32 can hold
            o, lse = reference(b)
            assert float(o.abs().max()) < 1e-38 and not bool(b.out.any()), "sinks of 200: results are not 0"
            expect_close(b.lse, lse, 1e-5, "sinks of 200: lse")
    check_parts(((make_options(sink=True), [(40, 5000)] * 2),))
    b = Batch(make_options(sink=True), [(5, 5)])
    b.sinks = None
    expect_refused(lambda: b.launch(b.plan()), "sinks", "SINK")


def check_right_windows(make_options):
    """Checks ends of windows on the right, alone and on both sides, whose tiles and parts then have fewer tokens."""
    lengths = [*MIXED, (300, 100), (700, 5000), (5000, 40)]
    cases = [
        (make_options(causal=False, right=right, window=window, **more), lengths)
        for right, window, more in (
            *itertools.product((0, 1, 63, 2000), (-1, 70), ({},)),
            (10, 10, {"page": 16}),
            (100, 0, {"d": 64, "group": 3}),
            (2**31 - 1, 5, {}),
        )
    ]
    check_all(cases)
    for workers in (1, 7, 1000):
        check(make_options(causal=False, right=50), lengths, f"{workers} workers", workers=workers)
    for options in (make_options(right=3), make_options(right=3, causal=False, WINDOW=False)):
        b = Batch(options, [(5, 5)])
        expect_refused(b.plan, "window_right = 3")
        options.right = -1
        plan = b.plan()
        options.right = 3
        expect_refused(lambda: b.launch(plan), "window_right = 3")


def test_sinks():
    check_sinks(Options)
    check(Options(sink=True, mask=0.002, alibi=True), MIXED)


def test_right_windows():
    check_right_windows(Options)
    check(Options(right=20, mask=0.5), MIXED)


def check_layouts(options):
    """Checks other strides of each of the options; the first has 8 q heads of 128 elements and two kv heads."""
    for layout, one in itertools.product(("HND", "padded"), options):
        check(one, MIXED, layout=layout)
    b = Batch(options[0], [(100, 100)])  # q, k and v are views of one projection
    packed = normal(100, 12, 128)
    b.q, b.k, b.v = packed[:, :8], packed[:, 8:10], packed[:, 10:]
    b.kv_indptr = [0, 100]
    b.launch(b.plan())
    b.expect("packed")


def test_layouts():
    check_layouts([Options(), Options(T="f16", d=64, group=3), Options(d=256, causal=False)])


def check_far_rows(options):
    """Checks rows that lie 4 GiB apart, for 4 q heads of 128 elements and one kv head."""
    b = Batch(options, [(2, 2)], gap=0)
    stride = (1 << 31) + 64
    far = [Guarded(2, h, 128, strides=(stride, 128, 1)) for h in (4, 4, 1, 1)]
    for x, y in zip((b.q, b.k, b.v), far[1:]):
        y.view.copy_(x)
    b.guards[0], b.out = far[0], far[0].view
    b.q, b.k, b.v = (x.view for x in far[1:])
    b.launch(b.plan())
    b.expect("far rows")


def test_strides_beyond_31_bits():
    check_far_rows(Options(kv_heads=1))


def check_large_logits(make_options, changes):
    for T, options in itertools.product(("f16", "bf16"), changes):
        b = Batch(make_options(T=T, sm_scale=10.0, **options), [(200, 300), (5, 70)])
        # Equal logits of -2e5 and less for all tokens: the result is the mean of the rows that are seen.
        b.q.fill_(-12.5)
        for r in range(len(b.lengths)):
            b.write(b.k, r, 12.5)
        b.launch(b.plan())
        b.expect(f"logits of -2e5 {b.options}")
        check(make_options(T=T, sm_scale=4.0, **options), [(200, 300)], scale=100.0)


def test_large_logits():
    check_large_logits(Options, ({}, {"window": 40}, {"cap": 30.0}, {"mask": 0.5}))


def test_rows_that_see_nothing():
    check(Options(), [(300, 100), (64, 1), (5, 0)])
    check(Options(window=0), [(300, 100), (64, 1)])
    check(Options(mask=0.0), [(100, 100)])
    check(Options(mask=0.002, window=30), [(300, 400)])


def test_a_window_that_is_off():
    check(Options(WINDOW=True), MIXED)
    check(Options(WINDOW=True, mask=0.5), MIXED)


def check_without_lse(options):
    b = Batch(options, MIXED)
    b.launch(b.plan(), lse=False)
    assert bool(b.lse.isnan().all())
    expect_close(b.out, reference(b)[0], 4e-3)


def test_without_lse_and_with_a_scale():
    check_without_lse(Options(sm_scale=0.25))


def check_parts(cases):
    """Checks that parts, no parts and other numbers of workers agree, and that runs give the same bits."""
    parts = 0
    for options, lengths in cases:
        b = Batch(options, lengths)
        plan = b.plan()
        b.launch(plan)
        split, lse = b.out.clone(), b.lse.clone()
        for _ in range(3):
            b.launch(plan)
            expect_same_bits(b.out, split, "runs")
            expect_same_bits(b.lse, lse, "runs")
        parts += plan.parts
        one = b.plan(workers=1)
        assert one.parts == 0
        b.launch(one)
        expect_close(split, b.out, TOLERANCE[options.T], "parts against none")  # both are rounded
        b.expect(f"unsplit {options}")
        for workers in (2, 7, 64, 1000):
            b.launch(b.plan(workers=workers))
            b.expect(f"{workers} workers {options}")
    assert parts > 20
    return f"{parts} parts"


def test_parts_agree_and_runs_give_the_same_bits():
    return check_parts(
        (
            (Options(), [(40, 5000)]),
            (Options(d=256, causal=False, group=1), [(128, 3000), (1, 700)]),
            (Options(d=64, group=16, kv_heads=1, mask=0.5), MIXED),
            (Options(T="f16", window=600), [(1000, 4000)]),
        )
    )


def check_graph(cases):
    """Checks that a captured launch of each of the options computes whatever plan its buffer has."""
    parts = 0
    for options in cases:
        batches = [
            Batch(options, lengths)
            for lengths in (
                [(100, 1200), (7, 7), (300, 300)],
                [(407, 900)],
                [(50, 4000), (3, 3)],
                [(1, 3)] * 40,
                MIXED[:3] + [(0, 0)] * 3,
                [(0, 0)],
            )
        ]
        largest = [max(len(getattr(b, n)) for b in batches) for n in ("q", "k")]
        big = Batch(options, [(largest[0], largest[1] * (options.page or 1))], gap=40 if options.page else 0)
        plan = big.plan(max_requests=40)
        big.launch(plan)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            big.launch(plan)
        for b in batches + batches[::-1]:
            for x, y in ((big.q, b.q), (big.k, b.k), (big.v, b.v)):
                x[: len(y)] = y
            if options.page:
                big.kv_indices[: len(b.kv_indices)] = b.kv_indices
            b.replan(plan)
            parts += plan.parts
            graph.replay()
            b.out.copy_(big.out[: len(b.out)])
            b.lse.copy_(big.lse[: len(b.lse)])
            b.expect(f"replay {b.lengths}")
    assert parts > 0
    return f"{parts} parts"


def test_a_graph_replays_after_a_new_plan():
    return check_graph((Options(window=300), Options()))


def test_what_is_refused():
    b = Batch(Options(), [(5, 5)])
    plan = b.plan()
    expect_refused(lambda: kernel("attn_prefill", T="bf16", D=72, GROUP=1), "D", "72")
    expect_refused(lambda: kernel("attn_prefill", T="bf16", D=128, GROUP=65), "GROUP", "65")
    expect_refused(lambda: kernel("attn_prefill", T="bf16", D=64, DV=128, GROUP=1), "DV = 128")
    expect_refused(lambda: kernel("attn_prefill", T="bf16", D=64, GROUP=1, MASK=True, TILE_ROWS=128, WARPS=2), "MASK", "32 rows")
    b.options = Options(window=3, WINDOW=False)
    expect_refused(lambda: b.launch(plan), "window_left = 3")
    b.options = Options()
    b.q = torch.empty(5, 8, 129, device="cuda", dtype=torch.bfloat16)[..., :128]
    expect_refused(lambda: b.launch(plan), "multiples of 8")
    masked = Batch(Options(mask=0.5), [(5, 5)])
    bits, masked.bits = masked.bits, (None, None)
    expect_refused(lambda: masked.launch(masked.plan()), "MASK")
    for name, value, words in (
        ("bits", bits, ("mask_indptr", "null without")),
        ("slopes", torch.ones(8, device="cuda"), ("alibi_slopes", "null without")),
    ):
        given = Batch(Options(), [(5, 5)])
        setattr(given, name, value)
        expect_refused(lambda: given.launch(given.plan()), *words)
    for options, words in (
        (Options(cap=3.0, SOFT_CAP=False), ("soft_cap = 3", "0 without")),
        (Options(SOFT_CAP=True), ("soft_cap = 0", "above 0")),
        (Options(sm_scale=-1.0), ("sm_scale = -1",)),
    ):
        other = Batch(options, [(5, 5)])
        expect_refused(lambda: other.launch(other.plan()), *words)


# A launch with a plan. The names are the launch's options, the plan's options, and blocks that the grid lacks.
OTHER_PLAN = """
import attn_prefill, %s as module
b = attn_prefill.Batch(module.Options(**%%r), [(40, 300)])
plan = attn_prefill.Batch(module.Options(**%%r), [(40, 300)]).plan(workers=9)
plan.workers -= %%r
b.launch(plan)
"""


def test_a_plan_for_something_else_ends_the_launch():
    # Each case is (the launch's options, the plan's options, blocks that the grid lacks, traps).
    cases = [
        ({}, {}, 0, False),
        ({}, {"causal": False}, 0, True),
        ({}, {"d": 64, "TILE_KV": 32}, 0, True),
        ({}, {"group": 8, "kv_heads": 1}, 0, True),
        ({}, {"kv_heads": 1}, 0, True),
        ({}, {}, 1, True),
        ({"window": 100}, {"window": 50}, 0, True),
        ({"WINDOW": True}, {"window": 50}, 0, True),
    ]
    expect_traps(OTHER_PLAN % "attn_prefill", cases)


def torch_sdpa(backend, batch, length, causal):
    def launch(q, k, v, *_):
        with torch.nn.attention.sdpa_kernel(backend):
            x = [t.view(batch, length, -1, t.shape[-1]).transpose(1, 2) for t in (q, k, v)]
            return torch.nn.functional.scaled_dot_product_attention(*x, is_causal=causal, enable_gqa=True)

    return launch


def bench_row(options, batch, length, others=()):
    """The row of `batch` prompts of `length` tokens each. `others` are (label, options) of further launches of kiln."""
    o, heads = options, options.kv_heads * options.group

    def make():
        b = Batch(o, [(length, length)] * batch, gap=0)
        rest = []
        for _, other in others:
            another = copy.copy(b) if other.page == o.page else Batch(other, [(length, length)] * batch, gap=0)
            another.options = other
            rest += [another, another.plan()]
        return b.q, b.k, b.v, b.out, b, b.plan(), *rest

    backends = torch.nn.attention.SDPBackend
    launches = {"kiln": lambda q, k, v, out, b, plan, *_: b.launch(plan, lse=False)}
    for i, (label, _) in enumerate(others):
        launches[label] = lambda *x, at=6 + 2 * i: x[at].launch(x[at + 1], lse=False)
    if not o.page:
        launches["torch flash (FA2)"] = torch_sdpa(backends.FLASH_ATTENTION, batch, length, o.causal)
        launches["torch cuDNN (wgmma)"] = torch_sdpa(backends.CUDNN_ATTENTION, batch, length, o.causal)
    for label, peer in peers.get("attn_prefill").items() if (o.d, o.dv) == (128, 128) and not o.page else ():
        launches[label] = lambda q, k, v, out, *_, peer=peer: peer(out, q, k, v, batch, o.causal)
    tokens = batch * length
    return Row(
        f"{o.template} bf16 HQ{heads} HKV{o.kv_heads} D{o.d} {batch} x {length} {'causal' if o.causal else 'full'}{f' pages of {o.page}' if o.page else ''}",
        tokens * (heads * o.d + o.kv_heads * (o.d + o.dv)) * 2,
        tokens * heads * o.dv * 2,
        make,
        launches,
        flops=2 * tokens * length * heads * (o.d + o.dv) // (2 if o.causal else 1),
        bar=0.0,
        beats={"kiln": [label for label, other in others if other.template != o.template] or ("torch flash (FA2)",) * (not o.page)},
    )


# (prompts, tokens of each) of the bench
PROMPTS = ((1, 128), (1, 512), (1, 1024), (2, 1024), (16, 1024), (1, 4096), (4, 4096), (1, 16384))


def bench():
    for (batch, length), causal in itertools.product(PROMPTS, (True, False)):
        yield bench_row(Options(group=4, kv_heads=8, causal=causal), batch, length)
    for page in (16, 64):
        ragged = ("kiln ragged", Options(group=4, kv_heads=8))
        yield bench_row(Options(group=4, kv_heads=8, page=page), 4, 4096, others=[ragged])
