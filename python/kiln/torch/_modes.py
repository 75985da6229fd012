"""The service that operators launch through, and the modes that say whether a missing kernel is made."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .. import _default, _kiln
from .._default import service
from .._errors import Code, Error, NotReady
from .._kiln import Kernel
from .._values import plan_text

MODES = ("jit", "warn", "sealed")


class State:
    """Modes of operators. They lie in the extension module, which is never loaded twice.

    Operators live as long as the process, so a reload of this module must not lose them.
    """

    def __init__(self) -> None:
        self.modes: dict[str, str] = {}
        self.specialize = False
        self.followers: dict[str, Callable[[], None]] = {}  # by operator: lets it do what its mode says


state: State = _kiln.__dict__.setdefault("_torch_state", State())


def seal() -> None:
    """Seals the service: operators then launch only kernels in memory, and nothing is compiled or read.

    A service that was told mode jit or warn keeps compiling.
    """
    service().seal()


def set_mode(operator: str, mode: str | None) -> None:
    """Sets the mode of one operator ("rms_norm", "mine::add_bias_gelu"), which overrides the service's mode.

    The mode says what happens when the operator's kernel is not there:
    - "jit" compiles it, also after the seal
    - "warn" does so with a warning
    - "sealed" loads it from disk and never compiles
    - None lets the service's mode decide

    KILN_TORCH_MODES="rms_norm=jit,topk_gate=sealed" sets modes for a whole process.
    Raises ValueError for another mode.
    """
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode = {mode!r} for {operator}: expected one of {', '.join(MODES)}, or None")
    name = operator if "::" in operator else f"kiln::{operator}"
    with _default.state.lock:
        if mode is None:
            state.modes.pop(name, None)
        else:
            state.modes[name] = mode
    if name in state.followers:
        state.followers[name]()


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
    """A context manager that makes the device current in torch. It does nothing without CUDA."""
    return torch.cuda.device(device) if torch.cuda.is_available() else contextlib.nullcontext()


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def kernel(operator: str, template: str, device: int, parameters: Mapping[str, Any]) -> Kernel:
    """The kernel for a call of an operator, made if the operator's mode allows it.

    While a stream captures, a kernel that is not ready raises NotReady: warm up before the capture.
    """
    current, mode = service(), mode_of(operator)
    with on_device(device):
        stream = torch.cuda.current_stream(device) if torch.cuda.is_available() else None
        if stream is not None and not _capturing():
            stream.query()  # gives a context to a thread that the CUDA runtime has not seen yet
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
            warnings.warn(
                f"{operator}: {template} {dict(parameters)} is compiled after the seal, as its mode (warn) allows", stacklevel=3
            )
        current.prepare(_row(template, parameters))
        return opened.get(**parameters, stream=stream)


def launch_again(device: int, error: Error, launch: Any) -> bool:
    """Repeats a launch that the driver refused because this thread had no context, or one of another device.

    The launch is repeated with the arrays' device current. Returns False, without a launch, for other errors
    and while a stream captures.
    """
    if (
        not isinstance(error, Error)
        or error.code not in (Code.driver, Code.no_driver)
        or not torch.cuda.is_available()
        or _capturing()
    ):
        return False
    if torch.cuda.current_device() == device:
        torch.cuda.current_stream(device).query()  # gives this thread a context, as in kernel()
    with torch.cuda.device(device):
        launch()
    return True


def _row(template: str, parameters: Mapping[str, Any]) -> str:
    return plan_text([{"template": template, **parameters}])
