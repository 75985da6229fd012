"""Settings that the adapters share: the service, the wait for a lease, and what a cached file depends on."""

from __future__ import annotations

import os
import platform
import sysconfig
import threading

from .._blobs import Blobs
from .._default import service

_lock = threading.Lock()
_spaces: dict[str, Blobs] = {}


def wait() -> float:
    """KILN_CACHES_WAIT: how many seconds a process waits for another one that makes the same entry. 120 unless set.

    After that it makes the entry for itself, so a producer that never finishes delays others once.
    """
    text = os.environ.get("KILN_CACHES_WAIT", "")
    try:
        return float(text) if text else 120.0
    except ValueError:
        raise ValueError(f"KILN_CACHES_WAIT = {text!r}: expected a number of seconds") from None


def machine() -> str:
    """The facts that compiled host code depends on."""
    return f"python {sysconfig.get_config_var('SOABI')}, {platform.machine()}, {' '.join(platform.libc_ver())}"


def blobs(space: str, compatibility: str) -> Blobs:
    """The space on the process's service: KILN_CACHE_DIR, KILN_CACHE_LAYERS and KILN_REMOTE say where it looks."""
    current = service()
    with _lock:
        found = _spaces.get(space)
        if found is None or found.service is not current or found.compatibility != compatibility:
            found = _spaces[space] = Blobs(current, space, compatibility)
        return found
