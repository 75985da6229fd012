"""FlashInfer's norms and gated activations on kiln, by modules in the place of its ahead-of-time kernels.

    python3 -c "import kiln.engines.flashinfer as f; f.install(); print(f.explain())"
    FLASHINFER_USE_CUDA_NORM=1 python3 serve.py

FlashInfer looks for `data/aot/NAME/NAME.so` in its package before it compiles. install() writes such modules, whose
functions take FlashInfer's arguments, eps included, and launch kiln's operators. Neither nvcc nor ninja is needed.
FlashInfer reads FLASHINFER_USE_CUDA_NORM: without it, norms use CuTe DSL where nvidia-cutlass-dsl is installed.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pathlib
import re
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .. import _tvm_module, tvm_ffi
from ._explain import VARIABLE, Explanation, is_off


class _Symbol(NamedTuple):
    """A function of a module: FlashInfer's parameters, and what kiln does with them."""

    parameters: str  #: as FlashInfer declares them
    operator: str = ""  #: empty: kiln has none, and a call raises an error
    arguments: tuple[tvm_ffi.Argument, ...] = ()
    constants: Mapping[str, Any] = types.MappingProxyType({})


_OUT = "TensorView out, TensorView input, TensorView weight, double eps, bool enable_pdl"
_ADD = "TensorView input, TensorView residual, TensorView weight, double eps, bool enable_pdl"
_NORM_IN_PLACE = (("x", "out"), "residual", "weight", "eps", None)
_E4M3 = {"out_dtype": "e4m3"}
_GATED = ("TensorView out, TensorView input, bool enable_pdl", "act_and_mul", ("out", "x", None))

_MODULES: dict[str, dict[str, _Symbol]] = {
    "norm": {
        "rmsnorm": _Symbol(_OUT, "rms_norm", ("out", "x", "weight", "eps", None)),
        "rmsnorm_quant": _Symbol(
            "TensorView out, TensorView input, TensorView weight, TensorView scale, double eps, bool enable_pdl",
            "rms_norm",
            ("out", "x", "weight", "scale", "eps", None),
            _E4M3,
        ),
        "fused_add_rmsnorm": _Symbol(_ADD, "fused_add_rms_norm", _NORM_IN_PLACE),
        "fused_add_rmsnorm_quant": _Symbol(
            "TensorView output, TensorView input, TensorView residual, TensorView weight, TensorView scale, double eps, "
            "bool enable_pdl",
            "fused_add_rms_norm",
            ("out", "x", "residual", "weight", "scale", "eps", None),
            _E4M3,
        ),
        "gemma_rmsnorm": _Symbol(_OUT, "rms_norm", ("out", "x", "weight", "eps", None), {"gemma": True}),
        "gemma_fused_add_rmsnorm": _Symbol(_ADD, "fused_add_rms_norm", _NORM_IN_PLACE, {"gemma": True}),
        "fused_add_rmsnorm_fp8_block_quant": _Symbol(""),
        "layernorm": _Symbol(""),
        "layernorm_quant": _Symbol(""),
        "fused_dit_layernorm": _Symbol(""),
        "fused_qk_rmsnorm_rope": _Symbol(""),
    },
    "silu_and_mul": {"silu_and_mul": _Symbol(*_GATED, {"act": "silu"})},
    "gelu_and_mul": {"gelu_and_mul": _Symbol(*_GATED, {"act": "gelu"})},
    "gelu_tanh_and_mul": {"gelu_tanh_and_mul": _Symbol(*_GATED, {"act": "gelu_tanh"})},
}


def install(directory: str | os.PathLike[str] | None = None, library: str | None = None) -> list[pathlib.Path]:
    """Writes the modules that kiln serves, and removes its modules that it does not serve now. Returns the files.

    - directory: where NAME/NAME.so is written. Without it: the place in FlashInfer's package, which must be writable.
    - library: libkiln's path for processes that have none loaded and no KILN_LIBRARY. Without it: this package's.

    A module of FlashInfer's own is never replaced. explain() says what was not written, and why.
    Raises ModuleNotFoundError without FlashInfer.
    """
    written = []
    for module, symbols in _MODULES.items():
        path = _path(module, directory)
        if _reason(module, directory):
            _remove(path)
            continue
        functions = {name: _signature(name, symbol) for name, symbol in symbols.items()}
        _tvm_module.write(path, functions, _tvm_module.loaded_library() if library is None else library)
        written.append(path)
    return written


def uninstall(directory: str | os.PathLike[str] | None = None) -> list[pathlib.Path]:
    """Removes the modules that install() wrote, and no others. Returns their files."""
    return [path for path in (_path(module, directory) for module in _MODULES) if _remove(path)]


def explain(directory: str | os.PathLike[str] | None = None) -> Explanation:
    """Which functions of FlashInfer's modules run on kiln, and why others do not."""
    out = Explanation()
    for module, symbols in _MODULES.items():
        reason = _reason(module, directory)
        if not reason and not _is_ours(_path(module, directory)):
            reason = "not installed: call kiln.engines.flashinfer.install()"
        if not reason and module == "norm" and _norms_are_cute():
            reason = "FLASHINFER_USE_CUDA_NORM is not 1, so FlashInfer uses CuTe DSL"
        for name, symbol in symbols.items():
            missing = "kiln has no operator for it" + ("" if reason else ": a call raises an error")
            out.add(f"{module}.{name}", symbol.operator or "none", reason if symbol.operator else missing)
    return out


def solutions(names: Iterable[str], *, eps_is_1e_6: bool = False) -> dict[str, Callable[..., Any]]:
    """Solutions for flashinfer.trace_apply.enable_apply(), by the names of definitions such as "silu_and_mul_h28672".

    FlashInfer's Trace Apply drops eps for the norms: a call with any other eps would get the result for 1e-6. So norms
    are given only with eps_is_1e_6=True, which says that every norm of the process has eps = 1e-6. Use install() else.

    Raises ValueError for a norm without eps_is_1e_6, and for a definition that kiln does not serve.
    """
    from .. import ops

    def norm(hidden_states: Any, weight: Any, gemma: bool = False) -> Any:
        return ops.rms_norm(hidden_states, weight, 1e-6, gemma=gemma)

    def add_norm(hidden_states: Any, residual: Any, weight: Any, gemma: bool = False) -> Any:
        return ops.fused_add_rms_norm(hidden_states, residual, weight, 1e-6, gemma=gemma), residual

    def gated(input: Any, act: str) -> Any:
        return ops.act_and_mul(input, act)

    known: dict[str, tuple[str, Callable[..., Any]]] = {
        "rmsnorm": ("rms_norm", norm),
        "gemma_rmsnorm": ("rms_norm", functools.partial(norm, gemma=True)),
        "fused_add_rmsnorm": ("fused_add_rms_norm", add_norm),
        "gemma_fused_add_rmsnorm": ("fused_add_rms_norm", functools.partial(add_norm, gemma=True)),
        "silu_and_mul": ("act_and_mul", functools.partial(gated, act="silu")),
        "gelu_and_mul": ("act_and_mul", functools.partial(gated, act="gelu")),
        "gelu_tanh_and_mul": ("act_and_mul", functools.partial(gated, act="gelu_tanh")),
    }
    found = {}
    for name in names:
        operator, solution = known.get(re.sub(r"_h\d*$", "", name), ("", None))
        if solution is None:
            raise ValueError(f"kiln has no solution for {name}; definitions: {' '.join(f'{each}_hN' for each in known)}")
        if "norm" in operator and not eps_is_1e_6:
            raise ValueError(
                f"{name}: FlashInfer's Trace Apply drops eps for the norms and would serve 1e-6 for any eps. "
                "Use install(), which keeps eps, or say eps_is_1e_6=True."
            )
        if not is_off(operator):
            found[name] = solution
    return found


# ---- FlashInfer's package


@functools.cache
def _package() -> pathlib.Path:
    found = importlib.util.find_spec("flashinfer")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("flashinfer-python is not installed in this Python environment", name="flashinfer")
    return pathlib.Path(found.submodule_search_locations[0])


def _path(module: str, directory: str | os.PathLike[str] | None) -> pathlib.Path:
    place = _package() / "data" / "aot" if directory is None else pathlib.Path(directory)
    return place / module / f"{module}.so"


def _declared(module: str) -> dict[str, str]:
    """The functions that FlashInfer's sources export for a module, with their parameters."""
    if module == "norm":
        text = (_package() / "data" / "csrc" / "flashinfer_norm_binding.cu").read_text()
        exported = re.findall(r"TVM_FFI_DLL_EXPORT_TYPED_FUNC\((\w+),\s*(\w+)\)", text)
    else:
        text = (_package() / "jit" / "activation.py").read_text().replace("{{ func_name }}", module)
        exported = re.findall(rf"TVM_FFI_DLL_EXPORT_TYPED_FUNC\(({module}),\s*(\w+)\)", text)
    parameters = dict(re.findall(r"\bvoid (\w+)\(([^)]*)\)", text))
    return {name: " ".join(parameters.get(function, "").split()) for name, function in exported}


def _reason(module: str, directory: str | os.PathLike[str] | None) -> str:
    """Why kiln does not serve a module; empty when it does."""
    path, symbols = _path(module, directory), _MODULES[module]
    if path.exists() and not _is_ours(path):
        return "FlashInfer's own module is there"
    for operator in {symbol.operator for symbol in symbols.values() if symbol.operator and is_off(symbol.operator)}:
        return f"{VARIABLE} names {operator}, and a module is written whole or not at all"
    try:
        declared = _declared(module)
    except OSError as error:
        return f"this FlashInfer has other sources: {error.filename} is missing"
    if unknown := set(declared) - set(symbols):
        return f"this FlashInfer's module has a function that kiln does not know: {sorted(unknown)[0]}"
    for name, symbol in symbols.items():
        if symbol.operator and declared.get(name) != symbol.parameters:
            return f"this FlashInfer's {name} has other parameters: {declared.get(name, 'none')}"
    return ""


def _norms_are_cute() -> bool:
    return os.environ.get("FLASHINFER_USE_CUDA_NORM", "0") != "1" and importlib.util.find_spec("cutlass") is not None


# ---- modules


def _signature(name: str, symbol: _Symbol) -> str:
    if symbol.operator:
        return tvm_ffi.signature(symbol.operator, symbol.arguments, symbol.constants)
    return (
        f"!kiln has no operator for FlashInfer's {name}, and kiln's module has replaced FlashInfer's. "
        "Remove kiln's modules with kiln.engines.flashinfer.uninstall() to run it."
    )


def _is_ours(path: pathlib.Path) -> bool:
    return path.exists() and _tvm_module.MAGIC in path.read_bytes()


def _remove(path: pathlib.Path) -> bool:
    if not _is_ours(path):
        return False
    path.unlink()
    if not any(path.parent.iterdir()):
        path.parent.rmdir()
    return True
