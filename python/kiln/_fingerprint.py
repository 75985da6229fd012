"""A fingerprint of the kernels and blobs that a process uses, which the ranks of a job compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from ._default import service as default_service
from ._errors import Code, Error
from ._service import Service

_MOST_SHOWN = 8  # differences in an error


class RanksDiffer(Error):
    """Ranks of one job run different code. The text names ranks, spaces and keys."""


class Fingerprint:
    """The code that a process uses at one moment. Two fingerprints are equal if their processes use the same code.

    str() is 32 hex digits. `spaces` has a fingerprint for each space: "kernels", and the spaces of blobs.
    """

    def __init__(self, described: dict[str, Any]) -> None:
        self._described = described
        self.spaces: dict[str, str] = {item["space"]: item["fingerprint"] for item in described["spaces"]}
        self.items: dict[str, dict[str, list[str]]] = {item["space"]: item["items"] for item in described["spaces"]}

    def __str__(self) -> str:
        return self._described["fingerprint"]

    def __repr__(self) -> str:
        return f"<kiln fingerprint {self}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fingerprint) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def differences(self, other: Fingerprint) -> list[str]:
        """A line for each name that only one of both has, or that has another content there."""
        out = []
        for space in sorted(self.items.keys() | other.items.keys()):
            ours, theirs = self.items.get(space, {}), other.items.get(space, {})
            for name in sorted(ours.keys() | theirs.keys()):
                if ours.get(name) == theirs.get(name):
                    continue
                what = (
                    "only the first has it" if name not in theirs else "only the second has it" if name not in ours else "differs"
                )
                out.append(f"space {space}: {what}: {name.replace(chr(10), ' of ')}")
        return out

    def check(self, gather: Callable[[Any], Iterable[Any]] | None = None) -> None:
        """Raises RanksDiffer, on every rank, unless all ranks have this fingerprint. Every rank calls it.

        `gather` takes an object and returns the objects of all ranks, in their order (mpi4py's `comm.allgather`).
        None: torch.distributed, whose default group must be there.
        """
        if gather is None:
            gather = _gather_in_torch
        mine = str(self)
        if len(set(gather(mine))) == 1:
            return
        first, *others = (Fingerprint(json.loads(text)) for text in gather(json.dumps(self._described)))
        lines = []
        for rank, other in enumerate(others, start=1):
            found = first.differences(other)
            lines += [f"rank {rank} and rank 0: {line}" for line in found[:_MOST_SHOWN]]
            if len(found) > _MOST_SHOWN:
                lines.append(f"rank {rank} and rank 0: {len(found) - _MOST_SHOWN} more")
        lines = [line.replace("only the first has it", "only rank 0 has it") for line in lines]
        lines = [line.replace("only the second has it", f"only {line.split(' and ')[0]} has it") for line in lines]
        raise RanksDiffer("ranks run different code:\n" + "\n".join(lines), Code.invalid_value)


def fingerprint(service: Service | None = None) -> Fingerprint:
    """The fingerprint of the kernels that are loaded, and of the blobs that this process has read or stored.

    `service` is a kiln.Service; None is kiln.service(). The ranks of a job compare it in one line:

        kiln.fingerprint().check()
    """
    return Fingerprint(json.loads((service or default_service()).describe_fingerprint()))


def _gather_in_torch(value: Any) -> list[Any]:
    import torch.distributed

    out = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(out, value)
    return out
