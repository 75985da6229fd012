"""Flash Linear Attention's kernels behind the call shapes of tests/templates/rwkv7_*.py, wkv7_recurrent.py and delta_recurrent.py.

Use it with BENCH_PEERS=tests/bench/fla_peers.py and the package `fla` on PYTHONPATH. BENCH_PEERS_MORE may name a second such module, for kernels of other
projects in the same run.

The bench times the calls of a layer: shift then mix, l2norm then key update then kk * a, group norm then gate.
The first call of a kernel at a new shape compiles it, and most kernels autotune then. So the bench calls them before a capture (harness.Timed does this), and
TRITON_CACHE_DIR keeps code and choices.
"""

import functools
import importlib
import importlib.util
import os

import torch
import triton.testing

# The timer of Triton's autotuner: measures 20 ms per configuration instead of 100, because a run of the whole table has hundreds of configurations.
triton.testing.do_bench = functools.partial(triton.testing.do_bench, warmup=5, rep=20)


def shift_mix(x, mu, cache):
    from fla.modules.token_shift import token_shift
    from fla.ops.rwkv7.channel_mixing import rwkv_mix_fwd
    from fla.ops.rwkv7.fused_addcmul import fused_addcmul_rwkv7

    if mu.shape[0] == 1:
        return rwkv_mix_fwd(x, cache, mu)
    delta, last = token_shift(x, None, cache, True)
    return *fused_addcmul_rwkv7(x, delta, *(m.view(1, 1, -1) for m in mu)), last


def kprep(k, a, k_k, k_a):
    from fla.modules.l2norm import l2_norm
    from fla.ops.rwkv7.fused_k_update import fused_k_rwkv7

    tokens, heads, d = k.shape
    kk = l2_norm(k * k_k)
    return fused_k_rwkv7(k.view(1, tokens, heads * d), a.view(1, tokens, heads * d), k_a.view(-1)), kk, kk * a


def out(o, r, k, v, g, r_k, weight, bias, norm, eps):
    from fla.modules.layernorm import group_norm
    from fla.ops.rwkv7.gate_output_correction import gate_output_correction

    tokens, heads, d = o.shape
    flat, split = (1, tokens, heads * d), (1, tokens, heads, d)
    if norm:
        o = group_norm(o.view(flat), weight.view(-1), bias.view(-1), eps=eps, num_groups=heads)
    return gate_output_correction(o.view(flat), r.view(split), k.view(split), r_k, v.view(split), g.view(flat))


def recurrent(r, w, k, v, kk, a, state):
    from fla.ops.rwkv7 import fused_mul_recurrent_rwkv7

    return fused_mul_recurrent_rwkv7(r, w, k, v, kk, a, scale=1.0, initial_state=state, output_final_state=True)


def chunk(r, w, k, v, kk, a, state):
    """Called as a layer calls it for 64 tokens or more. A layer also computes the two products -kk and kk * a, so they are part of the time."""
    from fla.ops.rwkv7 import chunk_rwkv7

    with torch.no_grad():
        return chunk_rwkv7(
            r=r,
            w=w,
            k=k,
            v=v,
            a=-kk,
            b=kk * a,
            scale=1.0,
            initial_state=state,
            output_final_state=True,
            safe_gate=True,
            lower_bound=-0.6065306597126334,
            chunk_size=64,
        )


def delta(module, name):
    """q, k [B, T, H, K], v [B, T, HV, V], beta and g [B, T, HV, ..], initial_state [N, HV, K, V] -> o, final state."""

    def run(q, k, v, beta, g=None, initial_state=None, l2norm=False):
        gate = {} if g is None else {"g": g}
        with torch.no_grad():
            return getattr(importlib.import_module(module), name)(
                q=q,
                k=k,
                v=v,
                beta=beta,
                **gate,
                initial_state=initial_state,
                output_final_state=True,
                use_qk_l2norm_in_kernel=l2norm,
            )

    return run


_PEERS = {
    "fla_shift_mix": shift_mix,
    "fla_kprep": kprep,
    "fla_out": out,
    "fla_wkv7_recurrent": recurrent,
    "fla_wkv7_chunk": chunk,
    "fla_delta_recurrent": delta("fla.ops.delta_rule", "fused_recurrent_delta_rule"),
    "fla_delta_chunk": delta("fla.ops.delta_rule", "chunk_delta_rule"),
    "fla_gated_delta_recurrent": delta("fla.ops.gated_delta_rule", "fused_recurrent_gated_delta_rule"),
    "fla_gated_delta_chunk": delta("fla.ops.gated_delta_rule", "chunk_gated_delta_rule"),
    "fla_kda_recurrent": delta("fla.ops.kda", "fused_recurrent_kda"),
    "fla_kda_chunk": delta("fla.ops.kda", "chunk_kda"),
}


def get(name):
    """label -> callable; {} for an unknown name."""
    if name in _PEERS:
        return {name: _PEERS[name]}
    path = os.environ.get("BENCH_PEERS_MORE")
    if not path:
        return {}
    spec = importlib.util.spec_from_file_location("more_peers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get(name)
