"""kiln.torch without a GPU: shapes while tracing, launches on the fake driver, and each breakage of the field that must be impossible."""

import ctypes
import gc
import importlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import torch._dynamo.testing  # noqa: E402

import kiln  # noqa: E402
import kiln.torch  # noqa: E402
from kiln import _kiln  # noqa: E402
from kiln.torch import _modes, _registry  # noqa: E402
import recurrent_cases  # noqa: E402
from operator_cases import cases  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

CASES = cases() + recurrent_cases.cases()
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]
TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "templates"


@pytest.fixture(scope="module", autouse=True)
def on_host_memory():
    _registry.implement("CPU")


@pytest.fixture
def launching(driver, host_memory):
    """Operators launch on the fake driver."""
    with kiln.Service() as service:
        kiln.torch.use_service(service)
        yield service
    kiln.torch.use_service(kiln.Service())


def fresh(name):
    """An operator name that no other test has."""
    fresh.count = getattr(fresh, "count", 0) + 1
    return f"kiln_test::{name}_{fresh.count}"


def as_tuple(result):
    return result if isinstance(result, tuple) else () if result is None else (result,)


def described(results):
    return [(tuple(t.shape), t.stride(), t.dtype) for t in as_tuple(results)]


def test_every_shipped_template_has_an_operator():
    shipped = {file.stem for file in TEMPLATES.glob("*.toml") if not file.stem.startswith("kiln_")}
    assert {t.name for t in _registry._launched} >= shipped


def test_every_operator_has_a_case():
    assert {f"kiln::{name}" for name, _ in CASES} == {name for name in _registry._operators if name.startswith("kiln::")}


@pytest.mark.parametrize("name, make", CASES, ids=IDS)
def test_tracing_gives_the_shapes_of_a_call_and_touches_neither_driver_nor_cache(name, make, launching, driver):
    operator = getattr(torch.ops.kiln, name)
    calls = driver.calls()
    with FakeTensorMode():
        arguments, named = make("cuda")
        results = operator(*arguments, **named)
    assert driver.calls() == calls and not any(launching.stats().values())
    assert all(t.device.type == "cuda" for t in as_tuple(results))
    arguments, named = make("cpu")
    assert described(operator(*arguments, **named)) == described(results)


def written_by(name, driver):
    """Addresses that the last launch, one of this operator, may write to, as its template's manifest has it."""
    tomllib = pytest.importorskip("tomllib")
    template = next(t.name for t in _registry._launched if t.operator == f"kiln::{name}")
    declared = tomllib.loads((TEMPLATES / f"{template}.toml").read_text())["arg"]
    _, values = driver.launch()
    assert len(values) == len(declared)
    return {int.from_bytes(v, "little") for v, d in zip(values, declared) if d.get("access", "read") != "read"} - {0}


@pytest.mark.parametrize("name, make", CASES, ids=IDS)
def test_one_call_is_one_launch_that_writes_results_and_what_the_schema_declares(name, make, launching, driver):
    operator = getattr(torch.ops.kiln, name)
    arguments, named = make("cpu")
    before = driver.launches()
    results = as_tuple(operator(*arguments, **named))
    assert driver.launches() == before + 1
    mutated = {a.data_ptr() for a, d in zip(arguments, operator.default._schema.arguments) if d.alias_info and d.alias_info.is_write}
    assert written_by(name, driver) == mutated | {t.data_ptr() for t in results}


@pytest.mark.parametrize("name, make", CASES, ids=IDS)
def test_opcheck(name, make, launching, monkeypatch):
    arguments, named = make("cpu")
    tests = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if any(torch.is_tensor(a) and a.dtype == torch.float8_e4m3fn for a in arguments):
        tests.remove("test_schema")  # it computes with its arguments, and torch has no fp8 arithmetic on the CPU
    kiln.torch.specialize(True)  # its dynamic check makes every size symbolic
    # What a kernel would write is zero: the fake driver writes nothing, and results are compared.
    for owner, attribute in ((torch.Tensor, "new_empty"), (torch, "empty"), (torch, "empty_like")):
        def zeroed(*a, _make=getattr(owner, attribute), **k):
            out = _make(*a, **k)
            return out.zero_() if type(out) is torch.Tensor else out

        monkeypatch.setattr(owner, attribute, zeroed)
    try:
        torch.library.opcheck(getattr(torch.ops.kiln, name).default, arguments, named, test_utils=tests)
    finally:
        kiln.torch.specialize(False)


def test_tracing_makes_no_service():
    """In a process of its own: nobody else's service is there to be looked at."""
    program = """
import torch, kiln.torch
from kiln.torch import _modes
from torch._subclasses import FakeTensorMode
with FakeTensorMode():
    torch.ops.kiln.rms_norm(torch.empty(4, 64, device="cuda"), torch.empty(64, device="cuda"))
print(_modes.state.service)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "KILN_LIBCUDA": "/nonexistent/libcuda.so"}
    assert subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True).stdout == "None\n"


# ---- compiled


@pytest.fixture
def computing(launching, driver):
    """The fake driver computes rms_norm in f32 with H = 64, so that results can be compared."""
    from conftest import FakeLaunch

    def array(address, *shape):
        size = 1
        for s in shape:
            size *= s
        return torch.frombuffer((ctypes.c_float * size).from_address(address), dtype=torch.float32).view(*shape)

    @ctypes.CFUNCTYPE(None, ctypes.POINTER(FakeLaunch), ctypes.c_void_p)
    def compute(launch, _):
        launch = launch.contents
        if b"rms_norm" not in launch.kernel:
            return
        value = [ctypes.string_at(launch.arguments[i], launch.argument_sizes[i]) for i in range(10)]
        out, x, w, residual = (int.from_bytes(value[i], "little") for i in (0, 1, 2, 7))
        rows, eps = int.from_bytes(value[3], "little"), ctypes.c_float.from_buffer_copy(value[6]).value
        v = array(x, rows, 64)
        if residual:
            array(residual, rows, 64).add_(v)
            v = array(residual, rows, 64)
        array(out, rows, 64).copy_(plain_norm(v, array(w, 64), eps))

    driver.library.kiln_fake_on_launch(compute, None)
    yield
    driver.library.kiln_fake_on_launch(None, None)


def plain_norm(x, w, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


class Layer(torch.nn.Module):
    """A residual stream: what an operator that mutates does in a compiled model."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(64), requires_grad=False)
        self.linear = torch.nn.Linear(64, 64, bias=False).requires_grad_(False)

    def forward(self, x, residual):
        x = torch.ops.kiln.fused_add_rms_norm(x, residual, self.weight)
        x = self.linear(x)
        return torch.ops.kiln.rms_norm(x, self.weight) + residual, residual

    def plain(self, x, residual):
        residual = residual + x
        x = self.linear(plain_norm(residual, self.weight))
        return plain_norm(x, self.weight) + residual, residual


@pytest.mark.parametrize("options", [{}, {"dynamic": True}], ids=["static", "dynamic"])
def test_a_compiled_model_gives_what_plain_torch_gives(options, computing):
    torch._dynamo.reset()
    layer = Layer()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, backend=counter, fullgraph=True, **options)
    for rows in (4, 7, 7, 19):
        x, residual = torch.randn(rows, 64), torch.randn(rows, 64)
        expected = layer.plain(x, residual.clone())
        got, after = compiled(x, residual)
        torch.testing.assert_close(got, expected[0])
        torch.testing.assert_close(after, expected[1])
        torch.testing.assert_close(residual, expected[1])  # the mutation reached the caller's tensor
    assert counter.frame_count == (1 if options else 2)  # static: once more when the rows were seen to change


def test_inductor_keeps_the_mutation_and_the_order(computing):
    torch._dynamo.reset()
    layer = Layer()

    def only_operators(x, residual):
        y = torch.ops.kiln.fused_add_rms_norm(x, residual, layer.weight)
        return torch.ops.kiln.fused_add_rms_norm(y, residual, layer.weight)

    x, residual = torch.randn(4, 64), torch.randn(4, 64)
    first = plain_norm(residual + x, layer.weight)
    second = residual + x + first
    got = torch.compile(only_operators, fullgraph=True)(x, residual)
    torch.testing.assert_close(got, plain_norm(second, layer.weight))
    torch.testing.assert_close(residual, second)


def test_an_exported_model_gives_what_plain_torch_gives(computing):
    layer = Layer()
    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(layer, (torch.randn(4, 64), torch.randn(4, 64)), dynamic_shapes={"x": {0: rows}, "residual": {0: rows}})
    assert "kiln.fused_add_rms_norm" in str(exported.graph)
    x, residual = torch.randn(9, 64), torch.randn(9, 64)
    expected = layer.plain(x, residual.clone())[0]
    torch.testing.assert_close(exported.module()(x, residual)[0], expected)


def test_no_graph_break_in_any_operator(launching):
    for name, make in CASES:
        torch._dynamo.reset()
        arguments, named = make("cpu")
        explained = torch._dynamo.explain(lambda *a: getattr(torch.ops.kiln, name)(*a, **named))(*arguments)
        assert (explained.graph_count, explained.graph_break_count) == (1, 0), name


# ---- breakages


def test_a_parameter_that_would_be_symbolic_is_a_clear_error(launching):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.ops.kiln.act_and_mul(x), backend="aot_eager", fullgraph=True, dynamic=True)
    with pytest.raises(Exception, match=r"kiln::act_and_mul: parameter D of template act_and_mul would be the symbolic size") as caught:
        compiled(torch.randn(6, 256))
    assert "mark_static" in str(caught.value)
    torch._dynamo.reset()
    x = torch.randn(6, 256)
    torch._dynamo.mark_static(x, 1)
    compiled(x)
    torch._dynamo.reset()
    kiln.torch.specialize(True)
    try:
        compiled(torch.randn(6, 256))
    finally:
        kiln.torch.specialize(False)


def test_a_size_without_a_value_is_an_error_in_a_parameter_and_none_in_an_argument(launching):
    torch._dynamo.reset()
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        weight = torch.randn(64)

        def rows(x, flags):
            return torch.ops.kiln.rms_norm(x[torch.nonzero(flags)[:, 0]], weight)

        compiled = torch.compile(rows, backend="aot_eager", fullgraph=True)
        assert compiled(torch.randn(6, 64), torch.tensor([1, 0, 1, 1, 0, 0])).shape == (3, 64)

        def columns(x, flags):
            return torch.ops.kiln.softmax(x[:, torch.nonzero(flags)[:, 0]].contiguous())

        for choice in (False, True):  # no guard can be made on what has no value
            kiln.torch.specialize(choice)
            torch._dynamo.reset()
            with pytest.raises(Exception, match="parameter H of template softmax would be the symbolic size"):
                torch.compile(columns, backend="aot_eager", fullgraph=True)(torch.randn(6, 6), torch.tensor([1, 0, 1, 1, 0, 0]))
    finally:
        kiln.torch.specialize(False)
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_an_operator_stays_when_everybody_forgets_it(launching, driver):
    name = fresh("forgotten")

    def make():
        @kiln.torch.operator(name, "rms_norm", parameters="T H")
        def norm(launch, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            launch((x.dtype, x.shape[1]), out, x, weight, x.shape[0], x.stride(0), out.stride(0), 1e-6)
            return out

    make()
    gc.collect()
    before = driver.launches()
    getattr(torch.ops.kiln_test, name.split("::")[1])
    with torch.library._scoped_library("kiln_test", "FRAGMENT"):
        pass
    known = _registry._operators[name]
    known.library.impl(name.split("::")[1], known.real, "CPU")
    getattr(torch.ops.kiln_test, name.split("::")[1])(torch.randn(2, 64), torch.randn(64))
    assert driver.launches() == before + 1


def test_importing_again_registers_nothing_twice(launching):
    for name in [n for n in sys.modules if n == "kiln.torch" or n.startswith("kiln.torch.")]:
        del sys.modules[name]
    before = dict(_registry._operators)
    again = importlib.import_module("kiln.torch")
    assert again is not _modes and sys.modules["kiln.torch._registry"]._operators == before
    assert again.rms_norm is before["kiln::rms_norm"].overload and again.service() is launching
    again.rms_norm(torch.randn(4, 64), torch.randn(64))


def test_a_changed_body_replaces_and_a_changed_schema_is_refused(launching):
    name = fresh("changed")

    def register(width, annotation):
        def body(launch, x: torch.Tensor, by: int = 1) -> torch.Tensor:
            return x.new_empty(width)

        body.__annotations__["by"] = annotation
        return kiln.torch.operator(name, "rms_norm", parameters="T H")(body)

    register(3, int)
    operator = register(5, int)
    with FakeTensorMode():
        assert operator(torch.empty(1, device="cuda")).shape == (5,)
    with pytest.raises(kiln.Error, match="registered already"):
        register(5, float)


def test_the_same_kernel_is_looked_up_and_not_asked_for_again(launching, monkeypatch):
    x, w = torch.randn(4, 64), torch.randn(64)
    torch.ops.kiln.rms_norm(x, w)
    monkeypatch.setattr(_modes, "kernel", lambda *a: pytest.fail("asked for again"))
    for rows in (1, 4, 9):
        torch.ops.kiln.rms_norm(torch.randn(rows, 64), w)
    with pytest.raises(BaseException, match="asked for again"):
        torch.ops.kiln.rms_norm(torch.randn(4, 128), torch.randn(128))


def test_wrong_tensors_are_refused_before_anything_is_launched(launching, driver):
    before = driver.launches()
    k = torch.ops.kiln
    for call, text in [
        (lambda: k.rms_norm(torch.randn(2, 64), torch.randn(32)), "rows of 64 elements, weight has 32"),
        (lambda: k.rms_norm(torch.randn(2, 64), torch.randn(64).half()), "weight is torch.float16"),
        (lambda: k.fused_add_rms_norm(torch.randn(2, 64), torch.randn(3, 64), torch.randn(64)), "residual is"),
        (lambda: k.act_and_mul(torch.randn(2, 63)), "halves"),
        (lambda: k.act_and_mul(torch.randn(2, 64), "tanh"), "tanh"),
        (lambda: k.rope(torch.randn(2, 4, 64), torch.randn(3, 2, 64), torch.arange(2)), r"k is \[3, 2, 64\], expected \[2, heads, 64\] like q"),
        (lambda: k.rope(torch.randn(2, 4, 64), torch.randn(2, 2, 64), torch.arange(4)[::2]), "positions must be contiguous"),
        (lambda: k.rms_norm(torch.randn(2, 64), torch.randn(128)[::2]), "weight must be contiguous"),
        (lambda: k.rms_norm(torch.randn(2, 64), torch.randn(64), scale=torch.ones(0)), r"scale is \[0\], expected one element"),
        (lambda: k.softmax(torch.randn(2, 64), temperatures=torch.ones(3)), "temperatures is"),
        (lambda: k.moe_align(torch.zeros(2, 2, dtype=torch.int32), 8, 16, torch.zeros(7, dtype=torch.int32)), "expert_map is"),
    ]:
        with pytest.raises(kiln.Error, match=text):
            call()
    assert driver.launches() == before


#: good shapes of every tensor of the recurrent operators, and for each the wrong ones
_KEYS, _HEADS = [2, 12, 4, 64], [4, 64]
RECURRENT = [
    ("rwkv7_shift_mix", {"x": [2, 12, 256], "mu": [6, 256], "cache": [2, 256]},
     {"x": [[12, 256]], "mu": [[6, 128], [256]], "cache": [[3, 256], [2, 255], [2, 1, 256]]}),
    ("rwkv7_kprep", {"k": _KEYS, "a": _KEYS, "k_k": _HEADS, "k_a": _HEADS},
     {"k": [[2, 12, 256]], "a": [[2, 11, 4, 64], [2, 12, 256]], "k_k": [[4, 32], [256]], "k_a": [[5, 64]]}),
    ("rwkv7_out", {"o": _KEYS, "r": _KEYS, "k": _KEYS, "v": _KEYS, "g": _KEYS, "r_k": _HEADS, "norm_weight": _HEADS, "norm_bias": _HEADS},
     {"o": [[2, 12, 256]], "r": [[2, 12, 4, 32]], "k": [[1, 12, 4, 64]], "v": [[2, 12, 5, 64]], "g": [[2, 13, 4, 64]], "r_k": [[64, 4]],
      "norm_weight": [[256]], "norm_bias": [[4]]}),
    ("wkv7_recurrent", {"r": _KEYS, "w": _KEYS, "k": _KEYS, "v": [2, 12, 4, 32], "a": _KEYS, "kk": _KEYS, "initial_state": [2, 4, 64, 32]},
     {"r": [[2, 12, 256]], "w": [[2, 12, 4, 32], [2, 11, 4, 64], [4, 64]], "k": [[2, 12, 4, 60]], "v": [[2, 12, 5, 32], [2, 11, 4, 32], [1, 12, 4, 32], [2, 12, 32]],
      "a": [[2, 12, 3, 64]], "kk": [[1, 12, 4, 64]], "initial_state": [[2, 4, 32, 64], [3, 4, 64, 32], [2, 5, 64, 32], [4, 64, 32]]}),
    ("delta_recurrent", {"q": _KEYS, "k": _KEYS, "v": [2, 12, 8, 32], "beta": [2, 12, 8], "g": [2, 12, 8, 64], "initial_state": [2, 8, 64, 32]},
     {"q": [[12, 4, 64]], "k": [[2, 12, 4, 32]], "v": [[2, 11, 8, 32], [1, 12, 8, 32], [2, 12, 256]],
      "beta": [[2, 12, 4], [2, 11, 8], [2, 12, 8, 64], [2, 12]], "g": [[2, 12, 8, 32], [2, 12, 4], [2, 12, 4, 64], [24, 8]],
      "initial_state": [[2, 4, 64, 32], [2, 8, 32, 64], [1, 8, 64, 32]]}),
    ("attn_merge", {"v": [6, 3, 4, 64], "s": [6, 3, 4]}, {"v": [[6, 4, 64]], "s": [[6, 4], [6, 3, 5], [5, 3, 4]]}),
]
STATES = ("initial_state", "s")  # f32; g and w may be, too


def recurrent_arguments(shapes):
    made = {name: torch.randn(shape, dtype=torch.float32 if name in STATES else torch.bfloat16) for name, shape in shapes.items()}
    return made | ({"norm": True} if "norm_weight" in shapes else {})


@pytest.mark.parametrize("name, good, argument, shape", [(name, good, argument, shape) for name, good, wrong in RECURRENT for argument, shapes in wrong.items()
                                                         for shape in shapes])
def test_a_wrong_shape_is_refused_by_the_arguments_name(name, good, argument, shape, launching, driver):
    """As a call and while tracing."""
    before = driver.launches()
    operator, text = getattr(torch.ops.kiln, name), re.escape(f"{argument} is {shape}, expected [")
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
    tensors = {a.name for a in getattr(torch.ops.kiln, name).default._schema.arguments if "Tensor" in str(a.type)}
    assert tensors - {"b", "cu_seqlens"} == set(good) == set(next(wrong for n, _, wrong in RECURRENT if n == name))


def test_recurrent_operators_refuse_what_shapes_do_not_say(launching, driver):
    before, k = driver.launches(), torch.ops.kiln
    good = {name: recurrent_arguments(shapes) for name, shapes, _ in RECURRENT}
    one, ends = {"x": torch.randn(1, 12, 256).bfloat16(), "mu": good["rwkv7_shift_mix"]["mu"]}, torch.tensor([0, 5, 12])
    for call, text in [
        (lambda: k.rwkv7_shift_mix(**good["rwkv7_shift_mix"], cu_seqlens=ends), r"x is \[2, 12, 256\]: with cu_seqlens all sequences lie behind each other"),
        (lambda: k.rwkv7_shift_mix(**one, cu_seqlens=ends.int()), "cu_seqlens is torch.int32, expected torch.int64"),
        (lambda: k.rwkv7_shift_mix(**one, cu_seqlens=ends.view(1, 3)), r"cu_seqlens is \[1, 3\], expected \[sequences \+ 1\]"),
        (lambda: k.rwkv7_shift_mix(**one, cu_seqlens=torch.arange(6)[::2]), "cu_seqlens must be contiguous"),
        (lambda: k.rwkv7_shift_mix(**one, cache=torch.zeros(3, 256).bfloat16(), cu_seqlens=ends), r"cache is \[3, 256\], expected \[2, 256\]"),
        (lambda: k.rwkv7_shift_mix(**one, cache=torch.zeros(1, 256)), "cache is torch.float32, expected torch.bfloat16"),
        (lambda: k.rwkv7_out(**good["rwkv7_out"] | {"norm": False}), "norm_weight and norm_bias are given, expected norm = True"),
        (lambda: k.rwkv7_out(**good["rwkv7_out"] | {"norm_bias": torch.zeros(4, 64)}), "norm_bias is torch.float32"),
        (lambda: k.wkv7_recurrent(**good["wkv7_recurrent"] | {"kk": None}), "neither b nor kk is given"),
        (lambda: k.wkv7_recurrent(**good["wkv7_recurrent"], b=good["wkv7_recurrent"]["kk"]), "b and kk are both given"),
        (lambda: k.wkv7_recurrent(**good["wkv7_recurrent"] | {"initial_state": torch.zeros(2, 4, 64, 32).bfloat16()}), "initial_state is torch.bfloat16"),
        (lambda: k.delta_recurrent(**good["delta_recurrent"] | {"v": torch.zeros(2, 12, 6, 32).bfloat16()}), "v has 6 heads, expected a multiple of the 4"),
        (lambda: k.delta_recurrent(**good["delta_recurrent"] | {"k": torch.zeros(_KEYS)}), "k is torch.float32"),
    ]:
        with pytest.raises(kiln.Error, match=text):
            call()
    assert driver.launches() == before


def test_tensors_are_addresses_whatever_they_are(launching, driver):
    """Views, parameters, subclasses, tensors that want a gradient; and what has no address is refused."""
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


# ---- modes


def sealed_service():
    service = kiln.Service(mode="sealed")
    kiln.torch.use_service(service)
    service.prepare([{"template": "rms_norm", "T": "f32", "H": 64}])
    service.seal()
    return service


def test_sealed_launches_what_is_ready_and_names_what_is_not(launching, driver):
    with sealed_service() as service:
        torch.ops.kiln.rms_norm(torch.randn(2, 64), torch.randn(64))
        with pytest.raises(kiln.NotReady, match="rms_norm"):
            torch.ops.kiln.rms_norm(torch.randn(2, 152), torch.randn(152))
        assert service.stats()["compiles"] <= 1 and 'H = "152"' in service.missing()


def test_one_operator_may_compile_after_the_seal(launching):
    with sealed_service():
        kiln.torch.set_mode("rms_norm", "jit")
        try:
            torch.ops.kiln.rms_norm(torch.randn(2, 160), torch.randn(160))
        finally:
            kiln.torch.set_mode("rms_norm", None)
        kiln.torch.set_mode("kiln::rms_norm", "warn")
        try:
            with pytest.warns(UserWarning, match="kiln::rms_norm: rms_norm .* after the seal"):
                torch.ops.kiln.rms_norm(torch.randn(2, 168), torch.randn(168))
        finally:
            kiln.torch.set_mode("rms_norm", None)


def test_one_operator_may_be_sealed_alone(launching):
    kiln.torch.set_mode("rms_norm", "sealed")
    try:
        compiles = launching.stats()["compiles"]
        with pytest.raises(kiln.NotReady, match="kiln::rms_norm is sealed"):
            torch.ops.kiln.rms_norm(torch.randn(2, 176), torch.randn(176))
        assert launching.stats()["compiles"] == compiles
        torch.ops.kiln.softmax(torch.randn(2, 176))
    finally:
        kiln.torch.set_mode("rms_norm", None)
    torch.ops.kiln.rms_norm(torch.randn(2, 176), torch.randn(176))
    with pytest.raises(ValueError, match="jit, warn, sealed"):
        kiln.torch.set_mode("rms_norm", "off")


def test_the_environment_sets_modes_of_single_operators():
    program = "import kiln.torch as k; k.service(); print(k._modes.mode_of('kiln::rms_norm'), k._modes.mode_of('mine::x'), k._modes.mode_of('kiln::rope'))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def run(value):
        return subprocess.run([sys.executable, "-c", program], env=environment | {"KILN_TORCH_MODES": value}, capture_output=True, text=True)

    good = run("rms_norm=sealed, mine::x=jit")
    assert good.stdout == "sealed jit None\n" and "KILN_TORCH_MODES" not in good.stderr  # the library knows that it is not its own
    assert "expected OPERATOR=MODE" in run("rms_norm").stderr
