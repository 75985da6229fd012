"""Attention with plans. A plan says what each block of a launch does for the lengths of a batch.

plan() runs on the host, outside of any capture, and copies the plan to the device in the current stream.
plan_on_device() is an operator: a kernel writes the plan from lengths in device memory, so it may be compiled and captured.
The device buffer never moves. A call runs the operator, in eager mode, compiled or captured.
A captured graph replays with other lengths after plan() was called for them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _kiln
from .._values import AttentionPlan
from . import _modes
from ._generated import operators
from ._shapes import of_shape, of_type, refuse


def _listed(name: str, lengths: Any) -> list[int] | None:
    if lengths is None or isinstance(lengths, list):
        return lengths
    if isinstance(lengths, Tensor) and lengths.device.type == "cuda":
        refuse(
            f"{name} is on {lengths.device}: plan() runs on the host, and reading it would wait for the device; expected a list, "
            "or an array in host memory, or a call of plan_on_device()"
        )
    return lengths.tolist() if hasattr(lengths, "tolist") else list(lengths)


class _Planner:
    """The host's side of plans: a kernel, its limits, and the host buffers that plans are written into.

    It is separate from the torch module because attributes of a module are slow.
    """

    def __init__(self, template: str, parameters: dict[str, Any], device: torch.device, limits: dict[str, int]) -> None:
        self.template, self.parameters, self.device, self.limits = template, parameters, device, limits
        self.service, self._kernel = _modes.service(), self._made()
        self.sizes = _kiln.attention_sizes(self._kernel, **limits)
        on_gpu = device.type == "cuda"
        # Two buffers, so that the next plan can be written while the last plan is still being copied.
        self.host = [torch.empty(self.sizes.plan_bytes // 4, dtype=torch.int32, pin_memory=on_gpu) for _ in range(2)]
        self.bytes = [host.numpy() for host in self.host]
        self.copied: list[Any] = [torch.cuda.Event() if on_gpu else None for _ in range(2)]
        self.capturing = torch.cuda.is_current_stream_capturing if on_gpu else bool
        self.turn = 0

    def _made(self) -> _kiln.Kernel:
        return _modes.kernel(f"kiln::{self.template}", self.template, self.device.index or 0, self.parameters)

    def kernel(self) -> _kiln.Kernel:
        """The kernel of the service that operators launch through now."""
        service = _modes.service()
        if self.service is not service:
            kernel = self._made()
            if _kiln.attention_sizes(kernel, **self.limits) != self.sizes:
                refuse(
                    f"the service in use now has another {self.template}, whose plans need buffers of other sizes: "
                    "make a new module"
                )
            self.service, self._kernel = service, kernel
        return self._kernel

    def write(self, words: Tensor, lengths: dict[str, Any]) -> AttentionPlan:
        if self.capturing():
            refuse(
                "plan() was called while a stream captures: the copy would be part of the graph, with these lengths; call plan() before the "
                "capture and before each replay with other lengths"
            )
        self.turn = turn = 1 - self.turn
        copied = self.copied[turn]
        if copied is not None:
            copied.synchronize()
        plan = _kiln.attention_plan(self.kernel(), self.bytes[turn], **(self.limits | lengths))
        used = plan.bytes // 4
        words[:used].copy_(self.host[turn][:used], non_blocking=True)
        if copied is not None:
            copied.record(torch.cuda.current_stream(self.device))
        return plan


class _Planned(torch.nn.Module):
    """Holds a plan's device buffer and makes plans for it.

    It is a torch module so that a compiled model treats the plan as a buffer of its own.
    It is not thread-safe, and a plan belongs to one launch at a time.
    """

    plan_words: Tensor
    window_left: int
    window_right: int = -1

    def __init__(self, template: str, heads: int, parameters: dict[str, Any], place: torch.device, **limits: int) -> None:
        super().__init__()
        if limits["kv_heads"] < 1 or heads % limits["kv_heads"]:
            refuse(f"heads = {heads}, expected a multiple of kv_heads = {limits['kv_heads']}")
        self._planner = _Planner(template, parameters, place, limits)
        sizes = self._planner.sizes
        self.workers, self.workspace_bytes = sizes.workers, sizes.workspace_bytes
        self.register_buffer("plan_words", torch.zeros(sizes.plan_bytes // 4, dtype=torch.int32, device=place), persistent=False)

    def _begin(self, page_size: int) -> None:
        """Writes the plan of no requests, over which the device can write others.

        A launch before the first plan is refused, since its first word is 0.
        """
        windows = {"window_left": self.window_left, "window_right": self.window_right}
        self._planner.write(self.plan_words, {"kv_indptr": [0], "page_size": page_size} | windows)
        self.plan_words[0] = 0

    def _plan_on_device(
        self, page_size: int, kv_indptr: Tensor, kv_len: Tensor | None, last_page_len: Tensor | None, qo_indptr: Tensor | None
    ) -> None:
        requests, most = kv_indptr.shape[0] - 1, self._planner.limits["max_requests"]
        if not torch.compiler.is_compiling() and requests > most:
            refuse(f"kv_indptr has {requests + 1} entries, expected at most max_requests + 1 = {most + 1}")
        operators["attn_work_list"](self.plan_words, kv_indptr, self.workers, page_size, qo_indptr, kv_len, last_page_len)

    def _plan(self, **lengths: Any) -> AttentionPlan:
        if torch.compiler.is_compiling():  # torch.compiler.disable would import all of Dynamo
            raise RuntimeError(  # Dynamo of torch 2.11 cannot trace the constructor of kiln.Error
                "plan() was called in a compiled function, and it runs on the host: call it before the function, or call plan_on_device()"
            )
        return self._planner.write(self.plan_words, lengths)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        if fn(self.plan_words).data_ptr() != self.plan_words.data_ptr():
            refuse(
                f"{type(self).__name__}'s plan lies on {self.plan_words.device} and cannot move, because captured graphs hold its address: make a "
                f"new {type(self).__name__} on the other device"
            )
        return super()._apply(fn, recurse)


def _place(device: torch.device | str | int) -> torch.device:
    """The device with its number, which for "cuda" is that of the current device."""
    place = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return place


class _PagedPlanned(_Planned):
    """Plans of requests whose keys and values, or latent rows, lie in pages of `page_size` tokens; 0 means that they are ragged."""

    page_size: int

    def plan(self, kv_indptr: Any, *, last_page_len: Any = None, kv_len: Any = None, qo_indptr: Any = None) -> AttentionPlan:
        """Plans a batch, and starts the copy of the plan to the device in the current stream.

        Request i has the pages kv_indices[kv_indptr[i]:kv_indptr[i + 1]]. Its last page has last_page_len[i]
        tokens, or the request has kv_len[i] tokens in all. With qo_indptr the request has the queries
        q[qo_indptr[i]:qo_indptr[i + 1]], else one token.
        Lengths are lists, numpy arrays, or tensors in host memory.
        Raises Error while a stream captures, in a compiled function, and for lengths on the device.
        """
        return self._plan(
            kv_indptr=_listed("kv_indptr", kv_indptr),
            last_page_len=_listed("last_page_len", last_page_len),
            kv_len=_listed("kv_len", kv_len),
            qo_indptr=_listed("qo_indptr", qo_indptr),
            page_size=self.page_size,
            window_left=self.window_left,
            window_right=self.window_right,
        )

    def plan_on_device(
        self,
        kv_indptr: Tensor,
        *,
        last_page_len: Tensor | None = None,
        kv_len: Tensor | None = None,
        qo_indptr: Tensor | None = None,
    ) -> None:
        """Plans a batch whose lengths are in device memory: torch.ops.kiln.attn_work_list.

        The tensors are i32, and mean what they mean in plan(). The plan is the one that plan() would make.
        The host reads no length, so the call may be captured, and a replay plans with the lengths of its time.
        Requests at the end of a captured batch may have no tokens and no kv.
        Lengths that plan() would refuse make a plan that launches refuse.
        """
        self._plan_on_device(self.page_size, kv_indptr, kv_len, last_page_len, qo_indptr)


class LatentDecode(_PagedPlanned):
    """Attention of the last token (or tokens) of each request over a paged latent cache, on Hopper: template mla_decode.

        attention = kiln.torch.LatentDecode(heads=128, page_size=64, max_requests=256, sm_scale=192**-0.5)
        attention.plan(kv_indptr, kv_len=lengths)           # for each batch, once for all layers
        o, lse = attention(q, kv_cache, kv_indices)

    q is absorbed: 512 elements of each head are products with the key projection, and 64 are rotated.
    The value projection is the caller's, after this.
    With kv_dtype = torch.float8_e4m3fn the cache has FlashMLA's rows of 656 bytes, as mla_append writes them.
    Other options are as in Attention.
    """

    def __init__(
        self,
        *,
        heads: int,
        page_size: int,
        max_requests: int,
        sm_scale: float,
        max_tokens: int = 0,
        dtype: torch.dtype = torch.bfloat16,
        kv_dtype: torch.dtype | None = None,
        causal: bool = True,
        workers: int = 0,
        device: torch.device | str | int = "cuda",
    ) -> None:
        super().__init__(
            "mla_decode",
            heads,
            {"T": dtype, "HEADS": heads, "KV": kv_dtype or dtype, "CAUSAL": causal},
            _place(device),
            max_requests=max_requests,
            max_tokens=max_tokens,
            kv_heads=-(-heads // 64),  # groups of heads
            workers=workers,
        )
        self.heads, self.page_size, self.causal, self.sm_scale = heads, page_size, causal, sm_scale
        self.dtype, self.kv_dtype = dtype, kv_dtype or dtype
        self.window_left = -1
        self._begin(page_size)

    def forward(self, q: Tensor, kv_cache: Tensor, kv_indices: Tensor) -> tuple[Tensor, Tensor]:
        """Runs torch.ops.kiln.mla_decode with the plan.

        Returns (o [tokens, heads, 512], lse [tokens, heads]).
        Results for rows of q after the plan's last token are not written: they hold whatever the memory held.
        """
        of_type(self.dtype, q=q)
        of_shape(q, "q", q.shape[0], self.heads, 576)
        of_type(self.kv_dtype, kv_cache=kv_cache)
        of_shape(kv_cache, "kv_cache", kv_cache.shape[0], self.page_size, 1, 576 if self.kv_dtype == self.dtype else 656)
        return operators["mla_decode"](
            q, kv_cache, kv_indices, self.plan_words, self.workers, self.workspace_bytes, self.sm_scale, self.causal
        )
