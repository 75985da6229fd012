// Rotary position embedding (Su et al.: RoFormer, 2021): the angle of a pair of elements at a position, and its rotation.
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

enum class Angles {
  table,    // cos and sin of each position, made by the engine
  theta,    // position * rope_theta^(-2 pair / ROTARY) / rope_scale
  llama31,  // the same, but that short wavelengths are not divided by rope_scale, and those between are in part
};

struct Rope {
  f32 theta, scale, low_freq_factor, high_freq_factor, old_context_length;
};

// What a pair turns per position, in 2^-64 of a turn: positions times this, modulo 2^64, is the angle without its whole turns, so that range
// reduction is one exact multiplication. The frequency is a double: at 10^6 radians a float is off by 0.06. It depends on no memory.
template <int ROTARY, Angles ANGLES>
__device__ __forceinline__ u64 turn_per_position(int pair, const Rope& rope) {
  constexpr f64 PER_RADIAN = 0.15915494309189533577;  // 1 / (2 pi)
  const f64 full = exp2(log2(static_cast<f64>(rope.theta)) * pair * (-2.0 / ROTARY)) * PER_RADIAN;
  f64 turn = full / rope.scale;
  if constexpr (ANGLES == Angles::llama31) {
    const f64 turns = full * rope.old_context_length;  // in the context that the model was first trained for
    const f64 share =
        (turns - rope.low_freq_factor) / (static_cast<f64>(rope.high_freq_factor) - rope.low_freq_factor);
    turn += (full - turn) * fmin(fmax(share, 0.0), 1.0);
  }
  return __double2ull_rn((turn - floor(turn)) * 0x1p64);
}

struct Direction {
  f32 cos, sin;
};

// Absolute error: 2^-22 at positions below 2^20, and what the double in the frequency adds beyond: 2^-20 at 2^31.
__device__ __forceinline__ Direction direction(i64 position, u64 turn_per_position) {
  const u64 turns = static_cast<u64>(position) * turn_per_position;
  Direction d;
  sincospif(static_cast<f32>(static_cast<i32>(turns >> 32)) * 0x1p-31f, &d.sin, &d.cos);
  return d;
}

__device__ __forceinline__ void rotate(f32& x, f32& y, f32 cos, f32 sin) {
  const f32 turned = fmaf(x, cos, -y * sin);
  y = fmaf(y, cos, x * sin);
  x = turned;
}

}  // namespace kiln
