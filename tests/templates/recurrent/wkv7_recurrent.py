"""wkv7_recurrent against a float64 step loop: lengths, head sizes, states over calls,
gates near their limits.

Its time is compared with Flash Linear Attention.
"""

import itertools

import torch
from harness import DTYPES, Guarded, Row, expect_close, expect_refused, expect_same_bits, kernel, normal, peers, prefetch

TOLERANCE = {"f32": 2e-5, "f16": 5e-4, "bf16": 2e-3}
STATE = 2e-5  # states are f32 for every T

SANITIZE = [
    "wkv7_recurrent T=bf16 K=64 sequences=2 length=37 heads=3",
    "wkv7_recurrent T=bf16 K=64 FORM=kk_a VARLEN=true sequences=9 length=70 heads=2",
    "wkv7_recurrent T=f32 K=60 V=100 sequences=2 length=19 heads=2",
    "wkv7_recurrent T=f16 K=128 W=f32 sequences=3 length=1 heads=4",
    "wkv7_recurrent T=bf16 K=256 FORM=kk_a sequences=1 length=9 heads=2",
    "wkv7_recurrent T=bf16 K=64 LANES=4 sequences=40 length=9 heads=32",
    "wkv7_recurrent T=bf16 K=128 FORM=kk_a FOR=decode sequences=40 length=1 heads=8",
]


def reference(r, w, k, v, a, b, scale=1.0, state=None, after=None):
    """o and the final state [B, H, K, V] in float64, token by token. Inputs are [B, T, H, K or V].

    The list `after` receives the states after each token.
    """
    batch, length, heads, size = k.shape
    s = (
        torch.zeros(batch, heads, size, v.shape[-1], dtype=torch.float64, device="cuda")
        if state is None
        else state.double().clone()
    )
    o = torch.empty(*v.shape, dtype=torch.float64, device="cuda")
    for t in range(length):
        rt, wt, kt, vt, at, bt = (x[:, t].double() for x in (r, w, k, v, a, b))
        a_s = torch.einsum("nhk,nhkv->nhv", at, s)
        s = wt.exp()[..., None] * s + bt[..., None] * a_s[:, :, None] + kt[..., None] * vt[:, :, None]
        o[:, t] = torch.einsum("nhk,nhkv->nhv", rt, s) * scale
        if after is not None:
            after.append(s)
    return o, s


def inputs(batch, length, heads, size, value_size=None, dtype="bf16", w_dtype=None):
    """Inputs as RWKV7 makes them: kk of length 1, the learning rate a in (0, 1), w in (-0.6066, 0)."""
    x = {name: normal(batch, length, heads, size, dtype=dtype) for name in "rk"}
    x["v"] = normal(batch, length, heads, value_size or size, dtype=dtype)
    x["w"] = (-0.6065306597 * torch.sigmoid(torch.randn(batch, length, heads, size, device="cuda") * 2)).to(
        DTYPES[w_dtype or dtype]
    )
    x["kk"] = torch.nn.functional.normalize(torch.randn(batch, length, heads, size, device="cuda"), dim=-1).to(DTYPES[dtype])
    x["a"] = torch.rand(batch, length, heads, size, device="cuda").to(DTYPES[dtype])
    return x


def forms(x):
    """The recurrence's inputs for reference(), with a and b in float64, as FORM kk_a
    multiplies in f32 or better.
    """
    return dict(r=x["r"], w=x["w"], k=x["k"], v=x["v"], a=-x["kk"].double(), b=x["kk"].double() * x["a"].double())


def run(x, form="kk_a", dtype="bf16", state=None, scale=None, cu_seqlens=None, final=None, o=None, sequences=None, **parameters):
    """o and the final state in guarded memory. With form "a_b", x["a"] and x["b"] are a
    and b of the recurrence.

    `final` False passes a null final state.
    """
    batch, length, heads, size = x["k"].shape
    value_size = x["v"].shape[-1]
    n = len(cu_seqlens) - 1 if cu_seqlens is not None else batch
    o = Guarded(batch, length, heads, value_size, dtype=dtype) if o is None else o
    ht = Guarded(n, heads, size, value_size, dtype="f32") if final is None else final
    k = kernel("wkv7_recurrent", T=dtype, K=size, V=value_size, FORM=form, VARLEN=cu_seqlens is not None, **parameters)
    k(
        o.view,
        x["r"],
        x["w"],
        x["k"],
        x["v"],
        x["a"],
        n,
        length,
        heads,
        x["b"] if form == "a_b" else None,
        x["kk"] if form == "kk_a" else None,
        1.0 if scale is None else scale,
        state,
        ht.view if ht else None,
        cu_seqlens,
    )
    return o, ht


def compare(x, what, dtype="bf16", form="kk_a", state=None, scale=1.0, **parameters):
    o, ht = run(x, form, dtype, state, scale, **parameters)
    want, want_state = reference(**(forms(x) if form == "kk_a" else {name: x[name] for name in "rwkvab"}), scale=scale, state=state)
    expect_close(o.view, want, TOLERANCE[dtype], what)
    expect_close(ht.view, want_state, STATE, what + ": state")
    o.check(what)
    ht.check(what + ": state")


def test_every_dtype_and_head_size():
    sizes = [(n, n) for n in (32, 60, 64, 100, 128, 256)] + [(64, 128), (128, 64), (60, 100), (256, 32), (32, 256), (4, 4), (8, 12)]
    for dtype, (size, value_size) in itertools.product(TOLERANCE, sizes):
        prefetch("wkv7_recurrent", T=dtype, K=size, V=value_size, FORM="kk_a", VARLEN=False)
    for dtype, (size, value_size) in itertools.product(TOLERANCE, sizes):
        state = torch.randn(2, 3, size, value_size, device="cuda")
        compare(inputs(2, 37, 3, size, value_size, dtype), f"{dtype} {size} x {value_size}", dtype, state=state)


def test_what_FOR_picks():
    sizes = [(n, n) for n in (32, 60, 64, 100, 128, 256)] + [(128, 64), (4, 4)]
    for dtype, (size, value_size) in itertools.product(TOLERANCE, sizes):
        for which in ("decode", "one"):
            prefetch("wkv7_recurrent", T=dtype, K=size, V=value_size, FORM="kk_a", VARLEN=False, FOR=which)
    for dtype, (size, value_size) in itertools.product(TOLERANCE, sizes):
        for batch, length, which in ((40, 1, "decode"), (2, 37, "decode"), (40, 1, "one")):
            state = torch.randn(batch, 3, size, value_size, device="cuda")
            compare(
                inputs(batch, length, 3, size, value_size, dtype),
                f"{dtype} {size} x {value_size} {which}",
                dtype,
                state=state,
                FOR=which,
            )


def test_the_form_a_b():
    for dtype, size in itertools.product(TOLERANCE, (60, 64, 128)):
        x = inputs(2, 50, 2, size, dtype=dtype)
        x["a"], x["b"] = -x["kk"], (x["kk"].float() * x["a"].float()).to(DTYPES[dtype])
        compare(x, f"{dtype} {size}", dtype, "a_b", state=torch.randn(2, 2, size, size, device="cuda"))


def test_both_forms_give_the_same_bits_in_f32():
    x = inputs(2, 100, 3, 64, dtype="f32")
    y = dict(x, a=-x["kk"], b=x["kk"] * x["a"])
    for one, other in zip(run(x, "kk_a", "f32"), run(y, "a_b", "f32")):
        expect_same_bits(one.view, other.view)


def test_every_length_around_a_chunk():
    for length in (1, 2, 3, 7, 8, 9, 15, 16, 17, 23, 24, 25, 63, 64, 65, 300, 1000):
        compare(inputs(3, length, 2, 64), f"T={length}", state=torch.randn(3, 2, 64, 64, device="cuda"))
    for length in (1, 2, 3, 5):  # two tokens at a time
        compare(inputs(1, length, 2, 256), f"K=256 T={length}")


def test_long():
    x = inputs(1, 131072, 2, 64)
    compare(x, "T=131072")


def test_slow_decay_over_many_tokens():
    for level in (-1e-3, -1e-4, -1e-5, -1e-6, 0.0):
        x = inputs(1, 20000, 2, 64, dtype="f32")
        x["w"] = torch.full_like(x["w"], level)
        x["kk"] = x["kk"] * 0.1  # so that mainly the decay makes the state forget
        o, ht = run(x, "kk_a", "f32")
        want, state = reference(**forms(x))
        expect_close(o.view, want, 2e-3, f"w={level}")
        expect_close(ht.view, state, 2e-3, f"w={level}: state")


def test_gates_at_their_limits():
    for dtype in TOLERANCE:
        x = inputs(2, 200, 2, 64, dtype=dtype)
        limits = torch.tensor([0.0, -1e-3, -0.6065, -5.0, -30.0, -88.0, -104.0, -1e4, float("-inf")], device="cuda")
        x["w"] = limits[torch.randint(len(limits), x["w"].shape, device="cuda")].to(DTYPES[dtype])
        x["a"] = torch.randint(2, x["a"].shape, device="cuda").to(DTYPES[dtype])  # learning rates of 0 and 1
        compare(x, f"{dtype}", dtype)
        x["kk"].zero_()
        compare(x, f"{dtype} kk=0", dtype)


def test_w_of_its_own_type():
    for dtype, w_dtype in (("bf16", "f32"), ("f16", "f32"), ("f32", "bf16"), ("bf16", "f16")):
        x = inputs(2, 90, 2, 64, dtype=dtype, w_dtype=w_dtype)
        compare(x, f"{dtype} W={w_dtype}", dtype, W=w_dtype)


def varlen(lengths, heads=3, size=64, dtype="bf16"):
    total = sum(lengths)
    cu = torch.tensor([0, *itertools.accumulate(lengths)], device="cuda", dtype=torch.int64)
    return inputs(1, total, heads, size, dtype=dtype), cu


def test_variable_lengths():
    for lengths in ([0, 15, 100, 300, 1200, 1599, 1800, 2000], [0, 0, 15, 1, 0, 300, 0], [1] * 33, [0, 0, 0], [5]):
        x, cu = varlen(lengths)
        for given in (False, True):
            state = torch.randn(len(lengths), 3, 64, 64, device="cuda") if given else None
            o, ht = run(x, state=state, cu_seqlens=cu)
            want, want_state = torch.empty_like(o.view, dtype=torch.float64), torch.zeros_like(ht.view, dtype=torch.float64)
            for n, (begin, end) in enumerate(zip(cu.tolist()[:-1], cu.tolist()[1:])):
                part = {name: t[:, begin:end].contiguous() for name, t in x.items()}
                own = state[n : n + 1] if given else None
                if begin == end:
                    expect_same_bits(
                        ht.view[n],
                        state[n] if given else torch.zeros_like(ht.view[n]),
                        f"{lengths}: an empty sequence keeps its state",
                    )
                    want_state[n] = ht.view[n]
                    continue
                want[:, begin:end], want_state[n : n + 1] = reference(**forms(part), state=own)
                alone, alone_state = run(part, state=own)
                expect_same_bits(o.view[:, begin:end], alone.view, f"{lengths}[{n}] alone")
                expect_same_bits(ht.view[n : n + 1], alone_state.view, f"{lengths}[{n}] alone: state")
                expect_close(ht.view[n : n + 1], want_state[n : n + 1], STATE, f"{lengths}[{n}]: state")
            # All tokens at once, as the error of one token's 192 outputs may exceed the tolerance.
            expect_close(o.view, want, TOLERANCE["bf16"], f"{lengths}")
            o.check(f"{lengths}")
            ht.check(f"{lengths}: state")


def test_chained_calls_equal_one():
    for dtype in ("f32", "bf16"):
        x = inputs(2, 1000, 3, 64, dtype=dtype)
        o, ht = run(x, "kk_a", dtype)
        state, begin = None, 0
        for length in (1, 1, 7, 8, 64, 100, 300, 519):
            part = {name: t[:, begin : begin + length].contiguous() for name, t in x.items()}
            part_o, part_state = run(part, "kk_a", dtype, state)
            expect_same_bits(part_o.view, o.view[:, begin : begin + length], f"{dtype} from {begin}")
            state, begin = part_state.view.clone(), begin + length
        expect_same_bits(state, ht.view, f"{dtype}: state")


def test_decode_in_place():
    x, state = inputs(5, 40, 4, 64), Guarded(5, 4, 64, 64, dtype="f32")
    state.view.copy_(torch.randn(5, 4, 64, 64, device="cuda"))
    o, ht = run(x, state=state.view.clone())
    for t in range(40):
        part = {name: v[:, t : t + 1].contiguous() for name, v in x.items()}
        part_o, _ = run(part, state=state.view, final=state)
        expect_same_bits(part_o.view, o.view[:, t : t + 1], f"token {t}")
    expect_same_bits(state.view, ht.view)
    state.check()


def test_any_batch_gives_the_same_bits():
    """Few sequences are spread over smaller blocks. The arithmetic is the same."""
    for length in (1, 20):
        x = inputs(150, length, 8, 64)
        o, ht = run(x)
        for batch in (1, 3, 9, 40):
            part = {name: t[:batch].contiguous() for name, t in x.items()}
            part_o, part_state = run(part)
            expect_same_bits(part_o.view, o.view[:batch], f"{batch} of 150")
            expect_same_bits(part_state.view, ht.view[:batch], f"{batch} of 150: state")


def test_other_layouts():
    for size, parameters in itertools.product(
        (60, 64, 128),
        (
            dict(LANES=4),
            dict(LANES=8),
            dict(LANES=16),
            dict(LANES=8, COLS=1),
            dict(LANES=16, COLS=2),
            dict(LANES=4, COLS=2),
            dict(STEPS=1),
            dict(STEPS=2),
            dict(WARPS=1),
            dict(LANES=32),
        ),
    ):
        if size == 128 and parameters.get("LANES") == 4:
            continue
        compare(inputs(3, 41, 2, size), f"K={size} {parameters}", state=torch.randn(3, 2, size, size, device="cuda"), **parameters)


def test_scale_and_optional_arguments():
    x = inputs(2, 33, 2, 64)
    compare(x, "scale", scale=64**-0.5)
    o, _ht = run(x)
    k, plain = kernel("wkv7_recurrent", T="bf16", K=64, V=64, FORM="kk_a", VARLEN=False), Guarded(2, 33, 2, 64)
    k(plain.view, x["r"], x["w"], x["k"], x["v"], x["a"], 2, 33, 2, None, x["kk"])  # scale 1, no states
    expect_same_bits(plain.view, o.view, "the default scale is 1")
    zeros, _ = run(x, state=torch.zeros(2, 2, 64, 64, device="cuda"), final=False)
    expect_same_bits(zeros.view, o.view, "no initial state is zeros")


def test_nothing_to_do():
    state = torch.randn(3, 2, 64, 64, device="cuda")
    x = inputs(3, 0, 2, 64)
    _, ht = run(x, state=state)
    expect_same_bits(ht.view, state, "no tokens: the state stays")
    _, ht = run(x)
    assert bool((ht.view == 0).all()), "no tokens, no state: zeros"
    for batch, heads in ((0, 2), (3, 0)):
        run(inputs(batch, 5, heads, 64))


def test_refusals():
    x = inputs(1, 4, 2, 64)
    x["b"] = x["a"]
    o = torch.empty_like(x["v"])
    first = (o, x["r"], x["w"], x["k"], x["v"], x["a"])
    a_b, kk_a = (kernel("wkv7_recurrent", T="bf16", K=64, V=64, FORM=form, VARLEN=False) for form in ("a_b", "kk_a"))
    several = kernel("wkv7_recurrent", T="bf16", K=64, V=64, FORM="a_b", VARLEN=True)
    cu = torch.tensor([0, 4], device="cuda")
    expect_refused(lambda: a_b(*first, 1, 4, 2), "FORM", "a_b")
    expect_refused(lambda: a_b(*first, 1, 4, 2, None, x["kk"]), "FORM")
    expect_refused(lambda: a_b(*first, 1, 4, 2, x["b"], x["kk"]), "FORM", "null")
    expect_refused(lambda: kk_a(*first, 1, 4, 2, x["b"]), "FORM")
    expect_refused(lambda: a_b(*first, 1, 4, 2, x["b"], None, 1.0, None, None, cu), "cu_seqlens", "VARLEN")
    expect_refused(lambda: several(*first, 1, 4, 2, x["b"]), "cu_seqlens", "VARLEN")
    expect_refused(lambda: several(*first, 0, 4, 2, x["b"], None, 1.0, None, None, cu[:1]), "of no sequence")
    expect_refused(lambda: a_b(*first, 1, -4, 2, x["b"]), "length", "-4")
    expect_refused(lambda: run(inputs(1, 4, 2, 64), FOR="one"), "FOR = one", "not 4")
    expect_refused(lambda: a_b(*first, -1, 4, 2, x["b"]), "sequences", "-1")
    odd = torch.empty(4 * 2 * 64 + 1, device="cuda", dtype=torch.bfloat16)[1:].view(1, 4, 2, 64)
    expect_refused(lambda: a_b(o, odd, *first[2:], 1, 4, 2, x["b"]), "align")
    for parameters, word in (
        (dict(K=66), "multiples of 4"),
        (dict(K=64, V=30), "multiples of 4"),
        (dict(K=64, COLS=1, LANES=16), "columns"),
        (dict(K=256, LANES=4), "LANES"),
        (dict(K=320), "K"),
    ):
        expect_refused(lambda: kernel("wkv7_recurrent", T="bf16", **parameters), word)


def test_runs_are_identical():
    x = inputs(8, 200, 8, 64)
    first = run(x)
    for _ in range(10):
        for one, other in zip(run(x), first):
            expect_same_bits(one.view, other.view)


def test_offsets_beyond_31_bits():
    batch, length, heads, size = 520, 1024, 64, 64
    small = inputs(1, length, heads, size)
    x = {name: t.expand(batch, *t.shape[1:]).contiguous() for name, t in small.items()}
    o = torch.full((batch, length, heads, size), float("nan"), device="cuda", dtype=torch.bfloat16)
    k = kernel("wkv7_recurrent", T="bf16", K=64, V=64, FORM="kk_a", VARLEN=False)
    k(o, x["r"], x["w"], x["k"], x["v"], x["a"], batch, length, heads, None, x["kk"])
    want = run(small)[0].view[0]
    for n in (0, 1, 259, 511, 512, 519):
        expect_same_bits(o[n], want, f"sequence {n}")


def eager(o, state, r, w, k, v, kk, a):
    for t in range(k.shape[1]):
        rt, wt, kt, vt, kkt, at = (x[:, t].float() for x in (r, w, k, v, kk, a))
        a_s = torch.einsum("nhk,nhkv->nhv", -kkt, state)
        state = wt.exp()[..., None] * state + (kkt * at)[..., None] * a_s[:, :, None] + kt[..., None] * vt[:, :, None]
        o[:, t] = torch.einsum("nhk,nhkv->nhv", rt, state)
    return state


def bench():
    """Peers are "fla_wkv7_recurrent" and, from 64 tokens on, "fla_wkv7_chunk".

    They are called with r, w, k, v, kk, a, initial_state.
    """
    cases = [(b, 1, 32, 64, 0.0) for b in (1, 4, 8, 16, 32, 64, 128, 256)] + [(8, 1, 16, 128, 0.0), (64, 1, 16, 128, 0.0)]
    cases += [
        (8, 64, 32, 64, 113.0),
        (1, 64, 32, 64, 0.0),
        (8, 4096, 32, 64, 1670.0),
        (1, 4096, 32, 64, 951.0),
        (32, 1024, 32, 64, 0.0),
    ]
    for batch, length, heads, size, bar_us in cases:
        elements, states = batch * length * heads * size, batch * heads * size * size

        def make(batch=batch, length=length, heads=heads, size=size):
            x = inputs(batch, length, heads, size)
            state = torch.randn(batch, heads, size, size, device="cuda")
            return torch.empty_like(x["v"]), torch.empty_like(state), state, *(x[name] for name in ("r", "w", "k", "v", "kk", "a"))

        launches = {}
        way, other = ("one", "any") if length == 1 else ("any", "decode")
        for label, which in (("kiln", way), (f"kiln FOR={other}", other)):
            kern = kernel("wkv7_recurrent", T="bf16", K=size, V=size, FORM="kk_a", VARLEN=False, FOR=which)
            launches[label] = lambda o, ht, h0, r, w, k, v, kk, a, kern=kern, batch=batch, length=length, heads=heads: kern(
                o, r, w, k, v, a, batch, length, heads, None, kk, 1.0, h0, ht
            )
        if length <= 64:
            launches["eager"] = lambda o, ht, h0, r, w, k, v, kk, a: eager(o, h0, r, w, k, v, kk, a)
        for name in ("fla_wkv7_recurrent", "fla_wkv7_chunk") if length >= 64 else ("fla_wkv7_recurrent",):
            for label, peer in peers.get(name).items():
                launches[label] = lambda o, ht, h0, r, w, k, v, kk, a, peer=peer: peer(r, w, k, v, kk, a, h0)
        bar = 0.85 if length == 1 and batch >= 32 else 0.0
        yield Row(
            f"wkv7_recurrent bf16 B{batch} T{length} H{heads} K{size} {'decode' if length == 1 else way}",
            12 * elements + 4 * states,
            2 * elements + 4 * states,
            make,
            launches,
            flops=9 * elements * size,
            bar_us=bar_us,
            bar=bar,
        )
