// The sums of a tile of a b^T with mma.sync, for every architecture from sm_80 on.
//
// A block of four warps multiplies 64 rows of a by 64 rows of b. Each warp has 16 rows of a. The operands come by cp.async
// through a ring of stages. fp8 is widened to f16 on its way, which is exact.
#pragma once
#include "kiln/copy_async.cuh"
#include "kiln/mma.cuh"
#include "kiln/swizzle.cuh"

namespace kiln {

// The type that the tensor cores multiply.
template <typename T>
struct Multiplied {
  using type = T;
};
template <>
struct Multiplied<e4m3> {
  using type = f16;
};

// A row of an operand. If it does not exist, it counts as zeros and is not read; `from` is then any valid address.
template <typename T>
struct OperandRow {
  const T* from;
  bool exists;
};

// SCALED: the products of each 128 of K are multiplied by two factors, one of the row of a and one of the row of b.
template <typename T, int K, bool SCALED>
struct PortableTile {
  static constexpr int ROWS = 64, THREADS = 128, STAGES = 3, BK = 64,
                       STEPS = static_cast<int>(ceil_div(K, BK));
  static constexpr int COPIES = ROWS / 16;  // rows of each operand that a thread copies a part of
  using Swizzle = Swizzled<128>;
  using Memory = u8[STAGES][2][ROWS * 128];  // of a block; aligned to 1024 bytes

  // Returns the i-th row that this thread copies a part of, of either operand. REQUIRES: i < COPIES.
  __device__ static __forceinline__ int copied_row(int i) { return threadIdx.x / 8 + i * 16; }
  // Returns the first of the two rows of a whose sums this thread has; the second is 8 rows further.
  __device__ static __forceinline__ int row() { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4; }
  // Returns the first of the two rows of b to which sums[j] of this thread belong; the second is its neighbour.
  __device__ static __forceinline__ int column(int j) { return j * 8 + threadIdx.x % 4 * 2; }

  // Adds the products to `sums`: sums[j][0] and sums[j][1] belong to row(), sums[j][2] and sums[j][3] to row() + 8.
  // - row_a(i) and row_b(i) return the OperandRow of copied_row(i).
  // - factor_a(second, block) and factor_b(j, block) return the factors of the block-th 128 of K, of the first or second
  //   row of a, and of the rows of b of sums[j]. They are called only if SCALED.
  // All threads of the block call it. REQUIRES: a barrier lies between two calls.
  template <typename RowA, typename RowB, typename FactorA, typename FactorB>
  __device__ static __forceinline__ void multiply(f32 (&sums)[8][4], Memory& memory, RowA row_a, RowB row_b,
                                                  FactorA factor_a, FactorB factor_b) {
    using Half = typename Multiplied<T>::type;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const auto fill = [&](int step) {
      if (step < STEPS) {
#pragma unroll
        for (int i = 0; i < 2 * COPIES; ++i) {  // 16 bytes each of both tiles, first of a
          const int chunk = threadIdx.x % 8, k = step * BK + chunk * 8;
          const u32 to = shared_address(memory[step % STAGES][i / COPIES]) +
                         Swizzle::offset(copied_row(i % COPIES), chunk);
          const OperandRow<T> row = i < COPIES ? row_a(i) : row_b(i - COPIES);
          const bool exists = row.exists && k < K;
          const T* from = exists ? row.from + k : row.from;
          if constexpr (sizeof(T) == 1) {
            f32 wide[8] = {};
            if (exists) widen(load<8>(from), wide);
            const Vec<f16, 8> v = narrow<f16>(wide);
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.word[0]), "r"(v.word[1]),
                         "r"(v.word[2]), "r"(v.word[3])
                         : "memory");
          } else {
            copy_async_or_zero(to, from, exists);
          }
        }
      }
      copy_async_commit();
    };

    f32 part[8][4] = {};  // SCALED: the products of 128 of K
    for (int step = 0; step < STAGES - 1; ++step) fill(step);
#pragma unroll 1
    for (int step = 0; step < STEPS; ++step) {
      copy_async_wait<STAGES - 2>();
      __syncthreads();
      fill(step + STAGES - 1);
      const u32 of_a = shared_address(memory[step % STAGES][0]),
                of_b = shared_address(memory[step % STAGES][1]);
#pragma unroll
      for (int k = 0; k < BK / 16; ++k) {
        u32 left[4];
        load_matrices(left, of_a + Swizzle::offset(warp * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
          u32 right[4];
          load_matrices(right,
                        of_b + Swizzle::offset(j * 8 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
          mma<Half>(SCALED ? part[j] : sums[j], left, right[0], right[1]);
          mma<Half>(SCALED ? part[j + 1] : sums[j + 1], left, right[2], right[3]);
        }
      }
      if constexpr (SCALED) {
        if (step % 2 == 0 && step < STEPS - 1) continue;
        const f32 first = factor_a(false, step / 2), second = factor_a(true, step / 2);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const f32 factor = factor_b(j, step / 2);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums[j][i] += part[j][i] * ((i < 2 ? first : second) * factor);
            part[j][i] = 0.0f;
          }
        }
      }
    }
  }
};

}  // namespace kiln
