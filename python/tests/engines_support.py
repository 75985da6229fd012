"""Imports the released layers of vLLM and SGLang without their servers, for the tests of kiln.engines.

The modules of the layers are the released ones (engines-requirements.txt). What the layers do not use is
absent: Python packages of the server, and the engines' compiled kernels, which only need names to import.
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

#: folders that `engines.sh` unpacked, and that come before installed packages
sys.path[:0] = [p for p in os.environ.get("KILN_TEST_ENGINES", "").split(os.pathsep) if p]
#: packages for a machine that has not got its own
sys.path += [p for p in os.environ.get("KILN_TEST_DEPS", "").split(os.pathsep) if p]


class _Kind(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _kind(name)

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __iter__(cls):
        return iter(())


class _Absent(metaclass=_Kind):
    """Anything of an absent package: a class, a decorator, a value that nothing may read."""

    def __init__(self, *arguments, **named):
        pass

    def __init_subclass__(cls, **named):
        pass

    def __class_getitem__(cls, item):
        return cls

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent()

    def __call__(self, *arguments, **named):
        return arguments[0] if arguments and callable(arguments[0]) else self

    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        from pydantic_core import core_schema

        return core_schema.any_schema()


def _kind(name):
    return _Kind(name, (_Absent,), {})


class _Module(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = _kind(name)
        setattr(self, name, value)
        return value


class _AbsentPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self.names = tuple(names)

    def find_spec(self, name, path=None, target=None):
        if any(name == n or name.startswith(n + ".") for n in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def _leave_out(*names):
    """Makes these modules absent: importing one gives a module whose attributes mean nothing."""
    installed = [n for n in names if "." not in n and importlib.util.find_spec(n) is not None]
    sys.meta_path.insert(0, _AbsentPackages(n for n in names if n not in installed))


def _bare_package(name):
    """The package `name` without running its __init__."""
    package = types.ModuleType(name)
    found = importlib.machinery.PathFinder.find_spec(name, None)
    package.__path__ = list(found.submodule_search_locations)
    package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = package


def has(name):
    """True when the released engine can be imported from here."""
    return importlib.machinery.PathFinder.find_spec(name, None) is not None


class Operators(TorchDispatchMode):
    """The names of the operators that were called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        self.names.append(function.name())
        return function(*arguments, **(named or {}))


def traced(layer, *arguments, **named):
    """Calls a layer with fake copies of the tensors. Returns kiln's operators that were called, and the results."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, Operators() as called:
        fake = [mode.from_tensor(a) if torch.is_tensor(a) else a for a in arguments]
        result = layer(*fake, **named)
    return [n.removeprefix("kiln::") for n in called.names if n.startswith("kiln::")], result


def vllm(**compilation):
    """vLLM's modules of layers, as a namespace, under a compilation configuration that enables all custom ops."""
    _leave_out(
        *[
            "aiohttp",
            "blake3",
            "cachetools",
            "cbor2",
            "cloudpickle",
            "cpuinfo",
            "fastapi",
            "openai",
            "openai_harmony",
            "prometheus_client",
            "psutil",
        ],
        *["pybase64", "uvloop", "xgrammar", "zmq"],
        *(
            f"vllm.{n}"
            for n in ["distributed", "entrypoints", "inputs", "lora", "multimodal", "parser", "pooling_params", "reasoning"]
        ),
        *(
            f"vllm.{n}"
            for n in [
                "sampling_params",
                "tokenizers",
                "tool_parsers",
                "tracing",
                "transformers_utils",
                "v1",
                "_C",
                "_C_stable_libtorch",
                "_moe_C",
            ]
        ),
    )
    # The compiled operators that constructors of layers name. No test calls them.
    library = torch.library.Library("_C", "FRAGMENT")
    for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
        if not hasattr(torch.ops._C, name):
            library.define(f"{name}(Tensor! result, Tensor input) -> ()")
    from vllm.config import CompilationConfig
    from vllm.config import vllm as current
    from vllm.model_executor.layers import activation, layernorm, rotary_embedding
    from vllm.model_executor.layers.quantization import input_quant_fp8
    from vllm.model_executor.warmup import jit_warmup
    from vllm.utils import jit_monitor

    config = CompilationConfig(**{"custom_ops": ["all"], **compilation})
    current._current_vllm_config = types.SimpleNamespace(compilation_config=config)
    return types.SimpleNamespace(
        activation=activation,
        norm=layernorm,
        rotary=rotary_embedding,
        quant=input_quant_fp8,
        jit_warmup=jit_warmup,
        jit_monitor=jit_monitor,
        config=config,
        library=library,
    )


def sglang():
    """SGLang's modules of layers and plugins, as a namespace."""
    _leave_out(
        *[
            "IPython",
            "PIL",
            "aiohttp",
            "compressed_tensors",
            "fastapi",
            "huggingface_hub",
            "orjson",
            "psutil",
            "pybase64",
            "requests",
            "sgl_kernel",
        ],
        *["starlette", "transformers", "tvm_ffi", "uvicorn", "zmq"],
        *(f"sglang.srt.{n}" for n in ["configs", "distributed", "layers.quantization", "model_executor.forward_batch_info"]),
    )
    _bare_package("sglang")
    from sglang.kernels import fused_op, spec
    from sglang.srt import plugins
    from sglang.srt.layers import activation, layernorm

    return types.SimpleNamespace(activation=activation, norm=layernorm, fused_op=fused_op, spec=spec, plugins=plugins)
