"""Batched attention of variable lengths as one operator in compiled and captured graphs, against plain torch in double:

    python -m pytest -q python/tests/gpu_attention.py

plan() changes the lengths between calls; nothing is traced, recorded or compiled for them.
gpu_operators runs each operator in each way that engines use.
"""

import random

import kiln.torch
import pytest
import torch
import torch._dynamo
import torch._dynamo.testing
import torch.nn.functional as F
from kiln.torch import Attention, PagedDecode, RaggedPrefill
from operator_references import attend

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
HEADS, KV_HEADS, SIZE, PAGE, PAGES, HIDDEN = 8, 2, 64, 16, 80, 512
DEVICE, DTYPE = "cuda", torch.bfloat16


def normal(*shape):
    return torch.randn(*shape, device=DEVICE).to(DTYPE)


def relative(got, expected):
    return ((got.double() - expected.double()).square().mean() / expected.double().square().mean().clamp(min=1e-30)).sqrt().item()


def indptr(lengths):
    out = [0]
    for n in lengths:
        out.append(out[-1] + n)
    return out


class Requests:
    """Lengths and pages of requests as an engine keeps them: scattered pages, and one
    page table of fixed size.
    """

    def __init__(self, lengths):
        self.lengths = list(lengths)
        self.free = torch.randperm(PAGES, generator=torch.Generator().manual_seed(5)).tolist()
        self.pages = [[] for _ in lengths]
        self.table = torch.zeros(PAGES, dtype=torch.int32, device=DEVICE)
        self.grow(0)

    def grow(self, by=1):
        for i, pages in enumerate(self.pages):
            self.lengths[i] += by
            while len(pages) * PAGE < self.lengths[i]:
                pages.append(self.free.pop())
        flat = [page for pages in self.pages for page in pages]
        self.table[: len(flat)] = torch.tensor(flat, dtype=torch.int32)

    def plan(self, attention):
        last = [n - (len(pages) - 1) * PAGE if pages else 0 for n, pages in zip(self.lengths, self.pages)]
        return attention.plan(indptr([len(pages) for pages in self.pages]), last_page_len=last)

    def inputs(self):
        """(positions, slots) of each request's last token."""
        positions = [n - 1 for n in self.lengths]
        slots = [pages[at // PAGE] * PAGE + at % PAGE for at, pages in zip(positions, self.pages)]
        return torch.tensor(positions, device=DEVICE), torch.tensor(slots, device=DEVICE)

    def rows(self, cache, i):
        return cache[torch.tensor(self.pages[i], device=DEVICE, dtype=torch.long)].flatten(0, 1)[: self.lengths[i]]


class Layer(torch.nn.Module):
    """q, k, v of the hidden state, rope, append to the caches, attention over them, output projection."""

    def __init__(self, requests):
        super().__init__()
        torch.manual_seed(2)

        def weight(*shape):
            return torch.nn.Parameter(normal(*shape) * shape[-1] ** -0.5, requires_grad=False)

        self.qkv, self.out = weight((HEADS + 2 * KV_HEADS) * SIZE, HIDDEN), weight(HIDDEN, HEADS * SIZE)
        self.attention = PagedDecode(
            heads=HEADS, kv_heads=KV_HEADS, head_size=SIZE, page_size=PAGE, max_requests=requests, dtype=DTYPE, device=DEVICE
        )
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, normal(PAGES, PAGE, KV_HEADS, SIZE))

    def forward(self, x, positions, slots, table):
        q, k, v = F.linear(x, self.qkv).view(-1, HEADS + 2 * KV_HEADS, SIZE).split([HEADS, KV_HEADS, KV_HEADS], 1)
        q, k = torch.ops.kiln.rope(q, k, positions)
        torch.ops.kiln.append_paged_kv(self.k_cache, self.v_cache, k, v, slots)
        o, _ = self.attention(q, self.k_cache, self.v_cache, table)
        return F.linear(o.flatten(1), self.out)

    def expected(self, x, requests):
        """The layer's result in plain torch, from the caches that the layer has written."""
        import operator_references as plain

        q, k, _ = F.linear(x, self.qkv).view(-1, HEADS + 2 * KV_HEADS, SIZE).split([HEADS, KV_HEADS, KV_HEADS], 1)
        (q, _), _ = plain.rope(q, k, requests.inputs()[0])
        rows = [
            attend(q[i : i + 1].to(DTYPE), requests.rows(self.k_cache, i), requests.rows(self.v_cache, i))[0]
            for i in range(len(requests.lengths))
        ]
        return torch.cat(rows).flatten(1) @ self.out.double().t()


@pytest.mark.parametrize(
    "options", [{}, {"mode": "reduce-overhead"}, {"dynamic": True}], ids=["fullgraph", "reduce-overhead", "dynamic"]
)
def test_a_compiled_layer_decodes_whatever_the_lengths(options):
    """30 steps of growing requests in one graph: traced once, and kiln compiles nothing after the first step."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    requests = Requests([3, 16, 200, 1, 90])
    layer = Layer(len(requests.lengths))
    compiled = torch.compile(layer, fullgraph=True, **options)
    stats = kiln.torch.service().stats
    after_first = None
    for step in range(30):
        requests.grow(1 if step % 10 else 40)
        requests.plan(layer.attention)
        x = normal(len(requests.lengths), HIDDEN)
        torch.compiler.cudagraph_mark_step_begin()
        got = compiled(x, *requests.inputs(), requests.table).clone()
        if step % 7 == 0:
            assert relative(got, layer.expected(x, requests)) < 1e-2, step
        after_first = after_first or (stats()["compiles"], torch._dynamo.utils.counters["stats"]["unique_graphs"])
    counters = torch._dynamo.utils.counters
    assert (stats()["compiles"], counters["stats"]["unique_graphs"]) == after_first and after_first[1] == 1
    assert not counters["graph_break"] and not counters["inductor"].get("cudagraph_skips", 0)


def test_a_captured_graph_replays_with_other_lengths():
    requests = Requests([5, 300, 40, 17])
    attention = PagedDecode(heads=HEADS, kv_heads=KV_HEADS, head_size=SIZE, page_size=PAGE, max_requests=4, device=DEVICE)
    q, k, v = normal(4, HEADS, SIZE), normal(PAGES, PAGE, KV_HEADS, SIZE), normal(PAGES, PAGE, KV_HEADS, SIZE)
    requests.plan(attention)
    attention(q, k, v, requests.table)  # warm-up
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = attention(q, k, v, requests.table)
    for by in (0, 1, 100, 3):
        requests.grow(by)
        requests.plan(attention)
        q.copy_(normal(*q.shape))
        filler = torch.full((1 << 22,), -1, dtype=torch.int32, device=DEVICE)  # overwrites free memory
        graph.replay()
        want = [attend(q[i : i + 1], requests.rows(k, i), requests.rows(v, i)) for i in range(4)]
        assert relative(o, torch.cat([w[0] for w in want])) < 4e-3 and relative(lse, torch.cat([w[1] for w in want])) < 1e-4, by
        del filler


def test_fewer_requests_than_the_graph_has_rows():
    """In a padded batch, rows after the plan's last token are not written."""
    attention = PagedDecode(heads=HEADS, kv_heads=KV_HEADS, head_size=SIZE, page_size=PAGE, max_requests=8, device=DEVICE)
    requests = Requests([50, 7, 0])
    requests.plan(attention)
    q, k, v = normal(8, HEADS, SIZE), normal(PAGES, PAGE, KV_HEADS, SIZE), normal(PAGES, PAGE, KV_HEADS, SIZE)
    o, lse = attention(q, k, v, requests.table)
    want = [attend(q[i : i + 1], requests.rows(k, i), requests.rows(v, i)) for i in range(2)]
    assert relative(o[:2], torch.cat([w[0] for w in want])) < 4e-3
    assert bool((o[2] == 0).all()) and bool((lse[2] == -float("inf")).all()), "a request without tokens"


def test_prompts_of_any_number_of_tokens_are_two_graphs():
    """dynamic=None: the first graph has the first batch's sizes, the second takes any.
    Lengths and requests vary.
    """
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    attention = RaggedPrefill(heads=HEADS, kv_heads=KV_HEADS, head_size=SIZE, max_requests=8, max_tokens=1024, device=DEVICE)
    compiled = torch.compile(lambda q, k, v: attention(q * 2, k, v)[0] + 1, backend=counter, fullgraph=True)
    for lengths in ([(17, 17), (130, 130)], [(5, 300), (64, 64), (1, 90)], [(256, 256)], [(3, 3), (0, 10), (100, 101), (33, 33)]):
        qo, kv = [a for a, _ in lengths], [b for _, b in lengths]
        q, k, v = normal(sum(qo), HEADS, SIZE), normal(sum(kv), KV_HEADS, SIZE), normal(sum(kv), KV_HEADS, SIZE)
        attention.plan(indptr(qo), indptr(kv))
        got = compiled(q, k, v)
        parts = [attend((q[a : a + n] * 2), k[b : b + m], v[b : b + m])[0] for a, n, b, m in zip(indptr(qo), qo, indptr(kv), kv)]
        assert relative(got, torch.cat(parts) + 1) < 6e-3, lengths
    assert counter.frame_count == 2


def test_two_streams_with_a_plan_each():
    requests = [Requests([50, 700]), Requests([3, 5])]
    modules = [
        PagedDecode(heads=HEADS, kv_heads=KV_HEADS, head_size=SIZE, page_size=PAGE, max_requests=2, device=DEVICE) for _ in requests
    ]
    q, k, v = normal(2, HEADS, SIZE), normal(PAGES, PAGE, KV_HEADS, SIZE), normal(PAGES, PAGE, KV_HEADS, SIZE)
    want = []
    for r, attention in zip(requests, modules):
        r.plan(attention)
        want.append(attention(q, k, v, r.table)[0])
    torch.cuda.synchronize()
    streams, got = [torch.cuda.Stream() for _ in requests], [[], []]
    for _ in range(10):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                requests[i].plan(modules[i])
                got[i].append(modules[i](q, k, v, requests[i].table)[0])
    torch.cuda.synchronize()
    for results, expected in zip(got, want):
        assert all(torch.equal(each, expected) for each in results)


def test_a_plan_inside_of_a_capture_is_refused():
    requests, caught = Requests([5]), []
    attention = PagedDecode(heads=HEADS, kv_heads=KV_HEADS, head_size=SIZE, page_size=PAGE, max_requests=1, device=DEVICE)
    torch.cuda.synchronize()
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(4, device=DEVICE)
    with torch.cuda.graph(graph):
        y = x + 1
        try:
            requests.plan(attention)
        except kiln.Error as error:
            caught.append(str(error))
    assert caught and "while a stream captures" in caught[0]
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, x + 1)


def test_parts_of_a_shared_prefix_merge_to_the_whole():
    """Prefill over the prefix and prefill over the own tokens, merged by attn_merge, equal prefill over both."""
    rows, prefix, own = 40, 300, 40
    q, k, v = normal(rows, HEADS, SIZE), normal(prefix + own, KV_HEADS, SIZE), normal(prefix + own, KV_HEADS, SIZE)
    limits = {"heads": HEADS, "kv_heads": KV_HEADS, "head_size": SIZE, "max_requests": 1, "max_tokens": rows, "device": DEVICE}
    over_prefix, over_own, whole = RaggedPrefill(causal=False, **limits), RaggedPrefill(**limits), RaggedPrefill(**limits)
    over_prefix.plan([0, rows], [0, prefix])
    over_own.plan([0, rows], [0, own])
    whole.plan([0, rows], [0, prefix + own])

    def merged(q, k, v):
        one, other = over_prefix(q, k[:prefix], v[:prefix]), over_own(q, k[prefix:], v[prefix:])
        return torch.ops.kiln.attn_merge(torch.stack([one[0], other[0]], 1), torch.stack([one[1], other[1]], 1))

    got, lse = torch.compile(merged, fullgraph=True)(q, k, v)
    expected, expected_lse = whole(q, k, v)
    assert relative(got, expected) < 6e-3 and relative(lse, expected_lse) < 1e-4


class Batch:
    """Random lengths of requests, whose keys and values are rows that follow each other, or scattered pages."""

    def __init__(self, draw, requests, most_q, paged, kv_heads=KV_HEADS, dtype=DTYPE):
        self.kv = [draw.choice([1, PAGE, draw.randint(1, 60), draw.randint(1, 900)]) for _ in range(requests)]
        self.q = [min(n, draw.choice([1, draw.randint(0, 4), draw.randint(1, most_q)]) if most_q > 1 else 1) for n in self.kv]
        self.paged, pages = paged, [-(-n // PAGE) for n in self.kv]
        rows = pages if paged else self.kv
        self.kv_indptr, self.qo_indptr = indptr(rows), indptr(self.q)
        shape = (sum(pages) + 3, PAGE) if paged else (sum(self.kv),)
        self.k, self.v = (normal(*shape, kv_heads, SIZE).to(dtype) for _ in range(2))
        order = torch.randperm(sum(pages) + 3, generator=torch.Generator().manual_seed(draw.randint(0, 99)))
        self.pages = order[: sum(pages)].int().to(DEVICE)
        self.query = normal(sum(self.q), HEADS, SIZE)

    def lengths(self, to=list):
        """The arguments of plan() and plan_on_device()."""
        return {"kv_indptr": to(self.kv_indptr), "kv_len": to(self.kv), "qo_indptr": to(self.qo_indptr)}

    def arguments(self):
        return (self.query, self.k, self.v, self.pages) if self.paged else (self.query, self.k, self.v)

    def rows(self, cache, i):
        begin, end = self.kv_indptr[i : i + 2]
        return (cache[self.pages[begin:end].long()].flatten(0, 1) if self.paged else cache[begin:end])[: self.kv[i]]

    def expected(self, **masks):
        ends = zip(self.qo_indptr, self.qo_indptr[1:])
        parts = [attend(self.query[a:b], self.rows(self.k, i), self.rows(self.v, i), **masks) for i, (a, b) in enumerate(ends)]
        return [torch.cat(results) for results in zip(*parts)]

    def assert_right(self, results, **masks):
        for got, expected, allowed in zip(results, self.expected(**masks), (5e-3, 1e-4)):
            assert relative(got[: expected.shape[0]], expected) < allowed


def i32(values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def module(requests, tokens, paged=True, **more):
    limits = {"max_requests": requests, "max_tokens": tokens, "page_size": PAGE if paged else 0, "device": DEVICE}
    return Attention(heads=HEADS, kv_heads=KV_HEADS, head_size=SIZE, **limits, **more)


@pytest.mark.parametrize("template", ["", "attn_prefill"])
@pytest.mark.parametrize("masks", ["causal", "left", "right", "both", "cap", "sinks"])
@pytest.mark.parametrize("paged", [False, True], ids=["ragged", "paged"])
def test_attention_of_prompts_chunks_and_steps(paged, masks, template):
    """Batches of one token each, of a few tokens and of prompts go through one module, with plans of the host and of the device."""
    draw = random.Random(f"{paged} {masks}")
    sinks = torch.randn(HEADS, device=DEVICE) * 3 if masks == "sinks" else None
    options = {
        "causal": {},
        "left": {"window_left": 40},
        "right": {"causal": False, "window_right": 5},
        "both": {"causal": False, "window_left": 30, "window_right": 11},
        "cap": {"soft_cap": 7.0, "sm_scale": 0.3},
        "sinks": {},
    }[masks]
    attention = module(9, 4000, paged, sinks=sinks is not None, template=template, **options)
    kernels = set()
    for most_q in (1, 4, 400, 1, 60):
        batch = Batch(draw, 9, most_q, paged)
        masked, more = ({"sinks": sinks} | options, {"sinks": sinks}) if sinks is not None else (options, {})
        attention.plan(**batch.lengths())
        kernels.add(attention.kernel)
        results = attention(*batch.arguments(), **more)
        batch.assert_right(results, **masked)
        out, kernel, on_device = torch.zeros_like(results[0]), attention.kernel, batch.lengths(i32)
        if kernel == "attn_decode_paged":
            del on_device["qo_indptr"]  # else the host would not know that each request has one token, and take the other kernel
        attention.plan_on_device(**on_device)
        assert attention.kernel == kernel
        again = attention(*batch.arguments(), out=out, **more)
        assert again[0] is out and torch.equal(out, results[0]) and torch.equal(again[1], results[1])
    assert len(kernels) == (2 if paged and sinks is None else 1)


def test_attention_over_caches_in_fp8():
    attention = module(9, 400, kv_dtype=torch.float8_e4m3fn)
    scales = {"k_scale": torch.full((1,), 0.5, device=DEVICE), "v_scale": torch.full((1,), 2.0, device=DEVICE)}
    for most_q in (1, 30):
        batch = Batch(random.Random(most_q), 9, most_q, True, dtype=torch.float8_e4m3fn)
        attention.plan(**batch.lengths())
        o, lse = attention(*batch.arguments(), **scales)
        batch.k, batch.v = batch.k.float() * 0.5, batch.v.float() * 2
        batch.assert_right((o, lse))


@pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no Hopper")
@pytest.mark.parametrize("paged", [False, True], ids=["ragged", "paged"])
def test_attention_of_codes(paged):
    """q, k and v in fp8, each with a scale for each kv head: prompts, chunks and steps, with plans of the host and of the device."""
    e4m3 = torch.float8_e4m3fn
    attention = module(9, 4000, paged, q_dtype=e4m3, kv_dtype=e4m3)
    scales = {f"{x}_scale": torch.rand(KV_HEADS, device=DEVICE) + 0.5 for x in "qkv"}
    for most_q in (1, 4, 400):
        batch = Batch(random.Random(most_q), 9, most_q, paged, dtype=e4m3)
        batch.query = batch.query.to(e4m3)
        attention.plan(**batch.lengths())
        o, lse = attention(*batch.arguments(), **scales)
        attention.plan_on_device(**batch.lengths(i32))
        out = torch.zeros_like(o)
        again = attention(*batch.arguments(), out=out, **scales)
        assert torch.equal(out, o) and torch.equal(again[1], lse)
        batch.query = batch.query.double() * scales["q_scale"].double().repeat_interleave(HEADS // KV_HEADS)[:, None]
        batch.k, batch.v = (
            batch.k.double() * scales["k_scale"].double()[:, None],
            batch.v.double() * scales["v_scale"].double()[:, None],
        )
        expected, expected_lse = batch.expected()
        assert o.dtype == DTYPE and relative(o[: len(expected)], expected) < 5e-3
        # The tensor cores sum the products with about 14 bits: tests/templates/attention_fp8 derives how far lse may be off.
        assert (lse[: len(expected)].double() - expected_lse).square().mean().sqrt().item() < 1e-3


@pytest.mark.parametrize("most_q", [1, 200])
def test_a_captured_attention_replays_with_lengths_of_the_device(most_q):
    """Lengths, pages and queries change between replays, and the host makes no plan."""
    draw, attention = random.Random(most_q), module(12, 2400)
    q, kv = (
        torch.zeros(2400 if most_q > 1 else 12, HEADS, SIZE, device=DEVICE, dtype=DTYPE),
        [normal(900, PAGE, KV_HEADS, SIZE) for _ in "kv"],
    )
    table = torch.zeros(900, dtype=torch.int32, device=DEVICE)
    lengths = Batch(draw, 12, most_q, True).lengths(i32)
    if most_q == 1:
        del lengths["qo_indptr"]

    def step():
        attention.plan_on_device(**lengths)
        return attention(q, *kv, table)

    for _ in range(2):
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = step()
    for _ in range(6):
        batch = Batch(draw, 12, most_q, True)
        for name, values in lengths.items():
            values.copy_(i32(batch.lengths()[name]))
        for all, part in ((q, batch.query), (table, batch.pages), (kv[0], batch.k), (kv[1], batch.v)):
            all[: part.shape[0]] = part
        o.fill_(7)
        graph.replay()
        batch.assert_right((o, lse))
    assert kiln.torch.service().device_faults() == []


def test_a_graph_whose_plan_was_ended_gives_zeros_and_a_fault():
    draw, attention = random.Random(4), module(6, 600)
    step, prompts = Batch(draw, 6, 1, True), Batch(draw, 6, 90, True)
    attention.plan(**step.lengths())
    attention(*step.arguments())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = attention(*step.arguments())
    graph.replay()
    step.assert_right((o, lse))
    kiln.torch.service().device_faults()
    attention.plan(**prompts.lengths())
    prompts.assert_right(attention(*prompts.arguments()))
    graph.replay()
    torch.cuda.synchronize()
    assert not o.any() and bool((lse == -torch.inf).all())
    assert [f.template for f in kiln.torch.service().device_faults()] == ["attn_decode_paged"]
    attention.plan(**step.lengths())
    graph.replay()
    step.assert_right((o, lse))


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_compiled_attention_plans_on_the_device_and_writes_where_it_is_told(mode):
    draw, attention = random.Random(5), module(8, 1000)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    pool = [normal(600, PAGE, KV_HEADS, SIZE) for _ in "kv"]

    def step(q, k, v, table, kv_indptr, kv_len, qo_indptr):
        attention.plan_on_device(kv_indptr, kv_len=kv_len, qo_indptr=qo_indptr)
        buffer = torch.zeros_like(q)
        attention(q * 2, k, v, table, out=buffer)
        return buffer + 1

    compiled = torch.compile(step, fullgraph=True, mode=mode)
    for _ in range(5):
        batch = Batch(draw, 8, 60, True)
        q, table = torch.zeros(480, HEADS, SIZE, device=DEVICE, dtype=DTYPE), torch.zeros(600, device=DEVICE, dtype=torch.int32)
        for all, part in ((q, batch.query), (table, batch.pages), (pool[0], batch.k), (pool[1], batch.v)):
            all[: part.shape[0]] = part
        torch.compiler.cudagraph_mark_step_begin()
        got = compiled(q, *pool, table, **batch.lengths(i32)).clone()
        batch.query = batch.query * 2
        expected = batch.expected()[0] + 1
        assert relative(got[: expected.shape[0]], expected) < 6e-3
        assert bool((got[expected.shape[0] :] == 1).all()), "rows after the plan's last token are not written"
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] == 1 and not counters["inductor"].get("cudagraph_skips", 0)


def test_time_of_one_token_each():
    """Prints what a step of one token costs on each of the two kernels, and what a mixed batch costs in one call and in two."""

    def timed(call):
        call()
        torch.cuda.synchronize()
        graph, best = torch.cuda.CUDAGraph(), 1e9
        with torch.cuda.graph(graph):
            for _ in range(20):
                call()
        for _ in range(7):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            graph.replay()
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            best = min(best, begin.elapsed_time(end) * 50)
        return best

    shape = {"heads": 32, "kv_heads": 8, "head_size": 128, "page_size": PAGE, "device": DEVICE}

    def prepared(kind, q, kv):
        attention, pages = kind(max_requests=len(q), max_tokens=sum(q), **shape), [n // PAGE for n in kv]
        lengths = {"kv_indptr": indptr(pages), "kv_len": kv, "qo_indptr": indptr(q)}
        attention.plan(**lengths)
        query, (k, v) = normal(sum(q), 32, 128), (normal(sum(pages), PAGE, 8, 128) for _ in "kv")
        table = torch.randperm(sum(pages), device=DEVICE).int()
        return lambda: attention(query, k, v, table)

    for requests, length in ((1, 4096), (16, 1024), (16, 8192), (64, 4096), (256, 1024)):
        q, kv = [1] * requests, [length] * requests
        one, many = timed(prepared(PagedDecode, q, kv)), timed(prepared(RaggedPrefill, q, kv))
        print(f"\ntime {requests} x {length}: decode {one:.1f} us, any number of tokens {many:.1f} us, {many / one:.2f}", end="")
    for prompt in (512, 2048):
        steps, kv = [1] * 64, [4096] * 64
        both = timed(prepared(Attention, [prompt, *steps], [prompt, *kv]))
        first, second = prepared(Attention, [prompt], [prompt]), prepared(Attention, steps, kv)
        parts = timed(lambda: (first(), second()))
        print(f"\ntime mixed, a prompt of {prompt} and 64 x 4096: one call {both:.1f} us, two calls {parts:.1f} us", end="")
