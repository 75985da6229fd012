"""Fixtures: a new store for each session, and the fake CUDA driver of tests/support, whose
device memory is host memory.
"""

import ctypes
import os
import pathlib
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKE = os.environ.get("KILN_TEST_FAKE_CUDA", "")

# Before kiln is imported: the driver is chosen once per process.
_directory = tempfile.TemporaryDirectory(prefix="kiln-python-")
os.environ["KILN_CACHE_DIR"] = os.environ.get("KILN_TEST_CACHE_DIR") or _directory.name
for name in ("KILN_MODE", "KILN_TORCH_MODES", "KILN_RECORD", "KILN_TEMPLATE_PATH", "KILN_ARCH"):
    os.environ.pop(name, None)
if FAKE:
    os.environ["KILN_LIBCUDA"] = FAKE

import kiln
from kiln import _kiln


class FakeLaunch(ctypes.Structure):
    """kiln_fake_launch of tests/support/fake_driver/kiln_fake.h."""

    _fields_ = [
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("cooperative", ctypes.c_int),
        ("programmatic", ctypes.c_int),
        ("captured", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("argument_count", ctypes.c_uint),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("argument_sizes", ctypes.POINTER(ctypes.c_size_t)),
    ]


class FakeDriver:
    """The fake driver's control functions, and the driver functions that tests of contexts and streams need."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.kiln_fake_launches.restype = ctypes.c_size_t
        self.library.kiln_fake_calls.restype = ctypes.c_ulong
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.set_current(self.context)

    def call(self, name, *arguments):
        entry, status = ctypes.c_void_p(), ctypes.c_int()
        assert (
            self.library.cuGetProcAddress_v2(name.encode(), ctypes.byref(entry), 12000, ctypes.c_uint64(0), ctypes.byref(status))
            == 0
        )
        assert ctypes.CFUNCTYPE(ctypes.c_int)(entry.value)(*arguments) == 0, name

    def set_current(self, context):
        self.call("cuCtxSetCurrent", context)

    def stream(self):
        out = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(out), 0)
        return out.value

    def launches(self):
        return self.library.kiln_fake_launches()

    def calls(self, name=None):
        """The number of calls of the driver function `name`, or of all driver functions."""
        return self.library.kiln_fake_calls(name.encode() if name else None)

    def launch(self, index=-1):
        """One launch as a FakeLaunch, and its arguments' bytes."""
        out = FakeLaunch()
        at = index if index >= 0 else self.launches() + index
        assert self.library.kiln_fake_launch_at(ctypes.c_size_t(at), ctypes.byref(out)) == 1
        return out, [ctypes.string_at(out.arguments[i], out.argument_sizes[i]) for i in range(out.argument_count)]

    def quiet(self, on):
        self.library.kiln_fake_quiet(int(on))


@pytest.fixture(scope="session")
def driver():
    if not FAKE:
        pytest.skip("KILN_TEST_FAKE_CUDA names no fake driver")
    return FakeDriver(FAKE)


@pytest.fixture
def host_memory(driver):
    """Accepts arrays in host memory as arguments, as the fake driver's device memory is host memory."""
    _kiln.accept_host_memory(True)
    yield
    _kiln.accept_host_memory(False)


@pytest.fixture(scope="session")
def service():
    return kiln.Service()


class DeviceArray:
    """An object that has only __cuda_array_interface__: an address, a shape and perhaps a stream."""

    def __init__(self, address=0x1000, stream=None):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (1,), "typestr": "<f4", "version": 3, "stream": stream}
