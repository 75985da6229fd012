// The tiles of one request and kv head, and the tables that make the sums over them fast.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/sizes.hpp"
#include "templates/work_list/tiles.h"

namespace kiln::attention {

using work_list::KvRange;
using work_list::Tiles;
using work_list::Windows;

/// A slope with its tables.
class Slope : public work_list::Slope {
 public:
  /// `tables`: many sums will follow, so tables are made for them.
  Slope(const KernelShape& shape, bool tables) : work_list::Slope(shape) {
    if (!tables || run > MOST_IN_TABLE) return;
    starts_.resize(static_cast<std::size_t>(run));
    sums_.reserve(static_cast<std::size_t>(run) + 1);
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < run; sum += rise * i++ / run) {
      starts_[static_cast<std::size_t>(rise * i % run)] = static_cast<int>(i);
      sums_.push_back(sum);
    }
    sums_.push_back(sum);
    starts = starts_.data(), sums = sums_.data();
  }
  Slope(const Slope&) = delete;  // the base points into the tables
  Slope& operator=(const Slope&) = delete;

 private:
  std::vector<int> starts_;
  std::vector<std::int64_t> sums_;
};

}  // namespace kiln::attention
