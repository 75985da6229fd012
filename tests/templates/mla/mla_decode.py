"""mla_decode against float64: heads, tokens, pages, parts and masks; and its time beside the stream, the tensor cores and peers.

Caches are NaN where no token lies, above all after the end of a last page. Peers (harness.peers) are called as
(out, q, kv_cache, kv_indices, requests, length), with pages of 64 tokens.
"""

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

CAPABILITY = 9  # wgmma
SANITIZE = [
    "mla_decode T=bf16 HEADS=16 pages=60 requests=5 workers=40",
    "mla_decode T=bf16 HEADS=128 pages=40 requests=3 qo_tokens=7 workers=34",
    "mla_decode T=bf16 HEADS=16 KV=e4m3 pages=60 requests=5 workers=40",
    "mla_decode T=f16 HEADS=24 CAUSAL=false pages=300 page_size=8 requests=4 qo_tokens=9 workers=20",
]
TOLERANCE = {"f16": 1e-3, "bf16": 4e-3}
KEYS, VALUES, BYTES = 576, 512, 656
SCALE = 192**-0.5
MIXED = [(1, 77), (4, 300), (0, 40), (2, 130), (3, 0), (1, 1), (1, 0), (3, 1193), (1, 64), (2, 128), (4, 3)]


def quantised(rows):
    """Rows of 656 bytes, and what they stand for: codes times their scale, rounded to the type of `rows`."""
    groups = rows[:, :VALUES].float().view(len(rows), 4, 128)
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 448
    codes = (groups / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    parts = (codes.flatten(1), scale.flatten(1), rows[:, VALUES:])
    means = (codes.float() * scale).to(rows.dtype).flatten(1)
    return torch.cat([x.contiguous().view(torch.uint8) for x in parts], 1), torch.cat([means, rows[:, VALUES:]], 1)


class Batch:
    """Requests of (query tokens, kv tokens) in scattered pages."""

    def __init__(
        self, lengths, heads=128, dtype="bf16", causal=True, page_size=64, sm_scale=SCALE, q_scale=1.0, pad=0, kv=None, **parameters
    ):
        self.lengths, self.heads, self.dtype, self.causal = list(lengths), heads, dtype, causal
        self.page_size, self.sm_scale, self.kv, self.more = page_size, sm_scale, kv or dtype, parameters
        pages_of = [-(-n // page_size) for _, n in self.lengths]
        self.kv_indptr = [0, *itertools.accumulate(pages_of)]
        self.qo_indptr = [0, *itertools.accumulate(n for n, _ in self.lengths)]
        self.kv_len = [n for _, n in self.lengths]
        self.pages = self.kv_indptr[-1] + 3
        self.kv_indices = torch.randperm(self.pages, device="cuda")[: max(1, self.kv_indptr[-1])].int()
        tokens = self.qo_indptr[-1]
        q = torch.full((tokens, heads + pad, KEYS + 8 * pad), math.nan, device="cuda", dtype=DTYPES[dtype])
        self.q = q[:, :heads, :KEYS].copy_(normal(tokens, heads, KEYS, dtype=dtype, scale=q_scale))
        row = BYTES if self.kv == "e4m3" else 2 * KEYS
        # NaN as codes, as scales and as elements
        cache = torch.full((self.pages, page_size + pad, 1, row + 16 * pad), 255, device="cuda", dtype=torch.uint8)
        self.bytes = cache[:, :page_size, :, :row]
        self.cache = cache.view(DTYPES[self.kv])[:, :page_size, :, : row // DTYPES[self.kv].itemsize]
        self.rows = [normal(n, KEYS, dtype=dtype) for n in self.kv_len]
        self.fill()
        strides = ((heads + pad) * (VALUES + 8 * pad), VALUES + 8 * pad, 1)
        self.guards = [Guarded(tokens, heads, VALUES, dtype=dtype, strides=strides), Guarded(tokens, heads, dtype="f32")]
        self.out, self.lse = (g.view for g in self.guards)

    def fill(self):
        """Writes the rows of all requests to their pages. With fp8, `rows` become what the codes stand for."""
        for i, (begin, rows) in enumerate(zip(self.kv_indptr, self.rows)):
            at = torch.arange(len(rows), device="cuda")
            stored = rows.contiguous().view(torch.uint8)
            if self.kv == "e4m3":
                stored, self.rows[i] = quantised(rows)
            self.bytes[self.kv_indices[begin + at // self.page_size].long(), at % self.page_size, 0] = stored

    @property
    def parameters(self):
        return dict(T=self.dtype, HEADS=self.heads, CAUSAL=self.causal, KV=self.kv, **self.more)

    def kernel(self):
        return kernel("mla_decode", **self.parameters)

    def plan(self, workers=0, max_tokens=0):
        groups = -(-self.heads // 64)
        made = AttentionPlan(self.kernel(), len(self.lengths), groups, max(max_tokens, self.qo_indptr[-1]), workers)
        return self.replan(made)

    def replan(self, plan):
        return plan(self.kv_indptr, self.qo_indptr, self.kv_len, page_size=self.page_size)

    def launch(self, plan, lse=True):
        self.kernel()(*self.arguments(plan, lse))

    def arguments(self, plan, lse=True):
        return (
            self.out,
            self.q,
            self.cache,
            self.kv_indices,
            plan.words,
            plan.workspace,
            plan.workers,
            self.pages,
            self.page_size,
            *self.out.stride()[:2],
            *self.q.stride()[:2],
            *self.cache.stride()[:2],
            self.sm_scale,
            self.lse if lse else None,
        )

    def reference(self):
        """o and lse (base 2) in float64."""
        out = torch.zeros(*self.q.shape[:2], VALUES, device="cuda", dtype=torch.float64)
        lse = torch.full(self.q.shape[:2], -math.inf, device="cuda", dtype=torch.float64)
        for r, (qo_len, kv_len) in enumerate(self.lengths):
            if not qo_len or not kv_len:
                continue
            own = slice(self.qo_indptr[r], self.qo_indptr[r] + qo_len)
            rows = self.rows[r].double()
            x = torch.einsum("thd,kd->thk", self.q[own].double(), rows) * self.sm_scale
            if self.causal:
                last = torch.arange(qo_len, device="cuda") + kv_len - qo_len
                x.masked_fill_(torch.arange(kv_len, device="cuda") > last[:, None, None], -math.inf)
            sums = torch.logsumexp(x, -1)
            lse[own] = sums / math.log(2)
            out[own] = torch.exp(x - sums.nan_to_num(neginf=0.0)[..., None]) @ rows[:, :VALUES]
        return out, lse

    def expect(self, what=""):
        out, lse = self.reference()
        what = f"{what} {self.parameters} pages of {self.page_size} {self.lengths if len(self.lengths) < 12 else len(self.lengths)}"
        expect_close(self.lse, lse, 1e-4, f"{what} lse")
        error = expect_close(self.out, out, TOLERANCE[self.dtype], what)
        unseen = lse == -math.inf
        assert bool((self.out[unseen] == 0).all()) and bool((self.lse[unseen] == -math.inf).all()), f"{what}: rows that see nothing"
        for guard in self.guards:
            guard.check(what)
        return error


def check(lengths, what="", workers=0, **how):
    batch = Batch(lengths, **how)
    batch.launch(batch.plan(workers))
    return batch.expect(what)


def check_all(cases):
    """Checks all cases (lengths, options), whose kernels compile in parallel. Returns the worst error."""
    for lengths, how in cases:
        prefetch("mla_decode", **Batch(lengths[:1], **how).parameters)
    return f"{len(cases)} cases, worst {max(check(lengths, **how) for lengths, how in cases)}"


def test_heads():
    return check_all([(MIXED, dict(heads=h)) for h in (1, 8, 16, 24, 33, 64, 66, 96, 128)])


def test_lengths():
    for n, kv in itertools.product((1, 2, 31, 63, 64, 65, 127, 128, 129, 191, 192, 193, 1000, 4097, 20000), ("bf16", "e4m3")):
        check([(1, n)], kv=kv)
        check([(2, n), (1, n + 1)], heads=16, kv=kv)


def test_tokens_and_masks():
    cases = []
    for causal, heads in itertools.product((True, False), (16, 64, 128)):
        cases.append(([(t, 300 + t) for t in (1, 2, 3, 4)] + [(4, 2), (3, 1), (2, 0)], dict(causal=causal, heads=heads)))
        cases.append(([(70, 1000)], dict(causal=causal, heads=heads)))
    return check_all(cases)


def test_pages():
    cases = [(MIXED, dict(heads=16, page_size=p)) for p in (8, 16, 24, 32, 48, 64, 96, 128, 256)]
    return check_all(cases + [(MIXED, dict(heads=16, page_size=p, kv="e4m3")) for p in (1, 5, 16, 63, 64, 96)])


def test_strides():
    return check_all([(MIXED, dict(heads=h, pad=p, kv=kv)) for h, p, kv in ((16, 1, "bf16"), (128, 2, "bf16"), (16, 1, "e4m3"))])


def test_strides_beyond_31_bits():
    for kv, row in (("bf16", KEYS), ("e4m3", BYTES)):
        stride = (1 << 31) + 64
        b = Batch([(1, 100)], heads=16, kv=kv)
        far = Guarded(2, 64, 1, row, dtype=kv, strides=(stride, row, row, 1))
        b.pages, b.cache, b.kv_indices = 2, far.view, torch.tensor([1, 0], device="cuda", dtype=torch.int32)
        stored = b.rows[0]
        if kv == "e4m3":
            stored, b.rows[0] = quantised(stored)
        for page, rows in ((1, stored[:64]), (0, stored[64:])):
            far.bits[page, : len(rows), 0] = rows.view(far.bits.dtype)
        b.launch(b.plan())
        b.expect(f"far pages {kv}")


def test_types():
    return check_all([(MIXED, dict(heads=h, dtype="f16", kv=kv)) for h, kv in ((16, "f16"), (128, "f16"), (16, "e4m3"))])


def test_fp8_rows():
    cases = [(MIXED, dict(heads=h, kv="e4m3")) for h in (16, 64, 128)]
    return check_all(cases + [([(t, 300 + t) for t in (1, 2, 3, 4)] + [(4, 2), (2, 0)], dict(heads=128, kv="e4m3"))])


def test_large_logits():
    for heads in (16, 128):
        check([(2, 600), (1, 1000)], heads=heads, q_scale=100.0)
        b = Batch([(1, 300), (3, 70)], heads=heads, sm_scale=1.0)
        # Equal logits of -9e4 for all tokens: the result is the mean of the rows that are seen.
        b.q.fill_(-12.5)
        b.rows = [torch.full_like(rows, 12.5) for rows in b.rows]
        b.fill()
        b.launch(b.plan())
        b.expect("logits of -9e4")


def test_mixtures():
    draw = random.Random(5)
    for requests, heads, kv in ((12, 128, "bf16"), (128, 16, "bf16"), (200, 64, "bf16"), (128, 16, "e4m3")):
        lengths = [(draw.randint(0, 4), int(3001 ** draw.random()) - 1) for _ in range(requests)]
        for workers in (0, 1, 7, 1000):
            check(lengths, heads=heads, workers=workers, kv=kv)
    check([(0, 0), (0, 9)])
    check([(1, 3)] * 300, heads=16)


def test_without_lse_and_with_another_scale():
    b = Batch(MIXED, heads=16, sm_scale=0.3)
    b.launch(b.plan(), lse=False)
    assert bool(b.lse.isnan().all())
    expect_close(b.out, b.reference()[0], TOLERANCE["bf16"])


def test_parts_agree_and_runs_give_the_same_bits():
    parts = 0
    cases = ((16, [(4, 5000)]), (128, [(1, 9000), (2, 700)]), (64, [(1, 30000)] * 3), (24, MIXED))
    for (heads, lengths), kv in itertools.product(cases, ("bf16", "e4m3")):
        b = Batch(lengths, heads=heads, kv=kv)
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
        expect_close(split, b.out, TOLERANCE["bf16"], "parts against none")  # both are rounded
        b.expect("unsplit")
        for workers in (2, 7, 64, 1000):
            b.launch(b.plan(workers=workers))
            b.expect(f"{workers} workers")
    assert parts > 20
    return f"{parts} parts"


def test_a_graph_replays_after_a_new_plan():
    b = Batch([(1, 700), (2, 333)], heads=16)
    plan = b.plan()
    b.launch(plan)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        b.launch(plan)
    for lengths in ([(1, 700), (2, 300)], [(2, 100), (1, 5)], [(1, 0), (2, 333)]):
        b.lengths, b.rows = lengths, [rows[:n] for rows, (_, n) in zip(b.rows, lengths)]
        b.qo_indptr, b.kv_len = [0, *itertools.accumulate(n for n, _ in lengths)], [n for _, n in lengths]
        b.rows = [normal(n, KEYS) for n in b.kv_len]
        b.bytes.fill_(255)
        b.fill()
        b.replan(plan)
        b.out.fill_(math.nan)
        graph.replay()
        out, lse = b.reference()
        expect_close(b.out, out, TOLERANCE["bf16"], f"{lengths}")
        expect_close(b.lse, lse, 1e-4, f"{lengths} lse")


def test_what_is_refused():
    b = Batch([(1, 5)], heads=16)
    plan = b.plan()
    good = list(b.arguments(plan))

    def refused(at, value, *words):
        changed = list(good)
        changed[at] = value
        expect_refused(lambda: b.kernel()(*changed), *words)

    expect_refused(lambda: kernel("mla_decode", T="bf16", HEADS=129), "HEADS", "129")
    expect_refused(lambda: kernel("mla_decode", T="bf16", HEADS=65), "HEADS = 65", "even")
    refused(6, 0, "workers = 0")
    refused(7, -1, "pages = -1")
    refused(8, 20, "page_size = 20", "multiple of 8")
    expect_refused(lambda: kernel("mla_decode", T="bf16", HEADS=16, KV="f16"), "KV", "e4m3")
    refused(9, 12, "strides", "12")
    refused(15, 0.0, "sm_scale = 0", "above 0")
    refused(2, None, "kv_cache")


OTHER_PLAN = """
import mla_decode as module
b = module.Batch([(1, 300)], **%r)
plan = module.Batch([(1, 300)], **%r).plan(workers=9)
plan.workers -= %r
b.launch(plan)
"""


def test_a_plan_for_something_else_ends_the_launch():
    # Each case is (the launch's options, the plan's options, blocks that the grid lacks, traps).
    cases = [
        ({}, {}, 0, False),
        ({}, {"causal": False}, 0, True),
        ({}, {"heads": 64}, 0, True),
        ({"heads": 16}, {"heads": 17}, 0, True),
        ({}, {}, 1, True),
    ]
    expect_traps(OTHER_PLAN, cases)


def bench_row(requests, length, heads, tokens=1, **more):
    pages = requests * length // 64
    shape = Batch([(tokens, 1)], heads=heads, **more)
    shape.lengths, shape.kv_len = [(tokens, length)] * requests, [length] * requests
    shape.qo_indptr = [i * tokens for i in range(requests + 1)]
    shape.kv_indptr = [i * length // 64 for i in range(requests + 1)]
    call = shape.kernel()

    def make():
        b = Batch([(tokens, 1)], heads=heads, **more)
        b.pages, b.q = pages, normal(requests * tokens, heads, KEYS)
        b.out = torch.empty(requests * tokens, heads, VALUES, device="cuda", dtype=torch.bfloat16)
        b.cache = torch.empty(pages, 64, 1, KEYS, device="cuda", dtype=torch.bfloat16).normal_()
        if b.kv == "e4m3":
            b.cache = quantised(b.cache.view(-1, KEYS))[0].view(torch.float8_e4m3fn).view(pages, 64, 1, BYTES)
        b.kv_indices = torch.randperm(pages, device="cuda").int()
        plan = shape.plan()
        return b.out, b.q, b.cache, b.kv_indices, plan.words, plan.workspace, b, plan

    launches = {"kiln": lambda *x: call(*x[6].arguments(x[7], lse=False))}
    for label, peer in peers.get("mla_decode").items() if shape.kv == "bf16" else ():
        launches[label] = lambda out, q, cache, indices, *_, peer=peer: peer(out, q, cache, indices, requests, length)
    flops = 2 * requests * tokens * length * heads * (KEYS + VALUES)
    return Row(
        f"mla_decode bf16 B {requests} x kv {length} H {heads}"
        + (f" {tokens} tokens" if tokens > 1 else "")
        + (" e4m3" if shape.kv == "e4m3" else ""),
        requests * length * (BYTES if shape.kv == "e4m3" else 2 * KEYS) + requests * tokens * heads * KEYS * 2,
        requests * tokens * heads * VALUES * 2,
        make,
        launches,
        flops=flops,
        bar=0.0,
    )


def bench():
    for heads, requests, length, tokens in (
        *((h, b, n, 1) for h in (16, 128) for b, n in ((1, 1024), (1, 8192), (16, 8192), (128, 1024), (128, 4096))),
        (64, 128, 4096, 1),
        (16, 128, 4096, 4),
        (128, 32, 4096, 2),
    ):
        yield bench_row(requests, length, heads, tokens)
    for heads in (16, 128):
        yield bench_row(128, 4096, heads, kv="e4m3")
