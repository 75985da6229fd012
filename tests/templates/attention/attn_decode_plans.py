"""The plans of attn_decode_paged: tokens in parts, items of a block, blocks that come last or
late, graphs with new plans.
"""

import itertools

import torch
from attn_decode_paged import TOLERANCE, Batch, arguments, check, make_plan, outputs, parameters_of, run
from harness import expect_close, expect_same_bits, expect_traps, kernel


def test_split_and_unsplit_agree_and_runs_are_identical():
    for d, kv in ((128, "bf16"), (256, "e4m3")):
        batch = Batch([5000, 0, 1, 700, 12000], 16, heads=4, d=d, kv=kv)
        first = None
        for workers in (1, 2, 7, 264, 600):
            runs = [run(batch, workers) for _ in range(3)]
            for o, lse in runs[1:]:
                expect_same_bits(o.view, runs[0][0].view, f"workers={workers}")
                expect_same_bits(lse.view, runs[0][1].view, f"workers={workers} lse")
            first = first or runs[0]
            expect_close(runs[0][0].view, first[0].view, TOLERANCE["bf16"], f"workers={workers}")


def test_blocks_that_cannot_run_at_once():
    """Twice as many blocks as the GPU holds. The running blocks must stop waiting for
    blocks that have not started.
    """
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    each = sms * 64 * 128 // 6  # 64 steps of a block
    batch = Batch([each, 5, each + 1000, 0, each - 17], 16, heads=4)
    error = check(batch, workers=2 * sms)
    call = kernel("attn_decode_paged", **parameters_of(batch))
    plan, first = make_plan(call, batch, 2 * sms), None
    for _ in range(3):  # launches of one plan, whose counters go on
        o = torch.full((batch.tokens, 16, 128), float("nan"), device="cuda", dtype=torch.bfloat16)
        call(*arguments(batch, o, plan))
        first = o if first is None else first
        expect_same_bits(o, first)
    check(Batch([40000] + [0] * 63, 16, heads=8), "a batch that is padded")
    return f"error {error:.1e}"


def test_items_of_a_block():
    """A block has more items than fit its shared memory, with room for one or two joins."""
    for group, workers in itertools.product((4, 16), (1, 3)):
        check(Batch([3, 200, 0, 17] * 60, 16, heads=2, group=group), f"GROUP={group} workers={workers}", workers=workers)
    check(Batch([0, 0, 400, 3], 16, heads=1), "workers=2", workers=2)


def test_first_items_about_as_long_as_what_is_copied_before_the_others_are_there():
    """`fill` is the size that fill_needs_only() asks for on an H200, and `step` what a warp takes at once.

    With a window, first items begin anywhere in a page.
    """
    for kv, parameters, fill, turn, step in (
        ("bf16", {}, 384, 128, 16),
        ("e4m3", {}, 768, 256, 32),
        ("bf16", {"STAGES": 2}, 640, 128, 16),
        ("bf16", {"WARPS": 4, "STAGES": 4}, 448, 64, 16),
    ):
        for first, window in itertools.product(
            (1, fill - turn - 1, fill - step, fill - 1, fill, fill + 1, 2 * fill + 5), (False, True)
        ):
            batch = Batch([first + 100 * window, 3, 200, 0, first], 16, heads=1, kv=kv)
            check(
                batch,
                f"{kv} {parameters} first={first} window={window}",
                workers=1,
                window_left=first - 1 if window else -1,
                parameters=parameters,
            )


def test_each_worker_comes_last():
    """The block that comes last for a token merges the token's parts; which block that is depends on timing.

    The test runs all other blocks first, then each block alone. The bits must be the
    same, with and without lse.
    """
    for group, lengths, workers in ((4, [5000, 0, 1, 700, 12000], 24), (16, [900, 3000], 7)):
        batch = Batch(lengths, 16, heads=2, group=group)
        call = kernel("attn_decode_paged", **parameters_of(batch))
        plan = make_plan(call, batch, workers)
        assert plan.parts > 0, "no token in parts"
        words, table = plan.host.clone(), (workers + 4) // 4 * 4
        counters, first_items = 16 + table, 16 + 2 * table
        items = first_items + 12 * workers
        own = [words[items + 12 * int(words[16 + w]) : items + 12 * int(words[17 + w])] for w in range(workers)]

        def launch(chosen, o, lse):
            """Launches the items of these workers only. The counters of earlier launches stay."""
            some = [x if w in chosen else x[:0] for w, x in enumerate(own)]
            part = words.clone()
            part[16 : 16 + workers + 1] = torch.tensor([0] + list(itertools.accumulate(len(x) // 12 for x in some)))
            part[items : items + sum(len(x) for x in some)] = torch.cat(some)
            plan.words[:counters].copy_(part[:counters])
            plan.words[first_items:].copy_(part[first_items:])
            call(*arguments(batch, o, plan, lse=lse))

        want, want_lse = run(batch, workers)
        expect_close(want.view, batch.reference()[0], TOLERANCE["bf16"], f"GROUP={group}")
        for last, with_lse in itertools.product(range(workers), (True, False)):
            o, lse = outputs(batch)
            plan.workspace.fill_(float("nan"))
            launch(set(range(workers)) - {last}, o.view, lse.view if with_lse else None)
            launch({last}, o.view, lse.view if with_lse else None)
            what = f"GROUP={group} last={last} lse={with_lse}"
            expect_same_bits(o.view, want.view, what)
            if with_lse:
                expect_same_bits(lse.view, want_lse.view, what + " lse")
            assert not bool(plan.words[counters:first_items].any()), f"{what}: a counter is left"
            o.check(what)
            lse.check(what)


def test_a_captured_graph_follows_new_plans():
    """200 steps of growing lengths in one graph: the plan's buffer, the workspace and
    the page table never move.
    """
    steps, start = 200, [3, 500, 0, 90, 1000, 64]
    batch = Batch([n + steps for n in start], 16, heads=8)
    full = list(batch.last_page_len)
    o, lse = torch.empty(6, 32, 128, device="cuda", dtype=torch.bfloat16), torch.empty(6, 32, device="cuda")
    call = kernel("attn_decode_paged", **parameters_of(batch))
    plan = make_plan(call, batch)

    def replan(step):
        """Makes a plan for longer requests. The page table already has the pages of the full lengths."""
        batch.lengths = [n + step for n in start]
        pages_of = [-(-n // 16) for n in batch.lengths]
        batch.last_page_len = [n - (p - 1) * 16 if n else 0 for n, p in zip(batch.lengths, pages_of)]
        keep = batch.kv_indptr
        indices, indptr = [], [0]
        for i, p in enumerate(pages_of):
            indices.append(table[keep[i] : keep[i] + p])
            indptr.append(indptr[-1] + p)
        batch.kv_indices[: indptr[-1]] = torch.cat(indices)
        batch.kv_indptr = indptr
        make_plan(call, batch, plan=plan)
        batch.kv_indptr = keep

    table = batch.kv_indices.clone()
    replan(1)
    call(*arguments(batch, o, plan, lse=lse))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(*arguments(batch, o, plan, lse=lse))
    worst, all_first = 0.0, list(batch.first)
    for step in range(1, steps + 1):
        replan(step)
        batch.q.copy_(torch.randn_like(batch.q))
        o.fill_(float("nan"))
        graph.replay()
        if step % 10 == 1 or step == steps:
            k, v = batch.k, batch.v
            batch.k = torch.cat([k[all_first[i] : all_first[i] + n] for i, n in enumerate(batch.lengths)])
            batch.v = torch.cat([v[all_first[i] : all_first[i] + n] for i, n in enumerate(batch.lengths)])
            batch.first = [0] + list(itertools.accumulate(batch.lengths))
            want, want_lse = batch.reference()
            worst = max(worst, expect_close(o, want, TOLERANCE["bf16"], f"step {step}"))
            assert float((lse - want_lse).abs().max()) < 1e-3, f"step {step} lse"
            batch.k, batch.v, batch.first = k, v, all_first
    batch.last_page_len = full
    return f"{steps} steps, error at most {worst:.1e}"


def test_a_plan_for_something_else_ends_the_launch():
    program = """
import attn_decode_paged as A
from harness import kernel
def planned(heads=2, group=4, window_left=-1, workers=9, **more):
    batch = A.Batch([300, 40], heads=heads, group=group)
    call = kernel("attn_decode_paged", **A.parameters_of(batch, **more))
    return batch, call, A.make_plan(call, batch, workers, window_left)
batch, call, plan = planned()
plan.words, plan.workers = planned(**%r)[2].words, 9
call(*A.arguments(batch, A.outputs(batch)[0].view, plan, window_left=%r))
"""
    cases = [
        ({}, -1, False),
        ({}, -5, False),
        ({}, 100, True),
        ({"window_left": 100}, -1, True),
        ({"window_left": 100}, 100, False),
        ({"heads": 1}, -1, True),
        ({"group": 8}, -1, True),
        ({"workers": 10}, -1, True),
        ({"WARPS": 4}, -1, True),
    ]  # (the plan's options, the launch's window_left, traps)
    expect_traps(program, cases)
