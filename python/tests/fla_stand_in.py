"""A stand-in for the RWKV7 of Flash Linear Attention 0.6 in plain torch, for hosts without a GPU and without that package.

It has the names, the parameters and the steps that kiln.engines.transformers reads. install() makes it importable as `fla`.
"""

import contextlib
import sys
import types

import operator_references as plain
import torch
import torch.nn.functional as F
from torch import nn

LEAST = -0.6065306597126334
#: calls of Flash Linear Attention's functions by name
calls = {}


def counted(function):
    def call(*arguments, **named):
        calls[function.__name__] = calls.get(function.__name__, 0) + 1
        return function(*arguments, **named)

    call.__name__ = function.__name__
    return call


class Cache:
    def __init__(self):
        self.states = []

    def __len__(self):
        return len(self.states)

    def __getitem__(self, layer):
        return self.states[layer]

    def update(self, layer_idx, offset, **states):
        while len(self.states) <= layer_idx:
            self.states.append({"conv_state": None, "recurrent_state": None, "ffn_state": None})
        self.states[layer_idx].update({name: state for name, state in states.items() if state is not None})


def get_layer_cache(module, cache):
    return cache[module.layer_idx] if cache is not None and len(cache) > module.layer_idx else None


def update_layer_cache(module, cache, **states):
    if cache is not None:
        cache.update(layer_idx=module.layer_idx, **states)


def _recurrence(r, w, k, v, a, kk, initial_state, cu_seqlens):
    (o, last), _ = plain.wkv7_recurrent(r, w, k, v, a, kk=kk, initial_state=initial_state, cu_seqlens=cu_seqlens)
    return o.to(r.dtype), last.float()


@counted
def token_shift(x, cu_seqlens=None, cache=None, output_cache=False):
    (before, last), _ = plain.rwkv7_shift_mix(x, torch.ones(1, x.shape[-1]), cache, cu_seqlens)
    return before[0].to(x.dtype) - x, last.to(x.dtype)


@counted
def fused_addcmul_rwkv7(x, delta, *shares):
    return tuple(x + delta * share for share in shares)


@counted
def l2_norm(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


@counted
def fused_k_rwkv7(k, a, k_a):
    return k.addcmul(k * (a - 1), k_a)


@counted
def chunk_rwkv7(r, w, k, v, a, b, scale, initial_state, output_final_state, cu_seqlens, safe_gate, lower_bound, chunk_size):
    kk = -a
    rate = torch.where(kk == 0, torch.zeros_like(b), b / kk)
    return _recurrence(r, w, k, v, rate, kk, initial_state, cu_seqlens)


@counted
def fused_mul_recurrent_rwkv7(r, w, k, v, kk, a, scale, initial_state, output_final_state, cu_seqlens):
    return _recurrence(r, w, k, v, a, kk, initial_state, cu_seqlens)


@counted
def gate_output_correction(o, r, k, r_k, v, g):
    return (o + ((r * k * r_k).sum(-1, keepdim=True) * v).flatten(2)) * g


class LoRA(nn.Module):
    def __init__(self, hidden, rank, act, bias=True):
        super().__init__()
        self.lora = nn.Sequential(nn.Linear(hidden, rank, bias=False), act, nn.Linear(rank, hidden, bias=bias))

    def forward(self, x):
        return self.lora(x)


class LayerNorm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(hidden)), nn.Parameter(torch.zeros(hidden)), 1e-5

    def forward(self, x, residual=None, prenorm=False):
        x = x if residual is None else x + residual
        y = F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
        return (y, x) if prenorm else y


class GroupNorm(nn.Module):
    def __init__(self, groups, hidden, eps):
        super().__init__()
        self.groups, self.eps = groups, eps
        self.weight, self.bias = nn.Parameter(torch.ones(hidden)), nn.Parameter(torch.zeros(hidden))

    def forward(self, x):
        return F.group_norm(x.flatten(0, 1), self.groups, self.weight, self.bias, self.eps).view(x.shape)


class RWKV7Attention(nn.Module):
    def __init__(self, hidden, size, layer, fuse_norm):
        super().__init__()
        self.hidden_size = self.key_dim = self.value_dim = hidden
        self.head_dim, self.num_heads, self.layer_idx, self.fuse_norm = size, hidden // size, layer, fuse_norm
        for name in "rwkvag":
            self.register_parameter(f"x_{name}", nn.Parameter(torch.rand(1, 1, hidden)))
        self.k_k, self.k_a = nn.Parameter(torch.randn(hidden)), nn.Parameter(torch.rand(hidden))
        self.r_k = nn.Parameter(torch.randn(self.num_heads, size) * 0.2)
        self.r_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.w_lora, self.a_lora = LoRA(hidden, 32, nn.Tanh()), LoRA(hidden, 32, nn.Identity())
        self.g_lora = LoRA(hidden, 32, nn.Sigmoid(), bias=False)
        if layer:
            self.v_lora = LoRA(hidden, 32, nn.Identity())
        eps = size * 1e-5
        self.g_norm = GroupNorm(self.num_heads, hidden, eps) if fuse_norm else nn.GroupNorm(self.num_heads, hidden, eps)

    def forward(
        self,
        hidden_states,
        attention_mask=None,
        past_key_values=None,
        use_cache=False,
        output_attentions=False,
        v_first=None,
        cu_seqlens=None,
    ):
        x, by_head = hidden_states, lambda one: one.unflatten(-1, (self.num_heads, self.head_dim))
        if attention_mask is not None:
            x = x * attention_mask[:, -x.shape[1] :, None]
        state = get_layer_cache(self, past_key_values) or {"conv_state": None, "recurrent_state": None}
        delta, last = token_shift(x, cu_seqlens, cache=state["conv_state"], output_cache=True)
        mixed = (x + delta * getattr(self, f"x_{name}") for name in "rwkvag")
        xr, xw, xk, xv, xa, xg = mixed
        r, k, v = self.r_proj(xr), self.k_proj(xk), self.v_proj(xv)
        w, a, g = LEAST * self.w_lora(xw).sigmoid(), self.a_lora(xa).sigmoid(), self.g_lora(xg)
        if self.layer_idx == 0:
            v_first = v
        else:
            v = torch.lerp(v, v_first, self.v_lora(xv).sigmoid())
        kk = by_head(k * self.k_k)
        kk = l2_norm(kk) if self.fuse_norm else F.normalize(kk, dim=-1)
        k = by_head(k * (1 + (a - 1) * self.k_a))
        if attention_mask is not None:
            v = v * attention_mask[:, -x.shape[1] :, None]
        r, w, v, a = by_head(r), by_head(w), by_head(v), by_head(a)
        o, final = _recurrence(r, w, k, v, a, kk, state["recurrent_state"], cu_seqlens)
        update_layer_cache(self, past_key_values, recurrent_state=final if use_cache else None, conv_state=last, offset=x.shape[1])
        o = F.group_norm(o.flatten(2).flatten(0, 1), self.num_heads, self.g_norm.weight, self.g_norm.bias, self.g_norm.eps)
        o = (o.view(x.shape) + ((r * k * self.r_k).sum(-1, keepdim=True) * v).flatten(2)) * g
        return self.o_proj(o), None, past_key_values, v_first


ACT2FN = {"sqrelu": lambda x: F.relu(x).square(), "relu": F.relu}


class RWKV7FeedForward(nn.Module):
    def __init__(self, hidden, layer, act="sqrelu"):
        super().__init__()
        self.x_k, self.layer_idx, self.act_fn = nn.Parameter(torch.rand(hidden)), layer, ACT2FN[act]
        self.key, self.value = nn.Linear(hidden, 4 * hidden, bias=False), nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x, attention_mask=None, state=None, cu_seqlens=None):
        if attention_mask is not None:
            x = x * attention_mask[:, -x.shape[1] :, None]
        before = None if state is None else state[self.layer_idx]["ffn_state"]
        delta, last = token_shift(x, cu_seqlens, cache=before, output_cache=True)
        if state is not None:
            state.update(ffn_state=last, layer_idx=self.layer_idx, offset=0)
        return self.value(self.act_fn(self.key(x + delta * self.x_k))), state


class RWKV7Block(nn.Module):
    def __init__(self, hidden, size, layer, fuse_norm):
        super().__init__()
        self.fuse_norm, norm = fuse_norm, LayerNorm if fuse_norm else nn.LayerNorm
        if layer == 0:
            self.pre_norm = norm(hidden)
        self.attn_norm, self.attn = norm(hidden), RWKV7Attention(hidden, size, layer, fuse_norm)
        self.ffn_norm, self.ffn = norm(hidden), RWKV7FeedForward(hidden, layer)

    def forward(
        self,
        hidden_states,
        attention_mask=None,
        past_key_values=None,
        use_cache=False,
        output_attentions=False,
        v_first=None,
        cu_seqlens=None,
        **kwargs,
    ):
        residual = self.pre_norm(hidden_states) if hasattr(self, "pre_norm") else hidden_states
        x, attentions, past_key_values, v_first = self.attn(
            hidden_states=self.attn_norm(residual),
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            use_cache=use_cache,
            output_attentions=output_attentions,
            v_first=v_first,
            cu_seqlens=cu_seqlens,
            **kwargs,
        )
        if self.fuse_norm:
            x, residual = self.ffn_norm(x, residual, True)
        else:
            residual = residual + x
            x = self.ffn_norm(residual)
        x, past_key_values = self.ffn(x, attention_mask, past_key_values, cu_seqlens, **kwargs)
        return residual + x, attentions, past_key_values, v_first


class RWKV7Model(nn.Module):
    def __init__(self, layers=2, hidden=128, size=64, fuse_norm=True):
        super().__init__()
        self.layers = nn.ModuleList([RWKV7Block(hidden, size, layer, fuse_norm) for layer in range(layers)])
        self.norm = (LayerNorm if fuse_norm else nn.LayerNorm)(hidden)

    def forward(self, x, attention_mask=None, past_key_values=None, cu_seqlens=None):
        v_first = None
        for layer in self.layers:
            x, _, past_key_values, v_first = layer(
                x,
                attention_mask=attention_mask,
                past_key_values=past_key_values,
                use_cache=past_key_values is not None,
                v_first=v_first,
                cu_seqlens=cu_seqlens,
            )
        return self.norm(x)


LAYERS, MODELS, NORMS = "fla.layers.rwkv7", "fla.models.rwkv7.modeling_rwkv7", "fla.modules.norm.layernorm"
for of, classes in ((LAYERS, [RWKV7Attention]), (MODELS, [RWKV7FeedForward, RWKV7Block, RWKV7Model]), (NORMS, [LayerNorm])):
    for one in classes:
        one.__module__ = of


@contextlib.contextmanager
def installed(version="0.6.0"):
    """Makes the stand-in importable. A package of that name that was imported before comes back afterwards."""
    names = ["fla", LAYERS, MODELS]
    before = {name: sys.modules.get(name) for name in names}
    for name in names:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update({k: v for k, v in globals().items() if not k.startswith("__")}, __version__=version)
    try:
        yield
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
