"""kiln.caches.inductor behind the released torch: graphs come from kiln's store, with empty local directories."""

import json
import os
import subprocess
import sys
import types

import pytest
from caches_support import TORCH_PROGRAM

pytest.importorskip("torch")

PROGRAM = f"""
import kiln.caches.inductor as caches
caches.apply()
caches.apply()
{TORCH_PROGRAM}
from torch._dynamo.utils import counters
caches._blobs().flush()
print(json.dumps(dict(counters["inductor"]) | dict(counters["aot_autograd"]) | caches._blobs().counts()))
"""


def run(tmp_path, local, program=PROGRAM):
    environment = os.environ | {"KILN_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / local)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_fresh_local_directory_hits_kilns_store(tmp_path):
    first = run(tmp_path, "one")
    assert first["fxgraph_cache_miss"] == 1 and first["puts"] == 2
    second = run(tmp_path, "two")
    assert second["fxgraph_cache_hit"] == 1 and second["autograd_cache_hit"] == 1
    assert second.get("fxgraph_cache_miss", 0) == 0 and second["puts"] == 0


def test_nothing_is_unpickled_that_the_store_does_not_hold(tmp_path):
    """A payload planted under the store's directory, or a damaged record, is never given to torch."""
    first = run(tmp_path, "one")
    data = tmp_path / "cache" / "v1" / "data.mdb"
    raw = bytearray(data.read_bytes())
    start = raw.index(b"kilnrec1")
    for at in range(start + 200, len(raw), 64):
        raw[at] ^= 1
    data.write_bytes(raw)
    second = run(tmp_path, "two")
    assert second["hits"] == 0 and second["fxgraph_cache_miss"] == 1
    assert first["puts"] == 2


def test_undo_restores_the_settings(monkeypatch):
    import torch
    from kiln.caches import inductor
    from torch._inductor import remote_cache

    monkeypatch.delenv("TRITON_CACHE_MANAGER", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", "/of/the/user")
    before = torch._inductor.config.fx_graph_remote_cache
    inductor.apply(autotune=False)
    assert remote_cache.RemoteFxGraphCache.backend_override_cls is inductor.Backend
    assert torch._inductor.config.fx_graph_remote_cache is True
    assert os.environ["TRITON_CACHE_MANAGER"] == "kiln.caches.triton:CacheManager"
    monkeypatch.setattr(inductor, "_blobs", lambda: types.SimpleNamespace(lease=lambda key, wait: types.SimpleNamespace(data=b"x")))
    assert inductor.Backend()._get("pt2:fx-graph-v1::k:c1") == b"x"
    assert os.environ["TRITON_CACHE_DIR"] != "/of/the/user", "a graph has its kernels' code in the private directory"
    inductor.undo()
    assert os.environ["TRITON_CACHE_DIR"] == "/of/the/user"
    assert remote_cache.RemoteFxGraphCache.backend_override_cls is None
    assert torch._inductor.config.fx_graph_remote_cache is before
    assert "TRITON_CACHE_MANAGER" not in os.environ
