// Matrix products of a warp on tensor cores (mma.sync, sm_80 and newer), and loads of operands (ldmatrix).
//
// A product is D[16][8] += A[16][16] B[16][8]. Let g = lane / 4 and t = lane % 4. A register of A has the
// element listed below and its right neighbour. A register of B has the element listed below and the next
// element along k.
//
//     A [row][k]       a[0] (g, 2t)   a[1] (g + 8, 2t)      a[2] (g, 2t + 8)   a[3] (g + 8, 2t + 8)
//     B [k][column]    b0 (2t, g)     b1 (2t + 8, g)
//     D [row][column]  d[0] (g, 2t)   d[1] (g, 2t + 1)      d[2] (g + 8, 2t)   d[3] (g + 8, 2t + 1)
//
// D has the layout of A once two neighbours are packed into a register. pack() therefore turns a result into
// an operand.
#pragma once
#include "kiln/dtype.cuh"

namespace kiln {

inline constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;

// d += a b, with T = f16 or bf16 and accumulation in f32. REQUIRES: all 32 lanes of the warp call it.
template <typename T>
__device__ __forceinline__ void mma(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(same<T, f16> || same<T, bf16>, "mma: T must be f16 or bf16");
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

// Rounds x to TF32, which has 10 bits of mantissa; halves go away from zero. On sm_90 this takes two instructions, and
// cvt.rna.tf32 takes four, because it checks for infinity. REQUIRES: x is finite; the result of a NaN may be a number.
__device__ __forceinline__ f32 round_to_tf32(f32 x) {
  return __uint_as_float((__float_as_uint(x) + 0x1000u) & ~0x1fffu);
}

// d += a b in TF32, for 8 elements of k. The operands are values of round_to_tf32(), and d is as for mma(). With the same
// order of k in both operands, any order gives the product. In the one that is natural here, a register has
//
//     A [row][k]       a[0] (g, 2t)   a[1] (g + 8, 2t)      a[2] (g, 2t + 1)   a[3] (g + 8, 2t + 1)
//     B [k][column]    b0 (2t, g)     b1 (2t + 1, g)
//
// so that the elements of D are the elements of A. REQUIRES: all 32 lanes of the warp call it.
__device__ __forceinline__ void mma_tf32(f32 (&d)[4], const f32 (&a)[4], f32 b0, f32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

// Rounds two values to T (f16 or bf16) and returns them in one register, `low` in its lower half. This turns
// two neighbours of an accumulator into a register of the next product's operand.
template <typename T>
__device__ __forceinline__ u32 pack(f32 low, f32 high) {
  if constexpr (same<T, f16>) {
    return f16x2_bits(low, high);
  } else {
    return bf16x2_bits(low, high);
  }
}

// Both functions load four matrices of 8 x 8 elements of 2 bytes from shared memory. All lanes call them.
// - Lane l gives the address (of shared_address()) of row l % 8 of matrix l / 8. A row is 16 aligned bytes.
// - load_matrices() gives each lane in r[i] the elements (g, 2t) and (g, 2t + 1) of matrix i.
// - load_matrices_transposed() gives each lane (2t, g) and (2t + 1, g).
// The loads are volatile, so that the compiler does not move them before a barrier that precedes them.
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

// Transposes a matrix of 8 x 8 elements of 2 bytes, with a row in four lanes. An accumulator becomes the right operand of
// the next product in this way.
__device__ __forceinline__ u32 transpose_matrix(u32 matrix) {
  u32 out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(matrix));
  return out;
}

}  // namespace kiln
