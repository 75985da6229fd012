"""The recurrent templates (RWKV7, gated DeltaNet) and the merge of attention states as operators: see _operators."""

import torch
from torch import Tensor

from ._registry import operator
from ._shapes import dense, empty, like, of_dims, of_shape, of_type, refuse, rows_of, same_type


def _sequences(x, name, cu_seqlens):
    """([B, T, ...] or, with cu_seqlens, [1, T, ...]) -> (sequences, tokens of each, or of all)."""
    if cu_seqlens is None:
        return x.shape[0], x.shape[1]
    of_type(torch.int64, cu_seqlens=cu_seqlens)
    of_dims(cu_seqlens, "cu_seqlens", "[sequences + 1]")
    dense(cu_seqlens, "cu_seqlens", cu_seqlens.shape[0])
    if x.shape[0] != 1:
        refuse(f"{name} is {list(x.shape)}: with cu_seqlens all sequences lie behind each other, in [1, tokens, ...]")
    return cu_seqlens.shape[0] - 1, x.shape[1]


def _suits(tokens, sequences):
    """Which calls the kernel's defaults shall suit (FOR): a decode step's, or all. While tracing it does not matter, and no size becomes a number."""
    return "decode" if isinstance(tokens, int) and isinstance(sequences, int) and tokens == sequences else None


def _contiguous(*tensors):
    return (t if t is None or t.is_contiguous() else t.contiguous() for t in tensors)


def _alike(x, **others):
    """Of x's element type and shape."""
    same_type(x, **others)
    for name, other in others.items():
        of_shape(other, name, *x.shape)


def _of_heads(x, **weights):
    """Weights [H, D] of x [B, T, H, D]."""
    same_type(x, **weights)
    for name, weight in weights.items():
        of_shape(weight, name, *x.shape[2:])


@operator("kiln::rwkv7_shift_mix", "rwkv7_shift_mix", parameters="T D OUTPUTS VARLEN")
def rwkv7_shift_mix(launch, x: Tensor, mu: Tensor, cache: Tensor | None = None, cu_seqlens: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(mixes [outputs, B, T, D], new cache [N, D]): x + (token before - x) * mu_i for each row of mu [outputs, D], and the last tokens."""
    of_dims(x, "x", "[B, T, D]")
    of_dims(mu, "mu", "[outputs, D]")
    sequences, length = _sequences(x, "x", cu_seqlens)
    outputs, width = mu.shape[0], x.shape[2]
    of_shape(mu, "mu", outputs, width)
    of_shape(cache, "cache", sequences, width)
    same_type(x, mu=mu, cache=cache)
    matrix, rows, stride = rows_of(x)
    mu, cache = _contiguous(mu, cache)
    out, last = empty(x, outputs, *x.shape, dtype=x.dtype), empty(x, sequences, width, dtype=x.dtype)
    launch((x.dtype, width, outputs, cu_seqlens is not None), out, matrix, mu, sequences, length, stride, width, rows * width, cache, last, cu_seqlens)
    return out, last


@operator("kiln::rwkv7_kprep", "rwkv7_kprep", parameters="T D WITH_B")
def rwkv7_kprep(launch, k: Tensor, a: Tensor, k_k: Tensor, k_a: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """(k', kk), [B, T, H, D]: k' = k + k (a - 1) k_a; kk = the head's k * k_k, normalised."""
    of_dims(k, "k", "[B, T, H, D]")
    _alike(k, a=a)
    _of_heads(k, k_k=k_k, k_a=k_a)
    k, a, k_k, k_a = _contiguous(k, a, k_k, k_a)
    out, kk = like(k), like(k)
    launch((k.dtype, k.shape[3]), out, kk, k, a, k_k, k_a, k.shape[0] * k.shape[1], k.shape[2], eps)
    return out, kk


@operator("kiln::rwkv7_out", "rwkv7_out", parameters="T D NORM")
def rwkv7_out(launch, o: Tensor, r: Tensor, k: Tensor, v: Tensor, g: Tensor, r_k: Tensor, norm_weight: Tensor | None = None,
              norm_bias: Tensor | None = None, eps: float = 0.00064, norm: bool = False) -> Tensor:
    """(o + (sum of the head's r k r_k) v) * g, [B, T, H, D]; with `norm` after a group norm of o over each head."""
    of_dims(o, "o", "[B, T, H, D]")
    _alike(o, r=r, k=k, v=v, g=g)
    _of_heads(o, r_k=r_k, norm_weight=norm_weight, norm_bias=norm_bias)
    if not norm and (norm_weight is not None or norm_bias is not None):
        refuse("norm_weight and norm_bias are given, expected norm = True with them")
    o, r, k, v, g, r_k, norm_weight, norm_bias = _contiguous(o, r, k, v, g, r_k, norm_weight, norm_bias)
    out = like(o)
    launch((o.dtype, o.shape[3], norm), out, o, r, k, v, g, r_k, o.shape[0] * o.shape[1], o.shape[2], norm_weight, norm_bias, eps)
    return out


@operator("kiln::wkv7_recurrent", "wkv7_recurrent", parameters="T K V FORM W VARLEN FOR")
def wkv7_recurrent(launch, r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor | None = None, kk: Tensor | None = None,
                   scale: float = 1.0, initial_state: Tensor | None = None, cu_seqlens: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(o [B, T, H, V], final state [N, H, K, V] f32): S = diag(exp w) S + b (a^T S) + k v^T; o = scale * S^T r. With kk instead of b: a := -kk,
    b := kk a."""
    if (b is None) == (kk is None):
        refuse(f"{'neither b nor kk is' if b is None else 'b and kk are both'} given, expected one of them")
    of_dims(r, "r", "[B, T, H, K]")
    of_dims(v, "v", "[B, T, H, V]")
    sequences, length = _sequences(r, "r", cu_seqlens)
    heads, width, values = r.shape[2], r.shape[3], v.shape[3]
    _alike(r, k=k, a=a, b=b, kk=kk)
    of_shape(w, "w", *r.shape)
    of_shape(v, "v", *r.shape[:3], values)
    of_shape(initial_state, "initial_state", sequences, heads, width, values)
    same_type(r, v=v)
    of_type(torch.float32, initial_state=initial_state)
    r, w, k, v, a, b, kk, initial_state = _contiguous(r, w, k, v, a, b, kk, initial_state)
    out, state = like(v), empty(r, sequences, heads, width, values)
    form, suits = "a_b" if kk is None else "kk_a", _suits(r.shape[0] * length, sequences)
    launch((r.dtype, width, values, form, w.dtype, cu_seqlens is not None, suits), out, r, w, k, v, a, sequences, length, heads, b, kk, scale,
           initial_state, state, cu_seqlens)
    return out, state


@operator("kiln::delta_recurrent", "delta_recurrent", parameters="T K V GATE GATE_INPUT BETA BETA_INPUT L2NORM G B FOR")
def delta_recurrent(launch, q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None = None, g: Tensor | None = None, scale: float = 0.0,
                    initial_state: Tensor | None = None, cu_seqlens: Tensor | None = None, l2norm: bool = False) -> tuple[Tensor, Tensor]:
    """(o [B, T, HV, V], final state [N, HV, K, V] f32): S *= exp(g); u = v - S^T k; S += k (beta u)^T; o = scale * S^T q. beta [B, T, HV] or
    [B, T, HV, V], None is 1; g f32 [B, T, HV] or [B, T, HV, K]; scale 0 is K^-1/2."""
    of_dims(q, "q", "[B, T, H, K]")
    of_dims(v, "v", "[B, T, HV, V]")
    sequences, _ = _sequences(q, "q", cu_seqlens)
    batch, length, heads, width = q.shape
    value_heads, values, tokens = v.shape[2], v.shape[3], batch * length
    _alike(q, k=k)
    of_shape(v, "v", batch, length, value_heads, values)
    if value_heads % heads:
        refuse(f"v has {value_heads} heads, expected a multiple of the {heads} of q and k")
    for name, each, size in (("beta", beta, values), ("g", g, width)):
        of_shape(each, name, batch, length, value_heads, *((size,) if each is not None and each.dim() == 4 else ()))
    of_shape(initial_state, "initial_state", sequences, value_heads, width, values)
    same_type(q, v=v)
    of_type(torch.float32, initial_state=initial_state)
    q, k, v, beta, g, initial_state = _contiguous(q, k, v, beta, g, initial_state)
    out, state = like(v), empty(q, sequences, value_heads, width, values)
    gate = "none" if g is None else "key" if g.dim() == 4 else "head"
    strength = "none" if beta is None else "value" if beta.dim() == 4 else "head"
    types = (None if g is None else g.dtype, None if beta is None else beta.dtype)
    launch((q.dtype, width, values, gate, None, strength, None, l2norm, *types, _suits(tokens, sequences)), out, q, k, v, beta, tokens, sequences,
           heads, value_heads, heads * width, heads * width, value_heads * values, value_heads * values, scale, g, initial_state, state, cu_seqlens)
    return out, state


@operator("kiln::attn_merge", "attn_merge", parameters="T D PAIR")
def attn_merge(launch, v: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """(out [tokens, heads, D], lse [tokens, heads]) of attention states v [tokens, states, heads, D], s [tokens, states, heads] (base 2)."""
    of_dims(v, "v", "[tokens, states, heads, D]")
    of_shape(s, "s", *v.shape[:3])
    of_type(torch.float32, s=s)
    v = v if v.stride(3) == 1 else v.contiguous()
    tokens, states, heads, size = v.shape
    out, lse = empty(v, tokens, heads, size, dtype=v.dtype), empty(v, tokens, heads)
    launch((v.dtype, size, False), out, v, s, tokens, states, heads, heads * size, size, v.stride(0), v.stride(1), v.stride(2), s.stride(0), s.stride(1),
           s.stride(2), lse, heads, 1)
    return out, lse
