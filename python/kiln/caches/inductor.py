"""The caches of torch.compile in kiln's store.

    import kiln.caches.inductor
    kiln.caches.inductor.apply()       # before the first torch.compile

Inductor's remote caches (FX graphs, AOTAutograd, autotuning, bundled autotuning, Dynamo's profile) then are blobs of
space "inductor", and Triton's cache is kiln.caches.triton. So torch.compile starts from kiln's store alone; its local
directories may be empty. undo() restores what was set before.

The values hold pickles. kiln gives only what this user's store, a layer's owner or a signature of the tier vouches for.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import pickletools
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._inductor import remote_cache

from .._blobs import Blobs, Lease
from .._locks import Lock
from . import _settings

# Names of cache classes, and the switch of each: a module of settings and the name in it.
_CACHES = {
    "RemoteFxGraphCache": ("torch._inductor.config", "fx_graph_remote_cache"),
    "RemoteAOTAutogradCache": ("torch._functorch.config", "enable_remote_autograd_cache"),
    "RemoteAutotuneCache": ("torch._inductor.config", "autotune_remote_cache"),
    "RemoteBundledAutotuneCache": ("torch._inductor.config", "bundled_autotune_remote_cache"),
    "RemoteDynamoPGOCache": ("torch._dynamo.config", "automatic_dynamic_remote_pgo"),
}
_MANAGER = "kiln.caches.triton:CacheManager"
_before: dict[str, Any] = {}


def _blobs() -> Blobs:
    return _settings.blobs("inductor", f"torch {torch.__version__}, {_settings.machine()}")


class Backend(remote_cache.RemoteCacheBackend[bytes]):
    """A backend of torch's remote caches. A fault of a store is a miss.

    One process of a host compiles an FX graph, and others wait for it. torch does not say when a compile fails, so the
    lease of a graph also ends by itself after KILN_CACHES_WAIT.
    """

    def _get(self, key: str) -> bytes | None:
        stored = self._stored(key)
        if stored is None:
            return None
        data, identity = _parted(stored)
        if identity:
            _blobs().identify(key, identity)
        return data

    def _stored(self, key: str) -> bytes | None:
        if "fx-graph" not in key:
            return _blobs().get(key)
        if os.environ.get("TRITON_CACHE_MANAGER") == _MANAGER:
            _settings.show_triton_files()
        lease = _blobs().lease(key, _settings.wait())
        if lease.data is None and lease.held:
            timer = threading.Timer(_settings.wait(), _end, (key,))
            timer.daemon = True
            with _lock:
                _leases[key] = (lease, timer)
            timer.start()
        return lease.data

    def _put(self, key: str, data: bytes) -> None:
        with _lock:
            lease, timer = _leases.pop(key, (None, None))
        if timer is not None:
            timer.cancel()
        identity = _identity(data)
        _blobs().put(key, data + _MARK + identity if identity else data, lease=lease)
        if identity:
            _blobs().identify(key, identity)


# A blob is torch's payload, and after it, where the payload has one, the mark and its identity.
_MARK = b"\nkiln identity 1 "
_DIGITS = 32


def _parted(stored: bytes) -> tuple[bytes, bytes]:
    """The payload of a blob, and its identity, which is empty where the blob has none."""
    at = len(stored) - _DIGITS - len(_MARK)
    if at < 0 or stored[at : at + len(_MARK)] != _MARK:
        return stored, b""
    return stored[:at], stored[-_DIGITS:]


def _identity(data: bytes) -> bytes:
    """A digest of a payload without times and addresses of its compile, in hex digits; empty for other bytes.

    Processes that compile the same code write other times, and other addresses of Python's objects in texts for people.
    kiln.fingerprint() compares the identities. The pickle in a payload is parsed here and never loaded.
    """
    try:
        fields = json.loads(data)
        pickled = base64.b64decode(fields.pop("data"), validate=True)
        fields.pop("time_taken_ms", None)
        digest = hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=_DIGITS // 2)
        for name, argument in _untimed(pickled):
            if isinstance(argument, bytes):  # constants of a graph: their text would be four times as large
                digest.update(f"{name} {len(argument)} ".encode())
                digest.update(argument)
            else:
                digest.update(repr((name, argument)).encode())
    except Exception:  # no payload of a graph
        return b""
    return digest.hexdigest().encode()


_ADDRESS = re.compile(r"(?<= at 0x)[0-9a-f]+(?=>)")  # "<function f at 0x7f1dd7108c20>"


def _untimed(pickled: bytes) -> Iterator[tuple[str, object]]:
    """The operations of a pickle, without its framing, numbers that follow a name of a time, and addresses."""
    memo: list[object] = []
    last: object = None  # the value on top of the stack, where it is a text
    for operation, argument, _ in pickletools.genops(pickled):
        name = operation.name
        if name in ("FRAME", "PROTO"):
            continue
        if name == "MEMOIZE":
            memo.append(last)
            continue
        if name in ("BINGET", "LONG_BINGET"):
            last = memo[argument]
        elif isinstance(argument, int) and isinstance(last, str) and last.endswith("time_taken_ns"):
            last = None
            continue
        else:
            last = argument if isinstance(argument, str) else None
        yield name, _ADDRESS.sub("", argument) if isinstance(argument, str) else argument


_lock = Lock()
_leases: dict[str, tuple[Lease, threading.Timer]] = {}  # of graphs that this process is compiling


def _end(key: str) -> None:
    with _lock:
        lease, _ = _leases.pop(key, (None, None))
    if lease is not None:
        lease.end()


def apply(*, triton: bool = True, autotune: bool | None = None) -> None:
    """Puts the caches of torch.compile into kiln's store, for this process and the processes that it starts.

    `triton`: Triton's cache, too. `autotune`: the bundled autotuning cache, which works on GPUs alone; None: where there
    is one. Calling it again changes nothing.
    """
    if _before:
        return
    if autotune is None:  # device_count() asks NVML, so that a process may fork afterwards
        autotune = not _is_compile_worker() and torch.cuda.device_count() > 0
    for name, (module, switch) in _CACHES.items():
        cache = getattr(remote_cache, name, None)
        settings = importlib.import_module(module)
        if cache is None or not hasattr(settings, switch):
            continue  # this version of torch has no such cache
        _before[name] = (cache.backend_override_cls, getattr(settings, switch))
        cache.backend_override_cls = Backend
        if autotune or "Autotune" not in name:
            setattr(settings, switch, True)
    if triton and not os.environ.get("TRITON_CACHE_MANAGER"):
        _before["triton"] = True
        os.environ["TRITON_CACHE_MANAGER"] = _MANAGER
    if "KILN_CACHES" not in os.environ:
        _before["children"] = True
        _settings.for_children("on" if triton else "inductor")
    _before.setdefault("applied", True)


def undo() -> None:
    """Restores what apply() changed."""
    if _before.get("children"):
        _settings.for_children("")
    for name, value in _before.items():
        if name in _CACHES:
            module, switch = _CACHES[name]
            getattr(remote_cache, name).backend_override_cls = value[0]
            setattr(importlib.import_module(module), switch, value[1])
    if _before.get("triton") and os.environ.get("TRITON_CACHE_MANAGER") == _MANAGER:
        del os.environ["TRITON_CACHE_MANAGER"]
        _settings.hide_triton_files()
    _before.clear()


def save_artifacts(name: str) -> bool:
    """Stores torch.compiler.save_cache_artifacts() as a blob of this name. False when there is nothing to save."""
    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        return False
    return _blobs().put(f"artifacts/{name}", saved[0]) != "skipped"


def load_artifacts(name: str) -> bool:
    """Loads the artifacts of this name into torch's local caches. False when they are not there."""
    data = _blobs().get(f"artifacts/{name}")
    if data is None:
        return False
    torch.compiler.load_cache_artifacts(data)
    return True


def _is_compile_worker() -> bool:
    """True in a process that compiles for another one, whose settings of torch it gets."""
    return "compile_worker" in sys.argv[0]


if globals().get("apply_once_imported"):  # set by start/sitecustomize.py
    apply(triton=False)
