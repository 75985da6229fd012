"""The shipped operators as operators of torch. Schema, shapes and checks come from [[bind]] of each manifest."""

from __future__ import annotations

import contextlib
import inspect
import types
import warnings
from typing import Any

import torch

from .. import _default, _kiln, _operator
from .._errors import Error, NotReady
from .._service import Service
from . import _modes, _registry
from ._symbolic import DTYPES, Shapes

#: the annotation of an operand, by kind
_ANNOTATIONS: dict[str, Any] = {
    "tensor": torch.Tensor,
    "integer": int,
    "boolean": bool,
    "number": float,
    "numbers": list[float],
    "dtype": torch.dtype,
    "choice": str,
}


def _parameter(operand: dict[str, Any]) -> inspect.Parameter:
    annotation, default = _ANNOTATIONS[operand["kind"]], operand.get("default")
    if operand["kind"] == "dtype":
        default = DTYPES.get(default, default)
    if operand["optional"] and default is None:
        annotation = annotation | None
    elif default is None:
        default = inspect.Parameter.empty
    return inspect.Parameter(operand["name"], inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


def signature(description: dict[str, Any]) -> inspect.Signature:
    """The operator as torch.library.infer_schema reads it."""
    count = len(description["outputs"])
    returns = None if not count else torch.Tensor if count == 1 else tuple[(torch.Tensor,) * count]  # type: ignore[misc]
    return inspect.Signature([_parameter(o) for o in description["inputs"]], return_annotation=returns)


def _concrete(description: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
        _registry.concrete(f"kiln::{description['name']}", description["template"], name, value)


class _Mode:
    """The mode of an operator, which says what happens when a kernel is not there (kiln.torch.set_mode)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operator: Any = None

    def failed(self, error: Error, device: int) -> contextlib.AbstractContextManager[Any] | None:
        mode = _modes.mode_of(self.name)
        if isinstance(error, NotReady) and mode is not None and not _modes._capturing():
            if mode == "sealed":
                raise NotReady(f"{self.name} is sealed: {error}", error.code) from None
            if mode == "warn":
                kernel = str(error).partition(" is not in memory")[0].removeprefix("sealed: ")
                warnings.warn(f"{self.name}: {kernel} is compiled after the seal, as its mode (warn) allows", stacklevel=2)
            return self._past_seal()
        return _operator.in_its_context(error, device)

    @contextlib.contextmanager
    def _past_seal(self) -> Any:
        self.operator.allow(False, True)
        try:
            yield
        finally:
            self.follow()

    def follow(self) -> None:
        """Lets the operator do what its mode says."""
        sealed = _modes.mode_of(self.name) == "sealed"
        self.operator.allow(sealed, sealed)


def _register(description: dict[str, Any]) -> Any:
    name = f"kiln::{description['name']}"
    mode = _Mode(name)
    mode.operator = _operator.make(description, _default.service, failed=mode.failed)
    _default.state.forget.append(mode.operator.forget)
    _modes.state.followers[name] = mode.follow
    mode.follow()
    return _install(name, description, mode.operator)


def _install(name: str, description: dict[str, Any], real: Any) -> Any:
    shapes = Shapes(description, lambda parameter, value: _concrete(description, parameter, value))
    body = types.FunctionType(_described.__code__, globals(), description["name"])
    body.__signature__ = signature(description)  # type: ignore[attr-defined]
    body.__annotations__ = {p.name: p.annotation for p in body.__signature__.parameters.values()}  # type: ignore[attr-defined]
    body.__annotations__["return"] = body.__signature__.return_annotation  # type: ignore[attr-defined]
    body.__doc__ = f"{description['doc']}\n\n{description['call']} -> {description['out'] or 'nothing'}"
    schema = torch.library.infer_schema(body, mutates_args=tuple(o["name"] for o in description["inputs"] if o["written"]))
    return _registry.install(name, schema, body, real, shapes, "CUDA")


def into(name: str) -> Any:
    """The operator kiln::NAME_into, which writes the first result of kiln::NAME into its argument `out`.

    `out` comes before the arguments that have defaults. The operator returns the other results.
    """
    description = descriptions[name]
    inputs, (first, *others) = description["inputs"], description["outputs"]
    at = next((i for i, o in enumerate(inputs) if o["optional"] or o.get("default") is not None), len(inputs))
    own = {"name": f"{name}_into", "inputs": [*inputs[:at], first | {"name": "out"}, *inputs[at:]], "outputs": others}
    operator = _registry.real(f"kiln::{name}")

    def real(*given: Any) -> Any:
        results = operator(*given[:at], *given[at + 1 :], **{first["name"]: given[at]})
        return results[1] if len(others) == 1 else results[1:]

    return _install(f"kiln::{name}_into", description | own, real)


def _described() -> None: ...  # a body for infer_schema, which reads its signature alone


def _shipped() -> dict[str, dict[str, Any]]:
    """Describes the operators of the shipped templates. No variable and no file of the user has a part in it."""
    with Service(hermetic=True) as service:
        return {one["name"]: one for one in _operator.describe(service)}


#: the descriptions of the shipped operators by name (kiln.ops.describe). They stay when this module is imported again.
descriptions: dict[str, dict[str, Any]] = _kiln.__dict__.get("_torch_descriptions") or _shipped()
#: the operators by name
operators: dict[str, Any] = _kiln.__dict__.get("_torch_generated") or {n: _register(d) for n, d in descriptions.items()}
_kiln.__dict__.update(_torch_descriptions=descriptions, _torch_generated=operators)
