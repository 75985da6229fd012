"""kiln.caches.cuda_core behind the released cuda.core. None of it needs a GPU."""

import kiln
import pytest

pytest.importorskip("cuda.core.utils")

from cuda.core import ObjectCode
from kiln.caches.cuda_core import ProgramCache


@pytest.fixture
def cache(tmp_path):
    with kiln.Service(cache_dir=tmp_path / "cache", hermetic=True) as service:
        yield ProgramCache(service)


def test_a_cache_is_a_mapping_of_bytes(cache):
    assert len(cache) == 0 and cache.get(b"k") is None
    cache[b"k"] = b"one"
    cache["k"] = b"two"  # text and its UTF-8 are one key
    assert cache[b"k"] == b"two" and len(cache) == 1
    cache.update({b"\xff\0": bytearray(b"three"), "l": memoryview(b"f-o-u-r")[::2]})
    assert (cache[b"\xff\0"], cache["l"], len(cache)) == (b"three", b"four", 3)
    del cache["k"]
    for call in (lambda: cache["k"], lambda: cache.__delitem__("k")):
        with pytest.raises(KeyError):
            call()
    cache.clear()
    assert len(cache) == 0


def test_an_object_code_is_kept_by_its_bytes(cache, tmp_path):
    file = tmp_path / "kernel.cubin"
    file.write_bytes(b"\x7fELF from a file")
    cache["file"] = ObjectCode.from_cubin(str(file))
    cache["bytes"] = ObjectCode.from_cubin(b"\x7fELF")
    gone = ObjectCode.from_cubin(str(file))
    file.unlink()
    assert (cache["file"], cache["bytes"]) == (b"\x7fELF from a file", b"\x7fELF")
    with pytest.raises(FileNotFoundError, match=f"path-backed ObjectCode.*{file}"):
        cache["gone"] = gone


def test_other_keys_and_values_are_refused(cache):
    with pytest.raises(TypeError, match="a value is bytes-like or ObjectCode, not str"):
        cache[b"k"] = "text"
    with pytest.raises(TypeError, match="a key is bytes or str, not int"):
        cache[5] = b"x"
    assert len(cache) == 0
