"""Operators as functions of tvm-ffi (apache-tvm-ffi), and as modules that tvm-ffi loads without kiln's Python package.

    import kiln.tvm_ffi

    rms_norm = kiln.tvm_ffi.function("rms_norm")            # a tvm_ffi.Function
    y = rms_norm(x, w, 1e-5)                                # on torch's current stream; torch allocates y
    kiln.tvm_ffi.export("ops", ["rms_norm", "act_and_mul"]) # ops/kiln.so, for tvm_ffi.load_module() in Python and C++

A function takes inputs in the order of the operator's signature, then outputs. None leaves one out, and so does a call
with fewer arguments. The result is None when all outputs are given, else the allocated tensor or an array of them.
"""

from __future__ import annotations

import numbers
import os
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from . import _default, _kiln, _operator, _tvm_module

#: an argument of a function: an operand's name, several names that get the same value, or None for an ignored argument
Argument = str | tuple[str, ...] | None

_default.state.forget.append(_kiln.tvm_ffi_forget)


def signature(
    name: str, arguments: Iterable[Argument] | None = None, constants: Mapping[str, Any] | None = None, service: Any = None
) -> str:
    """The text that says which argument of a function is which operand of an operator (python/tvm_ffi/call.hpp).

    Raises ValueError for a name that is no operand, and Error for an unknown operator.
    """
    found = _operator.describe(service or _default.service(), name)[0]
    inputs, outputs = ([o["name"] for o in found[part]] for part in ("inputs", "outputs"))
    order = [*inputs, *outputs] if arguments is None else list(arguments)
    listed = [(each,) if isinstance(each, str) else each or () for each in order]
    unknown = {one for each in listed for one in each} | set(constants or ())
    if unknown := unknown - {*inputs, *outputs}:
        raise ValueError(f"{name} has no operand {sorted(unknown)[0]!r}; operands: {' '.join([*inputs, *outputs])}")
    return "|".join(
        [
            f"{found['template']}.{found['name']}",
            ",".join(inputs),
            ",".join(outputs),
            ",".join("+".join(each) or "-" for each in listed),
            ",".join(f"{operand}={_constant(value)}" for operand, value in (constants or {}).items()),
        ]
    )


def function(name: str, arguments: Iterable[Argument] | None = None, **constants: Any) -> Any:
    """The operator as a tvm_ffi.Function, which launches through kiln.service().

    - arguments: the operand of each argument. `["out", "x", "weight", "eps", None]` takes FlashInfer's rmsnorm(out,
      input, weight, eps, enable_pdl). Without it: inputs, then outputs.
    - constants: operands with the same value in each call, such as gemma=True.

    Needs apache-tvm-ffi 0.1.11 or newer. Raises ValueError for a name that is no operand, and Error for an unknown
    operator.
    """
    import tvm_ffi

    text = signature(name, arguments, constants)
    description = _operator.describe(_default.service(), text.partition("|")[0])[0]

    def resolve(device: int) -> Any:
        return _operator.opened(_default.service(), description, device)

    wrap = tvm_ffi.Function.__from_extern_c__(_kiln.tvm_ffi_wrap)
    return wrap(_kiln.tvm_ffi_function(text, resolve))


def export(
    directory: str | os.PathLike[str],
    operators: str | os.PathLike[str] | Iterable[str] | Mapping[str, Any],
    *,
    name: str = "kiln",
    library: str | None = None,
) -> pathlib.Path:
    """Writes DIRECTORY/NAME.so, which tvm_ffi.load_module() loads in Python and C++. Returns its path.

    - operators: names of operators. Or a path of a plan: the operators of its templates are taken, and the plan is
      copied to NAME.toml beside the module, for `kiln prewarm`. Or a mapping from a function's name to an operator's
      name, to a text of signature(), or to '!' and an error that each call raises.
    - library: libkiln's path on the machine that loads the module, absolute or relative to the module's directory.
      Without it the module opens KILN_LIBRARY, a libkiln that the process has, or what the loader finds.

    Needs no compiler and no tvm-ffi. Raises ValueError for more than 48 functions and for names that do not fit.
    """
    path = pathlib.Path(directory) / f"{name}.so"
    if isinstance(operators, (str, os.PathLike)):
        plan = pathlib.Path(operators).read_text()
        templates = set(re.findall(r"""^\s*template\s*=\s*["'](\w+)["']""", plan, re.M))
        found = _operator.describe(_default.service())
        operators = [one["name"] for one in found if one["template"] in templates]
        if not operators:
            raise ValueError(f"no template of the plan has an operator; templates: {' '.join(sorted(templates))}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".toml").write_text(plan)
    if not isinstance(operators, Mapping):
        operators = {one.rpartition(".")[2]: one for one in operators}
    texts = {to: one if "|" in one or one.startswith("!") else signature(one) for to, one in operators.items()}
    _tvm_module.write(path, texts, library or "")
    return path


def _constant(value: Any) -> str:
    if isinstance(value, numbers.Integral):
        return f"i:{int(value)}"
    if isinstance(value, numbers.Real):  # a float of numpy, too, whose repr() is no number
        return f"f:{float(value)!r}"
    if not isinstance(value, str) or set(value) & set(",|"):
        raise ValueError(f"{value!r} cannot be a constant: expected a number, a boolean or a text")
    return f"t:{value}"
