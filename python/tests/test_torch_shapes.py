"""Operators refuse wrong tensors before a launch, with an error that names the argument."""

import contextlib
import re

import pytest

torch = pytest.importorskip("torch")

import conftest
import kiln
import kiln.torch
import torch.fx.experimental.symbolic_shapes
from kiln import _kiln, _operator
from kiln.torch import _generated
from kiln.torch._symbolic import DTYPES, FUNCTIONS, Shapes, compiled
from torch._subclasses import FakeTensorMode
from torch_support import launching, on_host_memory, tensors_named  # noqa: F401


def test_wrong_tensors_are_refused_before_anything_is_launched(launching, driver):
    before = driver.launches()
    k = torch.ops.kiln
    for call, text in [
        (lambda: k.rms_norm(torch.randn(2, 64), torch.randn(32)), r"weight is f32 \[32\], expected \[H = 64\]"),
        (lambda: k.rms_norm(torch.randn(2, 64), torch.randn(64).half()), r"weight is f16 \[64\], expected f32"),
        (lambda: k.fused_add_rms_norm(torch.randn(2, 64), torch.randn(3, 64), torch.randn(64)), "residual is"),
        (lambda: k.act_and_mul(torch.randn(2, 63)), "halves"),
        (lambda: k.act_and_mul(torch.randn(2, 64), "tanh"), "tanh"),
        (
            lambda: k.rope(torch.randn(2, 4, 64), torch.randn(3, 2, 64), torch.arange(2)),
            r"k is f32 \[3, 2, 64\], expected \[tokens = 2, kv_heads, D = 64\]",
        ),
        (
            lambda: k.rms_norm(torch.randn(2, 64), torch.randn(64), scale=torch.ones(0)),
            r"scale is f32 \[0\], expected \[1\] or \[\]",
        ),
        (lambda: k.softmax(torch.randn(2, 64), temperatures=torch.ones(3)), "temperatures is"),
        (lambda: k.moe_align(torch.zeros(2, 2, dtype=torch.int32), 8, 16, torch.zeros(7, dtype=torch.int32)), "expert_map is"),
    ]:
        with pytest.raises(kiln.Error, match=text):
            call()
    assert driver.launches() == before


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda k, x, w: k.gemm(x, w[:, :64].contiguous()), r"b is bf16 \[32, 64\], expected \[rows.*, K = 128\]"),
        (lambda k, x, w: k.gemm(x, w.half()), r"b is f16 \[32, 128\], expected .*bf"),
        (lambda k, x, w: k.gemm(x, w, x[0, :16]), r"bias is bf16 \[16\], expected \[rows = 32\]"),
        (lambda k, x, w: k.gemm(x, w, x[0, :32].float()), r"bias is f32 \[32\], expected .*bf"),
        (lambda k, x, w: k.gemm(x, w, None, x[:, :32].float()), r"residual is f32 \[6, 32\], expected .*bf"),
        (
            lambda k, x, w: k.gemm(x, w, None, x[:, :32].contiguous(), out_dtype=torch.float32),
            r"residual is bf16 \[6, 32\], expected .*f",
        ),
        (
            lambda k, x, w: k.gemm(x, w, None, x[:, :32].contiguous(), gated=True),
            r"residual is bf16 \[6, 32\], expected \[m = 6, N = 16\]",
        ),
        (lambda k, x, w: k.gemm(x, w[:31], gated=True), r"b has 31 rows and gated is true, expected an even number"),
        (lambda k, x, w: k.gemm_batched(x.view(2, 3, 128), w.view(1, 32, 128)), r"b is bf16 \[1, 32, 128\]"),
    ],
)
def test_a_product_refuses_wrong_tensors_by_name(call, text, launching, driver):
    """Holds for a call and while tracing."""
    before = driver.launches()
    for mode in (contextlib.nullcontext(), FakeTensorMode()):
        with mode, pytest.raises(kiln.Error, match=text):
            call(torch.ops.kiln, torch.randn(6, 128).bfloat16(), torch.randn(32, 128).bfloat16())
    assert driver.launches() == before


@pytest.mark.parametrize(
    "scales, a, b, text",
    [
        ("tensor", [6, 1], [32, 1], "expected \\[1\\] with tensor"),
        ("row", [1], [1], "two dimensions with row and block"),
        ("row", [6, 2], [1, 2], "do not suit scales = row: expected \\[6, 1\\] and \\[32, 1\\]"),
        ("block", [1], [1], "two dimensions with row and block"),
        ("block", [6, 1], [32, 1], "do not suit scales = block: .* for m = 6, rows = 32 and K = 256"),
        ("block", [5, 2], [1, 2], r"scale_a is f32 \[5, 2\], expected"),
    ],
)
def test_factors_of_fp8_have_the_shapes_that_scales_names(scales, a, b, text, launching, driver):
    before = driver.launches()
    for mode in (contextlib.nullcontext(), FakeTensorMode()):
        with mode, pytest.raises(kiln.Error, match=text):
            x, w = (torch.randn(rows, 256).to(torch.float8_e4m3fn) for rows in (6, 32))
            torch.ops.kiln.gemm_fp8(x, w, torch.ones(a), torch.ones(b), scales)
    assert driver.launches() == before


def test_small_inputs_that_a_kernel_cannot_read_in_place_are_copied(launching, driver):
    before = driver.launches()
    torch.ops.kiln.rms_norm(torch.randn(2, 64), torch.randn(128)[::2])
    torch.ops.kiln.rope(torch.randn(2, 4, 64), torch.randn(2, 2, 64), torch.arange(4)[::2])
    assert driver.launches() == before + 2


#: good shapes of every tensor of the recurrent operators, and wrong shapes for each tensor
_KEYS, _HEADS, _GATE = [2, 12, 4, 64], [4, 64], {"a_log": [8], "dt_bias": [8]}
RECURRENT = [
    (
        "rwkv7_shift_mix",
        {"x": [2, 12, 256], "mu": [6, 256], "cache": [2, 256]},
        {"x": [[12, 256]], "mu": [[6, 128], [256]], "cache": [[3, 256], [2, 255], [2, 1, 256]]},
    ),
    (
        "rwkv7_kprep",
        {"k": _KEYS, "a": _KEYS, "k_k": _HEADS, "k_a": _HEADS},
        {"k": [[2, 12, 256]], "a": [[2, 11, 4, 64], [2, 12, 256]], "k_k": [[4, 32], [256]], "k_a": [[5, 64]]},
    ),
    (
        "rwkv7_kvprep",
        {"k": _KEYS, "a": _KEYS, "k_k": _HEADS, "k_a": _HEADS, "v": _KEYS, "v_first": _KEYS, "v_rate": _KEYS},
        {
            **{"k": [[2, 12, 256]], "a": [[2, 11, 4, 64]], "k_k": [[4, 32]], "k_a": [[5, 64]]},
            **{"v": [[2, 12, 4, 32]], "v_first": [[2, 11, 4, 64]], "v_rate": [[2, 12, 256]]},
        },
    ),
    (
        "rwkv7_out",
        {"o": _KEYS, "r": _KEYS, "k": _KEYS, "v": _KEYS, "g": _KEYS, "r_k": _HEADS, "norm_weight": _HEADS, "norm_bias": _HEADS},
        {
            "o": [[2, 12, 256]],
            "r": [[2, 12, 4, 32]],
            "k": [[1, 12, 4, 64]],
            "v": [[2, 12, 5, 64]],
            "g": [[2, 13, 4, 64]],
            "r_k": [[64, 4]],
            "norm_weight": [[256]],
            "norm_bias": [[4]],
        },
    ),
    (
        "wkv7_recurrent",
        {"r": _KEYS, "w": _KEYS, "k": _KEYS, "v": [2, 12, 4, 32], "a": _KEYS, "kk": _KEYS, "initial_state": [2, 4, 64, 32]},
        {
            "r": [[2, 12, 256]],
            "w": [[2, 12, 4, 32], [2, 11, 4, 64], [4, 64]],
            "k": [[2, 12, 4, 60]],
            "v": [[2, 12, 5, 32], [2, 11, 4, 32], [1, 12, 4, 32], [2, 12, 32]],
            "a": [[2, 12, 3, 64]],
            "kk": [[1, 12, 4, 64]],
            "initial_state": [[2, 4, 32, 64], [3, 4, 64, 32], [2, 5, 64, 32], [4, 64, 32]],
        },
    ),
    (
        "dplr_chunk",
        {"r": _KEYS, "w": _KEYS, "k": _KEYS, "v": [2, 12, 4, 128], "a": _KEYS, "kk": _KEYS, "initial_state": [2, 4, 64, 128]},
        {
            "r": [[2, 12, 256]],
            "w": [[2, 12, 4, 32], [2, 11, 4, 64], [4, 64]],
            "k": [[2, 12, 4, 128]],
            "v": [[2, 12, 5, 128], [2, 11, 4, 128], [2, 12, 128]],
            "a": [[2, 12, 3, 64]],
            "kk": [[1, 12, 4, 64]],
            "initial_state": [[2, 4, 128, 64], [3, 4, 64, 128], [4, 64, 128]],
        },
    ),
    (
        "delta_recurrent",
        {"q": _KEYS, "k": _KEYS, "v": [2, 12, 8, 32], "beta": [2, 12, 8], "g": [2, 12, 8, 64], "initial_state": [2, 8, 64, 32]}
        | _GATE,
        {
            "q": [[12, 4, 64]],
            "k": [[2, 12, 4, 32]],
            "v": [[2, 11, 8, 32], [1, 12, 8, 32], [2, 12, 256]],
            "beta": [[2, 12, 4], [2, 11, 8], [2, 12, 8, 64], [2, 12]],
            "g": [[2, 12, 8, 32], [2, 12, 4], [2, 12, 4, 64], [24, 8]],
            "initial_state": [[2, 4, 64, 32], [2, 8, 32, 64], [1, 8, 64, 32]],
            "a_log": [[4], [8, 1]],
            "dt_bias": [[4]],
        },
    ),
    *(
        (
            name,
            {"q": _KEYS, "k": _KEYS, "v": [2, 12, 8, 64], "beta": [2, 12, 8], "g": [2, 12, 8], "initial_state": [2, 8, 64, 64]}
            | _GATE,
            {
                "q": [[12, 4, 64]],
                "k": [[2, 12, 4, 32]],
                "v": [[2, 11, 8, 64], [1, 12, 8, 64], [2, 12, 512]],
                "beta": [[2, 12, 4], [2, 11, 8], [2, 12, 8, 64], [2, 12]],
                "g": [[2, 12, 8, 32], [2, 12, 4], [2, 12, 4, 64], [24, 8]],
                "initial_state": [[2, 4, 64, 64], [2, 8, 32, 64], [1, 8, 64, 64]],
                "a_log": [[4], [8, 1]],
                "dt_bias": [[4]],
            },
        )
        for name in ("delta_chunk", "delta_chunk_mma")
    ),
    ("attn_merge", {"v": [6, 3, 4, 64], "s": [6, 3, 4]}, {"v": [[6, 4, 64]], "s": [[6, 4], [6, 3, 5], [5, 3, 4]]}),
]
STATES = ("initial_state", "s", "a_log", "dt_bias")  # f32 here; g and w may be f32


def recurrent_arguments(shapes):
    made = {name: torch.randn(shape, dtype=torch.float32 if name in STATES else torch.bfloat16) for name, shape in shapes.items()}
    return made | ({"norm": True} if "norm_weight" in shapes else {"gate_input": "softplus"} if "a_log" in shapes else {})


@pytest.mark.parametrize(
    "name, good, argument, shape",
    [(name, good, argument, shape) for name, good, wrong in RECURRENT for argument, shapes in wrong.items() for shape in shapes],
)
def test_a_wrong_shape_is_refused_by_the_arguments_name(name, good, argument, shape, launching, driver):
    """Holds for a call and while tracing."""
    before = driver.launches()
    operator, text = getattr(torch.ops.kiln, name), rf"{argument} is \w+ {re.escape(str(shape))}, expected \["
    with pytest.raises(kiln.Error, match=text):
        operator(**recurrent_arguments(good | {argument: shape}))
    with FakeTensorMode(), pytest.raises(kiln.Error, match=text):
        operator(**recurrent_arguments(good | {argument: shape}))
    assert driver.launches() == before


@pytest.mark.parametrize("name, good", [(name, good) for name, good, _ in RECURRENT])
def test_right_shapes_are_launched_and_every_tensor_has_a_wrong_one(name, good, launching, driver):
    before = driver.launches()
    getattr(torch.ops.kiln, name)(**recurrent_arguments(good))
    assert driver.launches() == before + 1
    assert tensors_named(name) - {"b", "cu_seqlens"} == set(good) == set(next(wrong for n, _, wrong in RECURRENT if n == name))


def _step():
    """q, k and v of one token of three sequences, with two heads of 64 x 32."""
    return [torch.randn(3, 1, 2, d).bfloat16() for d in (64, 64, 32)]


def test_recurrent_operators_refuse_what_shapes_do_not_say(launching, driver):
    before, k = driver.launches(), torch.ops.kiln
    good = {name: recurrent_arguments(shapes) for name, shapes, _ in RECURRENT}
    one, ends = {"x": torch.randn(1, 12, 256).bfloat16(), "mu": good["rwkv7_shift_mix"]["mu"]}, torch.tensor([0, 5, 12])
    for call, text in [
        (
            lambda: k.rwkv7_shift_mix(**good["rwkv7_shift_mix"], cu_seqlens=ends),
            r"with cu_seqlens .* expected \[1, tokens, ...\], not a batch of 2",
        ),
        (lambda: k.rwkv7_shift_mix(**one, cu_seqlens=ends.int()), r"cu_seqlens is i32 \[3\], expected i64"),
        (lambda: k.rwkv7_shift_mix(**one, cu_seqlens=ends.view(1, 3)), r"cu_seqlens is i64 \[1, 3\], expected \[ends\]"),
        (
            lambda: k.rwkv7_shift_mix(**one, cache=torch.zeros(3, 256).bfloat16(), cu_seqlens=ends),
            r"cache is bf16 \[3, 256\], expected \[sequences = 2, D = 256\]",
        ),
        (lambda: k.rwkv7_shift_mix(**one, cache=torch.zeros(1, 256)), r"cache is f32 \[1, 256\], expected bf16"),
        (
            lambda: k.rwkv7_out(**good["rwkv7_out"] | {"norm": False}),
            "norm_weight and norm_bias are given, expected norm = true with them",
        ),
        (lambda: k.rwkv7_out(**good["rwkv7_out"] | {"norm_bias": torch.zeros(4, 64)}), "norm_bias is f32"),
        (lambda: k.wkv7_recurrent(**good["wkv7_recurrent"] | {"kk": None}), "b and kk: expected one of them"),
        (lambda: k.dplr_chunk(**good["dplr_chunk"] | {"kk": None}), "b and kk: expected one of them"),
        (
            lambda: k.dplr_chunk_pool(
                *[torch.zeros(3, 1, 2, 64).bfloat16()] * 5,
                torch.zeros(5, 2, 32, 64),
                torch.zeros(3).int(),
                kk=torch.zeros(3, 1, 2, 64).bfloat16(),
            ),
            r"state has rows and columns 32 x 64, expected K x V = 64 x 64",
        ),
        (lambda: k.wkv7_recurrent(**good["wkv7_recurrent"], b=good["wkv7_recurrent"]["kk"]), "b and kk: expected one of them"),
        (
            lambda: k.wkv7_recurrent(**good["wkv7_recurrent"] | {"initial_state": torch.zeros(2, 4, 64, 32).double()}),
            "'STATE': f64 is not allowed",
        ),
        (
            lambda: k.delta_recurrent_pool(*_step(), torch.zeros(5, 2, 32, 64), torch.zeros(3).int()),
            r"state has rows and columns 32 x 64, expected K x V = 64 x 32",
        ),
        (
            lambda: k.delta_recurrent_pool(*_step(), torch.zeros(5, 2, 64, 32), torch.zeros(2).int()),
            "state_indices has 2 entries, expected one for each sequence",
        ),
        (
            lambda: k.delta_recurrent_pool(*_step(), torch.zeros(5, 1, 64, 32), torch.zeros(3).int()),
            r"state is f32 \[5, 1, 64, 32\], expected \[",
        ),
        (
            lambda: k.conv1d_pool(torch.zeros(3, 1, 64), torch.zeros(64, 4), torch.zeros(5, 3, 64), torch.zeros(3).int()),
            r"conv_state has rows and columns 3 x 64, expected D x \(W - 1\) with D = 64 and W = 4",
        ),
        (lambda: k.gated_rms_norm(torch.zeros(3, 2, 64), torch.zeros(3, 2, 64), gate="none"), "expected silu, sigmoid"),
        (
            lambda: k.delta_recurrent(*[good["delta_recurrent"]["q"]] * 2, torch.zeros(2, 12, 6, 32).bfloat16()),
            "v has 6 heads, expected a multiple of the 4",
        ),
        (lambda: k.delta_recurrent(**good["delta_recurrent"] | {"k": torch.zeros(_KEYS)}), "k is f32"),
        (
            lambda: k.delta_chunk_pool(
                *[torch.zeros(3, 1, 2, d).bfloat16() for d in (64, 64, 128)], torch.zeros(5, 2, 128, 64), torch.zeros(3).int()
            ),
            r"state has rows and columns 128 x 64, expected K x V = 64 x 128",
        ),
    ]:
        with pytest.raises(kiln.Error, match=text):
            call()
    assert driver.launches() == before


def test_tensors_are_addresses_whatever_they_are(launching, driver):
    """Views, parameters, subclasses and tensors that require a gradient are addresses. Tensors
    without one are refused.
    """
    kernel = launching.open("rms_norm").get("f32", 64)

    class Mine(torch.Tensor):
        pass

    whole = torch.randn(8, 64)
    x, w, out = whole[2:], torch.nn.Parameter(torch.randn(64)), torch.empty(6, 64).as_subclass(Mine)
    kernel(out, x, w, 6, 64, 64, 1e-6)
    _, values = driver.launch()
    assert [int.from_bytes(v, "little") for v in values[:3]] == [out.data_ptr(), x.data_ptr(), w.data_ptr()]
    assert x.data_ptr() == whole.data_ptr() + 512
    kernel(torch.empty(0, 64), torch.empty(0, 64), w, 0, 64, 64, 1e-6)
    with pytest.raises(Exception, match="meta"):
        kernel(out, torch.empty(6, 64, device="meta"), w, 6, 64, 64, 1e-6)
    with FakeTensorMode():
        fake = torch.empty(6, 64, device="cuda")
    with pytest.raises(kiln.Error, match="has no memory: is it a fake"):
        kernel(fake, x, w, 6, 64, 64, 1e-6)
    _kiln.accept_host_memory(False)
    with pytest.raises(kiln.Error, match="argument 0, a .*Mine, lies in host memory"):
        kernel(out, x, w, 6, 64, 64, 1e-6)


def test_a_traced_call_keeps_its_sizes_while_another_is_traced():
    sizes = []

    def concrete(name, value):  # between the names that a call takes and its outputs
        sizes.append(value)
        if len(sizes) == 1:
            assert shapes(torch.empty(7, 32), torch.empty(32)).shape == (7, 32)

    shapes = Shapes(_generated.descriptions["rms_norm"], concrete)
    with FakeTensorMode():
        assert shapes(torch.empty(3, 64), torch.empty(64)).shape == (3, 64)
    assert sizes == [64, 32]


def test_tracing_takes_a_boolean_for_a_byte_as_a_call_does():
    halves = [torch.empty(4, 2, 64, dtype=torch.float16) for _ in range(3)]
    plan, ends = torch.empty(64, dtype=torch.int32), torch.empty(2, dtype=torch.int32)
    with FakeTensorMode(allow_non_fake_inputs=True):
        for dtype in (torch.uint8, torch.bool):
            mask = torch.empty(16, dtype=dtype)
            assert torch.ops.kiln.attn_prefill(*halves, plan, 1, 64, mask=mask, mask_indptr=ends)[0].shape == (4, 2, 64)


def test_tracing_names_leading_dimensions():
    with FakeTensorMode(), pytest.raises(kiln.Error, match=r"x is f32 \[\], expected \[\.\.\., H\]"):
        torch.ops.kiln.rms_norm(torch.empty(()), torch.empty(64))


FAMILY = (
    """format = 1
[template]
name = "family_twice"
instantiate = "twice<{H}, {ROWS}>"
[param.H]
kind = "int"
range = [1, 4096]
[param.ROWS]
kind = "int"
values = [8, 32]
[family]
by = "rows"
parameter = "ROWS"
[[arg]]
name = "out"
type = "ptr<f32>"
access = "write"
shape = ["rows", "H"]
[[arg]]
name = "x"
type = "ptr<f32>"
shape = ["rows", "H"]
[[arg]]
name = "rows"
type = "i32"
[bind]
call = "x: f32[rows, H]"
out = "out: f32[rows, H]"
[launch]
grid = ["ROWS"]
block = [32]
""",
    "template <int H, int ROWS> __global__ void twice(float* out, const float* x, int rows) {}",
)


def test_the_size_that_picks_a_member_stays_a_symbol():
    with kiln.Service() as service:
        service.add_template(*FAMILY)
        [description] = _operator.describe(service, "family_twice")
    compiled_in = {}
    shapes = Shapes(description, compiled_in.__setitem__)
    with FakeTensorMode():
        assert shapes(torch.empty(9, 64)).shape == (9, 64)
    assert compiled_in == {"H": 64}


def test_tracing_has_every_function_of_expressions():
    """A name that is missing would be an error in compiled and exported models alone."""
    table = (conftest.ROOT / "src/expression/code.hpp").read_text().partition("kFunctions[]")[2]
    names = re.findall(r'\{"(\w+)", Op::', table)
    assert {"min", "max", "clamp", "ceil_div"} <= set(names) <= set(FUNCTIONS)
    for text, value in [
        ("min(7, 3, 5)", 3),
        ("max(7, 3, 9)", 9),
        ("clamp(9, 1, 4)", 4),
        ("clamp(0, 1, 4)", 1),
        ("ceil_div(9, 4)", 3),
        ("round_up(9, 4)", 12),
        ("gcd(12, 18)", 6),
        ("next_pow2(5)", 8),
        ("next_pow2(8)", 8),
        ("next_pow2(0)", 1),
        ("log2(9)", 3),
        ("sizeof(bf16)", 2),
        ("max(1 > 2 ? 1 : 2, 3)", 3),
        ("clamp(5, 0, 1 < 2 ? 1 : 2)", 1),
    ]:
        assert eval(compiled(text), DTYPES | FUNCTIONS) == value, text


def test_the_smaller_of_two_sizes_stays_a_symbol():
    with FakeTensorMode(shape_env=torch.fx.experimental.symbolic_shapes.ShapeEnv()) as mode:
        with torch._subclasses.fake_tensor.unset_fake_temporarily():
            tensor = torch.empty(9, 64)
        rows = mode.from_tensor(tensor, static_shapes=False).shape[0]
    smaller = eval(compiled("min(rows, 5)"), {**FUNCTIONS, "rows": rows})
    assert isinstance(smaller, torch.SymInt) and smaller == 5


def test_a_choice_of_kernels_limits_no_exported_size(launching):
    """Blocks of delta_chunk_mma have 128 columns for large batches, and blocks of moe_gemm share tiles for few tokens."""

    class Rule(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.ops.kiln.delta_chunk_mma(q, k, v)[0]

    class Experts(torch.nn.Module):
        def forward(self, x, w, experts, places, used):
            return torch.ops.kiln.moe_gemm(x, w, experts, places, used, k=2, block=16, gated=True, out_dtype=torch.bfloat16)

    numbers = [torch.zeros(n, dtype=torch.int32) for n in (40, 640, 1)]
    experts = (torch.randn(4, 1024).bfloat16(), torch.randn(8, 1024, 1024).bfloat16(), *numbers)
    for module, arguments, dynamic, least, most in [
        (Rule(), tuple(torch.randn(3, 64, 16, 128).bfloat16() for _ in range(3)), (0, 0, 0), 2, 64),
        (Experts(), experts, (0, None, None, None, None), 2, 16),
    ]:
        size = torch.export.Dim("size", min=least, max=most)
        shapes = tuple({} if d is None else {d: size} for d in dynamic)
        program = torch.export.export(module, arguments, dynamic_shapes=shapes)
        [(_, span)] = program.range_constraints.items()
        assert (span.lower, span.upper) == (least, most)
