"""Attention with plans: the words that a plan writes, how modules trace, and which calls they refuse."""

import gc

import pytest

torch = pytest.importorskip("torch")

import attention_cases as lengths
import kiln
import kiln.torch
import torch._dynamo.testing
from kiln import _kiln
from kiln.torch import Attention, PagedDecode, RaggedPrefill, _attention
from torch._subclasses import FakeTensorMode
from torch_support import launching, on_host_memory  # noqa: F401


def decode(**more):
    return PagedDecode(**{"heads": 8, "kv_heads": 2, "head_size": 64, "page_size": 16, "max_requests": 8, "device": "cpu"} | more)


def prefill(**more):
    return RaggedPrefill(
        **{"heads": 8, "kv_heads": 2, "head_size": 64, "max_requests": 4, "max_tokens": 64, "device": "cpu"} | more
    )


def bf16(*shape):
    return torch.randn(shape).bfloat16()


def i32(*values):
    return torch.tensor(values, dtype=torch.int32)


def caches(pages=12):
    return bf16(pages, 16, 2, 64), bf16(pages, 16, 2, 64), torch.arange(pages, dtype=torch.int32)


def argument(driver, template, name):
    """The value of the kernel's argument `name` in the last launch, as a number."""
    import tomllib
    from test_torch_operators import TEMPLATES

    manifest = tomllib.loads(next(TEMPLATES.glob(f"*/{template}.toml")).read_text())
    names = manifest["template"].get("arguments") or [a["name"] for a in manifest["arg"]]
    return int.from_bytes(driver.launch()[1][names.index(name)], "little")


def test_a_call_launches_with_the_plan_and_a_workspace_of_its_own(launching, driver):
    attention = decode()
    plan = attention.plan([0, 3, 4, 10], last_page_len=[5, 1, 16])
    assert plan.items and bool(attention.plan_words[: plan.bytes // 4].any())
    k, v, pages = caches()
    o, lse = attention(bf16(3, 8, 64), k, v, pages)
    assert o.shape == (3, 8, 64) and o.dtype == torch.bfloat16 and lse.shape == (3, 8) and lse.dtype == torch.float32
    launch, _ = driver.launch()
    assert launch.grid[0] == attention.workers == argument(driver, "attn_decode_paged", "workers")
    assert argument(driver, "attn_decode_paged", "plan") == attention.plan_words.data_ptr()
    for x in (o, lse):
        assert argument(driver, "attn_decode_paged", "workspace") not in (0, x.data_ptr())


def written(plan):
    """The words of a plan. The first items of workers without items are None: a plan does not write them."""
    words = list(memoryview(plan).cast("i"))
    workers = words[1]
    first = 16 + 2 * ((workers + 4) // 4 * 4)
    for worker in range(workers):
        if words[16 + worker] == words[17 + worker]:
            words[first + 12 * worker : first + 12 * worker + 12] = [None] * 12
    return words


def test_plans_are_what_the_c_abi_makes_and_lie_where_they_lay(launching, driver):
    attention, place = decode(), None
    for pages, last in (([0, 3, 4, 10], [5, 1, 16]), ([0, 1], [1]), ([0], []), ([0, 40, 80, 81], [16, 16, 2])):
        plan = attention.plan(pages, last_page_len=last)
        place = place or attention.plan_words.data_ptr()
        assert attention.plan_words.data_ptr() == place
        expected = bytearray(attention.plan_words.numel() * 4)
        same = kiln.attention_plan(
            launching.open("attn_decode_paged").get("bf16", 64, 4),
            expected,
            max_requests=8,
            kv_heads=2,
            kv_indptr=pages,
            last_page_len=last,
            page_size=16,
        )
        assert same == plan
        assert written(attention.plan_words.numpy().tobytes()[: plan.bytes]) == written(bytes(expected[: plan.bytes]))


def test_prompts_run_on_the_template_of_the_device(launching, driver, monkeypatch):
    ragged = (bf16(9, 8, 64), bf16(20, 2, 64), bf16(20, 2, 64))
    for hopper, options, template in (
        (False, {}, "attn_prefill"),
        (True, {}, "attn_sm90"),
        (True, {"alibi": True}, "attn_prefill"),
        (True, {"mask": True}, "attn_prefill"),
        (True, {"template": "attn_prefill"}, "attn_prefill"),
        (True, {"page_size": 16}, "attn_sm90"),
        (False, {"page_size": 16}, "attn_prefill"),
        (True, {"page_size": 24}, "attn_prefill"),
    ):
        monkeypatch.setattr(_attention, "_is_hopper", lambda place, hopper=hopper: hopper)
        prompts = prefill(**options)
        assert prompts.template == template
        if not prompts.alibi and not prompts.mask:
            page = prompts.page_size
            prompts.plan([0, 4, 9], [0, 4, 20], kv_len=[4, 16])
            prompts(*ragged[:1], *(bf16(20, page, 2, 64) for _ in "kv"), torch.arange(20, dtype=torch.int32)) if page else prompts(
                *ragged
            )
            launch, _ = driver.launch()
            assert launch.block[0] == (512 if template == "attn_sm90" else 128)
    with pytest.raises(kiln.Error, match="attn_sm90.*ALIBI"):
        prefill(alibi=True, template="attn_sm90")


@pytest.mark.parametrize("page", [0, 16])
def test_codes_of_q_and_kv_run_on_their_kernel(page, launching, driver):
    e4m3 = torch.float8_e4m3fn
    attention = kiln.torch.Attention(
        heads=8, kv_heads=2, head_size=64, max_requests=8, max_tokens=64, page_size=page, q_dtype=e4m3, kv_dtype=e4m3, device="cpu"
    )
    rows = (12, page) if page else (192,)
    q, k, v = (bf16(*shape, n, 64).to(e4m3) for shape, n in (((9,), 8), (rows, 2), (rows, 2)))
    pages = (torch.arange(12, dtype=torch.int32),) if page else ()
    scales = {f"{x}_scale": torch.rand(2) for x in "qkv"}
    attention.plan([0, 1, 2] if page else [0, 16, 32], kv_len=[4, 16], qo_indptr=[0, 4, 9])
    assert attention.kernel == "attn_sm90_e4m3" and attention.decode is None
    o, _ = attention(q, k, v, *pages, **scales)
    assert o.dtype == torch.bfloat16 and driver.launch()[0].block[0] == 512
    for name, scale in scales.items():
        assert argument(driver, "attn_sm90_e4m3", name) == scale.data_ptr()
    assert argument(driver, "attn_sm90_e4m3", "stride_scale") == 1
    out = torch.empty_like(o)
    assert attention(q, k, v, *pages, k_scale=torch.ones(1), out=out)[0] is out
    assert argument(driver, "attn_sm90_e4m3", "o") == out.data_ptr()
    assert argument(driver, "attn_sm90_e4m3", "q_scale") == argument(driver, "attn_sm90_e4m3", "stride_scale") == 0
    with pytest.raises(kiln.Error, match="q is torch.bfloat16, expected torch.float8_e4m3fn"):
        attention(bf16(9, 8, 64), k, v, *pages)
    with pytest.raises(RuntimeError, match="the same number of elements"):
        attention(q, k, v, *pages, q_scale=torch.ones(1), k_scale=torch.ones(2))


def test_lengths_may_be_lists_arrays_or_tensors_on_the_host(launching):
    numpy = pytest.importorskip("numpy")
    attention, prompts = decode(), prefill()
    expected = attention.plan([0, 3, 4], last_page_len=[5, 1])
    for kind in (torch.tensor, numpy.array, tuple):
        assert attention.plan(kind([0, 3, 4]), last_page_len=kind([5, 1])) == expected
    assert attention.plan([0, 3, 4], kv_len=[37, 1]) == expected
    assert prompts.plan(torch.tensor([0, 5, 9]), [0, 5, 20]) == prompts.plan([0, 5, 9], [0, 5, 20], kv_len=[5, 15])


def test_a_model_of_layers_is_one_graph_and_keeps_the_plan_where_it_is(launching, driver):
    """Every layer runs with one plan, which is never copied. Other lengths trace nothing."""
    from torch._inductor.utils import run_and_get_code

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, (self.k, self.v, _) = decode(), caches()

        def forward(self, x, pages):
            for _ in range(3):
                o, _ = self.attention(x.view(-1, 8, 64), self.k, self.v, pages)
                x = x + o.flatten(1)
            return x

    model, counter = Model(), torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    model.attention.plan([0, 3], last_page_len=[5])
    _, code = run_and_get_code(torch.compile(model, fullgraph=True), bf16(3, 512), torch.arange(12, dtype=torch.int32))
    assert code[0].count("torch.ops.kiln.attn_decode_paged.default(") == 3
    places = {argument(driver, "attn_decode_paged", "plan")} | {int.from_bytes(driver.launch(i)[1][5], "little") for i in (-2, -3)}
    assert places == {model.attention.plan_words.data_ptr()}
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for pages, last in (([0, 3], [5]), ([0, 3, 4], [5, 16]), ([0, 1, 2, 9], [1, 1, 1])):
        model.attention.plan(pages, last_page_len=last)
        compiled(bf16(3, 512), torch.arange(12, dtype=torch.int32))
    assert counter.frame_count == 1


def test_sizes_that_change_are_symbolic_and_the_others_numbers(launching):
    """specialize() is not needed: the module knows the number of its heads."""
    torch._dynamo.reset()
    attention, prompts, counter = decode(), prefill(), torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    k, v, pages = caches()
    one = torch.compile(lambda q, k, v, pages: attention(q, k, v, pages)[0], backend=counter, fullgraph=True, dynamic=True)
    other = torch.compile(lambda q, k, v: prompts(q, k, v)[0], backend=counter, fullgraph=True, dynamic=True)
    traced = 0
    for tokens in (3, 5, 8):
        assert one(bf16(tokens, 8, 64), *caches(tokens + 9)).shape == (tokens, 8, 64)
        assert other(bf16(tokens, 8, 64), bf16(tokens + 20, 2, 64), bf16(tokens + 20, 2, 64)).shape == (tokens, 8, 64)
        traced = traced or counter.frame_count
    assert counter.frame_count == traced
    with pytest.raises(Exception, match="parameter D of template attn_decode_paged would be the symbolic size"):
        torch.compile(
            lambda q, k, v, pages: torch.ops.kiln.attn_decode_paged(q, k, v, pages, attention.plan_words, 6, 64)[0],
            backend="aot_eager",
            fullgraph=True,
            dynamic=True,
        )(bf16(3, 8, 64), k, v, pages)


def test_an_exported_model_takes_other_lengths(launching, driver):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = prefill()

        def forward(self, q, k, v):
            return self.attention(q, k, v)[0]

    tokens, rows = torch.export.Dim("tokens", min=2, max=64), torch.export.Dim("rows", min=2, max=512)
    program = torch.export.export(
        Model(), (bf16(9, 8, 64), bf16(20, 2, 64), bf16(20, 2, 64)), dynamic_shapes=({0: tokens}, {0: rows}, {0: rows})
    )
    before = driver.launches()
    assert program.module()(bf16(7, 8, 64), bf16(30, 2, 64), bf16(30, 2, 64)).shape == (7, 8, 64)
    assert driver.launches() == before + 1


def test_a_plan_is_no_part_of_a_graph(launching, monkeypatch):
    attention, (k, v, pages) = decode(), caches()
    torch._dynamo.reset()

    def step(q):
        attention.plan([0, 1], last_page_len=[1])
        return attention(q, k, v, pages)[0]

    with pytest.raises(Exception, match="in a compiled function, and it runs on the host"):
        torch.compile(step, backend="aot_eager", fullgraph=True)(bf16(1, 8, 64))
    monkeypatch.setattr(attention._planner, "capturing", lambda: True)
    with pytest.raises(kiln.Error, match="plan.. was called while a stream captures"):
        attention.plan([0, 1], last_page_len=[1])


def test_the_plans_buffer_never_moves(launching):
    attention = decode()
    place = attention.plan_words.data_ptr()
    model = torch.nn.Sequential(attention, torch.nn.Linear(4, 4)).to(torch.float16)
    assert model[0].plan_words.data_ptr() == place and not dict(model.state_dict()).keys() & {"0.plan_words"}
    with pytest.raises(kiln.Error, match="PagedDecode's plan lies on cpu and cannot move"):
        attention.to("meta")


def test_another_service_plans_with_its_own_kernel(launching):
    attention = decode()
    with kiln.Service() as other:
        kiln.torch.use_service(other)
        attention.plan([0, 1], last_page_len=[1])
        assert other.stats()["loads"] == 1
    kiln.torch.use_service(launching)
    gc.collect()
    attention.plan([0, 1], last_page_len=[1])


def test_limits_and_lengths_that_cannot_be_right_are_refused(launching):
    attention, prompts = decode(), prefill()
    for call, text in [
        (lambda: decode(kv_heads=3), "heads = 8, expected a multiple of kv_heads = 3"),
        (lambda: decode(head_size=72), "parameter 'D': 72 is not allowed"),
        (lambda: decode(kv_dtype=torch.float16), "KV = f16 must be T = bf16"),
        (lambda: decode(max_requests=0), "max_requests"),
        (lambda: attention.plan([0, 3, 2], last_page_len=[1, 1]), "kv_indptr"),
        (lambda: attention.plan([0, 3, 4], last_page_len=[1, 17]), "last_page_len"),
        (lambda: attention.plan([0, 3, 4], last_page_len=[1]), "last_page_len has 1 entries"),
        (lambda: attention.plan(list(range(20)), last_page_len=[1] * 19), "19"),
        (lambda: prompts.plan([0, 60, 70], [0, 60, 70]), "70"),
    ]:
        with pytest.raises(kiln.Error, match=text):
            call()


DECODE = {"q": [3, 8, 64], "k_cache": [12, 16, 2, 64], "v_cache": [12, 16, 2, 64]}
PREFILL = {"q": [9, 8, 64], "k": [20, 2, 64], "v": [20, 2, 64]}


@pytest.mark.parametrize(
    "make, good, name, shape",
    [
        (decode, DECODE, "q", [3, 4, 64]),
        (decode, DECODE, "q", [3, 8, 128]),
        (decode, DECODE, "q", [3, 512]),
        (decode, DECODE, "k_cache", [12, 8, 2, 64]),
        (decode, DECODE, "k_cache", [12, 2, 16, 64]),
        (decode, DECODE, "v_cache", [13, 16, 2, 64]),
        (decode, DECODE, "v_cache", [12, 16, 2, 32]),
        (prefill, PREFILL, "q", [9, 8, 32]),
        (prefill, PREFILL, "k", [20, 8, 64]),
        (prefill, PREFILL, "v", [19, 2, 64]),
        (prefill, PREFILL, "v", [20, 128]),
    ],
)
def test_a_wrong_shape_is_refused_by_the_arguments_name(make, good, name, shape, launching, driver):
    import re

    module = make()
    before = driver.launches()
    arguments = [bf16(*size) for size in (good | {name: shape}).values()] + (
        [torch.arange(12, dtype=torch.int32)] if make is decode else []
    )
    with pytest.raises(kiln.Error, match=rf"{name} is (\w+ )?{re.escape(str(shape))}, expected \["):
        module(*arguments)
    assert driver.launches() == before


def test_calls_refuse_what_shapes_do_not_say(launching, driver):
    attention, prompts, (k, v, pages) = decode(), prefill(), caches()
    q, ragged = bf16(3, 8, 64), (bf16(9, 8, 64), bf16(20, 2, 64), bf16(20, 2, 64))
    before = driver.launches()
    ops = torch.ops.kiln
    for call, text in [
        (lambda: attention(q.half(), k, v, pages), "q is (torch.float16, expected torch.bfloat16|f16 .* expected bf16)"),
        (lambda: attention(q, k.half(), v, pages), "k_cache is (torch.float16|f16)"),
        (lambda: attention(q, k, v, pages.long()), r"kv_indices is i64 \[12\], expected i32"),
        (
            lambda: attention(q, k, v, pages, alibi_slopes=torch.ones(8)),
            "alibi_slopes is given, but this PagedDecode has alibi = False",
        ),
        (lambda: decode(alibi=True)(q, k, v, pages), "alibi_slopes is not given, but this PagedDecode has alibi = True"),
        (
            lambda: decode(alibi=True)(q, k, v, pages, alibi_slopes=torch.ones(4)),
            r"alibi_slopes is f32 \[4\], expected \[heads = 8\]",
        ),
        (
            lambda: attention(q, k.transpose(2, 3).contiguous().transpose(2, 3), v, pages),
            "k_cache has stride 2 in its last dimension, expected 1",
        ),
        (
            lambda: prompts(*ragged, mask=torch.zeros(8, dtype=torch.uint8)),
            "mask is given, but this RaggedPrefill has mask = False",
        ),
        (
            lambda: prefill(mask=True)(*ragged, mask=torch.zeros(8, dtype=torch.uint8)),
            "mask and mask_indptr: expected both or neither",
        ),
        (lambda: prompts(*ragged, pages), "kv_indices is given, but this RaggedPrefill has page_size = 0"),
        (lambda: prefill(page_size=16)(q, k, v), "kv_indices is not given, but this RaggedPrefill has page_size = 16"),
        (
            lambda: prefill(page_size=16)(q, k.transpose(2, 3).contiguous().transpose(2, 3), v, pages),
            "k_cache has stride 2 in its last dimension, expected 1",
        ),
        (lambda: ops.attn_prefill(*ragged, torch.zeros(64), 6, 64), r"plan is f32 \[64\], expected i32"),
        (
            lambda: ops.attn_prefill(ragged[0], bf16(20, 3, 64), bf16(20, 3, 64), torch.zeros(64, dtype=torch.int32), 6, 64),
            "q has 8 heads, expected a multiple of the 3",
        ),
        (
            lambda: ops.attn_prefill(*ragged, torch.zeros(103, dtype=torch.int32), 6, 64),
            "plan has 103 words, fewer than a plan for workers = 6 has",
        ),
        (
            lambda: ops.attn_decode_paged(q, k, v, pages, torch.zeros(103, dtype=torch.int32), 6, 64),
            "plan has 103 words, fewer than a plan for workers = 6 has",
        ),
    ]:
        with pytest.raises(kiln.Error, match=text):
            call()
    assert driver.launches() == before


def test_lengths_on_a_device_are_refused(launching):
    """Reading lengths from a device would make the host wait."""
    attention = decode()
    with FakeTensorMode():
        lengths_there = torch.zeros(3, dtype=torch.int32, device="cuda")
    with pytest.raises(kiln.Error, match=r"kv_indptr is on cuda:0: plan\(\) runs on the host"):
        attention.plan(lengths_there, last_page_len=[1, 1])


def test_cases_are_of_different_specialisations(launching):
    """The lengths of the shared cases split over kv, so that the merge of parts is run."""
    attention = decode(heads=lengths.HEADS)
    assert attention.plan(lengths.indptr(lengths.PAGES), kv_len=lengths.KV).parts > 0


def test_a_plan_of_lengths_on_the_device_is_one_launch(launching, driver):
    attention, prompts = decode(), prefill()
    for module, call in (
        (attention, lambda: attention.plan_on_device(i32(0, 3, 4), kv_len=i32(37, 1))),
        (attention, lambda: attention.plan_on_device(i32(0, 3, 4), last_page_len=i32(5, 1), qo_indptr=i32(0, 1, 3))),
        (prompts, lambda: prompts.plan_on_device(i32(0, 5, 9), i32(0, 5, 20))),
    ):
        before = driver.launches()
        call()
        assert driver.launches() == before + 1
        assert argument(driver, "attn_work_list", "plan") == module.plan_words.data_ptr()
        assert argument(driver, "attn_work_list", "requests") == 2
        assert argument(driver, "attn_work_list", "workers") == module.workers
        assert argument(driver, "attn_work_list", "page_size") == (16 if module is attention else 0)


def test_a_buffer_has_the_plan_of_no_requests_before_the_device_writes_one(launching):
    """Its first word is 0, so that a launch without any plan is refused."""
    for module in (decode(), prefill(window_left=7), prefill(causal=False, window_right=5)):
        words = module.plan_words.tolist()
        assert words[:4] == [0, module.workers, 2, module.window_left] and words[4:6] == [0, 0]
        assert words[6] == module.window_right
        assert all(words[11:16]), "the shape, and the limits"


def test_a_plan_on_the_device_may_be_part_of_a_graph(launching, driver):
    attention = decode()
    k, v, pages = caches()

    def step(q, ends, lengths):
        attention.plan_on_device(ends, kv_len=lengths)
        return attention(q, k, v, pages)[0]

    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(step, backend=counter, fullgraph=True)
    for tokens in ((37, 1), (5, 16), (48, 3)):
        before = driver.launches()
        compiled(bf16(2, 8, 64), i32(0, 3, 4), i32(*tokens))
        assert driver.launches() == before + 2
    assert counter.frame_count == 1


def test_wrong_lengths_on_the_device_are_refused_by_name(launching):
    attention = decode(max_requests=2)
    with pytest.raises(kiln.Error, match=r"kv_indptr has 4 entries, expected at most max_requests \+ 1 = 3"):
        attention.plan_on_device(i32(0, 1, 2, 3), kv_len=i32(1, 1, 1))
    with pytest.raises(kiln.Error, match="kv_len has 1 entries, expected 2"):
        attention.plan_on_device(i32(0, 1, 2), kv_len=i32(1))
    with pytest.raises(kiln.Error, match="last_page_len"):
        attention.plan_on_device(i32(0, 1, 2))


def test_faults_of_launches_are_reported_once(launching, driver):
    """The fake driver's device memory is the process's: the test counts a failed launch as the kernel would."""
    import ctypes

    attention = decode()
    attention.plan([0, 3, 4], last_page_len=[5, 1])
    k, v, pages = caches()
    attention(bf16(2, 8, 64), k, v, pages)
    assert launching.device_faults() == []
    kernel = launching.open("attn_decode_paged").get("bf16", 64, 4)
    address, size = kernel.variable("device_fault")
    words = (ctypes.c_uint32 * (size // 4)).from_address(int(address))
    words[0], words[1] = 2, 3
    (fault,) = launching.device_faults()
    assert (fault.template, fault.code, fault.launches, fault.device) == ("attn_decode_paged", 3, 2, 0)
    assert "GROUP=4" in fault.specialization and "another number of kv heads" in fault.reason
    assert launching.device_faults() == []


def attention(**more):
    limits = {"max_requests": 8, "max_tokens": 64, "page_size": 16, "device": "cpu"}
    return Attention(**{"heads": 8, "kv_heads": 2, "head_size": 64} | limits | more)


def launched(driver):
    """The template of the last launch."""
    name = driver.launch()[0].kernel.decode()
    return next(template for template in ("attn_decode_paged", "attn_prefill", "attn_sm90", "attn_work_list") if template in name)


STEP, CHUNKS = {"kv_len": [37, 16, 90]}, {"kv_len": [37, 16, 90], "qo_indptr": [0, 1, 1, 9]}


@pytest.mark.parametrize("hopper", [False, True])
def test_the_kernel_follows_what_the_host_knows(hopper, launching, driver, monkeypatch):
    monkeypatch.setattr(_attention, "_is_hopper", lambda place: hopper)
    many, one, ends = "attn_sm90" if hopper else "attn_prefill", "attn_decode_paged", [0, 3, 4, 10]
    k, v, pages = caches()
    for options, batch, template in (
        ({}, STEP, one),
        ({}, CHUNKS, many),
        ({}, STEP | {"qo_indptr": [0, 1, 2, 3]}, one),
        ({}, STEP | {"qo_indptr": [0, 1, 1, 2]}, one),
        ({}, STEP | {"qo_indptr": [0, 0, 2, 3]}, many),
        ({"causal": False, "window_left": 9, "window_right": 4}, STEP, one),
        ({"causal": False, "window_left": 9, "window_right": 4}, CHUNKS, many),
        ({"soft_cap": 9.0}, STEP, one),
        ({"sinks": True}, STEP, many),
        ({"kv_dtype": torch.float8_e4m3fn}, CHUNKS, one),
        ({"template": "attn_prefill"}, CHUNKS, "attn_prefill"),
        ({"template": "attn_prefill"}, STEP, one),
        ({"template": one}, CHUNKS, one),
    ):
        module = attention(**options)
        module.plan(ends, **batch)
        more = {"sinks": torch.zeros(8)} if module.sinks else {}
        o, lse = module(bf16(9, 8, 64), k.to(module.kv_dtype), v.to(module.kv_dtype), pages, **more)
        assert o.shape == (9, 8, 64) and lse.shape == (9, 8)
        assert launched(driver) == module.kernel == template, (options, batch)
    ragged = attention(page_size=0)
    ragged.plan([0, 5, 20], qo_indptr=[0, 1, 2])
    ragged(bf16(2, 8, 64), bf16(20, 2, 64), bf16(20, 2, 64))
    assert launched(driver) == ragged.kernel == many
    ragged.plan([0, 5, 20])
    assert ragged.decode is None


def test_sizes_that_decode_does_not_take_run_on_the_other_kernel(launching):
    for sizes in ({"head_size": 96}, {"heads": 64}, {"head_size": 80}):
        module = attention(**sizes)
        module.plan([0, 3, 4, 10], **STEP)
        assert module.decode is None and module.kernel == "attn_prefill"


@pytest.mark.parametrize("code", [kiln.Code.requirement, kiln.Code.not_ready])
def test_only_a_refusal_of_the_sizes_leaves_decode_out(code, launching, monkeypatch):
    def refused(**options):
        raise kiln.Error("attn_decode_paged: refused", code)

    monkeypatch.setattr(_attention, "PagedDecode", refused)
    if code == kiln.Code.requirement:
        assert attention().decode is None
    else:
        with pytest.raises(kiln.Error, match="refused"):
            attention()


def test_a_plan_for_one_kernel_ends_the_plan_of_the_other(launching):
    """A graph that launches the other kernel would else replay with lengths of an earlier batch."""
    module, ends = attention(), [0, 3, 4, 10]
    words = {"attn_decode_paged": module.decode.plan_words, "attn_prefill": module.plan_words}

    def ended():
        return {name for name, plan in words.items() if plan[0] == 0}

    assert ended() == set(words), "no plan yet"
    module.plan(ends, **STEP)
    assert ended() == {"attn_prefill"}
    module.plan(ends, **CHUNKS)
    assert ended() == {"attn_decode_paged"} and module.kernel == "attn_prefill"
    with pytest.raises(kiln.Error, match="kv_indptr"):
        module.plan([0, 3, 2, 8], **STEP)
    assert ended() == {"attn_decode_paged"} and module.kernel == "attn_prefill", "a refused plan changes nothing"
    module.plan_on_device(i32(*ends), kv_len=i32(37, 16, 90))
    assert "attn_prefill" in ended() and module.kernel == "attn_decode_paged"
    module.plan_on_device(i32(*ends), kv_len=i32(37, 16, 90), qo_indptr=i32(0, 1, 2, 3))
    assert module.kernel == "attn_prefill", "the host does not know the lengths"


def test_a_compiled_function_is_one_graph_for_each_kernel(launching, driver):
    module, (k, v, pages) = attention(), caches()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(lambda q: module(q, k, v, pages)[0] + 1, backend=counter, fullgraph=True)
    for batch in (STEP, CHUNKS, STEP, CHUNKS, STEP):
        module.plan([0, 3, 4, 10], **batch)
        compiled(bf16(9, 8, 64))
        assert launched(driver) == module.kernel
    assert counter.frame_count == 2


@pytest.mark.parametrize("several", [False, True])
def test_lengths_of_the_device_and_the_call_are_one_graph(several, launching, driver):
    module, (k, v, pages) = attention(), caches()

    def step(q, ends, lengths, qo_indptr, out):
        module.plan_on_device(ends, kv_len=lengths, qo_indptr=qo_indptr)
        return module(q, k, v, pages, out=out)

    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled = torch.compile(step, backend=counter, fullgraph=True)
    for tokens in ((37, 1), (5, 16), (48, 3)):
        before, out = driver.launches(), torch.zeros(4, 8, 64, dtype=torch.bfloat16)
        o, lse = compiled(bf16(4, 8, 64), i32(0, 3, 4), i32(*tokens), i32(0, 1, 4) if several else None, out)
        assert driver.launches() == before + 2 and o.data_ptr() == out.data_ptr() and lse.shape == (4, 8)
        assert launched(driver) == ("attn_prefill" if several else "attn_decode_paged")
    assert counter.frame_count == 1


def test_out_is_where_the_kernel_writes(launching, driver, monkeypatch):
    for hopper, options in ((False, {}), (True, {}), (False, {"page_size": 0}), (True, {"page_size": 0})):
        monkeypatch.setattr(_attention, "_is_hopper", lambda place, hopper=hopper: hopper)
        module, out = attention(**options), bf16(9, 16, 64)[:, :8]
        k, v, *pages = caches() if module.page_size else (bf16(20, 2, 64), bf16(20, 2, 64))
        for batch in (STEP, CHUNKS):
            module.plan([0, 3, 4, 10], **batch) if pages else module.plan([0, 5, 20], qo_indptr=[0, 4, 9])
            o, lse = module(bf16(9, 8, 64), k, v, *pages, out=out)
            assert o is out and lse.shape == (9, 8)
            assert argument(driver, module.kernel, "o") == out.data_ptr()
            assert argument(driver, module.kernel, "stride_o") == 16 * 64


@pytest.mark.parametrize("name", sorted(_attention._INTO))
def test_operators_with_out_are_sound(name, launching):
    """opcheck of the schema, of fake tensors and of compiled calls."""
    make = next(make for known, make in lengths.cases() if known == name)
    arguments, named = make("cpu")
    kiln.torch.specialize(True)  # as in test_opcheck of the operators
    _kiln.zero_outputs(True)
    try:
        out = torch.zeros_like(getattr(torch.ops.kiln, name)(*arguments, **named)[0])
        operator = getattr(torch.ops.kiln, f"{name}_into").default
        at = [a.name for a in operator._schema.arguments].index("out")
        tests = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
        if arguments[0].dtype == torch.float8_e4m3fn:
            tests.remove("test_schema")  # does arithmetic on its arguments, and torch has none for fp8 on the CPU
        torch.library.opcheck(operator, (*arguments[:at], out, *arguments[at:]), named, test_utils=tests)
    finally:
        kiln.torch.specialize(False)
        _kiln.zero_outputs(False)


def test_attention_refuses_what_no_kernel_takes(launching, driver):
    e4m3, (k, v, pages), q = torch.float8_e4m3fn, caches(), bf16(3, 8, 64)
    module, steps = attention(), attention()
    module.plan([0, 3, 4, 10], **CHUNKS)
    steps.plan([0, 3, 4, 10], **{name: lengths for name, lengths in CHUNKS.items() if name != "qo_indptr"})
    assert steps.is_decode
    before = driver.launches()
    for call, text in (
        *(
            (lambda given=given: steps(q, k, v, pages, **{given: torch.zeros(8)}), f"{given} is given, but this Attention has")
            for given in ("alibi_slopes", "mask", "mask_indptr", "sinks")
        ),
        (lambda: attention(kv_dtype=e4m3, page_size=0), "page_size = 0 was asked for, but attn_decode_paged .*kv_dtype"),
        (lambda: attention(kv_dtype=e4m3, causal=False), "causal = False was asked for"),
        (lambda: attention(kv_dtype=e4m3, mask=True), "mask was asked for"),
        (lambda: attention(kv_dtype=e4m3, sinks=True), "sinks was asked for"),
        (lambda: attention(kv_dtype=e4m3, template="attn_prefill"), "attn_prefill takes one type"),
        (lambda: attention(q_dtype=e4m3), "attn_sm90_e4m3 takes q, k and v of torch.float8_e4m3fn"),
        (lambda: attention(q_dtype=e4m3, kv_dtype=e4m3, template="attn_prefill"), "attn_prefill was asked for with q_dtype"),
        (lambda: attention(q_dtype=e4m3, kv_dtype=e4m3, mask=True), "'attn_sm90_e4m3' has no parameter 'ALIBI'"),
        (lambda: module(q, k, v, pages, q_scale=torch.ones(1)), "q_scale is given, but this Attention has q_dtype = dtype"),
        (lambda: decode(window_right=3), "window_right was asked for"),
        (lambda: attention(window_right=3), "window_right = 3 needs causal = False"),
        (lambda: attention(alibi=True, template="attn_sm90"), "attn_sm90.*ALIBI"),
        (lambda: attention(head_size=72), "parameter 'D': 72 is not allowed"),
        (lambda: module(q, k, v), "kv_indices is not given, but this Attention has page_size = 16"),
        (lambda: module(q, k, v, pages, sinks=torch.zeros(8)), "sinks is given, but this Attention has sinks = False"),
        (lambda: module(q, k, v, pages, mask=torch.zeros(8)), "mask is given, but this Attention has mask = False"),
        (lambda: module(q, k, v, pages, mask_indptr=torch.zeros(8)), "mask_indptr is given, but this Attention has mask = False"),
        (lambda: module(q, k, v, pages, k_scale=torch.ones(1)), "k_scale or v_scale is given"),
        (lambda: module(q, k, v, pages, out=bf16(2, 8, 64)), r"out is \[2, 8, 64\], expected \[3, 8, 64\]"),
        (lambda: module(q, k, v, pages, out=q.half()), "out is torch.float16, expected torch.bfloat16"),
        (lambda: module(q, k, v.half(), pages), "v_cache is torch.float16"),
    ):
        with pytest.raises(kiln.Error, match=text):
            call()
    assert driver.launches() == before
