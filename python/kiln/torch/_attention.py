"""Attention of batches of requests, whatever their lengths, over ragged or paged keys and values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._errors import Code, Error
from .._values import AttentionPlan
from ._generated import into, operators
from ._plans import _listed, _PagedPlanned, _place
from ._shapes import of_shape, of_type, refuse

_DECODE, _CODES = "attn_decode_paged", "attn_sm90_e4m3"
_E4M3 = torch.float8_e4m3fn
#: by operator: the operator that writes o into a tensor of the caller and returns lse
_INTO = {
    name: into(name)
    for name in (_DECODE, "attn_prefill", "attn_prefill_paged", "attn_sm90", "attn_sm90_paged", _CODES, f"{_CODES}_paged")
}


def _is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def _is_one_token_each(qo_indptr: list[int]) -> bool:
    return not qo_indptr or (
        qo_indptr[-1] < len(qo_indptr) and all(end - begin < 2 for begin, end in zip(qo_indptr, qo_indptr[1:]))
    )


class Attention(_PagedPlanned):
    """Attention of a batch of requests: prompts, chunks of prompts, decode steps, or all of them in one call.

        attention = kiln.torch.Attention(
            heads=32, kv_heads=8, head_size=128, page_size=16, max_requests=256, max_tokens=8192
        )
        attention.plan(kv_indptr, kv_len=lengths, qo_indptr=qo_indptr)      # for each batch, once for all layers
        o, lse = attention(q, k_cache, v_cache, kv_indices)

    With `page_size` k and v are caches [pages, page_size, kv_heads, size], and each call takes kv_indices.
    Without it they are ragged, [rows, kv_heads, size], and the rows of a request follow each other.

    `max_requests` and `max_tokens` bound every batch.
    `max_tokens` counts the tokens of q of all requests; 0 means one for each request.
    `value_size` (a head of v) is head_size by default, but 128 when head_size is 192.
    `dtype` is the type of o. `q_dtype` and `kv_dtype` are dtype by default.
    The place of a request's last token of q is that of its last token of kv.
    With `causal` a token sees no token after its own place.
    A token sees at most `window_left` tokens before its own place; -1 means all.
    Without `causal` a token sees at most `window_right` tokens after its own place; -1 means all.
    soft_cap 0 means no cap, and sm_scale 0 means head_size^-1/2.
    With `alibi` each call takes alibi_slopes, and with `mask` a mask of its own, instead of `causal`.
    With `sinks` each call takes sinks: a logit of each head that is in the sum of the weights, and in lse, and has no value.
    `workers` is the number of blocks of the grid; 0 means the template's choice for this GPU.

    The host chooses the kernel, by what it knows:

    - attn_sm90 on Hopper, for any numbers of tokens. It takes no `alibi`, no `mask`, and no pages whose size is no multiple of 16.
    - attn_prefill for these, and on other devices.
    - attn_decode_paged for a paged batch of which the host knows that no request has more than one token: plan() was called without
      qo_indptr or with such a qo_indptr, or plan_on_device() without qo_indptr. It takes no `mask` and no `sinks`, and its
      manifest says which sizes and groups of heads it takes. Other batches run on the kernel for any numbers of tokens.
    - attn_decode_paged for all batches when kv_dtype is not dtype, and q_dtype is. It reads a request's kv for each of its tokens.
    - attn_sm90_e4m3 for all batches when q_dtype and kv_dtype are torch.float8_e4m3fn, on Hopper alone. It takes what attn_sm90
      takes.

    `template` names the kernel for any numbers of tokens; attn_decode_paged then runs all batches.
    `kernel` is the template of the last plan.
    The constructor obtains both kernels of a module. Each has a buffer of its own for its plan, which never moves.
    A plan for one kernel ends the other kernel's plan: a replay that launches the other one gives zeros and a device fault.
    A compiled function is traced once for each kernel that it runs.
    A module is not thread-safe, and its plan is for one stream at a time. Raises Error for options that no kernel takes.
    """

    _serves_decode = True  #: whether batches of one token each may run on a kernel of their own

    def __init__(
        self,
        *,
        heads: int,
        kv_heads: int,
        head_size: int,
        max_requests: int,
        max_tokens: int = 0,
        page_size: int = 0,
        dtype: torch.dtype = torch.bfloat16,
        q_dtype: torch.dtype | None = None,
        kv_dtype: torch.dtype | None = None,
        value_size: int | None = None,
        causal: bool = True,
        window_left: int = -1,
        window_right: int = -1,
        soft_cap: float = 0.0,
        alibi: bool = False,
        mask: bool = False,
        sinks: bool = False,
        sm_scale: float = 0.0,
        workers: int = 0,
        device: torch.device | str | int = "cuda",
        template: str = "",
    ) -> None:
        place, q_dtype, kv_dtype = _place(device), q_dtype or dtype, kv_dtype or dtype
        value_size = value_size or (128 if head_size == 192 else head_size)  # as the manifests default it
        if not template:
            hopper = not alibi and not mask and page_size % 16 == 0 and _is_hopper(place)
            template = "attn_sm90" if hopper else "attn_prefill"
            template = _CODES if q_dtype != dtype else _DECODE if kv_dtype != dtype else template
        decodes, codes = template == _DECODE, template == _CODES
        if codes != (q_dtype == _E4M3) or (codes and kv_dtype != _E4M3):
            refuse(
                f"{template} was asked for with q_dtype = {q_dtype}, kv_dtype = {kv_dtype} and dtype = {dtype}: {_CODES} takes "
                f"q, k and v of {_E4M3}, and no other kernel takes a q whose type is not dtype"
            )
        asked = [("page_size = 0", not page_size), ("causal = False", not causal), ("mask", mask), ("sinks", sinks)]
        asked += [("window_right", window_right >= 0)]
        for option in (name for name, given in asked if given and decodes):
            refuse(
                f"{option} was asked for, but {_DECODE} (kv_dtype = {kv_dtype}, dtype = {dtype}) takes pages, and neither masks, "
                f"sinks nor windows to the right: use attn_prefill or attn_sm90, with kv_dtype = dtype"
            )
        if kv_dtype != dtype and not decodes and not codes:
            refuse(f"kv_dtype = {kv_dtype} is not dtype = {dtype}, and {template} takes one type: use {_DECODE}")
        if window_right >= 0 and causal and not mask:
            refuse(f"window_right = {window_right} needs causal = False: a causal token sees no token after its own place")
        parameters = {"T": dtype, "D": head_size, "DV": value_size, "GROUP": heads // max(kv_heads, 1), "SOFT_CAP": soft_cap > 0}
        if decodes:
            parameters |= {"KV": kv_dtype, "ALIBI": alibi}
        else:
            parameters |= {"CAUSAL": causal, "WINDOW": window_left >= 0 or window_right >= 0}
            parameters |= {"ALIBI": alibi, "MASK": mask} if alibi or mask else {}
            parameters |= {"PAGING": "table"} if page_size else {}
            parameters |= {"SINK": True} if sinks else {}
        limits = {"max_requests": max_requests, "kv_heads": kv_heads, "workers": workers}
        super().__init__(template, heads, parameters, place, max_tokens=max_tokens, **limits)
        self.template, self.operator = template, f"{template}_paged" if page_size and not decodes else template
        self.heads, self.kv_heads, self.head_size, self.value_size = heads, kv_heads, head_size, value_size
        self.dtype, self.q_dtype, self.kv_dtype, self.page_size, self.causal = dtype, q_dtype, kv_dtype, page_size, causal
        self.window_left, self.window_right, self.soft_cap, self.sm_scale = window_left, window_right, soft_cap, sm_scale
        self.alibi, self.mask, self.sinks = alibi, mask, sinks
        self._begin(page_size)
        self.decode: PagedDecode | None = None
        self.is_decode = False
        if self._serves_decode and page_size and not (decodes or codes or mask or sinks):
            shape = {"heads": heads, "head_size": head_size, "value_size": value_size, "page_size": page_size, "dtype": dtype}
            options = {"window_left": window_left, "soft_cap": soft_cap, "alibi": alibi, "sm_scale": sm_scale, "device": place}
            try:
                self.decode = PagedDecode(**limits, **shape, **options)
            except Error as error:
                if error.code not in (Code.invalid_value, Code.requirement):  # the codes of sizes that a template does not take
                    raise

    @property
    def kernel(self) -> str:
        """The template that the next call launches: that of the last plan."""
        return _DECODE if self.is_decode else self.template

    def _take(self, is_decode: bool) -> None:
        """Makes the plan of one kernel the module's. A plan of the other one ends."""
        if not torch.compiler.is_compiling() and self.decode is not None and self.is_decode != is_decode:
            (self if is_decode else self.decode).plan_words[:1].zero_()
        self.is_decode = is_decode

    def plan(self, kv_indptr: Any, *, last_page_len: Any = None, kv_len: Any = None, qo_indptr: Any = None) -> AttentionPlan:
        """Plans a batch, and starts the copy of the plan to the device in the current stream.

        With pages, request i has the pages kv_indices[kv_indptr[i]:kv_indptr[i + 1]]. Its last page has last_page_len[i]
        tokens, or the request has kv_len[i] tokens in all. Without pages, its rows of k and v begin at kv_indptr[i]:
        kv_len[i] of them, or all up to kv_indptr[i + 1].
        With qo_indptr the request has the queries q[qo_indptr[i]:qo_indptr[i + 1]], else one token.
        Lengths are lists, numpy arrays, or tensors in host memory.
        Raises Error while a stream captures, in a compiled function, for lengths on the device, and for more than the limits.
        """
        lengths = {"last_page_len": last_page_len, "kv_len": kv_len, "qo_indptr": _listed("qo_indptr", qo_indptr)}
        if self.decode is None:
            return super().plan(kv_indptr, **lengths)
        is_decode = lengths["qo_indptr"] is None or _is_one_token_each(lengths["qo_indptr"])
        plan = self.decode.plan(kv_indptr, **lengths) if is_decode else super().plan(kv_indptr, **lengths)
        self._take(is_decode)
        return plan

    def plan_on_device(
        self,
        kv_indptr: Tensor,
        *,
        last_page_len: Tensor | None = None,
        kv_len: Tensor | None = None,
        qo_indptr: Tensor | None = None,
    ) -> None:
        """Plans a batch whose lengths are in device memory: torch.ops.kiln.attn_work_list.

        The tensors are i32, and mean what they mean in plan(). The host reads no length, so the call may be compiled and captured,
        and a replay plans with the lengths of its time. With qo_indptr a request may have any number of tokens.
        Requests at the end of a captured batch may have no tokens and no kv.
        The plan is for the same tiles as from plan(), but never in waves: plan() orders the tiles of a batch otherwise when its
        keys and values do not fit the L2. Lengths that plan() would refuse make a plan that launches refuse.
        """
        is_decode = self.decode is not None and qo_indptr is None
        of = self.decode if is_decode and self.decode is not None else self
        of._plan_on_device(self.page_size, kv_indptr, kv_len, last_page_len, qo_indptr)
        self._take(is_decode)

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
        q_scale: Tensor | None = None,
        k_scale: Tensor | None = None,
        v_scale: Tensor | None = None,
        out: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Runs the operator of the plan's kernel, such as torch.ops.kiln.attn_sm90_paged.

        Returns (o [tokens, heads, value_size], lse [tokens, heads]); lse is f32, to base 2. With `out` o is written there and returned.
        alibi_slopes and sinks are f32 [heads]. mask and mask_indptr are the bits of each request, as in attn_prefill.
        k_scale and v_scale are f32, one value or [kv_heads], for k and v whose type is not dtype, and q_scale for such a q.
        Results for rows of q after the plan's last token are not written: they hold whatever the memory held.
        Raises Error for a tensor of another type or shape, and for tensors that the options do not ask for, or lack.
        """
        for name, option, wanted, given in (
            ("kv_indices", f"page_size = {self.page_size}", self.page_size > 0, kv_indices is not None),
            ("alibi_slopes", f"alibi = {self.alibi}", self.alibi, alibi_slopes is not None),
            ("mask", f"mask = {self.mask}", self.mask, mask is not None),
            ("sinks", f"sinks = {self.sinks}", self.sinks, sinks is not None),
        ):
            if wanted != given:
                refuse(f"{name} is {'' if given else 'not '}given, but this {type(self).__name__} has {option}")
        if mask_indptr is not None and not self.mask:
            refuse(f"mask_indptr is given, but this {type(self).__name__} has mask = False")
        if self.q_dtype == self.dtype and q_scale is not None:
            refuse(f"q_scale is given, but this {type(self).__name__} has q_dtype = dtype = {self.dtype}")
        if self.is_decode and self.decode is not None:
            return self.decode(q, k, v, kv_indices, alibi_slopes=alibi_slopes, k_scale=k_scale, v_scale=v_scale, out=out)
        key, value, rows = ("k_cache", "v_cache", (k.shape[0], self.page_size)) if self.page_size else ("k", "v", (k.shape[0],))
        of_type(self.q_dtype, q=q)
        of_type(self.dtype, out=out)
        of_type(self.kv_dtype, **{key: k, value: v})
        of_shape(q, "q", q.shape[0], self.heads, self.head_size)
        of_shape(k, key, *rows, self.kv_heads, self.head_size)
        of_shape(v, value, *rows, self.kv_heads, self.value_size)
        of_shape(out, "out", q.shape[0], self.heads, self.value_size)
        if self.kv_dtype == self.dtype and (k_scale is not None or v_scale is not None):
            refuse(f"k_scale or v_scale is given, but this {type(self).__name__} has kv_dtype = dtype = {self.dtype}")
        tensors = (q, k, v) if kv_indices is None else (q, k, v, kv_indices)
        needed = (*tensors, self.plan_words, self.workers, self.workspace_bytes)
        options: tuple[Any, ...] = (self.sm_scale, self.soft_cap, self.window_left)
        if self.template == _DECODE:
            options = (*options, alibi_slopes, k_scale, v_scale)
        elif self.template == _CODES:
            options = (self.causal, *options, self.window_right, sinks, q_scale, k_scale, v_scale, self.dtype)
        else:
            options = (self.causal, *options, alibi_slopes, mask, mask_indptr, self.window_right, sinks)
        if out is None:
            return operators[self.operator](*needed, *options)
        return out, _INTO[self.operator](*needed, out, *options)


class PagedDecode(Attention):
    """Attention of the last token (or tokens) of each request over paged caches: template attn_decode_paged for all batches.

        attention = kiln.torch.PagedDecode(heads=32, kv_heads=8, head_size=128, page_size=16, max_requests=256)
        attention.plan(kv_indptr, last_page_len=last)       # for each batch, once for all layers
        o, lse = attention(q, k_cache, v_cache, kv_indices)

    Options are as in Attention. The template takes no `window_right`, `mask` and `sinks`, and always a causal mask.
    A request's keys and values are read for each of its tokens.
    """

    def __init__(self, *, page_size: int, **options: Any) -> None:
        super().__init__(page_size=page_size, template=_DECODE, **options)

    def forward(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indices: Tensor | None, **more: Any) -> tuple[Tensor, Tensor]:
        """As Attention.forward(); more are alibi_slopes, k_scale, v_scale and out."""
        return super().forward(q, k_cache, v_cache, kv_indices, **more)


class RaggedPrefill(Attention):
    """Attention of a batch of prompts whose tokens are concatenated, with one kernel for all batches.

        attention = kiln.torch.RaggedPrefill(heads=32, kv_heads=8, head_size=128, max_requests=16, max_tokens=8192)
        attention.plan(qo_indptr, kv_indptr)
        o, lse = attention(q, k, v)

    Options and calls are as in Attention. The kernel is attn_sm90, attn_sm90_e4m3 or attn_prefill, also where each request has one token.
    """

    _serves_decode = False

    def plan(self, qo_indptr: Any, kv_indptr: Any, *, kv_len: Any = None, last_page_len: Any = None) -> AttentionPlan:  # type: ignore[override]
        """As Attention.plan(), with qo_indptr first."""
        return super().plan(kv_indptr, kv_len=kv_len, last_page_len=last_page_len, qo_indptr=qo_indptr)

    def plan_on_device(  # type: ignore[override]
        self, qo_indptr: Tensor, kv_indptr: Tensor, *, kv_len: Tensor | None = None, last_page_len: Tensor | None = None
    ) -> None:
        """As Attention.plan_on_device(), with qo_indptr first."""
        super().plan_on_device(kv_indptr, kv_len=kv_len, last_page_len=last_page_len, qo_indptr=qo_indptr)
