"""Files with names as one blob. The format holds bytes and nothing that runs: no pickle, no paths."""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import shutil
import stat
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
    """A directory of this process alone (0700), removed when the process ends. A forked child makes its own.

    A process that is killed leaves its directory, and the next process that makes one removes it.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix, self._made, self._lock = prefix, (0, pathlib.Path()), _locks.Lock()

    def path(self) -> pathlib.Path:
        with self._lock:  # threads that come together have one directory
            if self._made[0] != os.getpid():
                self._remove_left_ones()
                outer = pathlib.Path(tempfile.mkdtemp(prefix=self.prefix))
                util.Finalize(None, self._remove, args=(os.getpid(), outer), exitpriority=0)  # also in children of multiprocessing
                _claim(outer)
                _move_inner_folders(outer)
                # ext4 places the inner directory by a hash of its name, and the folders of kernels beside it.
                self._made = (os.getpid(), pathlib.Path(tempfile.mkdtemp(prefix=self.prefix, dir=outer)))
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

    def _remove_left_ones(self) -> None:
        """Removes directories of this prefix whose processes were killed on this host."""
        name = re.compile(re.escape(self.prefix) + "[a-z0-9_]{8}")
        try:
            found = [entry.path for entry in os.scandir(tempfile.gettempdir()) if name.fullmatch(entry.name)]
        except OSError:
            return
        for path in found:
            if (claim := _free_claim(path)) >= 0:
                shutil.rmtree(path, ignore_errors=True)
                os.close(claim)

    @staticmethod
    def _remove(process: int, path: pathlib.Path) -> None:
        if process == os.getpid():
            shutil.rmtree(path, ignore_errors=True)


_GET_FLAGS, _SET_FLAGS, _TOP = 0x80086601, 0x40086602, 0x20000  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_TOPDIR_FL


def _move_inner_folders(directory: pathlib.Path) -> None:
    """Lets ext4 put new folders of a directory into a part of the disk that has few folders.

    Otherwise it puts a folder beside its parent. Where many files were removed in the last minutes, as in a directory of
    temporary files, making a file takes a millisecond. XFS, Btrfs and tmpfs refuse the flag, and overlayfs hands it to the
    filesystem below.
    """
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        flags = struct.unpack_from("I", fcntl.ioctl(handle, _GET_FLAGS, bytes(8)))[0]
        fcntl.ioctl(handle, _SET_FLAGS, struct.pack("I4x", flags | _TOP))
    except OSError:
        pass
    finally:
        os.close(handle)


_CLAIM = ".lock"  # in a private directory


def _boot() -> bytes:
    """Names this boot of this host, on which a lock says whether its holder lives. Empty where it is not known."""
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return b""


def _claim(directory: pathlib.Path) -> None:
    """Locks a file that stays open until this process and its forked children have ended.

    The file has its content only once it is locked, so that nobody takes a new directory for one that was left. No process
    closes it: a child that has closed its files, as daemons do, may have another file of this number.
    """
    try:
        claim = os.open(directory / _CLAIM, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(claim, _boot())
    except OSError:  # a filesystem without locks: a directory that is left stays
        pass


def _free_claim(directory: str) -> int:
    """Returns the open and locked file of a directory whose process of this boot has ended, or -1."""
    try:
        status = os.lstat(directory)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return -1
        claim = os.open(f"{directory}/{_CLAIM}", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return -1
    try:
        boot = _boot()
        if boot and os.read(claim, 100) == boot:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return claim
    except OSError:  # its process lives
        pass
    os.close(claim)
    return -1
