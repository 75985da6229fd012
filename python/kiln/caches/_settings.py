"""Shared by the adapters: the service, the wait for a lease, what a cached file depends on, and the end of a process."""

from __future__ import annotations

import atexit
import json
import os
import pathlib
import platform
import re
import sys
import sysconfig
import threading
from multiprocessing import util

from .._blobs import Blobs
from .._default import service
from .._locks import Lock
from . import _files

_LAST_WAIT = 60.0  # seconds for blobs that are queued when the process ends

_lock = Lock()
_spaces: dict[tuple[str, bool], Blobs] = {}
_left = 0  # the process that has run _leave()
START = pathlib.Path(__file__).parent / "start"  # the folder of a sitecustomize that switches the caches on
_TRITON = "TRITON_CACHE_DIR"
_TRITON_BEFORE = "TRITON_CACHE_DIR_BEFORE_KILN"  # what children of this process get in its place
triton_files = _files.PrivateDirectory("kiln-private-triton-")


def wait() -> float:
    """KILN_CACHES_WAIT: how many seconds a process waits for another one that makes the same entry. 120 unless set.

    After that it makes the entry for itself, so a producer that never finishes delays others once. The result is at
    most threading.TIMEOUT_MAX, the limit of timers; "inf" is this limit.
    """
    text = os.environ.get("KILN_CACHES_WAIT", "")
    try:
        value = float(text) if text else 120.0
        if not value >= 0:  # also nan
            raise ValueError(text)
        return min(value, threading.TIMEOUT_MAX)
    except ValueError:
        raise ValueError(f"KILN_CACHES_WAIT = {text!r}: expected a number of seconds, 0 or more") from None


def refuses() -> bool:
    """KILN_CACHES_SEALED: "refuse" makes a kernel that a sealed process finds in no store an error; "count" unless set."""
    text = os.environ.get("KILN_CACHES_SEALED", "")
    if text not in ("", "count", "refuse"):
        raise ValueError(f"KILN_CACHES_SEALED = {text!r}: expected count or refuse")
    return text == "refuse"


def machine() -> str:
    """The facts that compiled host code depends on."""
    return f"python {sysconfig.get_config_var('SOABI')}, {platform.machine()}, {' '.join(platform.libc_ver())}"


def blobs(space: str, compatibility: str, *, refusing: bool = False) -> Blobs:
    """The space on the process's service: KILN_CACHE_DIR, KILN_CACHE_LAYERS and KILN_REMOTE say where it looks.

    `refusing`: a blob that is not there is an error in a sealed process.
    """
    current = service()
    with _lock:
        found = _spaces.get((space, refusing))
        if not _spaces:
            _leave_well()
        if found is None or found.service is not current or found.compatibility != compatibility:
            found = Blobs(current, space, compatibility, behind=True, refuse_when_sealed=refusing)
            _spaces[space, refusing] = found
        return found


def for_children(caches: str) -> None:
    """Lets the Python processes that this one starts use these of kiln's caches, too ("on", "inductor"); "": no more.

    torch's compile workers get this process's sys.path as their PYTHONPATH, other children its environment.
    """
    start = str(START)
    given = os.environ.get("PYTHONPATH")
    paths = [entry for entry in given.split(os.pathsep) if entry != start] if given else []
    sys.path[:] = [entry for entry in sys.path if entry != start]
    if caches:
        paths.insert(0, start)
        sys.path.insert(1, start)  # before the standard library's, after the folder of the program
        os.environ["KILN_CACHES"] = caches
    else:
        os.environ.pop("KILN_CACHES", None)
    if paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    else:
        os.environ.pop("PYTHONPATH", None)


def show_triton_files() -> None:
    """Names the private directory of Triton's files in TRITON_CACHE_DIR, where Inductor looks for a kernel's cubin.

    Inductor then launches the kernel without Triton, and the graph that it stores has the cubin.
    Only os.environ has this value. A program that this process starts with its own environment gets the variable as it
    was before. A Python process that gets a copy of os.environ sets it back by sitecustomize.py.
    """
    place, now = str(triton_files.path()), os.environ.get(_TRITON)
    if now == place:
        return
    if now is None:
        os.environ.pop(_TRITON_BEFORE, None)
    elif not _is_of_kiln(now):
        os.environ[_TRITON_BEFORE] = now
    os.environ[_TRITON] = place
    before = os.environ.get(_TRITON_BEFORE)
    if before is None:  # the functions of C, which os.environ does not see
        os.unsetenv(_TRITON)
    else:
        os.putenv(_TRITON, before)
    os.unsetenv(_TRITON_BEFORE)


def hide_triton_files() -> None:
    """Sets TRITON_CACHE_DIR back to what it was before show_triton_files()."""
    if _is_of_kiln(os.environ.get(_TRITON, "")):
        del os.environ[_TRITON]
        if (before := os.environ.pop(_TRITON_BEFORE, None)) is not None:
            os.environ[_TRITON] = before


def _is_of_kiln(directory: str) -> bool:
    return re.fullmatch(re.escape(triton_files.prefix) + "[a-z0-9_]{8}", pathlib.Path(directory).name) is not None


def _leave_well() -> None:
    """Has _leave() called at the end of this process, also if multiprocessing forked it, and of such children."""
    atexit.register(_leave)  # before kiln closes its services
    util.Finalize(None, _leave, exitpriority=0)  # such a child runs no function of atexit
    util.register_after_fork(_leave, lambda leave: util.Finalize(None, leave, exitpriority=0))


def _leave() -> None:
    """Stores what is queued. Writes what the caches did into KILN_CACHES_REPORT, a folder, for `kiln wrap`."""
    global _left
    if _left == os.getpid():
        return
    _left = os.getpid()
    services = {id(blobs.service): blobs.service for blobs in _spaces.values() if not blobs.service.closed}
    for blobs in _spaces.values():
        if not blobs.service.closed:
            blobs.flush(_LAST_WAIT)
    folder = os.environ.get("KILN_CACHES_REPORT")
    if folder:
        spaces = [item for each in services.values() for item in json.loads(each.describe_blobs())]
        report = {"process": os.getpid(), "argv": sys.argv, "spaces": spaces}
        try:
            path = pathlib.Path(folder) / f"{os.getpid()}.json"
            path.with_suffix(".new").write_text(json.dumps(report))
            path.with_suffix(".new").rename(path)
        except OSError:  # the folder went with the command that reads it
            pass
