// A forked child cannot use the driver after cuInit: a loaded kernel belongs to the process that loaded it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/process.hpp"
#include "kiln/error.hpp"
#include "toolchain/driver.hpp"

namespace kiln::runtime {

class ProcessGuard {
 public:
  /// Throws in any process but the one that made the guard. Otherwise it costs one memory load.
  void check(const std::string& name) const {
    if (word_.load(std::memory_order_relaxed) != process_) [[unlikely]]
      fail(name);
  }

 private:
  [[noreturn]] static void fail(const std::string& name);

  const std::atomic<std::uint64_t>& word_ = base::process_word();
  const std::uint64_t process_ = base::process_generation();
};

}  // namespace kiln::runtime
