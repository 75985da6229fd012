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
        self._planner.write(self.plan_words, {"kv_indptr": [0], "page_size": page_size, "window_left": self.window_left})
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
            refuse(
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


def _is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def _place(device: torch.device | str | int) -> torch.device:
    """The device with its number, which for "cuda" is that of the current device."""
    place = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return place


def _value_size(head_size: int) -> int:
    """The size of a head of v for a size of a head of q and k, as the templates' manifests default it."""
    return 128 if head_size == 192 else head_size


class _PagedPlanned(_Planned):
    """Plans of requests whose keys and values, or latent rows, lie in pages of `page_size` tokens."""

    page_size: int
    window_left: int

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


class PagedDecode(_PagedPlanned):
    """Attention of the last token (or tokens) of each request over paged caches: template attn_decode_paged.

        attention = kiln.torch.PagedDecode(heads=32, kv_heads=8, head_size=128, page_size=16, max_requests=256)
        attention.plan(kv_indptr, last_page_len=last)       # for each batch, once for all layers
        o, lse = attention(q, k_cache, v_cache, kv_indices)

    `max_requests` and `max_tokens` bound every batch.
    `max_tokens` counts the tokens of q of all requests; 0 means one for each request.
    `value_size` (a head of v) is head_size by default, but 128 when head_size is 192.
    `kv_dtype` is dtype by default.
    A token sees at most `window_left` tokens before its own place; -1 means all.
    soft_cap 0 means no cap, and sm_scale 0 means head_size^-1/2. With `alibi` each call takes alibi_slopes.
    `workers` is the number of blocks of the grid; 0 means the template's choice for this GPU.
    """

    def __init__(
        self,
        *,
        heads: int,
        kv_heads: int,
        head_size: int,
        page_size: int,
        max_requests: int,
        max_tokens: int = 0,
        dtype: torch.dtype = torch.bfloat16,
        kv_dtype: torch.dtype | None = None,
        value_size: int | None = None,
        window_left: int = -1,
        soft_cap: float = 0.0,
        alibi: bool = False,
        sm_scale: float = 0.0,
        workers: int = 0,
        device: torch.device | str | int = "cuda",
    ) -> None:
        value_size = value_size or _value_size(head_size)
        parameters = {
            "T": dtype,
            "D": head_size,
            "GROUP": heads // max(kv_heads, 1),
            "KV": kv_dtype or dtype,
            "DV": value_size,
            "SOFT_CAP": soft_cap > 0,
            "ALIBI": alibi,
        }
        super().__init__(
            "attn_decode_paged",
            heads,
            parameters,
            _place(device),
            max_requests=max_requests,
            max_tokens=max_tokens,
            kv_heads=kv_heads,
            workers=workers,
        )
        self.heads, self.kv_heads, self.head_size, self.value_size, self.page_size = (
            heads,
            kv_heads,
            head_size,
            value_size,
            page_size,
        )
        self.dtype, self.kv_dtype, self.alibi = dtype, kv_dtype or dtype, alibi
        self.window_left, self.soft_cap, self.sm_scale = window_left, soft_cap, sm_scale
        self._begin(page_size)

    def forward(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        kv_indices: Tensor,
        *,
        alibi_slopes: Tensor | None = None,
        k_scale: Tensor | None = None,
        v_scale: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Runs torch.ops.kiln.attn_decode_paged with the plan.

        Returns (o [tokens, heads, value_size], lse [tokens, heads]).
        Results for rows of q after the plan's last token are not written: they hold whatever the memory held.
        """
        of_type(self.dtype, q=q)
        of_type(self.kv_dtype, k_cache=k_cache)
        of_shape(q, "q", q.shape[0], self.heads, self.head_size)
        of_shape(k_cache, "k_cache", k_cache.shape[0], self.page_size, self.kv_heads, self.head_size)
        of_shape(v_cache, "v_cache", k_cache.shape[0], self.page_size, self.kv_heads, self.value_size)
        if self.alibi != (alibi_slopes is not None):
            refuse(
                f"alibi_slopes is {'' if alibi_slopes is not None else 'not '}given, but this PagedDecode has alibi = {self.alibi}"
            )
        return operators["attn_decode_paged"](
            q,
            k_cache,
            v_cache,
            kv_indices,
            self.plan_words,
            self.workers,
            self.workspace_bytes,
            self.sm_scale,
            self.soft_cap,
            self.window_left,
            alibi_slopes,
            k_scale,
            v_scale,
        )


class RaggedPrefill(_Planned):
    """Attention of a batch of prompts whose tokens are concatenated.


        attention = kiln.torch.RaggedPrefill(heads=32, kv_heads=8, head_size=128, max_requests=16, max_tokens=8192)
        attention.plan(qo_indptr, kv_indptr)
        o, lse = attention(q, k, v)

    Options are as in PagedDecode. With `mask` each call takes a mask of its own, instead of `causal`.
    Without `causal` a token sees at most `window_right` tokens after its own place; -1 means all. With `sinks` each call takes
    sinks: a logit of each head that is in the sum of the weights, and in lse, and has no value.
    With `page_size` k and v are caches [pages, page_size, kv_heads, size], and each call takes kv_indices.
    `template` is attn_sm90 on Hopper, and attn_prefill on other devices, for `alibi` and `mask`, and for pages whose size is
    no multiple of 16, unless it is given.
    """

    def __init__(
        self,
        *,
        heads: int,
        kv_heads: int,
        head_size: int,
        max_requests: int,
        max_tokens: int,
        dtype: torch.dtype = torch.bfloat16,
        value_size: int | None = None,
        causal: bool = True,
        window_left: int = -1,
        soft_cap: float = 0.0,
        alibi: bool = False,
        mask: bool = False,
        page_size: int = 0,
        window_right: int = -1,
        sinks: bool = False,
        sm_scale: float = 0.0,
        workers: int = 0,
        device: torch.device | str | int = "cuda",
        template: str = "",
    ) -> None:
        value_size = value_size or _value_size(head_size)
        parameters = {
            "T": dtype,
            "D": head_size,
            "DV": value_size,
            "GROUP": heads // max(kv_heads, 1),
            "CAUSAL": causal,
            "WINDOW": window_left >= 0 or window_right >= 0,
            "SOFT_CAP": soft_cap > 0,
        }
        place = _place(device)
        hopper = not alibi and not mask and page_size % 16 == 0 and _is_hopper(place)
        self.template, self.page_size = template or ("attn_sm90" if hopper else "attn_prefill"), page_size
        if alibi or mask:
            parameters |= {"ALIBI": alibi, "MASK": mask}
        if page_size:
            parameters["PAGING"] = "table"
        if sinks:
            parameters["SINK"] = True
        self.window_right, self.sinks = window_right, sinks
        super().__init__(
            self.template,
            heads,
            parameters,
            place,
            max_requests=max_requests,
            max_tokens=max_tokens,
            kv_heads=kv_heads,
            workers=workers,
        )
        self.heads, self.kv_heads, self.head_size, self.value_size, self.dtype = heads, kv_heads, head_size, value_size, dtype
        self.causal, self.window_left, self.soft_cap, self.alibi, self.mask, self.sm_scale = (
            causal,
            window_left,
            soft_cap,
            alibi,
            mask,
            sm_scale,
        )
        self._begin(page_size)

    def plan(self, qo_indptr: Any, kv_indptr: Any, *, kv_len: Any = None, last_page_len: Any = None) -> AttentionPlan:
        """Plans a batch, and starts the copy of the plan to the device in the current stream.

        Request i has the queries q[qo_indptr[i]:qo_indptr[i + 1]]. Its rows of k and v begin at kv_indptr[i]:
        kv_len[i] of them, or all up to kv_indptr[i + 1]. With pages kv_indptr and last_page_len are as in PagedDecode.
        Lengths are lists, numpy arrays, or tensors in host memory.
        Raises Error while a stream captures, in a compiled function, and for lengths on the device.
        """
        return self._plan(
            qo_indptr=_listed("qo_indptr", qo_indptr),
            kv_indptr=_listed("kv_indptr", kv_indptr),
            kv_len=_listed("kv_len", kv_len),
            last_page_len=_listed("last_page_len", last_page_len),
            page_size=self.page_size,
            window_left=self.window_left,
        )

    def plan_on_device(
        self, qo_indptr: Tensor, kv_indptr: Tensor, *, kv_len: Tensor | None = None, last_page_len: Tensor | None = None
    ) -> None:
        """Plans a batch whose lengths are in device memory, as PagedDecode.plan_on_device() does.

        The plan is for the same tiles as from plan(), but never in waves: plan() orders the tiles of a batch otherwise when its
        keys and values do not fit the L2.
        """
        self._plan_on_device(self.page_size, kv_indptr, kv_len, last_page_len, qo_indptr)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        kv_indices: Tensor | None = None,
        *,
        alibi_slopes: Tensor | None = None,
        mask: Tensor | None = None,
        mask_indptr: Tensor | None = None,
        sinks: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Runs the operator of the template, such as torch.ops.kiln.attn_prefill or attn_prefill_paged, with the plan.

        Returns (o [tokens, heads, value_size], lse [tokens, heads]).
        Results for rows of q after the plan's last token are not written: they hold whatever the memory held.
        """
        of_type(self.dtype, q=q)
        of_shape(q, "q", q.shape[0], self.heads, self.head_size)
        rows = (k.shape[0], self.page_size) if self.page_size else (k.shape[0],)
        of_shape(k, "k", *rows, self.kv_heads, self.head_size)
        of_shape(v, "v", *rows, self.kv_heads, self.value_size)
        if (self.page_size > 0) != (kv_indices is not None):
            refuse(
                f"kv_indices is {'' if kv_indices is not None else 'not '}given, but this RaggedPrefill has page_size = {self.page_size}"
            )
        for name, wanted, given in (
            ("alibi_slopes", self.alibi, alibi_slopes),
            ("mask", self.mask, mask),
            ("sinks", self.sinks, sinks),
        ):
            if wanted != (given is not None):
                refuse(
                    f"{name} is {'' if given is not None else 'not '}given, but this RaggedPrefill has {name.partition('_')[0]} = {wanted}"
                )
        paged = () if kv_indices is None else (kv_indices,)
        return operators[f"{self.template}_paged" if paged else self.template](
            q,
            k,
            v,
            *paged,
            self.plan_words,
            self.workers,
            self.workspace_bytes,
            self.causal,
            self.sm_scale,
            self.soft_cap,
            self.window_left,
            alibi_slopes,
            mask,
            mask_indptr,
            self.window_right,
            sinks,
        )


class LatentDecode(_PagedPlanned):
    """Attention of the last token (or tokens) of each request over a paged latent cache, on Hopper: template mla_decode.

        attention = kiln.torch.LatentDecode(heads=128, page_size=64, max_requests=256, sm_scale=192**-0.5)
        attention.plan(kv_indptr, kv_len=lengths)           # for each batch, once for all layers
        o, lse = attention(q, kv_cache, kv_indices)

    q is absorbed: 512 elements of each head are products with the key projection, and 64 are rotated.
    The value projection is the caller's, after this.
    With kv_dtype = torch.float8_e4m3fn the cache has FlashMLA's rows of 656 bytes, as mla_append writes them.
    Other options are as in PagedDecode.
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
