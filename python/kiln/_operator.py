"""Operators as functions of arrays: from a description of the library to a callable."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

from . import _kiln
from ._errors import Code, Error
from ._service import Service


def describe(service: _kiln.Service, name: str | None = None) -> list[dict[str, Any]]:
    """Descriptions of one operator or of all: `operators` in docs/schema/templates.json."""
    return json.loads(service.describe_operators(name))  # type: ignore[no-any-return]


def make(
    description: dict[str, Any],
    service: Callable[[], Service],
    arch: str | None = None,
    failed: Callable[[Error, int], Any] | None = None,
) -> _kiln.Operator:
    """The operator as a function of arrays on any device. service() is asked when a device is used first.

    With `arch` calls obtain the image alone and launch nothing.
    After a call that raised an error, failed(error, device) may return a context manager: the call is made again in it.
    """

    def resolve(device: int, array: Any) -> Any:
        if arch is not None:
            return opened(service(), description, _kiln.DEVICE_NONE, arch)
        with on_device(device, array):
            return opened(service(), description, device if device >= 0 else _kiln.DEVICE_CURRENT)

    return _kiln.Operator(
        description["name"],
        [(o["name"], o["kind"]) for o in description["inputs"]],
        [(o["name"], o["kind"]) for o in description["outputs"]],
        resolve,
        failed or in_its_context,
    )


def opened(service: Service, description: dict[str, Any], device: int, arch: str | None = None) -> Any:
    """The operator of a service, as Service.open_operator() gives it.

    Raises Error when the service's operator has other operands than the description: with another template path, an
    operand could else be taken for another.
    """
    name = f"{description['template']}.{description['name']}"
    found = describe(service, name)[0]
    for part in ("inputs", "outputs"):
        had, has = ([(o["name"], o["kind"]) for o in one[part]] for one in (description, found))
        if had != has:
            raise Error(
                f"{description['name']}: the service's template has the {part} {_names(has)}, expected {_names(had)}; "
                f"use the template that the function was made for, or make the function again",
                Code.invalid_argument,
            )
    return service.open_operator(name, device, arch)


def _names(operands: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in operands)


def on_device(device: int, array: Any) -> contextlib.AbstractContextManager[Any]:
    """A context manager in which the device is current, by the means of the array's library."""
    if device >= 0 and (torch := sys.modules.get("torch")) and isinstance(array, torch.Tensor) and torch.cuda.is_available():
        stream = torch.cuda.current_stream(device)
        if not torch.cuda.is_current_stream_capturing():
            stream.query()  # gives a context to a thread that the CUDA runtime has not seen yet
        return torch.cuda.device(device)
    if device >= 0 and type(array).__module__.startswith("cupy"):
        return sys.modules["cupy"].cuda.Device(device)  # type: ignore[no-any-return]
    return contextlib.nullcontext()


def in_its_context(error: Error, device: int) -> contextlib.AbstractContextManager[Any] | None:
    """The context in which a call is made again that the driver refused: this thread had no context, or another
    device's.
    """
    torch = sys.modules.get("torch")
    if not isinstance(error, Error) or error.code not in (Code.driver, Code.no_driver) or torch is None or device < 0:
        return None
    if not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
        return None
    torch.cuda.current_stream(device).query()
    return torch.cuda.device(device)  # type: ignore[no-any-return]
