"""The recurrent templates (RWKV7, gated DeltaNet) and attn_merge as operators (see _operators).

Shapes use B for sequences of equal length T. With cu_seqlens (int64 [N + 1]) the N sequences are
concatenated: B is 1 and T counts the tokens of all. Without it N is B.
"""

import torch
from torch import Tensor

from ._registry import operator
from ._shapes import dense, empty, like, of_dims, of_shape, of_type, refuse, rows_of, same_type


def _sequences(x, name, cu_seqlens):
    """Returns (sequences, tokens of each sequence) of x [B, T, ...].

    With cu_seqlens x is [1, T, ...], and the second number is the tokens of all sequences.
    """
    if cu_seqlens is None:
        return x.shape[0], x.shape[1]
    of_type(torch.int64, cu_seqlens=cu_seqlens)
    of_dims(cu_seqlens, "cu_seqlens", "[sequences + 1]")
    dense(cu_seqlens, "cu_seqlens", cu_seqlens.shape[0])
    if x.shape[0] != 1:
        refuse(f"{name} is {list(x.shape)}: expected [1, tokens, ...] with cu_seqlens, all sequences one after another")
    return cu_seqlens.shape[0] - 1, x.shape[1]


def _suits(tokens, sequences):
    """The value of parameter FOR: "decode" when every sequence has one token, else None.

    While a symbolic size is traced the answer does not matter. Comparing it would turn it into a number.
    """
    return "decode" if isinstance(tokens, int) and isinstance(sequences, int) and tokens == sequences else None


def _contiguous(*tensors):
    return (t if t is None or t.is_contiguous() else t.contiguous() for t in tensors)


def _alike(x, **others):
    """Refuses tensors whose element type or shape is not x's."""
    same_type(x, **others)
    for name, other in others.items():
        of_shape(other, name, *x.shape)


def _of_heads(x, **weights):
    """Refuses weights that are not [H, D] of x [B, T, H, D], or have another element type."""
    same_type(x, **weights)
    for name, weight in weights.items():
        of_shape(weight, name, *x.shape[2:])


@operator("kiln::rwkv7_shift_mix", "rwkv7_shift_mix", parameters="T D OUTPUTS VARLEN")
def rwkv7_shift_mix(
    launch, x: Tensor, mu: Tensor, cache: Tensor | None = None, cu_seqlens: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns (mixes [outputs, B, T, D], new cache [N, D]) of x [B, T, D].

    Mix i is x + (previous token - x) * mu[i], with mu [outputs, D]. `cache` [N, D] has the tokens before the
    first ones. The new cache has the last token of each sequence.
    """
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
    launch(
        (x.dtype, width, outputs, cu_seqlens is not None),
        out,
        matrix,
        mu,
        sequences,
        length,
        stride,
        width,
        rows * width,
        cache,
        last,
        cu_seqlens,
    )
    return out, last


@operator("kiln::rwkv7_kprep", "rwkv7_kprep", parameters="T D WITH_B")
def rwkv7_kprep(launch, k: Tensor, a: Tensor, k_k: Tensor, k_a: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Returns (k', kk), each [B, T, H, D]. k' is k + k (a - 1) k_a; kk is k * k_k, normalised over a head.

    k and a are [B, T, H, D]; k_k and k_a are [H, D].
    """
    of_dims(k, "k", "[B, T, H, D]")
    _alike(k, a=a)
    _of_heads(k, k_k=k_k, k_a=k_a)
    k, a, k_k, k_a = _contiguous(k, a, k_k, k_a)
    out, kk = like(k), like(k)
    launch((k.dtype, k.shape[3]), out, kk, k, a, k_k, k_a, k.shape[0] * k.shape[1], k.shape[2], eps)
    return out, kk


@operator("kiln::rwkv7_out", "rwkv7_out", parameters="T D NORM")
def rwkv7_out(
    launch,
    o: Tensor,
    r: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    r_k: Tensor,
    norm_weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
    eps: float = 0.00064,
    norm: bool = False,
) -> Tensor:
    """Returns (o + (sum of r k r_k over the head) v) * g, [B, T, H, D].

    With `norm` o is first normalised over each head (a group norm).
    r_k, norm_weight and norm_bias are [H, D].
    """
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
def wkv7_recurrent(
    launch,
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor | None = None,
    kk: Tensor | None = None,
    scale: float = 1.0,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns (o [B, T, H, V], final state [N, H, K, V] f32) of the recurrence

        S = diag(exp w) S + b (a^T S) + k v^T;  o = scale * S^T r

    r, w, k, a and b are [B, T, H, K], v is [B, T, H, V]; initial_state is f32 [N, H, K, V], None for zeros.
    With kk instead of b the recurrence takes -kk for a, and kk * a for b.
    """
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
    launch(
        (r.dtype, width, values, form, w.dtype, cu_seqlens is not None, suits),
        out,
        r,
        w,
        k,
        v,
        a,
        sequences,
        length,
        heads,
        b,
        kk,
        scale,
        initial_state,
        state,
        cu_seqlens,
    )
    return out, state


@operator("kiln::delta_recurrent", "delta_recurrent", parameters="T K V GATE GATE_INPUT BETA BETA_INPUT L2NORM G B FOR")
def delta_recurrent(
    launch,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    g: Tensor | None = None,
    scale: float = 0.0,
    initial_state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    l2norm: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns (o [B, T, HV, V], final state [N, HV, K, V] f32) of the recurrence

        S *= exp(g);  u = v - S^T k;  S += k (beta u)^T;  o = scale * S^T q

    q and k are [B, T, H, K], v is [B, T, HV, V], and HV is a multiple of H.
    beta is [B, T, HV] or [B, T, HV, V], None for 1. g is [B, T, HV] or [B, T, HV, K], None for 0.
    initial_state is f32 [N, HV, K, V], None for zeros. scale 0 means K^-1/2. `l2norm` normalises q and k.
    """
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
    launch(
        (q.dtype, width, values, gate, None, strength, None, l2norm, *types, _suits(tokens, sequences)),
        out,
        q,
        k,
        v,
        beta,
        tokens,
        sequences,
        heads,
        value_heads,
        heads * width,
        heads * width,
        value_heads * values,
        value_heads * values,
        scale,
        g,
        initial_state,
        state,
        cu_seqlens,
    )
    return out, state


@operator("kiln::attn_merge", "attn_merge", parameters="T D PAIR")
def attn_merge(launch, v: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Merges the attention states v [tokens, states, heads, D] and s [tokens, states, heads].

    s is f32, the log-sum-exp to base 2. Returns (out [tokens, heads, D], lse [tokens, heads]).
    """
    of_dims(v, "v", "[tokens, states, heads, D]")
    of_shape(s, "s", *v.shape[:3])
    of_type(torch.float32, s=s)
    v = v if v.stride(3) == 1 else v.contiguous()
    tokens, states, heads, size = v.shape
    out, lse = empty(v, tokens, heads, size, dtype=v.dtype), empty(v, tokens, heads)
    launch(
        (v.dtype, size, False),
        out,
        v,
        s,
        tokens,
        states,
        heads,
        heads * size,
        size,
        v.stride(0),
        v.stride(1),
        v.stride(2),
        s.stride(0),
        s.stride(1),
        s.stride(2),
        lse,
        heads,
        1,
    )
    return out, lse
