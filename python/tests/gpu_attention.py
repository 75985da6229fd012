"""Batched attention of variable lengths as one operator in compiled and captured graphs, against plain torch in double:

    python -m pytest -q python/tests/gpu_attention.py

plan() changes the lengths between calls; nothing is traced, recorded or compiled for them.
gpu_operators runs each operator in each way that engines use.
"""

import kiln.torch
import pytest
import torch
import torch._dynamo
import torch._dynamo.testing
import torch.nn.functional as F
from kiln.torch import PagedDecode, RaggedPrefill
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
