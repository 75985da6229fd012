// The device's writer of work lists, compiled for the host: a crew of one thread runs it.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "attention/fixture.hpp"
#include "templates/work_list/one_tile.cuh"
#include "templates/work_list/writer.cuh"

namespace kiln::attention::test {

/// One thread that does the work of all `blocks` blocks, one after the other.
struct OneThread {
  int block = 0, blocks = 1;
  int* rounds = nullptr;  ///< counts the calls of any()
  std::function<void()> at_wait = [] {};

  template <class F>
  void each(int n, F&& f) const {
    for (int i = 0; i < n; ++i) f(i);
  }
  /// Runs from the last to the first, as threads may, so that no element sees what one before it wrote.
  template <class F>
  bool any(int n, F&& f) const {
    bool out = false;
    for (int i = n; i-- > 0;) out = f(i) || out;
    ++*rounds;
    return out;
  }
  template <class F>
  void few(int n, F&& f) const {
    for (int i = 0; i < n; ++i) f(i);
  }
  int first() const { return block; }
  template <class F>
  void spread(int n, F&& f) const {
    for (int i = block; i < n; i += blocks) f(i);
  }
  template <class Sum, class Value, class Put>
  Sum scan(int n, Value&& value, Put&& put) const {
    Sum sum{};
    for (int i = 0; i < n; ++i) {
      const Sum next = sum + value(i);
      put(i, sum);
      sum = next;
    }
    return sum;
  }
  template <class Flags, class Put>
  work_list::FlagCounts count(int n, Flags&& flags, Put&& put) const {
    work_list::FlagCounts counts{};
    for (int i = 0; i < n; ++i) {
      const unsigned set = flags(i);
      put(i, counts, set);
      counts = counts + work_list::FlagCounts{(set & 1) | (set & 2) << 15, set >> 2};
    }
    return counts;
  }
  void wait() const { at_wait(); }
  static void mark(int& word) { word = 1; }
  static void raise(int* word, int v) { *word = std::max(*word, v); }
  static void store(int* to, const AttentionItem& item) { std::memcpy(to, &item, sizeof item); }
};

struct DeviceResult {
  unsigned refusal = FAULT_NONE;
  bool one_tile = false;  ///< the writer for batches of one tile wrote the list
  int rounds = 0;         ///< rounds of cuts, of one block
};

/// Writes a list over the one in `words`, as the device does. `any_writer`: also the one for batches of one tile.
/// The first `late` blocks find another word in the header until the kernels before this one have ended.
inline DeviceResult write_on_device(std::vector<std::int32_t>& words, const Lengths& lengths, int workers,
                                    int blocks = 3, bool any_writer = true, int late = 0) {
  using Writer = work_list::Writer<OneThread>;
  DeviceResult out;
  for (int block = 0; block < blocks; ++block) {
    work_list::Common common{};
    std::vector<AttentionRequest> requests(static_cast<std::size_t>(lengths.requests));
    std::vector<work_list::Place> places(requests.size() + 1);
    std::vector<work_list::OneTile> tiles(requests.size());
    std::vector<work_list::Share> shares(static_cast<std::size_t>(workers) + 1);
    std::vector<work_list::OneTileShare> one_tile_shares(shares.size());
    int rounds = 0;
    OneThread crew{block, blocks, &rounds};
    if (block < late) {
      constexpr int changed[] = {1, 2, 6, 11, 14};  // workers, kv_heads, window_right, shape, max_requests
      std::int32_t& word = words[static_cast<std::size_t>(changed[(block + late) % 5])];
      crew.at_wait = [&word, right = word] { word = right; };
      word ^= 1;
    }
    const work_list::DeviceLengths given{static_cast<int>(lengths.requests),
                                         static_cast<int>(lengths.page_size),
                                         lengths.qo_indptr,
                                         lengths.kv_indptr,
                                         lengths.kv_len,
                                         lengths.last_page_len};
    Writer writer{{crew, common, requests.data(), places.data(), shares.data(), words.data(), given}};
    work_list::OneTileWriter<OneThread> one_tile{
        crew, common, requests.data(), tiles.data(), one_tile_shares.data(), words.data(), given, {}, {}, {}};
    one_tile.load(writer, workers);
    out.one_tile = any_writer && one_tile();
    if (!out.one_tile) out.refusal = writer();
    out.rounds = std::max(out.rounds, rounds);
  }
  return out;
}

}  // namespace kiln::attention::test
