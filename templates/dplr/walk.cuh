// DplrWalk takes some columns of a state of RWKV7's recurrence from chunk to chunk, and computes the outputs. The right operands
// of its products are as DplrPreparation left them in shared memory.
#pragma once
#include "dplr/columns.cuh"

namespace kiln {

template <typename T, int K>
class DplrWalk : public StateColumns<T, K> {
  using Columns = StateColumns<T, K>;
  using Columns::multiply;
  using Columns::pack_left;
  using Columns::row;
  using Columns::s_;

 public:
  // Takes the state over a chunk, and calls done() once no lane needs the stage. Then stores the outputs of the first
  // `count` tokens. `out` is the first of DPLR_COLUMNS outputs of the first token, and tokens are `stride` elements apart.
  template <typename W, typename Done>
  __device__ __forceinline__ void step(const DplrStage<T, W, K>& stage, T* out, i64 stride, int count,
                                       Done done) {
    const int lane = threadIdx.x % 32;
    f32 u[2][4] = {}, o[2][4] = {};
    u32 v[4];
    Columns::load_values(v, stage.v);
    multiply(u, v, stage.a_k);
#pragma unroll
    for (int i = 0; i < K / 16; ++i) {  // S^T a and S^T r
      u32 s[4], a[4], r[4];
      Columns::pack_state(s, i);
      const u32 at = DplrRows<K>::offset(lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2);
      load_matrices(a, shared_address(stage.a) + at);
      load_matrices(r, shared_address(stage.r) + at);
      mma<T>(u[0], s, a[0], a[1]);
      mma<T>(u[1], s, a[2], a[3]);
      mma<T>(o[0], s, r[0], r[1]);
      mma<T>(o[1], s, r[2], r[3]);
    }
    u32 left[4];
    pack_left(left, u);
    f32 w[2][4] = {};  // u of the chunk
    multiply(w, left, stage.inverse);
    pack_left(left, w);
#pragma unroll
    for (int i = 0; i < K / 16; ++i) {  // S = kept S + b u^T + k v^T
      const u32 at = DplrRows<K>::offset(lane % 16, 2 * i + lane / 16);
      u32 b[4], k[4];
      load_matrices_transposed(b, shared_address(stage.b) + at);
      load_matrices_transposed(k, shared_address(stage.k) + at);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        f32(&s)[4] = s_[2 * i + h];
        const float2 kept = *reinterpret_cast<const float2*>(stage.kept + row(2 * i + h));
        s[0] *= kept.x, s[1] *= kept.y, s[2] *= kept.x, s[3] *= kept.y;
        mma<T>(s, v, k[2 * h], k[2 * h + 1]);
        mma<T>(s, left, b[2 * h], b[2 * h + 1]);
      }
    }
    multiply(o, v, stage.r_k);
    multiply(o, left, stage.r_b);
    done();
    Columns::store_outputs(o, out, stride, count);
  }
};

}  // namespace kiln
