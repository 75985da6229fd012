"""Operators that run a chunked template for long sequences, and a recurrent template for the others.

    delta_rule       delta_chunk, delta_chunk_mma or delta_recurrent
    wkv7             dplr_chunk or wkv7_recurrent

delta_rule_pool and wkv7_pool have states in the slots of a pool.

The call is that of the recurrent operator. A chunked template takes a call when its manifest says so: `suits`, a name of
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


class Members(NamedTuple):
    """The operators among which an operator picks. The call is that of the recurrent one."""

    chunked: tuple[str, ...]  #: the first one that takes a call runs it; they have the same inputs
    recurrent: str


#: The operators by name. Where no chunked template is shipped, the recurrent one runs all calls.
MEMBERS = {
    "delta_rule": Members(("delta_chunk", "delta_chunk_mma"), "delta_recurrent"),
    "delta_rule_pool": Members(("delta_chunk_pool", "delta_chunk_mma_pool"), "delta_recurrent_pool"),
    "wkv7": Members(("dplr_chunk",), "wkv7_recurrent"),
    "wkv7_pool": Members(("dplr_chunk_pool",), "wkv7_recurrent_pool"),
}
#: operators whose templates are for Hopper alone
HOPPER = ("delta_chunk", "delta_chunk_pool")
#: launches of the operators that these are made of, by name; tests replace them
_kernels: dict[str, Any] = {
    name: _registry.real(f"kiln::{name}")
    for members in MEMBERS.values()
    for name in (*members.chunked, members.recurrent)
    if name in operators
}


class Choice:
    """Says which chunked operator takes a call."""

    def __init__(self, chunked: dict[str, dict[str, Any]], recurrent: dict[str, Any]) -> None:
        """`chunked` has the descriptions of at least one operator, by name; they have the same inputs."""
        inputs = next(iter(chunked.values()))["inputs"]
        self.defaults = {o["name"]: o.get("default") for o in recurrent["inputs"]}
        self.names = [o["name"] for o in inputs]
        #: inputs of the recurrent operator that the chunked ones have not got
        self.extra = [name for name in self.defaults if name not in self.names]
        #: for each tensor of the chunked operators its numbers of dimensions, its dimensions if they are unique, and its type
        self.tensors = [
            (o["name"], {len(extents) for extents in o["shapes"]}, o["shapes"][0] if len(o["shapes"]) == 1 else (), o["dtype"])
            for o in inputs
            if o["kind"] == "tensor"
        ]
        self.lets = {name: [(let["name"], compiled(let["value"])) for let in one["let"]] for name, one in chunked.items()}

    def given(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The inputs by name, with defaults."""
        return self.defaults | dict(zip(self.defaults, arguments)) | named

    def pick(self, given: dict[str, Any], names: list[str]) -> str | None:
        """The first chunked operator of `names` that runs a call, and is expected by its manifest to be faster; or None."""
        if any(given[name] is not None and given[name] != self.defaults[name] for name in self.extra):
            return None
        known: dict[str, Any] = DTYPES | FUNCTIONS | given
        for name, ranks, extents, dtype in self.tensors:
            x = given[name]
            if x is None:
                continue
            if x.dim() not in ranks:
                return None
            known.setdefault(dtype, x.dtype)
            for extent, size in zip(extents, x.shape):
                known.setdefault(extent, size)
        for name in names:
            own = dict(known)
            for let, code in self.lets[name]:
                own.setdefault(let, eval(code, {"__builtins__": {}}, own))
            if own.get("suits", False):
                return name
        return None


def _runs_on(device: torch.device, name: str) -> bool:
    """True when the template of a chunked operator has a kernel for the device."""
    return name not in HOPPER or _is_hopper(device)


def _register(name: str, members: Members) -> Any:
    recurrent = members.recurrent
    description = descriptions[recurrent] | {"name": name}
    chunked = [one for one in members.chunked if one in descriptions]
    choice = Choice({one: descriptions[one] for one in chunked}, description) if chunked else None

    def launch(*arguments: Any, **named: Any) -> Any:
        if choice is not None:
            here = [one for one in chunked if _runs_on(arguments[0].device, one)]
            given = choice.given(arguments, named)
            picked = choice.pick(given, here) if here else None
            if picked is not None:
                return _kernels[picked](*(given[one] for one in choice.names))
        return _kernels[recurrent](*arguments, **named)

    body = types.FunctionType(_described.__code__, globals(), name)
    body.__signature__ = signature(description)  # type: ignore[attr-defined]
    body.__annotations__ = {p.name: p.annotation for p in body.__signature__.parameters.values()}  # type: ignore[attr-defined]
    body.__annotations__["return"] = body.__signature__.return_annotation  # type: ignore[attr-defined]
    body.__doc__ = (
        f"Runs {' or '.join(members.chunked)} where the template has a kernel for the device and the call, and the tokens of a "
        f"sequence are enough; otherwise {recurrent}, whose call it has.\n\n{description['call']} -> {description['out']}"
    )
    schema = torch.library.infer_schema(body, mutates_args=tuple(o["name"] for o in description["inputs"] if o["written"]))
    shapes = Shapes(description, lambda parameter, value: _concrete(description, parameter, value))
    return _registry.install(f"kiln::{name}", schema, body, launch, shapes, "CUDA")


choosing: dict[str, Any] = {name: _register(name, members) for name, members in MEMBERS.items()}
