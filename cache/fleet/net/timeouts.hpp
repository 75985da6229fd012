// How long one exchange with a server may take.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/deadline.hpp"

namespace kiln::fleet {

struct Timeouts {
  base::Clock::duration connect =
      std::chrono::milliseconds(100);  ///< until a server can be asked, with TLS and AUTH
  base::Clock::duration read = std::chrono::milliseconds(150);  ///< for one exchange, and in addition
  std::uint64_t bytes_per_second = 20'000'000;                  ///< for bytes sent, and for values announced
};

}  // namespace kiln::fleet
