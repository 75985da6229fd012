"""SGLang's layers on kiln's operators: an entry point of the group sglang.srt.plugins.

KILN_SGLANG=1 switches it on, for SGLang 0.5.23. Without it, register() does nothing and imports nothing.
docs/guide/engines/sglang.md says which layers run on kiln.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ._explain import Explanation

SWITCH = "KILN_SGLANG"  #: "" or "0": off, "1": on

_adapter: Any = None


def register() -> None:
    """Gives SGLang's layers a plugin backend, once for each process, if KILN_SGLANG is set.

    Raises ValueError for another value of KILN_SGLANG than 0 and 1.
    """
    global _adapter
    value = os.environ.get(SWITCH, "0") or "0"
    if value not in ("0", "1"):
        raise ValueError(f"{SWITCH} is {value!r}, expected 0 or 1")
    if _adapter is None and value == "1":
        from . import _sglang as adapter

        adapter.register()
        _adapter = adapter


def explain(model: torch.nn.Module | None = None) -> Explanation:
    """The layers of this process that kiln knows: which run on kiln, which do not, and why.

    With `model`, only its layers, by their names in it. Without KILN_SGLANG there are no rows.
    """
    from ._explain import Explanation

    return _adapter.explain(model) if _adapter else Explanation()
