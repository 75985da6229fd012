"""kiln.tvm_ffi with the released package: functions and modules, on the fake driver's memory."""

import ctypes
import pathlib
import subprocess
import sys
import threading

import kiln
import kiln.tvm_ffi
import pytest
from kiln import _tvm_module

numpy = pytest.importorskip("numpy")
tvm_ffi = pytest.importorskip("tvm_ffi")

from cuda_tensors import Allocator, ones, tensor

ROOT = pathlib.Path(__file__).resolve().parents[2]
X, W = ones(4, 64), ones(64)


@pytest.fixture(autouse=True)
def launching(driver):
    with kiln.Service() as service:
        kiln.use_service(service)
        yield service
    kiln.use_service(kiln.Service())


@pytest.fixture(params=["function", "module"])
def make(request, tmp_path):
    """make(name, arguments, **constants): the function, of this process's service or of an exported module."""

    def module(name, arguments=None, **constants):
        text = kiln.tvm_ffi.signature(name, arguments, constants)
        return tvm_ffi.load_module(str(kiln.tvm_ffi.export(tmp_path, {"f": text}))).f

    return kiln.tvm_ffi.function if request.param == "function" else module


def pointers(driver, count=3):
    return [int.from_bytes(a, "little") for a in driver.launch()[1][:count]]


def number(driver, index=6):
    return ctypes.c_float.from_buffer_copy(driver.launch()[1][index]).value


def arrays(*shapes):
    """Arrays of numpy, and tensors over their memory."""
    made = [numpy.ones(shape, numpy.float32) for shape in shapes]
    return [one.ctypes.data for one in made], [tensor(one) for one in made]


def test_inputs_then_outputs_are_the_arguments(driver, make):
    (out, x, w), (to, x_tensor, w_tensor) = arrays((4, 64), (4, 64), 64)
    assert make("rms_norm")(x_tensor, w_tensor, 0.5, None, None, None, to) is None
    assert pointers(driver) == [out, x, w] and number(driver) == 0.5


def test_arguments_may_have_an_order_of_their_own(driver, make):
    (x, residual, w), tensors = arrays((4, 64), (4, 64), 64)
    function = make("fused_add_rms_norm", [("x", "out"), "residual", "weight", "eps", None], gemma=True, out_dtype="f32")
    function(*tensors, 0.25, False)
    assert pointers(driver, 2) == [x, x] and {residual, w} <= set(pointers(driver, 9))


@pytest.mark.parametrize("value", [2, 2.0, True])
def test_integers_and_booleans_are_numbers(driver, make, value):
    make("rms_norm", ["x", "weight", "eps", "out"])(X, W, value, ones(4, 64))
    assert number(driver) == float(value)


@pytest.mark.parametrize("text, kernel", [("gelu", b"ActE1"), ("gelu_tanh", b"ActE2")])  # 7 bytes are a small text
def test_texts_are_choices(driver, make, text, kernel):
    make("act_and_mul", ["x", "act", "out"])(ones(4, 64), text, ones(4, 32))
    assert kernel in driver.launch()[0].kernel


@pytest.mark.parametrize("dtype", ["e4m3", tvm_ffi.dtype("float8_e4m3fn")])
def test_dtypes_are_texts_or_dtypes(driver, make, dtype):
    out = tensor(numpy.ones((4, 64), numpy.uint8), code=10)
    make("fp8_quant", ["x", "scale", "dtype", "out"])(X, ones(1), dtype, out)
    assert b"fp8" in driver.launch()[0].kernel


def test_arrays_are_lists_of_numbers(driver, make):
    q, k, positions = ones(4, 2, 64), ones(4, 2, 64), tensor(numpy.arange(4))
    function = make("rope_", ["q", "k", "positions", "rotary_dim", "llama31"])
    function(q, k, positions, 64, (8.0, 1, 4.0))
    with pytest.raises(ValueError, match="llama31"):
        function(q, k, positions, 64, (8.0, 1))


def test_outputs_come_from_the_callers_allocator(driver, make):
    function = make("rms_norm")
    with Allocator() as allocator:
        out = function(X, W)
    assert allocator.shapes == [(4, 64)]
    assert tuple(out.shape) == (4, 64) and str(out.device) == "cuda:0" and str(out.dtype) == "float32"


def test_several_outputs_are_an_array_and_may_have_strides(driver, make):
    with Allocator() as allocator:
        values, scales = make("fp8_quant_group", ["x", "column_major"])(ones(6, 256), True)
    assert tuple(values.shape) == (6, 256) and tuple(scales.shape) == (6, 2) and tuple(scales.strides) == (1, 8)
    assert allocator.shapes == [(6, 256), (14,)]


def test_a_missing_output_without_an_allocator_is_an_error(make, driver):
    before = driver.launches()
    with pytest.raises(RuntimeError, match="allocator"):
        make("rms_norm")(X, W)
    assert driver.launches() == before


def wrong(text, error, *arguments):
    return pytest.param(arguments, error, text, id=text[:40])


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        wrong(r"rms_norm: weight is f32 \[63\], expected \[H = 64\]", ValueError, X, ones(63)),
        wrong("rms_norm: weight is a text, expected a tensor", ValueError, X, "a"),
        wrong("rms_norm: weight is not given", ValueError, X),
        wrong("rms_norm: no argument is a tensor on a CUDA device", ValueError, numpy.ones((4, 64), numpy.float32)),
        wrong("rms_norm takes at most 7 arguments, and 8 were given", TypeError, *[X] * 8),
        wrong("out_dtype = 'bf17' is not allowed; did you mean 'bf16'", ValueError, X, W, 1e-5, None, "bf17"),
        wrong("rms_norm: eps is a value of tvm-ffi's type", TypeError, X, W, lambda: 1),
        wrong("rms_norm: weight lies on the host", ValueError, X, numpy.ones(64, numpy.float32)),
        wrong(
            "x has a layout .* make it contiguous", ValueError, ones(4, 2, 64, strides=(192, 64, 2)), W, *[None] * 4, ones(4, 2, 64)
        ),
    ],
)
def test_wrong_arguments_are_refused_with_kilns_message(driver, make, arguments, error, text):
    before = driver.launches()
    with pytest.raises(error, match=text):
        make("rms_norm")(*arguments)
    assert driver.launches() == before


def test_the_stream_is_that_of_the_caller(driver, make):
    stream, function = driver.stream(), make("rms_norm")
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), stream):
        function(X, W, 1e-5, None, None, None, ones(4, 64))
        assert driver.launch()[0].stream == stream
    function(X, W, 1e-5, None, None, None, ones(4, 64))
    assert not driver.launch()[0].stream


def test_a_thread_without_a_context_gets_the_devices_primary_one(driver, make):
    function, out = make("rms_norm"), ones(4, 64)
    before, errors = driver.launches(), []

    def work():
        try:
            for _ in range(2):
                function(X, W, 1e-5, None, None, None, out)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == [] and driver.launches() == before + 2


def test_another_service_is_used_from_the_next_call_on(driver, launching):
    function = kiln.tvm_ffi.function("rms_norm", ["x", "weight", "out"])
    function(X, W, ones(4, 64))
    with kiln.Service() as other:
        kiln.use_service(other)
        function(X, W, ones(4, 64))
        assert other.stats()["loads"] == 1
    function(X, W, ones(4, 64))  # a closed service is replaced
    assert kiln.service().stats()["loads"] == 1 and kiln.service() is not launching


def test_a_service_closes_while_threads_call(driver, launching):
    """close() waits for calls under way, and later calls go to a new service."""
    function, out, stop = kiln.tvm_ffi.function("rms_norm", ["x", "weight", "out"]), ones(4, 64), threading.Event()
    function(X, W, out)
    errors = []

    def work():
        while not stop.is_set():
            try:
                function(X, W, out)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        kiln.service().close()
    stop.set()
    for thread in threads:
        thread.join()
    assert [e for e in errors if "closed" not in str(e)] == []


def test_names_that_are_no_operands_and_unknown_operators_are_errors():
    with pytest.raises(ValueError, match=r"rms_norm has no operand 'input'; operands: x weight eps"):
        kiln.tvm_ffi.function("rms_norm", ["out", "input"])
    with pytest.raises(ValueError, match="no operand 'gamma'"):
        kiln.tvm_ffi.function("rms_norm", gamma=True)
    with pytest.raises(kiln.Error, match="did you mean 'rms_norm'"):
        kiln.tvm_ffi.function("rms_nrom")


# ---- modules


def symbols(path):
    out = subprocess.run(["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout
    return sorted(line.split()[-1] for line in out.splitlines() if "__tvm_ffi_" in line)


def test_a_module_has_the_functions_that_were_asked_for(tmp_path):
    path = kiln.tvm_ffi.export(tmp_path, ["rms_norm", "act_and_mul.act_and_mul_group_fp8"], name="two")
    assert path == tmp_path / "two.so"
    assert symbols(path) == ["__tvm_ffi_act_and_mul_group_fp8", "__tvm_ffi_rms_norm"]
    library = ctypes.CDLL(str(path))
    assert library.__tvm_ffi_rms_norm and not hasattr(library, "__tvm_ffi_kiln_slot_47")
    with pytest.raises(AttributeError, match="no function"):
        tvm_ffi.load_module(str(path)).softmax  # noqa: B018


def test_a_module_has_all_slots_and_no_more(tmp_path):
    names = [f"f{i:02}" for i in range(48)]
    path = kiln.tvm_ffi.export(tmp_path, {name: f"!error of {name}" for name in names})
    assert symbols(path) == [f"__tvm_ffi_{name}" for name in names]
    module = tvm_ffi.load_module(str(path))
    for name in names:
        with pytest.raises(RuntimeError, match=f"error of {name}"):
            getattr(module, name)()
    with pytest.raises(ValueError, match="49 functions: a module has at most 48"):
        kiln.tvm_ffi.export(tmp_path, {str(i): "!" for i in range(49)})


@pytest.mark.parametrize("name, signature, text", [("f" * 99, "!", "the name fff"), ("f", "!" + "a" * 600, "the signature of f")])
def test_what_does_not_fit_is_refused(tmp_path, name, signature, text):
    with pytest.raises(ValueError, match=f"{text}.* has [0-9]+ bytes, expected at most"):
        kiln.tvm_ffi.export(tmp_path, {name: signature})
    assert list(tmp_path.iterdir()) == []


def test_a_plans_operators_are_exported_with_the_plan(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[[prewarm]]\ntemplate = "rms_norm"\nT = "bf16"\nH = 4096\n[[prewarm]]\ntemplate = "softmax"\nT = "f32"\nW = 8\n'
    )
    path = kiln.tvm_ffi.export(tmp_path / "out", plan)
    assert symbols(path) == ["__tvm_ffi_fused_add_rms_norm", "__tvm_ffi_rms_norm", "__tvm_ffi_softmax"]
    assert path.with_suffix(".toml").read_text() == plan.read_text()


def test_an_export_replaces_the_file_and_not_what_is_loaded(tmp_path, driver):
    path = kiln.tvm_ffi.export(tmp_path, ["rms_norm"])
    loaded = tvm_ffi.load_module(str(path)).rms_norm
    kiln.tvm_ffi.export(tmp_path, {"rms_norm": "!new"})
    loaded(X, W, 1e-5, None, None, None, ones(4, 64))


def test_an_operator_that_has_changed_is_not_called(tmp_path, driver):
    text = kiln.tvm_ffi.signature("rms_norm").replace("|x,weight,", "|x,gain,").replace("|x,weight,", "|x,gain,")
    module = tvm_ffi.load_module(str(kiln.tvm_ffi.export(tmp_path, {"f": text})))
    with pytest.raises(RuntimeError, match="other operands than when the module was exported. Export again"):
        module.f(X, W)


PROGRAM = """
import sys
sys.modules["kiln"] = None  # an import of kiln would fail
import tvm_ffi
from cuda_tensors import ones
first, second = tvm_ffi.load_module(sys.argv[1]), tvm_ffi.load_module(sys.argv[2])
for _ in range(2):
    first.rms_norm(ones(4, 64), ones(64), 1e-5, None, None, None, ones(4, 64))
    second.act_and_mul(ones(4, 64), "silu", None, None, None, None, None, None, ones(4, 32))
try:
    first.rms_norm(ones(4, 64), ones(63))
except ValueError as error:
    print(error)
shared = tvm_ffi.get_global_func("kiln.service")
print("one service:", shared() is not None)
"""


def run_program(tmp_path, fake, library, environment):
    first = kiln.tvm_ffi.export(tmp_path, ["rms_norm"], name="first", library=library)
    second = kiln.tvm_ffi.export(tmp_path, ["act_and_mul"], name="second", library=library)
    path = [
        str(ROOT / "python/tests"),
        str(pathlib.Path(tvm_ffi.__file__).parents[1]),
        str(pathlib.Path(numpy.__file__).parents[1]),
    ]
    base = {"PYTHONPATH": ":".join(path), "KILN_CACHE_DIR": str(tmp_path / "cache"), "KILN_LIBCUDA": fake, "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(first), str(second)], env=base | environment, capture_output=True, text=True
    )


@pytest.fixture
def fake(driver):
    from conftest import FAKE

    return FAKE


@pytest.mark.parametrize("way", ["in the module", "relative", "KILN_LIBRARY"])
def test_a_module_needs_no_python_package(tmp_path, fake, way):
    library = {"in the module": _tvm_module.loaded_library(), "relative": "libs/libkiln.so.0", "KILN_LIBRARY": None}[way]
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs/libkiln.so.0").symlink_to(_tvm_module.loaded_library())
    done = run_program(tmp_path, fake, library, {"KILN_LIBRARY": _tvm_module.loaded_library()} if way == "KILN_LIBRARY" else {})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["rms_norm: weight is f32 [63], expected [H = 64]", "one service: True"]


def test_a_module_without_libkiln_says_where_it_looked(tmp_path, fake):
    done = run_program(tmp_path, fake, "nowhere/libkiln.so.0", {})
    assert "kiln's library does not load. Name libkiln.so.0 in KILN_LIBRARY" in done.stderr
    assert "nowhere/libkiln.so.0: cannot open shared object file" in done.stderr


def test_the_template_is_a_small_file():
    assert _tvm_module.TEMPLATE.stat().st_size < 400_000  # a wheel links the C++ library into it


def test_numbers_of_numpy_are_constants(driver, make):
    make("rms_norm", ["x", "weight", "out"], eps=numpy.float64(0.25))(X, W, ones(4, 64))
    assert number(driver) == 0.25
    assert kiln.tvm_ffi.signature("amax", None, {"parts": numpy.int64(4)}).endswith("|parts=i:4")


def test_a_constant_that_is_no_number_is_refused():
    text = kiln.tvm_ffi.signature("rms_norm", None, {"eps": 0.5}).replace("f:0.5", "f:np.float64(0.5)")
    with pytest.raises(ValueError, match=r"no number 'np.float64\(0.5\)'"):
        kiln._kiln.tvm_ffi_function(text, print)
