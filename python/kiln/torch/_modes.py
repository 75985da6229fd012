"""Which service operators launch through, and what each may do about a kernel that is not there: jit, warn, sealed."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from .. import _kiln
from .._errors import Code, Error, NotReady
from .._kiln import Kernel
from .._service import Service
from .._values import plan_text

MODES = ("jit", "warn", "sealed")


class State:
    """Of the process: in the extension, which is never loaded twice, as operators are of the process, too."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.service: Service | None = None
        self.modes: dict[str, str] = {}
        self.forget: list[Any] = []  # what lets go of kernels when the service changes
        self.specialize = False


state: State = _kiln.__dict__.setdefault("_torch_state", State())


def service() -> Service:
    """The one that operators launch through; made at the first need, from KILN_* and defaults."""
    with state.lock:
        if state.service is None or state.service.closed:
            state.service = Service()
        return state.service


def use_service(new: Service) -> None:
    """Lets operators launch through it from here on, and forget the kernels that they hold. Before any graph is captured."""
    with state.lock:
        state.service = new
    for forget in state.forget:
        forget()


def seal() -> None:
    """Seals the service: operators launch what is in memory from here on, and nothing is compiled or read, unless the service was told mode jit
    or warn."""
    service().seal()


def set_mode(operator: str, mode: str | None) -> None:
    """What one operator ("rms_norm", "mine::add_bias_gelu") does about a kernel that is not there, whatever the service's mode is. None: the
    service's. KILN_TORCH_MODES="rms_norm=jit,topk_gate=sealed" is the same for a whole process.

    jit compiles, also after the seal; warn does so with a warning; sealed loads what is on disk and never compiles.
    """
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode = {mode!r} for {operator}: expected one of {', '.join(MODES)}, or None")
    name = operator if "::" in operator else f"kiln::{operator}"
    with state.lock:
        if mode is None:
            state.modes.pop(name, None)
        else:
            state.modes[name] = mode


def mode_of(operator: str) -> str | None:
    return state.modes.get(operator)


def _from_environment() -> None:
    for entry in filter(None, (text.strip() for text in os.environ.get("KILN_TORCH_MODES", "").split(","))):
        operator, equals, mode = entry.partition("=")
        if not equals or mode.strip() not in MODES:
            raise ValueError(f"KILN_TORCH_MODES has {entry!r}: expected OPERATOR=MODE, with one of {', '.join(MODES)}")
        set_mode(operator.strip(), mode.strip())


_from_environment()


def on_device(device: int) -> contextlib.AbstractContextManager[Any]:
    """torch's primary context of that device, current in this thread."""
    return torch.cuda.device(device) if torch.cuda.is_available() else contextlib.nullcontext()


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def kernel(operator: str, template: str, device: int, parameters: Mapping[str, Any]) -> Kernel:
    """The kernel for an operator's call, as its mode allows. A stream capture refuses one that is not ready: warm up before."""
    current, mode = service(), mode_of(operator)
    with on_device(device):
        stream = torch.cuda.current_stream(device) if torch.cuda.is_available() else None
        if stream is not None and not _capturing():
            stream.query()  # a thread that the CUDA runtime has not seen yet has no context
        opened = current.open(template, device)
        if mode == "sealed":
            if _capturing():
                return opened.get(**parameters, stream=stream)
            try:
                current.prepare(_row(template, parameters), may_compile=False)
            except NotReady as error:
                raise NotReady(f"{operator} is sealed: {error}", Code.not_ready) from None
            return opened.get(**parameters, stream=stream)
        try:
            return opened.get(**parameters, stream=stream)
        except NotReady:
            if mode is None or _capturing():
                raise
        if mode == "warn":
            warnings.warn(f"{operator}: {template} {dict(parameters)} is compiled after the seal, as its mode (warn) allows", stacklevel=3)
        current.prepare(_row(template, parameters))
        return opened.get(**parameters, stream=stream)


def launch_again(device: int, error: Error, launch: Any) -> bool:
    """A launch that the driver refused because this thread has no context, or another device's: once more with the arrays' device."""
    if not isinstance(error, Error) or error.code not in (Code.driver, Code.no_driver) or not torch.cuda.is_available() or _capturing():
        return False
    if torch.cuda.current_device() == device:
        torch.cuda.current_stream(device).query()  # as above
    with torch.cuda.device(device):
        launch()
    return True


def _row(template: str, parameters: Mapping[str, Any]) -> str:
    return plan_text([{"template": template, **parameters}])
