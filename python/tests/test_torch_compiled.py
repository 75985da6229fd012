"""Operators in compiled and exported models. The fake driver's kernels compute on the host."""

import ctypes

import pytest

torch = pytest.importorskip("torch")

import kiln
import kiln.torch  # noqa: F401
import torch._dynamo.testing
from torch_support import launching, on_host_memory  # noqa: F401


@pytest.fixture
def computing(launching, driver):
    """The fake driver computes rms_norm in f32 with H = 64, so that results can be compared."""
    from conftest import FakeLaunch

    def array(address, *shape):
        size = 1
        for s in shape:
            size *= s
        return torch.frombuffer((ctypes.c_float * size).from_address(address), dtype=torch.float32).view(*shape)

    @ctypes.CFUNCTYPE(None, ctypes.POINTER(FakeLaunch), ctypes.c_void_p)
    def compute(launch, _):
        launch = launch.contents
        if b"rms_norm" not in launch.kernel:
            return
        value = [ctypes.string_at(launch.arguments[i], launch.argument_sizes[i]) for i in range(10)]
        out, x, w, residual = (int.from_bytes(value[i], "little") for i in (0, 1, 2, 7))
        rows, eps = int.from_bytes(value[3], "little"), ctypes.c_float.from_buffer_copy(value[6]).value
        v = array(x, rows, 64)
        if residual:
            array(residual, rows, 64).add_(v)
            v = array(residual, rows, 64)
        array(out, rows, 64).copy_(plain_norm(v, array(w, 64), eps))

    driver.library.kiln_fake_on_launch(compute, None)
    yield
    driver.library.kiln_fake_on_launch(None, None)


def plain_norm(x, w, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


class Layer(torch.nn.Module):
    """A residual stream, with an operator that mutates its input."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(64), requires_grad=False)
        self.linear = torch.nn.Linear(64, 64, bias=False).requires_grad_(False)

    def forward(self, x, residual):
        x = torch.ops.kiln.fused_add_rms_norm(x, residual, self.weight)
        x = self.linear(x)
        return torch.ops.kiln.rms_norm(x, self.weight) + residual, residual

    def plain(self, x, residual):
        residual = residual + x
        x = self.linear(plain_norm(residual, self.weight))
        return plain_norm(x, self.weight) + residual, residual


@pytest.mark.parametrize("options", [{}, {"dynamic": True}], ids=["static", "dynamic"])
def test_a_compiled_model_gives_what_plain_torch_gives(options, computing):
    torch._dynamo.reset()
    layer = Layer()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, backend=counter, fullgraph=True, **options)
    for rows in (4, 7, 7, 19):
        x, residual = torch.randn(rows, 64), torch.randn(rows, 64)
        expected = layer.plain(x, residual.clone())
        got, after = compiled(x, residual)
        torch.testing.assert_close(got, expected[0])
        torch.testing.assert_close(after, expected[1])
        torch.testing.assert_close(residual, expected[1])  # the mutation reached the caller's tensor
    assert counter.frame_count == (1 if options else 2)  # static sizes: traced twice


def test_inductor_keeps_the_mutation_and_the_order(computing):
    torch._dynamo.reset()
    layer = Layer()

    def only_operators(x, residual):
        y = torch.ops.kiln.fused_add_rms_norm(x, residual, layer.weight)
        return torch.ops.kiln.fused_add_rms_norm(y, residual, layer.weight)

    x, residual = torch.randn(4, 64), torch.randn(4, 64)
    first = plain_norm(residual + x, layer.weight)
    second = residual + x + first
    got = torch.compile(only_operators, fullgraph=True)(x, residual)
    torch.testing.assert_close(got, plain_norm(second, layer.weight))
    torch.testing.assert_close(residual, second)


def test_an_exported_model_gives_what_plain_torch_gives(computing):
    layer = Layer()
    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(
        layer, (torch.randn(4, 64), torch.randn(4, 64)), dynamic_shapes={"x": {0: rows}, "residual": {0: rows}}
    )
    assert "kiln.fused_add_rms_norm" in str(exported.graph)
    x, residual = torch.randn(9, 64), torch.randn(9, 64)
    expected = layer.plain(x, residual.clone())[0]
    torch.testing.assert_close(exported.module()(x, residual)[0], expected)
