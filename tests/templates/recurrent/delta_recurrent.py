"""delta_recurrent against a float64 step loop in torch; and its time beside Flash Linear Attention's kernels.

Peers are fla_delta_*, fla_gated_delta_* and fla_kda_*.
"""

import itertools

import torch
from harness import DTYPES, Guarded, Row, expect_close, expect_refused, expect_same_bits, kernel, normal, peers, prefetch

SANITIZE = [
    "delta_recurrent T=bf16 K=128 tokens=38 sequences=2 heads=2",
    "delta_recurrent T=bf16 K=64 V=100 GATE=head L2NORM=true tokens=61 sequences=4 heads=1 value_heads=2",
    "delta_recurrent T=f32 K=60 GATE=key GATE_INPUT=softplus BETA=value L2NORM=true tokens=19 sequences=1 heads=2",
    "delta_recurrent T=f16 K=256 GATE=key G=f16 tokens=4 sequences=4 heads=2",
    "delta_recurrent T=bf16 K=128 GATE=key L2NORM=true FOR=decode tokens=40 sequences=40 heads=8",
    "delta_recurrent T=bf16 K=128 FOR=prefill tokens=70 sequences=2 heads=2",
]
TOLERANCE = {"f32": 1e-5, "f16": 5e-4, "bf16": 2e-3}
STATE = 1e-5  # states are f32 for every T
LENGTHS = (0, 15, 100, 300, 1200, 1599, 1800, 2000)


class Data:
    """The inputs of a call, with `tokens` tokens of all sequences in one dimension.

    The keys keep a step stable. Memory between inputs is NaN.
    """

    def __init__(
        self,
        tokens,
        sequences,
        K,
        V=None,
        heads=2,
        value_heads=None,
        dtype="bf16",
        GATE="none",
        GATE_INPUT="log_decay",
        BETA="head",
        BETA_INPUT="plain",
        L2NORM=False,
        G="f32",
        B=None,
        decay=-0.2,
        initial=True,
        cu_seqlens=None,
        strides=(None, None, None, None),
        shift=0,
        **parameters,
    ):
        V, value_heads, B = V or K, value_heads or heads, B or dtype
        self.tokens, self.sequences, self.heads, self.value_heads = tokens, sequences, heads, value_heads
        self.dtype, self.K, self.V, self.scale, self.lower_bound = dtype, K, V, 0.0, -5.0
        self.forms = dict(GATE=GATE, GATE_INPUT=GATE_INPUT, BETA=BETA, BETA_INPUT=BETA_INPUT, L2NORM=L2NORM)
        self.parameters = dict(T=dtype, K=K, V=V, G=G, B=B, **self.forms, **parameters)

        def inside(h, d, kind, values, stride=None):
            guard = Guarded(tokens, h, d, dtype=kind, strides=(stride or h * d, d, 1), shift=shift if kind == dtype else 0)
            guard.view.copy_(values)
            return guard.view

        self.strides = [stride or h * d for stride, h, d in zip(strides, (heads, heads, value_heads, value_heads), (K, K, V, V))]
        self.q = inside(heads, K, dtype, normal(tokens, heads, K, dtype=dtype), strides[0])
        self.k = inside(heads, K, dtype, normal(tokens, heads, K, dtype=dtype, scale=1.0 if L2NORM else 0.8 / K**0.5), strides[1])
        self.v = inside(value_heads, V, dtype, normal(tokens, value_heads, V, dtype=dtype), strides[2])
        columns = {"none": 0, "head": 1, "value": V}[BETA]
        raw = torch.randn(tokens, value_heads, max(columns, 1), device="cuda")
        self.beta = inside(value_heads, columns, B, raw if BETA_INPUT != "plain" else raw.sigmoid()) if columns else None
        rows = {"none": 0, "head": 1, "key": K}[GATE]
        gate = (
            torch.rand(tokens, value_heads, max(rows, 1), device="cuda") * decay
            if GATE_INPUT == "log_decay"
            else torch.randn(tokens, value_heads, max(rows, 1), device="cuda") * 2
        )
        self.g = inside(value_heads, rows, G, gate) if rows else None
        self.a_log = torch.randn(value_heads, device="cuda") - 2 if GATE_INPUT != "log_decay" else None
        self.dt_bias = torch.randn(value_heads, rows, device="cuda") if GATE_INPUT != "log_decay" else None
        self.initial = torch.randn(sequences, value_heads, K, V, device="cuda") if initial else None
        self.cu_seqlens = None if cu_seqlens is None else torch.tensor([0] + list(itertools.accumulate(cu_seqlens)), device="cuda")

    def run(self, first=0, last=None, initial="own", final=True, out=None, **parameters):
        """Runs tokens first..last-1 of the only sequence, or all tokens. Returns (out,
        final state), both guarded.
        """
        everything = first == 0 and last is None
        last = self.tokens if last is None else last
        out = out or Guarded(self.tokens, self.value_heads, self.V, dtype=self.dtype, strides=(self.strides[3], self.V, 1))
        state = (
            final
            if isinstance(final, torch.Tensor)
            else Guarded(self.sequences, self.value_heads, self.K, self.V, dtype="f32")
            if final
            else None
        )
        pick = lambda t: None if t is None else t if everything else t[first:last]
        kernel("delta_recurrent", **{**self.parameters, **parameters})(
            pick(out.view),
            pick(self.q),
            pick(self.k),
            pick(self.v),
            pick(self.beta),
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

    def log_decays(self):
        g = self.g.double()
        if self.dt_bias is not None:
            g = g + self.dt_bias.double()
        rate = None if self.a_log is None else self.a_log.double().exp()[:, None]
        return {
            "log_decay": lambda: g,
            "softplus": lambda: -rate * torch.nn.functional.softplus(g, threshold=1000.0),
            "bounded": lambda: self.lower_bound * torch.sigmoid(g if rate is None else rate * g),
        }[self.forms["GATE_INPUT"]]()

    def want(self, after=None):
        """(o, final states) in float64, step by step, by the formula. The list `after` receives the state after each token."""
        group = self.value_heads // self.heads
        q, k, v = self.q.double(), self.k.double(), self.v.double()
        if self.forms["L2NORM"]:
            q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        q = (q * (self.scale or self.K**-0.5)).repeat_interleave(group, 1)
        k = k.repeat_interleave(group, 1)
        beta = torch.ones_like(v[..., :1]) if self.beta is None else self.beta.double()
        if self.forms["BETA_INPUT"] != "plain":
            beta = torch.sigmoid(beta) * (2 if self.forms["BETA_INPUT"] == "twice_sigmoid" else 1)
        decay = None if self.g is None else self.log_decays().exp()
        ends = (
            [self.tokens // self.sequences * (n + 1) for n in range(self.sequences)]
            if self.cu_seqlens is None
            else self.cu_seqlens.tolist()[1:]
        )
        out = torch.empty_like(v)
        states = (
            torch.zeros(self.sequences, self.value_heads, self.K, self.V, dtype=torch.float64, device="cuda")
            if self.initial is None
            else self.initial.to(torch.float64, copy=True)
        )
        begin = 0
        for n, end in enumerate(ends):
            S = states[n]
            for t in range(begin, end):
                if decay is not None:
                    S = S * decay[t, :, :, None]
                u = beta[t] * (v[t] - torch.bmm(k[t, :, None], S)[:, 0])
                S = torch.baddbmm(S, k[t, :, :, None], u[:, None])
                out[t] = torch.bmm(q[t, :, None], S)[:, 0]
                if after is not None:
                    after.append(S)
            states[n] = S
            begin = end
        return out, states

    def expect_right(self, what="", **parameters):
        out, state = self.run(**parameters)
        want, states = self.want()
        what = f"{what} {self.parameters} {parameters}"
        if self.tokens:
            expect_close(out.view, want, TOLERANCE[self.dtype], what)
        expect_close(state.view, states, STATE, f"{what}: state")
        out.check(what), state.check(what)
        return out, state


def test_every_size_and_gate():
    sizes = [(n, n) for n in (32, 60, 64, 100, 128, 256)] + [
        (64, 128),
        (128, 64),
        (256, 128),
        (128, 256),
        (60, 100),
        (100, 60),
        (4, 8),
        (36, 512),
    ]
    variants = [
        (dict(dtype=t, K=K, V=V, GATE=g, L2NORM=n))
        for (K, V), t, g, n in itertools.product(sizes, ("f32", "f16", "bf16"), ("none", "head", "key"), (False, True))
        if t == "bf16" or n == (g != "none")
    ]
    for v in variants:
        prefetch("delta_recurrent", **Data(1, 1, **v).parameters)
    for v in variants:
        # The roundings of one token's few outputs in bf16 do not average out, so this runs
        # 32 sequences of one token.
        for tokens, sequences in ((32, 32), (3, 3) if v["V"] > 32 else (30, 10), (66, 2)):
            Data(tokens, sequences, heads=1, value_heads=2, **v).expect_right()


def test_what_FOR_picks():
    variants = [
        (which, dict(dtype=t, K=K, V=V, GATE=g, L2NORM=g != "none"))
        for which, (K, V), t, g in itertools.product(
            ("decode", "prefill", "one"),
            [(n, n) for n in (32, 60, 64, 100, 128, 256)] + [(128, 64), (64, 256)],
            ("f32", "bf16"),
            ("none", "head", "key"),
        )
    ]
    for which, v in variants:
        prefetch("delta_recurrent", FOR=which, **Data(1, 1, **v).parameters)
    for which, v in variants:
        for tokens, sequences in ((32, 32),) if which == "one" else ((32, 32), (66, 2)):
            Data(tokens, sequences, heads=1, value_heads=2, **v).expect_right(FOR=which)


def test_variable_lengths():
    for gate, norm in (("none", True), ("head", True), ("key", True), ("none", False)):
        for K, dtype in ((64, "bf16"), (128, "bf16"), (100, "f32")):
            lengths = LENGTHS if gate == "none" or K == 64 else (0, 1, 15, 0, 100, 7, 8, 9, 16, 0)
            Data(
                sum(lengths), len(lengths), K, GATE=gate, L2NORM=norm, dtype=dtype, heads=1, value_heads=2, cu_seqlens=lengths
            ).expect_right()


def test_empty_sequences():
    for initial in (True, False):
        data = Data(0, 3, 64, initial=initial, cu_seqlens=(0, 0, 0))
        _, state = data.run()
        expect_same_bits(state.view, data.initial if initial else torch.zeros_like(state.view))
        data.cu_seqlens = None
        expect_same_bits(data.run()[1].view, state.view)
    # Without sequences nothing is launched.
    kernel("delta_recurrent", T="bf16", K=64)(None, None, None, None, None, 0, 0, 1, 1, 64, 64, 64, 64)


def test_head_groups():
    for heads, value_heads in ((1, 1), (1, 8), (2, 6), (16, 32), (3, 3)):
        for gate in ("none", "head", "key"):
            Data(20, 2, 128, heads=heads, value_heads=value_heads, GATE=gate, L2NORM=True).expect_right()


def test_gates_and_betas_in_the_kernel():
    for gate, kind, beta, beta_input in itertools.product(
        ("head", "key"), ("log_decay", "softplus", "bounded"), ("none", "head", "value"), ("plain", "sigmoid", "twice_sigmoid")
    ):
        if beta == "none" and beta_input != "plain":
            continue
        for G, B in (("f32", "bf16"), ("bf16", "f32")):
            data = Data(40, 2, 64, GATE=gate, GATE_INPUT=kind, BETA=beta, BETA_INPUT=beta_input, L2NORM=True, G=G, B=B)
            data.expect_right()
            if kind != "log_decay":
                data.dt_bias = None
                data.expect_right("no dt_bias")
            if kind == "bounded":
                data.a_log, data.lower_bound = None, -1.5
                data.expect_right("no a_log")
            one = Data(40, 40, 64, GATE=gate, GATE_INPUT=kind, BETA=beta, BETA_INPUT=beta_input, L2NORM=True, G=G, B=B)
            one.expect_right("one token", FOR="one")


def test_gates_near_their_limits():
    for gate in ("head", "key"):
        for value in (0.0, -1e-7, -1e-3, -20.0, -87.0, -104.0, -1e4, float("-inf")):
            data = Data(300, 1, 64, GATE=gate, L2NORM=True)
            data.g.fill_(value)
            data.expect_right(f"g = {value}")
            data.g[::2] = 0.0
            data.expect_right(f"g = {value}, 0")
        for kind, value in itertools.product(("softplus", "bounded"), (-80.0, -15.0, 19.9, 20.1, 80.0)):
            data = Data(40, 1, 64, GATE=gate, GATE_INPUT=kind, L2NORM=True)
            data.g.fill_(value)
            data.expect_right(f"{kind} of {value}")


def test_scale_and_states_left_out():
    data = Data(50, 2, 128, L2NORM=True)
    data.scale = 1.0
    data.expect_right("scale = 1")
    out, _ = data.run()
    expect_same_bits(data.run(final=None)[0].view, out.view, "without final state")
    zeros = data.run(initial=torch.zeros_like(data.initial))
    for got, want in zip(data.run(initial=None), zeros):
        expect_same_bits(got.view, want.view, "without initial state")


def test_zero_rows_are_normalised_to_zero():
    data = Data(9, 1, 64, L2NORM=True)
    data.q[3], data.k[5] = 0, 0
    data.expect_right()


def test_chained_calls_are_one_long_call():
    """Any cut gives the same bits: a step's arithmetic does not depend on its
    place in a block of steps.
    """
    for gate, K, dtype in (("none", 128, "bf16"), ("head", 64, "f32"), ("key", 60, "bf16"), ("key", 256, "f16")):
        data = Data(200, 1, K, GATE=gate, L2NORM=True, dtype=dtype)
        want, end = data.run()
        out, state = Guarded(data.tokens, data.value_heads, data.V, dtype=dtype), data.initial.clone()
        cuts = [0, 1, 2, 9, 41, 50, 66, 131, 199, 200]
        for first, last in zip(cuts, cuts[1:]):
            data.run(first, last, initial=state, final=state, out=out)  # in place
        expect_same_bits(out.view, want.view, f"{gate} K={K}: outputs")
        expect_same_bits(state, end.view, f"{gate} K={K}: state")


def test_decode_in_a_graph():
    """200 captured steps, each with the state of the previous step, in place, give the bits of one prefill."""
    for gate in ("none", "head", "key"):
        data = Data(200, 1, 128, GATE=gate, L2NORM=True, heads=4, value_heads=8)
        want, end = data.run()
        out, state = Guarded(data.tokens, data.value_heads, data.V, dtype=data.dtype), data.initial.clone()
        # Loads the kernel before the capture.
        data.run(0, 1, initial=state.clone(), final=state.clone(), out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for t in range(data.tokens):
                data.run(t, t + 1, initial=state, final=state, out=out)
        for _ in range(2):
            state.copy_(data.initial)
            out.bits.fill_(-1)
            graph.replay()
            expect_same_bits(out.view, want.view, f"{gate}: outputs")
            expect_same_bits(state, end.view, f"{gate}: state")


def test_identical_and_independent_of_warps():
    for gate, K, dtype in (("none", 128, "bf16"), ("key", 100, "f32"), ("head", 256, "bf16")):
        data = Data(37, 1, K, GATE=gate, L2NORM=True, dtype=dtype)
        first = data.run()
        for warps in (1, 2, 4):
            for got, want in zip(data.run(WARPS=warps), first):
                expect_same_bits(got.view, want.view, f"{gate} K={K} WARPS={warps}")
        for lanes, columns in itertools.product((4, 8, 16, 32), (1, 2, 4)):
            if lanes <= 8 * columns and -(-K // (4 * lanes)) * 4 * (columns + (3 if gate == "key" else 2)) <= (
                128 if gate == "key" else 192
            ):
                data.expect_right(LANES=lanes, COLS=columns)


def test_strides_and_misaligned_views():
    K, H = 64, 2
    for dtype in ("bf16", "f32"):
        data = Data(30, 2, K, dtype=dtype, L2NORM=True)
        packed = torch.full(
            (30, 3 * H * K + 8), float("nan"), device="cuda", dtype=DTYPES[dtype]
        )  # q, k and v of one matrix product
        views = [packed[:, i * H * K : (i + 1) * H * K].view(30, H, K) for i in range(3)]
        for view, old in zip(views, (data.q, data.k, data.v)):
            view.copy_(old)
        data.q, data.k, data.v = views
        data.strides[:3] = [packed.stride(0)] * 3
        data.expect_right("packed")
    far = (1 << 31) + 64
    Data(3, 1, K, strides=(far, H * K, H * K, H * K), L2NORM=True).expect_right("q far apart")
    Data(3, 1, K, strides=(H * K, far, far, far), L2NORM=True).expect_right("k, v and out far apart")
    data = Data(30, 2, K, shift=2, L2NORM=True)
    expect_refused(data.run, "align")
    data.expect_right("4 bytes", VEC=2)


def test_a_long_sequence():
    """131072 tokens. The float64 loop runs in captured blocks of 512 steps."""
    tokens, block = 131072, 512
    for gate in ("none", "key"):
        data = Data(tokens, 1, 64, heads=2, GATE=gate, L2NORM=True, decay=-0.01)
        out, state = data.run()
        part = Data(block, 1, 64, heads=2, GATE=gate, L2NORM=True)
        part.initial = torch.empty_like(data.initial, dtype=torch.float64)
        sources = [(getattr(part, n), getattr(data, n)) for n in ("q", "k", "v", "beta", "g") if getattr(data, n) is not None]
        part.want()  # allocates the products' workspaces before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got, states = part.want()
        part.initial.copy_(data.initial)
        error = norm = 0.0
        for first in range(0, tokens, block):
            for to, source in sources:
                to.copy_(source[first : first + block])
            graph.replay()
            error += (out.view[first : first + block].double() - got).square().sum()
            norm += got.square().sum()
            part.initial.copy_(states)
        found = float((error / norm).sqrt())
        assert found <= TOLERANCE["bf16"], f"{gate}: relative RMS {found:.3g}"
        expect_close(state.view, part.initial, STATE, f"{gate}: state")


def test_refusals():
    data = Data(12, 2, 64, GATE="head", GATE_INPUT="softplus", heads=2, value_heads=4)
    right = {name: getattr(data, name) for name in ("beta", "g", "a_log", "tokens", "heads", "value_heads", "sequences")}

    def broken(*words, **wrong):
        for name, value in {**right, **wrong}.items():
            setattr(data, name, value)
        k = kernel("delta_recurrent", **data.parameters)
        expect_refused(
            lambda: k(
                data.v,
                data.q,
                data.k,
                data.v,
                data.beta,
                data.tokens,
                data.sequences,
                data.heads,
                data.value_heads,
                *data.strides,
                0.0,
                data.g,
                None,
                None,
                None,
                data.a_log,
                data.dt_bias,
            ),
            *words,
        )

    broken("beta", beta=None)
    broken("g must", g=None)
    broken("a_log", a_log=None)
    broken("multiple of heads", heads=3)
    broken("multiple of sequences", sequences=5)
    broken("of no sequence", sequences=0)
    broken("negative", tokens=-1)
    expect_refused(lambda: Data(12, 2, 64).run(FOR="one"), "FOR = one", "12 tokens")
    expect_refused(lambda: Data(3, 3, 64, cu_seqlens=(1, 1, 1)).run(FOR="one"), "FOR = one", "cu_seqlens")
    plain = Data(12, 2, 64)
    k = kernel("delta_recurrent", **plain.parameters)
    call = lambda **w: k(
        plain.v,
        plain.q,
        plain.k,
        plain.v,
        w.get("beta", plain.beta),
        12,
        2,
        2,
        2,
        *w.get("strides", plain.strides),
        0.0,
        w.get("g"),
        None,
        None,
        None,
        w.get("a_log"),
    )
    expect_refused(lambda: call(g=data.v), "null for none")
    expect_refused(lambda: call(a_log=data.a_log), "a_log")
    expect_refused(lambda: call(strides=(129, 128, 128, 128)), "VEC")
    for wrong, words in (
        (dict(K=66), "multiples of 4"),
        (dict(K=260), "260"),
        (dict(K=64, GATE_INPUT="softplus"), "GATE"),
        (dict(K=64, BETA="none", BETA_INPUT="sigmoid"), "BETA"),
        (dict(K=256, LANES=4), "LANES"),
        (dict(K=64, LANES=16, COLS=1), "4 columns"),
        (dict(K=64, VEC=1), "VEC"),
        (dict(K=64, GATE="k"), "GATE"),
    ):
        expect_refused(lambda: kernel("delta_recurrent", T="bf16", **wrong), words)


FLA = {"none": "delta", "head": "gated_delta", "key": "kda"}


def bench():
    """Decode (one token each, states in place), short and long prefill. H is heads of q and
    k, HV of v and the states.
    """
    decode = [
        (b, 1, h, hv, gate)
        for gate in FLA
        for h, hv in ((32, 32), (16, 32))
        for b in (1, 4, 8, 32, 128)
        if h == hv or gate != "none"
    ]
    prefill = (
        [(4, 2048, 16, 16, gate) for gate in FLA]
        + [(8, 64, 32, 32, gate) for gate in FLA]
        + [(1, 4096, 16, 16, gate) for gate in FLA]
        + [(8, 4096, 32, 32, "head")]
    )
    for b, t, h, hv, gate in decode + prefill:
        K = V = 128
        norm = gate != "none"
        # Values of FOR: the suitable one, and for comparison "any", which is the default for engines.
        ways = {"kiln": "one" if t == 1 else "any" if t < 256 else "prefill"}
        ways.update({"kiln FOR=any": "any"} if ways["kiln"] != "any" else {"kiln FOR=decode": "decode"})

        def make(b=b, t=t, h=h, hv=hv, gate=gate):
            data = Data(b * t, b, K, heads=h, value_heads=hv, GATE=gate, L2NORM=norm)
            q, k, v, beta, g = (
                None if x is None else x.contiguous().view(b, t, *x.shape[1:]) for x in (data.q, data.k, data.v, data.beta, data.g)
            )
            return (
                torch.empty_like(v),
                q,
                k,
                v,
                beta.squeeze(-1).contiguous(),
                g if gate != "head" else g.squeeze(-1).contiguous(),
                data.initial,
            )

        def ours(run, b, t, h, hv):
            return lambda o, q, k, v, beta, g, s: run(o, q, k, v, beta, b * t, b, h, hv, h * K, h * K, hv * V, hv * V, 0.0, g, s, s)

        launches = {
            label: ours(kernel("delta_recurrent", T="bf16", K=K, GATE=gate, L2NORM=norm, FOR=way), b, t, h, hv)
            for label, way in ways.items()
        }
        for kind in ("recurrent", "chunk"):
            if t > 1 or kind == "recurrent":
                for label, peer in peers.get(f"fla_{FLA[gate]}_{kind}").items():
                    launches[label] = lambda o, q, k, v, beta, g, s, peer=peer, norm=norm: peer(
                        q, k, v, beta, g=g, initial_state=s, l2norm=norm
                    )
        states = b * hv * K * V * 4
        gates = b * t * hv * ({"none": 0, "head": 4, "key": 4 * K}[gate] + 2)
        bar = 0.85 if t == 1 and b >= 32 else 0
        yield Row(
            f"delta_recurrent {FLA[gate]} B{b} T{t} H{h}" + (f" HV{hv}" if hv != h else "") + f" {ways['kiln']}",
            b * t * (2 * h * K + hv * V) * 2 + gates + states,
            b * t * hv * V * 2 + states,
            make,
            launches,
            flops=(7 if norm else 6) * b * t * hv * K * V,
            bar=bar,
            bar_us=600.0 if (b, t, gate) == (4, 2048, "none") else 0.0,
        )
