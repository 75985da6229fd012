"""attn_sm90 against float64: what attn_prefill's tests check, for the options that attn_sm90 has. Batches, comparisons and
launches are those that attn_prefill.py has.
"""

import copy
import itertools
import random

import attn_prefill as prefill
import torch
from attention_plan import AttentionPlan
from attn_prefill import MIXED, Batch, check, check_all
from harness import Row, expect_refused, expect_traps, kernel, prefetch

CAPABILITY = 9  # wgmma
SANITIZE = [
    "attn_sm90 T=bf16 D=128 GROUP=4 kv_heads=2 qo_tokens=60 kv_rows=4001 workers=64",
    "attn_sm90 T=f16 D=64 GROUP=3 kv_heads=2 SOFT_CAP=true soft_cap=20 WINDOW=true window_left=1500 qo_tokens=99 kv_rows=8003 workers=65",
    "attn_sm90 T=bf16 D=256 GROUP=1 kv_heads=2 CAUSAL=false qo_tokens=130 kv_rows=6007 workers=33",
    "attn_sm90 T=bf16 D=128 GROUP=4 kv_heads=2 PAGING=table page_size=16 qo_tokens=60 kv_rows=4000 workers=64",
]


class Options(prefill.Options):
    template = "attn_sm90"

    @property
    def parameters(self):
        return {name: value for name, value in super().parameters.items() if name not in ("ALIBI", "MASK")}


def check_combinations(drawn, seed, count):
    """Combinations of options, drawn at random from a fixed seed. Other tests have some of them. `drawn` makes the options."""
    draw, cases = random.Random(seed), []
    for _ in range(count):
        options = drawn(draw)
        if not options.causal:
            options.right = draw.choice((-1, -1, 0, 7, 300))
        token = lambda: draw.choice((0, 1, draw.randint(2, 200), draw.randint(200, 1500)))
        how = dict(
            layout=draw.choice(("NHD", "HND", "padded")), gap=draw.choice((0, 3)), workers=draw.choice((0, 0, 1, 5, 131, 1000))
        )
        cases.append((options, [(token(), token()) for _ in range(draw.randint(1, 12))], how))
        prefetch(options.template, **options.parameters)
    for options, lengths, how in cases:
        check(options, lengths, f"{options} {how} {lengths}", **how)
    return f"{len(cases)} combinations"


def check_mixtures(options):
    """Mixtures of 12 and of 128 requests, with short and with long ones, and with requests without tokens."""
    draw = random.Random(5)
    for requests in (12, 128):
        lengths = [(int(601 ** draw.random()) - 1, int(2001 ** draw.random()) - 1) for _ in range(requests)]
        lengths[3:5] = [(0, 0), (0, 77)]
        check(options(), lengths)
        check(options(causal=False, T="f16", d=64), lengths)


def check_windows_and_caps(options):
    """Causal or not, with a window or without, and with a soft cap or without."""
    cases = []
    for causal, window, cap in itertools.product((False, True), (-1, 70), (0.0, 5.0)):
        for T, group in (("f16", 3), ("bf16", 4)):
            cases.append((options(T=T, causal=causal, window=window, cap=cap, group=group), MIXED))
    return check_all(cases)


def test_lengths():
    for n in (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 500, 1023, 4097):
        check(Options(), [(n, n)])
        check(Options(causal=False), [(max(1, n // 3), n)])
    check(Options(group=1, kv_heads=1), [(16384, 16384)])
    check(Options(group=1, kv_heads=1, causal=False), [(16384, 16384)])
    check(Options(group=8, kv_heads=1), [(300, 16384)])


def test_mixtures():
    check_mixtures(Options)
    check(Options(), MIXED)
    check(Options(), [(0, 0), (0, 9)])
    check(Options(), [(1, 3)] * 300)
    for gap in (0, 200):
        check(Options(), MIXED, gap=gap)


def test_options_and_their_combinations():
    return check_windows_and_caps(Options)


def test_whatever_engines_may_combine():
    def drawn(draw):
        d, dv = draw.choice(((64, 64), (80, 80), (96, 96), (112, 112), (128, 128), (128, 128), (256, 256), (192, 128)))
        return Options(
            T=draw.choice(("bf16", "f16")),
            d=d,
            dv=dv,
            group=draw.choice((1, 2, 4, 6, 8, 12, 64)),
            kv_heads=draw.choice((1, 2, 5)),
            causal=draw.random() < 0.6,
            window=draw.choice((-1, -1, 0, 20, 1000)),
            cap=draw.choice((0.0, 0.0, 5.0)),
            sm_scale=draw.choice((0.0, 0.2)),
            page=draw.choice((0, 0, 16, 64, 112, 1024)),
            sink=draw.random() < 0.3,
        )

    return check_combinations(drawn, 11, 40)


def test_head_sizes():
    cases = [
        (Options(T=T, d=d, group=5, **options), MIXED)
        for T, d, options in itertools.product(("f16", "bf16"), (64, 192, 256), ({}, {"causal": False, "window": 33}, {"cap": 7.0}))
    ]
    return check_all(cases + [(Options(d=d, dv=dv), MIXED) for d, dv in ((128, 64), (192, 192), (256, 128), (256, 64), (112, 80))])


def test_head_sizes_of_vision():
    prefill.check_head_sizes_of_vision(Options)


def test_groups():
    return check_all([(Options(group=g, kv_heads=3, d=64), MIXED) for g in (1, 2, 3, 5, 7, 8, 16, 33, 64)])


def test_tiles():
    tiles = {
        64: ((64, 3), (96, 3), (160, 3)),
        128: ((64, 3), (96, 2), (160, 2), (128, 1)),
        192: ((96, 2), (160, 1)),
        256: ((64, 2), (96, 1)),
    }
    return check_all(
        [
            (Options(d=d, TILE_KV=tokens, STAGES=stages, **({"window": 150} if stages == 3 else {})), [*MIXED, (130, 700)])
            for d, shapes in tiles.items()
            for tokens, stages in shapes
        ]
    )


def test_tiles_whose_last_rows_are_of_any_warpgroup():
    # With heads of 64, three warpgroups have the 192 rows of a tile. The last tile of a request leaves none, one or two of them
    # without rows. Few workers take many tiles each, and more workers cut tiles.
    lengths = [(n, n + extra) for n in (1, 63, 64, 65, 128, 129, 191, 192, 193, 385) for extra in (0, 300)]
    for causal, page in itertools.product((True, False), (0, 16)):
        for workers in (1, 7, 0):
            check(Options(d=64, group=1, causal=causal, page=page), lengths, workers=workers)
    check(Options(d=64, group=1, kv_heads=1), [(192, 5000), (130, 4000), (50, 3000)], workers=40)


def test_pages():
    check_all(
        [(Options(page=48, d=d, TILE_KV=tokens, cap=9.0), MIXED) for d, tokens in ((128, 160), (128, 112), (256, 80), (256, 64))]
    )
    return prefill.check_pages(Options, (16, 64, 112, 4096))


def test_sinks():
    prefill.check_sinks(Options)


def test_right_windows():
    prefill.check_right_windows(Options)


def test_several_tokens_of_each_request():
    # The rows of 4 tokens and 8 heads are one tile, with half of the warpgroups idle, or more of them with one head.
    for group, tokens, make in itertools.product((1, 8, 16), (1, 4, 8), (prefill.Options, Options)):
        check(make(group=group, page=16), [(tokens, n) for n in (4096, 17, 1, 300, 129)])
    for make in (prefill.Options, Options):
        batch = Batch(make(group=8, page=16), [(4, 512)] * 3)
        plan = batch.plan(workers=1)
        assert plan.items == 3 * batch.options.kv_heads and plan.parts == 0  # a request's keys are read once for each head


def test_layouts():
    prefill.check_layouts([Options(), Options(T="f16", d=64, group=3), Options(d=256, causal=False)])


def test_strides_beyond_31_bits():
    prefill.check_far_rows(Options(kv_heads=1))


def test_large_logits():
    prefill.check_large_logits(Options, ({}, {"window": 40}, {"cap": 30.0}))


def test_rows_that_see_nothing():
    check(Options(), [(300, 100), (64, 1), (5, 0)])
    check(Options(window=0), [(300, 100), (64, 1)])


def test_a_window_that_is_off():
    check(Options(WINDOW=True), MIXED)


def test_without_lse_and_with_a_scale():
    prefill.check_without_lse(Options(sm_scale=0.25))


def test_parts_agree_and_runs_give_the_same_bits():
    return prefill.check_parts(
        (
            (Options(), [(40, 5000)]),
            (Options(d=256, causal=False, group=1), [(128, 3000), (1, 700)]),
            (Options(d=64, group=16, kv_heads=1), MIXED),
            (Options(T="f16", window=600), [(1000, 4000)]),
            (Options(d=192, group=1), [(64, 4000), (7, 7)]),
            (Options(group=8, kv_heads=1), [(4, 8192)] * 3),
        )
    )


def test_a_graph_replays_after_a_new_plan():
    return prefill.check_graph((Options(window=300), Options()))


def test_what_is_refused():
    b = Batch(Options(), [(5, 5)])
    plan = b.plan()
    expect_refused(lambda: kernel("attn_sm90", T="bf16", D=72, GROUP=1), "D", "72")
    expect_refused(lambda: kernel("attn_sm90", T="bf16", D=128, GROUP=65), "GROUP", "65")
    expect_refused(lambda: kernel("attn_sm90", T="bf16", D=64, DV=128, GROUP=1), "DV = 128")
    expect_refused(lambda: kernel("attn_sm90", T="bf16", D=256, GROUP=1, TILE_KV=128), "TILE_KV = 128", "registers")
    expect_refused(lambda: kernel("attn_sm90", T="bf16", D=256, GROUP=1, STAGES=3), "STAGES = 3", "shared memory")
    b.options = Options(window=3, WINDOW=False)
    expect_refused(lambda: b.launch(plan), "window_left = 3")
    b.options = Options()
    k, b.k = b.k, b.k[:0]  # a tensor without elements has a null pointer
    rows = list(b.options.arguments(b, plan, True))
    rows[8] = 8
    expect_refused(lambda: b.options.kernel()(*rows), "kv_rows = 8", "null")
    paged = Batch(Options(page=24), [(5, 5)])
    expect_refused(lambda: paged.launch(paged.plan()), "page_size = 24", "multiple of 16")
    b.k, rows[2], rows[8] = k, k, -1
    expect_refused(lambda: b.options.kernel()(*rows), "kv_rows = -1", "negative")
    b.k = k
    for given in ({"slopes": torch.ones(8, device="cuda")}, {"bits": (torch.ones(4, device="cuda", dtype=torch.uint8), None)}):
        other = Batch(Options(), [(5, 5)])
        vars(other).update(given)
        expect_refused(lambda: other.launch(other.plan()), "must be null", "attn_prefill takes them")
    b.q = torch.empty(5, 8, 129, device="cuda", dtype=torch.bfloat16)[..., :128]
    expect_refused(lambda: b.launch(plan), "multiples of 8")
    for options, words in (
        (Options(cap=3.0, SOFT_CAP=False), ("soft_cap = 3", "0 without")),
        (Options(SOFT_CAP=True), ("soft_cap = 0", "above 0")),
        (Options(sm_scale=-1.0), ("sm_scale = -1",)),
    ):
        other = Batch(options, [(5, 5)])
        expect_refused(lambda: other.launch(other.plan()), *words)


def test_a_plan_for_something_else_ends_the_launch():
    # Each case is (the launch's options, the plan's options, blocks that the grid lacks, traps).
    cases = [
        ({}, {}, 0, False),
        ({}, {"causal": False}, 0, True),
        ({}, {"d": 64, "TILE_KV": 64}, 0, True),
        ({}, {"group": 8, "kv_heads": 1}, 0, True),
        ({}, {"kv_heads": 1}, 0, True),
        ({}, {}, 1, True),
        ({"window": 100}, {"window": 50}, 0, True),
        ({"WINDOW": True}, {"window": 50}, 0, True),
    ]
    expect_traps(prefill.OTHER_PLAN % "attn_sm90", cases)


def test_requests_without_kv_tokens():
    # k and v have no elements, and null pointers. attn_prefill takes the same batches.
    for make, lengths in itertools.product((prefill.Options, Options), ([(3, 0)], [(70, 0), (0, 0), (200, 0)])):
        b = Batch(make(), lengths, gap=0)
        assert b.k.numel() == 0
        b.launch(b.plan())
        b.expect(f"{b.options.template} {lengths}")


def several_tokens_row(requests=64, tokens=4, kv=8192):
    """The row of a few tokens of each request over long pages, beside attn_decode_paged with one token and with all."""
    o, portable = (kind(group=4, kv_heads=8, page=16) for kind in (Options, prefill.Options))
    heads = o.group * o.kv_heads

    def make():
        b = Batch(o, [(tokens, kv)] * requests, gap=0)
        other = copy.copy(b)
        other.options = portable
        decode = kernel("attn_decode_paged", T=o.T, D=o.d, GROUP=o.group)
        plans = []
        for each in (1, tokens):
            plan = AttentionPlan(decode, requests, o.kv_heads, max_tokens=requests * each)
            plans.append(plan(b.kv_indptr, [each * i for i in range(requests + 1)], b.kv_len, page_size=o.page))
        return b.q, b.k, b.v, b.out, b, b.plan(), other, other.plan(), decode, *plans

    def decode(q, k, v, out, b, plan, other, other_plan, launch, one, all_tokens, few=True):
        plan = one if few else all_tokens
        strides = (*out.stride()[:2], *q.stride()[:2], *k.stride()[:3], *v.stride()[:3])
        launch(out, q, k, v, b.kv_indices, plan.words, plan.workspace, plan.workers, o.kv_heads, o.page, *strides)

    return Row(
        f"{o.template} bf16 HQ{heads} HKV{o.kv_heads} D{o.d} {requests} x {tokens} tokens over {kv}, pages of {o.page}",
        (requests * kv * o.kv_heads * 2 + requests * tokens * heads) * o.d * 2,
        requests * tokens * heads * o.d * 2,
        make,
        {
            "kiln": lambda q, k, v, out, b, plan, *_: b.launch(plan, lse=False),
            "kiln attn_prefill": lambda q, k, v, out, b, plan, other, other_plan, *_: other.launch(other_plan, lse=False),
            "kiln attn_decode_paged, one token": decode,
            f"kiln attn_decode_paged, {tokens} tokens": lambda *x: decode(*x, few=False),
        },
        flops=4 * requests * tokens * kv * heads * o.d,
        bar=0.0,
        beats={"kiln": [f"kiln attn_decode_paged, {tokens} tokens"]},
    )


def bench():
    yield several_tokens_row()
    shapes = [
        *(
            (Options(group=4, kv_heads=8, causal=causal), *prompts)
            for prompts, causal in itertools.product(prefill.PROMPTS, (True, False))
        ),
        (Options(d=256, group=8, kv_heads=2), 8, 2048),
        (Options(d=64, group=4, kv_heads=8), 8, 2048),
        (Options(d=192, group=1, kv_heads=16), 8, 2048),
    ]
    for o, batch, length in shapes:
        portable = prefill.Options(d=o.d, dv=o.dv, group=o.group, kv_heads=o.kv_heads, causal=o.causal)
        yield prefill.bench_row(o, batch, length, others=[("kiln attn_prefill", portable)])
    for d, (batch, length), page in itertools.product((128, 64), ((16, 1024), (4, 4096)), (16, 64)):
        ragged, paged = (Options(d=d, group=4, kv_heads=8, page=n) for n in (0, page))
        portable = prefill.Options(d=d, group=4, kv_heads=8, page=page)
        yield prefill.bench_row(paged, batch, length, others=[("kiln ragged", ragged), ("kiln attn_prefill", portable)])
