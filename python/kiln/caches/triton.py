"""Triton's cache in kiln's store: TRITON_CACHE_MANAGER=kiln.caches.triton:CacheManager.

A compiled kernel is a group of files (metadata, IR, PTX, cubin). kiln keeps a group as one blob, so a group is found
whole or not at all. Files that Triton needs as paths lie in a private directory of the process.
One process of a host compiles a kernel while others wait for it (KILN_CACHES_WAIT).

Overrides and dumps (TRITON_KERNEL_OVERRIDE, TRITON_KERNEL_DUMP) are directories of files as without kiln.

As a remote backend beside Triton's own directory, without waiting for other processes:
TRITON_CACHE_MANAGER=triton.runtime.cache:RemoteCacheManager and
TRITON_REMOTE_CACHE_BACKEND=kiln.caches.triton:RemoteCacheBackend.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import triton
import triton.runtime.cache

from .._blobs import Blobs, Lease
from .._locks import Lock
from . import _files, _settings

_directory = _settings.triton_files
_STAGES = {".source", ".ttir", ".ttgir", ".llir", ".ptx", ".cubin", ".amdgcn", ".hsaco", ".spv"}
_lock = Lock()
_groups: dict[tuple[str, str], dict[str, str]] = {}  # what this process has on its disk


def _blobs(refusing: bool = False) -> Blobs:
    return _settings.blobs("triton", f"triton {triton.__version__}, {_settings.machine()}", refusing=refusing)


class CacheManager(triton.runtime.cache.CacheManager):
    """The entries under one of Triton's keys. Used by one thread at a time, as Triton does."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        self._plain = triton.runtime.cache.FileCacheManager(key, override, dump) if override or dump else None
        self._files: dict[str, bytes] = {}  # of a group that is being made
        self._lease: Lease | None = None
        if "torch._inductor" in sys.modules:
            _settings.show_triton_files()

    def get_file(self, filename: str) -> str | None:
        if self._plain:
            return self._plain.get_file(filename)
        path = _directory.path() / self.key / filename
        if path.exists():
            return str(path)
        content = self._asked(f"{self.key}/{filename}", filename.endswith(".so"))
        return None if content is None else _directory.write(self.key, {filename: content})[filename]

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Writes a file. `data` may be text, bytes or a module of MLIR."""
        if self._plain:
            return self._plain.put(data, filename, binary)
        if not _files.is_plain(filename):
            raise ValueError(f"file {filename!r} of Triton's cache is no plain name")
        content = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else str(data).encode()
        suffix = pathlib.Path(filename).suffix
        if suffix in _STAGES or (self._files and suffix == ".json"):
            self._files[filename] = content  # put_group stores all of them as one
        else:
            self._put(f"{self.key}/{filename}", content)
        return _directory.write(self.key, {filename: content})[filename]

    def get_group(self, filename: str) -> dict[str, str] | None:
        if self._plain:
            return self._plain.get_group(filename)
        with _lock:
            known = _groups.get((self.key, filename))
        if known is not None and all(map(_exists, known.values())):
            return dict(known)
        data = self._asked(f"{self.key}/{filename}/", True)
        files = None if data is None else _files.unpack(data)
        if not files:
            return None
        group = _directory.write(self.key, files)
        with _lock:
            _groups[self.key, filename] = group
        return dict(group)

    def put_group(self, filename: str, group: dict[str, str]) -> None:
        if self._plain:
            self._plain.put_group(filename, group)
            return
        files = {
            name: self._files[name] if name in self._files else pathlib.Path(path).read_bytes() for name, path in group.items()
        }
        self._put(f"{self.key}/{filename}/", _files.pack(files))
        self._files = {}
        with _lock:
            _groups[self.key, filename] = dict(group)

    def _asked(self, key: str, leased: bool) -> bytes | None:
        if not leased:
            return _blobs().get(key)
        self._end()
        lease = _blobs(_settings.refuses()).lease(key, _settings.wait())
        if lease.data is None:
            self._lease = lease  # until the put, or until this manager goes
        return lease.data

    def _put(self, key: str, content: bytes) -> None:
        lease = self._lease if self._lease is not None and self._lease.key == key else None
        _blobs().put(key, content, lease=lease)

    def _end(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.end()

    def __del__(self) -> None:
        if getattr(self, "_lease", None) is not None:
            self._end()


def _exists(path: str) -> bool:
    return pathlib.Path(path).exists()


class RemoteCacheBackend(triton.runtime.cache.RemoteCacheBackend):
    """A backend of Triton's RemoteCacheManager, which keeps its own directory beside it."""

    def __init__(self, key: str) -> None:
        self.key = key

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """All files or none: a group of which a file is missing must not be used."""
        found = {name: _blobs().get(f"{self.key}/remote/{name}") for name in filenames}
        return {} if None in found.values() else found

    def put(self, filename: str, data: bytes | str) -> None:
        content = data if isinstance(data, bytes | bytearray | memoryview) else str(data).encode()
        _blobs().put(f"{self.key}/remote/{filename}", content)


Backend = RemoteCacheBackend
