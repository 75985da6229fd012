"""kiln.Blobs and the formats of kiln.caches that need no other JIT compiler."""

import fcntl
import json
import os
import pathlib
import struct
import subprocess
import sys
import threading
import time

import kiln
import pytest
from kiln.caches import _files, _settings


@pytest.fixture
def service(tmp_path):
    with kiln.Service(cache_dir=tmp_path / "cache", hermetic=True) as service:
        yield service


def test_keys_and_values_are_bytes(service):
    blobs = kiln.Blobs(service, "triton", "v1")
    assert blobs.get("k") is None
    assert blobs.put("k", b"a\0b") == "stored"
    assert blobs.put(b"k", bytearray(b"a\0b")) == "present"
    assert blobs.get("k") == b"a\0b"
    assert blobs.put(b"\xff\0", memoryview(b"")) == "stored"
    assert blobs.get(b"\xff\0") == b""
    assert kiln.Blobs(service, "triton", "v2").get("k") is None
    with pytest.raises(kiln.Error, match=r"space 'a b' of blobs must have 1 to 64 characters of a-z 0-9 _ - \."):
        kiln.Blobs(service, "a b")
    for space in ("files", "dir", "dir.triton"):
        with pytest.raises(kiln.Error, match=f"space '{space}' has the directories that 'kiln caches capture' stores"):
            kiln.Blobs(service, space)
    kiln.Blobs(service, "directory")
    with pytest.raises(kiln.Error, match="the key of a blob of space triton has 70000 bytes; at most 65536"):
        blobs.get("k" * 70000)
    with pytest.raises(TypeError):
        blobs.put("k", "text")


def test_a_blob_is_listed_counted_and_deleted(service):
    blobs = kiln.Blobs(service, "s")
    blobs.put("k", b"x" * 1000)
    blobs.get("k")
    (item,) = blobs.list()
    assert (item["key"], item["size"], item["compatibility"]) == ("k", 1000, "")
    counts = blobs.counts()
    assert (counts["hits"], counts["puts"], counts["misses"]) == (1, 1, 0)
    assert blobs.delete("k") and not blobs.delete("k")
    assert blobs.list() == []


def test_any_key_is_deleted_by_what_the_list_shows(service):
    blobs = kiln.Blobs(service, "s")
    keys = [b"\xff\0key", b"caf\xc3\xa9", b"plain", b"\xed\xb3\xbf"]  # the last one is a surrogate in UTF-8
    for key in keys:
        blobs.put(key, b"of " + key)
    shown = [item["key"] for item in blobs.list()]
    assert {blobs.get(key) for key in shown} == {b"of " + key for key in keys}
    assert "caf\u00e9" in shown and "plain" in shown
    assert all(blobs.delete(key) for key in shown)
    assert blobs.list() == []


def test_a_lease_is_a_context(service):
    blobs = kiln.Blobs(service, "s")
    with blobs.lease("k") as lease:
        assert lease.data is None and lease.held
        assert lease.put(b"made") == "stored"
        assert not lease.held
    with blobs.lease("k") as lease:
        assert lease.data == b"made" and not lease.held
    with blobs.lease("other") as lease:
        assert lease.held
    assert blobs.lease("other", 0).held, "a lease that ended without a blob is free"


def test_ctrl_c_ends_the_wait_for_a_lease(service, tmp_path):
    blobs = kiln.Blobs(service, "s")
    program = f"""
import json, kiln, os, signal, threading, time
service = kiln.Service(cache_dir={str(tmp_path / "cache")!r}, hermetic=True)
blobs = kiln.Blobs(service, "s")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a script ignores it

def interrupt():
    while blobs.counts()["waits"] == 0:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    blobs.lease("k", wait=-1)
except KeyboardInterrupt:
    print(json.dumps(blobs.counts()))
"""
    with blobs.lease("k") as lease:
        assert lease.held
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert (counts["waits"], counts["wait_timeouts"], counts["hits"], counts["misses"]) == (1, 0, 0, 0)


def test_a_forked_child_waits_for_no_call_of_its_parents_threads(service, tmp_path):
    """A thread of the parent waits for a lease when the child is forked. The alarm ends a child that is stuck."""
    blobs = kiln.Blobs(service, "s")
    program = f"""
import kiln, os, signal, threading, time
service = kiln.Service(cache_dir={str(tmp_path / "cache")!r}, hermetic=True)
blobs = kiln.Blobs(service, "s")
blobs.put("there", b"x")
threading.Thread(target=lambda: blobs.lease("k", wait=-1), daemon=True).start()
while blobs.counts()["waits"] == 0:
    time.sleep(0.01)
for closing in False, True:
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        assert blobs.get("there") == b"x"
        if closing:
            service.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, closing
assert blobs.get("there") == b"x"
os._exit(0)
"""
    with blobs.lease("k") as lease:
        assert lease.held
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_processes_share_one_store_and_one_maker(service, tmp_path):
    program = f"""
import kiln, os, sys, time
blobs = kiln.Blobs(kiln.Service(cache_dir={str(tmp_path / "cache")!r}, hermetic=True), "s")
with blobs.lease("k") as lease:
    if lease.data is None:
        os.write(os.open({str(tmp_path / "made")!r}, os.O_CREAT | os.O_WRONLY | os.O_APPEND), b"x")
        time.sleep(0.1)
        lease.put(b"made")
print(lease.data)
"""
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [p.communicate()[0] for p in processes] == ["b'made'\n"] * 4
    assert (tmp_path / "made").read_text() == "x"


def test_a_closed_service_refuses(tmp_path):
    service = kiln.Service(cache_dir=tmp_path, hermetic=True)
    blobs = kiln.Blobs(service, "s")
    lease = blobs.lease("k")
    service.close()
    lease.end()
    with pytest.raises(kiln.Error, match="this kiln.Service was closed"):
        blobs.get("k")


def test_a_missing_blob_is_refused_where_the_space_says_so(tmp_path):
    with kiln.Service(cache_dir=tmp_path, hermetic=True, mode="sealed") as service:
        blobs = kiln.Blobs(service, "s", refuse_when_sealed=True)
        service.seal()
        with pytest.raises(kiln.NotReady, match="sealed: blob 'k' of space s is in no store"):
            blobs.get("k")


@pytest.mark.parametrize("files", [{}, {"a.json": b"{}"}, {"a": b"", "b.cubin": bytes(range(256))}])
def test_files_are_packed_and_unpacked(files):
    assert _files.unpack(_files.pack(files)) == files


def test_damaged_and_hostile_files_are_none():
    good = _files.pack({"a": b"content", "b": b"x"})
    assert all(_files.unpack(good[:size]) is None for size in range(len(good)))
    assert _files.unpack(good + b"x") is None
    for name in ("../a", "/etc/passwd", "a/b", ".", "..", "", "a\0b"):
        assert _files.unpack(_files.pack({name: b"x"})) is None, name


def test_a_private_directory_is_its_process_own(tmp_path, monkeypatch):
    program = """
import os, sys
from kiln.caches import _files
place = _files.PrivateDirectory("kiln-test-")
first = place.write("k", {"a": b"1"})["a"]
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, place.write("k", {"a": b"2"})["a"].encode())
    os._exit(0)
os.wait()
child = os.read(read, 4096).decode()
outer = place.path().parent
print(first != child, open(first).read(), oct(os.stat(outer).st_mode & 0o777))
print(outer)
"""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "True 1 0o700"
    assert not os.path.exists(lines[1]), "it is removed when the process ends"


def flags_of(path, more=0):
    """The flags of a directory, of which each filesystem has its own, after `more` are set. None where they are refused."""
    handle = os.open(path, os.O_RDONLY)
    try:
        flags = struct.unpack_from("I", fcntl.ioctl(handle, _files._GET_FLAGS, bytes(8)))[0]
        if more:
            fcntl.ioctl(handle, _files._SET_FLAGS, struct.pack("I4x", flags | more))
        return flags | more
    except OSError:
        return None
    finally:
        os.close(handle)


def test_ext4_may_move_the_files_of_a_private_directory(tmp_path, monkeypatch):
    """The directory in TMPDIR has the flag. The one inside of it, and with it the folders of kernels, do not inherit it."""
    (tmp_path / "other").mkdir()
    if flags_of(tmp_path / "other", _files._TOP) is None:
        pytest.skip("the filesystem of TMPDIR has no such flag")
    monkeypatch.setattr(_files.tempfile, "tempdir", str(tmp_path))
    inner = _files.PrivateDirectory("kiln-test-").path()
    assert inner.parent.parent == tmp_path
    assert flags_of(inner.parent) & _files._TOP
    assert not flags_of(inner) & _files._TOP


def test_a_filesystem_that_refuses_flags_has_private_directories_too(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(_files.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(_files.fcntl, "ioctl", refuse)
    path = _files.PrivateDirectory("kiln-plain-").write("k", {"a": b"1"})["a"]
    with open(path, "rb") as file:
        assert file.read() == b"1"


def outer_of(path):
    """The directory in TMPDIR of a file that PrivateDirectory.write() returned."""
    return pathlib.Path(path).parents[2]


def test_a_killed_process_directory_goes_with_the_next_process(tmp_path, monkeypatch):
    program = """
import os, signal, sys
from kiln.caches import _files
place = _files.PrivateDirectory("kiln-test-")
print(place.write("k", {"a": b"1"})["a"], flush=True)
if sys.argv[1:] == ["forks"]:
    if os.fork() == 0:  # it has a copy of the lock, and uses its parent's directory
        sys.stdin.readline()
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.readline()
"""

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return process, process.stdout.readline().strip()

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    strange = tmp_path / "kiln-test-abcdefg8"  # of nobody: it has no lock
    strange.mkdir()
    (killed, left), (living, kept), (parent, childs) = start(), start(), start("forks")
    killed.kill()
    killed.wait()
    parent.wait()
    assert os.path.exists(left), "a killed process removes nothing"
    process, own = start()
    assert not os.path.exists(outer_of(left))
    assert all(os.path.exists(path) for path in (kept, childs, own, strange))
    for each in (living, parent, process):
        each.communicate("\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([strange.name, outer_of(childs).name])
    start()[0].communicate("\n")
    assert list(tmp_path.iterdir()) == [strange]


def test_a_child_that_closed_its_files_makes_a_directory_and_closes_no_other_file(tmp_path, monkeypatch):
    """A daemon is such a child. The number of its parent's lock may be that of another file then."""
    program = """
import os, sys
from kiln.caches import _files
place = _files.PrivateDirectory("kiln-test-")
parents = place.path()
for opens in (False, True):
    child = os.fork()
    if child == 0:
        os.closerange(3, 256)
        others = [os.open("/dev/null", os.O_RDONLY) for _ in range(200 if opens else 0)]
        good = place.path() != parents
        for other in others:
            os.fstat(other)
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
"""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_description_of_blobs_is_json(service):
    kiln.Blobs(service, "a"), kiln.Blobs(service, "b", "v")
    assert [(item["space"], item["compatibility"]) for item in json.loads(service.describe_blobs())] == [("a", ""), ("b", "v")]


def test_close_ends_the_waits_of_other_threads(tmp_path):
    service = kiln.Service(cache_dir=tmp_path / "cache", hermetic=True)
    blobs = kiln.Blobs(service, "s")
    held, waited = blobs.lease("k", wait=5), []

    def wait():
        try:
            waited.append(blobs.lease("k", wait=-1).held)
        except kiln.Error as error:  # the service was closed before this thread came to wait
            waited.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    while blobs.counts()["waits"] == 0:
        time.sleep(0.01)
    service.close()
    thread.join(timeout=300)
    assert not thread.is_alive() and waited == [False]
    assert held.held


def test_handles_of_one_space_keep_their_own_options(service):
    plain, behind = kiln.Blobs(service, "s", "v"), kiln.Blobs(service, "s", "v", behind=True)
    refusing = kiln.Blobs(service, "s", "v", refuse_when_sealed=True)
    assert behind.put("k", b"1") == "queued"
    assert plain.get("k") == b"1"
    assert plain.put("l", b"2") == "stored"
    assert behind.flush() and plain.counts()["puts"] == 2 == behind.counts()["puts"]
    service.seal()
    assert plain.get("not there") is None
    with pytest.raises(kiln.NotReady):
        refusing.get("not there")


def test_texts_are_whole_or_refused(service):
    for space, compatibility in (("n", "c\0d"), ("n\0x", "c")):
        with pytest.raises(kiln.Error, match="no zero byte"):
            kiln.Blobs(service, space, compatibility)
    with kiln.Blobs(service, "n").lease("k") as lease:
        with pytest.raises(TypeError):
            lease.put(5)
        assert lease.held and lease.data is None
        lease.put(memoryview(b"v"))
        assert lease.data == b"v"


def test_a_queued_blob_is_found_at_once_and_stored_by_a_flush(service):
    blobs = kiln.Blobs(service, "behind", "v1", behind=True)
    assert blobs.put("k", b"value") == "queued"
    assert blobs.get("k") == b"value"
    assert blobs.flush() and blobs.counts()["puts"] == 1
    with blobs.lease("other", wait=5) as lease:
        assert lease.held and lease.put(b"made") == "queued"
    assert kiln.Blobs(service, "behind", "v1").get("other") == b"made"


@pytest.mark.parametrize(("text", "seconds"), [("", 120.0), ("0", 0.0), ("2.5", 2.5), ("inf", threading.TIMEOUT_MAX)])
def test_the_wait_of_the_caches_is_one_that_a_timer_takes(text, seconds, monkeypatch):
    monkeypatch.setenv("KILN_CACHES_WAIT", text)
    assert _settings.wait() == seconds
    assert threading.Lock().acquire(timeout=_settings.wait())


@pytest.mark.parametrize("text", ["-1", "-inf", "nan", "soon"])
def test_a_wait_that_is_negative_or_no_number_is_refused(text, monkeypatch):
    monkeypatch.setenv("KILN_CACHES_WAIT", text)
    with pytest.raises(ValueError, match=f"KILN_CACHES_WAIT = '{text}': expected a number of seconds, 0 or more"):
        _settings.wait()


# Takes the leases of argv, each within the one before, and makes what is not found.
NESTED_LEASES = """
import json, kiln, sys
directory, wait, *names = sys.argv[1:]
service = kiln.Service(cache_dir=directory, hermetic=True)
spaces = {name.split("/")[0]: None for name in names}
spaces = {space: kiln.Blobs(service, space) for space in spaces}
ends = []

def make(names):
    space, key = names[0].split("/")
    with spaces[space].lease(key, float(wait)) as lease:
        ends.append("found" if lease.data is not None else "held" if lease.held else "alone")
        if len(ends) == 1:
            print("ready", flush=True)
            sys.stdin.readline()
        if names[1:]:
            make(names[1:])
        if lease.data is None:
            lease.put(names[0].encode())

make(names)
timeouts = sum(blobs.counts()["wait_timeouts"] for blobs in spaces.values())
print(json.dumps({"ends": ends, "timeouts": timeouts}))
"""


def start_nested(directory, wait, *names):
    """Starts such a process, and returns once it has its first lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", NESTED_LEASES, str(directory), str(wait), *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_who_waits_for_a_maker_that_never_puts_makes_the_blob(service, tmp_path):
    blobs = kiln.Blobs(service, "s")
    process = start_nested(tmp_path / "cache", 60, "s/k")
    with blobs.lease("k", wait=0.1) as lease:
        assert lease.data is None and not lease.held
        assert lease.put(b"s/k") == "stored"
    assert (blobs.counts()["waits"], blobs.counts()["wait_timeouts"]) == (1, 1)
    assert blobs.lease("k", wait=-1).data == b"s/k", "a blob that is there needs no lease"
    out, _ = process.communicate("\n", timeout=300)
    assert json.loads(out)["ends"] == ["held"]
    assert blobs.get("k") == b"s/k"


def test_nested_leases_in_opposite_order_end(service, tmp_path):
    """A graph's lease is held while its kernels' leases are taken, in its space and in another one."""
    names = ["graphs/g", "graphs/k", "kernels/k"]
    one = start_nested(tmp_path / "cache", 1, *names)
    two = start_nested(tmp_path / "cache", 1, *reversed(names))
    for process in one, two:  # each has a lease that the other one asks for last
        process.stdin.write("\n")
        process.stdin.flush()
    ended = [json.loads(process.communicate(timeout=300)[0]) for process in (one, two)]
    assert [process.returncode for process in (one, two)] == [0, 0]
    assert [end["ends"][0] for end in ended] == ["held", "held"]
    # A wait that ends while the other process puts the blob counts as a timeout, and finds it.
    assert all(end["timeouts"] >= end["ends"].count("alone") for end in ended)
    assert sum(end["timeouts"] for end in ended) >= 1, "one of them had to make a blob without its lease"
    for name in names:
        space, key = name.split("/")
        assert kiln.Blobs(service, space).get(key) == name.encode()
        with kiln.Blobs(service, space).lease("free", wait=-1) as lease:
            assert lease.held
