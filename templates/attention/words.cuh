// What the words of a plan are (attention_plan.cuh). Plain arithmetic, which tests compile for the host, too.
#pragma once
#include "attention/visible.cuh"
#include "kiln/types.cuh"

namespace kiln {

struct AttentionHeader {
  i32 made_for;  // what the kernel fixes, in a word: attention_made_for()
  i32 workers;   // of the limits; those behind the last item have none
  i32 kv_heads;
  i32 window_left;  // -1: none
  i32 requests;     // of this plan
  i32 tokens;       // of q, of all requests
  i32 items;
  i32 slots;        // used, below 2 * workers
  i32 requests_at;  // word of the first request
  i32 busy;   // workers that have kv tokens; of tiles that are together, only the first one is looked at
  i32 ticks;  // counted up by launches (decode_pace.cuh), from anything
  i32 reserved[5];
};

__host__ __device__ constexpr u32 attention_made_for(u32 tile_rows, u32 tile_kv, u32 group, bool causal,
                                                     bool tiles_together = false) {
  const u32 word = (((tile_rows * 65599 + tile_kv) * 65599 + group) * 2 + (causal ? 1 : 0)) ^ 0x4b415450;
  return tiles_together ? ~word : word;
}

// Lengths of a request. kv_base is what the caller's kv_indptr says: a token of ragged k and v, or an entry of a page table.
struct AttentionRequest {
  i32 qo_begin, qo_len, kv_base, kv_len;
};

// A tile or a part of one. Rows [first_row, min(first_row + TILE_ROWS, qo_len * GROUP)) with the kv tokens [kv_begin, kv_end) of the request:
// kv_begin is a multiple of TILE_KV; so is kv_end, or it is one past the last token that a row of the tile sees, at most kv_len. Every kv token that
// causal and window leave to a row of the tile is there; a custom mask leaves out none. A whole tile may have no kv at all (kv_begin == kv_end:
// write 0 and -inf), a part always has some. Of several whole tiles behind each other, where the manifest wants tiles together, it is the first one.
struct AttentionItem {
  i32 request, kv_head, first_row;
  i32 qo_begin, qo_len;  // the request's tokens of q are [qo_begin, qo_begin + qo_len)
  i32 kv_len, kv_base;   // see AttentionRequest
  i32 kv_begin, kv_end;
  i32 first_slot, part, parts;  // of the tile; parts 1: whole, and first_slot is -tiles()

  __device__ __forceinline__ bool whole() const { return parts == 1; }
  __device__ __forceinline__ i32 slot() const { return first_slot + part; }
  __device__ __forceinline__ i32 tiles() const { return whole() ? -first_slot : 1; }

  // Goes on to the next of the item's tiles, which the caller counts. All as the manifest's [plan] has it.
  template <bool CAUSAL, bool WINDOW>
  __device__ __forceinline__ void next_tile(i32 tile_rows, i32 tile_kv, i32 group, i32 window_left) {
    first_row += tile_rows;
    const auto sees = [&](i32 row) {
      return visible<CAUSAL, WINDOW>(min(row / group, qo_len - 1), qo_len, kv_len, window_left);
    };
    kv_begin = max(sees(first_row).first, 0);
    kv_end = min(sees(first_row + tile_rows - 1).last + 1, kv_len);
    if (kv_begin >= kv_end) kv_begin = kv_end = 0;
    kv_begin = kv_begin / tile_kv * tile_kv;
  }
};

}  // namespace kiln
