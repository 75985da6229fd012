"""Makes operators that torch.compile, torch.export and CUDA graphs know from functions that launch kernels.

One body serves two callers. torch calls it with tensors, and launch() launches. The compiler calls it with
fake tensors, and launch() only checks that every parameter is a number; it touches neither driver nor cache.
Shapes are therefore stated once and cannot differ.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from .. import _default, _kiln
from .._errors import Code, Error
from . import _modes


def specialize(on: bool) -> None:
    """Says what happens when a template parameter would be a symbolic size while torch traces.

    False (the default): an Error (Code.invalid_value).
    True: torch guards on the value, and traces again for each other value.
    A size without a value while tracing (of a tensor made by nonzero, for example) is always an error.
    """
    _modes.state.specialize = on


class Template:
    """A template that an operator's body launches: launch((values of `parameters`...), *arguments).

    None for a parameter means its default.
    Kernels are kept by device and values, so that a call costs one look-up.
    """

    def __init__(self, name: str, parameters: str) -> None:
        self.name, self.parameters = name, tuple(parameters.split())
        self.operator = name
        self.launch = _kiln.Launcher(self._miss, _modes.launch_again)
        _default.state.forget.append(self.launch.forget)

    def for_operator(self, operator: str) -> Template:
        """A copy for one operator, whose mode decides about missing kernels."""
        out = Template(self.name, " ".join(self.parameters))
        out.operator = operator
        return out

    def _miss(self, device: int, values: tuple[Any, ...]) -> _kiln.Kernel:
        if len(values) > len(self.parameters):
            raise TypeError(f"{self.operator}: {len(values)} parameters for {self.name}, expected {', '.join(self.parameters)}")
        given = {name: value for name, value in zip(self.parameters, values) if value is not None}
        return _modes.kernel(self.operator, self.name, device, given)

    def check(self, values: tuple[Any, ...], *arguments: Any) -> None:
        """Stands in for launch while tracing. A symbolic size may be an argument, never a parameter."""
        for name, value in zip(self.parameters, values):
            if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
                concrete(self.operator, self.name, name, value)


def concrete(operator: str, template: str, name: str, value: Any) -> None:
    """Makes a symbolic value of a template's parameter a number, where that is allowed. Raises Error otherwise."""
    from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

    if not value.node.expr.free_symbols:
        return  # an earlier guard has made the size a number already
    if _modes.state.specialize and not has_free_unbacked_symbols(value):
        int(value)  # makes torch guard on the value
        return
    raise Error(
        f"{operator}: parameter {name} of template {template} would be the symbolic size {value}. A parameter is compiled into the "
        f"kernel and must be a number: keep that dimension static (torch._dynamo.mark_static, a size that weights have, "
        f"dynamic=None), or let kiln.torch.specialize(True) guard on its value",
        Code.invalid_value,
    )


class Registered(NamedTuple):
    overload: Any
    schema: str
    body: Callable[..., Any]
    real: Callable[..., Any]  # the body, bound to its launches
    library: Any


#: keeps the templates that operators launch alive
_launched: list[Template] = []
#: Operators by qualified name. They lie in the extension module, which is never reloaded: an operator stays
#: as long as the process, even when this module is imported again.
_operators: dict[str, Registered] = _kiln.__dict__.setdefault("_torch_operators", {})
_libraries: dict[str, torch.library.Library] = _kiln.__dict__.setdefault("_torch_libraries", {})


def operator(
    name: str, *templates: Template | str, parameters: str = "", mutates: Iterable[str] = (), dispatch_key: str = "CUDA"
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that makes the operator torch.ops.NAMESPACE.NAME from a body, and returns the operator.

        @kiln.torch.operator("mine::add_bias_gelu", "add_bias_gelu", parameters="T D")
        def add_bias_gelu(launch, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            launch((x.dtype, x.shape[1]), out, x, bias, x.shape[0], x.stride(0), out.stride(0))
            return out

    The body takes one launch for each template, then the operator's arguments. Their annotations are the
    schema, as torch.library.infer_schema reads them. `parameters` names the values of the launch's tuple. The
    body allocates what it returns, returns none of its inputs, and writes only to the inputs in `mutates`.
    Operators are for inference: nothing is differentiated.

    An operator is registered once per process and kept. Registering a changed body under the same name and
    schema replaces the body. Another schema under the same name raises Error (Code.invalid_argument).
    """
    handles = tuple(
        t.for_operator(name) if isinstance(t, Template) else Template(t, parameters).for_operator(name) for t in templates
    )

    _launched.extend(handles)

    def register(body: Callable[..., Any]) -> Any:
        signature = inspect.signature(body, eval_str=True)
        arguments = list(signature.parameters.values())[len(handles) :]

        def shape_of_body() -> None: ...  # infer_schema reads the body's signature without the launches

        shape_of_body.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
        shape_of_body.__annotations__ = {p.name: p.annotation for p in arguments} | {"return": signature.return_annotation}
        schema = torch.library.infer_schema(shape_of_body, mutates_args=tuple(mutates))
        real = functools.partial(body, *(t.launch for t in handles))
        fake = functools.partial(body, *(t.check for t in handles))
        return install(name, schema, body, real, fake, dispatch_key)

    return register


def install(name: str, schema: str, body: Callable[..., Any], real: Any, fake: Any, dispatch_key: str) -> Any:
    """Registers an operator with torch, or replaces the body of a registered one. Returns its overload."""
    namespace, _, short = name.partition("::")
    known = _operators.get(name)
    if known and known.schema != schema:
        raise Error(
            f"{name} is registered already, with the schema {known.schema}, not {schema}: an operator's schema cannot change in a process",
            Code.invalid_argument,
        )
    if known and known.body.__code__ == body.__code__ and known.body.__closure__ == body.__closure__ is None:
        return known.overload  # the body's module was imported again
    library = _libraries.get(namespace)
    if library is None:
        library = _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
    if not known:
        library.define(short + schema, tags=(torch.Tag.pt2_compliant_tag,))
    again = {"allow_override": True} if known else {}
    library.impl(short, real, dispatch_key, **again)
    torch.library.register_fake(name, fake, lib=library, **again)
    overload = getattr(getattr(torch.ops, namespace), short).default
    overload.__doc__ = inspect.getdoc(body)
    _operators[name] = Registered(overload, schema, body, real, library)
    return overload


def real(name: str) -> Callable[..., Any]:
    """The function that a registered operator calls with tensors."""
    return _operators[name].real


def implement(dispatch_key: str) -> None:
    """Registers every operator for another dispatch key, too.

    Tests use it with a fake driver whose device memory is host memory.
    """
    for name, known in _operators.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, dispatch_key):
            known.library.impl(name.partition("::")[2], known.real, dispatch_key)
