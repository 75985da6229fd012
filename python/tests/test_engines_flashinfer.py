"""kiln.engines.flashinfer with the released package: FlashInfer loads kiln's modules, on the fake driver's memory.

FlashInfer itself takes tensors of a CUDA device only, which gpu_engines_ffi.py has. Here its loader finds the modules,
and their functions are called with FlashInfer's arguments.
"""

import ctypes
import importlib.util
import os

import pytest

numpy = pytest.importorskip("numpy")
pytest.importorskip("torch")
pytest.importorskip("tvm_ffi")
if importlib.util.find_spec("flashinfer") is None:
    pytest.skip("flashinfer-python is not installed", allow_module_level=True)

os.environ.setdefault("FLASHINFER_CUDA_ARCH_LIST", "9.0a")  # as on a machine without a GPU
os.environ["FLASHINFER_DISABLE_JIT"] = "1"
os.environ["FLASHINFER_USE_CUDA_NORM"] = "1"

import kiln.engines.flashinfer as adapter
import kiln.ops
import torch
from cuda_tensors import ones, tensor

flashinfer = pytest.importorskip("flashinfer")
from flashinfer.jit import env
from flashinfer.jit.activation import gen_act_and_mul_module
from flashinfer.jit.norm import gen_norm_module


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(env, "FLASHINFER_AOT_DIR", tmp_path)
    return tmp_path


@pytest.fixture
def norm(place, driver):
    adapter.install(place)
    return gen_norm_module().build_and_load()


def eps(driver):
    return ctypes.c_float.from_buffer_copy(driver.launch()[1][6]).value


def pointers(driver):
    return {int.from_bytes(a, "little") for a in driver.launch()[1] if len(a) == 8}


def arrays(*shapes):
    made = [numpy.ones(shape, numpy.float32) for shape in shapes]
    return [one.ctypes.data for one in made], [tensor(one) for one in made]


def test_the_default_place_is_where_flashinfer_looks():
    assert adapter._path("norm", None) == env.FLASHINFER_AOT_DIR / "norm" / "norm.so"


def test_modules_are_installed_explained_and_removed(place):
    assert {row.reason for row in adapter.explain(place).rows if row.operator != "none"} == {
        "not installed: call kiln.engines.flashinfer.install()"
    }
    written = adapter.install(place)
    assert sorted(path.name for path in written) == ["gelu_and_mul.so", "gelu_tanh_and_mul.so", "norm.so", "silu_and_mul.so"]
    running = {row.place for row in adapter.explain(place).running()}
    assert {"norm.rmsnorm", "norm.gemma_fused_add_rmsnorm", "silu_and_mul.silu_and_mul"} < running and len(running) == 9
    assert "kiln has no operator for it: a call raises an error" in str(adapter.explain(place))
    assert adapter.uninstall(place) == written and list(place.iterdir()) == [] and adapter.uninstall(place) == []


@pytest.mark.parametrize("function", ["rmsnorm", "gemma_rmsnorm"])
@pytest.mark.parametrize("value", [1e-5, 1e-6])
def test_norms_keep_every_argument(norm, driver, function, value):
    (out, x, w), tensors = arrays((4, 64), (4, 64), 64)
    getattr(norm, function)(*tensors, value, True)
    assert eps(driver) == pytest.approx(value) and {out, x, w} < pointers(driver)
    gemma = b"Lb0ELb1E" in driver.launch()[0].kernel  # FUSED_ADD, GEMMA
    assert gemma == (function == "gemma_rmsnorm")


@pytest.mark.parametrize("function", ["fused_add_rmsnorm", "gemma_fused_add_rmsnorm"])
def test_fused_norms_write_in_place(norm, driver, function):
    (x, residual, w), tensors = arrays((4, 64), (4, 64), 64)
    getattr(norm, function)(*tensors, 1e-5, False)
    assert eps(driver) == pytest.approx(1e-5) and {x, residual, w} < pointers(driver)
    assert [int.from_bytes(a, "little") for a in driver.launch()[1][:2]] == [x, x]
    assert (b"Lb1ELb1E" in driver.launch()[0].kernel) == (function == "gemma_fused_add_rmsnorm")


def test_quantised_norms_take_e4m3_alone(norm, driver):
    x, w, scale = ones(4, 64), ones(64), ones(1)
    e4m3, e5m2 = (tensor(numpy.ones((4, 64), numpy.uint8), code=code) for code in (10, 12))
    norm.rmsnorm_quant(e4m3, x, w, scale, 1e-5, True)
    norm.fused_add_rmsnorm_quant(e4m3, x, ones(4, 64), w, scale, 1e-5, True)
    before = driver.launches()
    with pytest.raises(ValueError, match="rms_norm: out is e5m2"):
        norm.rmsnorm_quant(e5m2, x, w, scale, 1e-5, True)
    assert driver.launches() == before


@pytest.mark.parametrize("function", [name for name, symbol in adapter._MODULES["norm"].items() if not symbol.operator])
def test_what_kiln_does_not_serve_is_an_error(norm, driver, function):
    before = driver.launches()
    with pytest.raises(RuntimeError, match=f"kiln has no operator for FlashInfer's {function}"):
        getattr(norm, function)(ones(4, 64))
    assert driver.launches() == before


@pytest.mark.parametrize("act, kernel", [("silu", b"ActE0"), ("gelu", b"ActE1"), ("gelu_tanh", b"ActE2")])
def test_activations_run(place, driver, act, kernel):
    adapter.install(place)
    module = gen_act_and_mul_module(act).build_and_load()
    (out, x), tensors = arrays((4, 32), (4, 64))
    getattr(module, f"{act}_and_mul")(*tensors, True)
    assert kernel in driver.launch()[0].kernel and {out, x} < pointers(driver)


def test_an_operator_that_is_off_is_not_installed(place, monkeypatch):
    adapter.install(place)
    monkeypatch.setenv("KILN_ENGINES_OFF", "rms_norm")
    assert [path.name for path in adapter.install(place)] == ["silu_and_mul.so", "gelu_and_mul.so", "gelu_tanh_and_mul.so"]
    assert not (place / "norm").exists()
    reasons = {row.place: row.reason for row in adapter.explain(place).rows}
    assert reasons["norm.fused_add_rmsnorm"] == "KILN_ENGINES_OFF names rms_norm, and a module is written whole or not at all"
    monkeypatch.setenv("KILN_ENGINES_OFF", "all")
    assert adapter.install(place) == []


def test_flashinfers_own_module_stays(place):
    own = place / "norm" / "norm.so"
    own.parent.mkdir()
    own.write_bytes(b"FlashInfer's")
    assert own not in adapter.install(place) and own not in adapter.uninstall(place)
    assert own.read_bytes() == b"FlashInfer's"
    assert adapter.explain(place).rows[0].reason == "FlashInfer's own module is there"


@pytest.mark.parametrize(
    "module, change, reason",
    [
        ("norm", {"rmsnorm": "TensorView input, TensorView out"}, "FlashInfer's rmsnorm has other parameters: TensorView input"),
        ("norm", {"newnorm": ""}, "FlashInfer's module has a function that kiln does not know: newnorm"),
        ("silu_and_mul", {"silu_and_mul": ""}, "FlashInfer's silu_and_mul has other parameters"),
    ],
)
def test_a_release_with_other_functions_is_refused(place, monkeypatch, module, change, reason):
    adapter.install(place)
    declared = adapter._declared
    monkeypatch.setattr(adapter, "_declared", lambda name: declared(name) | (change if name == module else {}))
    assert adapter._path(module, place) not in adapter.install(place) and not (place / module).exists()
    assert reason in next(row.reason for row in adapter.explain(place).rows if row.place.startswith(f"{module}."))


# ---- Trace Apply


def test_norms_are_given_to_trace_apply_only_on_request(monkeypatch):
    assert list(adapter.solutions(["silu_and_mul_h128", "gelu_tanh_and_mul_h64"])) == ["silu_and_mul_h128", "gelu_tanh_and_mul_h64"]
    with pytest.raises(ValueError, match="drops eps for the norms and would serve 1e-6 for any eps"):
        adapter.solutions(["rmsnorm_h4096"])
    assert list(adapter.solutions(["gemma_fused_add_rmsnorm_h64"], eps_is_1e_6=True)) == ["gemma_fused_add_rmsnorm_h64"]
    with pytest.raises(ValueError, match="kiln has no solution for layernorm_h64"):
        adapter.solutions(["layernorm_h64"])
    monkeypatch.setenv("KILN_ENGINES_OFF", "act_and_mul")
    assert adapter.solutions(["silu_and_mul_h128"]) == {}


def test_trace_apply_calls_kiln(monkeypatch):
    """With a recorder for operators: a torch for CUDA knows no stream without a GPU."""
    import flashinfer.trace_apply

    calls = []

    def record(name, width):
        def operator(x, *arguments, **options):
            calls.append((name, len(arguments), options))
            return torch.full((*x.shape[:-1], width), 2.0)

        monkeypatch.setattr(kiln.ops, name, operator, raising=False)

    for name in ("rms_norm", "fused_add_rms_norm", "act_and_mul"):
        record(name, 64)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    names = ["silu_and_mul_h128", "rmsnorm_h64", "fused_add_rmsnorm_h64"]
    flashinfer.trace_apply.enable_apply(adapter.solutions(names, eps_is_1e_6=True))
    try:
        x, w = torch.ones(3, 64), torch.ones(64)
        assert flashinfer.silu_and_mul(torch.ones(3, 128)).shape == (3, 64)
        assert flashinfer.norm.rmsnorm(x, w).eq(2).all()
        flashinfer.norm.fused_add_rmsnorm(x, torch.ones(3, 64), w)
        assert x.eq(2).all()
        assert all(set(of) == {"hit"} for of in flashinfer.trace_apply.stats().values())
    finally:
        flashinfer.trace_apply.disable_apply()
    plain = {"gemma": False}
    assert calls == [("act_and_mul", 1, {}), ("rms_norm", 2, plain), ("fused_add_rms_norm", 3, plain)]
