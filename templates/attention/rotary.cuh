// Rotary position embedding (Su et al.: RoFormer, 2021): the angles of pairs, and the rotation of pairs.
#pragma once
#include "kiln/vector.cuh"

namespace kiln {

enum class Angles {
  table,    // cos and sin of each position come from a table that the engine has made
  theta,    // the angle is position * rope_theta^(-2 pair / ROTARY) / rope_scale
  llama31,  // as theta, but rope_scale does not divide short wavelengths, and divides middle ones in part
};

// Parameters for angles that are computed. Angles::theta uses only the first two.
struct Rope {
  f32 theta, scale, low_freq_factor, high_freq_factor, old_context_length;
};

// Returns the angle by which a pair turns per position, in units of 2^-64 of a turn. This angle times a
// position, modulo 2^64, is the rotation without its whole turns. One exact multiplication therefore does the
// range reduction.
//
// The frequency is a double: at 10^6 radians a float is off by 0.06. The function reads no memory, so that it
// may run before pdl_wait().
template <int ROTARY, Angles ANGLES>
__device__ __forceinline__ u64 turn_per_position(int pair, const Rope& rope) {
  constexpr f64 PER_RADIAN = 0.15915494309189533577;  // 1 / (2 pi)
  const f64 full = exp2(log2(static_cast<f64>(rope.theta)) * pair * (-2.0 / ROTARY)) * PER_RADIAN;
  f64 turn = full / rope.scale;
  if constexpr (ANGLES == Angles::llama31) {
    const f64 turns = full * rope.old_context_length;  // turns in the context of the first training
    const f64 share =
        (turns - rope.low_freq_factor) / (static_cast<f64>(rope.high_freq_factor) - rope.low_freq_factor);
    turn += (full - turn) * fmin(fmax(share, 0.0), 1.0);
  }
  return __double2ull_rn((turn - floor(turn)) * 0x1p64);
}

struct Direction {
  f32 cos, sin;
};

// Returns cos and sin of a pair's angle at `position`. The absolute error is 2^-22 at positions below 2^20.
// At larger positions the error of the frequency is added: 2^-20 at 2^31.
__device__ __forceinline__ Direction direction(i64 position, u64 turn_per_position) {
  const u64 turns = static_cast<u64>(position) * turn_per_position;
  Direction d;
  sincospif(static_cast<f32>(static_cast<i32>(turns >> 32)) * 0x1p-31f, &d.sin, &d.cos);
  return d;
}

// Rotates the pair (x, y) by the angle of `cos` and `sin`.
__device__ __forceinline__ void rotate(f32& x, f32& y, f32 cos, f32 sin) {
  const f32 turned = fmaf(x, cos, -y * sin);
  y = fmaf(y, cos, x * sin);
  x = turned;
}

}  // namespace kiln
