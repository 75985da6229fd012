"""Failures that other libraries' operators are known for must be impossible here; and how
operators are registered.
"""

import gc
import importlib
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import kiln
import kiln.torch
import torch._dynamo.testing
from kiln.torch import _modes, _registry
from torch._subclasses import FakeTensorMode
from torch_support import fresh, launching, on_host_memory  # noqa: F401


def test_a_parameter_that_would_be_symbolic_is_a_clear_error(launching):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: torch.ops.kiln.act_and_mul(x), backend="aot_eager", fullgraph=True, dynamic=True)
    with pytest.raises(
        Exception, match=r"kiln::act_and_mul: parameter D of template act_and_mul would be the symbolic size"
    ) as caught:
        compiled(torch.randn(6, 256))
    assert "mark_static" in str(caught.value)
    torch._dynamo.reset()
    x = torch.randn(6, 256)
    torch._dynamo.mark_static(x, 1)
    compiled(x)
    torch._dynamo.reset()
    kiln.torch.specialize(True)
    try:
        compiled(torch.randn(6, 256))
    finally:
        kiln.torch.specialize(False)


def test_a_size_without_a_value_is_an_error_in_a_parameter_and_none_in_an_argument(launching):
    torch._dynamo.reset()
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        weight = torch.randn(64)

        def rows(x, flags):
            return torch.ops.kiln.rms_norm(x[torch.nonzero(flags)[:, 0]], weight)

        compiled = torch.compile(rows, backend="aot_eager", fullgraph=True)
        assert compiled(torch.randn(6, 64), torch.tensor([1, 0, 1, 1, 0, 0])).shape == (3, 64)

        def columns(x, flags):
            return torch.ops.kiln.softmax(x[:, torch.nonzero(flags)[:, 0]].contiguous())

        for choice in (False, True):  # torch cannot guard on a size without a value
            kiln.torch.specialize(choice)
            torch._dynamo.reset()
            with pytest.raises(Exception, match="parameter H of template softmax would be the symbolic size"):
                torch.compile(columns, backend="aot_eager", fullgraph=True)(torch.randn(6, 6), torch.tensor([1, 0, 1, 1, 0, 0]))
    finally:
        kiln.torch.specialize(False)
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_an_operator_stays_when_everybody_forgets_it(launching, driver):
    name = fresh("forgotten")

    def make():
        @kiln.torch.operator(name, "rms_norm", parameters="T H")
        def norm(launch, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            launch((x.dtype, x.shape[1]), out, x, weight, x.shape[0], x.stride(0), out.stride(0), 1e-6)
            return out

    make()
    gc.collect()
    before = driver.launches()
    getattr(torch.ops.kiln_test, name.split("::")[1])
    with torch.library._scoped_library("kiln_test", "FRAGMENT"):
        pass
    known = _registry._operators[name]
    known.library.impl(name.split("::")[1], known.real, "CPU")
    getattr(torch.ops.kiln_test, name.split("::")[1])(torch.randn(2, 64), torch.randn(64))
    assert driver.launches() == before + 1


def test_importing_again_registers_nothing_twice(launching):
    for name in [n for n in sys.modules if n == "kiln.torch" or n.startswith("kiln.torch.")]:
        del sys.modules[name]
    before = dict(_registry._operators)
    again = importlib.import_module("kiln.torch")
    assert again is not _modes and sys.modules["kiln.torch._registry"]._operators == before
    assert again.rms_norm is before["kiln::rms_norm"].overload and again.service() is launching
    again.rms_norm(torch.randn(4, 64), torch.randn(64))
    again.set_mode("rms_norm", "sealed")
    try:
        with pytest.raises(kiln.NotReady, match="kiln::rms_norm is sealed"):
            again.rms_norm(torch.randn(4, 104), torch.randn(104))
    finally:
        again.set_mode("rms_norm", None)


def test_a_changed_body_replaces_and_a_changed_schema_is_refused(launching):
    name = fresh("changed")

    def register(width, annotation):
        def body(launch, x: torch.Tensor, by: int = 1) -> torch.Tensor:
            return x.new_empty(width)

        body.__annotations__["by"] = annotation
        return kiln.torch.operator(name, "rms_norm", parameters="T H")(body)

    register(3, int)
    operator = register(5, int)
    with FakeTensorMode():
        assert operator(torch.empty(1, device="cuda")).shape == (5,)
    with pytest.raises(kiln.Error, match="registered already"):
        register(5, float)


def test_the_same_kernel_is_looked_up_and_not_made_again(launching):
    w = torch.randn(64)
    torch.ops.kiln.rms_norm(torch.randn(4, 64), w)
    made = launching.stats()["loads"]
    for rows in (1, 4, 9):
        torch.ops.kiln.rms_norm(torch.randn(rows, 64), w)
    assert launching.stats()["loads"] == made == 1
    torch.ops.kiln.rms_norm(torch.randn(4, 128), torch.randn(128))
    assert launching.stats()["loads"] == 2


def test_importing_is_light():
    """Registration imports nothing of torch.compile, and is quick enough to need no switch."""
    program = """
import sys, time, torch
before, start = set(sys.modules), time.perf_counter()
import kiln.torch
took = time.perf_counter() - start
print([m for m in set(sys.modules) - before if m.split(".")[0] == "torch" and m.split(".")[1] in ("_dynamo", "_inductor", "fx")])
print(took)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True).stdout.split("\n")
        for _ in range(3)
    ]
    assert all(run[0] == "[]" for run in runs), runs
    assert min(float(run[1]) for run in runs) < 0.3, "30 ms on a quiet machine"
