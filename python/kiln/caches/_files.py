"""Files with names as one blob. The format holds bytes and nothing that runs: no pickle, no paths."""

from __future__ import annotations

import os
import pathlib
import shutil
import struct
import tempfile
from collections.abc import Mapping
from multiprocessing import util

from .. import _locks

MAGIC = b"kilnfile"


def pack(files: Mapping[str, bytes]) -> bytes:
    """MAGIC, u32 number of files, then of each: u32 bytes of its name, u64 bytes of its content, both."""
    out = [MAGIC, struct.pack("<I", len(files))]
    for name, content in files.items():
        raw = name.encode()
        out += [struct.pack("<IQ", len(raw), len(content)), raw, content]
    return b"".join(out)


def unpack(data: bytes) -> dict[str, bytes] | None:
    """The files of a blob; None for other bytes, and for names that are no plain names."""
    if data[:8] != MAGIC or len(data) < 12:
        return None
    count, at, out = struct.unpack_from("<I", data, 8)[0], 12, {}
    for _ in range(count):
        if len(data) - at < 12:
            return None
        name_size, size = struct.unpack_from("<IQ", data, at)
        at += 12
        if len(data) - at < name_size + size:
            return None
        try:
            name = data[at : at + name_size].decode()
        except UnicodeDecodeError:
            return None
        if not is_plain(name):
            return None
        out[name] = data[at + name_size : at + name_size + size]
        at += name_size + size
    return out if at == len(data) else None


def is_plain(name: str) -> bool:
    """True for the name of a file in a directory: no separator, and not "." or ".."."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


class PrivateDirectory:
    """A directory of this process alone (0700), removed when the process ends. A forked child makes its own."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self._made, self._lock = prefix, (0, pathlib.Path()), _locks.Lock()

    def path(self) -> pathlib.Path:
        with self._lock:  # threads that come together have one directory
            if self._made[0] != os.getpid():
                self._made = (os.getpid(), pathlib.Path(tempfile.mkdtemp(prefix=self.prefix)))
                util.Finalize(None, self._remove, args=self._made, exitpriority=0)  # also in children of multiprocessing
            return self._made[1]

    def write(self, folder: str, files: Mapping[str, bytes]) -> dict[str, str]:
        """Writes files that other threads may write, too. Returns their paths."""
        place = self.path() / folder
        if not place.exists() and self._write_new(place, files):
            return {name: str(place / name) for name in files}
        place.mkdir(exist_ok=True)
        out = {}
        for name, content in files.items():
            path = place / name
            handle, new = tempfile.mkstemp(dir=place)
            with open(handle, "wb") as file:
                file.write(content)
            os.replace(new, path)
            out[name] = str(path)
        return out

    def _write_new(self, place: pathlib.Path, files: Mapping[str, bytes]) -> bool:
        """Writes a new folder of files, which has its name once they are written. False when it was there meanwhile."""
        new = tempfile.mkdtemp(dir=self.path())
        for name, content in files.items():
            handle = os.open(f"{new}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "wb", buffering=0) as file:
                file.write(content)
        try:
            os.rename(new, place)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            return False
        return True

    @staticmethod
    def _remove(process: int, path: pathlib.Path) -> None:
        if process == os.getpid():
            shutil.rmtree(path, ignore_errors=True)
