"""kiln.ops on a GPU, with arrays of CuPy, torch and DLPack alone: results against float64, streams, threads, capture.

Run: python3 python/tests/run.py python/tests/gpu_ops.py
"""

import threading

import kiln
import kiln.ops
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)


def exact_norm(x, w, eps):
    x, w = x.double(), w.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


class OnlyDlpack:
    """An array that has DLPack and nothing else, like an array of JAX."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **named):
        return self.tensor.__dlpack__(**named)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.fixture
def data():
    torch.manual_seed(1)
    return torch.randn(37, 1024, device="cuda"), torch.randn(1024, device="cuda")


def close(result, x, w, eps=1e-6, tolerance=2e-6):
    exact = exact_norm(x, w, eps)
    assert ((result.double() - exact).abs().max() / exact.abs().max()).item() < tolerance


def test_torch(data):
    x, w = data
    close(kiln.ops.rms_norm(x, w, 1e-5), x, w, 1e-5)
    half, weight = x.bfloat16(), w.bfloat16()
    close(kiln.ops.rms_norm(half, weight), half, weight, tolerance=5e-3)
    out = torch.empty_like(x)
    assert kiln.ops.rms_norm(x, w, out=out) is out
    close(out, x, w)
    close(kiln.ops.rms_norm(x[:, ::2], w[:512]), x[:, ::2], w[:512])  # copied first


def test_cupy(data):
    cupy = pytest.importorskip("cupy")
    x, w = (cupy.from_dlpack(t) for t in data)
    made = kiln.ops.rms_norm(x, w)
    assert isinstance(made, cupy.ndarray)
    close(torch.from_dlpack(made), *data)
    stream = cupy.cuda.Stream()
    with stream:
        made = kiln.ops.rms_norm(x, w)
    stream.synchronize()
    close(torch.from_dlpack(made), *data)
    values, scales = kiln.ops.fp8_quant_token(x)  # CuPy has no fp8
    assert isinstance(values, kiln.DeviceArray) and isinstance(scales, cupy.ndarray)
    back = torch.from_dlpack(values).double() * torch.from_dlpack(scales).double()
    assert (back - data[0].double()).abs().max().item() < 0.07 * data[0].abs().max().item()


def test_dlpack_alone(data):
    x, w = data
    torch.cuda.synchronize()
    made = kiln.ops.rms_norm(OnlyDlpack(x), OnlyDlpack(w))
    torch.cuda.synchronize()
    assert isinstance(made, kiln.DeviceArray)
    close(torch.from_dlpack(made), x, w)


def test_a_stream_and_a_captured_graph(data):
    x, w = data
    kiln.ops.rms_norm(x, w)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        made = kiln.ops.rms_norm(x, w)
    stream.synchronize()
    close(made, x, w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = kiln.ops.rms_norm(x, w)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    close(made, x, w)
    with pytest.raises(kiln.NotReady), torch.cuda.graph(torch.cuda.CUDAGraph()):
        kiln.ops.rms_norm(torch.empty(4, 1000, device="cuda"), torch.empty(1000, device="cuda"))


def test_threads_that_have_no_context_yet(data):
    x, w = data
    failed = []

    def work():
        try:
            for width in (256, 320, 384):
                part, weight = x[:, :width].contiguous(), w[:width].contiguous()
                close(kiln.ops.rms_norm(part, weight), part, weight)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
