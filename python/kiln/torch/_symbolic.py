"""Shapes of operators while torch traces, where a size may be a symbol.

An operator's description says shapes and rules as expressions of the manifest. Here they are evaluated over torch's
symbolic numbers, which kiln's library does not know. The library does the same over numbers in every call.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import torch

from .._errors import Code, Error
from .._values import dtype_names

_TOKEN = re.compile(r"\s*([A-Za-z_][\w.]*|\d+|&&|\|\||[<>=!]=|.)")
_WORDS = {"&&": " and ", "||": " or ", "!": "NOT@", "/": "//", "true": "True", "false": "False"}
DTYPES: dict[str, torch.dtype] = {
    kiln: getattr(torch, name) for name, kiln in dtype_names.items() if isinstance(getattr(torch, name, None), torch.dtype)
}


def _python(tokens: list[str]) -> str:
    """The expression of these tokens in Python."""
    depth, question, colon, pending = 0, -1, -1, 0
    for i, token in enumerate(tokens):
        depth += (token == "(") - (token == ")")
        if depth:
            continue
        if token == ",":  # arguments of a function, each with its own choices
            return f"{_python(tokens[:i])},{_python(tokens[i + 1 :])}"
        if token == "?":
            question, pending = (i if question < 0 else question), pending + 1
        elif token == ":" and question >= 0:
            pending -= 1
            if not pending and colon < 0:
                colon = i
    if question >= 0:
        condition, yes, no = tokens[:question], tokens[question + 1 : colon], tokens[colon + 1 :]
        return f"({_python(yes)} if {_python(condition)} else {_python(no)})"
    out, i = "", 0
    while i < len(tokens):
        token = tokens[i]
        if token == "(":
            end, depth = i, 0
            while True:
                depth += (tokens[end] == "(") - (tokens[end] == ")")
                if not depth:
                    break
                end += 1
            out += f"({_python(tokens[i + 1 : end])})"
            i = end
        else:
            choice = "." in token and f'"{token.partition(".")[2]}"'  # a choice of a parameter: its name
            out += choice or _WORDS.get(token, token)
        i += 1
    return out


def _parsed(text: str) -> ast.Expression:
    """The expression in Python."""
    return ast.parse(_python(_TOKEN.findall(text)).strip(), f"<{text}>", "eval")


@functools.cache
def compiled(text: str) -> Any:
    """The expression as Python code."""
    return compile(_parsed(text), f"<{text}>", "eval")


@functools.cache
def _is_choice(text: str) -> bool:
    """True for an expression whose value is one of the numbers that it names. It compiles no size into a kernel."""

    def numbers(node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) or (isinstance(node, ast.IfExp) and numbers(node.body) and numbers(node.orelse))

    return numbers(_parsed(text).body)


class _Not:
    """C's "!", which binds tighter than Python's "not": !x is NOT@x."""

    def __matmul__(self, x: Any) -> bool:
        return not x


def _largest(*values: Any) -> Any:
    return functools.reduce(torch.sym_max, values)


def _smallest(*values: Any) -> Any:
    return functools.reduce(torch.sym_min, values)


#: the functions of expressions. gcd, next_pow2 and log2 make a symbol a number, on which torch then guards.
FUNCTIONS: dict[str, Any] = {
    "NOT": _Not(),
    "present": lambda x: x is not None,
    "dim": lambda x, i: x.shape[i],
    "rank": lambda x: x.dim(),
    "numel": lambda x: x.numel(),
    "dtype": lambda x: x.dtype,
    "sizeof": lambda dtype: dtype.itemsize,
    "stride": lambda x, i: x.stride(i),
    "min": _smallest,
    "max": _largest,
    "clamp": lambda x, low, high: _smallest(_largest(x, low), high),
    "ceil_div": lambda a, b: (a + b - 1) // b,
    "round_up": lambda a, b: (a + b - 1) // b * b,
    "gcd": lambda a, b: math.gcd(int(a), int(b)),
    "next_pow2": lambda a: 1 << max(int(a) - 1, 0).bit_length(),
    "log2": lambda a: int(a).bit_length() - 1,
}


class Shapes:
    """Checks the tensors of a traced call, and makes its outputs. Nothing is launched.

    concrete(name, value) is called for each number that would be compiled into the kernel.
    """

    def __init__(self, description: dict[str, Any], concrete: Callable[[str, Any], None]) -> None:
        self.description, self.concrete = description, concrete

    def __call__(self, *given: Any, **named: Any) -> Any:
        return _Call(self.description, self.concrete).run(given, named)


class _Names(dict[str, Any]):
    """The names of a call. A `let` is computed when an expression first reads it.

    Torch guards on each size that an expression compares. Some lets only choose a kernel, and no shape reads them.
    """

    def __init__(self, names: dict[str, Any], lets: list[dict[str, Any]]) -> None:
        super().__init__(names)
        self.lets = {let["name"]: let["value"] for let in lets}

    def value(self, text: str) -> Any:
        return eval(compiled(text), {"__builtins__": {}}, self)

    def __missing__(self, name: str) -> Any:
        self[name] = self.value(self.lets[name])  # KeyError: a name that is not known
        return self[name]


class _Call:
    """One traced call. Threads trace at the same time, so nothing of a call lies in Shapes."""

    def __init__(self, description: dict[str, Any], concrete: Callable[[str, Any], None]) -> None:
        self.description, self.concrete = description, concrete
        scalars = {o["name"] for o in description["inputs"] if o["kind"] == "dtype"}
        #: parameters that an input gives, such as OUT of "out_dtype: OUT": no tensor's dtype decides them
        self.late = {p["name"] for p in description["parameters"] if p["value"] in scalars}

    def run(self, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        inputs = self.description["inputs"]
        values = {o["name"]: o.get("default") for o in inputs}
        values |= dict(zip(values, given)) | named
        values = {o["name"]: DTYPES.get(v, v) if o["kind"] == "dtype" else v for o, v in zip(inputs, values.values())}
        self.known = _Names(DTYPES | FUNCTIONS | values, self.description["let"])
        self.leading: tuple[Any, ...] | None = None
        for operand in inputs:
            if operand["kind"] == "tensor" and values[operand["name"]] is not None:
                self._take(operand, values[operand["name"]])
        for operand in inputs:
            if operand["kind"] == "tensor" and values[operand["name"]] is not None:
                if operand["dtype"] not in self.late:
                    self._check_dtype(operand, values[operand["name"]])
                self._check_shape(operand, values[operand["name"]])
        for rule in self.description["require"]:
            if not self._value(rule["expr"]):
                self._refuse(re.sub(r"\{([^{}]+)\}", lambda name: str(self._value(name[1])), rule["message"]))
        self._parameters(values)
        for operand in inputs:
            if operand["kind"] == "tensor" and values[operand["name"]] is not None and operand["dtype"] in self.late:
                self._check_dtype(operand, values[operand["name"]])
        first = next(v for v in values.values() if isinstance(v, torch.Tensor))
        made = [self._make(output, first) for output in self.description["outputs"]]
        return made[0] if len(made) == 1 else tuple(made) if made else None

    def _value(self, text: str) -> Any:
        return self.known.value(text)

    def _refuse(self, message: str) -> None:
        raise Error(f"{self.description['name']}: {message}", Code.invalid_argument)

    def _take(self, operand: dict[str, Any], x: torch.Tensor) -> None:
        """Takes the names of dimensions and dtypes from the first tensor that has them."""
        if operand["dtype"] not in self.late:
            self.known.setdefault(operand["dtype"], x.dtype)
        if len(operand["shapes"]) > 1:
            return
        extents = operand["shapes"][0]
        named = extents[1:] if extents[:1] == ["..."] else extents
        if x.dim() < len(named) or (named == extents and x.dim() != len(named)):
            self._refuse_shape(operand, x)
        if named != extents and self.leading is None:
            self.leading = tuple(x.shape[: x.dim() - len(named)])
        for name, size in zip(named, x.shape[x.dim() - len(named) :]):
            if name.isidentifier() and name not in self.known.lets:
                self.known.setdefault(name, size)

    def _check_dtype(self, operand: dict[str, Any], x: torch.Tensor) -> None:
        wanted = self.known[operand["dtype"]] if operand["dtype"] != "any" else x.dtype
        if x.dtype != wanted and (x.dtype, wanted) != (torch.bool, torch.uint8):  # kiln takes a boolean for a byte
            self._refuse(f"{operand['name']} is {_described(x)}, expected {wanted}")

    def _check_shape(self, operand: dict[str, Any], x: torch.Tensor) -> None:
        if not any(self._has(x, extents) for extents in operand["shapes"]):
            self._refuse_shape(operand, x)

    def _has(self, x: torch.Tensor, extents: list[str]) -> bool:
        named = extents[1:] if extents[:1] == ["..."] else extents
        before = x.dim() - len(named)
        if before < 0 or (named == extents and before) or (named != extents and tuple(x.shape[:before]) != self.leading):
            return False
        return all(size == self._value(extent) for size, extent in zip(x.shape[before:], named))

    def _refuse_shape(self, operand: dict[str, Any], x: torch.Tensor) -> None:
        expected = " or ".join(f"[{', '.join(self._expected(extent) for extent in e)}]" for e in operand["shapes"])
        self._refuse(f"{operand['name']} is {_described(x)}, expected {expected}")

    def _expected(self, extent: str) -> str:
        """The extent and, where it is known, its value: "H = 512"."""
        if extent == "...":
            return extent
        try:
            value = self._value(extent)
        except Exception:  # the value only explains a refusal
            return extent
        return extent if str(value) == extent else f"{extent} = {value}"

    def _parameters(self, values: dict[str, Any]) -> None:
        """Computes the parameters that are numbers. They are the last names that outputs read.

        A launch picks the member of a family by a size that may differ from call to call, so that number stays a symbol.
        """
        for parameter in self.description["parameters"]:
            name, text = parameter["name"], parameter["value"]
            if parameter["given_by"] is not None and values[parameter["given_by"]] is None:
                text = None
            if parameter["kind"] == "dtype":
                self.known.setdefault(name, self._value(text or parameter["default"]))
            elif text is not None and parameter["kind"] == "int" and not parameter["family"]:
                if _is_choice(text):  # torch would guard on the sizes that it is chosen by
                    self.known.lets.setdefault(name, text)
                    continue
                self.concrete(name, self._value(text))
                if name not in self.known.lets:
                    self.known.setdefault(name, self._value(text))

    def _make(self, output: dict[str, Any], like: torch.Tensor) -> torch.Tensor:
        extents, dtype = output["shapes"][0], self._value(output["dtype"])
        named = extents[1:] if extents[:1] == ["..."] else extents
        shape = [*(self.leading or () if named != extents else ()), *map(self._value, named)]
        if output["strides"]:
            return torch.empty_strided(shape, [self._value(s) for s in output["strides"]], dtype=dtype, device=like.device)
        return torch.empty(shape, dtype=dtype, device=like.device)


def _described(x: torch.Tensor) -> str:
    return f"{dtype_names.get(str(x.dtype).rpartition('.')[2], x.dtype)} {list(x.shape)}"
