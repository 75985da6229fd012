"""A Python program that knows nothing of kiln uses kiln's caches where KILN_CACHES and the path say so."""

import json
import os
import pathlib
import subprocess
import sys

import kiln.caches
import pytest
from caches_support import TORCH_PROGRAM

START = pathlib.Path(kiln.caches.__file__).parent / "start"
PACKAGES = pathlib.Path(kiln.__file__).parent.parent


def run(program, tmp_path, caches="on", paths=(), **more):
    environment = os.environ | {
        "KILN_CACHES": caches,
        "KILN_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(START), *map(str, paths), str(PACKAGES)]),
        **more,
    }
    environment.pop("TRITON_CACHE_MANAGER", None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done


MANAGER = "import os; print(os.environ.get('TRITON_CACHE_MANAGER'))"


@pytest.mark.parametrize(
    "caches, manager",
    [
        ("on", "kiln.caches.triton:CacheManager"),
        ("triton", "kiln.caches.triton:CacheManager"),
        ("inductor", "None"),
        ("off", "None"),
    ],
)
def test_the_environment_says_which_caches(tmp_path, caches, manager):
    done = run(MANAGER, tmp_path, caches)
    assert (done.stdout.strip(), done.stderr) == (manager, "")


def test_a_program_that_uses_none_imports_nothing_of_kiln(tmp_path):
    done = run("import sys; print([name for name in sys.modules if name.startswith('kiln')])", tmp_path)
    assert done.stdout.strip() == "[]"


def test_a_wrong_word_is_named_and_the_program_runs(tmp_path):
    done = run(MANAGER, tmp_path, "tritno")
    assert done.stdout.strip() == "None"
    assert "KILN_CACHES = 'tritno': expected on, off, triton, inductor" in done.stderr


def test_a_python_without_kiln_says_so_and_runs(tmp_path):
    done = run(MANAGER, tmp_path, PYTHONPATH=str(START))
    if "has no package kiln" not in done.stderr:  # kiln is installed for this Python
        pytest.skip("this Python has a package kiln of its own")
    assert done.stdout.strip() == "None"


@pytest.mark.parametrize("caches", ["on", "off"])
@pytest.mark.parametrize(
    "variables, directory",
    [
        ({"TRITON_CACHE_DIR": "/tmp/kiln-private-triton-abcdefg8", "TRITON_CACHE_DIR_BEFORE_KILN": "/of/the/user"}, "/of/the/user"),
        ({"TRITON_CACHE_DIR": "/tmp/kiln-private-triton-abcdefg8"}, "None"),
        ({"TRITON_CACHE_DIR": "/of/the/user"}, "/of/the/user"),
        ({"TRITON_CACHE_DIR": "/of/kiln-private-triton-user-of-mine"}, "/of/kiln-private-triton-user-of-mine"),
        ({"TRITON_CACHE_DIR": "/of/the/user", "TRITON_CACHE_DIR_BEFORE_KILN": "/another"}, "/of/the/user"),
    ],
)
def test_a_child_has_no_private_directory_of_its_parent(tmp_path, monkeypatch, caches, variables, directory):
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    done = run("import os; print(os.environ.get('TRITON_CACHE_DIR'))", tmp_path, caches, **variables)
    assert (done.stdout.strip(), done.stderr) == (directory, "")


def test_the_next_sitecustomize_of_the_path_runs_too(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys; sys.of_the_user = __file__")
    done = run("import sys, sitecustomize; print(sys.of_the_user == sitecustomize.__file__)", tmp_path, paths=[other])
    assert (done.stdout.strip(), done.stderr) == ("True", "")


def test_two_copies_of_the_file_run_the_users_once(tmp_path):
    copy, other = tmp_path / "copy", tmp_path / "other"
    copy.mkdir()
    other.mkdir()
    (copy / "sitecustomize.py").write_text((START / "sitecustomize.py").read_text())
    (other / "sitecustomize.py").write_text("import sys; sys.runs = getattr(sys, 'runs', 0) + 1")
    done = run("import sys; print(sys.runs)", tmp_path, paths=[copy, other])
    assert (done.stdout.strip(), done.stderr) == ("1", "")


def test_torch_starts_from_the_store_and_a_report_is_written(tmp_path):
    pytest.importorskip("torch")
    counts = []
    for start in ("one", "two"):
        reports = tmp_path / f"reports-{start}"
        reports.mkdir()
        run(TORCH_PROGRAM, tmp_path, KILN_CACHES_REPORT=str(reports), TORCHINDUCTOR_CACHE_DIR=str(tmp_path / start))
        written = [json.loads(path.read_text()) for path in reports.glob("*.json")]
        counts.append([space for report in written for space in report["spaces"] if space["space"] == "inductor"])
    assert [space["puts"] for space in counts[0]] == [2], "what was queued is stored at the end of the process"
    assert [(space["hits"], space["puts"]) for space in counts[1]] == [(2, 0)]


def test_compile_workers_of_torch_have_the_caches(tmp_path):
    """A worker gets its parent's sys.path as PYTHONPATH. It looks its autotuning up in the cache of its parent."""
    pytest.importorskip("torch")
    program = """
import subprocess, sys
import kiln.caches.inductor as caches
caches.apply()
from torch._inductor.utils import python_subprocess_env
worker = "from torch._inductor import remote_cache as r; print(r.RemoteAutotuneCache.backend_override_cls)"
print(subprocess.run([sys.executable, "-c", worker], env=python_subprocess_env(), capture_output=True, text=True))
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KILN_CACHES")}
    environment["PYTHONPATH"] = str(PACKAGES)
    environment["KILN_CACHE_DIR"] = str(tmp_path / "cache")
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=900)
    assert "kiln.caches.inductor.Backend" in done.stdout, done


def test_a_child_of_multiprocessing_stores_its_queue_and_reports(tmp_path):
    """Compile workers of torch are such children: they end by os._exit()."""
    program = """
import multiprocessing
from kiln.caches import _settings
def work(number):
    _settings.blobs("s", "v").put(f"k{number}", b"x")
fork = multiprocessing.get_context("fork")
for number in range(2):
    child = fork.Process(target=work, args=(number,))
    child.start()
    child.join()
    assert child.exitcode == 0
work(2)
_settings.blobs("s", "v").flush()
child = fork.Process(target=work, args=(3,))
child.start()
child.join()
"""
    reports = tmp_path / "reports"
    reports.mkdir()
    run(program, tmp_path, KILN_CACHES_REPORT=str(reports))
    spaces = [json.loads(path.read_text())["spaces"] for path in reports.glob("*.json")]
    assert [space["puts"] for found in spaces for space in found] == [1, 1, 1, 1]
    with kiln.Service(cache_dir=tmp_path / "cache", hermetic=True) as service:
        assert sorted(item["key"] for item in kiln.Blobs(service, "s").list()) == ["k0", "k1", "k2", "k3"]


def test_children_of_a_pool_report_no_counts_of_their_parent(tmp_path):
    program = """
import multiprocessing
from kiln.caches import _settings
blobs = _settings.blobs("s", "v")
blobs.put("k", b"x")
for _ in range(10):
    assert blobs.get("k") == b"x"
blobs.flush()
def quiet(number):
    return blobs.counts()["hits"]
def asking(number):
    assert blobs.get("k") == b"x"
    return blobs.counts()["hits"]
fork = multiprocessing.get_context("fork")
for work, hits in (quiet, 0), (asking, 1):
    with fork.Pool(1) as pool:
        assert pool.map(work, [0]) == [hits]
        pool.close()
        pool.join()
"""
    reports = tmp_path / "reports"
    reports.mkdir()
    run(program, tmp_path, KILN_CACHES_REPORT=str(reports))
    spaces = [json.loads(path.read_text())["spaces"] for path in reports.glob("*.json")]
    assert sorted((space["hits"], space["puts"]) for found in spaces for space in found) == [(0, 0), (1, 0), (10, 1)]


def test_a_program_that_imports_kilns_module_first_uses_the_caches_too(tmp_path):
    pytest.importorskip("torch")
    done = run(
        "import kiln.caches.inductor as caches; from torch._inductor import remote_cache\n"
        "print(remote_cache.RemoteFxGraphCache.backend_override_cls is caches.Backend)",
        tmp_path,
    )
    assert (done.stdout.strip(), done.stderr) == ("True", "")
