// How long one exchange with a server may take.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/deadline.hpp"

namespace kiln::fleet {

struct Timeouts {
  base::Clock::duration connect =
      std::chrono::milliseconds(100);  ///< until a server can be asked: TLS, AUTH too
  base::Clock::duration read = std::chrono::milliseconds(150);  ///< of one exchange, and in addition
  std::uint64_t bytes_per_second = 100'000'000;  ///< for what is sent and for values that were announced
};

}  // namespace kiln::fleet
