// The device's writer of work lists, compiled for the host: a crew of one thread runs it.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "attention/fixture.hpp"
#include "templates/work_list/writer.cuh"

namespace kiln::attention::test {

/// One thread that does the work of all `blocks` blocks, one after the other.
struct OneThread {
  int block = 0, blocks = 1;
  int* rounds = nullptr;  ///< counts the calls of any()

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
  static void raise(int* word, int v) { *word = std::max(*word, v); }
  static void store(int* to, const AttentionItem& item) { std::memcpy(to, &item, sizeof item); }
};

struct DeviceResult {
  unsigned refusal = FAULT_NONE;
  int rounds = 0;  ///< rounds of cuts, of one block
};

/// Writes a list over the one in `words`, as the device does.
inline DeviceResult write_on_device(std::vector<std::int32_t>& words, const Lengths& lengths, int workers,
                                    int blocks = 3) {
  using Writer = work_list::Writer<OneThread>;
  DeviceResult out;
  for (int block = 0; block < blocks; ++block) {
    work_list::Common common{};
    std::vector<work_list::Measured> requests(static_cast<std::size_t>(lengths.requests) + 1);
    std::vector<work_list::Share> shares(static_cast<std::size_t>(workers) + 1);
    int rounds = 0;
    Writer writer{{{block, blocks, &rounds},
                   common,
                   requests.data(),
                   shares.data(),
                   words.data(),
                   {static_cast<int>(lengths.requests), static_cast<int>(lengths.page_size),
                    lengths.qo_indptr, lengths.kv_indptr, lengths.kv_len, lengths.last_page_len}}};
    out.refusal = writer(workers);
    out.rounds = std::max(out.rounds, rounds - 1);  // the first call is not about cuts
  }
  return out;
}

}  // namespace kiln::attention::test
