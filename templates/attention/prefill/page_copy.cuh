// Copies rows of paged k and v to shared memory, for a block whose threads all take part.
//
// A copy needs the page of each of its rows. PageRows brings the pages of a kv block to shared memory by cp.async, one
// kv block ahead of the copies, so that no thread waits for them.
#pragma once
#include "kiln/block_copy.cuh"
#include "kiln/copy_async.cuh"
#include "kiln/swizzle.cuh"

namespace kiln {

// The places of the rows of two kv blocks of ROWS tokens each. It lies in shared memory.
template <int ROWS>
struct PageRows {
  i32 page[2][ROWS], row[2][ROWS];

  // Begins to look up the rows of the kv block that begins at token `kv`, a multiple of ROWS. Only its first `left` tokens
  // exist. `pages` lists the pages of the request. The block sees the places after copy_async_wait() and a barrier.
  // REQUIRES: the block has at least ROWS threads, and no thread needs the kv block two before this one any more.
  __device__ __forceinline__ void look_up(const i32* pages, i32 page_size, i32 kv, i32 left) {
    const i32 i = threadIdx.x;
    if (i >= min(ROWS, left)) return;
    const i32 nth = (kv + i) / page_size;
    copy_async<1>(&page[kv / ROWS % 2][i], pages + nth);
    row[kv / ROWS % 2][i] = kv + i - nth * page_size;
  }
};

// Begins to copy the kv block that begins at token `kv` to the tile at the address `shared`, as BlockCopy does. `head` is
// the head's row in page 0. Strides count elements.
template <int D, int ROWS, int WARPS, typename T>
__device__ __forceinline__ void copy_pages(u32 shared, const T* head, i64 stride_page, i64 stride,
                                           const PageRows<ROWS>& rows, i32 kv, i32 left) {
  const int line = fresh(threadIdx.x) / 8, chunk = threadIdx.x % 8;
  const u32 to = shared + Swizzled<2 * padded_row(D)>::offset(line, chunk);
#pragma unroll
  for (int r = 0; r < ROWS; r += 4 * WARPS) {
    const bool exists = r + line < left;
    const i32 at = kv / ROWS % 2 * ROWS + r + line;
    const T* from = head + chunk * 8;
    if (exists) from += rows.page[0][at] * stride_page + rows.row[0][at] * stride;
#pragma unroll
    for (int c = 0; c < D; c += 64) {
      if (D - c >= 64 || chunk < (D - c) / 8)
        copy_async_or_zero(to + (r * padded_row(D) + c) * 2, from + c, exists);
    }
  }
}

}  // namespace kiln
