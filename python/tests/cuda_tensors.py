"""Tensors of tvm-ffi whose memory is numpy's and whose device is a CUDA device, as the fake driver's memory is.

The file needs neither kiln nor a GPU.
"""

import ctypes

import numpy


class _Tensor(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_kept = []  # all tensors of a test live as long as its process
_CODES = {"i": 0, "u": 1, "f": 2}


class Array:
    """An array with DLPack on device `device`. `strides` are in elements; `bits` and `code` may name another dtype."""

    def __init__(self, array, device=0, strides=None, code=None, bits=None, shape=None):
        shape = array.shape if shape is None else shape
        strides = [s // array.itemsize for s in array.strides] if strides is None else strides
        numbers = ctypes.c_int64 * len(shape)
        code = _CODES[array.dtype.kind] if code is None else code
        self.array = array
        self.device = device
        self.raw = _Tensor(
            array.ctypes.data,
            2,
            device,
            len(shape),
            code,
            bits or array.itemsize * 8,
            1,
            numbers(*shape),
            numbers(*strides),
            0,
            None,
            None,
        )
        _kept.append(self)

    def __dlpack__(self, **_):
        return _new(ctypes.addressof(self.raw), b"dltensor", None)

    def __dlpack_device__(self):
        return 2, self.device


def tensor(array, **options):
    import tvm_ffi

    return tvm_ffi.from_dlpack(Array(array, **options))


def ones(*shape, **options):
    return tensor(numpy.ones(shape, numpy.float32), **options)


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned. `tensor` begins as _Tensor does."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_Allocator = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_Tensor), ctypes.POINTER(ctypes.POINTER(_Versioned)), ctypes.c_void_p, ctypes.c_void_p
)


class Allocator:
    """tvm-ffi's allocator of this thread, in a `with`. `shapes` has the shapes that were asked for."""

    def __init__(self):
        self.shapes = []
        self._function = _Allocator(self._allocate)

    def _allocate(self, wanted, out, *_):
        one = wanted.contents
        shape = tuple(one.shape[: one.rank])
        self.shapes.append(shape)
        strides = [int(numpy.prod(shape[i + 1 :], dtype=int)) for i in range(one.rank)]
        memory = numpy.zeros((*shape, max(one.bits // 8, 1)), numpy.uint8)
        made = Array(memory, shape=shape, strides=strides, code=one.code, bits=one.bits)
        made.versioned = _Versioned(1, 0, None, None, 0, made.raw)
        out[0] = ctypes.pointer(made.versioned)
        return 0

    def _set(self, function):
        from tvm_ffi import libinfo

        library = ctypes.CDLL(libinfo.find_libtvm_ffi())
        assert library.TVMFFIEnvSetDLPackManagedTensorAllocator(function, 0, None) == 0

    def __enter__(self):
        self._set(self._function)
        return self

    def __exit__(self, *_):
        self._set(None)
