"""The program that tests of torch's caches run in new processes."""

#: compiles one function with torch.compile, and checks its result
TORCH_PROGRAM = """
import json, os, torch

@torch.compile
def f(x, y):
    return (x.sin() * y.cos()).relu().sum(-1)

torch.manual_seed(0)
x, y = torch.randn(8, 64), torch.randn(8, 64)
assert torch.allclose(f(x, y), (x.sin() * y.cos()).relu().sum(-1), atol=1e-5)
"""
