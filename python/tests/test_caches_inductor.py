"""kiln.caches.inductor behind the released torch: graphs come from kiln's store, with empty local directories."""

import base64
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import types

import kiln
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
import kiln
counts = dict(counters["inductor"]) | dict(counters["aot_autograd"]) | caches._blobs().counts()
print(json.dumps(counts | dict(fingerprint=str(kiln.fingerprint()))))
"""


def run(tmp_path, local, program=PROGRAM, **more):
    environment = os.environ | {"KILN_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / local)}
    environment |= more
    done = start(program, environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def start(program, environment):
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=900)


def test_a_fresh_local_directory_hits_kilns_store(tmp_path):
    first = run(tmp_path, "one")
    assert first["fxgraph_cache_miss"] == 1 and first["puts"] == 2
    second = run(tmp_path, "two")
    assert second["fxgraph_cache_hit"] == 1 and second["autograd_cache_hit"] == 1
    assert second.get("fxgraph_cache_miss", 0) == 0 and second["puts"] == 0


def test_processes_that_compile_the_same_code_have_one_fingerprint(tmp_path):
    """Each process writes its own time of the compile into torch's entries, and its own addresses of functions."""
    one = run(tmp_path, "one")
    other = run(tmp_path, "two", KILN_CACHE_DIR=str(tmp_path / "of another node"))
    assert one["puts"] == other["puts"] == 2
    found = run(tmp_path, "three")
    assert found["hits"] == 2
    assert one["fingerprint"] == other["fingerprint"] == found["fingerprint"]


class Graph:
    """Pickled as torch pickles a graph: the second one has its names from the memo of the pickle."""

    def __init__(self, code, time):
        self.code, self._time_taken_ns, self.count = code, time, 5


def payload(*graphs, time=0, **more):
    data = base64.b64encode(pickle.dumps([Graph(*graph) for graph in graphs])).decode()
    return json.dumps({"data": data, "time_taken_ms": time} | more).encode()


def test_the_identity_of_a_payload_has_all_but_the_times():
    from kiln.caches.inductor import _identity, _parted

    large = "x" * 100_000  # more than a frame of a pickle
    one = _identity(payload(("a" + large, 5), ("b", 300), time=1))
    assert len(one) == 32
    assert _identity(payload(("a" + large, 7_000_000_000), ("b", 2), time=700)) == one, "numbers of other sizes"
    assert _identity(payload(("a" + large, 5), ("c", 300), time=1)) != one
    assert _identity(payload(("<function f at 0x7f>", 5))) == _identity(payload(("<function f at 0x91c>", 5)))
    assert _identity(payload(("<function f at 0x7f>", 5))) != _identity(payload(("<function g at 0x7f>", 5)))
    assert _identity(payload(("a" + large, 5), time=1)) != one
    assert _identity(payload(("a" + large, 5), ("b", 300), time=1, more=1)) != one
    for other in (b"", b"{}", b"[1]", b'{"data": 5}', b'{"data": "bm8gcGlja2xl"}', b"\xff"):
        assert _identity(other) == b""
    assert _parted(b"torch's\nkiln identity 1 " + one) == (b"torch's", one)
    for other in (b"", b"torch's", b"torch's\nkiln identity 1 " + one[1:], b"x" * 100):
        assert _parted(other) == (other, b"")


def test_the_identity_of_large_constants_takes_little_memory():
    from kiln.caches.inductor import _identity

    size = 16 << 20
    one, other = payload((os.urandom(size), 5)), payload((os.urandom(size), 5))
    tracemalloc.start()
    identity = _identity(one)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(identity) == 32 and identity == _identity(one) != _identity(other)
    assert peak < 5 * size, "the text of the JSON, base64 and the bytes are less than four times as large as the bytes"


class Touch:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def plant(store, like, mark):
    """Fills a store with the keys of another one, each with a payload that torch unpickles, which makes the file `mark`."""
    with kiln.Service(cache_dir=like, hermetic=True) as service:
        names = [(item["key"], item["compatibility"]) for item in kiln.Blobs(service, "inductor").list()]
    payload = json.dumps({"data": base64.b64encode(pickle.dumps(Touch(mark))).decode(), "time_taken_ms": 1})
    with kiln.Service(cache_dir=store, hermetic=True) as service:
        for key, compatibility in names:
            kiln.Blobs(service, "inductor", compatibility).put(key, payload.encode())
    return len(names)


def test_a_planted_pickle_is_loaded_from_nowhere_but_the_users_own_store(tmp_path):
    """A store or a layer that other users may write is not believed. The user's own store is, which shows that it works."""
    run(tmp_path, "one")
    mark = tmp_path / "loaded"
    for place in ("own", "shared", "layer"):
        assert plant(tmp_path / place, tmp_path / "cache", mark) == 2
    for place in ("shared", "layer"):
        for directory in (tmp_path / place, tmp_path / place / "v1"):
            directory.chmod(0o777)
    shared = run(tmp_path, "two", KILN_CACHE_DIR=str(tmp_path / "shared"))
    assert shared["hits"] == 0 and shared["fxgraph_cache_miss"] == 1 and not mark.exists()
    layer = run(tmp_path, "three", KILN_CACHE_DIR=str(tmp_path / "empty"), KILN_CACHE_LAYERS=str(tmp_path / "layer"))
    assert layer["hits"] == 0 and layer["fxgraph_cache_miss"] == 1 and not mark.exists()
    start(PROGRAM, os.environ | {"KILN_CACHE_DIR": str(tmp_path / "own"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "four")})
    assert mark.exists(), "torch loads what the user's own store has, and may fail"


def test_a_damaged_record_is_not_given_to_torch(tmp_path):
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


def test_the_lease_of_a_graph_ends_by_itself(tmp_path, monkeypatch):
    """Torch does not say when a compile fails, so the backend sees no put. Another caller then waits with no limit."""
    from kiln.caches import inductor

    key = "pt2:fx-graph-v1::k:c1"
    monkeypatch.setenv("KILN_CACHES_WAIT", "0.2")
    with kiln.Service(cache_dir=tmp_path, hermetic=True) as service, kiln.Service(cache_dir=tmp_path, hermetic=True) as other:
        monkeypatch.setattr(inductor, "_blobs", lambda: kiln.Blobs(service, "inductor"))
        backend = inductor.Backend()
        assert backend._get(key) is None
        assert not kiln.Blobs(other, "inductor").lease(key, wait=0).held, "the backend has it"
        with kiln.Blobs(other, "inductor").lease(key, wait=-1) as lease:
            assert lease.held
        backend._put(key, b"late")
        assert backend._get(key) == b"late"


ARTIFACTS = """
import json, os, sys, torch
import kiln.caches.inductor as caches
from caches_support import TORCH_PROGRAM
from torch._dynamo.utils import counters
loaded = caches.load_artifacts("model")
exec(TORCH_PROGRAM)
saved = caches.save_artifacts("model")
caches._blobs().flush()
print(json.dumps({"loaded": loaded, "saved": saved, "hits": counters["inductor"]["fxgraph_cache_hit"]}))
"""


def test_saved_artifacts_start_the_next_process(tmp_path):
    path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    first = run(tmp_path, "one", ARTIFACTS, PYTHONPATH=path)
    assert first == {"loaded": False, "saved": True, "hits": 0}
    second = run(tmp_path, "two", ARTIFACTS, PYTHONPATH=path)
    assert second["loaded"] and second["hits"] == 1


PROFILE = """
import json, torch
import kiln.caches.inductor as caches
caches.apply()
from torch._dynamo.utils import counters

@torch.compile(backend="eager")
def f(x):
    return x.sin()

for size in SIZES:
    f(torch.ones(size))
caches._blobs().flush()
print(json.dumps({"graphs": counters["stats"]["unique_graphs"]} | caches._blobs().counts()))
"""


def test_a_process_knows_from_dynamos_profile_which_sizes_vary(tmp_path):
    """The first process compiles for one size, then for any. The second one compiles once, for any size."""
    job = {"TORCH_COMPILE_JOB_ID": "job", "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": "0"}
    first = run(tmp_path, "one", PROFILE.replace("SIZES", "(4, 5)"), **job)
    assert first["graphs"] == 2 and first["puts"] > 0
    second = run(tmp_path, "two", PROFILE.replace("SIZES", "(4, 5)"), **job)
    assert second["graphs"] == 1 and second["hits"] > 0
    third = run(tmp_path, "two", PROFILE.replace("SIZES", "(4, 5)"), **job, KILN_CACHE_DIR=str(tmp_path / "empty"))
    assert third["graphs"] == 2, "without kiln's store it knows nothing"


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
