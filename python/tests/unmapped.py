"""Device memory that ends where nothing is mapped any more: a kernel that reads beyond its end fails."""

import ctypes

import torch


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


_PINNED, _DEVICE, _READ_AND_WRITE = 1, 1, 3


class _View:
    def __init__(self, address, count):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (count,), "typestr": "<i4", "version": 3}


class EndOfMemory:
    """A page of device memory, and an address range of the same size after it in which nothing is mapped."""

    def __init__(self):
        driver = ctypes.CDLL("libcuda.so.1")

        def call(name, *arguments):
            assert (code := getattr(driver, name)(*arguments)) == 0, f"{name}: CUDA error {code}"

        here = _Location(_DEVICE, torch.cuda.current_device())
        properties = _Properties(type=_PINNED, location=here)
        size, address, memory = ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_uint64()
        call("cuMemGetAllocationGranularity", ctypes.byref(size), ctypes.byref(properties), 0)
        zero = ctypes.c_size_t(0)
        call(
            "cuMemAddressReserve",
            ctypes.byref(address),
            ctypes.c_size_t(2 * size.value),
            zero,
            ctypes.c_uint64(0),
            ctypes.c_uint64(0),
        )
        call("cuMemCreate", ctypes.byref(memory), size, ctypes.byref(properties), ctypes.c_uint64(0))
        call("cuMemMap", address, size, zero, memory, ctypes.c_uint64(0))
        call("cuMemSetAccess", address, size, ctypes.byref(_Access(here, _READ_AND_WRITE)), ctypes.c_size_t(1))
        self._call, self._begin, self._size, self._memory = call, address, size, memory

    def put(self, words, claimed):
        """Copies words (i32) to the end of the memory. Returns a tensor there that claims to have more words than are mapped."""
        begin = self._begin.value + self._size.value - 4 * words.numel()
        torch.as_tensor(_View(begin, words.numel())).copy_(words)
        return torch.as_tensor(_View(begin, claimed))

    def close(self):
        """Frees the memory. No launch may use it any more."""
        torch.cuda.synchronize()
        self._call("cuMemUnmap", self._begin, self._size)
        self._call("cuMemRelease", self._memory)
        self._call("cuMemAddressFree", self._begin, ctypes.c_size_t(2 * self._size.value))
