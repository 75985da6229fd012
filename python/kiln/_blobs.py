"""Blobs: opaque bytes of other JIT compilers in kiln's stores, layers, bundles and tier."""

from __future__ import annotations

import json
from typing import Any

from . import _kiln
from ._default import service as default_service
from ._errors import Code, Error
from ._service import Service

Key = str | bytes


class Blobs:
    """The blobs of one space, for one compatibility.

    `service` is a kiln.Service; None is kiln.service(). `space` names the producer: "triton". The names "files", "dir"
    and "dir.*" are refused: `kiln caches capture` has them.
    `compatibility` is what the blobs depend on and their keys do not say, such as versions, arch and driver. It is a
    part of the key, and is compared when a blob is found.
    `budget` in bytes is what the space may take in the store; the least recently used blobs go first. 0: half of it.
    `refuse_when_sealed`: a blob that is not there raises NotReady in mode sealed, and once the service or the process is
    sealed.
    `behind`: a put returns once the blob is queued, and a thread of the service stores it. This process finds a queued
    blob. One that is queued is lost when the process ends by a signal or by os._exit().

    A missing, damaged or torn blob is not there, and a put that finds no room is skipped: neither raises.
    Keys are str or bytes of up to 64 KiB; values are anything with the buffer protocol, up to 16 GiB.
    Thread-safe, and safe between processes and containers. Calls release the GIL while they wait.

    Raises Error for texts that no blob can have.
    """

    def __init__(
        self,
        service: Service | None = None,
        space: str = "blobs",
        compatibility: str = "",
        *,
        budget: int = 0,
        refuse_when_sealed: bool = False,
        behind: bool = False,
    ) -> None:
        if "\0" in space + compatibility:
            raise Error("space and compatibility of blobs must have no zero byte", Code.invalid_argument)
        self.service = service if service is not None else default_service()
        self.space = space
        self.compatibility = compatibility
        self._blobs = self.service.open_blobs(space, compatibility, budget, refuse_when_sealed, behind)

    def get(self, key: Key) -> bytes | None:
        """Returns the blob, or None. Asks the layers, the writable store and the fleet's tier."""
        return self._blobs.get(_bytes(key))

    def put(self, key: Key, data: Any, *, lease: Lease | None = None) -> str:
        """Stores a blob, and replaces one with other bytes. It is on disk when this returns, unless it was queued.

        Returns "stored", "present" (the same bytes were there), "skipped" (no room, no store; a warning says which)
        or "queued" (`behind`). Ends the lease once the blob is stored.
        """
        held = lease._take() if lease is not None else None
        return ("stored", "present", "skipped", "queued")[self._blobs.put(_bytes(key), data, held)]

    def lease(self, key: Key, wait: float = 600) -> Lease:
        """Returns the blob or the right to make it, as a context manager.

            with blobs.lease(key) as lease:
                if lease.data is None:
                    lease.put(make())

        Waits at most `wait` seconds for another maker (negative: no limit). A maker on another node of a fleet is waited
        for at most as long as KILN_REMOTE_BUDGET says. A killed maker on this host does not count. When the wait is over,
        the caller makes the blob for itself. Ctrl-C in the main thread ends the wait.
        """
        data, held = self._blobs.lease(_bytes(key), wait)
        return Lease(self, key, data, held)

    def flush(self, wait: float = -1) -> bool:
        """Waits at most `wait` seconds (negative: no limit) until queued blobs are stored. False when that was over first."""
        return self._blobs.flush(wait)

    def list(self) -> list[dict[str, Any]]:
        """Returns the blobs of the space, of every compatibility, in layers and store.

        An item has key, compatibility, size, stored_bytes, last_used_s, uses and directory. Its key is text that get()
        and delete() take: a byte that is no UTF-8 is a surrogate, as in os.fsdecode().
        """
        items = json.loads(self._blobs.list())
        for item in items:
            item["key"] = bytes.fromhex(item.pop("key_hex")).decode("utf-8", "surrogateescape")
        return items

    def delete(self, key: Key) -> bool:
        """Deletes a blob of this compatibility from the writable store. False when it was not there."""
        return self._blobs.delete(_bytes(key))

    def identify(self, key: Key, identity: bytes) -> None:
        """Says what kiln.fingerprint() has of a blob that this process has read or stored, in place of its bytes.

        For bytes that differ from process to process although they are the same code, such as with the time of a
        compile. The next read or put of the blob brings its bytes back.
        """
        self._blobs.identify(_bytes(key), identity)

    def counts(self) -> dict[str, int]:
        """Counts of this process for this space: hits, misses, puts, waits and so on (kiln_service_describe_blobs)."""
        return next(
            {name: value for name, value in item.items() if isinstance(value, int)}
            for item in json.loads(self.service.describe_blobs())
            if (item["space"], item["compatibility"]) == (self.space, self.compatibility)
        )

    def __repr__(self) -> str:
        return f"<kiln.Blobs {self.space}>"


class Lease:
    """A blob, or the right to make it. Leaving its `with` block without a put lets the next caller make it."""

    def __init__(self, blobs: Blobs, key: Key, data: bytes | None, held: Any) -> None:
        self.blobs, self.key, self.data = blobs, key, data
        self._held = held

    @property
    def held(self) -> bool:
        """True while other callers wait for this one."""
        return self._held is not None and self._held.held

    def put(self, data: Any) -> str:
        """Stores the blob, and ends the lease. Returns what Blobs.put returns."""
        content = bytes(memoryview(data))
        done = self.blobs.put(self.key, content, lease=self)
        self.data = content
        return done

    def end(self) -> None:
        held = self._take()
        if held is not None:
            held.end()

    def _take(self) -> _kiln.Lease | None:
        held, self._held = self._held, None
        return held

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _bytes(key: Key) -> bytes:
    return key.encode("utf-8", "surrogateescape") if isinstance(key, str) else bytes(key)
