"""Launches on the fake driver: the arguments and the stream that reach the kernel,
and calls that are refused.
"""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import types

import kiln
import pytest
from conftest import DeviceArray


@pytest.fixture
def kernel(service, driver):
    return service.open("rms_norm").get("f32", 64)


def pointers(driver):
    _, arguments = driver.launch()
    return [int.from_bytes(a, "little") for a in arguments[:3]]


def test_arguments_arrive_as_the_manifest_declares_them(kernel, driver):
    kernel(DeviceArray(0x1000), DeviceArray(0x2000), DeviceArray(0x3000), 40, 64, 64, 0.5)
    launch, arguments = driver.launch()
    assert pointers(driver) == [0x1000, 0x2000, 0x3000]
    assert [len(a) for a in arguments] == [8, 8, 8, 4, 8, 8, 4, 8, 8, 8]
    assert int.from_bytes(arguments[3], "little") == 40 and ctypes.c_float.from_buffer_copy(arguments[6]).value == 0.5
    assert list(launch.grid) == [2, 1, 1] and list(launch.block) == [8, 32, 1]  # the manifest's geometry
    assert launch.stream is None


def test_none_and_device_pointers_are_pointers_and_bare_integers_are_not(kernel, driver):
    kernel(kiln.DevicePtr(0x5000), DeviceArray(), DeviceArray(), 1, 64, 64, 1e-6, None)
    assert pointers(driver)[0] == 0x5000
    with pytest.raises(kiln.Error, match="'out'.*signed integer"):
        kernel(0x5000, DeviceArray(), DeviceArray(), 1, 64, 64, 1e-6)


def test_addresses_are_of_64_bits(kernel, driver):
    places = (0x7FFF_1234_5678_9A00, 1 << 63, (1 << 64) - 0x1000)
    kernel(*map(kiln.DevicePtr, places), 1, 64, 64, 1e-6)
    assert pointers(driver) == list(places)
    for address in (-1, -(1 << 70), 1 << 64):
        with pytest.raises(OverflowError):
            kernel(kiln.DevicePtr(address), DeviceArray(), DeviceArray(), 1, 64, 64, 1e-6)


def test_no_rows_launch_nothing(kernel, driver):
    before = driver.launches()
    kernel(DeviceArray(), DeviceArray(), DeviceArray(), 0, 64, 64, 1e-6)
    assert driver.launches() == before


def test_what_is_wrong_is_said_before_the_driver_is_called(kernel, driver):
    array, before = DeviceArray(), driver.calls("cuLaunchKernelEx")
    for arguments, text in [
        ((array, array, array, 1, 64), "5 arguments, expected"),
        ((array, array, array, 1, 64, 64, "x"), "argument 6, a str"),
        ((array, array, array, 1, 64, 64, object()), "argument 6, a object"),
        ((array, array, array, 2**40, 64, 64, 1e-6), "rows"),
        ((array, array, array, 2**70, 64, 64, 1e-6), "does not fit 64 bits"),
        ((array, array, array, -1, 64, 64, 1e-6), "must not be negative"),
        ((DeviceArray(0x1004), array, array, 1, 64, 64, 1e-6), "align"),
        ((array,) * 200, "200 arguments"),
    ]:
        with pytest.raises(kiln.Error, match=text):
            kernel(*arguments)
    with pytest.raises(TypeError, match="only stream="):
        kernel(array, array, array, 1, 64, 64, eps=1e-6)
    assert driver.calls("cuLaunchKernelEx") == before


def test_numbers_of_other_libraries_are_numbers(kernel, driver):
    numpy = pytest.importorskip("numpy")
    arrays = (DeviceArray(),) * 3
    for rows, eps in (
        (numpy.int32(3), numpy.float32(0.25)),
        (numpy.uint64(3), numpy.float64(0.25)),
        (True + 2, numpy.float16(0.25)),
    ):
        kernel(*arrays, rows, 64, 64, eps)
        _, arguments = driver.launch()
        assert int.from_bytes(arguments[3], "little") == 3 and ctypes.c_float.from_buffer_copy(arguments[6]).value == 0.25
    before = driver.launches()
    for rows, eps in ((numpy.float32(3), 0.25), (3, numpy.int32(1)), (3, 1), (numpy.uint64(2**63), 0.25), (3, "0.25"), (3, 1j)):
        with pytest.raises(kiln.Error):
            kernel(*arrays, rows, 64, 64, eps)
    assert driver.launches() == before


def test_host_memory_is_refused(kernel):
    numpy = pytest.importorskip("numpy")
    x = numpy.zeros((1, 64), numpy.float32)
    with pytest.raises(kiln.Error, match="argument 0, a numpy.ndarray, lies in host memory"):
        kernel(x, x, x, 1, 64, 64, 1e-6)


def test_dlpack_arrays_are_pointers_and_are_given_back(kernel, driver, host_memory):
    numpy = pytest.importorskip("numpy")
    out, x, w = (numpy.zeros((4, 64), numpy.float32) for _ in range(3))
    kernel(out, x[1:], w, 1, 64, 64, 1e-6)
    assert pointers(driver) == [out.ctypes.data, x.ctypes.data + 256, w.ctypes.data]
    before = len(gc.get_objects())
    for _ in range(200):
        kernel(out, x, w, 1, 64, 64, 1e-6)
    assert len(gc.get_objects()) < before + 100


def test_a_given_stream_is_taken(kernel, driver):
    arrays, stream = (DeviceArray(),) * 3, driver.stream()

    class Torch:
        cuda_stream = stream

    class CuPy:
        ptr = stream

    class Core:
        def __cuda_stream__(self):
            return 0, stream

    for given in (stream, Torch(), CuPy(), Core()):
        kernel(*arrays, 1, 64, 64, 1e-6, stream=given)
        assert driver.launch()[0].stream == stream
    kernel(*arrays, 1, 64, 64, 1e-6, **{"".join(("str", "eam")): stream})  # a "stream" that is not interned
    assert driver.launch()[0].stream == stream
    kernel(*arrays, 1, 64, 64, 1e-6, stream=None)
    assert driver.launch()[0].stream is None
    with pytest.raises(kiln.Error, match="stream is a str"):
        kernel(*arrays, 1, 64, 64, 1e-6, stream="main")


def test_an_arrays_own_stream_is_taken_where_nothing_else_says(kernel, driver):
    one, two = driver.stream(), driver.stream()
    kernel(DeviceArray(stream=one), DeviceArray(), DeviceArray(stream=one), 1, 64, 64, 1e-6)
    assert driver.launch()[0].stream == one
    with pytest.raises(kiln.Error, match="names another stream"):
        kernel(DeviceArray(stream=one), DeviceArray(stream=two), DeviceArray(), 1, 64, 64, 1e-6)


def test_cupy_arrays_are_launched_on_its_current_stream(kernel, driver, monkeypatch):
    """A stand-in with the attributes that CuPy's arrays and streams have; gpu_operators has CuPy itself."""
    stream = driver.stream()
    cupy, cuda = types.ModuleType("cupy"), types.ModuleType("cupy.cuda")
    cuda.get_current_stream = lambda: types.SimpleNamespace(ptr=stream)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)

    class ndarray:
        __module__ = "cupy"

        def __init__(self, address):
            self.data = types.SimpleNamespace(ptr=address, device_id=0)

    kernel(ndarray(0x1000), ndarray(0x2000), ndarray(0x3000), 1, 64, 64, 1e-6)
    assert pointers(driver) == [0x1000, 0x2000, 0x3000] and driver.launch()[0].stream == stream
    other = ndarray(0x2000)
    other.data.device_id = 1
    with pytest.raises(kiln.Error, match="argument 1 lies on device 1, an earlier one on device 0"):
        kernel(ndarray(0x1000), other, ndarray(0x3000), 1, 64, 64, 1e-6)


def test_what_an_argument_itself_raises_is_what_is_raised(kernel, driver):
    def raising(name, error):
        def body(self):
            raise error

        return type("Odd", (), {name: body if name == "__index__" else property(body)})()

    before = driver.launches()
    for name in ("__cuda_array_interface__", "__dlpack__", "__index__"):
        for error in (RuntimeError("of its own"), KeyboardInterrupt("of its own")):
            with pytest.raises(type(error), match="of its own"):
                kernel(DeviceArray(), raising(name, error), DeviceArray(), 1, 64, 64, 1e-6)
    with pytest.raises(kiln.Error, match="argument 1, a .*Odd, is no array"):
        kernel(DeviceArray(), raising("__cuda_array_interface__", AttributeError()), DeviceArray(), 1, 64, 64, 1e-6)
    assert driver.launches() == before


MANY_TYPES = """
import sys, types
import conftest, kiln

driver = conftest.FakeDriver(conftest.FAKE)
kernel, stream = kiln.Service().open("rms_norm").get("f32", 64), driver.stream()
cupy, cuda = types.ModuleType("cupy"), types.ModuleType("cupy.cuda")
cuda.get_current_stream = lambda: types.SimpleNamespace(ptr=stream)
sys.modules.update({"cupy": cupy, "cupy.cuda": cuda})

def other():
    return type("Other", (conftest.DeviceArray,), {})()

class ndarray:
    __module__ = "cupy"
    data = types.SimpleNamespace(ptr=0x5000, device_id=0)

for i in range(20):
    kernel(other(), other(), other(), 1, 64, 64, 1e-6)
    assert driver.launch()[0].stream is None
for arrays in ((ndarray(), other(), other()), (ndarray(), ndarray(), other())):
    kernel(*arrays, 1, 64, 64, 1e-6)
    assert driver.launch()[0].stream == stream and driver.launch()[1][0] == (0x5000).to_bytes(8, "little")
print("done")
"""


def test_more_types_than_are_remembered_have_their_librarys_stream(driver):
    """Runs in a new process, as a process never forgets a type."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((os.path.dirname(__file__), *sys.path))}
    out = subprocess.run([sys.executable, "-c", MANY_TYPES], env=environment, capture_output=True, text=True)
    assert out.stdout == "done\n", out.stderr


def test_kernels_say_what_they_are(kernel, service):
    assert (
        kernel.info.specialization.startswith("rms_norm T=f32 H=64")
        and kernel.info.argument_count == 10
        and kernel.info.registers > 0
    )
    assert kernel.function and "rms_norm" in repr(kernel)
    with pytest.raises(kiln.Error):
        kernel.entry("nothing_like_it")
    with pytest.raises(TypeError):
        kiln.Kernel()
    assert service.open("rms_norm").try_get("f32", 64).function == kernel.function
    assert service.open("rms_norm").try_get("f32", 1234) is None


def test_a_kernel_keeps_its_service_and_a_closed_one_launches_nothing(driver):
    kernel = kiln.Service().open("rms_norm").get("f32", 64)
    gc.collect()
    kernel(DeviceArray(), DeviceArray(), DeviceArray(), 1, 64, 64, 1e-6)
    service = kiln.Service()
    kernel = service.open("rms_norm").get("f32", 64)
    service.close()
    for call in (lambda: kernel(DeviceArray()), lambda: kernel.info, lambda: kernel.function):
        with pytest.raises(kiln.Error, match="closed"):
            call()


def test_a_service_closes_behind_the_launches_that_are_under_way(driver):
    context, errors = driver.context, []

    def work(kernel):
        driver.set_current(context)
        try:
            while True:
                kernel(DeviceArray(), DeviceArray(), DeviceArray(), 1, 64, 64, 1e-6)
        except Exception as error:
            errors.append(str(error))

    driver.quiet(True)
    try:
        for _ in range(20):
            with kiln.Service() as service:
                threads = [threading.Thread(target=work, args=(service.open("rms_norm").get("f32", 64),)) for _ in range(3)]
                [t.start() for t in threads]
                time.sleep(0.003)
            [t.join() for t in threads]
    finally:
        driver.quiet(False)
    assert len(errors) == 60 and set(errors) == {"this kiln.Service was closed"}


def test_a_sealed_service_names_the_row_that_would_have_made_it_ready(driver):
    with kiln.Service(mode="sealed") as service:
        template = service.open("rms_norm")
        assert service.prepare([{"template": "rms_norm", "T": "f32", "H": 64}]).done == 1
        service.seal()
        assert template.get("f32", 64)
        with pytest.raises(kiln.NotReady, match="H = 80|H=80") as caught:
            template.get("f32", 80)
        assert caught.value.code == kiln.Code.not_ready
        assert 'H = "80"' in service.missing()
        assert service.prepare(service.missing()).compiled in (0, 1)
        assert template.get("f32", 80)


def test_a_service_whose_mode_nobody_set_is_sealed_by_its_seal(driver, monkeypatch):
    monkeypatch.delenv("KILN_MODE", raising=False)
    with kiln.Service() as service:
        template = service.open("rms_norm")
        made = template.get("f32", 64)
        service.seal()
        assert template.get("f32", 64).info.key == made.info.key
        with pytest.raises(kiln.NotReady, match="sealed: rms_norm T=f32 H=88"):
            template.get("f32", 88)
        assert 'H = "88"' in service.missing()


def test_a_thread_without_a_context_is_told(kernel):
    errors = []

    def work():
        try:
            kernel(DeviceArray(), DeviceArray(), DeviceArray(), 1, 64, 64, 1e-6)
        except kiln.Error as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start(), thread.join()
    assert errors and errors[0].code == kiln.Code.driver and "INVALID_CONTEXT" in str(errors[0])


def test_threads_launch_at_once(kernel, driver):
    context, before = driver.context, driver.launches()

    def work():
        driver.set_current(context)
        for _ in range(100):
            kernel(DeviceArray(), DeviceArray(), DeviceArray(), 1, 64, 64, 1e-6)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert driver.launches() == before + 400


def test_misses_are_refused_in_a_capture(service, driver):
    with kiln.CaptureScope(), pytest.raises(kiln.NotReady):
        service.open("rms_norm").get("f32", 112)
    assert service.open("rms_norm").get("f32", 112)


ATTENTION = (
    """format = 1
[template]
name = "planned"
source = "planned.cu"
instantiate = "planned<{N}>"
[param.N]
kind = "int"
range = [1, 64]
"""
    + "".join(
        f'[[arg]]\nname = "{n}"\ntype = "{t}"\n{rest}\n'
        for n, t, rest in (
            ("plan", "ptr<i32>", 'access = "readwrite"'),
            ("partial", "ptr<f32>", 'access = "write"\nshape = ["2 * workers", "N", "9"]'),
            ("workers", "i32", 'value = "3 * dev.sms"'),
            ("kv_heads", "i32", "value = 2"),
        )
    )
    + """
[work_list]
kind = "attention"
argument = "plan"
workspace = "partial"
workers = "workers"
tile_rows = "N"
tile_kv = 16
group = 2
causal = 1
tile_cost = 0
min_units = 1
[launch]
grid = ["workers"]
block = [32]
""",
    "template <int N> __global__ void planned(int* plan, float* partial, int workers, int kv_heads) { partial[0] = plan[0] + workers + kv_heads; }",
)


def test_attention_plans_are_made_for_lengths_in_a_buffer_of_fixed_size(driver):
    with kiln.Service() as service:
        service.add_template(*ATTENTION)
        kernel = service.open("planned").get(32)
        limits = {"max_requests": 4, "kv_heads": 2, "max_tokens": 100}
        sizes = kiln.attention_sizes(kernel, **limits)
        assert sizes.plan_bytes > 0 and sizes.workspace_bytes > 0 and sizes.workers > 0
        buffer, calls = bytearray(sizes.plan_bytes), driver.calls()
        plan = kiln.attention_plan(kernel, buffer, **limits, qo_indptr=[0, 10, 40], kv_indptr=[0, 100, 400])
        assert 0 < plan.bytes <= sizes.plan_bytes and plan.items > 0 and any(buffer) and driver.calls() == calls
        other = kiln.attention_plan(kernel, buffer, **limits, kv_indptr=[0, 2, 5], kv_len=[20, 40], page_size=16)
        assert other != plan
        for text, arguments in [
            ("kv_len has 3", {"kv_indptr": [0, 2, 5], "kv_len": [1, 2, 3]}),
            ("max_requests|requests", {"kv_indptr": [0] * 9}),
            ("qo_indptr has 2", {"kv_indptr": [0, 2, 5], "qo_indptr": [0, 1]}),
        ]:
            with pytest.raises(kiln.Error, match=text):
                kiln.attention_plan(kernel, buffer, **limits, **arguments)
        with pytest.raises(kiln.Error):
            kiln.attention_plan(kernel, bytearray(8), **limits, kv_indptr=[0, 100])
        with pytest.raises(BufferError):
            kiln.attention_plan(kernel, bytes(sizes.plan_bytes), **limits, kv_indptr=[0, 100])


FAMILY = (
    """format = 1
[template]
name = "family"
instantiate = "family<{ROWS}, {N}>"
[param.ROWS]
kind = "int"
values = [8, 16, 64]
[param.N]
kind = "int"
range = [1, 9]
default = 1
[family]
by = "rows"
parameter = "ROWS"
[[arg]]
name = "out"
type = "ptr<f32>"
access = "write"
[[arg]]
name = "rows"
type = "i32"
[launch]
grid = ["ROWS"]
block = [32]
""",
    "template <int ROWS, int N> __global__ void family(float* out, int rows) { out[rows] = ROWS + N; }",
)


def test_a_family_launches_the_member_that_serves_the_argument(driver):
    with kiln.Service() as service:
        service.add_template(*FAMILY)
        template = service.open("family")
        family = template.get_family(N=3)
        assert isinstance(family, kiln.Family) and not isinstance(family, kiln.Kernel)
        assert (family.by, family.parameter, family.edges) == ("rows", "ROWS", (8, 16, 64))
        assert repr(family) == "<kiln.Family of 3, first family ROWS=8 N=3>"
        before = service.stats()["compiles"]
        for rows, member in ((0, 8), (8, 8), (9, 16), (65, 64)):
            family(DeviceArray(), rows)
            assert driver.launch()[0].grid[0] == member
            assert family.member(rows).info.specialization == f"family ROWS={member} N=3"
        stream = driver.stream()
        family(DeviceArray(), 9, stream=stream)
        assert driver.launch()[0].stream == stream and service.stats()["compiles"] == before
        with pytest.raises(kiln.Error, match="'ROWS': each launch of the family picks it by 'rows'"):
            template.get_family(ROWS=8)
        with pytest.raises(kiln.Error, match="argument 1 'rows' is a pointer"):
            family(DeviceArray(), DeviceArray())
        with pytest.raises(kiln.Error, match="template 'rms_norm' is no family"):
            service.open("rms_norm").get_family("f32", 64)
    for use in (lambda: family(DeviceArray(), 1), lambda: family.member(1), lambda: family.edges, lambda: repr(family)):
        with pytest.raises(kiln.Error, match="closed"):
            use()
