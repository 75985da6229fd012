// Writes the log of a recorded run. Uses no C++ library, because the
// library is preloaded into other programs.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "record.hpp"

namespace kiln::fault {

bool recording() noexcept;
/// `written` bytes of the buffers went to `offset` of the file. `failed`:
/// the caller is told that the write failed.
void record_write(int fd, const iovec* buffers, int count, std::int64_t offset, std::size_t written,
                  bool failed) noexcept;
void record_of(Kind kind, int fd, std::uint64_t offset = 0) noexcept;
/// Logs `path`, and `second` after it when it is not null.
void record_names(Kind kind, const char* path, const char* second = nullptr) noexcept;
void record_created(int fd) noexcept;

}  // namespace kiln::fault
