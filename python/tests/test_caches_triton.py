"""kiln.caches.triton behind the released Triton, which compiles for sm_90 without a GPU."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import json, os, sys
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

def compiled(block):
    types = {"x": "*fp32", "y": "*fp32", "o": "*fp32", "n": "i32", "B": "constexpr"}
    return triton.compile(ASTSource(add, signature=types, constexprs={(4,): block}), target=GPUTarget("cuda", 90, 32))

import hashlib
cubin = hashlib.sha256(compiled(128).asm["cubin"]).hexdigest()
import kiln.caches.triton
blobs = kiln.caches.triton._blobs()
blobs.flush()
print(json.dumps({"cubin": cubin} | blobs.counts()))
"""
MANAGER = "kiln.caches.triton:CacheManager"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)

    def start(**more):
        environment = os.environ | {
            "KILN_CACHE_DIR": str(tmp_path / "cache"),
            "TRITON_CACHE_DIR": str(tmp_path / "triton"),
            "TRITON_CACHE_MANAGER": MANAGER,
        }
        return subprocess.Popen(
            [sys.executable, tmp_path / "program.py"], env=environment | more, stdout=subprocess.PIPE, text=True
        )

    def finish(*processes):
        out = [json.loads(p.communicate(timeout=600)[0]) for p in processes]
        assert all(p.returncode == 0 for p in processes)
        return out

    run.start, run.finish = start, finish
    return run


def test_a_second_process_compiles_nothing(run, tmp_path):
    (first,) = run.finish(run.start())
    (second,) = run.finish(run.start())
    assert (first["puts"], first["hits"]) == (1, 0)
    assert (second["puts"], second["hits"], second["misses"]) == (0, 1, 0)
    assert first["cubin"] == second["cubin"]
    assert not (tmp_path / "triton").exists(), "Triton's own directory has nothing"


def test_a_sealed_process_may_refuse_to_compile(run, tmp_path):
    """Nothing in the program calls seal()."""
    sealed = {"KILN_MODE": "sealed", "KILN_CACHES_SEALED": "refuse"}
    refused = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        env=os.environ | {"KILN_CACHE_DIR": str(tmp_path / "cache"), "TRITON_CACHE_MANAGER": MANAGER} | sealed,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert refused.returncode != 0 and "sealed: blob '" in refused.stderr and "of space triton is in no store" in refused.stderr
    (counted,) = run.finish(run.start(KILN_MODE="sealed"))
    assert (counted["sealed_misses"], counted["puts"]) == (1, 1), "it is counted, and compiled"
    (found,) = run.finish(run.start(**sealed))
    assert (found["sealed_misses"], found["hits"]) == (0, 1)


def test_one_process_compiles_a_kernel_and_the_others_wait(run):
    done = run.finish(*[run.start() for _ in range(3)])
    assert sum(each["puts"] for each in done) == 1
    assert len({each["cubin"] for each in done}) == 1


INDUCTOR = (
    "import torch._inductor.codecache\n"
    + PROGRAM
    + """
from torch._inductor.runtime.triton_heuristics import HeuristicType, StaticTritonCompileResult
from torch._inductor.runtime.triton_heuristics import triton_hash_to_path_key
from torch._inductor.triton_bundler import TritonBundler

kernel = compiled(128)
TritonBundler.begin_compile()
TritonBundler.put(triton_hash_to_path_key(kernel.hash), 0)
bundle, _ = TritonBundler.collect()
print(json.dumps({
    "launched": StaticTritonCompileResult.can_statically_launch(
        kernel, {}, {"device_type": "cuda", "device": 0}, HeuristicType.POINTWISE) is not None,
    "bundled": [artifact.filename for each in bundle.kernel_artifacts for artifact in each.artifacts],
    "directory": os.environ["TRITON_CACHE_DIR"],
}))
"""
)


def test_inductor_launches_kernels_of_the_store_without_triton(tmp_path):
    """torch asks for a kernel's cubin in TRITON_CACHE_DIR, and falls back to Triton's slower launcher without a word."""
    heuristics = pytest.importorskip("torch._inductor.runtime.triton_heuristics")
    if not hasattr(heuristics, "StaticTritonCompileResult"):
        pytest.skip("this torch launches all kernels by Triton")
    environment = os.environ | {
        "KILN_CACHE_DIR": str(tmp_path / "cache"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "TRITON_CACHE_MANAGER": MANAGER,
    }
    (tmp_path / "program.py").write_text(INDUCTOR)
    for start in ("compiles", "finds"):
        out = subprocess.check_output([sys.executable, tmp_path / "program.py"], env=environment, text=True, timeout=600)
        done = json.loads(out.splitlines()[-1])
        assert done["launched"], start
        assert "add.cubin" in done["bundled"], start
        assert pathlib.Path(done["directory"]).name.startswith("kiln-private-triton-")
        assert not pathlib.Path(done["directory"]).exists(), "it went with its process"
    assert not (tmp_path / "triton").exists(), "Triton's own directory has nothing"


def test_a_forked_child_names_a_directory_of_its_own(monkeypatch):
    from kiln.caches import _settings

    monkeypatch.setenv("TRITON_CACHE_DIR", "/of/the/user")
    _settings.show_triton_files()
    parents = os.environ["TRITON_CACHE_DIR"]
    assert parents == str(_settings.triton_files.path())
    if (child := os.fork()) == 0:
        _settings.show_triton_files()
        mine = pathlib.Path(os.environ["TRITON_CACHE_DIR"])
        own = str(mine) != parents and mine.is_dir()
        _settings.hide_triton_files()
        shutil.rmtree(mine)
        os._exit(0 if own and os.environ["TRITON_CACHE_DIR"] == "/of/the/user" else 1)
    assert os.waitpid(child, 0)[1] == 0
    _settings.hide_triton_files()
    assert os.environ["TRITON_CACHE_DIR"] == "/of/the/user"


@pytest.mark.parametrize("before", ["/of/the/user", None])
def test_a_program_that_knows_nothing_of_kiln_gets_the_directory_of_before(monkeypatch, before):
    """Such as a Python without kiln's folder in PYTHONPATH, or a shell: nothing there sets the variable back."""
    from kiln.caches import _settings

    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    if before is not None:
        monkeypatch.setenv("TRITON_CACHE_DIR", before)
    command = ["sh", "-c", "echo ${TRITON_CACHE_DIR-unset} ${TRITON_CACHE_DIR_BEFORE_KILN-unset}"]
    _settings.show_triton_files()
    try:
        assert os.environ["TRITON_CACHE_DIR"] == str(_settings.triton_files.path())
        assert subprocess.check_output(command, text=True).split() == [before or "unset", "unset"]
    finally:
        _settings.hide_triton_files()
    assert os.environ.get("TRITON_CACHE_DIR") == before
    assert subprocess.check_output(command, text=True).split() == [before or "unset", "unset"]


def test_as_a_remote_backend_a_group_is_whole_or_absent(run, tmp_path):
    remote = {
        "TRITON_CACHE_MANAGER": "triton.runtime.cache:RemoteCacheManager",
        "TRITON_REMOTE_CACHE_BACKEND": "kiln.caches.triton:RemoteCacheBackend",
    }
    (first,) = run.finish(run.start(**remote))
    assert first["puts"] > 1
    (second,) = run.finish(run.start(**remote, TRITON_CACHE_DIR=str(tmp_path / "fresh")))
    assert second["puts"] == 0 and second["cubin"] == first["cubin"]


def test_text_modules_and_single_files(tmp_path, monkeypatch):
    import kiln
    from kiln.caches import triton as caches

    class Module:
        def __str__(self):
            return "module {}"

    with kiln.Service(cache_dir=tmp_path, hermetic=True) as service:
        monkeypatch.setattr(caches, "_blobs", lambda refusing=False: kiln.Blobs(service, "triton"))
        manager = caches.CacheManager("KEY")
        assert pathlib.Path(manager.put(Module(), "a.ttir")).read_text() == "module {}"
        assert kiln.Blobs(service, "triton").list() == [], "a stage waits for its group"
        assert manager.get_file("tool.so") is None
        manager.put(b"\x7fELF", "tool.so")
        path = caches.CacheManager("OTHER").put(b"1", "f.autotune.json")
        assert pathlib.Path(path).read_bytes() == b"1"
        with pytest.raises(ValueError, match="is no plain name"):
            manager.put(b"x", "../x")
        monkeypatch.setattr(caches, "_directory", caches._files.PrivateDirectory("kiln-triton-test-"))
        again = caches.CacheManager("KEY")
        assert pathlib.Path(again.get_file("tool.so")).read_bytes() == b"\x7fELF"
        assert again.get_file("a.ttir") is None
        assert again.get_group("a.json") is None
        service.seal()


def test_a_group_with_hostile_names_is_a_miss(tmp_path, monkeypatch):
    import kiln
    from kiln.caches import _files
    from kiln.caches import triton as caches

    with kiln.Service(cache_dir=tmp_path / "cache", hermetic=True) as service:
        blobs = kiln.Blobs(service, "triton")
        monkeypatch.setattr(caches, "_blobs", lambda refusing=False: blobs)
        blobs.put("KEY/a.json/", _files.pack({"../../outside": b"x"}))
        assert caches.CacheManager("KEY").get_group("a.json") is None
