"""moe_route: the choice against float64, the sort exactly; both bit for bit as topk_gate and moe_align in two launches.
fp8_quant gives the same bits for the codes and scales of x. And its time beside the launches that it replaces.
"""

import itertools

import fp8_quant
import moe_align
import topk_gate
import torch
from harness import DTYPES, TOLERANCE, Guarded, Row, expect_close, expect_refused, expect_same_bits, kernel, normal, prefetch

DEEPSEEK = dict(E=256, K=8, SCORE="sigmoid", BIAS=True, GROUPS=8, TOPK_GROUPS=4)
SANITIZE = [
    "moe_route T=f32 E=256 K=8 SCORE=sigmoid BIAS=true GROUPS=8 TOPK_GROUPS=4 BLOCK=16 tokens=1",
    "moe_route T=bf16 E=128 K=8 BLOCK=64 tokens=512",
    "moe_route T=f32 E=97 K=5 BIAS=true RENORM=false BLOCK=7 LOCAL_ONLY=true tokens=77",
    "moe_route T=f16 E=8 K=2 BLOCK=16 CLUSTER=1 tokens=301",
    "moe_route T=f32 E=128 K=8 BLOCK=16 X=bf16 H=2048 tokens=37",
]
NAMES = ("weights", "sorted_token_ids", "expert_ids", "num_tokens_post_padded", "inverse", "ids")
QUANTISED = (*NAMES, "codes", "scales")
TOKENS = (1, 2, 7, 8, 16, 17, 63, 64, 127, 128, 129, 255, 511, 512)


def run(logits, K, BLOCK, dtype="f32", bias=None, scale=1.0, expert_map=None, capacity=None, with_ids=True, x=None, **parameters):
    """The outputs by name, in guarded memory. With x its codes and scales are among them."""
    tokens, experts = logits.shape
    n = tokens * K
    capacity = moe_align.capacity_of(n, experts, BLOCK) if capacity is None else capacity
    outs = [Guarded(tokens, K, dtype="f32")]
    outs += [Guarded(size, dtype="i32") for size in (capacity, capacity // BLOCK, 1, n)] + [Guarded(tokens, K, dtype="i32")]
    quantised = ()
    if x is not None:
        hidden = x.shape[1]
        parameters |= {"X": next(name for name, kind in DTYPES.items() if kind == x.dtype), "H": hidden}
        outs += [Guarded(tokens, hidden, dtype="e4m3"), Guarded(tokens, hidden // 128, dtype="f32")]
        quantised = (x, x.stride(0), *(o.view for o in outs[6:]))
    route = kernel("moe_route", T=dtype, E=experts, K=K, BLOCK=BLOCK, **parameters)
    inputs = (logits, tokens, logits.stride(0) if tokens > 1 else experts, capacity, scale, bias, expert_map)
    route(*(o.view for o in outs[:5]), *inputs, outs[5].view if with_ids else None, *quantised)
    return dict(zip(QUANTISED, outs))


def expect_right(logits, K, BLOCK, dtype="f32", bias=None, scale=1.0, expert_map=None, capacity=None, what="", **parameters):
    """Checks every output. Returns the number of rows whose choice f32 cannot decide."""
    experts = logits.shape[1]
    outs = run(logits, K, BLOCK, dtype, bias, scale, expert_map, capacity, **parameters)
    ids = outs["ids"].view
    options = {name: value for name, value in parameters.items() if name in ("SCORE", "RENORM", "GROUPS", "TOPK_GROUPS")}
    want, want_ids, certain = topk_gate.reference(logits, K, BIAS=bias, scale=scale, **options)
    assert bool((ids == want_ids)[certain].all()), f"{what}: ids"
    ordered = ids.sort(-1).values
    distinct = bool((ordered[:, 1:] > ordered[:, :-1]).all())
    assert distinct and int(ordered.amin()) >= 0 and int(ordered.amax()) < experts, f"{what}: ids repeat or leave the range"
    expect_close(outs["weights"].view[certain], want[certain], TOLERANCE["f32"], f"{what}: weights")
    size = outs["sorted_token_ids"].view.numel()
    sorted_, of_block, total, inverse = moe_align.reference(
        ids, experts, BLOCK, size, expert_map, parameters.get("LOCAL_ONLY", False)
    )
    assert int(outs["num_tokens_post_padded"].view[0]) == total, f"{what}: num_tokens_post_padded"
    for name, right in (("sorted_token_ids", sorted_), ("expert_ids", of_block), ("inverse", inverse)):
        wrong = (outs[name].view != right).nonzero().flatten()
        assert len(wrong) == 0, (
            f"{what}: {name} has {len(wrong)} wrong of {len(right)}, first at {int(wrong[0])}: {int(outs[name].view[wrong[0]])}, wanted {int(right[wrong[0]])}"
        )
    for o in outs.values():
        o.check(what)
    return int((~certain).sum())


def shapes():
    yield from (
        dict(DEEPSEEK, BLOCK=16),
        dict(E=128, K=8, BLOCK=64),
        dict(E=8, K=2, BLOCK=16),
        dict(E=1, K=1, BLOCK=1),
        dict(E=7, K=7, BLOCK=5),
        dict(E=60, K=4, BLOCK=128, RENORM=False),
        dict(E=97, K=5, BLOCK=8, BIAS=True),
        dict(E=160, K=6, BLOCK=16, GROUPS=8, TOPK_GROUPS=3, RENORM=False),
        dict(E=257, K=32, BLOCK=16),
        dict(E=384, K=8, BLOCK=16, SCORE="sigmoid", BIAS=True),
        dict(E=512, K=10, BLOCK=32),
        dict(E=512, K=32, BLOCK=8, BIAS=True),
    )


def test_every_number_of_tokens():
    for v, dtype in itertools.product(shapes(), ("f32", "bf16")):
        prefetch("moe_route", T=dtype, **v)
    undecided = rows = 0
    for v, dtype, tokens in itertools.product(shapes(), ("f32", "bf16"), TOKENS):
        v = dict(v)
        experts = v.pop("E")
        bias = normal(experts, dtype="f32", scale=0.1) if v.get("BIAS") else None
        undecided += expect_right(
            normal(tokens, experts, dtype=dtype), dtype=dtype, bias=bias, scale=2.5, what=f"{dtype} {tokens} x {experts} {v}", **v
        )
        rows += tokens
    assert undecided < rows / 200, f"{undecided} of {rows} rows undecided"
    return f"{undecided} of {rows} rows are closer than f32 decides"


def test_ties_and_skew():
    """Logits with few levels give ties, and send most tokens to the same experts."""
    for levels, tokens in itertools.product((1, 2, 5), (1, 33, 512)):
        for v in (dict(E=128, K=8, BLOCK=16), dict(DEEPSEEK, BLOCK=64), dict(E=512, K=32, BLOCK=16), dict(E=8, K=8, BLOCK=16)):
            v = dict(v)
            experts = v.pop("E")
            logits = torch.randint(0, levels, (tokens, experts), device="cuda").float() * 0.75 - 1.0
            bias = torch.zeros(experts, device="cuda") if v.get("BIAS") else None
            assert expect_right(logits, bias=bias, what=f"{levels} levels, {tokens} x {experts} {v}", **v) == 0


def test_poisoned_logits():
    for v in (dict(E=128, K=8, BLOCK=16), dict(DEEPSEEK, BLOCK=16), dict(E=97, K=5, BLOCK=16, RENORM=False, BIAS=True)):
        v = dict(v)
        experts = v.pop("E")
        bias = normal(experts, dtype="f32", scale=0.1) if v.get("BIAS") else None
        expect_right(topk_gate.poisoned(300, experts), bias=bias, what=f"{experts} {v}", **v)


def test_expert_map():
    for tokens in (1, 9, 300, 512):
        local = torch.full((256,), -1, device="cuda", dtype=torch.int32)
        local[64:96] = torch.arange(32, device="cuda", dtype=torch.int32)
        logits = normal(tokens, 256, dtype="f32")
        expect_right(logits, 8, 16, expert_map=local, what=f"blocks of -1, {tokens}")
        expect_right(logits, 8, 16, expert_map=local, LOCAL_ONLY=True, what=f"LOCAL_ONLY, {tokens}")
        nowhere = torch.full_like(local, -1)
        outs = run(logits, 8, 16, expert_map=nowhere, LOCAL_ONLY=True)
        assert int(outs["num_tokens_post_padded"].view[0]) == 0 and bool((outs["inverse"].view == -1).all()), "no local expert"


def test_the_same_bits_as_two_launches():
    for v, tokens in itertools.product(shapes(), (1, 5, 64, 512)):
        v = dict(v)
        experts, k, block = v.pop("E"), v.pop("K"), v.pop("BLOCK")
        logits = normal(tokens, experts, dtype="f32")
        bias = normal(experts, dtype="f32", scale=0.1) if v.get("BIAS") else None
        weights, ids = topk_gate.run(logits, k, bias=bias, scale=2.5, LANES=32, **v)
        aligned = moe_align.run(ids.view, experts, block)
        outs = run(logits, k, block, bias=bias, scale=2.5, **v)
        for name, right in zip(NAMES, (weights, *aligned, ids)):
            expect_same_bits(outs[name].view, right.view, f"{name}, {tokens} x {experts} {v}")


def test_identical_over_runs_and_blocks():
    bias = normal(256, dtype="f32", scale=0.1)
    v = {name: value for name, value in DEEPSEEK.items() if name != "E"}
    for tokens in (1, 64, 200, 512):
        logits = normal(tokens, 256, dtype="f32")
        first = run(logits, BLOCK=16, bias=bias, **v)
        others = ({},) * 20 + tuple({"CLUSTER": c} for c in (1, 2, 4, 8, 16)) + ({"THREADS": 256}, {"WARPS": 4}, {"WARPS": 1})
        for more in others:
            again = run(logits, BLOCK=16, bias=bias, **v, **more)
            for name in NAMES:
                expect_same_bits(again[name].view, first[name].view, f"{name}, {tokens} tokens, {more}")
    for lanes, cluster in itertools.product((8, 16, 32), (1, 8)):
        what = f"LANES={lanes} CLUSTER={cluster}"
        expect_right(normal(301, 128, dtype="f32"), 8, 16, LANES=lanes, CLUSTER=cluster, what=what)


def test_strides_capacity_and_no_ids():
    wide = Guarded(100, 128, dtype="f32", strides=(132, 1))
    wide.view.copy_(normal(100, 128, dtype="f32"))
    expect_right(wide.view, 8, 16, what="row stride 132")
    far = Guarded(3, 256, dtype="f32", strides=((1 << 31) + 64, 1))
    far.view.copy_(normal(3, 256, dtype="f32"))
    expect_right(far.view, 8, 16, what="a stride beyond 2^31")
    del far
    logits = normal(64, 256, dtype="f32")
    expect_right(logits, 8, 64, capacity=64 * 8 + 256 * 63, what="vLLM's capacity")
    expect_right(logits, 8, 64, capacity=100003, what="an odd capacity")
    expect_refused(lambda: run(logits, 8, 64, capacity=64), "capacity")
    first, without = run(logits, 8, 64), run(logits, 8, 64, with_ids=False)
    assert bool((without["ids"].bits == -1).all()), "ids are not written"
    for name in NAMES[:-1]:
        expect_same_bits(without[name].view, first[name].view, f"{name} without ids")


def expect_same_as_apart(logits, K, BLOCK, x, what, **parameters):
    """Expects the outputs of a launch without x, and the codes and scales of fp8_quant."""
    outs = run(logits, K, BLOCK, x=x, **parameters)
    alone = run(logits, K, BLOCK, **parameters)
    for name in NAMES:
        expect_same_bits(outs[name].view, alone[name].view, f"{what}: {name}")
    dtype = next(name for name, kind in DTYPES.items() if kind == x.dtype)
    right = fp8_quant.Quantised(x, "group", 128, dtype=dtype)
    expect_same_bits(outs["codes"].view.view(torch.uint8), right.codes, f"{what}: codes")
    expect_same_bits(outs["scales"].view, right.scale, f"{what}: scales")
    for o in outs.values():
        o.check(what)


def test_tokens_are_quantised_beside_the_routing():
    shapes = (dict(K=8, BLOCK=16), dict(K=8, BLOCK=16, CLUSTER=1), dict(K=8, BLOCK=16, THREADS=256, CLUSTER=2))
    for H, dtype, v in itertools.product((128, 384, 2048, 7168), ("f32", "f16", "bf16"), shapes):
        prefetch("moe_route", T="f32", E=128, X=dtype, H=H, **v)
    for H, dtype, v, tokens in itertools.product((128, 384, 2048, 7168), ("f32", "f16", "bf16"), shapes, (1, 3, 17, 130, 512)):
        x = normal(tokens, H, dtype=dtype, scale=4.0)
        expect_same_as_apart(normal(tokens, 128, dtype="f32"), x=x, what=f"{tokens} x {H} {dtype} {v}", **v)


def test_special_numbers_are_quantised_as_apart():
    """Groups with NaN, infinities, zeros alone, tiny numbers and the largest ones, in rows that are apart."""
    for dtype in ("f32", "f16", "bf16"):
        largest = torch.finfo(DTYPES[dtype]).max
        wide = torch.full((9, 520), float("nan"), device="cuda", dtype=DTYPES[dtype])
        x = wide[:, :512]
        x.copy_(normal(9, 512, dtype=dtype))
        x[0, 5] = float("nan")
        x[1, 130:140] = torch.tensor([float("inf"), -float("inf")] * 5, device="cuda")
        x[2, :256] = 0.0
        x[2, 300] = -0.0
        x[3] *= 1e-6
        x[4, ::3] = largest
        x[5] = float("nan")
        x[6, 7] = float("inf")
        x[6, 9] = float("nan")
        x[7] = torch.finfo(DTYPES[dtype]).tiny
        expect_same_as_apart(normal(9, 64, dtype="f32"), 4, 16, x, what=f"special numbers in {dtype}")
        far = Guarded(3, 256, dtype=dtype, strides=((1 << 31) + 64, 1)).view if dtype == "bf16" else None
        if far is not None:
            far.copy_(normal(3, 256, dtype=dtype))
            expect_same_as_apart(normal(3, 64, dtype="f32"), 4, 16, far, what="a stride beyond 2^31")


def test_quantising_refuses_what_it_cannot_read():
    logits, x = normal(4, 64, dtype="f32"), normal(4, 264)
    expect_refused(lambda: run(logits, 4, 16, x=x[:, :200]), "H = 200", "128")
    expect_refused(lambda: run(logits, 4, 16, X="bf16", H=256), "x")
    expect_refused(
        lambda: run(logits, 4, 16, x=torch.empty(4, 260, device="cuda", dtype=torch.bfloat16)[:, :256]), "stride_x = 260"
    )


def test_a_captured_graph_takes_any_routing():
    """The launch is captured with some logits, and replayed with others."""
    logits, bias = normal(64, 256, dtype="f32"), normal(256, dtype="f32", scale=0.1)
    v = {name: value for name, value in DEEPSEEK.items() if name != "E"}
    run(logits, BLOCK=16, bias=bias, **v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = run(logits, BLOCK=16, bias=bias, **v)
    for skew in (0.0, 5.0, 50.0):
        logits.copy_(normal(64, 256, dtype="f32") + skew * (torch.arange(256, device="cuda") < 40))
        graph.replay()
        eager = run(logits, BLOCK=16, bias=bias, **v)
        for name in NAMES:
            expect_same_bits(outs[name].view, eager[name].view, f"{name}, skew {skew}")


def test_no_tokens_and_refusals():
    outs = [Guarded(4, 8, dtype="f32")] + [Guarded(size, dtype="i32") for size in (128, 8, 1, 32, 32)]
    route = kernel("moe_route", T="f32", E=128, K=8, BLOCK=16)
    logits = torch.empty(4, 128, device="cuda")
    route(*(o.view for o in outs[:5]), logits, 0, 128, 128, 1.0, None, None, outs[5].view)
    assert int(outs[3].view[0]) == 0 and bool((outs[1].view == 0).all()) and bool((outs[2].view == -1).all())
    assert all(bool((o.bits == -1).all()) for o in (outs[0], outs[4], outs[5])), "no tokens: no pair is written"
    for o in outs:
        o.check("no tokens")
    expect_refused(lambda: run(normal(513, 128, dtype="f32"), 8, 16), "tokens = 513")
    expect_refused(lambda: run(normal(4, 64, dtype="f32"), 4, 16, BIAS=True), "bias")
    expect_refused(lambda: run(normal(4, 64, dtype="f32"), 4, 16, LOCAL_ONLY=True), "LOCAL_ONLY", "expert_map")
    expect_refused(lambda: kernel("moe_route", T="f32", E=8, K=9, BLOCK=16), "K = 9", "E = 8")
    expect_refused(lambda: kernel("moe_route", T="f32", E=512, K=8, BLOCK=16, THREADS=256), "THREADS")


def bench():
    for tokens, shape, block in [(t, DEEPSEEK, 16) for t in (1, 8, 64, 256, 512)] + [
        (t, dict(E=128, K=8), 16) for t in (1, 8, 64, 256, 512)
    ]:
        experts, k, biased = shape["E"], shape["K"], shape.get("BIAS", False)
        capacity = moe_align.capacity_of(tokens * k, experts, block)
        route = kernel("moe_route", T="f32", BLOCK=block, **shape)
        gate = kernel("topk_gate", T="f32", LANES=32, **shape) if tokens <= 64 else kernel("topk_gate", T="f32", **shape)
        align = kernel("moe_align", E=experts, BLOCK=block)
        narrow = kernel("moe_route", T="f32", BLOCK=block, LANES=16, **shape)

        def fused(route, capacity=capacity, tokens=tokens, experts=experts, biased=biased):
            def launch(w, s, e, p, inv, i, x, b):
                route(w, s, e, p, inv, x, tokens, experts, capacity, 1.0, b if biased else None, None, i)

            return launch

        def apart(
            w, s, e, p, inv, i, x, b, gate=gate, align=align, capacity=capacity, tokens=tokens, experts=experts, k=k, biased=biased
        ):
            gate(w, i, x, tokens, experts, 1.0, b if biased else None)
            align(s, e, p, inv, i, tokens, k, k, capacity)

        def make(tokens=tokens, experts=experts, k=k, block=block, capacity=capacity):
            sizes = (capacity, capacity // block, 1, tokens * k, tokens * k)
            ints = [torch.empty(size, device="cuda", dtype=torch.int32) for size in sizes]
            logits, bias = normal(tokens, experts, dtype="f32"), normal(experts, dtype="f32", scale=0.1)
            return (torch.empty(tokens, k, device="cuda"), *ints, logits, bias)

        yield Row(
            f"moe_route f32 {tokens} x {experts} k {k} block {block}",
            tokens * experts * 4,
            tokens * k * 12 + capacity * 4,
            make,
            {"kiln": fused(route), "kiln LANES=16": fused(narrow), "kiln topk_gate + moe_align": apart},
            bar=0.0,
            bar_us=8.0,
            beats={"kiln": ["kiln topk_gate + moe_align"]},
        )

    for tokens, experts, hidden in itertools.product((1, 16, 256), (128,), (2048,)):
        capacity = moe_align.capacity_of(tokens * 8, experts, 16)
        parameters = dict(T="f32", E=experts, K=8, BLOCK=16)
        whole, route = kernel("moe_route", X="bf16", H=hidden, **parameters), kernel("moe_route", **parameters)
        quant = kernel("fp8_quant", T="bf16", H=hidden, GROUP=128, SCALING="group")

        def together(w, s, e, p, inv, i, x, h, c, f, whole=whole, tokens=tokens, experts=experts, capacity=capacity, hidden=hidden):
            whole(w, s, e, p, inv, x, tokens, experts, capacity, 1.0, None, None, i, h, hidden, c, f)

        def in_two(
            w,
            s,
            e,
            p,
            inv,
            i,
            x,
            h,
            c,
            f,
            route=route,
            quant=quant,
            tokens=tokens,
            experts=experts,
            capacity=capacity,
            hidden=hidden,
        ):
            route(w, s, e, p, inv, x, tokens, experts, capacity, 1.0, None, None, i)
            quant(c, h, tokens, hidden, hidden, None, f, hidden // 128, 1)

        def make_with_x(tokens=tokens, experts=experts, capacity=capacity, hidden=hidden):
            ints = [
                torch.empty(size, device="cuda", dtype=torch.int32)
                for size in (capacity, capacity // 16, 1, tokens * 8, tokens * 8)
            ]
            codes = torch.empty(tokens, hidden, device="cuda", dtype=DTYPES["e4m3"])
            scales = torch.empty(tokens, hidden // 128, device="cuda")
            x = (normal(tokens, experts, dtype="f32"), normal(tokens, hidden))
            return (torch.empty(tokens, 8, device="cuda"), *ints, *x, codes, scales)

        yield Row(
            f"moe_route f32 {tokens} x {experts} k 8 block 16, x {hidden}",
            tokens * (experts * 4 + hidden * 2),
            tokens * (8 * 12 + hidden + hidden // 32) + capacity * 4,
            make_with_x,
            {"kiln": together, "kiln moe_route + fp8_quant": in_two},
            bar=0.0,
            bar_us=8.0,
            beats={"kiln": ["kiln moe_route + fp8_quant"]},
        )
