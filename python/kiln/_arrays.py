"""Outputs of operators: arrays of the library that the inputs come from, or kiln's own."""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any

from . import _kiln
from ._errors import Code, Error

#: by the ordinal of kiln::Dtype: numpy's name, and DLPack's code and bits
_TYPES = (
    ("float32", 2, 32),
    ("float16", 2, 16),
    ("bfloat16", 4, 16),
    ("float8_e4m3fn", 10, 8),
    ("float8_e5m2", 12, 8),
    ("float64", 2, 64),
    ("int8", 0, 8),
    ("uint8", 1, 8),
    ("int32", 0, 32),
    ("uint32", 1, 32),
    ("int64", 0, 64),
    ("uint64", 1, 64),
    ("float8_e8m0fnu", 14, 8),
)


class DeviceArray:
    """An array on a CUDA device that kiln has allocated. Other libraries read it without a copy.

    jax.dlpack.from_dlpack(a), torch.from_dlpack(a), cupy.from_dlpack(a) and numba.cuda.as_cuda_array(a) take it.
    The memory is freed when the last array over it is gone. `strides` are in elements.
    """

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: int, device: int) -> None:
        self.shape, self.strides, self.device = shape, strides, device
        self.dtype, self._code, self._bits = _TYPES[dtype]
        elements = 0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, strides))
        self._memory = _kiln.DeviceMemory(elements * self._bits // 8)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """A capsule over the memory. Nothing is synchronised: kiln's launches are on the stream of the call."""
        return _kiln.device_capsule(self._memory, list(self.shape), list(self.strides), self._code, self._bits, self.device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        kind = {0: "i", 1: "u", 2: "f"}.get(self._code)
        if kind is None:
            raise AttributeError(f"__cuda_array_interface__ has no type for {self.dtype}")
        return {
            "data": (self._memory.address, False),
            "shape": self.shape,
            "strides": tuple(step * self._bits // 8 for step in self.strides),
            "typestr": f"<{kind}{self._bits // 8}",
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"<kiln.DeviceArray {self.dtype} {list(self.shape)} on device {self.device}>"


def on_stream(like: Any, stream: int) -> contextlib.AbstractContextManager[Any]:
    """A context manager in which the stream is the current one of the array's library."""
    if (torch := sys.modules.get("torch")) and isinstance(like, torch.Tensor) and like.is_cuda:
        return torch.cuda.stream(torch.cuda.ExternalStream(stream, device=like.device))  # type: ignore[no-any-return]
    if type(like).__module__.startswith("cupy"):
        return sys.modules["cupy"].cuda.ExternalStream(stream)  # type: ignore[no-any-return]
    return contextlib.nullcontext()


def contiguous(array: Any) -> Any:
    """A contiguous copy of an array whose layout a kernel does not read."""
    if hasattr(array, "contiguous"):
        return array.contiguous()
    if type(array).__module__.startswith("cupy"):
        return sys.modules["cupy"].ascontiguousarray(array)
    raise Error(f"a {type(array).__name__} has a layout that the kernel does not read: make it contiguous", Code.invalid_argument)


def empty(like: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: int, device: int) -> Any:
    """A new array for an output. `strides` are in elements, and None is contiguous. `dtype` is an ordinal."""
    name, _, bits = _TYPES[dtype]
    if strides is None:
        strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    if hasattr(like, "new_empty") and (torch := sys.modules.get("torch")):
        return torch.empty_strided(shape, strides, dtype=getattr(torch, name), device=like.device)
    if type(like).__module__.startswith("cupy") and not name.startswith(("bfloat", "float8")):
        return _empty_cupy(shape, strides, name, bits // 8, device)
    return DeviceArray(shape, strides, dtype, device)


def _empty_cupy(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, bytes_each: int, device: int) -> Any:
    """A new array of CuPy. Before release 14 CuPy takes strides with memory alone."""
    cupy = sys.modules["cupy"]
    elements = 0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, strides))
    with cupy.cuda.Device(device):
        memory = cupy.empty(elements, dtype=dtype)
        return cupy.ndarray(shape, dtype=dtype, memptr=memory.data, strides=tuple(step * bytes_each for step in strides))
