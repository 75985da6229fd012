"""A lock that a forked child finds free."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any


class Lock:
    """A lock for `with`, of one process.

    A thread of the parent may hold it at a fork. The child does not have that thread, and would wait for it for ever.
    What the lock guards must be usable at each point, because such a thread stops anywhere.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = self._lock  # the one to release: a fork by its holder does not change it
        _all.add(self)

    def __enter__(self) -> None:
        lock = self._lock
        lock.acquire()
        self._held = lock

    def __exit__(self, *_: Any) -> None:
        self._held.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


_all: weakref.WeakSet[Lock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in _all:
        lock._renew()


os.register_at_fork(after_in_child=_renew_all)
