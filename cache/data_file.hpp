// The file of an environment before LMDB sees it: LMDB trusts what it maps, and its own creation is not
// atomic.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/fd.hpp"

namespace kiln::cache {

/// Creates the missing directories of `path`, 0700. Throws Error(io).
void create_directories(const std::string& path);

/// Makes `path` a complete empty environment: built under a temporary name, synced, and linked into place, so
/// that nobody ever sees half of one. Does nothing when somebody else was faster. Throws Error(io).
void create_data_file(const std::string& path);

/// The same in place of the zero-length file at `path`. REQUIRES: the caller holds the gate's W of that file.
void replace_empty_data_file(const std::string& path);

/// Throws Error(io) unless both meta pages are sane and the file is as long as the newest one says. LMDB
/// would crash on what is refused here (SIGBUS behind the end, wild page numbers); deeper damage it does not
/// show.
void check_data_file(int fd, const std::string& path);

[[noreturn]] void throw_store_error(const std::string& path, const std::string& why,
                                    const std::string& remedy = {});

}  // namespace kiln::cache
