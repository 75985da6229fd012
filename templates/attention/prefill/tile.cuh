// Computes a tile of attention in the registers of a block, where each warp has rows of its own. The block
// multiplies TILE_ROWS rows of q with kv blocks of TILE_KV tokens.
//
// Shared memory holds q [TILE_ROWS][D], then STAGES times k [TILE_KV][D] and v [TILE_KV][DV], all swizzled. A
// warp copies, multiplies and later overwrites only its own rows of q, so that these rows need no barrier of
// the block.
#pragma once
#include "attention/online_softmax.cuh"
#include "attention/work_list.cuh"
#include "kiln/block_copy.cuh"
#include "kiln/mma.cuh"
#include "kiln/swizzle.cuh"

namespace kiln {

// Returns the lowest BITS bits of lane `lane`'s x. All lanes call it.
template <int BITS>
__device__ __forceinline__ u64 shuffle(u64 x, int lane) {
  const u32 low = __shfl_sync(0xffffffffu, static_cast<u32>(x), lane);
  if constexpr (BITS <= 32) return low;
  return static_cast<u64>(__shfl_sync(0xffffffffu, static_cast<u32>(x >> 32), lane)) << 32 | low;
}

// A packed row is a query token of the request and a q head of the group.
template <int GROUP>
struct PackedRow {
  i32 token, head;
  __device__ __forceinline__ explicit PackedRow(u32 row) : token(row / GROUP), head(row % GROUP) {}
};

// A warp's part of a tile. All lanes of the warp call its functions together. With FEW_REGISTERS, places of results are
// computed where they are needed, and take no registers before.
template <typename T, int D, int DV, int TILE_ROWS, int TILE_KV, int WARPS, bool FEW_REGISTERS = false>
struct AttentionTile {
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int WARP_ROWS = TILE_ROWS / WARPS;
  // A warp has M products along rows, N along kv tokens and NV along columns of v.
  static constexpr int M = WARP_ROWS / MMA_M, N = TILE_KV / MMA_N, NV = DV / MMA_N;
  static_assert(D % 16 == 0 && DV % 16 == 0 && DV <= D && TILE_KV % 16 == 0 && WARP_ROWS % 16 == 0,
                "D, DV, TILE_KV and WARP_ROWS must be multiples of 16, and DV at most D");

  using RowOfK = Swizzled<2 * padded_row(D)>;  // for rows of q, too
  using RowOfV = Swizzled<2 * padded_row(DV)>;
  static constexpr int Q_BYTES = TILE_ROWS * RowOfK::PITCH, K_BYTES = TILE_KV * RowOfK::PITCH,
                       V_BYTES = TILE_KV * RowOfV::PITCH;

  // A thread has elements of rows g and g + 8 of each product, as mma() lays them out. These are its rows h =
  // 0 and 1.
  f32 o[M][NV][4];       // weighted sums of v, relative to the rows' shifts
  SoftmaxRow row[M][2];  // until finish(), `sum` counts the thread's own columns only

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      row[m][0] = row[m][1] = SoftmaxRow{};
#pragma unroll
      for (int n = 0; n < NV; ++n) o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0.0f;
    }
  }

  // Returns the thread's row h of product m, among the warp's rows.
  __device__ static __forceinline__ u32 row_of(int m, int h) {
    return m * MMA_M + h * 8 + threadIdx.x % 32 / 4;
  }
  // Returns the first of the thread's columns. Its other columns lie 1, 8, 9, 16 and so on after the first.
  __device__ static __forceinline__ u32 column() { return threadIdx.x % 4 * 2; }

  // Calls f(r, each) for each of the thread's rows r of the warp. In f, each(g) replaces each logit x of the
  // row by g(x, column). `column` is a constant, which counts from column().
  template <typename F>
  __device__ static __forceinline__ void for_rows(f32 (&s)[M][N][4], const F& f) {
    const u32 first = fresh(row_of(0, 0));
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        f(first + m * MMA_M + h * 8, [&](const auto& g) {
#pragma unroll
          for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int j = 0; j < 2; ++j) s[m][n][2 * h + j] = g(s[m][n][2 * h + j], n * MMA_N + j);
          }
        });
      }
    }
  }

  // Begins to copy the warp's rows of q to the shared address `shared`. `q` is the first row of the request
  // and kv head, which has `rows` packed rows. The warp's rows begin at `first_row`; rows from `rows` on
  // become zeros. Strides count elements.
  template <int GROUP>
  __device__ static __forceinline__ void copy_rows(u32 shared, const T* q, i64 stride, i64 stride_head,
                                                   i32 first_row, i32 rows) {
    const int line = threadIdx.x % 32 / 8, chunk = threadIdx.x % 8;
#pragma unroll 2
    for (int r = 0; r < WARP_ROWS; r += 4) {
      const PackedRow<GROUP> row(min(first_row + r + line, rows - 1));
      const T* const from = q + row.token * stride + row.head * stride_head + chunk * 8;
#pragma unroll
      for (int c = 0; c < D / 8; c += 8) {
        if (D / 8 - c >= 8 || chunk < D / 8 - c)
          copy_async_or_zero(shared + RowOfK::offset(r + line, chunk + c), from + c * 8,
                             first_row + r + line < rows);
      }
    }
  }

  // Stores the warp's staged rows to `o`. The other parameters are as in copy_rows().
  template <int GROUP>
  __device__ static __forceinline__ void store_rows(T* o, i64 stride, i64 stride_head, const u8* staging,
                                                    i32 first_row, i32 rows) {
    // Without fresh(), values that copy_rows() derives from the thread's index would stay in registers
    // until here.
    const u32 thread = fresh(threadIdx.x);
    const int line = thread % 32 / 8, chunk = thread % 8;
#pragma unroll 2
    for (int r = 0; r < WARP_ROWS; r += 4) {
      if (first_row + r + line >= rows) break;
      const PackedRow<GROUP> row(first_row + r + line);
      T* const to = o + row.token * stride + row.head * stride_head + chunk * 8;
#pragma unroll
      for (int c = 0; c < DV / 8; c += 8) {
        if (DV / 8 - c >= 8 || chunk < DV / 8 - c)
          store(to + c * 8,
                load_shared<8>(reinterpret_cast<const T*>(staging + RowOfV::offset(r + line, chunk + c))));
      }
    }
  }

  // Computes s = q k^T. `q` and `k` are the shared addresses of the warp's rows and of the kv block's keys.
  __device__ static __forceinline__ void multiply(f32 (&s)[M][N][4], u32 q, u32 k) {
    const int lane = threadIdx.x % 32;
    const u32 q_lane = q + RowOfK::offset(lane % 16, lane / 16),
              k_lane = k + RowOfK::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int n = 0; n < N; ++n) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < D / MMA_K; ++i) {
      u32 a[M][4];
#pragma unroll
      for (int m = 0; m < M; ++m)
        load_matrices(a[m], RowOfK::further(q_lane, 2 * i) + m * MMA_M * RowOfK::PITCH);
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        u32 b[4];
        load_matrices(b, RowOfK::further(k_lane, 2 * i) + n * MMA_N * RowOfK::PITCH);
#pragma unroll
        for (int m = 0; m < M; ++m) {
          mma<T>(s[m][n], a[m], b[0], b[1]);
          mma<T>(s[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  // Raises the rows' shifts to their largest logits, and rescales the warp's sums, if a row has outgrown its
  // shift. This is rare after a tile's first kv blocks. A logit is s * scale.
  __device__ __forceinline__ void rescale(const f32 (&s)[M][N][4], f32 scale) {
    f32 largest[M][2];
    bool outgrown = false;
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        f32 x = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < N; ++n) x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        x = fmaxf(x, shuffle_xor(x, 1));
        largest[m][h] = fmaxf(x, shuffle_xor(x, 2)) * scale;
        outgrown |= row[m][h].outgrown(largest[m][h]);
      }
    }
    if (!__any_sync(0xffffffffu, outgrown)) return;
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const f32 factor = row[m][h].rescale(largest[m][h]);
#pragma unroll
        for (int n = 0; n < NV; ++n) o[m][n][2 * h] *= factor, o[m][n][2 * h + 1] *= factor;
      }
    }
  }

  // Computes o += 2^(s * scale - shift) v in steps of 16 tokens. `v` is the shared address of the kv block's
  // values. The exponentials of a step are computed beside the products of the step before.
  __device__ __forceinline__ void accumulate(const f32 (&s)[M][N][4], f32 scale, u32 v) {
    const int lane = threadIdx.x % 32;
    const u32 v_lane = v + RowOfV::offset(lane % 16, lane / 16);
#pragma unroll
    for (int i = 0; i < TILE_KV / MMA_K; ++i) {
      u32 a[M][4];
#pragma unroll
      for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          SoftmaxRow& own = row[m][j % 2];
          const f32(&x)[4] = s[m][2 * i + j / 2];
          const f32 first = own.weight(x[j % 2 * 2], scale), second = own.weight(x[j % 2 * 2 + 1], scale);
          own.sum += first + second;
          a[m][j] = pack<T>(first, second);
        }
      }
#pragma unroll
      for (int n = 0; n < NV; n += 2) {
        u32 b[4];
        load_matrices_transposed(b, RowOfV::further(v_lane, n) + i * MMA_K * RowOfV::PITCH);
#pragma unroll
        for (int m = 0; m < M; ++m) {
          mma<T>(o[m][n], a[m], b[0], b[1]);
          mma<T>(o[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  // Turns each `sum` into the sum of its whole row. Call it after the last kv block.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) row[m][h].sum = warp_reduce<4>(row[m][h].sum, Sum{});
    }
  }

  // Adds the sink of each row to its sum: add(row, r) adds that of row r, as SoftmaxRow::add() does. Call it between finish()
  // and stage().
  template <typename Add>
  __device__ __forceinline__ void add_sinks(const Add& add) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const f32 factor[2] = {add(row[m][0], row_of(m, 0)), add(row[m][1], row_of(m, 1))};
#pragma unroll
      for (int n = 0; n < NV; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) o[m][n][j] *= factor[j / 2];
      }
    }
  }

  // Writes the warp's means to shared memory, so that they can leave it in whole chunks of 16 bytes. They
  // become rows of RowOfV at `staging`. This is the place of the warp's rows of q, which are no longer
  // needed. One thread calls emit(r, lse) for each row.
  template <typename Emit>
  __device__ __forceinline__ void stage(u8* staging, const Emit& emit) const {
    const u32 thread = FEW_REGISTERS ? fresh(threadIdx.x) : threadIdx.x;
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const f32 factor[2] = {row[m][0].inverse(), row[m][1].inverse()};
#pragma unroll
      for (int n = 0; n < NV; ++n) {
        f32 mean[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) mean[j] = o[m][n][j] * factor[j / 2];
        put(staging, thread, m, n, mean);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (threadIdx.x % 4 == 0) emit(row_of(m, h), row[m][h].lse());
      }
    }
  }
  // Writes the thread's four elements of product (m, n) to the staged rows.
  __device__ static __forceinline__ void put(u8* staging, u32 thread, int m, int n, const f32 (&x)[4]) {
    u8* const to = staging + RowOfV::further(RowOfV::offset(thread % 32 / 4, 0), n) + thread % 4 * 4 +
                   m * MMA_M * RowOfV::PITCH;
    *reinterpret_cast<u32*>(to) = pack<T>(x[0], x[1]);
    *reinterpret_cast<u32*>(to + 8 * RowOfV::PITCH) = pack<T>(x[2], x[3]);
  }

  // ---- parts of a tile ------------------------------------------------------------------------------------
  // An element of a part lies in the workspace at its thread's own place, not by row and column. Sums and
  // shifts are kept apart: next to a shift of -2e5 the logarithm of a sum has no digits left.

  // A slot has the sums of v, then the sums of the rows. The shifts lie elsewhere.
  using Slots = AttentionSlots<TILE_ROWS, DV + 1>;

  // Returns the distance from the thread's first element to its elements of product (m, n).
  __device__ static constexpr int place(int m, int n) { return (m * NV + n) * THREADS * 4; }
  __device__ static __forceinline__ int sum_at(int m, int h) { return TILE_ROWS * DV + own_row(m, h); }
  __device__ static __forceinline__ int own_row(int m, int h) {
    return threadIdx.x / 32 * WARP_ROWS + row_of(m, h);
  }

  // Writes the warp's rows of a part to the slot.
  __device__ __forceinline__ void save(const Slots& slots, i32 slot) const {
    f32* const to = slots.rows(slot);
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int n = 0; n < NV; ++n) store(to + threadIdx.x * 4 + place(m, n), narrow<f32>(o[m][n]));
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (threadIdx.x % 4 == 0)
          to[sum_at(m, h)] = row[m][h].sum, slots.shifts(slot)[own_row(m, h)] = row[m][h].shift;
      }
    }
  }

  // Merges `parts` slots from `first_slot` on, in their order, and stages the result as stage() does. `add` is as in
  // add_sinks(). REQUIRES: the writes of all these slots are visible, as they are after AttentionPlan::arrive().
  template <typename Emit, typename Add>
  __device__ static __forceinline__ void merge(const Slots& slots, i32 first_slot, int parts, u8* staging,
                                               const Emit& emit, const Add& add) {
    constexpr int BATCH = NV <= 16 ? NV : NV / 2;  // products whose loads are in flight together
    const u32 thread = FEW_REGISTERS ? fresh(threadIdx.x) : threadIdx.x;
#pragma unroll 1
    for (int m = 0; m < M; ++m) {
      SoftmaxRow row[2];
#pragma unroll 1
      for (int part = 0; part < parts; ++part) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const f32 shift = load_one(slots.shifts(first_slot + part) + own_row(m, h)),
                    sum = load_one(slots.rows(first_slot + part) + sum_at(m, h));
          row[h].rescale(shift);
          row[h].sum += sum * exp2_approx(shift + row[h].offset());
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        add(row[h], row_of(m, h));
        if (threadIdx.x % 4 == 0) emit(row_of(m, h), row[h].lse());
      }
#pragma unroll 1
      for (int first = 0; first < NV; first += BATCH) {
        f32 sums[BATCH][4] = {};
#pragma unroll 1
        for (int part = 0; part < parts; ++part) {
          const f32* const from = slots.rows(first_slot + part) + threadIdx.x * 4 + place(m, first);
          f32 factor[2];
#pragma unroll
          for (int h = 0; h < 2; ++h)
            factor[h] =
                exp2_approx(load_one(slots.shifts(first_slot + part) + own_row(m, h)) + row[h].offset()) *
                row[h].inverse();
          Vec<f32, 4> x[BATCH];
#pragma unroll
          for (int n = 0; n < BATCH; ++n) x[n] = load<4>(from + place(0, n));
#pragma unroll
          for (int n = 0; n < BATCH; ++n) {
            f32 v[4];
            widen(x[n], v);
#pragma unroll
            for (int j = 0; j < 4; ++j) sums[n][j] += factor[j / 2] * v[j];
          }
        }
#pragma unroll
        for (int n = 0; n < BATCH; ++n) put(staging, thread, m, first + n, sums[n]);
      }
    }
  }
};

}  // namespace kiln
