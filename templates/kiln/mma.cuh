// Matrix products of a warp on tensor cores (mma.sync, sm_80 and newer), and their operands out of shared memory (ldmatrix).
//
// D[16][8] += A[16][16] B[16][8]. With g = lane / 4 and t = lane % 4, each lane holds two neighbours of a row in a register:
//   A  a[0] (g, 2t)  a[1] (g + 8, 2t)  a[2] (g, 2t + 8)  a[3] (g + 8, 2t + 8)   [row][k]
//   B  b0 (2t, g)  b1 (2t + 8, g)                                               [k][column], neighbours along k
//   D  d[0], d[1] (g, 2t), (g, 2t + 1)  d[2], d[3] (g + 8, 2t), (g + 8, 2t + 1) [row][column]: as A holds it, once two are packed
#pragma once
#include "kiln/dtype.cuh"

namespace kiln {

inline constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;

// T: f16 or bf16; accumulation in f32.
template <typename T>
__device__ __forceinline__ void mma(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(same<T, f16> || same<T, bf16>, "mma: f16 or bf16");
  if constexpr (same<T, f16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Two values rounded to T in a register, the first in its lower half: an accumulator as the next product's operand.
template <typename T>
__device__ __forceinline__ u32 pack(f32 low, f32 high) {
  if constexpr (same<T, f16>) {
    return f16x2_bits(low, high);
  } else {
    return bf16x2_bits(low, high);
  }
}

// Four matrices of 8 x 8 elements of 2 bytes: lane l gives the address of 16 bytes, row l % 8 of matrix l / 8, and receives of matrix i in r[i] what
// an operand holds of it: elements (g, 2t) and (g, 2t + 1), or, transposed, (2t, g) and (2t + 1, g). Addresses are those of shared memory
// (shared_address). The loads are volatile: they stay behind the barrier in front of them.
__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ __forceinline__ void load_matrices_transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

}  // namespace kiln
