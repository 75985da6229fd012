// The one loop in which readers and writers enter the gate of a store's file.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include "cache/store/file/fresh_file.hpp"
#include "cache/store/file/store_file.hpp"

namespace kiln::cache {

/// The beginning of `why` when the file cannot be opened, and all of it when the gate could not be entered.
struct EnterTexts {
  const char* cannot_open;
  const char* not_in_time;
};

/// Leases a descriptor and calls `lock(fd)`, until the locked file is the one that the path names. `inside`
/// then receives the descriptor and the lock. `lock` returns an optional, which is empty when its deadline
/// passed. Whatever throws, the lock goes before the descriptor returns to its pool.
template <class Lock, class Inside>
Entered enter_gate(const StoreFile& file, FdPool& pool, const EnterTexts& texts, const Lock& lock,
                   const Inside& inside, std::string& why) {
  for (int attempt = 0; attempt < kReplacedLimit; ++attempt) {
    FdPool::Lease fd = pool.lease();
    if (!fd) {
      const int error = errno;
      why = std::string(texts.cannot_open) + ": " + std::strerror(error);
      return error == ENOENT ? Entered::absent : Entered::failed;
    }
    auto held = lock(fd.get());
    if (!held) {
      why = texts.not_in_time;
      return Entered::gate_timeout;
    }
    const FileState state = state_of(fd.get(), file.path);
    if (state == FileState::foreign) {
      why = kForeignFile;
      return Entered::failed;
    }
    if (state == FileState::current) {
      inside(std::move(fd), std::move(*held));
      return Entered::yes;
    }
    held.reset();
    fd.discard();
  }
  why = kReplacedAgain;
  return Entered::failed;
}

}  // namespace kiln::cache
