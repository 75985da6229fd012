// DeltaMmaWalk takes some columns of a state of the delta rule from chunk to chunk, and computes the outputs. The right operands
// of its products are as DeltaMmaPreparation left them in shared memory.
#pragma once
#include "delta_mma/memory.cuh"
#include "dplr/columns.cuh"

namespace kiln {

// DECAYS is false if the state has no gate.
template <typename T, int K, bool KEYS, int COLUMNS, bool DECAYS>
class DeltaMmaWalk : public StateColumns<T, K, COLUMNS> {
  using Columns = StateColumns<T, K, COLUMNS>;
  using Columns::multiply;
  using Columns::pack_left;
  using Columns::row;
  using Columns::s_;

 public:
  // Takes the state over a chunk, and calls done() once no lane needs the stage. Then stores the outputs of the first
  // `count` tokens. `out` is the first of COLUMNS outputs of the first token, and tokens are `stride` elements apart.
  template <typename Done>
  __device__ __forceinline__ void step(const DeltaMmaStage<T, K, KEYS, COLUMNS>& stage, T* out, i64 stride,
                                       int count, Done done) {
    const int lane = threadIdx.x % 32;
    f32 u[2][4] = {}, o[2][4] = {};
#pragma unroll
    for (int i = 0; i < K / 16; ++i) {  // S^T k and S^T q
      u32 s[4], k[4], q[4];
      Columns::pack_state(s, i);
      const u32 at = DplrRows<K>::offset(lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2);
      load_matrices(k, shared_address(stage.k) + at);
      load_matrices(q, shared_address(stage.q) + at);
      mma<T>(u[0], s, k[0], k[1]);
      mma<T>(u[1], s, k[2], k[3]);
      mma<T>(o[0], s, q[0], q[1]);
      mma<T>(o[1], s, q[2], q[3]);
    }
    u32 values[4];
    Columns::load_values(values, stage.v);
    scale(u, stage.factors.key);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // v - S^T k
      Vec<T, 2> pair;
      pair.word[0] = values[i];
      f32 v[2];
      widen(pair, v);
      for (int e = 0; e < 2; ++e) u[i / 2][i % 2 * 2 + e] = v[e] - u[i / 2][i % 2 * 2 + e];
    }
    u32 left[4], written[4];
    pack_left(left, u);
    f32 w[2][4] = {};  // u of the chunk
    multiply(w, left, stage.inverse);
    pack_left(left, w);
    scale(w, stage.factors.write);
    pack_left(written, w);
#pragma unroll
    for (int i = 0; i < K / 16; ++i) {  // S = kept S + k u^T
      u32 k[4];
      load_matrices_transposed(
          k, shared_address(stage.writes()) + DplrRows<K>::offset(lane % 16, 2 * i + lane / 16));
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        f32(&s)[4] = s_[2 * i + h];
        if constexpr (DECAYS) {
          const float2 kept = stage.kept_of(row(2 * i + h));
          s[0] *= kept.x, s[1] *= kept.y, s[2] *= kept.x, s[3] *= kept.y;
        }
        mma<T>(s, written, k[2 * h], k[2 * h + 1]);
      }
    }
    scale(o, stage.factors.query);
    multiply(o, left, stage.attention);
    done();
    Columns::store_outputs(o, out, stride, count);
  }

 private:
  // Multiplies the results of each token by its factor.
  __device__ static __forceinline__ void scale(f32 (&d)[2][4], const f32 (&factors)[DPLR_TOKENS]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float2 by = *reinterpret_cast<const float2*>(factors + n * 8 + threadIdx.x % 4 * 2);
      d[n][0] *= by.x, d[n][1] *= by.y, d[n][2] *= by.x, d[n][3] *= by.y;
    }
  }
};

}  // namespace kiln
