"""States in the slots of a pool, for delta_recurrent and wkv7_recurrent: element types, layouts, sequences
without a state, and states that no sequence has.

The recurrences themselves are tested in the templates' own modules.
"""

import itertools

import torch
import wkv7_recurrent as wkv7
from delta_recurrent import TOLERANCE, Data
from harness import DTYPES, Guarded, Row, expect_close, expect_refused, expect_same_bits, kernel, prefetch

SANITIZE = [
    "delta_recurrent T=bf16 K=64 GATE=head L2NORM=true STATE=bf16 SLOTS=token tokens=24 sequences=6 heads=2",
    "wkv7_recurrent T=bf16 K=64 FORM=kk_a STATE=bf16 V_FIRST=true SLOTS=token sequences=5 length=4 heads=2",
    "delta_recurrent T=bf16 K=128 GATE=head L2NORM=true FOR=decode STATE=bf16 SLOTS=sequence tokens=40 sequences=40 heads=2",
    "delta_recurrent T=bf16 K=128 GATE=head L2NORM=true FOR=one STATE=bf16 SLOTS=sequence tokens=9 sequences=9 heads=2",
    "delta_recurrent T=bf16 K=64 GATE=key FOR=one STATE=bf16 V_FIRST=true SLOTS=token tokens=9 sequences=9 heads=2",
    "wkv7_recurrent T=bf16 K=64 FORM=kk_a FOR=one STATE=bf16 SLOTS=sequence sequences=9 length=1 heads=4",
    "delta_recurrent T=bf16 K=64 GATE=key STATE=f16 V_FIRST=true SLOTS=sequence tokens=37 sequences=3 heads=1 value_heads=2",
    "wkv7_recurrent T=bf16 K=64 FORM=kk_a FOR=decode STATE=bf16 SLOTS=sequence sequences=40 length=1 heads=4",
    "wkv7_recurrent T=f32 K=60 STATE=bf16 V_FIRST=true SLOTS=sequence VARLEN=true sequences=4 length=19 heads=2",
]
# A 16-bit state is rounded once, after the last step.
STATE_TOLERANCE = {"f32": 2e-5, "f16": 5e-4, "bf16": 2e-3}


class Pool:
    """A pool of states with random slots for `sequences` sequences.

    Every fourth sequence has no slot, and every third of the others starts from zeros; their slots hold
    NaN, as unused slots do. A slot begins `gap` elements after the end of the slot before.
    """

    def __init__(self, sequences, heads, K, V, state, v_first, gap=64, spare=3, all_have_one=False, stride=None):
        self.v_first, self.state, size = v_first, state, heads * K * V
        rows, columns = (V, K) if v_first else (K, V)
        self.slots, self.stride = sequences + spare, stride or size + gap
        self.memory = Guarded(self.slots, heads, rows, columns, dtype=state, strides=(self.stride, K * V, columns, 1))
        indices = torch.randperm(self.slots, device="cuda")[:sequences].int()
        number = torch.arange(sequences, device="cuda")
        self.lives = torch.ones_like(number, dtype=torch.bool) if all_have_one else number % 4 != 3
        self.starts = self.lives & (torch.ones_like(self.lives) if all_have_one else number % 3 != 1)
        self.indices = torch.where(self.lives, indices, -1 - number.int())
        self.has_initial = None if all_have_one else self.starts.to(torch.uint8)
        values = torch.randn(sequences, heads, rows, columns, device="cuda").to(DTYPES[state])
        self.memory.view[self.indices[self.starts].long()] = values[self.starts]
        self.initial = torch.zeros(sequences, heads, K, V, device="cuda")
        self.initial[self.starts] = self.of(values[self.starts])

    def of(self, states):
        """States in f32 as [..., K, V]."""
        return (states.transpose(-1, -2) if self.v_first else states).float()

    def arguments(self):
        return self.indices, self.has_initial, self.slots, self.stride, getattr(self, "out_indices", None)

    def check(self, before, want, what):
        """Expects the states `want` [sequences, heads, K, V] in the slots, and all other slots as `before`."""
        used = self.indices[self.lives].long()
        expect_close(self.of(self.memory.view[used]), want[self.lives], STATE_TOLERANCE[self.state], f"{what}: states")
        rest = torch.ones(self.slots, dtype=torch.bool, device="cuda")
        rest[used] = False
        expect_same_bits(self.memory.view[rest], before[rest], f"{what}: slots of no sequence")
        self.memory.check(what)


class TokenPool(Pool):
    """A pool in which the states after two of three tokens get slots, which no sequence starts from."""

    def __init__(self, tokens, sequences, heads, K, V, state, v_first):
        super().__init__(sequences, heads, K, V, state, v_first, spare=tokens + 3)
        free = torch.ones(self.slots, dtype=torch.bool, device="cuda")
        free[self.indices[self.lives].long()] = False
        slots = free.nonzero().flatten()
        slots = slots[torch.randperm(len(slots), device="cuda")][:tokens].int()
        self.stored = torch.arange(tokens, device="cuda") % 3 != 1
        self.out_indices = torch.where(self.stored, slots, -1 - slots)

    def check_tokens(self, before, after, lives, what):
        """Expects the states `after` each token, in float64, of the tokens that are stored and that `lives` names."""
        written = self.stored & lives
        used = self.out_indices[written].long()
        expect_close(
            self.of(self.memory.view[used]),
            torch.stack(after)[written],
            STATE_TOLERANCE[self.state],
            f"{what}: states after tokens",
        )
        rest = torch.ones(self.slots, dtype=torch.bool, device="cuda")
        rest[used] = False
        expect_same_bits(self.memory.view[rest], before[rest], f"{what}: slots of no token")
        self.memory.check(what)


def run_delta(data, pool, out=None, final=None, **parameters):
    data.initial = pool.initial
    out = out or Guarded(data.tokens, data.value_heads, data.V, dtype=data.dtype)
    words = dict(STATE=pool.state, V_FIRST=pool.v_first, SLOTS="token" if hasattr(pool, "out_indices") else "sequence")
    kernel("delta_recurrent", **{**data.parameters, **parameters}, **words)(
        out.view,
        data.q,
        data.k,
        data.v,
        data.beta,
        data.tokens,
        data.sequences,
        data.heads,
        data.value_heads,
        *data.strides,
        float(data.scale),
        data.g,
        pool.memory.view,
        pool.memory.view if final is None else final,
        data.cu_seqlens,
        data.a_log,
        data.dt_bias,
        float(data.lower_bound),
        *pool.arguments(),
    )
    return out


def tokens_of(data, sequences):
    """Which tokens belong to the chosen sequences, as a mask."""
    if data.cu_seqlens is None:
        return sequences.repeat_interleave(data.tokens // data.sequences)
    return sequences.repeat_interleave(data.cu_seqlens.diff())


def expect_right_delta(data, pool, what, **parameters):
    before = pool.memory.view.clone()
    out = run_delta(data, pool, **parameters)
    want, states = data.want()
    lives = tokens_of(data, pool.lives)
    if data.tokens:
        expect_close(out.view[lives], want[lives], TOLERANCE[data.dtype], what)
        assert bool((out.view[~lives] == 0).all()), f"{what}: outputs of sequences without a state"
    out.check(what)
    pool.check(before, states, what)


def test_delta_rule():
    shapes = [("none", 128, 128), ("head", 128, 64), ("key", 128, 128), ("none", 64, 64), ("key", 60, 60), ("head", 256, 256)]
    cases = list(itertools.product(("f32", "f16", "bf16"), (False, True), shapes))
    for (state, v_first, (gate, K, V)), which in itertools.product(cases, ("any", "decode", "prefill", "one")):
        parameters = Data(1, 1, K, V, GATE=gate, L2NORM=True).parameters
        prefetch("delta_recurrent", **parameters, FOR=which, STATE=state, V_FIRST=v_first, SLOTS="sequence")
    for state, v_first, (gate, K, V) in cases:
        for which, tokens, sequences in (("decode", 33, 33), ("any", 63, 9), ("prefill", 70, 2), ("any", 11, 11), ("one", 35, 35)):
            data = Data(tokens, sequences, K, V, GATE=gate, L2NORM=True, heads=1, value_heads=2)
            expect_right_delta(data, Pool(sequences, 2, K, V, state, v_first), f"{state} {v_first} {data.parameters}", FOR=which)


def test_delta_rule_of_variable_lengths():
    lengths = (0, 5, 1, 0, 17, 100, 0, 8, 9, 33, 0)
    for state, v_first in itertools.product(("f32", "bf16"), (False, True)):
        data = Data(sum(lengths), len(lengths), 64, GATE="head", L2NORM=True, cu_seqlens=lengths)
        expect_right_delta(data, Pool(len(lengths), 2, 64, 64, state, v_first), f"{state} {v_first}")


def test_delta_rule_has_the_same_bits_as_without_a_pool():
    for gate, tokens, which in (("head", 9, "decode"), ("key", 63, "any"), ("none", 90, "prefill"), ("key", 9, "one")):
        data, pool = Data(tokens, 9, 128, GATE=gate, L2NORM=True), Pool(9, 2, 128, 128, "f32", False, all_have_one=True)
        out = run_delta(data, pool, FOR=which)
        want, states = data.run(FOR=which)
        expect_same_bits(out.view, want.view, gate)
        expect_same_bits(pool.memory.view[pool.indices.long()], states.view, f"{gate}: states")


def test_delta_rule_reads_one_pool_and_writes_another():
    data, pool = Data(20, 4, 64, GATE="head", L2NORM=True), Pool(4, 2, 64, 64, "bf16", True)
    before, final = pool.memory.view.clone(), Guarded(pool.slots, 2, 64, 64, dtype="bf16", strides=pool.memory.view.stride())
    run_delta(data, pool, final=final.view)
    expect_same_bits(pool.memory.view, before, "the pool that is read")
    empty = final.view.clone()
    empty.view(torch.int16).fill_(-1)
    pool.memory = final
    pool.check(empty, data.want()[1], "the pool that is written")


def test_delta_rule_in_a_graph_follows_the_indices():
    """A replay reads the indices again, as a decode step of a server does after its batch has changed."""
    data, pool = Data(8, 8, 128, GATE="head", L2NORM=True), Pool(8, 2, 128, 128, "bf16", False)
    out = run_delta(data, pool, FOR="one")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run_delta(data, pool, out=out, FOR="one")
    other = Pool(8, 2, 128, 128, "bf16", False)
    pool.indices.copy_(other.indices), pool.has_initial.copy_(other.has_initial), pool.memory.view.copy_(other.memory.view)
    out.bits.fill_(-1)
    graph.replay()
    data.initial = other.initial
    want, states = data.want()
    expect_close(out.view[other.lives], want[other.lives], TOLERANCE["bf16"], "outputs after a replay")
    assert bool((out.view[~other.lives] == 0).all())
    pool.lives = other.lives
    pool.check(other.memory.view, states, "a replay")


def test_delta_rule_with_slots_beyond_31_bits():
    data = Data(2, 2, 64, GATE="head", L2NORM=True, heads=1)
    pool = Pool(2, 1, 64, 64, "bf16", False, spare=0, all_have_one=True, stride=(1 << 31) + 64)
    before = pool.memory.view.clone()
    for which in ("decode", "one"):
        pool.memory.view.copy_(before)
        out = run_delta(data, pool, FOR=which)
        want, states = data.want()
        expect_close(out.view, want, TOLERANCE["bf16"], which)
        expect_close(pool.of(pool.memory.view[pool.indices.long()]), states, STATE_TOLERANCE["bf16"], f"{which}: states")


def test_delta_rule_stores_the_state_after_each_token():
    shapes = [("none", 128, 128), ("head", 64, 128), ("key", 128, 128), ("key", 60, 60)]
    cases = list(itertools.product(("f32", "bf16"), (False, True), shapes, ("any", "decode", "one")))
    for state, v_first, (gate, K, V), which in cases:
        parameters = Data(1, 1, K, V, GATE=gate, L2NORM=True).parameters
        prefetch("delta_recurrent", **parameters, FOR=which, STATE=state, V_FIRST=v_first, SLOTS="token")
    for state, v_first, (gate, K, V), which in cases:
        for tokens, sequences in ((5, 5), (37, 37)) if which == "one" else ((24, 6), (57, 3), (5, 5)):
            data, after = Data(tokens, sequences, K, V, GATE=gate, L2NORM=True, heads=1, value_heads=2), []
            pool = TokenPool(tokens, sequences, 2, K, V, state, v_first)
            what, before = f"{state} {v_first} {data.parameters} {which}", pool.memory.view.clone()
            out, lives = run_delta(data, pool, FOR=which), tokens_of(data, pool.lives)
            want, _ = data.want(after)
            expect_close(out.view[lives], want[lives], TOLERANCE["bf16"], what)
            assert bool((out.view[~lives] == 0).all()), f"{what}: outputs of sequences without a state"
            out.check(what)
            pool.check_tokens(before, after, lives, what)


def test_delta_rule_of_variable_lengths_stores_the_state_after_each_token():
    lengths = (0, 5, 1, 0, 17, 100, 0, 8, 9, 33, 0)
    data, after = Data(sum(lengths), len(lengths), 64, GATE="head", L2NORM=True, cu_seqlens=lengths), []
    pool = TokenPool(data.tokens, len(lengths), 2, 64, 64, "bf16", True)
    before = pool.memory.view.clone()
    run_delta(data, pool)
    data.want(after)
    pool.check_tokens(before, after, tokens_of(data, pool.lives), "variable lengths")


def test_rejected_tokens_of_the_delta_rule_are_undone():
    """The last two of four tokens are rejected. The next call starts from the state after the second one."""
    data = Data(12, 1, 128, GATE="head", L2NORM=True)
    want, _ = data.run()
    run = kernel("delta_recurrent", **data.parameters, SLOTS="token")
    pool = torch.full((9, 2, 128, 128), float("nan"), device="cuda")
    pool[0] = data.initial[0]
    start, ends = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.arange(1, 9, dtype=torch.int32, device="cuda")
    for first, slots in ((0, ends[:4]), (2, ends[4:]), (4, ends[:4]), (6, ends[4:]), (8, ends[:4])):
        q, k, v, beta, g = (x[first : first + 4] for x in (data.q, data.k, data.v, data.beta, data.g))
        out, stride = torch.empty_like(want.view[:4]), 2 * 128 * 128
        states = (pool, pool, None, None, None, -5.0, start, None, len(pool), stride, slots)
        run(out, q, k, v, beta, 4, 1, 2, 2, *data.strides, 0.0, g, *states)
        expect_same_bits(out, want.view[first : first + 4], f"from token {first}")
        start.copy_(slots[1:2])


def run_wkv7(x, pool, o, cu=None, **parameters):
    _, length, heads, size = x["k"].shape
    n = len(pool.indices)
    kernel(
        "wkv7_recurrent",
        **parameters,
        T="bf16",
        K=size,
        V=x["v"].shape[-1],
        FORM="kk_a",
        VARLEN=cu is not None,
        STATE=pool.state,
        V_FIRST=pool.v_first,
        SLOTS="token" if hasattr(pool, "out_indices") else "sequence",
    )(
        o.view,
        x["r"],
        x["w"],
        x["k"],
        x["v"],
        x["a"],
        n,
        length,
        heads,
        None,
        x["kk"],
        1.0,
        pool.memory.view,
        pool.memory.view,
        cu,
        *pool.arguments(),
    )


def test_rwkv7():
    cases = list(itertools.product(("f32", "f16", "bf16"), (False, True), ((64, 64), (60, 100), (128, 128), (256, 64))))
    for (state, v_first, (K, V)), which in itertools.product(cases, ("any", "decode", "one")):
        prefetch(
            "wkv7_recurrent",
            T="bf16",
            K=K,
            V=V,
            FORM="kk_a",
            VARLEN=False,
            FOR=which,
            STATE=state,
            V_FIRST=v_first,
            SLOTS="sequence",
        )
    for (state, v_first, (K, V)), (which, batch, length) in itertools.product(
        cases, (("decode", 33, 1), ("any", 9, 7), ("any", 11, 1), ("one", 35, 1))
    ):
        x, pool = wkv7.inputs(batch, length, 3, K, V), Pool(batch, 3, K, V, state, v_first)
        what, before, o = f"{state} {v_first} {K} x {V} {which}", pool.memory.view.clone(), Guarded(batch, length, 3, V)
        run_wkv7(x, pool, o, FOR=which)
        want, states = wkv7.reference(**wkv7.forms(x), state=pool.initial)
        expect_close(o.view[pool.lives], want[pool.lives], wkv7.TOLERANCE["bf16"], what)
        assert bool((o.view[~pool.lives] == 0).all()), f"{what}: outputs of sequences without a state"
        o.check(what)
        pool.check(before, states, what)


def test_rwkv7_of_variable_lengths():
    lengths = (0, 5, 1, 0, 17, 100, 0, 8, 9, 33, 0)
    for state, v_first in itertools.product(("f32", "bf16"), (False, True)):
        x, cu = wkv7.varlen(lengths)
        pool, o = Pool(len(lengths), 3, 64, 64, state, v_first), Guarded(1, sum(lengths), 3, 64)
        before, states, want = pool.memory.view.clone(), pool.initial.double(), torch.zeros_like(o.view, dtype=torch.float64)
        for n, (begin, end) in enumerate(itertools.pairwise(cu.tolist())):
            if begin < end and pool.lives[n]:
                part = {name: t[:, begin:end].contiguous() for name, t in x.items()}
                want[:, begin:end], states[n : n + 1] = wkv7.reference(**wkv7.forms(part), state=pool.initial[n : n + 1])
        run_wkv7(x, pool, o, cu)
        expect_close(o.view, want, wkv7.TOLERANCE["bf16"], f"{state} {v_first}")
        pool.check(before, states, f"{state} {v_first}")


def test_rwkv7_stores_the_state_after_each_token():
    sizes = ((64, 64), (60, 100), (64, 96), (128, 112), (128, 128))
    cases = list(itertools.product(("f32", "bf16"), (False, True), sizes, ("any", "decode", "one")))
    for state, v_first, (K, V), which in cases:
        words = dict(T="bf16", K=K, V=V, FORM="kk_a", VARLEN=False, FOR=which, STATE=state, V_FIRST=v_first, SLOTS="token")
        prefetch("wkv7_recurrent", **words)
    for state, v_first, (K, V), which in cases:
        for batch, length in ((5, 1), (37, 1)) if which == "one" else ((6, 4), (3, 19), (5, 1)):
            x, pool, after = wkv7.inputs(batch, length, 3, K, V), TokenPool(batch * length, batch, 3, K, V, state, v_first), []
            what, before, o = f"{state} {v_first} {K} x {V} {which}", pool.memory.view.clone(), Guarded(batch, length, 3, V)
            run_wkv7(x, pool, o, FOR=which)
            want, _ = wkv7.reference(**wkv7.forms(x), state=pool.initial, after=after)
            expect_close(o.view[pool.lives], want[pool.lives], wkv7.TOLERANCE["bf16"], what)
            assert bool((o.view[~pool.lives] == 0).all()), f"{what}: outputs of sequences without a state"
            o.check(what)
            after = list(torch.stack(after, 1).flatten(0, 1))  # one sequence after the other
            pool.check_tokens(before, after, pool.lives.repeat_interleave(length), what)


def test_refusals():
    data, pool = Data(8, 8, 64), Pool(8, 2, 64, 64, "f32", False)
    pool.indices = None
    expect_refused(lambda: run_delta(data, pool), "state_indices", "SLOTS")
    pool = Pool(8, 2, 64, 64, "bf16", False, gap=4)
    expect_refused(lambda: run_delta(data, pool), "stride_state", "16 bytes")
    pool = TokenPool(8, 8, 2, 64, 64, "f32", False)
    pool.out_indices = None
    expect_refused(lambda: run_delta(data, pool), "state_out_indices", "SLOTS")
    for wrong, words in (
        (dict(LANES=4, COLS=8), "columns"),
        (dict(V=60, COLS=8, LANES=8), "divide"),
        (dict(STATE="e4m3"), "STATE"),
    ):
        for name in ("delta_recurrent", "wkv7_recurrent"):
            expect_refused(lambda: kernel(name, T="bf16", K=64, **wrong), words)


def bench():
    """One token of each sequence with the states in place in a pool. HV is heads of v and of the states."""
    pools = (("f32", False), ("bf16", False), ("f32", True), ("bf16", True))
    for (b, hv, gate), (state, v_first) in itertools.product(
        ((64, 16, "head"), (64, 32, "head"), (256, 32, "head"), (1024, 32, "head"), (128, 32, "key")), pools
    ):
        if v_first and b != 256:
            continue
        K = V = 128

        def make(b=b, hv=hv, gate=gate, state=state, v_first=v_first):
            data = Data(b, b, K, heads=hv // 2, value_heads=hv, GATE=gate, L2NORM=True)
            pool = torch.randn(b, hv, K, V, device="cuda").to(DTYPES[state])
            slots = torch.randperm(b, device="cuda").int()
            return (
                torch.empty_like(data.v),
                data.q.clone(),
                data.k.clone(),
                data.v.clone(),
                data.beta.clone(),
                data.g.clone(),
                pool,
                slots,
            )

        def launch(o, q, k, v, beta, g, pool, slots, b=b, hv=hv, run=None):
            h = hv // 2
            run(
                o,
                q,
                k,
                v,
                beta,
                b,
                b,
                h,
                hv,
                h * K,
                h * K,
                hv * V,
                hv * V,
                0.0,
                g,
                pool,
                pool,
                None,
                None,
                None,
                -5.0,
                slots,
                None,
                b,
            )

        words = dict(T="bf16", K=K, GATE=gate, L2NORM=True, STATE=state, V_FIRST=v_first, SLOTS="sequence")
        others = [dict(FOR="one"), dict(FOR="decode")] + [dict(FOR="one", WARPS=8)] * (state == "bf16")
        launches = {
            "kiln"
            + "".join(
                f" {n}={v}" for n, v in other.items() if other != dict(FOR="one")
            ): lambda *a, launch=launch, run=kernel("delta_recurrent", **words, **other): launch(*a, run=run)
            for other in others
        }
        states = b * hv * K * V * torch.empty(0, dtype=DTYPES[state]).element_size()
        yield Row(
            f"state_pools delta_recurrent {gate} B{b} HV{hv} {state}{' v_first' if v_first else ''}",
            b * (hv * K + hv * V) * 2 + b * hv * ({"head": 4, "key": 4 * K}[gate] + 2) + states,
            b * hv * V * 2 + states,
            make,
            launches,
            bar=0.9,
        )
    for tokens, state in itertools.product((2, 4), ("f32", "bf16")):
        b, hv, K = 64, 32, 128

        def make(tokens=tokens, b=b, hv=hv, K=K, state=state):
            data = Data(b * tokens, b, K, heads=hv // 2, value_heads=hv, GATE="head", L2NORM=True)
            pool = torch.randn(b * (tokens + 1), hv, K, K, device="cuda").to(DTYPES[state])
            slots = torch.randperm(len(pool), device="cuda").int()
            parts = [x.clone() for x in (data.q, data.k, data.v, data.beta, data.g)]
            return torch.empty_like(parts[2]), *parts, pool, slots[:b].clone(), slots[b:].clone()

        def launch(which, tokens=tokens, b=b, hv=hv, K=K, state=state):
            run, h = (
                kernel("delta_recurrent", T="bf16", K=K, GATE="head", L2NORM=True, FOR=which, STATE=state, SLOTS="token"),
                hv // 2,
            )
            sizes = (b * tokens, b, h, hv, h * K, h * K, hv * K, hv * K, 0.0)
            rest = (b * (tokens + 1), hv * K * K)
            return lambda o, q, k, v, beta, g, pool, start, ends: run(
                o, q, k, v, beta, *sizes, g, pool, pool, None, None, None, -5.0, start, None, *rest, ends
            )

        states = b * hv * K * K * torch.empty(0, dtype=DTYPES[state]).element_size()
        yield Row(
            f"state_pools delta_recurrent head B{b} HV{hv} {tokens} tokens, a state each, {state}",
            b * tokens * hv * (2 * K * 2 + 6) + states,
            b * tokens * hv * K * 2 + tokens * states,
            make,
            {"kiln": launch("decode"), "kiln FOR=any": launch("any")},
            bar=0.0,
        )
    for (b, h, K), (state, v_first) in itertools.product(((64, 32, 64), (1024, 32, 64), (256, 32, 128)), pools):
        if v_first and b != 256:
            continue

        def make(b=b, h=h, K=K, state=state):
            x = wkv7.inputs(b, 1, h, K)
            pool = torch.randn(b, h, K, K, device="cuda").to(DTYPES[state])
            return (
                torch.empty_like(x["v"]),
                *(x[name] for name in ("r", "w", "k", "v", "a", "kk")),
                pool,
                torch.randperm(b, device="cuda").int(),
            )

        words = dict(T="bf16", K=K, V=K, FORM="kk_a", VARLEN=False, STATE=state, V_FIRST=v_first, SLOTS="sequence")
        runs = {
            "kiln": kernel("wkv7_recurrent", FOR="one", **words),
            "kiln FOR=decode": kernel("wkv7_recurrent", FOR="decode", **words),
        }
        states, elements = b * h * K * K * torch.empty(0, dtype=DTYPES[state]).element_size(), b * h * K
        yield Row(
            f"state_pools wkv7_recurrent B{b} H{h} K{K} {state}{' v_first' if v_first else ''}",
            12 * elements + states,
            2 * elements + states,
            make,
            {
                label: lambda o, r, w, k, v, a, kk, pool, slots, run=run, b=b, h=h: run(
                    o, r, w, k, v, a, b, 1, h, None, kk, 1.0, pool, pool, None, slots, None, b
                )
                for label, run in runs.items()
            },
            bar=0.9,
        )
