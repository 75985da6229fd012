"""dplr_chunk against the float64 step loop of wkv7_recurrent; and its time beside wkv7_recurrent and Flash Linear Attention.

Operands of products are rounded to the element type. Flash Linear Attention's chunked kernel rounds them, too, and where
it can be had, no error may be larger than its error. The peer is fla_wkv7_chunk.
"""

import itertools

import torch
import wkv7_recurrent as wkv7
from harness import DTYPES, Guarded, Row, expect_close, expect_refused, expect_same_bits, kernel, peers, prefetch, relative_rms
from wkv7_recurrent import forms, inputs, reference, varlen

SANITIZE = [
    "dplr_chunk T=bf16 K=64 FORM=kk_a VARLEN=true sequences=9 length=150 heads=2",
    "dplr_chunk T=f16 K=128 FORM=a_b W=f32 sequences=2 length=37 heads=1",
    "dplr_chunk T=bf16 K=64 V=128 FORM=kk_a STATE=bf16 V_FIRST=true SLOTS=sequence sequences=5 length=20 heads=2",
]
TOLERANCE = {"f16": 1e-3, "bf16": 6e-3}
STATE = {"f16": 1e-3, "bf16": 5e-3}
LIMITS = (0.0, -1e-3, -0.6065, -5.0, -30.0, -88.0, -104.0, -1e4, float("-inf"))


def run(x, form="kk_a", dtype="bf16", state=None, scale=1.0, cu_seqlens=None, final="own", o=None, **parameters):
    """o and the final state in guarded memory. With form "a_b", x["a"] and x["b"] are a and b of the recurrence."""
    batch, length, heads, K = x["k"].shape
    V = x["v"].shape[-1]
    n = len(cu_seqlens) - 1 if cu_seqlens is not None else batch
    o = Guarded(batch, length, heads, V, dtype=dtype) if o is None else o
    ht = Guarded(n, heads, K, V, dtype="f32") if isinstance(final, str) else final
    k = kernel("dplr_chunk", T=dtype, K=K, V=V, FORM=form, VARLEN=cu_seqlens is not None, **parameters)
    k(
        *(o.view, x["r"], x["w"], x["k"], x["v"], x["a"], n, length, heads),
        *(x["b"] if form == "a_b" else None, x["kk"] if form == "kk_a" else None),
        *(scale, state, ht.view if isinstance(ht, Guarded) else ht, cu_seqlens),
    )
    return o, ht


def compare(x, what, dtype="bf16", form="kk_a", state=None, scale=1.0, **parameters):
    o, ht = run(x, form, dtype, state, scale, **parameters)
    want, states = reference(**(forms(x) if form == "kk_a" else {name: x[name] for name in "rwkvab"}), scale=scale, state=state)
    expect_close(o.view, want, TOLERANCE[dtype], what)
    expect_close(ht.view, states, STATE[dtype], f"{what}: state")
    o.check(what)
    ht.check(f"{what}: state")
    return o, ht


def test_head_sizes_and_forms():
    variants = list(itertools.product(TOLERANCE, ((64, 64), (64, 128), (128, 128), (128, 64)), ("kk_a", "a_b")))
    for dtype, (K, V), form in variants:
        prefetch("dplr_chunk", T=dtype, K=K, V=V, FORM=form, VARLEN=False)
    for dtype, (K, V), form in variants:
        x = inputs(2, 50, 3, K, V, dtype)
        if form == "a_b":
            x["a"], x["b"] = -x["kk"], (x["kk"].float() * x["a"].float()).to(DTYPES[dtype])
        compare(x, f"{dtype} {K} x {V} {form}", dtype, form, state=torch.randn(2, 3, K, V, device="cuda"))


def test_every_length_around_a_chunk():
    for length in (1, 2, 15, 16, 17, 31, 32, 33, 64, 111, 112, 113, 300, 1000):
        compare(inputs(3, length, 2, 64), f"T={length}", state=torch.randn(3, 2, 64, 64, device="cuda"))


def test_w_of_its_own_type():
    for dtype, w_dtype in (("bf16", "f32"), ("f16", "f32"), ("bf16", "f16")):
        compare(inputs(2, 90, 2, 64, dtype=dtype, w_dtype=w_dtype), f"{dtype} W={w_dtype}", dtype, W=w_dtype)


def test_gates_at_their_limits():
    """A decay may underflow, and differences of sums of logarithms stay finite."""
    for dtype in TOLERANCE:
        x = inputs(2, 200, 2, 64, dtype=dtype)
        w, kk = torch.tensor(LIMITS, device="cuda"), x["kk"].clone()
        x["w"] = w[torch.randint(len(LIMITS), x["w"].shape, device="cuda")].to(DTYPES[dtype])
        compare(x, f"{dtype}", dtype)
        x["a"] = torch.randint(2, x["a"].shape, device="cuda").to(DTYPES[dtype])  # learning rates of 0 and 1
        compare(x, f"{dtype} a=0, 1", dtype)
        x["kk"].zero_()
        compare(x, f"{dtype} kk=0", dtype)
        for level in LIMITS:
            x["kk"], x["w"] = kk, torch.full_like(x["w"], level)
            compare(x, f"{dtype} w={level}", dtype)
            x["w"][:, ::2] = 0.0
            compare(x, f"{dtype} w={level}, 0", dtype)


def test_one_strong_gate_in_a_chunk():
    """One key of one token decides how a chunk is prepared. The other chunks keep their bits."""
    x = inputs(1, 160, 2, 64)
    want, _ = run(x)
    x["w"][0, 83, 1, 5] = -200.0
    compare(x, "one gate")
    got, _ = run(x)
    expect_same_bits(got.view[:, :80], want.view[:, :80], "the chunks before")
    expect_same_bits(got.view[:, :, :1], want.view[:, :, :1], "the other head")


def test_keys_that_are_alike():
    for alike in (0.8, 1.0):
        x = inputs(1, 300, 2, 64)
        kk = x["kk"].float()
        x["kk"] = torch.nn.functional.normalize(kk * (1 - alike) + kk[:, :1] * alike, dim=-1).bfloat16()
        x["a"].fill_(1.0)
        compare(x, f"alike {alike}")


def test_variable_lengths():
    for lengths in ((0, 15, 100, 300, 16, 0, 1, 70, 0), (0, 0, 5), (1,) * 33, (0, 0, 0)):
        x, cu = varlen(lengths)
        state = torch.randn(len(lengths), 3, 64, 64, device="cuda")
        o, ht = run(x, state=state, cu_seqlens=cu)
        want = torch.empty_like(o.view, dtype=torch.float64)
        for n, (begin, end) in enumerate(itertools.pairwise(cu.tolist())):
            if begin == end:
                expect_same_bits(ht.view[n], state[n], f"{lengths}: an empty sequence keeps its state")
                continue
            part = {name: t[:, begin:end].contiguous() for name, t in x.items()}
            want[:, begin:end], own = reference(**forms(part), state=state[n : n + 1])
            alone, alone_state = run(part, state=state[n : n + 1])
            expect_same_bits(o.view[:, begin:end], alone.view, f"{lengths}[{n}] alone")
            expect_same_bits(ht.view[n : n + 1], alone_state.view, f"{lengths}[{n}] alone: state")
            expect_close(ht.view[n : n + 1], own, STATE["bf16"], f"{lengths}[{n}]: state")
        if sum(lengths):
            expect_close(o.view, want, TOLERANCE["bf16"], f"{lengths}")
        o.check(f"{lengths}")
        ht.check(f"{lengths}: state")


def test_more_sequences_than_blocks():
    """Blocks take several items, the longest sequences first. More than 512 sequences keep their order."""
    for count in (250, 512, 520):
        lengths = tuple(37 * i * i % 83 for i in range(count))
        x, cu = varlen(lengths)
        state = torch.randn(count, 3, 64, 64, device="cuda")
        o, ht = run(x, state=state, cu_seqlens=cu)
        for n, (begin, end) in enumerate(itertools.pairwise(cu.tolist())):
            if begin == end:
                expect_same_bits(ht.view[n], state[n], f"{count}: an empty sequence keeps its state")
                continue
            alone, alone_state = run({name: t[:, begin:end].contiguous() for name, t in x.items()}, state=state[n : n + 1])
            expect_same_bits(o.view[:, begin:end], alone.view, f"{count}: sequence {n}")
            expect_same_bits(ht.view[n : n + 1], alone_state.view, f"{count}: sequence {n}: state")
        o.check(f"{count}")
        ht.check(f"{count}: state")


def test_a_sequence_does_not_see_its_neighbours():
    """Rows of a chunk after the end of its sequence belong to the next sequence, which is NaN here."""
    lengths = (21, 50, 1, 30)
    x, cu = varlen(lengths)
    want = run(x, cu_seqlens=cu)
    for t in x.values():
        t[:, 21:71] = t[:, 72:] = float("nan")
    got = run(x, cu_seqlens=cu)
    for rows in (slice(0, 21), slice(71, 72)):
        expect_same_bits(got[0].view[:, rows], want[0].view[:, rows], f"{rows}")
    for n in (0, 2):
        expect_same_bits(got[1].view[n], want[1].view[n], f"state {n}")


def test_states_in_a_pool():
    """Sequences without a state have outputs of zeros. Slots that no sequence has, and gaps between states, stay as they are."""
    lengths, slots, starts = (70, 0, 130, 64, 5), (6, -1, 2, 0, -5), (1, 1, 0, 1, 1)
    lives, (H, K, V) = [n for n, slot in enumerate(slots) if slot >= 0], (2, 64, 128)
    stride = H * K * V + 64
    for dtype, v_first in itertools.product(("f32", "bf16", "f16"), (False, True)):
        cu = torch.tensor([0, *itertools.accumulate(lengths)], device="cuda", dtype=torch.int64)
        x = inputs(1, sum(lengths), H, K, V)
        layout = lambda states: states.transpose(-1, -2) if v_first else states
        rows, columns = (V, K) if v_first else (K, V)
        initial = torch.randn(len(lengths), H, K, V, device="cuda").to(DTYPES[dtype]).float()
        pool = Guarded(8, H, rows, columns, dtype=dtype, strides=(stride, K * V, columns, 1))
        for n in lives:
            if starts[n]:
                pool.view[slots[n]] = layout(initial[n])
        initial[2] = 0
        before, o = pool.view.clone(), Guarded(1, sum(lengths), H, V, dtype="bf16")
        kernel("dplr_chunk", T="bf16", K=K, V=V, FORM="kk_a", VARLEN=True, STATE=dtype, V_FIRST=v_first, SLOTS="sequence")(
            *(o.view, x["r"], x["w"], x["k"], x["v"], x["a"], len(lengths), sum(lengths), H, None, x["kk"], 1.0),
            *(pool.view, pool.view, cu, torch.tensor(slots, dtype=torch.int32, device="cuda")),
            *(torch.tensor(starts, dtype=torch.uint8, device="cuda"), 8, stride),
        )
        what, want, states = f"{dtype} {v_first}", torch.zeros_like(o.view, dtype=torch.float64), []
        for n in lives:
            begin, end = cu[n].item(), cu[n + 1].item()
            part = {name: t[:, begin:end] for name, t in x.items()}
            want[:, begin:end], state = reference(**forms(part), state=initial[n : n + 1])
            states.append(state[0])
        expect_close(o.view, want, TOLERANCE["bf16"], what)
        assert bool((o.view[:, 264:] == 0).all()), what
        got = torch.stack([layout(pool.view[slots[n]]) for n in lives])
        expect_close(got, torch.stack(states), STATE["bf16"] + (3e-3 if dtype == "bf16" else 0), f"{what}: states")
        others = [n for n in range(8) if n not in slots]
        expect_same_bits(pool.view[others], before[others], f"{what}: other slots")
        gaps = pool.view.as_strided((7, 64), (stride, 1), pool.view.storage_offset() + H * K * V)
        assert bool((gaps.view(torch.uint8) == 0xA5).all()), f"{what}: a gap was written"
        o.check(what)


def test_scale_and_optional_arguments():
    x = inputs(2, 33, 2, 64)
    compare(x, "scale", scale=64**-0.5)
    o, _ = run(x)
    expect_same_bits(run(x, final=None)[0].view, o.view, "without final state")
    zeros, _ = run(x, state=torch.zeros(2, 2, 64, 64, device="cuda"))
    expect_same_bits(zeros.view, o.view, "no initial state is zeros")


def test_nothing_to_do():
    state = torch.randn(3, 2, 64, 64, device="cuda")
    x = inputs(3, 0, 2, 64)
    expect_same_bits(run(x, state=state)[1].view, state, "no tokens: the state stays")
    assert bool((run(x)[1].view == 0).all()), "no tokens, no state: zeros"
    for batch, heads in ((0, 2), (3, 0)):
        run(inputs(batch, 5, heads, 64))


def test_cuts_between_chunks_change_nothing():
    """States are f32 between chunks, so a call in parts, with states in place, gives the bits of one call."""
    for dtype in TOLERANCE:
        x = inputs(2, 330, 3, 64, dtype=dtype)
        want, end = run(x, "kk_a", dtype)
        state = torch.zeros(2, 3, 64, 64, device="cuda")
        for first, last in itertools.pairwise((0, 16, 48, 320, 330)):
            part = {name: t[:, first:last].contiguous() for name, t in x.items()}
            o, _ = run(part, "kk_a", dtype, state, final=state)
            expect_same_bits(o.view, want.view[:, first:last], f"{dtype} from {first}")
        expect_same_bits(state, end.view, f"{dtype}: state")


def test_bits_are_the_same_in_every_run_and_in_a_graph():
    x = inputs(4, 500, 16, 64)
    want, end = run(x)
    for preparers in (3, 4, 6):
        for _ in range(3):
            o, state = run(x, PREPARERS=preparers)
            expect_same_bits(o.view, want.view, f"PREPARERS={preparers}")
            expect_same_bits(state.view, end.view, f"PREPARERS={preparers}: state")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, state = run(x)
    for _ in range(2):
        o.bits.fill_(-1)
        graph.replay()
        expect_same_bits(o.view, want.view, "graph")


def test_a_long_sequence():
    """131072 tokens, beside wkv7_recurrent, which a test holds against float64 at this length."""
    for level in (None, -1e-3, -30.0):
        x = inputs(1, 131072, 2, 64)
        if level is not None:
            x["w"].fill_(level)
        o, state = run(x)
        want, states = wkv7.run(x)
        expect_close(o.view, want.view, TOLERANCE["bf16"] + 2e-3, f"{level}")
        expect_close(state.view, states.view, STATE["bf16"], f"{level}: state")


def test_errors_are_no_larger_than_those_of_flash_linear_attention():
    for label, peer in peers.get("fla_wkv7_chunk").items():
        for length in (300, 2048):
            x = inputs(1, length, 4, 64)
            state = torch.randn(1, 4, 64, 64, device="cuda")
            theirs = peer(x["r"], x["w"], x["k"], x["v"], x["kk"], x["a"], state)
            want, want_state = reference(**forms(x), state=state)
            ours = run(x, state=state)
            for name, one, other, exact in zip(("o", "state"), ours, theirs, (want, want_state)):
                error, their = relative_rms(one.view, exact), relative_rms(other, exact)
                assert error <= 1.02 * their, f"{name} L={length}: error {error:.3g}, {label} has {their:.3g}"


def test_refusals():
    x = inputs(1, 4, 2, 64)
    x["b"], o = x["a"], torch.empty_like(x["v"])
    first = (o, x["r"], x["w"], x["k"], x["v"], x["a"])
    a_b, kk_a = (kernel("dplr_chunk", T="bf16", K=64, V=64, FORM=form, VARLEN=False) for form in ("a_b", "kk_a"))
    several = kernel("dplr_chunk", T="bf16", K=64, V=64, FORM="a_b", VARLEN=True)
    pool = kernel("dplr_chunk", T="bf16", K=64, V=64, FORM="a_b", VARLEN=False, SLOTS="sequence")
    cu = torch.tensor([0, 4], device="cuda")
    expect_refused(lambda: a_b(*first, 1, 4, 2), "FORM", "a_b")
    expect_refused(lambda: a_b(*first, 1, 4, 2, x["b"], x["kk"]), "FORM", "null")
    expect_refused(lambda: kk_a(*first, 1, 4, 2, x["b"]), "FORM")
    expect_refused(lambda: a_b(*first, 1, 4, 2, x["b"], None, 1.0, None, None, cu), "cu_seqlens", "VARLEN")
    expect_refused(lambda: several(*first, 1, 4, 2, x["b"]), "cu_seqlens", "VARLEN")
    expect_refused(lambda: several(*first, 0, 4, 2, x["b"], None, 1.0, None, None, cu[:1]), "of no sequence")
    expect_refused(lambda: pool(*first, 1, 4, 2, x["b"]), "state_indices must be given")
    expect_refused(lambda: a_b(*first, 1, -4, 2, x["b"]), "length", "-4")
    expect_refused(lambda: a_b(*first, -1, 4, 2, x["b"]), "negative", "-1")
    odd = torch.empty(4 * 2 * 64 + 4, device="cuda", dtype=torch.bfloat16)[4:].view(1, 4, 2, 64)
    expect_refused(lambda: a_b(o, odd, *first[2:], 1, 4, 2, x["b"]), "align")
    for parameters, word in (
        (dict(T="f32", K=64), "f32"),
        (dict(T="bf16", K=96), "96"),
        (dict(T="bf16", K=64, V=96), "multiple of 64"),
        (dict(T="bf16", K=128, PREPARERS=8), "shared memory"),
        (dict(T="bf16", K=64, SLOTS="token"), "token"),
    ):
        expect_refused(lambda: kernel("dplr_chunk", **parameters), word)


def bench():
    """Prompts, with states before and after. The last rows have 128 sequences of different lengths, and the same tokens in
    sequences of one length.
    """
    K = 64
    shapes = [(4, 64, 16), (4, 256, 16), (4, 1024, 16), (4, 2048, 16), (1, 8192, 32), (8, 4096, 32), (1, 4096, 32)]
    rows = [(*shape, None) for shape in shapes]
    mixture = tuple(16 + 37 * i * i % 480 for i in range(127))
    mixture += (128 * 256 - sum(mixture),)
    rows += [(128, 256, 16, None), (128, 256, 16, mixture)]
    for b, t, h, lengths in rows:
        elements, states = b * t * h * K, b * h * K * K

        def make(b=b, t=t, h=h, lengths=lengths):
            x = inputs(1, b * t, h, K) if lengths else inputs(b, t, h, K)
            cu = torch.tensor([0, *itertools.accumulate(lengths)], device="cuda", dtype=torch.int64) if lengths else None
            state = torch.randn(b, h, K, K, device="cuda")
            names = ("r", "w", "k", "v", "kk", "a")
            return torch.empty_like(x["v"]), torch.empty_like(state), state, *(x[name] for name in names), cu

        def ours(run, b, t, h, lengths):
            length = b * t if lengths else t
            return lambda o, ht, h0, r, w, k, v, kk, a, cu: run(o, r, w, k, v, a, b, length, h, None, kk, 1.0, h0, ht, cu)

        launches = {
            label: ours(kernel(name, T="bf16", K=K, V=K, FORM="kk_a", VARLEN=lengths is not None), b, t, h, lengths)
            for label, name in (("kiln", "dplr_chunk"), ("kiln wkv7_recurrent", "wkv7_recurrent"))
        }
        if lengths is None:
            for label, peer in peers.get("fla_wkv7_chunk").items():
                launches[label] = lambda o, ht, h0, r, w, k, v, kk, a, cu, peer=peer: peer(r, w, k, v, kk, a, h0)
        yield Row(
            f"dplr_chunk bf16 B{b} T{t} H{h} K{K}" + (" mixed lengths" if lengths else ""),
            12 * elements + 4 * states,
            2 * elements + 4 * states,
            make,
            launches,
            flops=2 * b * t * h * (4 * K * K + 9 * 16 * K),
            bar=0,
        )
