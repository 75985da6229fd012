"""Tiny random models of transformers, and kiln's operators in plain torch on the host.

The operators take real plans, made by the planner for a kernel of the fake driver. They read each request's
lengths and places from the plan's words (templates/attention/words.h), so a wrong plan gives wrong numbers.
"""

import torch
import transformers
from kiln.torch import _fused_moe, _moe
from operator_references import epilogue, of_reference

#: families, and options that make their models tiny
FAMILIES = {
    "llama": ("Llama", {}),
    "qwen3": ("Qwen3", {}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-window": ("Mistral", {"sliding_window": 8}),
    "qwen3-moe": (
        "Qwen3Moe",
        {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True, "mlp_only_layers": [1]},
    ),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "gemma": ("Gemma", {}),
    "gemma2": (
        "Gemma2",
        {"sliding_window": 8, "attn_logit_softcapping": 1.5, "query_pre_attn_scalar": 64, "attn_implementation": "eager"},
    ),
    "gemma3": (
        "Gemma3",
        {"sliding_window": 8, "query_pre_attn_scalar": 64, "layer_types": ["sliding_attention", "full_attention"]},
    ),
}
#: families of which some layers have states in place of keys and values
HYBRIDS = {
    "qwen3-next": (
        "Qwen3Next",
        {
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 32,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
            "norm_topk_prob": True,
            "mlp_only_layers": [0],
        },
    )
}


def config_of(family, **options):
    name, own = (FAMILIES | HYBRIDS)[family]
    sizes = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 99,
        "max_position_embeddings": 256,
        "bos_token_id": 1,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    options = sizes | own | options
    implementation = options.pop("attn_implementation", "sdpa")
    config = getattr(transformers, f"{name}{'Text' if name == 'Gemma3' else ''}Config")(**options)
    config._attn_implementation = implementation
    return config


def model_of(family, dtype=torch.float32, seed=1, **options):
    """A model in evaluation mode. Its norms' weights are random, too, and inverse frequencies stay in f32."""
    config = config_of(family, **options)
    torch.manual_seed(seed)
    model = getattr(transformers, f"{(FAMILIES | HYBRIDS)[family][0]}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            if name.endswith("mlp.gate.weight"):
                parameter.mul_(20)  # scores far apart: a rounding then chooses no other expert
    return keep_frequencies(model, dtype)


def keep_frequencies(model, dtype):
    """The model in another type. Its inverse frequencies stay f32, as from_pretrained(dtype=) leaves them."""
    frequencies = {name: buffer.clone() for name, buffer in model.named_buffers() if "inv_freq" in name}
    model.to(dtype)
    for name, buffer in frequencies.items():
        owner, _, short = name.rpartition(".")
        setattr(model.get_submodule(owner), short, buffer)
    return model


def _requests(plan):
    """[(qo_begin, qo_len, kv_base, kv_len)] of a plan."""
    words = plan.tolist()
    begin = words[8]
    return [tuple(words[begin + 4 * i : begin + 4 * i + 4]) for i in range(words[4])]


def _attend(q, k, v, causal_from, scale, cap, window_left):
    """q [n, heads, size] against k and v [kv, kv heads, size]; the last query sees the last key."""
    group = q.shape[1] // k.shape[1]
    x = torch.einsum("qhd,khd->hqk", q.float(), k.float().repeat_interleave(group, 1)) * scale
    x = cap * torch.tanh(x / cap) if cap > 0 else x
    own = torch.arange(q.shape[0]).unsqueeze(1) + causal_from
    at = torch.arange(k.shape[0])
    hidden = (at > own) | ((at < own - window_left) if window_left >= 0 else torch.zeros(1, dtype=torch.bool))
    x = x.masked_fill(hidden, float("-inf"))
    return torch.einsum("hqk,khd->qhd", x.softmax(-1), v.float().repeat_interleave(group, 1))


def _rms_norm(x, weight, eps=1e-6, gemma=False, out_dtype=None, scale=None):
    v = x.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps) * (weight.float() + gemma)).to(x.dtype)


def _fused_add_rms_norm(x, residual, weight, eps=1e-6, gemma=False, out_dtype=None, scale=None):
    total = x.float() + residual.float()
    residual.copy_(total)
    return _rms_norm(total, weight, eps, gemma).to(x.dtype)


def _act_and_mul(x, act="silu", order="gate_first", alpha=1.702, limit=7.0, round_gate=False, out_dtype=None, scale=None):
    gate, up = x.float().chunk(2, -1)
    act = {"silu": torch.nn.functional.silu, "gelu_tanh": lambda g: torch.nn.functional.gelu(g, approximate="tanh")}[act]
    return (act(gate) * up).to(x.dtype)


def _gemm(a, b, bias=None, residual=None, act="none", gated=False, early_b=False, out_dtype=None):
    float_of = lambda x: None if x is None else x.float()
    return epilogue(a.float() @ b.float().t(), float_of(bias), float_of(residual), act, gated).to(a.dtype)


def _rope(q, k, positions, cos_sin=None, interleaved=False, rotary_dim=0, theta=1e4, rope_scale=1.0, llama31=None):
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, -1)
    size = cos_sin.shape[1]

    def rotated(x):
        a, b = x[..., :size].float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., size:]], -1).to(x.dtype)

    return rotated(q), rotated(k)


def _work_list(plan, kv_indptr, workers, page_size, qo_indptr=None, kv_len=None, last_page_len=None):
    """Writes the words that _requests() reads, after the header of a plan of one token for each request."""
    assert qo_indptr is None and page_size > 0 and bool((kv_indptr.diff() * page_size >= kv_len).all())
    requests = kv_len.numel()
    plan[4], plan[8] = requests, 16
    ones = torch.ones_like(kv_len)
    plan[16 : 16 + 4 * requests] = torch.stack([ones.cumsum(0) - 1, ones, kv_indptr[:-1], kv_len], 1).flatten()


def _decode(q, k_cache, v_cache, kv_indices, plan, workers, workspace, sm_scale=0.0, soft_cap=0.0, window_left=-1, *rest):
    out = torch.full_like(q, float("nan"), memory_format=torch.contiguous_format)
    page = k_cache.shape[1]
    for begin, n, base, length in _requests(plan):
        at = torch.arange(length)
        pages = kv_indices[base + at // page].long()
        k, v = k_cache[pages, at % page], v_cache[pages, at % page]
        out[begin : begin + n] = _attend(q[begin : begin + n], k, v, length - n, sm_scale, soft_cap, window_left).to(q.dtype)
    return out, q.new_zeros(q.shape[:2], dtype=torch.float32)


def _prefill(q, k, v, plan, workers, workspace, causal=True, sm_scale=0.0, soft_cap=0.0, window_left=-1, *rest):
    out = torch.full_like(q, float("nan"), memory_format=torch.contiguous_format)
    for begin, n, base, length in _requests(plan):
        part = _attend(
            q[begin : begin + n], k[base : base + length], v[base : base + length], length - n, sm_scale, soft_cap, window_left
        )
        out[begin : begin + n] = part.to(q.dtype)
    return out, q.new_zeros(q.shape[:2], dtype=torch.float32)


def _mixture(*arguments, **named):
    call = _fused_moe.Call(*arguments, **named)
    wide = (one.float() if torch.is_tensor(one) and one.is_floating_point() else one for one in call)
    return _moe.plain(_fused_moe.Call(*wide)).to(call.x.dtype)


OPERATORS = {
    **{name: of_reference(name) for name in ("conv1d", "conv1d_pool", "delta_rule", "delta_rule_pool", "gated_rms_norm")},
    **{name: of_reference(name) for name in ("rwkv7_shift_mix", "rwkv7_kprep", "rwkv7_kvprep", "rwkv7_out", "wkv7")},
    **{name: of_reference(name) for name in ("layer_norm", "gemm_batched")},
    "rms_norm": _rms_norm,
    "fused_add_rms_norm": _fused_add_rms_norm,
    "act_and_mul": _act_and_mul,
    "gemm": _gemm,
    "fused_moe": _mixture,
    "rope": _rope,
    "attn_decode_paged": _decode,
    "attn_prefill": _prefill,
    "attn_work_list": _work_list,
}
calls = dict.fromkeys(OPERATORS, 0)


def _counted(name, function):
    def call(*arguments, **named):
        calls[name] += 1
        return function(*arguments, **named)

    return call


def compute_on_host():
    """Implements the operators for tensors in host memory, as long as the returned library exists."""
    library = torch.library.Library("kiln", "IMPL")
    for name, function in OPERATORS.items():
        library.impl(name, _counted(name, function), "CPU")
    return library
