// DeltaWalk takes a state of the delta rule from chunk to chunk, and computes the outputs (sm_90a).
//
// A warpgroup has 64 columns of the state S in registers, transposed: a row of its tile is a column of S. All products then
// have their left operand in registers, and their right operand as DeltaPreparation and TMA left it in shared memory. S stays
// in f32, and is rounded to T for products.
#pragma once
#include "kiln/hopper/warpgroup.cuh"
#include "kiln/hopper/wgmma.cuh"
#include "recurrent/chunk/memory.cuh"
#include "recurrent/chunk/panels.cuh"
#include "recurrent/delta_steps.cuh"

namespace kiln {

// Stores a matrix of 8 x 8 elements of 2 bytes, transposed, for each of four registers. Lane l gives the address (of
// shared_address()) of row l % 8 of the stored matrix l / 8.
__device__ __forceinline__ void store_matrices_transposed(u32 address, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

template <typename T, int K, int WALKS, Gate GATE>
class DeltaWalk {
 public:
  static constexpr bool KEYS = GATE == Gate::key;
  using Tiles = typename ChunkTypes<T, K, WALKS, KEYS>::Tiles;

  // Loads the warpgroup's columns of a state [K][V], or [V][K] with V_FIRST, in global memory. They begin at `state`. Null
  // counts as zeros.
  template <int V, bool V_FIRST, typename STATE>
  __device__ __forceinline__ void load_from(const STATE* state) {
    if (!state) {
#pragma unroll
      for (f32& s : s_) s = 0.0f;
      return;
    }
    constexpr int TOGETHER = V_FIRST ? 2 : 1;
    state = fixed(state + first_element<V, V_FIRST>());
#pragma unroll
    for (int i = 0; i < K / 2; i += TOGETHER) {
      f32 x[TOGETHER];
      widen(load<TOGETHER>(state + element<V, V_FIRST>(i)), x);
      for (int e = 0; e < TOGETHER; ++e) s_[i + e] = x[e];
    }
  }
  template <int V, bool V_FIRST, typename STATE>
  __device__ __forceinline__ void store_to(STATE* state) const {
    constexpr int TOGETHER = V_FIRST ? 2 : 1;
    state = fixed(state + first_element<V, V_FIRST>());
#pragma unroll
    for (int i = 0; i < K / 2; i += TOGETHER) {
      f32 x[TOGETHER];
      for (int e = 0; e < TOGETHER; ++e) x[e] = s_[i + e];
      store(state + element<V, V_FIRST>(i), narrow<STATE>(x));
    }
  }

  // Takes the state over a chunk of `count` tokens, whose tiles are there; the walk has tile `slice` of v. Then calls done(),
  // after which the tiles may be overwritten. `barrier` is a barrier of the warpgroup's 128 threads. The outputs stay in `staging`, the warp's own memory, until store_outputs(). `meanwhile` runs
  // beside the first products.
  template <typename Meanwhile, typename Done>
  __device__ __forceinline__ void step(Tiles& tiles, int slice, int count, int barrier, T* staging,
                                       Meanwhile meanwhile, Done done) {
    if constexpr (!KEYS) {
      if (count < CHUNK) {
        clear_keys(tiles.k, count);
        fence_async_shared();
        sync_threads(barrier, 128);
      }
    }
    u32 left[K / 16][4];
#pragma unroll
    for (int i = 0; i < K / 4; ++i) left[i / 4][i % 4] = pack<T>(s_[2 * i], s_[2 * i + 1]);
    f32 u[32], o[32];
    multiply(u, left, keys(tiles));     // k^T S
    multiply(o, left, queries(tiles));  // q^T S
    u32 x[4][4];
    load_values(x, tiles.v[slice]);
    meanwhile();
    wgmma_wait<1>();
    wgmma_results(u);

    // u becomes v - decay k^T S.
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int at = i / 2 * 4 + i % 2 * 2;
      float2 factor = make_float2(1.0f, 1.0f);
      if constexpr (!KEYS) factor = pair(tiles.prepared.factors.key, i / 2);
      Vec<T, 2> values;
      f32 value[2];
      values.word[0] = x[i / 4][i % 4];
      widen(values, value);
      u[at] = fmaf(-factor.x, u[at], value[0]);
      u[at + 1] = fmaf(-factor.y, u[at + 1], value[1]);
    }
    if (count < CHUNK) {  // rows of other sequences, which may be NaN
      int first = static_cast<int>(threadIdx.x) % 4 * 2;
      asm volatile("" : "+r"(first));  // otherwise 16 sums with it are kept over all chunks
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (first + i / 4 * 8 + i % 2 >= count) u[i] = 0.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i)
      x[i / 4][i % 4] = pack<T>(u[i / 2 * 4 + i % 2 * 2], u[i / 2 * 4 + i % 2 * 2 + 1]);
    multiply_square(u, x, tiles.prepared.inverse, false);
    wgmma_wait<0>();
    wgmma_results(u);
    wgmma_results(o);

    // The next chunk waits for the state, so that its product comes first.
    u32 written[4][4];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int at = i / 2 * 4 + i % 2 * 2;
      float2 write = make_float2(1.0f, 1.0f);
      if constexpr (!KEYS) write = pair(tiles.prepared.factors.write, i / 2);
      written[i / 4][i % 4] = pack<T>(u[at] * write.x, u[at + 1] * write.y);
    }
    if constexpr (GATE == Gate::head) {
      const f32 kept = tiles.prepared.factors.kept;
#pragma unroll
      for (f32& s : s_) s *= kept;
    }
    if constexpr (KEYS) {
#pragma unroll
      for (int i = 0; i < K / 2; i += 4) {
        const float2 kept = pair(tiles.prepared.kept, i / 4);
        s_[i] *= kept.x, s_[i + 1] *= kept.y, s_[i + 2] *= kept.x, s_[i + 3] *= kept.y;
      }
    }
    write_keys(written, writes(tiles));
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int at = i / 2 * 4 + i % 2 * 2;
      float2 query = make_float2(1.0f, 1.0f);
      if constexpr (!KEYS) query = pair(tiles.prepared.factors.query, i / 2);
      x[i / 4][i % 4] = pack<T>(u[at], u[at + 1]);
      o[at] *= query.x, o[at + 1] *= query.y;
    }
    multiply_square(o, x, tiles.prepared.attention, true);
    wgmma_wait<0>();
    wgmma_results(s_);
    wgmma_results(o);
    done();
    __syncwarp();  // the warp has stored the outputs of the chunk before
    stage(staging, o);
  }

  // Stores the warp's outputs of `count` tokens. Rows of `out` are `stride` elements apart.
  __device__ static __forceinline__ void store_outputs(T* out, i64 stride, const T* staging, int count) {
    const int lane = threadIdx.x % 32, row = lane / 2, half = lane % 2;
    __syncwarp();
    store_rows(out, stride, count,
               [&](int i) { return load_shared<8>(staging + staged(row, half) / 2 + i * 16 * 16); });
  }
  __device__ static __forceinline__ void store_zeros(T* out, i64 stride, int count) {
    store_rows(out, stride, count, [](int) { return Vec<T, 8>{}; });
  }

 private:
  using Panels = ChunkPanel<T>[K / 64];
  __device__ static __forceinline__ const Panels& queries(const Tiles& tiles) {
    if constexpr (KEYS) return tiles.prepared.q;
    if constexpr (!KEYS) return tiles.q;
  }
  __device__ static __forceinline__ const Panels& keys(const Tiles& tiles) {
    if constexpr (KEYS) return tiles.prepared.k;
    if constexpr (!KEYS) return tiles.k;
  }
  __device__ static __forceinline__ const Panels& writes(const Tiles& tiles) {
    if constexpr (KEYS) return tiles.prepared.w;
    if constexpr (!KEYS) return tiles.k;
  }

  // Stores the warp's columns of `count` rows. value(i) is the lane's part of row i * 16 + lane / 2.
  template <typename F>
  __device__ static __forceinline__ void store_rows(T* out, i64 stride, int count, const F& value) {
    const int lane = threadIdx.x % 32, row = lane / 2;
    out = fixed(out + row * stride + lane % 2 * 8);
#pragma unroll
    for (int i = 0; i < 4; ++i, out += 16 * stride) {
      if (i * 16 + row < count) store(out, value(i));
    }
  }
  // Returns p. The compiler then adds constants to this one address, and does not hold an address for each element.
  template <typename E>
  __device__ static __forceinline__ E* fixed(E* p) {
    asm volatile("" : "+l"(p));
    return p;
  }
  // The index of s_[i] in a state is first_element() + element(i).
  template <int V, bool V_FIRST>
  __device__ static __forceinline__ int first_element() {
    const int row = static_cast<int>(threadIdx.x) % 4 * 2, column = wgmma_row();
    return V_FIRST ? column * K + row : row * V + column;
  }
  template <int V, bool V_FIRST>
  __device__ static __forceinline__ constexpr int element(int i) {
    const int row = i / 4 * 8 + i % 2, column = i % 4 / 2 * 8;
    return V_FIRST ? column * K + row : row * V + column;
  }
  // Returns the factors of this thread's two columns of the eight columns `j` of a product.
  __device__ static __forceinline__ float2 pair(const f32* factors, int j) {
    return *reinterpret_cast<const float2*>(factors + j * 8 + threadIdx.x % 4 * 2);
  }

  // Begins d = left rows^T over K.
  __device__ static __forceinline__ void multiply(f32 (&d)[32], u32 (&left)[K / 16][4],
                                                  const ChunkPanel<T> (&rows)[K / 64]) {
    wgmma_registers(left);
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < K / 16; ++i)
      wgmma<T, 64, false>(d, left[i], wgmma_operand<128>(rows[i / 4]) + wgmma_along(i % 4 * 32), i > 0);
    wgmma_commit();
  }
  // Begins d = left matrix^T, or d += left matrix^T if `add`, over the tokens of a chunk.
  __device__ static __forceinline__ void multiply_square(f32 (&d)[32], u32 (&left)[4][4],
                                                         const ChunkPanel<T>& matrix, bool add) {
    wgmma_registers(d);
    wgmma_registers(left);
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma<T, 64, false>(d, left[i], wgmma_operand<128>(matrix) + wgmma_along(i * 32), add || i > 0);
    wgmma_commit();
  }
  // Begins S += left k.
  __device__ __forceinline__ void write_keys(u32 (&left)[4][4], const ChunkPanel<T> (&k)[K / 64]) {
    wgmma_registers(s_);
    wgmma_registers(left);
    wgmma_begin();
    const u64 right = wgmma_operand_along_n(k, sizeof(k[0]));
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma<T, K>(s_, left[i], right + wgmma_along(i * 16 * 128), true);
    wgmma_commit();
  }

  // Reads the values as the left operand of a product over tokens: a row is an element of v.
  __device__ static __forceinline__ void load_values(u32 (&v)[4][4], const ChunkPanel<T>& values) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, chunk = warp * 2 + lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i * 16 + lane / 16 * 8 + lane % 8;
      load_matrices_transposed(v[i], shared_address(values) + row * 128 + (chunk ^ row % 8) * 16);
    }
  }

  // The warp's outputs in `staging`: 64 rows of 16 elements. The two halves of a row change places in every other four
  // rows, which keeps bank conflicts away.
  __device__ static __forceinline__ int staged(int row, int half) {
    return row * 32 + (half ^ row / 4 % 2) * 16;
  }
  __device__ static __forceinline__ void stage(T* staging, const f32 (&o)[32]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 packed[4] = {pack<T>(o[8 * i], o[8 * i + 1]), pack<T>(o[8 * i + 2], o[8 * i + 3]),
                             pack<T>(o[8 * i + 4], o[8 * i + 5]), pack<T>(o[8 * i + 6], o[8 * i + 7])};
      const int row = i * 16 + lane / 16 * 8 + lane % 8;
      store_matrices_transposed(shared_address(staging) + staged(row, lane / 8 % 2), packed);
    }
  }
  f32 s_[K / 2];
};

}  // namespace kiln
