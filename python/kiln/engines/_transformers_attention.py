"""Attention of transformers' models on kiln: plans for its caches, and the function that it calls.

A cache [batch, kv heads, length, size] is a paged cache without a copy. Each pair of sequence and kv head is
a request, and its only page is its row of `length` tokens.

Plans are made on the host from lengths, but the length of a static cache lies in device memory. In a decode step
with such a cache the device makes the plan, so a compiled or captured step is right for every length, without
work on the host. All sequences of a cache have the same length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
    StaticCache,
    StaticLayer,
    StaticSlidingWindowLayer,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

from ..torch import PagedDecode, RaggedPrefill, attn_decode_paged, attn_work_list

#: the type of device that kiln's operators run on; tests use "cpu" with a fake driver
DEVICE = "cuda"
HALVES = (torch.float16, torch.bfloat16)
HEAD_SIZES = (64, 128, 192, 256)
MOST_HEADS_OF_A_GROUP = 16
#: sequences times kv heads, whose plan the device can make; attn_work_list takes about 2,500 where a block has 99 KB
MOST_ROWS = 2048
CACHES = {DynamicCache, StaticCache}
CACHE_LAYERS = {DynamicLayer, DynamicSlidingWindowLayer, StaticLayer, StaticSlidingWindowLayer}
#: layers of a dynamic cache that have no keys, beside those that have
STATE_LAYERS = {LinearAttentionLayer}

#: transformers' implementation, and kiln's: the same one serves the calls that kiln's kernels do not fit
IMPLEMENTATIONS = {"sdpa": "kiln", "eager": "kiln_eager"}


class Steps:
    """Decode steps over static cache layers of one shape, whose length only the device knows."""

    def __init__(self, keys: Tensor, heads: int, window_left: int, soft_cap: float) -> None:
        batch, kv_heads, self.length, size = keys.shape
        self.rows, self.group = batch * kv_heads, heads // kv_heads
        self.window_left, self.soft_cap = window_left, soft_cap
        limits = PagedDecode(
            heads=self.group,
            kv_heads=1,
            head_size=size,
            page_size=self.length,
            max_requests=self.rows,
            dtype=keys.dtype,
            window_left=window_left,
            soft_cap=soft_cap,
            device=keys.device,
        )
        self.workers, self.workspace = limits.workers, limits.workspace_bytes
        self.blank = limits.plan_words.clone()  # the plan of no requests, over which the device writes others
        self.pages = torch.arange(self.rows + 1, dtype=torch.int32, device=keys.device)  # and where each request's page is
        limits.plan_on_device(self.pages, kv_len=self.pages[1:].clamp(max=1))  # loads the kernel: a step may be captured
        for tensor in (self.blank, self.pages):
            torch._dynamo.mark_static_address(tensor)  # CUDA graphs would else copy them at each replay

    def plan(self, layer: StaticLayer) -> Tensor:
        """The plan of a step that adds one token to the layer: a new tensor, because launches count in a plan."""
        if type(layer) is StaticSlidingWindowLayer and layer.cumulative_length_int >= self.length:
            # The layer is full, and no longer counts on the device.
            lengths = torch.full_like(self.pages[1:], self.length)
        else:
            lengths = (layer.cumulative_length.clamp(max=self.length - 1) + 1).int().view(1).repeat(self.rows)
        words = self.blank.clone()
        attn_work_list(words, self.pages, self.workers, self.length, None, lengths)
        return words

    def attend(self, query: Tensor, key: Tensor, value: Tensor, plan: Tensor, scaling: float) -> Tensor:
        size = query.shape[3]
        o, _ = attn_decode_paged(
            query.reshape(self.rows, self.group, size),
            key.view(self.rows, self.length, 1, size),
            value.view(self.rows, self.length, 1, size),
            self.pages,
            plan,
            self.workers,
            self.workspace,
            scaling,
            self.soft_cap,
            self.window_left,
        )
        return o.view(query.shape[0], 1, query.shape[1], size)


class StaticDecode(NamedTuple):
    """The decode steps of a static cache. It lies in the attribute kiln_decode of the cache."""

    steps: list[Steps]
    sources: list[int]  #: for each of `steps` a layer of the cache that has its length
    slots: list[int]  #: for each layer of the cache the index of its steps

    def plans(self, cache: Cache) -> list[tuple[Tensor, Steps]]:
        made = [steps.plan(cache.layers[i]) for steps, i in zip(self.steps, self.sources)]
        return [(made[slot], self.steps[slot]) for slot in self.slots]


class HostPlans:
    """Plans that the host makes at a call. Layers of the same shape share one plan."""

    def __init__(self) -> None:
        self.made: dict[tuple[Any, ...], Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> HostPlans:
        return HostPlans()  # a copy of a model makes its own

    def _planned(self, kind: Any, lengths: tuple[int, ...], **options: Any) -> tuple[Any, bool]:
        """(a module for these options, whether its plan is for other lengths)."""
        key = (kind, *options.values())
        if key not in self.made:
            self.made[key] = [kind(**options), None]
        entry = self.made[key]
        stale, entry[1] = entry[1] != lengths, lengths
        return entry[0], stale

    def decode(self, query: Tensor, key: Tensor, value: Tensor, kv_len: int, options: dict[str, Any]) -> Tensor:
        """One token of each sequence. Its cache has kv_len tokens, and room for more."""
        (batch, heads, _, size), (kv_heads, length) = query.shape, key.shape[1:3]
        rows, group = batch * kv_heads, heads // kv_heads
        limits = {"heads": group, "kv_heads": 1, "head_size": size, "page_size": 1, "max_requests": _rounded(rows)}
        attention, stale = self._planned(PagedDecode, (rows, kv_len, length), **limits, **options)
        attention.page_size = length
        if stale:
            attention.plan(list(range(rows + 1)), kv_len=[kv_len] * rows)
        pages = torch.arange(rows, dtype=torch.int32, device=query.device)
        k, v = (x.reshape(rows, length, 1, size) for x in (key, value))
        return attention(query.reshape(rows, group, size), k, v, pages)[0].view(batch, 1, heads, size)

    def prefill(self, query: Tensor, key: Tensor, value: Tensor, kv_len: int, options: dict[str, Any]) -> Tensor:
        """Several tokens of each sequence, the last of kv_len."""
        (batch, heads, tokens, size), (kv_heads, length) = query.shape, key.shape[1:3]
        consecutive = key.transpose(1, 2).is_contiguous() and value.transpose(1, 2).is_contiguous()
        step = length if consecutive else kv_heads * length  # rows of k from one sequence to the next
        limits = {"heads": heads, "kv_heads": kv_heads, "head_size": size}
        limits |= {"max_requests": _rounded(batch), "max_tokens": _rounded(batch * tokens)}
        attention, stale = self._planned(RaggedPrefill, (batch, tokens, kv_len, step), **limits, **options)
        if stale:
            attention.plan([i * tokens for i in range(batch + 1)], [i * step for i in range(batch + 1)], kv_len=[kv_len] * batch)
        k, v = ((x.transpose(1, 2).flatten(0, 1) if consecutive else _rows(x)) for x in (key, value))
        return attention(query.transpose(1, 2).flatten(0, 1), k, v)[0].view(batch, tokens, heads, size)


def _rounded(number: int) -> int:
    """The next power of two, so that few limits serve all batches."""
    return 1 << (number - 1).bit_length()


def _rows(x: Tensor) -> Tensor:
    """A cache [batch, heads, length, size] as rows [tokens, heads, size] that overlap: sequence i begins at row
    i * heads * length.
    """
    x = x.contiguous()
    batch, heads, length, size = x.shape
    shape = ((batch * heads - heads + 1) * length, heads, size)
    return x.as_strided(shape, (size, length * size, 1), x.storage_offset())


class Step(NamedTuple):
    """How the attention of one call of the model runs on kiln."""

    past: int  #: tokens in the cache before the call
    plans: HostPlans | None
    static: list[tuple[Tensor, Steps]] | None  #: for each layer, in a decode step with a static cache


def is_marker(mask: Any) -> bool:
    """True for the mask that says: causal, with the layer's window, and without padding."""
    return isinstance(mask, Tensor) and mask.dtype == torch.int32 and mask.dim() == 4


def marker(device: torch.device) -> Tensor:
    return torch.empty((1, 1, 1, 1), dtype=torch.int32, device=device)


def _is_plain(mask: Any, tokens: int, seen: int) -> bool:
    """True when a mask removes no token but the later ones. It waits for the device to read a mask.

    transformers gives a dictionary with None where is_causal is enough, which holds for prompts only.
    """
    if mask is None or is_marker(mask):
        return True
    if isinstance(mask, dict):
        return tokens > 1 and all(m is None for m in mask.values())
    return mask.dim() == 2 and mask.shape[1] >= seen and bool(mask.all())


class ModelAttention:
    """The attention of one model: decides at each call of the model whether it runs on kiln.

    It lies in the attribute kiln_attention of the model that has the layers.
    """

    def __init__(self, config: Any, layers: list[Any], prefill: bool, decode: bool) -> None:
        self.config, self.layers, self.prefill, self.decode = config, layers, prefill, decode
        self.plans, self.steps = HostPlans(), {}
        self.refusals: dict[str, int] = {}  #: reasons of calls that did not run on kiln, and their numbers

    def __deepcopy__(self, memo: dict[int, Any]) -> ModelAttention:
        layers = [memo.get(id(layer), layer) for layer in self.layers]
        return ModelAttention(self.config, layers, self.prefill, self.decode)

    def step(self, x: Tensor, mask: Any, position_ids: Tensor | None, cache: Cache | None, options: dict[str, Any]) -> Step | None:
        """The step for a call with the token ids or embeddings x, or None when transformers' own attention serves."""
        refusal, compiling = self._refusal(x, position_ids, cache, options), torch.compiler.is_compiling()
        tokens, static = x.shape[1], getattr(cache, "kiln_decode", None)
        if not refusal and not (self.decode if tokens == 1 else self.prefill):
            refusal = "the operator is off"
        if not refusal and tokens == 1 and static is not None:
            if mask is None or is_marker(mask) or (not compiling and _is_plain(mask, 1, int(cache.get_seq_length()) + 1)):
                return Step(0, None, static.plans(cache))
            refusal = "the attention mask has padding, or is read inside of a compiled call"
        if compiling:
            return None
        if not refusal:
            past = 0 if cache is None else int(cache.get_seq_length())
            if _is_plain(mask, tokens, past + tokens):
                return Step(past, self.plans, None)
            refusal = "the attention mask has padding, or is not causal"
        self.refusals[refusal] = self.refusals.get(refusal, 0) + 1
        return None

    def takes_static_step(self, x: Tensor, mask: Any, cache: Any) -> bool:
        """True when a decode step with a prepared static cache and this mask, which it reads, runs on kiln."""
        if not self.decode or x.shape[1] != 1 or not hasattr(cache, "kiln_decode") or self._refusal(x, None, cache, {}):
            return False
        return _is_plain(mask, 1, int(cache.get_seq_length()) + 1)

    def _refusal(self, x: Tensor, position_ids: Tensor | None, cache: Cache | None, options: dict[str, Any]) -> str:
        if torch.is_grad_enabled():
            return "gradients are enabled: call the model under torch.no_grad or torch.inference_mode"
        if x.device.type != DEVICE:
            return f"tensors are on {x.device.type}"
        if self.layers[0].q_proj.weight.dtype not in HALVES:
            return f"weights are {self.layers[0].q_proj.weight.dtype}"
        if options.get("output_attentions", getattr(self.config, "output_attentions", False)):
            return "output_attentions asks for weights, which kiln does not compute"
        if self.layers[0].training:
            return "the model is in training mode"
        if cache is None:
            return "position_ids without a cache may pack several sequences" if position_ids is not None else ""
        known = CACHE_LAYERS | STATE_LAYERS if type(cache) is DynamicCache else CACHE_LAYERS
        if type(cache) not in CACHES or not {type(layer) for layer in cache.layers} <= known:
            return f"the cache is a {type(cache).__name__}, or has layers that are neither full nor sliding"
        if getattr(cache, "offloading", False):
            return "the cache is offloaded"
        return ""

    def prepare(self, cache: Any) -> bool:
        """Prepares the decode steps of a static cache whose tensors exist. Returns whether decode steps can use them.

        Compiled steps need them; the model calls this after each call that was not compiled.
        """
        if not self.decode or type(cache) is not StaticCache or torch.compiler.is_compiling():
            return False
        if hasattr(cache, "kiln_decode"):
            return True
        layers = cache.layers[: len(self.layers)]
        if not {type(layer) for layer in cache.layers} <= CACHE_LAYERS or not all(
            type(layer) in CACHE_LAYERS and layer.is_initialized for layer in layers
        ):
            return False
        if layers[0].keys.device.type != DEVICE or layers[0].keys.dtype not in HALVES:
            return False
        if any(layer.keys.shape[0] * layer.keys.shape[1] > MOST_ROWS for layer in layers):
            return False
        steps: list[Steps] = []
        sources: list[int] = []
        slots: list[int] = []
        for i, (layer, module) in enumerate(zip(layers, self.layers)):
            own = self._steps(layer, module)
            if own not in steps:
                steps.append(own)
                sources.append(i)
            slots.append(steps.index(own))
        cache.kiln_decode = StaticDecode(steps, sources, slots)
        return True

    def _steps(self, layer: StaticLayer, module: Any) -> Steps:
        keys, heads = layer.keys, module.num_key_value_groups * layer.keys.shape[1]
        window, cap = window_of(module), soft_cap_of(module)
        left = window - 1 if window and keys.shape[2] > window else -1
        # A sliding layer and a full layer of one size count differently, so they do not share a plan.
        key = (keys.shape, keys.dtype, keys.device, heads, left, cap, type(layer))
        if key not in self.steps:
            if len(self.steps) >= 8:
                self.steps.pop(next(iter(self.steps)))
            self.steps[key] = Steps(keys, heads, left, cap)
        return self.steps[key]


def window_of(module: Any) -> int | None:
    """The sliding window of an attention module. Mistral has it in the configuration alone."""
    if type(module).__name__ == "MistralAttention":
        return getattr(module.config, "sliding_window", None)
    return getattr(module, "sliding_window", None)


def soft_cap_of(module: Any) -> float:
    """The soft cap that an attention module passes on; 0 for none. Gemma 3 has the attribute and ignores it."""
    if type(module).__name__ != "Gemma2Attention":
        return 0.0
    return float(module.attn_logit_softcapping or 0.0)


def _attention(fallback: Any) -> Any:
    def attention(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        kiln_step: Step | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """transformers' attention function. Returns ([batch, tokens, heads, size], None)."""
        if kiln_step is None:
            return fallback(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
        scaling = 0.0 if scaling is None else scaling
        if kiln_step.static is not None:
            plan, steps = kiln_step.static[module.layer_idx]
            return steps.attend(query, key, value, plan, scaling), None
        kv_len = min(key.shape[2], kiln_step.past + query.shape[2])
        window = window_of(module)
        options = {
            "dtype": query.dtype,
            "window_left": window - 1 if window and kv_len > window else -1,
            "soft_cap": soft_cap_of(module),
            "sm_scale": scaling,
            "device": query.device,
        }
        run = kiln_step.plans.decode if query.shape[2] == 1 else kiln_step.plans.prefill
        return run(query, key, value, kv_len, options), None

    return attention


AttentionInterface.register("kiln", _attention(sdpa_attention_forward))
AttentionInterface.register("kiln_eager", _attention(eager_attention_forward))
AttentionMaskInterface.register("kiln", sdpa_mask)
AttentionMaskInterface.register("kiln_eager", eager_mask)
