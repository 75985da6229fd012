"""The process's service: the one that kiln.ops, kiln.torch and the adapters of engines launch through."""

from __future__ import annotations

from typing import Any

from . import _kiln
from ._locks import Lock
from ._service import Service


class State:
    """State of the process. It lies in the extension module, which is never loaded twice."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.service: Service | None = None
        self.forget: list[Any] = []  # functions that drop kernels when the service changes


state: State = _kiln.__dict__.setdefault("_state", State())


def service() -> Service:
    """Returns the service that operators launch through.

    It is made at the first call from KILN_* and defaults, and again after it was closed.
    """
    with state.lock:
        if state.service is None or state.service.closed:
            state.service = Service()
        return state.service


def use_service(new: Service) -> None:
    """Makes operators launch through the service `new`, and drop the kernels that they hold.

    REQUIRES: no graph was captured yet.
    """
    with state.lock:
        state.service = new
    for forget in state.forget:
        forget()
