"""kiln.ops without torch: arrays of numpy, whose memory is the fake driver's device memory."""

import contextlib
import ctypes
import gc
import subprocess
import sys

import kiln
import kiln.ops
import pytest
from kiln import _arrays
from kiln._values import parameter_text

numpy = pytest.importorskip("numpy")
X, W = numpy.ones((4, 64), numpy.float32), numpy.ones(64, numpy.float32)


@pytest.fixture(autouse=True)
def launching(driver, host_memory):
    with kiln.Service() as service:
        kiln.use_service(service)
        yield service
    kiln.use_service(kiln.Service())


def pointers(driver, count=3):
    return [int.from_bytes(a, "little") for a in driver.launch()[1][:count]]


def test_every_operator_of_the_template_path_is_a_function():
    assert {"rms_norm", "fused_add_rms_norm", "attn_decode_paged", "describe"} <= set(dir(kiln.ops))
    assert [o["name"] for o in kiln.ops.describe("rms_norm")["inputs"]][:3] == ["x", "weight", "eps"]
    with pytest.raises(AttributeError, match=r"no operator 'rms_nrom'; did you mean 'rms_norm'"):
        kiln.ops.rms_nrom(X)


def test_outputs_are_the_callers_or_new(driver):
    out = numpy.empty_like(X)
    assert kiln.ops.rms_norm(X, W, out=out) is out
    assert pointers(driver) == [out.ctypes.data, X.ctypes.data, W.ctypes.data]
    made = kiln.ops.rms_norm(X, W, 0.5)
    assert (made.shape, made.strides, made.dtype, made.__dlpack_device__()) == ((4, 64), (64, 1), "float32", (2, 0))
    assert pointers(driver)[0] == made.__cuda_array_interface__["data"][0]
    assert ctypes.c_float.from_buffer_copy(driver.launch()[1][6]).value == 0.5
    assert kiln.ops.rms_norm(made, W).shape == (4, 64) and pointers(driver)[1] == made.__cuda_array_interface__["data"][0]


def test_several_outputs_are_a_tuple_and_may_have_strides(driver):
    values, scales = kiln.ops.fp8_quant_group(numpy.ones((6, 256), numpy.float32), column_major=True)
    assert (values.dtype, values.shape) == ("float8_e4m3fn", (6, 256))
    assert (scales.dtype, scales.shape, scales.strides) == ("float32", (6, 2), (1, 8))
    given = numpy.empty((6, 2), numpy.float32)
    kiln.ops.fp8_quant_group(numpy.ones((6, 256), numpy.float32), out_scale=given)
    assert given.ctypes.data in pointers(driver, 12)


def test_scales_of_ue8m0_are_an_element_type_of_arrays(driver):
    assert parameter_text(type("dtype", (), {"name": "float8_e8m0fnu"})()) == "ue8m0"
    made = _arrays.empty(X, (4, 64), None, dtype=12, device=0)
    assert (made.dtype, made.shape, made.strides) == ("float8_e8m0fnu", (4, 64), (64, 1))
    assert not hasattr(made, "__cuda_array_interface__"), "it has no such type: DLPack is the way"
    with pytest.raises(kiln.Error, match=r"rms_norm: out is ue8m0 \[4, 64\], expected f32"):
        kiln.ops.rms_norm(X, W, out=made)


def test_memory_of_an_output_lives_as_long_as_an_array_over_it(driver):
    frees = driver.calls("cuMemFree")
    made = kiln.ops.rms_norm(X, W)
    capsule = made.__dlpack__()
    del made
    gc.collect()
    assert driver.calls("cuMemFree") == frees
    del capsule
    gc.collect()
    assert driver.calls("cuMemFree") == frees + 1


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda f: f(X, W[:63]), kiln.Error, r"rms_norm: weight is f32 \[63\], expected \[H = 64\]"),
        (lambda f: f(X, "a"), kiln.Error, "rms_norm: weight is a str, expected an array of a CUDA device"),
        (lambda f: f(X, W, "a"), kiln.Error, "rms_norm: eps is a str, expected a number"),
        (lambda f: f(X, W, gemma="a"), kiln.Error, "rms_norm: gemma is a str, expected a boolean"),
        (lambda f: f(X, W, out_dtype="bf17"), kiln.Error, "out_dtype = 'bf17' is not allowed; did you mean 'bf16'"),
        (lambda f: f(X, W, out_dtype=object()), kiln.Error, "out_dtype is a object, expected an element type"),
        (lambda f: f(X), kiln.Error, "rms_norm.*weight"),
        (lambda f: f(X, W, foo=1), TypeError, "rms_norm has no operand 'foo'; operands: x weight eps .* stream"),
        (lambda f: f(X, W, x=X), TypeError, "rms_norm: x is given twice"),
        (lambda f: f(*[X] * 9), TypeError, "rms_norm takes at most 7 operands, and 9 were given"),
        (lambda f: f(X[:, ::2], W[:32]), kiln.Error, "make it contiguous"),
        (lambda f: f(X, W, out=X[:3]), kiln.Error, "out is"),
        (lambda f: f(X.astype(complex), W), kiln.Error, r"rms_norm: x is DLPack's type \(5, 128, 1\) .*no such dtype"),
        (
            lambda f: f(X, W, out=numpy.lib.stride_tricks.as_strided(numpy.empty(64, "f4"), (4, 64), (0, 4))),
            kiln.Error,
            r"rms_norm: out is f32 \[4, 64\] with strides \[0, 1\], and several of its elements have one address",
        ),
    ],
)
def test_wrong_operands_are_refused_by_name_before_a_launch(call, error, text, driver):
    before = driver.launches()
    with pytest.raises(error, match=text):
        call(kiln.ops.rms_norm)
    assert driver.launches() == before


def test_the_stream_is_the_callers(driver):
    stream = driver.stream()
    kiln.ops.rms_norm(X, W, out=numpy.empty_like(X), stream=stream)
    assert driver.launch()[0].stream == stream


def test_copies_and_outputs_are_made_on_the_callers_stream(driver, monkeypatch):
    entered = []

    @contextlib.contextmanager
    def on_stream(like, stream):
        entered.append((like is X, stream))
        yield
        entered.append("left")

    monkeypatch.setattr(_arrays, "on_stream", on_stream)
    kiln.ops.rms_norm(X, W)
    assert entered == []
    stream = driver.stream()
    kiln.ops.rms_norm(X, W, stream=stream)
    assert entered == [(True, stream), "left"]
    with pytest.raises(kiln.Error, match="make it contiguous"):  # no library copies an array of numpy
        kiln.ops.rms_norm(X, numpy.ones(128, numpy.float32)[::2], stream=stream)
    assert entered[-1] == "left"


def test_the_service_may_change_while_a_call_reads_its_stream(driver):
    class Stream:
        @property
        def cuda_stream(self):
            kiln.use_service(kiln.Service())
            return 0

    before = driver.launches()
    kiln.ops.rms_norm(X, W)
    kiln.ops.rms_norm(X, W, stream=Stream())
    assert driver.launches() == before + 2


def test_another_service_is_used_from_its_next_call_on(driver, launching):
    out = numpy.empty_like(X)
    kiln.ops.rms_norm(X, W, out=out)
    with kiln.Service() as other:
        kiln.use_service(other)
        kiln.ops.rms_norm(X, W, out=out)
        assert other.stats()["loads"] == 1
    kiln.use_service(launching)
    launching.close()
    kiln.ops.rms_norm(X, W, out=out)  # a closed service is replaced


def test_an_arch_needs_no_device_and_launches_nothing(driver, launching):
    before = driver.launches()
    operator = launching.operator("rms_norm", arch="sm_90a")
    operator(X, W, out=numpy.empty_like(X))
    assert driver.launches() == before and launching.stats()["loads"] == 0


def twice(directory, call):
    """A template path with the operator twice. `call` is its signature."""
    directory.mkdir(exist_ok=True)
    (directory / "twice.cu").write_text(
        '#include "kiln/dtype.cuh"\n'
        "template <class T> __global__ void twice(T* out, const T* x, const T* y, int n) { out[0] = x[0]; }"
    )
    (directory / "twice.toml").write_text(
        f"""format = 1
[template]
name = "twice"
source = "twice.cu"
instantiate = "twice<{{T}}>"
[param.T]
kind = "dtype"
values = ["f32", "i32"]
[[arg]]
name = "out"
type = "ptr<T>"
access = "write"
shape = ["n"]
[[arg]]
name = "x"
type = "ptr<T>"
shape = ["n"]
[[arg]]
name = "y"
type = "ptr<T>"
shape = ["n"]
optional = true
[[arg]]
name = "n"
type = "i32"
value = 1
optional = true
[launch]
grid = [1]
block = [32]
[bind]
call = "{call}"
out = "out: T[n]"
"""
    )
    return directory


def test_a_template_of_ones_own_is_an_operator(driver, tmp_path):
    with kiln.Service(template_path=twice(tmp_path, "x: T[n], y: T[n]?")) as service:
        kiln.use_service(service)
        assert "twice" in dir(kiln.ops)
        assert kiln.ops.twice(numpy.ones(5, numpy.int32)).shape == (5,)
        assert b"twice" in driver.launch()[0].kernel


def test_the_package_has_the_operators_without_another_import():
    program = "import kiln; print(kiln.ops.__name__); print(hasattr(kiln, 'opps'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["kiln.ops", "False"]


def test_a_service_with_another_signature_swaps_no_operands(driver, tmp_path):
    x, y = numpy.ones(5, numpy.float32), numpy.ones(5, numpy.float32)
    with kiln.Service(template_path=twice(tmp_path / "a", "x: T[n], y: T[n]")) as service:
        kiln.use_service(service)
        held = kiln.ops.twice
        held(x, y)
        assert pointers(driver)[1:] == [x.ctypes.data, y.ctypes.data]
    with kiln.Service(template_path=twice(tmp_path / "b", "y: T[n], x: T[n]")) as service:
        kiln.use_service(service)
        kiln.ops.twice(y=y, x=x)
        assert pointers(driver)[1:] == [x.ctypes.data, y.ctypes.data]
        with pytest.raises(kiln.Error, match=r"twice: .* inputs y \(tensor\), x \(tensor\), expected x \(tensor\), y"):
            held(x, y)
