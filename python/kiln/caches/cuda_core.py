"""A program cache for cuda.core: Program.compile(..., cache=kiln.caches.cuda_core.ProgramCache())."""

from __future__ import annotations

import pathlib
from typing import Any

import cuda.core
from cuda.core import ObjectCode
from cuda.core.utils import ProgramCacheResource

from .._blobs import Blobs
from .._service import Service


class ProgramCache(ProgramCacheResource):
    """Keeps compiled programs as blobs of space "cuda.core". Thread-safe, and safe between processes.

    A value is code alone, so nothing is unpickled. `service` is a kiln.Service; None is kiln.service().
    """

    def __init__(self, service: Service | None = None) -> None:
        self._blobs = Blobs(service, "cuda.core", f"cuda.core {cuda.core.__version__}")

    def __getitem__(self, key: bytes | str) -> bytes:
        data = self._blobs.get(_name(key))
        if data is None:
            raise KeyError(key)
        return data

    def __setitem__(self, key: bytes | str, value: Any) -> None:
        self._blobs.put(_name(key), _content(value))

    def __delitem__(self, key: bytes | str) -> None:
        if not self._blobs.delete(_name(key)):
            raise KeyError(key)

    def __len__(self) -> int:
        return len(self._names())

    def clear(self) -> None:
        for name in self._names():
            self._blobs.delete(name)

    def _names(self) -> list[str]:
        return [item["key"] for item in self._blobs.list() if item["compatibility"] == self._blobs.compatibility]


def _name(key: bytes | str) -> str:
    """A key in hex digits, since cuda.core's keys are any bytes and a list shows text."""
    if not isinstance(key, bytes | bytearray | str):
        raise TypeError(f"a key is bytes or str, not {type(key).__name__}")
    return (key.encode() if isinstance(key, str) else bytes(key)).hex()


def _content(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)  # a memoryview may have strides
    if not isinstance(value, ObjectCode):
        raise TypeError(f"a value is bytes-like or ObjectCode, not {type(value).__name__}")
    if not isinstance(value.code, str):
        return bytes(value.code)
    try:
        return pathlib.Path(value.code).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"the file of a path-backed ObjectCode is gone, so it cannot be cached: {value.code}") from None
