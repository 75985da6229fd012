"""conv1d against a convolution in float64: taps, layouts of states, lengths, states over calls.

Its time is compared with a stream of the same bytes.
"""

import itertools

import torch
from harness import DTYPES, TOLERANCE, Guarded, Row, between_nans, expect_close, expect_refused, expect_same_bits, kernel, prefetch

SANITIZE = [
    "conv1d T=bf16 D=512 SILU=true tokens=74 sequences=2",
    "conv1d T=f16 D=100 W=3 VARLEN=true TAPS_FIRST=true tokens=61 sequences=7",
    "conv1d T=bf16 D=1024 FOR=decode tokens=40 sequences=40",
    "conv1d T=f32 D=37 W=2 STATE=bf16 tokens=9 sequences=3",
]
LENGTHS = (0, 5, 1, 0, 17, 2, 3, 0, 8, 9, 33, 0)


class Data:
    """A call's inputs. Memory between the rows of x and between states is NaN.

    Every fourth sequence has no slot, and every third of the others starts from zeros; the slots of those
    and the slots of no sequence hold NaN.
    """

    def __init__(
        self, tokens, sequences, D, W=4, dtype="bf16", state=None, lengths=None, bias=True, gap=16, all_have_one=False, **words
    ):
        self.tokens, self.sequences, self.D, self.W, self.dtype = tokens, sequences, D, W, dtype
        self.parameters = dict(T=dtype, D=D, W=W, VARLEN=lengths is not None, STATE=state or dtype, **words)
        self.state, self.taps_first = state or dtype, words.get("TAPS_FIRST", False)
        self.x = between_nans((tokens, D), (D + gap, 1), dtype)
        self.weight = (torch.randn(D, W, device="cuda") * 0.5).to(DTYPES[dtype])
        self.bias = torch.randn(D, device="cuda").to(DTYPES[dtype]) if bias else None
        self.lengths = lengths or [tokens // sequences] * sequences
        self.ends = torch.tensor([0, *itertools.accumulate(self.lengths)], device="cuda") if lengths is not None else None
        slots, taps = sequences + 3 + tokens, W - 1
        shape = (taps, D) if self.taps_first else (D, taps)
        self.pool = Guarded(slots, *shape, dtype=self.state, strides=(D * taps + gap, shape[1], 1))
        number = torch.arange(sequences, device="cuda")
        self.lives = torch.ones_like(number, dtype=torch.bool) if all_have_one else number % 4 != 3
        self.starts = self.lives & (torch.ones_like(self.lives) if all_have_one else number % 3 != 1)
        self.free = torch.randperm(slots, device="cuda").int()
        self.indices = torch.where(self.lives, self.free[:sequences], -1 - number.int())
        self.free = self.free[sequences:]
        self.has_initial = self.starts.to(torch.uint8)
        values = torch.randn(sequences, *shape, device="cuda").to(DTYPES[self.state])
        self.pool.view[self.indices[self.starts].long()] = values[self.starts]
        self.initial = torch.zeros(sequences, taps, D, device="cuda")
        self.initial[self.starts] = self.of(values[self.starts])
        self.out_indices = None

    def of(self, states):
        """States in f32 as [..., W - 1, D]."""
        return (states if self.taps_first else states.transpose(-1, -2)).float()

    def run(self, with_state=True, out=None, **parameters):
        out = out or Guarded(self.tokens, self.D, dtype=self.dtype, strides=(self.D + 8, 1))
        k = kernel("conv1d", **{**self.parameters, **parameters})
        first = (out.view, self.x, self.weight, self.tokens, self.sequences, self.x.stride(0), out.view.stride(0), self.bias)
        if not with_state:
            k(*first, None, self.ends)
            return out
        rest = (len(self.pool.view), self.pool.view.stride(0), self.out_indices)
        k(*first, self.pool.view, self.ends, self.indices, self.has_initial, *rest)
        return out

    def want(self, with_state=True):
        """(out, final states [sequences, W - 1, D], the state after each token) in float64."""
        x, weight, begin = self.x.double(), self.weight.double(), 0
        out, finals, after = torch.zeros(self.tokens, self.D, dtype=torch.float64, device="cuda"), [], []
        for n, length in enumerate(self.lengths):
            before = self.initial[n].double() if with_state else torch.zeros_like(self.initial[n]).double()
            all_x = torch.cat([before, x[begin : begin + length]])
            for tap in range(self.W):
                out[begin : begin + length] += weight[:, tap] * all_x[tap : tap + length]
            finals.append(all_x[length:])
            after += [all_x[t + 1 : t + self.W] for t in range(length)]
            begin += length
        if self.bias is not None:
            out += self.bias.double()
        return (out * torch.sigmoid(out) if self.parameters.get("SILU") else out), torch.stack(finals), after

    def expect_right(self, what="", **parameters):
        what, before = f"{what} {self.parameters} {parameters}", self.pool.view.clone()
        out, (want, finals, after) = self.run(**parameters), self.want()
        lives = self.lives.repeat_interleave(torch.tensor(self.lengths, device="cuda"))
        if self.tokens:
            expect_close(out.view[lives], want[lives], TOLERANCE[self.dtype], what)
            assert bool((out.view[~lives] == 0).all()), f"{what}: outputs of sequences without a state"
        out.check(what)
        if self.out_indices is None:
            changed = self.lives & torch.tensor([n > 0 for n in self.lengths], device="cuda")
            used, states = self.indices[changed].long(), finals[changed]
        else:
            changed = lives & (self.out_indices >= 0)
            used, states = self.out_indices[changed].long(), torch.stack(after)[changed]
        # The inputs are exact in a state of their own type.
        want = states.to(DTYPES[self.state]).float()
        expect_same_bits(self.of(self.pool.view[used]).contiguous(), want.contiguous(), f"{what}: states")
        rest = torch.ones(len(self.pool.view), dtype=torch.bool, device="cuda")
        rest[used] = False
        expect_same_bits(self.pool.view[rest].contiguous(), before[rest].contiguous(), f"{what}: other slots")
        self.pool.check(what)


def test_every_width_type_and_layout():
    cases = [
        (D, dict(W=W, dtype=t, SILU=silu, TAPS_FIRST=taps_first))
        for D, W, t, (silu, taps_first) in itertools.product(
            (512, 100, 37), (2, 3, 4), ("f32", "bf16"), ((True, False), (False, True))
        )
    ]
    cases += [
        (256, dict(dtype="bf16", state="f32")),
        (256, dict(dtype="f32", state="bf16", TAPS_FIRST=True)),
        (1024, dict(dtype="f16")),
    ]
    for D, words in cases:
        for which in ("any", "decode"):
            prefetch("conv1d", **Data(1, 1, D, **words).parameters, FOR=which)
    for D, words in cases:
        for which, tokens, sequences in (("any", 66, 2), ("decode", 9, 9), ("any", 24, 12), ("decode", 35, 7)):
            Data(tokens, sequences, D, **words).expect_right(FOR=which)


def test_variable_lengths():
    for words in (dict(), dict(TOKENS=4), dict(TOKENS=16), dict(W=2, TAPS_FIRST=True), dict(RUNS=1)):
        Data(sum(LENGTHS), len(LENGTHS), 512, lengths=LENGTHS, **words).expect_right()
    lengths = [1] * 70 + [100, 0, 3] + [4] * 9 + [300]
    Data(sum(lengths), len(lengths), 96, lengths=lengths, SILU=True).expect_right()
    Data(0, 3, 64, lengths=[0, 0, 0]).expect_right("no tokens")


def test_without_a_state():
    for lengths in (None, LENGTHS):
        data = Data(
            sum(LENGTHS) // 6 * 6 if lengths is None else sum(LENGTHS),
            6 if lengths is None else len(LENGTHS),
            256,
            lengths=lengths,
            SILU=True,
        )
        out = data.run(with_state=False)
        expect_close(out.view, data.want(with_state=False)[0], TOLERANCE["bf16"], f"{lengths}")
        data.bias = None
        expect_close(data.run(with_state=False).view, data.want(with_state=False)[0], TOLERANCE["bf16"], "no bias")


def test_states_after_each_token():
    for words in (dict(), dict(TAPS_FIRST=True, W=3), dict(FOR="decode")):
        data = Data(sum(LENGTHS), len(LENGTHS), 256, lengths=LENGTHS, **words)
        slots = data.free[: data.tokens]
        data.out_indices = torch.where(torch.arange(data.tokens, device="cuda") % 3 != 1, slots, -1 - slots)
        data.expect_right("a state after each token")


def test_any_cut_gives_the_same_bits():
    """A call's result does not depend on how the tokens are cut into calls."""
    data = Data(60, 1, 512, SILU=True, all_have_one=True)
    start = data.pool.view.clone()
    want = data.run()
    end = data.pool.view.clone()
    data.pool.view.copy_(start)
    out, x = torch.empty(60, 512, device="cuda", dtype=torch.bfloat16), data.x
    for first, last in itertools.pairwise((0, 1, 2, 4, 5, 12, 13, 30, 60)):
        k = kernel("conv1d", **data.parameters, FOR="decode" if last - first == 1 else "any")
        states = (data.pool.view, None, data.indices, None, len(data.pool.view), data.pool.view.stride(0))
        k(out[first:last], x[first:last], data.weight, last - first, 1, x.stride(0), 512, data.bias, *states)
    expect_same_bits(out, want.view, "outputs")
    expect_same_bits(data.pool.view, end, "state")


def test_offsets_beyond_31_bits():
    data = Data(3, 3, 64, gap=0, all_have_one=True)
    data.x = between_nans((3, 64), ((1 << 31) + 64, 1))
    data.expect_right("x far apart")


def test_refusals():
    data = Data(8, 2, 64)
    expect_refused(lambda: kernel("conv1d", T="bf16", D=64, W=5), "W")
    expect_refused(lambda: kernel("conv1d", T="bf16", D=60, VEC=8), "VEC")
    expect_refused(lambda: data.run(out=Aliased(data.x)), "out must not be x")
    data.ends = torch.tensor([0, 8], device="cuda")
    expect_refused(data.run, "cu_seqlens", "VARLEN")
    odd = Data(9, 3, 64)
    odd.sequences = 2
    expect_refused(odd.run, "multiple of sequences")


class Aliased:
    def __init__(self, view):
        self.view = view


def bench():
    """Qwen3-Next's convolution of 8192 channels: decode, prompts, and a mixture of 128 sequences."""
    D, W = 8192, 4
    mixture = [17 * (n % 29) + 4 for n in range(128)]
    for tokens, sequences, lengths in ((64, 64, None), (256, 256, None), (8192, 4, None), (sum(mixture), 128, mixture)):

        def make(tokens=tokens, sequences=sequences, lengths=lengths):
            x = torch.randn(tokens, D, device="cuda").bfloat16()
            weight, bias = torch.randn(D, W, device="cuda").bfloat16(), torch.randn(D, device="cuda").bfloat16()
            pool, slots = torch.randn(sequences, D, W - 1, device="cuda").bfloat16(), torch.randperm(sequences, device="cuda").int()
            ends = None if lengths is None else torch.tensor([0, *itertools.accumulate(lengths)], device="cuda")
            return torch.empty_like(x), x, weight, bias, pool, slots, ends

        words = dict(T="bf16", D=D, SILU=True, VARLEN=lengths is not None)
        which = "decode" if tokens == sequences else "any"
        others = [{}] + [dict(TOKENS=n) for n in (4, 16) if which == "any"] + [dict(RUNS=1)] * (which == "decode")
        launches = {
            "kiln"
            + "".join(
                f" {n}={v}" for n, v in other.items()
            ): lambda o, x, weight, bias, pool, slots, ends, run=kernel("conv1d", **words, FOR=which, **other), tokens=tokens, sequences=sequences: (
                run(o, x, weight, tokens, sequences, D, D, bias, pool, ends, slots)
            )
            for other in others
        }
        states = sequences * D * (W - 1) * 2
        name = f"conv1d bf16 D{D} {'a mixture of ' if lengths else ''}{sequences} sequences, {tokens} tokens"
        yield Row(name, tokens * D * 2 + D * 10 + states, tokens * D * 2 + states, make, launches)
