"""vLLM's layers on kiln's operators: an entry point of the group vllm.general_plugins.

KILN_VLLM=1 switches it on, for vLLM 0.33. Without it, register() does nothing and imports nothing.
KILN_VLLM=seal also seals kiln.torch's service once vLLM's warm-up has ended.
docs/guide/engines/vllm.md says which layers run on kiln, and what to switch on in vLLM.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ._explain import Explanation

#: "" or "0": off, "1": on, "seal": on, and the service is sealed after vLLM's warm-up
SWITCH = "KILN_VLLM"

_adapter: Any = None


def switch() -> str:
    value = os.environ.get(SWITCH, "0") or "0"
    if value not in ("0", "1", "seal"):
        raise ValueError(f"{SWITCH} is {value!r}, expected 0, 1 or seal")
    return value


def register() -> None:
    """Registers kiln's layers with vLLM, once for each process, if KILN_VLLM is set.

    Layers that exist already stay as they are. Raises ValueError for another value of KILN_VLLM.
    """
    global _adapter
    if _adapter is None and switch() != "0":
        from . import _vllm as adapter

        adapter.register(seal=switch() == "seal")
        _adapter = adapter


def explain(model: torch.nn.Module | None = None) -> Explanation:
    """The layers of this process that kiln knows: which run on kiln, which do not, and why.

    With `model`, only its layers, by their names in it. Without KILN_VLLM there are no rows.
    """
    from ._explain import Explanation

    return _adapter.explain(model) if _adapter else Explanation()
