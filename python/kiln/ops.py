"""Operators by name, for arrays of torch, CuPy, JAX, numba and everything else with DLPack.

    import kiln

    y = kiln.ops.rms_norm(x, w)                       # a new array of x's library, on its current stream
    kiln.ops.rms_norm(x, w, eps=1e-5, out=y)          # into the caller's array

Every template on the template path whose manifest has [[bind]] gives operators. dir(kiln.ops) lists them, and
describe() has their inputs. Inputs come in the order of the signature or by name; outputs by name.
`stream=` says the stream. Outputs that are not given are arrays of the first input's library: torch and CuPy make
their own, and for other libraries a kiln.DeviceArray is returned, which they read through DLPack.
Operators launch through kiln.service().
"""

from __future__ import annotations

from typing import Any

from . import _default, _kiln, _operator
from ._errors import Code, Error
from ._locks import Lock

_known: dict[str, tuple[dict[str, Any], _kiln.Operator]] = {}  # with the description that the operator is made from
_made: list[_kiln.Operator] = []  # also those that a description of another service has replaced
_current: set[str] = set()  # the names whose description is that of the service
_lock = Lock()


def _forget() -> None:
    with _lock:
        _current.clear()
        made = list(_made)
    for operator in made:
        operator.forget()


_default.state.forget.append(_forget)


def describe(name: str) -> dict[str, Any]:
    """Inputs, outputs and rules of an operator, as in `kiln templates --json`. Raises Error for an unknown name."""
    return _operator.describe(_default.service(), name)[0]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    with _lock:
        if name not in _current:
            try:
                description = describe(name)
            except Error as error:
                if error.code == Code.unknown_template:
                    raise AttributeError(str(error)) from None
                raise
            if name not in _known or _known[name][0] != description:
                _known[name] = description, _operator.make(description, _default.service)
                _made.append(_known[name][1])
            _current.add(name)
        return _known[name][1]


def __dir__() -> list[str]:
    return sorted({"describe", *(one["name"] for one in _operator.describe(_default.service()))})
