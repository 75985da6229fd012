"""Plans that the device writes: the words of the host, in captured graphs too, and how long they take.

python -m pytest -q -s python/tests/gpu_work_list.py
"""

import random

import attention_cases
import kiln.torch
import pytest
import torch
from kiln.torch import LatentDecode, PagedDecode, RaggedPrefill
from unmapped import EndOfMemory

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
PAGE = 16


def i32(values):
    return torch.tensor(values, dtype=torch.int32, device="cuda")


class Batch:
    """Random lengths of a batch. A seventh of the requests is empty, and some have one token."""

    def __init__(self, draw, requests, most_q, most_kv):
        def length(most):
            return draw.choice(
                [0, 1, most, draw.randint(1, most), draw.randint(1, most), draw.randint(1, most), draw.randint(1, most)]
            )

        self.q = [length(most_q) for _ in range(requests)]
        self.kv = [length(most_kv) for _ in range(requests)]

    @property
    def pages(self):
        return [-(-n // PAGE) for n in self.kv]


def decode(requests, tokens=0, **more):
    options = {"heads": 32, "kv_heads": 8, "head_size": 128, "page_size": PAGE} | more
    return PagedDecode(max_requests=requests, max_tokens=tokens, **options)


def prefill(requests, tokens, **more):
    options = {"heads": 32, "kv_heads": 8, "head_size": 128} | more
    return RaggedPrefill(max_requests=requests, max_tokens=tokens, **options)


def plan(module, batch, several=True):
    """The arguments of plan(), by name."""
    if isinstance(module, RaggedPrefill):
        return {"qo_indptr": attention_cases.indptr(batch.q), "kv_indptr": attention_cases.indptr(batch.kv)}
    lengths = {"kv_indptr": attention_cases.indptr(batch.pages), "kv_len": batch.kv}
    return lengths | ({"qo_indptr": attention_cases.indptr(batch.q)} if several else {})


def on_device(lengths):
    return {name: i32(values) for name, values in lengths.items()}


@pytest.mark.parametrize("kind", ["decode", "tokens", "prefill", "full", "window", "right", "both"])
def test_words_are_those_of_the_host(kind):
    draw = random.Random(kind)
    for round in range(60):
        requests = draw.choice([1, 3, 17, 256, 700])
        most_q, most_kv = draw.choice([(1, 300), (4, 9000), (200, 200), (3000, 5000)])
        if requests > 100:
            most_q = min(most_q, 200)
        if kind not in ("decode", "tokens"):  # the host hands out in waves what does not fit the L2, and the device does not
            most_kv = min(most_kv, 1 + 4000 // requests)
        batch = Batch(draw, requests, most_q, most_kv)
        tokens = max(sum(batch.q), 1)
        workers = draw.choice([0, 1, 7, 300])
        if kind in ("decode", "tokens"):
            module = decode(requests, tokens if kind == "tokens" else 0, workers=workers)
        else:
            module = prefill(
                requests,
                tokens,
                workers=workers,
                causal=kind not in ("full", "right", "both"),
                window_left=draw.choice([0, 100, 2000]) if kind in ("window", "both") else -1,
                window_right=draw.choice([0, 1, 100, 2000]) if kind in ("right", "both") else -1,
            )
        lengths = plan(module, batch, several=kind != "decode")
        before = module.plan_words.clone()
        module.plan_on_device(**on_device(lengths))
        got = module.plan_words.clone()
        module.plan(**lengths)
        assert torch.equal(got, attention_cases.words_of(module, before)), f"round {round}: {requests} requests, {workers} workers"


def test_a_captured_graph_plans_with_the_lengths_of_its_replay():
    draw = random.Random(3)
    requests = 32
    module, other = decode(requests, 4 * requests), decode(requests, 4 * requests)
    first = Batch(draw, requests, 4, 2000)
    q = torch.randn(4 * requests, 32, 128, device="cuda", dtype=torch.bfloat16)
    pages = requests * 2000 // PAGE + requests
    k, v = (torch.randn(pages, PAGE, 8, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    table = torch.randperm(pages, device="cuda").int()
    inputs = on_device(plan(module, first))
    module.plan_on_device(**inputs)
    module(q, k, v, table)  # warm-up
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module.plan_on_device(**inputs)
        o, lse = module(q, k, v, table)
    for _ in range(10):
        batch = Batch(draw, requests, 4, 2000)
        lengths = plan(module, batch)
        for name, values in lengths.items():
            inputs[name].copy_(i32(values))
        graph.replay()
        other.plan(**lengths)
        expected, expected_lse = other(q, k, v, table)
        n = sum(batch.q)
        assert torch.equal(o[:n], expected[:n]) and torch.equal(lse[:n], expected_lse[:n])


def kernels_of_this_device():
    hopper = torch.cuda.get_device_capability() == (9, 0)
    return ("attn_decode_paged", "attn_prefill") + (("attn_sm90", "attn_sm90_e4m3", "mla_decode") if hopper else ())


def faults():
    torch.cuda.synchronize()  # launches that still run are reported by a later call
    return [(f.template, f.reason, f.launches) for f in kiln.torch.service().device_faults()]


def assert_cleared(o, lse):
    assert not o.any() and bool((lse == -torch.inf).all())


@pytest.mark.parametrize("captured", [False, True])
def test_a_plan_of_another_launch_gives_zeros_and_a_fault(captured):
    batch = Batch(random.Random(5), 9, 1, 700)
    q = torch.randn(9, 32, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(500, PAGE, 8, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    table = torch.randperm(500, device="cuda").int()
    module, windowed = decode(9), decode(9, window_left=64)
    lengths = plan(module, batch, several=False)
    for one in (module, windowed):
        one.plan(**lengths)
    expected = module(q, k, v, table)
    right = module.plan_words.clone()
    faults()

    def run():
        if not captured:
            return module(q, k, v, table)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = module(q, k, v, table)
        graph.replay()
        return out

    wrong = {
        "the work list was made for another window_left or window_right": windowed.plan_words,
        "the work list was made for another kernel, or was never written": torch.zeros_like(right),
        "the work list was made for another number of workers": right.clone().index_fill_(0, torch.tensor([1], device="cuda"), 3),
        "the work list was made for another number of kv heads": right.clone().index_fill_(0, torch.tensor([2], device="cuda"), 3),
    }
    for reason, words in wrong.items():
        module.plan_words.copy_(words)
        assert_cleared(*run())
        assert faults() == [("attn_decode_paged", reason, 1)]
        assert faults() == []
    module.plan_words.copy_(right)
    for got, same in zip(run(), expected):
        assert torch.equal(got, same), "the context is alive, and the kernel as it was"
    assert faults() == []


def test_a_prefill_of_another_plan_gives_zeros_and_a_fault():
    q, k, v = (torch.randn(300, heads, 128, device="cuda", dtype=torch.bfloat16) for heads in (32, 8, 8))
    module, full = prefill(2, 300), prefill(2, 300, causal=False)
    for one in (module, full):
        one.plan([0, 100, 300], [0, 100, 300])
    module(q, k, v)
    faults()
    module.plan_words.copy_(full.plan_words[: module.plan_words.numel()])
    assert_cleared(*module(q, k, v))
    ((template, reason, launches),) = faults()
    assert template in ("attn_prefill", "attn_sm90") and "another kernel" in reason and launches == 1


@pytest.mark.parametrize("template", ["attn_prefill", "attn_sm90"])
@pytest.mark.parametrize("on_the_device", [False, True])
def test_a_prefill_of_another_right_window_gives_zeros_and_a_fault(template, on_the_device):
    if template not in kernels_of_this_device():
        pytest.skip("no Hopper")
    q, k, v = (torch.randn(300, heads, 128, device="cuda", dtype=torch.bfloat16) for heads in (32, 8, 8))
    windows = {right: prefill(2, 300, causal=False, window_right=right, template=template) for right in (7, 8)}
    for one in windows.values():
        if on_the_device:
            one.plan_on_device(i32([0, 100, 300]), i32([0, 100, 300]))
        else:
            one.plan([0, 100, 300], [0, 100, 300])
    o, _ = windows[7](q, k, v)
    assert o.any() and faults() == []
    windows[7].plan_words.copy_(windows[8].plan_words)
    assert_cleared(*windows[7](q, k, v))
    assert faults() == [(template, "the work list was made for another window_left or window_right", 1)]


@pytest.mark.parametrize(
    "ends, lengths, reason",
    [
        ([0, 3, 2, 8], [1, 1, 1], "a length of the batch"),
        ([0, 1, 2, 3], [1, 17, 1], "a length of the batch"),
        ([0, 1, 2], [1, 1], ""),
    ],
)
def test_wrong_lengths_on_the_device_give_zeros_and_a_fault(ends, lengths, reason):
    module = decode(3)
    n = len(lengths)
    q = torch.randn(n, 32, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(8, PAGE, 8, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    module(q, k, v, i32(range(8)))
    faults()
    module.plan_on_device(i32(ends), kv_len=i32(lengths))
    o, lse = module(q, k, v, i32(range(8)))
    found = faults()
    if not reason:
        assert found == [] and o.any()
        return
    assert_cleared(o, lse)
    assert {f[0] for f in found} == {"attn_work_list", "attn_decode_paged"}
    assert next(f[1] for f in found if f[0] == "attn_work_list").startswith(reason)


def test_a_launch_without_any_plan_gives_zeros_and_a_fault():
    module = decode(3)
    faults()
    assert_cleared(
        *module(
            torch.randn(3, 32, 128, device="cuda", dtype=torch.bfloat16),
            *(torch.randn(8, PAGE, 8, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2)),
            i32(range(8)),
        )
    )
    assert [f[0] for f in faults()] == ["attn_decode_paged"]


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("template", ["attn_decode_paged", "attn_prefill", "attn_sm90", "attn_sm90_e4m3", "mla_decode"])
def test_a_plan_for_fewer_workers_is_not_read_beyond_its_end(template, captured):
    """The plan lies at the end of what is mapped. A launch that read where its own workers' words would be could not go on."""
    if template not in kernels_of_this_device():
        pytest.skip("no Hopper")
    tensors = [
        torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((9, 32, 128), (64, PAGE, 8, 128), (64, PAGE, 8, 128))
    ]
    if template == "mla_decode":
        tensors = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((9, 32, 576), (64, PAGE, 1, 576))]

    codes = {"q_dtype": torch.float8_e4m3fn, "kv_dtype": torch.float8_e4m3fn} if template == "attn_sm90_e4m3" else {}
    if codes:
        tensors = [tensor.to(torch.float8_e4m3fn) for tensor in tensors]

    def module(**more):
        if template == "mla_decode":
            return LatentDecode(heads=32, page_size=PAGE, max_requests=9, sm_scale=0.07, **more)
        if template == "attn_decode_paged":
            return decode(9, **more)
        return prefill(9, 9, page_size=PAGE, template=template, **codes, **more)

    def planned(one):
        lengths = {"kv_indptr": [3 * i for i in range(10)], "kv_len": [40] * 9}
        one.plan(**lengths | ({"qo_indptr": list(range(10))} if isinstance(one, RaggedPrefill) else {}))
        return one

    def run(one):
        if not captured:
            return one(*tensors, table)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            one(*tensors, table)
            out = one(*tensors, table)  # begins while the launch before it runs
        graph.replay()
        return out

    table, end = torch.randperm(64, device="cuda").int(), EndOfMemory()
    few, many = planned(module(workers=2)), planned(module())
    expected, right = many(*tensors, table), many.plan_words
    assert many.workers > 2 and expected[0].any() and faults() == []
    used = few.plan_words[: 16 + 2 * 4 + 12 * 2 + 12 + 4]  # with one item and one request
    many.plan_words = end.put(used, right.numel())
    assert_cleared(*run(many))
    assert faults() == [(template, "the work list was made for another number of workers", 2 if captured else 1)]
    many.plan_words = right
    assert all(torch.equal(*pair) for pair in zip(run(many), expected)), "the context is alive"
    assert faults() == []
    end.close()


def timed(call, inputs=()):
    """Microseconds of a call in a graph of 100, of which each waits for the one before."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            call()
    best = 1e9
    for _ in range(7):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) * 10)
    return best


def test_time():
    """Prints the time of a plan in a graph, and that of an empty kernel of torch."""
    draw = random.Random(1)
    cell = torch.zeros(1, device="cuda")
    print(f"\n{'an addition of torch, for comparison':55} {timed(lambda: cell.add_(1)):6.2f} us")

    def row(name, module, lengths):
        inputs = on_device(lengths)
        time = timed(lambda: module.plan_on_device(**inputs))
        words = module.plan_words.tolist()
        print(f"{name:55} {time:6.2f} us, {words[16 + words[1]]} items, {words[7]} parts")
        assert words[0] != 0
        return time

    for name, kv in (("1 to 8k", [draw.randint(1, 8192) for _ in range(256)]), ("4k", [4096] * 256)):
        batch = Batch(draw, 256, 1, 1)
        batch.kv, batch.q = kv, [1] * 256
        module = decode(256)
        row(f"decode, 256 requests, kv {name}", module, plan(module, batch, several=False))
        batch.q = [4] * 256
        module = decode(256, 1024)
        row(f"decode of 4 tokens, 256 requests, kv {name}", module, plan(module, batch))
    for requests in (8, 64, 1024):
        batch = Batch(draw, requests, 1, 1)
        batch.kv, batch.q = [draw.randint(1, 8192) for _ in range(requests)], [1] * requests
        module = decode(requests)
        row(f"decode, {requests} requests, kv 1 to 8k", module, plan(module, batch, several=False))
    for requests, q in ((256, 128), (256, 1024), (16, 4096), (4, 4096), (1, 16384)):
        batch = Batch(draw, requests, 1, 1)
        batch.q = batch.kv = [q] * requests
        module = prefill(requests, sum(batch.q))
        row(f"prompts, {requests} x {q}", module, plan(module, batch))
    batch.q = batch.kv = [draw.randint(1, 512) for _ in range(256)]
    module = prefill(256, sum(batch.q))
    row("prompts, 256 requests of 1 to 512", module, plan(module, batch))
