"""Operators that run a chunked template for long sequences, and a recurrent template for the others.

    delta_rule       delta_chunk or delta_recurrent
    wkv7             dplr_chunk or wkv7_recurrent

delta_rule_pool and wkv7_pool have states in the slots of a pool.

The call is that of the recurrent operator. The chunked template takes a call when its manifest says so: `suits`, a name of
`let` in its [[bind]], is an expression over shapes and types with the measured threshold. Shapes are known on the host, so
a captured graph keeps its choice, and a call waits for nothing.
"""

from __future__ import annotations

import types
from typing import Any, NamedTuple

import torch

from . import _registry
from ._attention import _is_hopper
from ._generated import _concrete, _described, descriptions, operators, signature
from ._symbolic import DTYPES, FUNCTIONS, Shapes, compiled


class Pair(NamedTuple):
    """The two operators between which an operator picks. Its call is that of the recurrent one."""

    chunked: str
    recurrent: str
    hopper: bool  #: the chunked template is for Hopper alone


#: The operators by name. Where no chunked template is shipped, the recurrent one runs all calls.
PAIRS = {
    "delta_rule": Pair("delta_chunk", "delta_recurrent", True),
    "delta_rule_pool": Pair("delta_chunk_pool", "delta_recurrent_pool", True),
    "wkv7": Pair("dplr_chunk", "wkv7_recurrent", False),
    "wkv7_pool": Pair("dplr_chunk_pool", "wkv7_recurrent_pool", False),
}
#: launches of the operators that these are made of, by name; tests replace them
_kernels: dict[str, Any] = {
    name: _registry.real(f"kiln::{name}") for pair in PAIRS.values() for name in pair[:2] if name in operators
}


class Choice:
    """Says which calls the chunked operator takes."""

    def __init__(self, chunked: dict[str, Any], recurrent: dict[str, Any]) -> None:
        self.defaults = {o["name"]: o.get("default") for o in recurrent["inputs"]}
        self.names = [o["name"] for o in chunked["inputs"]]
        #: inputs of the recurrent operator that the chunked one has not got
        self.extra = [name for name in self.defaults if name not in self.names]
        #: for each tensor of the chunked operator its numbers of dimensions, its dimensions if they are unique, and its type
        self.tensors = [
            (o["name"], {len(extents) for extents in o["shapes"]}, o["shapes"][0] if len(o["shapes"]) == 1 else (), o["dtype"])
            for o in chunked["inputs"]
            if o["kind"] == "tensor"
        ]
        self.lets = [(let["name"], compiled(let["value"])) for let in chunked["let"]]

    def given(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The inputs by name, with defaults."""
        return self.defaults | dict(zip(self.defaults, arguments)) | named

    def suits(self, given: dict[str, Any]) -> bool:
        """True when the chunked template runs a call, and its manifest expects it to be faster."""
        if any(given[name] is not None and given[name] != self.defaults[name] for name in self.extra):
            return False
        known: dict[str, Any] = DTYPES | FUNCTIONS | given
        for name, ranks, extents, dtype in self.tensors:
            x = given[name]
            if x is None:
                continue
            if x.dim() not in ranks:
                return False
            known.setdefault(dtype, x.dtype)
            for extent, size in zip(extents, x.shape):
                known.setdefault(extent, size)
        for name, code in self.lets:
            known.setdefault(name, eval(code, {"__builtins__": {}}, known))
        return bool(known.get("suits", False))


def _runs_on(device: torch.device, pair: Pair) -> bool:
    """True when the chunked template has a kernel for the device."""
    return not pair.hopper or _is_hopper(device)


def _register(name: str, pair: Pair) -> Any:
    chunked, recurrent, _ = pair
    description = descriptions[recurrent] | {"name": name}
    choice = Choice(descriptions[chunked], description) if chunked in descriptions else None

    def launch(*arguments: Any, **named: Any) -> Any:
        if choice is not None and _runs_on(arguments[0].device, pair):
            given = choice.given(arguments, named)
            if choice.suits(given):
                return _kernels[chunked](*(given[one] for one in choice.names))
        return _kernels[recurrent](*arguments, **named)

    body = types.FunctionType(_described.__code__, globals(), name)
    body.__signature__ = signature(description)  # type: ignore[attr-defined]
    body.__annotations__ = {p.name: p.annotation for p in body.__signature__.parameters.values()}  # type: ignore[attr-defined]
    body.__annotations__["return"] = body.__signature__.return_annotation  # type: ignore[attr-defined]
    body.__doc__ = (
        f"Runs {chunked} where its template has a kernel for the device and the call, and the tokens of a sequence are enough; "
        f"otherwise {recurrent}, whose call it has.\n\n{description['call']} -> {description['out']}"
    )
    schema = torch.library.infer_schema(body, mutates_args=tuple(o["name"] for o in description["inputs"] if o["written"]))
    shapes = Shapes(description, lambda parameter, value: _concrete(description, parameter, value))
    return _registry.install(f"kiln::{name}", schema, body, launch, shapes, "CUDA")


choosing: dict[str, Any] = {name: _register(name, pair) for name, pair in PAIRS.items()}
