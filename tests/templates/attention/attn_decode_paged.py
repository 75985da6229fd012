"""attn_decode_paged against float64: layouts, pages, head sizes, groups, caches, masks; and its
time beside PyTorch's SDPA.

attn_decode_plans tests its plans. Caches are NaN where no token lies, above all after the end of a last page.
"""

import itertools
import random

import torch
from attention_plan import AttentionPlan
from harness import DTYPES, Guarded, Row, expect_close, expect_refused, kernel, normal, peers, prefetch

SANITIZE = [
    "attn_decode_paged T=bf16 D=128 GROUP=4 kv_tokens=3000 requests=5",
    "attn_decode_paged T=bf16 D=128 GROUP=4 kv_tokens=3000 requests=50 workers=40",
    "attn_decode_paged T=bf16 D=128 GROUP=4 kv_tokens=20000 requests=2 workers=16",
    "attn_decode_paged T=bf16 D=128 GROUP=16 kv_tokens=20000 requests=2 workers=16",
    "attn_decode_paged T=bf16 D=256 GROUP=4 kv_tokens=20000 requests=3 workers=16 window_left=3001",
    "attn_decode_paged T=f16 D=64 GROUP=16 KV=e4m3 kv_tokens=3000 requests=5 page_size=1",
    "attn_decode_paged T=bf16 D=192 DV=128 GROUP=8 ALIBI=true SOFT_CAP=true soft_cap=20 kv_tokens=2000 requests=3",
]
TOLERANCE = {"f16": 1e-3, "bf16": 4e-3}
MIXED = [1, 0, 17, 64, 300, 5, 129, 0, 1000, 63, 65, 2]


class Batch:
    """Requests of `lengths` kv tokens in scattered pages. The last `qo` tokens of a request are tokens of q."""

    def __init__(
        self, lengths, page_size=16, heads=2, group=4, d=128, dv=None, dtype="bf16", kv=None, layout="NHD", qo=1, q_scale=1.0
    ):
        self.lengths, self.page_size, self.heads, self.group, self.qo = list(lengths), page_size, heads, group, qo
        self.d, self.dv, self.dtype, self.kv, self.layout = d, dv or d, dtype, kv or dtype, layout
        pages_of = [-(-n // page_size) for n in self.lengths]
        self.pages = sum(pages_of) + 3
        self.kv_indptr = [0] + list(itertools.accumulate(pages_of))
        self.last_page_len = [n - (p - 1) * page_size if n else 0 for n, p in zip(self.lengths, pages_of)]
        self.kv_indices = torch.randperm(self.pages, device="cuda")[: max(1, sum(pages_of))].int()
        self.first = [0] + list(itertools.accumulate(self.lengths))
        self.k = (torch.randn(self.first[-1], heads, d, device="cuda")).to(DTYPES[self.kv])
        self.v = (torch.randn(self.first[-1], heads, self.dv, device="cuda") + 0.5).to(DTYPES[self.kv])
        self.tokens = len(self.lengths) * qo
        self.q = Guarded(self.tokens, heads * group, d, dtype=dtype, strides=((heads * group + 1) * (d + 8), d + 8, 1)).view
        self.q.copy_(torch.randn(self.tokens, heads * group, d, device="cuda") * q_scale)
        self.k_cache, self.v_cache = self.caches()

    def caches(self):
        size = DTYPES[self.kv].itemsize

        def nans(*shape):
            return torch.full((*shape[:-1], shape[-1] * size), 255, dtype=torch.uint8, device="cuda").view(DTYPES[self.kv])

        n, page, heads = self.pages, self.page_size, self.heads
        if self.layout == "NHD" and self.d == self.dv:  # one tensor [n, 2, page, heads, D]
            views = nans(n, 2, page, heads, self.d).unbind(1)
        elif self.layout == "HND" and self.d == self.dv:  # one tensor [n, 2, heads, page, D]
            views = [x.transpose(1, 2) for x in nans(n, 2, heads, page, self.d).unbind(1)]
        else:  # two tensors, with padding
            views = [nans(n, page, heads + 1, x + 16)[:, :, :heads, :x] for x in (self.d, self.dv)]
        position = (
            torch.cat([torch.arange(x, device="cuda") for x in self.lengths])
            if self.first[-1]
            else torch.zeros(0, dtype=torch.long, device="cuda")
        )
        begin = torch.repeat_interleave(torch.tensor(self.kv_indptr[:-1], device="cuda"), torch.tensor(self.lengths, device="cuda"))
        page_of = self.kv_indices.long()[begin + position // page]
        for view, rows in zip(views, (self.k, self.v)):
            bits = {1: torch.uint8, 2: torch.int16}[size]
            view.view(bits)[page_of, position % page] = rows.view(bits)
        return views

    def reference(self, sm_scale=None, window_left=-1, soft_cap=0.0, slopes=None, k_scale=None, v_scale=None, only=None):
        """o and lse in float64."""
        heads, group = self.heads, self.group
        o = torch.zeros(self.tokens, heads * group, self.dv, device="cuda", dtype=torch.float64)
        lse = torch.full((self.tokens, heads * group), float("-inf"), device="cuda", dtype=torch.float64)
        for i, n in enumerate(self.lengths):
            if n == 0 or (only is not None and i not in only):
                continue
            rows = slice(i * self.qo, (i + 1) * self.qo)
            k, v = (x[self.first[i] : self.first[i + 1]].double() for x in (self.k, self.v))
            k = k * (1.0 if k_scale is None else k_scale.double().view(-1, 1))
            v = v * (1.0 if v_scale is None else v_scale.double().view(-1, 1))
            q = self.q[rows].double().view(self.qo, heads, group, self.d)
            x = torch.einsum("thgd,khd->thgk", q, k) * (sm_scale or self.d**-0.5)
            own = torch.arange(n - self.qo, n, device="cuda").view(-1, 1, 1, 1)
            kv = torch.arange(n, device="cuda")
            if slopes is not None:
                x = x + slopes.double().view(1, heads, group, 1) * (kv - torch.arange(self.qo, device="cuda").view(-1, 1, 1, 1))
            if soft_cap:
                x = soft_cap * torch.tanh(x / soft_cap)
            hidden = kv > own
            if window_left >= 0:
                hidden = hidden | (kv < own - window_left)
            x = x.masked_fill(hidden, float("-inf"))
            nothing = hidden.all(-1).expand(x.shape[:-1])
            o[rows] = torch.einsum("thgk,khd->thgd", torch.softmax(x, -1).masked_fill(nothing.unsqueeze(-1), 0.0), v).flatten(1, 2)
            lse[rows] = torch.logsumexp(x, -1).flatten(1, 2) * 1.4426950408889634
        return o, lse


def make_plan(call, batch, workers=0, window_left=-1, plan=None):
    """The batch's plan and workspace in device memory. `plan` is an earlier plan
    whose buffers are used again.

    workers 0 means the manifest's number.
    """
    plan = plan or AttentionPlan(call, len(batch.lengths), batch.heads, max_tokens=batch.tokens, workers=workers)
    return plan(
        batch.kv_indptr,
        qo_indptr=None if batch.qo == 1 else [i * batch.qo for i in range(len(batch.lengths) + 1)],
        last_page_len=batch.last_page_len,
        page_size=batch.page_size,
        window_left=window_left,
    )


def parameters_of(batch, slopes=None, soft_cap=0.0, **more):
    return dict(
        T=batch.dtype,
        D=batch.d,
        GROUP=batch.group,
        KV=batch.kv,
        DV=batch.dv,
        SOFT_CAP=bool(soft_cap),
        ALIBI=slopes is not None,
        **more,
    )


def arguments(batch, o, plan, sm_scale=None, window_left=-1, soft_cap=0.0, slopes=None, k_scale=None, v_scale=None, lse=None):
    per_head = k_scale is not None and k_scale.numel() > 1
    return (
        o,
        batch.q,
        batch.k_cache,
        batch.v_cache,
        batch.kv_indices,
        plan.words,
        plan.workspace,
        plan.workers,
        batch.heads,
        batch.page_size,
        o.stride(0),
        o.stride(1),
        batch.q.stride(0),
        batch.q.stride(1),
        *batch.k_cache.stride()[:3],
        *batch.v_cache.stride()[:3],
        float(sm_scale or 0.0),
        lse,
        float(soft_cap),
        window_left,
        slopes,
        k_scale,
        v_scale,
        int(per_head),
    )


def outputs(batch):
    """Guarded memory for o and lse."""
    heads = batch.heads * batch.group
    return Guarded(
        batch.tokens, heads, batch.dv, dtype=batch.dtype, strides=((heads + 1) * (batch.dv + 8), batch.dv + 8, 1)
    ), Guarded(batch.tokens, heads, dtype="f32")


def run(batch, workers=0, want_lse=True, parameters=None, **options):
    """o and lse in guarded memory: their check() finds writes outside of them."""
    o, lse = outputs(batch)
    lse = lse if want_lse else None
    call = kernel(
        "attn_decode_paged", **parameters_of(batch, options.get("slopes"), options.get("soft_cap", 0.0), **(parameters or {}))
    )
    plan = make_plan(call, batch, workers, options.get("window_left", -1))
    call(*arguments(batch, o.view, plan, lse=lse.view if lse else None, **options))
    return o, lse


def check(batch, what="", tolerance=None, only=None, **options):
    reference = {k: v for k, v in options.items() if k in ("sm_scale", "window_left", "soft_cap", "slopes", "k_scale", "v_scale")}
    o, lse = run(batch, **options)
    want, want_lse = batch.reference(**reference)
    error = expect_close(o.view, want, tolerance or TOLERANCE[batch.dtype], what)
    if lse:
        expect_close(
            torch.where(want_lse.isinf(), want_lse, lse.view.double() - want_lse),
            torch.where(want_lse.isinf(), want_lse, 0.0),
            2e-3 * max(1, want_lse.numel()) ** 0.5 + 1e-5 * float(want_lse[~want_lse.isinf()].norm()),
            what + " lse",
        )
        assert bool((lse.view.isinf() == want_lse.isinf()).all()), f"{what}: lse is infinite elsewhere"
        lse.check(what)
    empty = [i for i, n in enumerate(batch.lengths) if n == 0]
    assert bool((o.view[[i * batch.qo + t for i in empty for t in range(batch.qo)]] == 0).all()), (
        f"{what}: an empty request is not 0"
    )
    o.check(what)
    return error


def test_pages_and_layouts():
    for dtype, kv in (("bf16", "bf16"), ("f16", "f16"), ("bf16", "e4m3")):
        prefetch("attn_decode_paged", T=dtype, D=128, GROUP=4, KV=kv)
    worst = 0.0
    for (dtype, kv), page_size, layout in itertools.product(
        (("bf16", "bf16"), ("f16", "f16"), ("bf16", "e4m3")), (1, 8, 16, 64, 7), ("NHD", "HND", "pair")
    ):
        error = check(Batch(MIXED, page_size, dtype=dtype, kv=kv, layout=layout), f"{dtype} {kv} pages of {page_size} {layout}")
        worst = max(worst, error / TOLERANCE[dtype])
    return f"at most {worst:.2f} of the tolerance"


def test_head_sizes_and_groups():
    kinds = [
        (d, dv, g, t, kv)
        for d, dv in ((64, 64), (128, 128), (256, 256), (192, 128))
        for g, t, kv in ((1, "bf16", "bf16"), (3, "f16", "f16"), (8, "bf16", "e4m3"), (16, "bf16", "bf16"), (12, "f16", "e4m3"))
    ]
    # The last kind leaves no register free.
    kinds += [(128, 128, g, "f16", "f16") for g in (2, 5, 6, 7, 8, 9, 16)] + [(256, 256, 16, "bf16", "e4m3")]
    for d, dv, g, t, kv in kinds:
        prefetch("attn_decode_paged", T=t, D=d, GROUP=g, KV=kv, DV=dv)
    for d, dv, g, t, kv in kinds:
        check(Batch(MIXED, 16, heads=3, group=g, d=d, dv=dv, dtype=t, kv=kv), f"{t} {kv} D={d} DV={dv} GROUP={g}")


def test_options_and_their_combinations():
    for cap, alibi, (t, kv) in itertools.product((False, True), (False, True), (("bf16", "bf16"), ("f16", "e4m3"))):
        prefetch("attn_decode_paged", T=t, D=128, GROUP=4, KV=kv, DV=128, SOFT_CAP=cap, ALIBI=alibi)
    for cap, alibi, window, (t, kv), scales in itertools.product(
        (0.0, 5.0), (False, True), (-1, 0, 100), (("bf16", "bf16"), ("f16", "e4m3")), (0, 1, 2)
    ):
        if scales and kv != "e4m3":
            continue
        batch = Batch(MIXED, 16, heads=2, dtype=t, kv=kv)
        scale = lambda: None if scales == 0 else torch.rand(1 if scales == 1 else 2, device="cuda") + 0.5
        slopes = torch.rand(8, device="cuda") * 0.1 if alibi else None
        check(
            batch,
            f"{t} {kv} cap={cap} alibi={alibi} window={window} scales={scales}",
            window_left=window,
            soft_cap=cap,
            slopes=slopes,
            sm_scale=0.13 if cap else None,
            k_scale=(k := scale()),
            v_scale=None if k is None else scale(),
        )


def test_whatever_engines_may_combine():
    """Combinations that the tests above do not have, drawn at random from a fixed seed."""
    draw, cases = random.Random(10), []
    for _ in range(40):
        t, (d, dv), cap, alibi = (
            draw.choice(("bf16", "f16")),
            draw.choice(((64, 64), (128, 128), (256, 256), (192, 128))),
            draw.choice((0.0, 5.0)),
            draw.random() < 0.5,
        )
        how = dict(
            page_size=draw.choice((1, 7, 8, 16, 64)),
            heads=draw.choice((1, 2, 5)),
            group=draw.randint(1, 16),
            d=d,
            dv=dv,
            dtype=t,
            kv=draw.choice((t, "e4m3")),
            layout=draw.choice(("NHD", "HND", "pair")),
            qo=draw.choice((1, 1, 3)),
        )
        cases.append(
            (
                how,
                cap,
                alibi,
                draw.choice((-1, 0, 20, 1000)),
                [draw.choice((0, 1, draw.randint(2, 200), draw.randint(200, 3000))) for _ in range(draw.randint(1, 12))],
            )
        )
        prefetch("attn_decode_paged", T=t, D=d, GROUP=how["group"], KV=how["kv"], DV=dv, SOFT_CAP=cap > 0, ALIBI=alibi)
    for how, cap, alibi, window, lengths in cases:
        batch = Batch(lengths, **how)
        scales = (
            [torch.rand(how["heads"], device="cuda") + 0.5 for _ in "kv"]
            if how["kv"] == "e4m3" and how["heads"] > 1
            else [None, None]
        )
        check(
            batch,
            f"{how} cap={cap} alibi={alibi} window={window} {lengths}",
            window_left=window,
            soft_cap=cap,
            slopes=torch.rand(how["heads"] * how["group"], device="cuda") * 0.1 if alibi else None,
            k_scale=scales[0],
            v_scale=scales[1],
        )
    return f"{len(cases)} combinations"


def test_prefill_of_one_token_agrees():
    for cap, alibi, window in itertools.product((0.0, 5.0), (False, True), (-1, 100)):
        batch = Batch([900, 1, 0, 333, 64], 16)
        slopes = torch.rand(8, device="cuda") * 0.1 if alibi else None
        o, lse = run(batch, soft_cap=cap, slopes=slopes, window_left=window)
        prefill = kernel("attn_prefill", T="bf16", D=128, GROUP=4, WINDOW=window >= 0, SOFT_CAP=cap > 0, ALIBI=alibi)
        plan = AttentionPlan(prefill, 5, batch.heads)(batch.first, window_left=window)
        other, other_lse = Guarded(5, 8, 128), Guarded(5, 8, dtype="f32")
        prefill(
            other.view,
            batch.q,
            batch.k,
            batch.v,
            plan.words,
            plan.workspace,
            plan.workers,
            batch.heads,
            len(batch.k),
            1024,
            128,
            *batch.q.stride()[:2],
            256,
            128,
            256,
            128,
            0.0,
            other_lse.view,
            cap,
            window,
            slopes,
            None,
            None,
        )
        what = f"cap={cap} alibi={alibi} window={window}"
        expect_close(o.view, other.view, TOLERANCE["bf16"], what)
        expect_close(lse.view, other_lse.view, 1e-4, what + " lse")


def test_several_tokens_of_a_request():
    for qo, window in itertools.product((2, 5), (-1, 20, 2**31 - 1)):
        check(Batch([40, 3, 5, 1000, 129], 16, qo=qo), f"qo={qo} window={window}", window_left=window)
        check(
            Batch([40, 3, 5, 1000, 129], 16, qo=qo),
            f"qo={qo} window={window} with ALiBi and a cap",
            window_left=window,
            slopes=torch.rand(8, device="cuda") * 0.1,
            soft_cap=6.0,
        )
    check(Batch([1, 0, 2, 300], 16, qo=4), "more q than kv: rows that see nothing")


def test_long_requests_and_many():
    for lengths, page in (
        ([16384, 1, 8191], 16),
        (torch.randint(0, 3000, (128,)).tolist(), 16),
        (torch.randint(1, 600, (128,)).tolist(), 1),
        ([16384], 64),
    ):
        check(Batch(lengths, page, heads=8), f"{len(lengths)} requests")


def test_large_logits():
    for dtype, kv in (("f16", "f16"), ("bf16", "bf16"), ("bf16", "e4m3")):
        batch = Batch([300, 1000, 70], 16, dtype=dtype, kv=kv)
        for sign in (-1.0, 1.0):  # logits of about 2e5, whose differences decide
            batch.k.copy_((1.0 + 0.25 * torch.randint(0, 3, batch.k.shape, device="cuda")).to(batch.k.dtype))
            batch.q.copy_(torch.full_like(batch.q, sign * 200.0))
            batch.k_cache, batch.v_cache = batch.caches()
            check(batch, f"{dtype} {kv} {sign}", sm_scale=6.0)


def test_strides_beyond_31_bits():
    stride = (1 << 31) + 64
    caches = [Guarded(3, 16, 1, 64, strides=(stride, 64, 64, 1)).view for _ in "kv"]
    batch = Batch([20], 16, heads=1, group=1, d=64)
    batch.kv_indices = torch.tensor([2, 0], device="cuda", dtype=torch.int32)
    for cache, rows in zip(caches, (batch.k, batch.v)):
        cache[2], cache[0, :4] = rows[:16], rows[16:]
    batch.k_cache, batch.v_cache = caches
    check(batch, "stride beyond 2^31")


def test_refused():
    batch = Batch([20], 16, heads=1)
    o = torch.empty(1, 4, 128, device="cuda", dtype=torch.bfloat16)
    call = kernel("attn_decode_paged", **parameters_of(batch))
    good = list(arguments(batch, o, make_plan(call, batch, 4)))
    for at, value, words in ((9, 0, ("page_size", "0")), (12, 129, ("strides", "129")), (14, 1001, ("caches", "1001"))):
        bad = list(good)
        bad[at] = value
        expect_refused(lambda: call(*bad), *words)
    expect_refused(lambda: kernel("attn_decode_paged", T="bf16", D=128, GROUP=17), "GROUP", "17")
    expect_refused(lambda: kernel("attn_decode_paged", T="bf16", D=128, GROUP=4, KV="f16"), "KV", "e4m3")
    expect_refused(lambda: kernel("attn_decode_paged", T="bf16", D=128, GROUP=4, ALIBI=True)(*good), "alibi_slopes")
    expect_refused(lambda: kernel("attn_decode_paged", T="bf16", D=128, GROUP=4, SOFT_CAP=True)(*good), "soft_cap = 0", "above 0")
    ones = torch.ones(4, device="cuda")
    for at, value, words in (
        (20, -0.5, ("sm_scale = -0.5",)),
        (22, 30.0, ("soft_cap = 30", "0 without")),
        (24, ones, ("alibi_slopes", "null without")),
        (25, ones, ("k_scale", "e4m3", "bf16")),
    ):
        bad = list(good)
        bad[at] = value
        expect_refused(lambda: call(*bad), *words)


def sdpa(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, backend)

    def launch(q, k, v, length):
        with sdpa_kernel(backend):
            view = lambda x: x.view(q.shape[0], length, x.shape[2], x.shape[3]).transpose(1, 2)
            return torch.nn.functional.scaled_dot_product_attention(q.unsqueeze(2), view(k), view(v), enable_gqa=True)

    return launch


def buffers(plan):
    return plan.words, plan.workspace


def bench():
    for hq, heads, kv, requests, length in (
        [(32, 8, "bf16", b, n) for b in (1, 16, 64, 256) for n in (1024, 4096, 8192, 32768)]
        + [(64, 8, "bf16", b, n) for b, n in ((1, 4096), (16, 8192), (64, 4096))]
        + [(4, 1, "bf16", b, n) for b, n in ((16, 8192), (64, 8192))]
        + [(32, 8, "e4m3", b, n) for b, n in ((1, 4096), (16, 8192), (64, 4096), (256, 4096))]
    ):
        d, page_size, group = 128, 16, hq // heads
        pages = requests * length // page_size
        shape = Batch([1], page_size, heads, group, d, kv=kv)
        shape.lengths, shape.tokens = [length] * requests, requests
        shape.kv_indptr, shape.last_page_len = [i * length // page_size for i in range(requests + 1)], [page_size] * requests
        call = kernel("attn_decode_paged", T="bf16", D=d, GROUP=group, KV=kv)

        def make(pages=pages, requests=requests, hq=hq, heads=heads, kv=kv, shape=shape, call=call):
            caches = [
                torch.empty(pages, page_size, heads, d, device="cuda", dtype=torch.bfloat16).normal_().to(DTYPES[kv]) for _ in "kv"
            ]
            return (
                torch.empty(requests, hq, d, device="cuda", dtype=torch.bfloat16),
                normal(requests, hq, d),
                *caches,
                torch.randperm(pages, device="cuda").int(),
                *buffers(make_plan(call, shape)),
                torch.ones(1, device="cuda"),
            )

        def ours(o, q, k, v, indices, plan, workspace, scale, call=call, heads=heads, workers=make_plan(call, shape).workers):
            strides = (page_size * heads * d, heads * d, d)
            call(
                o,
                q,
                k,
                v,
                indices,
                plan,
                workspace,
                workers,
                heads,
                page_size,
                *o.stride()[:2],
                *q.stride()[:2],
                *strides,
                *strides,
                0.0,
                None,
                0.0,
                -1,
                None,
                *((scale, scale) if k.element_size() == 1 else (None, None)),
                0,
            )

        launches = {"kiln": ours}
        if kv == "bf16":  # SDPA's k and v are contiguous: ours are, too, when the pages are
            line = torch.arange(pages, device="cuda", dtype=torch.int32)
            launches["kiln, pages in a line"] = lambda o, q, k, v, _, *rest, ours=ours, line=line: ours(o, q, k, v, line, *rest)
            for label, backend in (("SDPA flash", "FLASH_ATTENTION"), ("SDPA cuDNN", "CUDNN_ATTENTION")):
                launches[label] = lambda o, q, k, v, *_, run=sdpa(backend), length=length: run(q, k, v, length)
            # SDPA needs a gather when the pages are scattered; for larger sizes there
            # is no memory for the copy.
            if requests * length <= 1 << 21:
                launches["gather, SDPA cuDNN"] = lambda o, q, k, v, indices, *_, run=sdpa("CUDNN_ATTENTION"), length=length: run(
                    q, k.index_select(0, indices), v.index_select(0, indices), length
                )
        for label, peer in peers.get("attn_decode_paged").items():
            launches[label] = lambda o, q, k, v, indices, *_, peer=peer, length=length: peer(o, q, k, v, indices, length)
        read = requests * length * heads * 2 * d * DTYPES[kv].itemsize + requests * hq * d * 2
        yield Row(
            f"attn_decode_paged bf16 B {requests} x kv {length} HQ {hq} HKV {heads} D 128" + ("" if kv == "bf16" else f" {kv}"),
            read,
            requests * hq * d * 2,
            make,
            launches,
            flops=4 * requests * length * hq * d,
            bar=0.85 if requests * length >= 65536 else 0.0,
            beats={"kiln, pages in a line": ("SDPA flash", "SDPA cuDNN"), "kiln": ("gather, SDPA cuDNN",)},
        )
