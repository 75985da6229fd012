"""delta_chunk against a float64 step loop in torch; and its time beside delta_recurrent and Flash Linear Attention's kernels.

Operands of products are rounded to the element type. Flash Linear Attention's chunked kernels round them, too, and where
these kernels can be had, no error may be larger than theirs. Peers are fla_delta_chunk and fla_gated_delta_chunk.
"""

import itertools

import torch
from delta_recurrent import Data
from harness import DTYPES, Guarded, Row, expect_close, expect_refused, expect_same_bits, kernel, peers, prefetch, relative_rms

CAPABILITY = 9  # wgmma
TEMPLATE = "delta_chunk"  # delta_chunk_mma.py runs the tests with its own
OPTIONS = (dict(STAGES=2), dict(STAGES=3))  # parameters that change no result
SANITIZE = [
    "delta_chunk T=bf16 K=128 GATE=head L2NORM=true tokens=150 sequences=4 heads=1 value_heads=2",
    "delta_chunk T=f16 K=64 V=128 GATE=head GATE_INPUT=softplus BETA_INPUT=sigmoid L2NORM=true tokens=201 sequences=2 heads=1",
    "delta_chunk T=bf16 K=128 GATE=head L2NORM=true tokens=1207 sequences=40 heads=1 value_heads=2",
]
TOLERANCE = {"f16": 1e-3, "bf16": 6e-3}
STATE = {"f16": 1e-3, "bf16": 5e-3}
LENGTHS = (0, 1, 63, 64, 65, 0, 200, 300, 5, 0)
NAMES = ("T", "K", "V", "GATE", "GATE_INPUT", "BETA", "BETA_INPUT", "L2NORM", "G", "B")
PARAMETERS = {}  # more parameters of all kernels


class ChunkData(Data):
    """The inputs of a call, and its results."""

    def __init__(self, tokens, sequences, K=128, L2NORM=True, **parameters):
        super().__init__(tokens, sequences, K, L2NORM=L2NORM, **parameters)

    def own(self):
        """The parameters of the kernel."""
        return {**{name: self.parameters[name] for name in NAMES}, **PARAMETERS}

    def run(self, first=0, last=None, initial="own", final=True, out=None, **parameters):
        """Runs tokens first..last-1 of the only sequence, or all tokens. Returns (out, final state)."""
        everything = first == 0 and last is None
        last = self.tokens if last is None else last
        out = out or Guarded(self.tokens, self.value_heads, self.V, dtype=self.dtype, strides=(self.strides[3], self.V, 1))
        state = Guarded(self.sequences, self.value_heads, self.K, self.V, dtype="f32") if final is True else final
        pick = lambda t: None if t is None else t if everything else t[first:last]
        kernel(TEMPLATE, **{**self.own(), **parameters})(
            *map(pick, (out.view, self.q, self.k, self.v, self.beta)),
            last - first,
            self.sequences,
            self.heads,
            self.value_heads,
            *self.strides,
            float(self.scale),
            pick(self.g),
            self.initial if isinstance(initial, str) else initial,
            state.view if isinstance(state, Guarded) else state,
            self.cu_seqlens,
            self.a_log,
            self.dt_bias,
            float(self.lower_bound),
        )
        return out, state

    def expect_right(self, what="", of_state=None, **parameters):
        out, state = self.run(**parameters)
        want, states = self.want()
        what = f"{what} {self.parameters} {parameters}"
        if self.tokens:
            expect_close(out.view, want, TOLERANCE[self.dtype], what)
        expect_close(state.view, states, of_state or STATE[self.dtype], f"{what}: state")
        out.check(what), state.check(what)  # the views are lost


def prefetch_all(variants):
    """Begins to compile the kernels of calls with these arguments of ChunkData."""
    for v in variants:
        prefetch(TEMPLATE, **ChunkData(1, 1, **v).own())


def test_sizes_gates_and_lengths():
    variants = [
        dict(K=K, V=V, dtype=t, GATE=g, L2NORM=n)
        for (K, V), t, g, n in itertools.product(
            ((128, 128), (64, 64), (128, 64), (64, 256)), ("bf16", "f16"), ("none", "head", "key"), (True, False)
        )
        if n or (t == "bf16" and g != "key")
    ]
    prefetch_all(variants)
    for v in variants:
        ChunkData(sum(LENGTHS), len(LENGTHS), heads=1, value_heads=2, cu_seqlens=LENGTHS, **v).expect_right()
        ChunkData(140, 2, heads=2, **v).expect_right()


def test_gates_and_betas_in_the_kernel():
    gates, betas = (
        ("log_decay", "softplus", "bounded"),
        (("none", "plain"), *(("head", x) for x in ("plain", "sigmoid", "twice_sigmoid"))),
    )
    variants = [
        dict(K=64, GATE="head", GATE_INPUT=kind, BETA=beta, BETA_INPUT=beta_input, G=G, B=B)
        for kind, (beta, beta_input), (G, B) in itertools.product(gates, betas, (("f32", "bf16"), ("bf16", "f32")))
    ]
    variants += [dict(K=64, heads=2, GATE="key", GATE_INPUT=kind, BETA_INPUT="sigmoid", G="bf16", B="f32") for kind in gates[1:]]
    prefetch_all(variants)
    for v in variants:
        data = ChunkData(130, 1, **v)
        data.expect_right()
        if v["GATE"] == "head" and v["GATE_INPUT"] != "log_decay":
            data.dt_bias = None
            data.expect_right("no dt_bias")


def test_gates_near_their_limits():
    """A decay may underflow, and differences of sums of logarithms stay finite."""
    for gate, value in itertools.product(("head", "key"), (0.0, -1e-7, -1e-3, -20.0, -87.0, -104.0, -1e4, float("-inf"))):
        data = ChunkData(300, 1, GATE=gate)
        data.g.fill_(value)
        data.expect_right(f"g = {value}")
        data.g[::2] = 0.0
        data.expect_right(f"g = {value}, 0")
    for kind, value in itertools.product(("softplus", "bounded"), (-80.0, -15.0, 19.9, 20.1, 80.0)):
        data = ChunkData(100, 1, 64, GATE="head", GATE_INPUT=kind)
        data.g.fill_(value)
        data.expect_right(f"{kind} of {value}")


def test_one_strong_gate_in_a_chunk():
    """One key of one token decides how a chunk, or a part of it, is prepared. The chunks before it keep their bits."""
    for dtype in ("bf16", "f16"):
        data = ChunkData(160, 1, heads=2, GATE="key", dtype=dtype)
        want, _ = data.run()
        data.g[83, 1, 5] = -200.0
        data.expect_right("one gate")
        got, _ = data.run()
        before = 64 if TEMPLATE == "delta_chunk" else 80  # tokens before the chunk of token 83
        expect_same_bits(got.view[:before], want.view[:before], "the chunks before")
        expect_same_bits(got.view[:, :1], want.view[:, :1], "the other head")


def test_gates_of_keys_of_every_size():
    """Sums of logarithms on both sides of the range in which products have inverses of decays."""
    values = (-0.3, -0.35, -0.37, -0.5, -0.69, -0.7, -3.4, -3.5, -4.0)
    for dtype, value in itertools.product(("bf16", "f16"), values):
        data = ChunkData(300, 1, GATE="key", dtype=dtype)
        data.g.fill_(value)
        data.expect_right(f"g = {value}")
        data.g.mul_(torch.rand_like(data.g) * 2)
        data.expect_right(f"g around {value}")


def test_gates_of_keys_of_all_types():
    variants = [
        dict(K=64, V=128, heads=2, GATE="key", GATE_INPUT=kind, G=G, dtype=dtype, B="f32")
        for kind, G, dtype in itertools.product(("log_decay", "softplus", "bounded"), ("f32", "bf16", "f16"), ("bf16", "f16"))
    ]
    prefetch_all(variants)
    for v in variants:
        ChunkData(70, 1, **v).expect_right()


def test_keys_that_are_alike():
    """The triangular system has large elements then, and the state forgets most of what it was. The roundings of Flash Linear
    Attention give errors of 8e-3 of such states.
    """
    for gate, alike, beta in itertools.product(("none", "head"), (0.8, 1.0), (0.95, 1.0)):
        data = ChunkData(300, 1, heads=2, GATE=gate)
        data.k.mul_(1 - alike).add_(data.k[:1].clone(), alpha=alike)
        data.beta.fill_(beta)
        data.expect_right(f"alike {alike}", of_state=9e-3)


def test_a_sequence_does_not_see_its_neighbours():
    """Rows of a chunk behind the end of its sequence belong to the next sequence, which is NaN here."""
    lengths = (70, 100, 1, 100)
    for gate in ("none", "head", "key"):
        data = ChunkData(sum(lengths), len(lengths), GATE=gate, cu_seqlens=lengths)
        want = data.run()
        for x in (data.q, data.k, data.v, data.beta, data.g):
            if x is not None:
                x[70:170] = x[171:] = float("nan")
        got = data.run()
        for rows in (slice(0, 70), slice(170, 171)):
            expect_same_bits(got[0].view[rows], want[0].view[rows], f"{gate} {rows}")
        for n in (0, 2):
            expect_same_bits(got[1].view[n], want[1].view[n], f"{gate}: state {n}")


def test_head_groups():
    for heads, value_heads in ((1, 8), (2, 6), (16, 32), (3, 3)):
        ChunkData(80, 2, heads=heads, value_heads=value_heads, GATE="head").expect_right()


def test_states_and_scale_left_out():
    data = ChunkData(150, 2)
    data.scale = 1.0
    data.expect_right("scale = 1")
    out, _ = data.run()
    expect_same_bits(data.run(final=None)[0].view, out.view, "without final state")
    for got, want in zip(data.run(initial=None), data.run(initial=torch.zeros_like(data.initial))):
        expect_same_bits(got.view, want.view, "without initial state")


def test_states_in_a_pool():
    """Sequences without a state have outputs of zeros. Slots that no sequence has, and gaps between states, stay as they are."""
    lengths, slots, starts = (70, 0, 130, 64, 5), (6, -1, 2, 0, -5), (1, 1, 0, 1, 1)
    lives = [n for n, slot in enumerate(slots) if slot >= 0]
    for dtype, v_first in itertools.product(("f32", "bf16", "f16"), (False, True)):
        data = ChunkData(sum(lengths), len(lengths), 64, V=128, GATE="head", heads=1, value_heads=2, cu_seqlens=lengths)
        HV, K, V = data.value_heads, data.K, data.V
        layout = lambda states: states.transpose(-1, -2) if v_first else states
        rows, columns = (V, K) if v_first else (K, V)
        stride = HV * K * V + 64
        pool = Guarded(8, HV, rows, columns, dtype=dtype, strides=(stride, K * V, columns, 1))
        out = Guarded(data.tokens, HV, V, dtype="bf16")
        data.initial = data.initial.to(DTYPES[dtype]).float()
        for n in lives:
            if starts[n]:
                pool.view[slots[n]] = layout(data.initial[n])
        data.initial[2] = 0
        before = pool.view.clone()
        kernel(TEMPLATE, **data.own(), STATE=dtype, V_FIRST=v_first, SLOTS="sequence")(
            *(out.view, data.q, data.k, data.v, data.beta),
            *(data.tokens, data.sequences, data.heads, HV, *data.strides, 0.0, data.g, pool.view, pool.view, data.cu_seqlens),
            *(None, None, -5.0, torch.tensor(slots, dtype=torch.int32, device="cuda")),
            *(torch.tensor(starts, dtype=torch.uint8, device="cuda"), 8, stride),
        )
        want, states = data.want()
        want[264:] = 0
        what = f"{dtype} {v_first}"
        expect_close(out.view, want, TOLERANCE["bf16"], what)
        assert bool((out.view[264:] == 0).all()), what
        got = torch.stack([layout(pool.view[slots[n]]) for n in lives])
        expect_close(got, states[lives], STATE["bf16"] + (3e-3 if dtype == "bf16" else 0), f"{what}: states")
        others = [n for n in range(8) if n not in slots]
        expect_same_bits(pool.view[others], before[others], f"{what}: other slots")
        gaps = pool.view.as_strided((7, 64), (stride, 1), pool.view.storage_offset() + HV * K * V)
        assert bool((gaps.view(torch.uint8) == 0xA5).all()), f"{what}: a gap was written"
        out.check(what)


def test_states_after_chunks():
    """The states after every 64th token and the last one go to the slots that state_out_indices gives, and nothing else is written."""
    lengths, slots = (200, 64, 0, 70, 63, 129), (3, 1, 6, -1, 0, 5)
    for dtype, v_first in (("f32", False), ("bf16", True)):
        data = ChunkData(sum(lengths), len(lengths), V=128, GATE="head", heads=1, value_heads=2, cu_seqlens=lengths)
        HV, K, V = data.value_heads, data.K, data.V
        layout = lambda states: states.transpose(-1, -2) if v_first else states
        pool = Guarded(24, HV, K, V, dtype=dtype)  # K and V are the same
        data.initial = data.initial.to(DTYPES[dtype]).float()
        for n, slot in enumerate(slots):
            if slot >= 0:
                pool.view[slot] = layout(data.initial[n])
        before = pool.view.clone()
        out_slots, free, stored, begin = torch.full((data.tokens,), 1 << 28, dtype=torch.int32), list(range(23, 6, -1)), {}, 0
        for n, length in enumerate(lengths):
            for t in range(length):
                if (t + 1) % 64 == 0 or t + 1 == length:
                    out_slots[begin + t] = -1 if begin + t == 127 else free.pop()
                    if slots[n] >= 0 and begin + t != 127:
                        stored[int(out_slots[begin + t])] = begin + t
            begin += length
        out = Guarded(data.tokens, HV, V, dtype="bf16")
        kernel(TEMPLATE, **data.own(), STATE=dtype, V_FIRST=v_first, SLOTS="token")(
            *(out.view, data.q, data.k, data.v, data.beta),
            *(data.tokens, data.sequences, data.heads, HV, *data.strides, 0.0, data.g, pool.view, pool.view, data.cu_seqlens),
            *(None, None, -5.0, torch.tensor(slots, dtype=torch.int32, device="cuda"), None, 24, HV * K * V, out_slots.cuda()),
        )
        after = []
        want, _ = data.want(after)
        want[264:334] = 0
        expect_close(out.view, want, TOLERANCE["bf16"], dtype)
        got = torch.stack([layout(pool.view[slot]) for slot in stored])
        expect_close(got, torch.stack([after[t] for t in stored.values()]), STATE["bf16"] + (3e-3 if dtype == "bf16" else 0), dtype)
        others = [n for n in range(24) if n not in stored]
        expect_same_bits(pool.view[others], before[others], f"{dtype}: other slots")
        out.check(dtype), pool.check(dtype)
        assert len(stored) == 8


def test_empty_sequences_and_no_sequences():
    for initial in (True, False):
        data = ChunkData(0, 3, 64, initial=initial, cu_seqlens=(0, 0, 0))
        _, state = data.run()
        expect_same_bits(state.view, data.initial if initial else torch.zeros_like(state.view))
    kernel(TEMPLATE, T="bf16", K=64)(None, None, None, None, None, 0, 0, 1, 1, 64, 64, 64, 64)


def test_cuts_between_chunks_change_nothing():
    """States are f32 between chunks, so a call in parts, with states in place, gives the bits of one call."""
    for gate, K, dtype in (("none", 128, "bf16"), ("head", 64, "f16"), ("head", 128, "bf16"), ("key", 128, "bf16")):
        data = ChunkData(330, 1, K, GATE=gate, dtype=dtype)
        want, end = data.run()
        out, state = Guarded(data.tokens, data.value_heads, data.V, dtype=dtype), data.initial.clone()
        for first, last in itertools.pairwise((0, 64, 128, 320, 330)):
            data.run(first, last, initial=state, final=state, out=out)
        expect_same_bits(out.view, want.view, f"{gate} K={K}: outputs")
        expect_same_bits(state, end.view, f"{gate} K={K}: state")


def test_bits_are_the_same_in_every_run_and_in_a_graph():
    data = ChunkData(2000, 4, GATE="head", heads=8)
    want, end = data.run()
    for options in OPTIONS:
        for _ in range(3):
            out, state = data.run(**options)
            expect_same_bits(out.view, want.view, f"{options}")
            expect_same_bits(state.view, end.view, f"{options}: state")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, state = data.run()
    for _ in range(2):
        out.bits.fill_(-1)
        graph.replay()
        expect_same_bits(out.view, want.view, "graph")


def test_clusters_of_all_sizes_give_the_same_bits():
    """Few heads, so that a cluster has as many blocks as CLUSTER says. With more than 3, two blocks walk if V is 128 and no gate is of a key."""
    for V, heads, gate in ((128, 2, "head"), (64, 3, "head"), (256, 1, "head"), (128, 2, "key")):
        data = ChunkData(1100, 3, V=V, GATE=gate, heads=heads, cu_seqlens=(1000, 1, 99))
        want, end = data.run(CLUSTER=2)
        for cluster in (2, 3, 4, 6, 8):
            data.expect_right(CLUSTER=cluster)
            out, state = data.run(CLUSTER=cluster)
            expect_same_bits(out.view, want.view, f"{gate} V={V} CLUSTER={cluster}")
            expect_same_bits(state.view, end.view, f"{gate} V={V} CLUSTER={cluster}: state")


def test_more_items_than_blocks():
    """delta_chunk_mma divides up to 512 sequences by their lengths then, and delta_chunk takes them in order. Neither the order of
    the sequences nor other sequences change a bit.
    """
    for count, gate, longest in ((90, "head", 700), (512, "none", 700), (100, "key", 700), (91, "head", 20000)):
        lengths = [37 * i * i % 83 for i in range(count)]
        lengths[5], lengths[40] = longest, 0
        data = ChunkData(sum(lengths), count, 64, GATE=gate, heads=3, cu_seqlens=lengths)
        initial, cu, slices = data.initial, data.cu_seqlens, [slice(*ends) for ends in itertools.pairwise(data.cu_seqlens.tolist())]
        if data.tokens < 10000:
            data.expect_right("sorted")
        out, state = data.run()

        data.sequences = 520  # the others are empty
        data.initial = torch.cat((initial, torch.zeros(520 - count, *initial.shape[1:], device="cuda")))
        data.cu_seqlens = torch.cat((cu, cu[-1:].expand(520 - count)))
        got, states = data.run()
        expect_same_bits(got.view, out.view, f"{gate} {count}: not sorted")
        expect_same_bits(states.view[:count], state.view, f"{gate} {count}: not sorted: state")

        data.sequences, data.initial, data.cu_seqlens = count, initial, cu
        slots = torch.randperm(count + 3, device="cuda")[:count].int()
        absent = torch.arange(count, device="cuda") % 7 == 3
        pool = Guarded(count + 3, 3, 64, 64, dtype="f32")
        pool.view[slots.long()] = initial
        before, no_state = pool.view.clone(), torch.where(absent, -1, slots)
        in_pool = Guarded(data.tokens, 3, 64, dtype="bf16")
        kernel(TEMPLATE, **data.own(), SLOTS="sequence")(
            *(in_pool.view, data.q, data.k, data.v, data.beta, data.tokens, count, 3, 3, *data.strides, 0.0, data.g),
            *(pool.view, pool.view, cu, None, None, -5.0, no_state, None, count + 3, 3 * 64 * 64),
        )
        for n, rows in enumerate(slices):
            want = torch.zeros_like(out.view[rows]) if absent[n] else out.view[rows]
            expect_same_bits(in_pool.view[rows], want, f"{gate} {count}: sequence {n} in a pool")
            want = before[slots[n]] if absent[n] else state.view[n]
            expect_same_bits(pool.view[slots[n]], want, f"{gate} {count}: state {n} in a pool")
        in_pool.check("in a pool"), pool.check("pool")

        rows = torch.cat([torch.arange(r.start, r.stop, device="cuda") for r in reversed(slices)])
        for name in ("q", "k", "v", "beta", "g"):
            if getattr(data, name) is not None:
                setattr(data, name, getattr(data, name)[rows].contiguous())
        data.initial = initial.flip(0).contiguous()
        data.cu_seqlens = torch.tensor([0, *itertools.accumulate(reversed(lengths))], device="cuda")
        got, states = data.run()
        expect_same_bits(got.view, out.view[rows], f"{gate} {count}: reversed")
        expect_same_bits(states.view.flip(0), state.view, f"{gate} {count}: reversed: state")


def test_strides():
    K, H = 64, 2
    data = ChunkData(90, 2, K)
    packed = torch.full((90, 3 * H * K + 8), float("nan"), device="cuda", dtype=DTYPES["bf16"])  # q, k and v of one product
    views = [packed[:, i * H * K : (i + 1) * H * K].view(90, H, K) for i in range(3)]
    for view, old in zip(views, (data.q, data.k, data.v)):
        view.copy_(old)
    data.q, data.k, data.v = views
    data.strides[:3] = [packed.stride(0)] * 3
    data.expect_right("packed")
    far = (1 << 31) + 64
    ChunkData(3, 1, K, strides=(far, H * K, H * K, H * K)).expect_right("q far apart")
    ChunkData(3, 1, K, strides=(H * K, far, far, far)).expect_right("k, v and out far apart")


def test_a_long_sequence():
    """131072 tokens, beside delta_recurrent, which a test holds against float64 at this length."""
    for gate, decay in (("none", 0.0), ("head", -0.01), ("head", -30.0), ("key", -0.01)):
        data = ChunkData(131072, 1, 128, heads=2, GATE=gate, decay=decay)
        out, state = data.run()
        want, states = Data.run(data)
        expect_close(out.view, want.view, TOLERANCE["bf16"] + 2e-3, f"{gate} {decay}")
        expect_close(state.view, states.view, STATE["bf16"], f"{gate} {decay}: state")


def test_errors_are_no_larger_than_those_of_flash_linear_attention():
    for gate, decay, L in (("none", 0.0, 1000), ("head", -0.2, 1000), ("head", -0.01, 2048), ("head", -5.0, 300)):
        for label, peer in peers.get({"none": "fla_delta_chunk", "head": "fla_gated_delta_chunk"}[gate]).items():
            data = ChunkData(L, 1, heads=4, GATE=gate, decay=decay)
            q, k, v = (x.contiguous()[None] for x in (data.q, data.k, data.v))
            beta, g = (None if x is None else x.contiguous().view(1, L, -1) for x in (data.beta, data.g))
            theirs = peer(q, k, v, beta, g=g, initial_state=data.initial, l2norm=True)
            theirs = theirs[0] if isinstance(theirs, tuple) else theirs
            want, _ = data.want()
            ours, their = relative_rms(data.run()[0].view, want), relative_rms(theirs[0], want)
            assert ours <= 1.02 * their, f"{gate} {decay} L={L}: error {ours:.3g}, {label} has {their:.3g}"


def test_refusals():
    data = ChunkData(12, 2, 64, GATE="head", GATE_INPUT="softplus", heads=2, value_heads=4)
    right = {name: getattr(data, name) for name in ("q", "beta", "g", "a_log", "tokens", "heads", "sequences", "strides")}

    def broken(*words, **wrong):
        for name, value in {**right, **wrong}.items():
            setattr(data, name, value)
        expect_refused(data.run, *words)

    broken("beta", beta=None)
    broken("g must", g=None)
    broken("a_log", a_log=None)
    broken("multiple of heads", heads=3)
    broken("multiple of sequences", sequences=5)
    broken("of no sequence", sequences=0)
    for name, value in right.items():
        setattr(data, name, value)
    expect_refused(lambda: data.run(last=-1), "negative")
    broken("multiples of 8", strides=[132, 128, 256, 256])
    for wrong, words in (
        (dict(K=96), "96"),
        (dict(K=64, V=96), "multiple of 64"),
        (dict(K=64, GATE_INPUT="softplus"), "GATE"),
        (dict(K=64, BETA="none", BETA_INPUT="sigmoid"), "BETA"),
    ):
        expect_refused(lambda: kernel(TEMPLATE, T="bf16", **wrong), words)
    data = ChunkData(12, 2, 64)
    expect_refused(lambda: data.run(SLOTS="sequence"), "state_indices must be given")
    expect_refused(lambda: data.run(SLOTS="token"), "must be given")


def test_refusals_of_stages():
    for wrong, words in ((dict(K=128, STAGES=4), "shared memory"), (dict(K=64, GATE="key", STAGES=3), "stages")):
        expect_refused(lambda: kernel("delta_chunk", T="bf16", **wrong), words)


FLA = {"none": "delta", "head": "gated_delta", "key": "kda"}


def rows(template, others):
    """Prompts: H is heads of q and k, HV of v and the states. The last rows have 128 sequences of different lengths, and
    the same tokens in sequences of one length. `others` are templates beside which it is timed.
    """
    K = V = 128
    shapes = [(1, 512, 32, 32), (4, 2048, 16, 16), (1, 8192, 32, 32), (1, 32768, 16, 16)]
    calls = [(b, t, h, hv, gate, None) for b, t, h, hv in shapes for gate in ("none", "head")]
    calls += [(b, t, h, hv, "key", None) for b, t, h, hv in shapes[1:]]
    calls += [(4, 2048, 16, 32, "head", None), (8, 64, 32, 32, "head", None), (4, 256, 32, 32, "head", None)]
    mixture = tuple(16 + 37 * i * i % 480 for i in range(127))
    mixture += (128 * 256 - sum(mixture),)
    calls += [(128, 256, 16, 16, "head", None), (128, 256, 16, 16, "head", mixture)]
    for b, t, h, hv, gate, lengths in calls:

        def make(b=b, t=t, h=h, hv=hv, gate=gate, lengths=lengths):
            data = Data(b * t, b, K, heads=h, value_heads=hv, GATE=gate, L2NORM=True, cu_seqlens=lengths)
            shape = (1, b * t) if lengths else (b, t)
            q, k, v = (x.contiguous().view(*shape, *x.shape[1:]) for x in (data.q, data.k, data.v))
            beta = data.beta.contiguous().view(*shape, -1)
            g = None if data.g is None else data.g.contiguous().view(*shape, *data.g.shape[1 : 3 if gate == "key" else 2])
            return torch.empty_like(v), q, k, v, beta, g, data.initial, data.cu_seqlens

        def ours(run, b, t, h, hv):
            return lambda o, q, k, v, beta, g, s, cu: run(
                o, q, k, v, beta, b * t, b, h, hv, h * K, h * K, hv * V, hv * V, 0.0, g, s, s, cu
            )

        launches = {}
        for name in (template, *others):
            parameters = dict(FOR="prefill") if name == "delta_recurrent" else {}
            launch = kernel(name, T="bf16", K=K, GATE=gate, L2NORM=True, **parameters)
            launches["kiln" if name == template else f"kiln {name}"] = ours(launch, b, t, h, hv)
        if lengths is None:
            for label, peer in peers.get(f"fla_{FLA[gate]}_chunk").items():
                launches[label] = lambda o, q, k, v, beta, g, s, cu, peer=peer: peer(
                    q, k, v, beta, g=g, initial_state=s, l2norm=True
                )
        states = b * hv * K * V * 4
        yield Row(
            f"{template} {FLA[gate]} B{b} T{t} H{h}" + (f" HV{hv}" if hv != h else "") + (" mixed lengths" if lengths else ""),
            b * t * ((2 * h * K + hv * V) * 2 + hv * {"none": 2, "head": 6, "key": 2 + 4 * K}[gate]) + states,
            b * t * hv * V * 2 + states,
            make,
            launches,
            flops=2 * b * t * hv * (3 * K * V + 128 * V + 128 * K),
            bar=0,
            bar_us=110.0 if (template, b, t, hv, gate) == ("delta_chunk", 4, 2048, 16, "head") else 0.0,
        )


def bench():
    return rows(TEMPLATE, ("delta_recurrent",))
