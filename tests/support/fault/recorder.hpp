// Writes the log of a recorded run. No C++ library, as everything here.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "record.hpp"

namespace kiln::fault {

bool recording() noexcept;
/// `written` bytes of the buffers went to `offset` of the file; `failed`: but the caller is told otherwise.
void record_write(int fd, const iovec* buffers, int count, std::int64_t offset, std::size_t written,
                  bool failed) noexcept;
void record_of(Kind kind, int fd, std::uint64_t offset = 0) noexcept;
/// With the second path after the first.
void record_names(Kind kind, const char* path, const char* second = nullptr) noexcept;
void record_created(int fd) noexcept;

}  // namespace kiln::fault
