"""topk_gate against float64: exact ids, also among ties and with NaN or infinite logits; and
its time beside PyTorch.
"""

import itertools

import torch
from harness import (
    TOLERANCE,
    Guarded,
    Row,
    compiled,
    expect_close,
    expect_refused,
    expect_same_bits,
    kernel,
    normal,
    peers,
    prefetch,
)

DEEPSEEK = dict(E=256, K=8, SCORE="sigmoid", BIAS=True, GROUPS=8, TOPK_GROUPS=4)
SANITIZE = [
    "topk_gate T=f32 E=256 K=8 SCORE=sigmoid BIAS=true GROUPS=8 TOPK_GROUPS=4 tokens=301",
    "topk_gate T=bf16 E=128 K=8 tokens=77",
    "topk_gate T=f32 E=97 K=5 BIAS=true RENORM=false tokens=33",
    "topk_gate T=f16 E=8 K=2 tokens=1001",
]
CLOSE = 1e-6  # scores nearer than this, and not equal, may change places by f32's rounding


def reference(logits, K, SCORE="softmax", BIAS=None, RENORM=True, GROUPS=1, TOPK_GROUPS=None, scale=1.0):
    """(weights, ids, certain), by stable sorts, so that ties take the lower id.

    `certain` is false for rows that f32 cannot decide.
    """
    tokens, experts = logits.shape
    topk_groups = TOPK_GROUPS or GROUPS
    x = logits.double()
    top = torch.finfo(torch.float32).max
    finite = torch.where(x.isnan(), -top, x.clamp(-top, top))
    scores = torch.softmax(finite, -1) if SCORE == "softmax" else torch.sigmoid(finite)
    choice = torch.where(x.isnan(), float("-inf"), x if BIAS is None else scores + BIAS.double())
    certain = torch.ones(tokens, dtype=torch.bool, device=x.device)

    def decided(ordered, first, last):  # between neighbours first..last of descending values
        gap = ordered[:, first - 1 : last - 1] - ordered[:, first:last]
        return ~((gap > 0) & (gap < CLOSE)).any(-1)

    open_ = torch.ones_like(choice, dtype=torch.bool)
    if topk_groups < GROUPS:
        of_group = choice.view(tokens, GROUPS, -1)
        of_group = of_group.amax(-1) if BIAS is None else of_group.topk(2).values.sum(-1)
        of_group = torch.where(of_group.isnan(), float("-inf"), of_group)
        best, order = of_group.sort(dim=-1, descending=True, stable=True)
        if BIAS is not None:
            certain &= decided(best, topk_groups, topk_groups + 1)
        groups = torch.zeros_like(of_group, dtype=torch.bool).scatter(1, order[:, :topk_groups], True)
        open_ = groups[:, :, None].expand(-1, -1, experts // GROUPS).reshape(tokens, experts)
    by_choice, order = choice.sort(dim=-1, descending=True, stable=True)
    # Experts of open groups come first, in their order.
    first = (~open_.gather(1, order)).sort(dim=-1, stable=True).indices
    ids = order.gather(1, first)[:, :K]
    if BIAS is not None:
        certain &= decided(by_choice.gather(1, first)[:, : K + 1], 1, min(K + 1, experts))
    weights = scores.gather(1, ids)
    if RENORM:
        total = weights.sum(-1, keepdim=True)
        weights = torch.where(total >= torch.finfo(torch.float32).tiny, weights / total, 1.0 / K)
    return weights * scale, ids, certain


def run(logits, K, dtype="f32", bias=None, scale=1.0, **parameters):
    tokens, experts = logits.shape
    weights, ids = Guarded(tokens, K, dtype="f32"), Guarded(tokens, K, dtype="i32")
    kernel("topk_gate", T=dtype, E=experts, K=K, **parameters)(
        weights.view, ids.view, logits, tokens, logits.stride(0), scale, bias
    )
    return weights, ids


def expect_right(logits, K, dtype="f32", bias=None, scale=1.0, what="", **parameters):
    """Runs topk_gate, checks it, and returns the number of rows that f32 could not decide.

    In such rows the ids need only be distinct and in range.
    """
    weights, ids = run(logits, K, dtype, bias, scale, **parameters)
    options = {name: value for name, value in parameters.items() if name in ("SCORE", "RENORM", "GROUPS", "TOPK_GROUPS")}
    want, want_ids, certain = reference(logits, K, BIAS=bias, scale=scale, **options)
    wrong = int((ids.view != want_ids)[certain].any(-1).sum())
    assert wrong == 0, (
        f"{what}: ids of {wrong} tokens differ, first {ids.view[certain][(ids.view != want_ids)[certain].any(-1)][0].tolist()}"
    )
    assert bool(weights.view.isfinite().all()), f"{what}: a weight is not finite"
    ordered = ids.view.sort(-1).values
    assert bool((ordered[:, 1:] > ordered[:, :-1]).all()) and int(ordered.amin()) >= 0 and int(ordered.amax()) < logits.shape[1], (
        f"{what}: ids repeat or leave the range"
    )
    expect_close(weights.view[certain], want[certain], TOLERANCE["f32"], what)
    weights.check(what), ids.check(what)
    return int((~certain).sum())


def shapes():
    yield from (
        (8, 2),
        (8, 8),
        (16, 1),
        (60, 4),
        (64, 6),
        (64, 8),
        (97, 5),
        (127, 7),
        (128, 8),
        (160, 6),
        (256, 8),
        (257, 32),
        (384, 8),
        (512, 10),
        (512, 32),
        (1, 1),
        (7, 7),
    )


def test_every_shape_and_score():
    variants = [
        dict(T=t, E=e, K=k, SCORE=s, BIAS=b, RENORM=r)
        for (e, k), t, s, b, r in itertools.product(
            shapes(), ("f32", "bf16", "f16"), ("softmax", "sigmoid"), (False, True), (False, True)
        )
        if t == "f32" or (r and e in (64, 128, 256, 257, 384))
    ]
    for v in variants:
        prefetch("topk_gate", **v)
    undecided = rows = 0
    for v in variants:
        dtype, experts, k = v.pop("T"), v.pop("E"), v.pop("K")
        for tokens in (1, 3, 257):
            bias = normal(experts, dtype="f32", scale=0.1) if v["BIAS"] else None
            undecided += expect_right(
                normal(tokens, experts, dtype=dtype), k, dtype, bias, 2.5, f"{dtype} {experts} {k} {v} tokens={tokens}", **v
            )
            rows += tokens
    assert undecided < rows / 200, f"{undecided} of {rows} rows undecided"
    return f"{undecided} of {rows} rows are closer than f32 decides"


def grouped():
    yield dict(DEEPSEEK)
    yield dict(E=160, K=6, GROUPS=8, TOPK_GROUPS=3, RENORM=False)  # DeepSeek V2
    yield dict(E=256, K=8, GROUPS=8, TOPK_GROUPS=4, SCORE="sigmoid")
    yield dict(E=128, K=8, GROUPS=4, TOPK_GROUPS=1, SCORE="sigmoid", BIAS=True)
    yield dict(E=96, K=5, GROUPS=3, TOPK_GROUPS=2, BIAS=True)
    yield dict(E=70, K=4, GROUPS=5, TOPK_GROUPS=2, SCORE="sigmoid", BIAS=True)
    yield dict(E=64, K=8, GROUPS=32, TOPK_GROUPS=7, SCORE="sigmoid", BIAS=True)
    yield dict(E=32, K=9, GROUPS=32, TOPK_GROUPS=9)
    yield dict(E=512, K=16, GROUPS=2, TOPK_GROUPS=1, BIAS=True)


def test_groups():
    undecided = rows = 0
    for v in grouped():
        for tokens in (1, 5, 1000):
            bias = normal(v["E"], dtype="f32", scale=0.1) if v.get("BIAS") else None
            undecided += expect_right(
                normal(tokens, v["E"], dtype="f32"),
                bias=bias,
                what=f"{v} tokens={tokens}",
                **{n: x for n, x in v.items() if n != "E"},
            )
            rows += tokens
    assert undecided < rows / 200, f"{undecided} of {rows} rows undecided"


def test_ties_take_the_lower_id():
    """The logits have few levels, so that nearly every choice is a tie.

    A bias of 0 keeps the ties in f32 and in float64, so every row is certain.
    """
    for levels in (1, 2, 5):
        for v in [dict(E=e, K=k, SCORE=s) for (e, k), s in itertools.product(shapes(), ("softmax", "sigmoid"))] + list(grouped()):
            v = dict(v)
            experts = v.pop("E")
            logits = torch.randint(0, levels, (301, experts), device="cuda").float() * 0.75 - 1.0
            bias = torch.zeros(experts, device="cuda") if v.get("BIAS") else None
            assert expect_right(logits, bias=bias, what=f"{levels} levels, {experts} {v}", **v) == 0
    logits = torch.randint(0, 4, (1000, 256), device="cuda").float()
    bias = torch.randint(0, 3, (256,), device="cuda").float() / 8
    expect_right(logits, bias=bias, what="ties of biased scores", K=8, SCORE="sigmoid", BIAS=True)
    signs = torch.zeros(4, 64, device="cuda")
    signs[:, ::2] = -0.0
    _, ids = run(signs, 4)
    assert ids.view.tolist() == [[0, 1, 2, 3]] * 4, "0 and -0 tie"


def poisoned(tokens, experts, dtype="f32"):
    x = normal(tokens, experts, dtype=dtype)
    kinds = torch.tensor([float("nan"), float("inf"), float("-inf"), 3e38, -3e38, 1e-40, 100.0, -100.0], device="cuda").to(x.dtype)
    share = torch.rand(tokens, 1, device="cuda")
    at = torch.rand(tokens, experts, device="cuda") < share
    x = torch.where(at, kinds[torch.randint(0, len(kinds), (tokens, experts), device="cuda")], x)
    for row, value in enumerate((float("nan"), float("inf"), float("-inf"), -1000.0, 0.0)):
        x[row] = value
    x[5], x[5, experts // 2] = float("nan"), 1.0
    x[6], x[6, -1] = float("-inf"), float("nan")
    x[7], x[7, experts // 3] = float("nan"), float("-inf")
    return x


def test_poisoned_logits():
    variants = [
        dict(E=e, K=k, SCORE=s, BIAS=b, RENORM=r)
        for (e, k), s, b, r in itertools.product(
            ((8, 2), (97, 5), (128, 8), (256, 8), (512, 32)), ("softmax", "sigmoid"), (False, True), (False, True)
        )
    ]
    for v in variants + list(grouped()):
        v = dict(v)
        experts = v.pop("E")
        for dtype in ("f32", "bf16"):
            if dtype == "bf16" and experts != 256:
                continue
            bias = normal(experts, dtype="f32", scale=0.1) if v.get("BIAS") else None
            expect_right(poisoned(600, experts, dtype), dtype=dtype, bias=bias, what=f"{dtype} {experts} {v}", **v)
    bias = normal(256, dtype="f32")
    bias[3], bias[70], bias[200] = float("nan"), float("inf"), float("-inf")
    weights, ids = run(poisoned(600, 256), bias=bias, **{n: x for n, x in DEEPSEEK.items() if n != "E"})
    ordered = ids.view.sort(-1).values
    assert bool(weights.view.isfinite().all()) and bool((ordered[:, 1:] > ordered[:, :-1]).all()), "a poisoned bias"


def test_nothing_known_of_a_token():
    for score, renorm in itertools.product(("softmax", "sigmoid"), (False, True)):
        weights, ids = run(torch.full((3, 64), float("nan"), device="cuda"), 8, SCORE=score, RENORM=renorm)
        assert ids.view.tolist() == [list(range(8))] * 3
        want = 1 / 8 if renorm else 1 / 64 if score == "softmax" else 0.0
        assert weights.view.tolist() == [[want] * 8] * 3, f"{score} {renorm}: {weights.view[0].tolist()}"


def test_strides_and_misaligned_views():
    stride = (1 << 31) + 64
    for experts, k, s, tokens in ((256, 8, stride, 3), (128, 8, 132, 100), (97, 5, 101, 100)):
        x = Guarded(tokens, experts, dtype="f32", strides=(s, 1))
        x.view.copy_(normal(tokens, experts, dtype="f32"))
        expect_right(x.view, k, what=f"{experts} stride {s}")
        del x
    x = Guarded(9, 128, dtype="f32", strides=(129, 1))
    expect_refused(lambda: run(x.view, 8), "stride_logits", "VEC")
    x = Guarded(9, 128, dtype="f32", strides=(129, 1), shift=1)
    x.view.copy_(normal(9, 128, dtype="f32"))
    expect_refused(lambda: run(x.view[:1], 8), "align")
    expect_right(x.view, 8, VEC=1)


def test_candidates_and_runs_give_the_same_bits():
    bias = normal(256, dtype="f32", scale=0.1)
    for v in (dict(DEEPSEEK), dict(E=128, K=8, RENORM=False), dict(E=512, K=32, BIAS=True)):
        experts = v.pop("E")
        x, b = normal(1001, experts, dtype="f32"), normal(experts, dtype="f32", scale=0.1) if v.get("BIAS") else None
        weights, ids = run(x, bias=b, **v)
        for more in ({},) * 5 + tuple({"WARPS": w} for w in (1, 2, 4, 8)):
            again, again_ids = run(x, bias=b, **v, **more)
            expect_same_bits(again.view, weights.view, f"{v} {more}")
            expect_same_bits(again_ids.view, ids.view, f"{v} {more}")
    for lanes in (8, 16, 32):
        expect_right(normal(333, 128, dtype="f32"), 8, LANES=lanes, what=f"LANES={lanes}")
        expect_right(
            normal(333, 256, dtype="f32"),
            bias=bias,
            LANES=lanes,
            what=f"grouped, LANES={lanes}",
            **{n: v for n, v in DEEPSEEK.items() if n != "E"},
        )


def test_no_tokens_and_refusals():
    weights, ids = Guarded(4, 8, dtype="f32"), Guarded(4, 8, dtype="i32")
    kernel("topk_gate", T="f32", E=128, K=8)(weights.view, ids.view, torch.empty(4, 128, device="cuda"), 0, 128)
    assert bool((weights.bits == -1).all()) and bool((ids.bits == -1).all()), "no tokens: nothing written"
    expect_refused(lambda: kernel("topk_gate", T="f32", E=8, K=9), "K = 9", "E = 8")
    expect_refused(lambda: kernel("topk_gate", T="f32", E=256, K=8, GROUPS=7), "GROUPS = 7")
    expect_refused(lambda: kernel("topk_gate", T="f32", E=64, K=9, GROUPS=8, TOPK_GROUPS=1), "TOPK_GROUPS = 1")
    expect_refused(lambda: run(normal(4, 64, dtype="f32"), 4, BIAS=True), "bias")


def test_large():
    x = normal(300001, 256, dtype="bf16")
    bias = normal(256, dtype="f32", scale=0.1)
    expect_right(x, dtype="bf16", bias=bias, **{n: v for n, v in DEEPSEEK.items() if n != "E"})


def eager(logits, bias, k, score, renorm, groups, topk_groups):
    """vLLM's grouped_topk and fused_topk in PyTorch."""
    scores = torch.softmax(logits.float(), -1) if score == "softmax" else logits.float().sigmoid()
    choice = scores if bias is None else scores + bias
    if groups > topk_groups:
        split = choice.view(len(scores), groups, -1)
        of_group = split.amax(-1) if bias is None else split.topk(2, -1)[0].sum(-1)
        mask = torch.zeros_like(of_group).scatter_(1, of_group.topk(topk_groups, -1)[1], 1)
        choice = choice.masked_fill(mask[:, :, None].expand(split.shape).reshape(choice.shape) == 0, float("-inf"))
    ids = choice.topk(k, -1)[1]
    weights = scores.gather(1, ids)
    return (weights / weights.sum(-1, keepdim=True) if renorm else weights), ids.int()


def bench():
    cases = [("f32", t, 256, 8, "sigmoid", 8, 4) for t in (1, 8, 64, 4096, 8192)] + [
        ("f32", t, 128, 8, "softmax", 1, 1) for t in (1, 8, 64, 4096, 8192)
    ]
    cases += [
        ("bf16", 8192, 256, 8, "sigmoid", 8, 4),
        ("bf16", 8192, 128, 8, "softmax", 1, 1),
        ("f32", 8192, 384, 8, "sigmoid", 1, 1),
        ("f32", 8192, 8, 2, "softmax", 1, 1),
        ("f32", 8192, 160, 6, "softmax", 8, 3),
        ("f32", 8192, 512, 10, "softmax", 1, 1),
    ]
    for dtype, tokens, experts, k, score, groups, topk_groups in cases:
        biased = score == "sigmoid"
        few = {"LANES": 32} if tokens <= 64 else {}  # as an engine specialises its decode graphs
        shape = dict(T=dtype, E=experts, K=k, SCORE=score, BIAS=biased, GROUPS=groups, TOPK_GROUPS=topk_groups)
        gate, default = kernel("topk_gate", **shape, **few), kernel("topk_gate", **shape)

        def torch_gate(w, i, x, b, k=k, score=score, biased=biased, groups=groups, topk_groups=topk_groups):
            return eager(x, b if biased else None, k, score, True, groups, topk_groups)

        launches = {
            "kiln": lambda w, i, x, b, gate=gate, tokens=tokens, experts=experts: gate(w, i, x, tokens, experts, 1.0, b),
            "eager": torch_gate,
        }
        if few:
            launches["kiln, default LANES"] = lambda w, i, x, b, gate=default, tokens=tokens, experts=experts: gate(
                w, i, x, tokens, experts, 1.0, b
            )
        if tokens in (1, 64, 8192) and dtype == "f32":
            launches["compile"] = compiled(torch_gate)
        if score == "softmax" and groups == 1:
            for label, peer in peers.get("topk_softmax").items():
                launches[label] = lambda w, i, x, b, peer=peer: peer(w, i, x)
        elif score == "sigmoid" and dtype == "f32":
            for label, peer in peers.get("grouped_topk").items():
                launches[label] = lambda w, i, x, b, peer=peer, k=k, groups=groups, topk_groups=topk_groups: peer(
                    w, i, x, b, groups, topk_groups, k
                )
        size = 4 if dtype == "f32" else 2
        yield Row(
            f"topk_gate {dtype} {tokens} x {experts} k {k} {score}{f' groups {groups}/{topk_groups}' if groups > 1 else ''}{' LANES=32' if few else ''}",
            tokens * experts * size,
            tokens * k * 8,
            lambda tokens=tokens, experts=experts, k=k, dtype=dtype: (
                torch.empty(tokens, k, device="cuda"),
                torch.empty(tokens, k, device="cuda", dtype=torch.int32),
                normal(tokens, experts, dtype=dtype),
                normal(experts, dtype="f32", scale=0.1),
            ),
            launches,
            bar=0.0,
            bar_us=8.0,
        )
