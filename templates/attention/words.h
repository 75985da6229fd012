// The words of an attention work list. Two sides compile this header: the host writes the list, and the
// device reads it. A list is an array of 4-byte words:
//
//   AttentionHeader    at 0. Launches change only its ticks.
//   table              at HEADER: where the items of each worker begin, and where the last worker's end.
//                      workers + 1 words, padded to whole 16 bytes.
//   counters           as many words as the table. Counter i counts the parts that have arrived of the tile
//                      whose first slot is 2 i or 2 i + 1. All are 0 before and after a launch.
//   first items        one AttentionItem for each worker, a copy of its first item. A block thus loads the
//                      item beside the table and not after it. Undefined for a worker without items.
//   items              AttentionItem, in the order of the workers.
//   requests           AttentionRequest, at header.requests_at.
//
// The first five parts begin at offsets that depend on the number of workers alone. The header says where the
// requests begin. A captured graph therefore finds the next list in the same buffer.
#pragma once

#ifdef __CUDACC__
#define KILN_HOST_DEVICE __host__ __device__
#else
#define KILN_HOST_DEVICE
#endif

namespace kiln {

struct AttentionHeader {
  int made_for;      // attention_made_for() of the kernel
  int workers;       // blocks of the grid; the last of them may have no items
  int kv_heads;      // kv heads of every request
  int window_left;   // -1: no window
  int requests;      // requests of this batch
  int tokens;        // query tokens of all requests
  int window_right;  // -1: no right end, also with causal
  int slots;         // slots of the workspace that are used, below 2 * workers
  int requests_at;   // word at which the requests begin
  int busy;          // workers that have kv tokens; of an item with several tiles, only the first tile counts
  int ticks;         // counted up by launches (decode/pace.cuh); may begin at any number
  int shape[3];  // the kernel's shape (work_list/shape.h); all 0: the device must not write the list again
  int max_requests, max_tokens;  // limits of the buffer, for the device that writes it again; else 0
};

// The lengths of one request.
struct AttentionRequest {
  int qo_begin, qo_len;  // its query tokens are [qo_begin, qo_begin + qo_len)
  int kv_base;           // the caller's kv_indptr: a token of ragged k and v, or an entry of the page table
  int kv_len;            // its kv tokens
};

// A tile, a part of a tile, or several consecutive whole tiles of one request and kv head.
//
// A tile has the packed rows [first_row, min(first_row + TILE_ROWS, qo_len * GROUP)) and the kv tokens
// [kv_begin, kv_end) of its request.
// - kv_begin is a multiple of TILE_KV. So is kv_end, unless it is one past the last token that a row of the
//   tile sees.
// - Every kv token that causal and window leave to a row of the tile is in the range. A custom mask removes
//   no token from it.
// - A whole tile may have no kv tokens (kv_begin == kv_end): the kernel writes 0 and -infinity. A part always
//   has kv tokens.
struct AttentionItem {
  int request, kv_head, first_row;
  int qo_begin, qo_len;  // as in AttentionRequest
  int kv_len, kv_base;   // as in AttentionRequest
  int kv_begin, kv_end;  // of the first tile, if the item has several
  int first_slot;        // split tile: the slot of its part 0; otherwise minus the number of tiles
  int part, parts;       // number of this part, and of all parts; parts == 1: the tile is whole

  KILN_HOST_DEVICE constexpr bool whole() const { return parts == 1; }
  KILN_HOST_DEVICE constexpr int slot() const { return first_slot + part; }
  KILN_HOST_DEVICE constexpr int tiles() const { return whole() ? -first_slot : 1; }
};

// The offsets of the parts of a list. table(), counters_at() and first_items_at() count words; N is a signed
// integer that holds the result. counters() and first_items() return pointers into a list. Kernels use the
// pointers: with 32-bit offsets in between, the widest decode kernel would spill registers.
struct AttentionWords {
  enum : int { HEADER = 16, ITEM = 12, REQUEST = 4 };  // sizes in words; an enum takes no memory in an image

  template <typename N>
  KILN_HOST_DEVICE static constexpr N table(N workers) {
    return (workers + 1 + 3) / 4 * 4;
  }
  template <typename N>
  KILN_HOST_DEVICE static constexpr N counters_at(N workers) {
    return HEADER + table(workers);
  }
  template <typename N>
  KILN_HOST_DEVICE static constexpr N first_items_at(N workers) {
    return HEADER + 2 * table(workers);
  }
  template <typename Word, typename N>
  KILN_HOST_DEVICE static constexpr Word* counters(Word* list, N workers) {
    return list + HEADER + table(workers);
  }
  template <typename Word, typename N>
  KILN_HOST_DEVICE static constexpr Word* first_items(Word* list, N workers) {
    return list + HEADER + 2 * table(workers);
  }
};

static_assert(sizeof(AttentionHeader) == 4 * AttentionWords::HEADER, "a header is whole words");
static_assert(sizeof(AttentionItem) == 4 * AttentionWords::ITEM, "an item is whole words");
static_assert(sizeof(AttentionRequest) == 4 * AttentionWords::REQUEST, "a request is whole words");

// The part of made_for that says where windows end on the right. It is 0 without such an end, and another number for
// each window_right.
KILN_HOST_DEVICE constexpr unsigned attention_right_window(int window_right) {
  return (static_cast<unsigned>(window_right) + 1) * 0x9e3779b1u;
}

// Mixes the properties that a kernel fixes into one word, and the right end of windows. A list suits only launches that have
// its word. Causal is a right window of 0 that the kernel fixes, so window_right is -1 there.
KILN_HOST_DEVICE constexpr unsigned attention_made_for(unsigned tile_rows, unsigned tile_kv, unsigned group,
                                                       bool causal, bool tiles_together = false,
                                                       int window_right = -1) {
  const unsigned word = (((tile_rows * 65599 + tile_kv) * 65599 + group) * 2 + (causal ? 1 : 0)) ^ 0x4b415450;
  return (tiles_together ? ~word : word) ^ attention_right_window(window_right);
}

}  // namespace kiln

#undef KILN_HOST_DEVICE
