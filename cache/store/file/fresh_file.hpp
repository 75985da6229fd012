// A fresh data file is filled under a temporary name and then put in its place, because LMDB's own creation
// of a file is not atomic.
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/file_size_signal.hpp"
#include "base/process.hpp"
#include "cache/lock/gate.hpp"

namespace kiln::cache {

/// A file that is replaced this often during one operation is not usable.
inline constexpr int kReplacedLimit = 100;
inline constexpr const char* kReplacedAgain =
    "the file is replaced again and again; does something clean the directory?";

/// Creates the missing directories of `path`, 0700. Throws Error(io).
void create_directories(const std::string& path);

/// Makes `path` a complete empty environment. It is built under a temporary name, synced, and
/// linked into place, so that no process ever sees half of it. Does nothing when another process
/// was faster. Throws Error(io).
void create_data_file(const std::string& path);

/// An environment under a temporary name beside `path`, to be filled and put in its place. The destructor
/// removes a file that was not put there. A lock on the temporary file says that its owner lives.
class FreshFile {
 public:
  /// Complete and empty. Throws Error(io).
  explicit FreshFile(const std::string& path, std::uint64_t map_bytes = 0);
  FreshFile(const FreshFile&) = delete;
  FreshFile& operator=(const FreshFile&) = delete;
  ~FreshFile();

  /// Tries to make the file longer. Returns 0, or the errno that says why it cannot grow.
  int probe() const noexcept;
  /// The environment, to be filled in unsynced transactions. `replace` and `link_to_path` close it.
  MDB_env* env() const noexcept { return env_; }
  /// Syncs the file and links it to `path`. Returns false when `path` exists. Throws Error(io).
  bool link_to_path();
  /// Syncs the file and renames it over `path`. REQUIRES: the gate's W of the file at `path`
  /// is held. Throws Error(io).
  void replace();

 private:
  void create_locked();
  void sync();
  const base::NoFileSizeSignal no_signal_{};
  const std::string path_;
  std::string name_;
  std::optional<base::ClosedAtFork> fd_;
  std::optional<RangeLock> lock_;
  MDB_env* env_ = nullptr;
};

/// Removes temporary files beside `path` whose owner was killed. REQUIRES: the gate's W of `path` is held,
/// since kiln 0.1 replaced files under W without locking them.
void remove_leftovers(const std::string& path) noexcept;

/// Where a damaged file is set aside for people to look at; the next one replaces it.
std::string damaged_name(const std::string& path);

/// Makes a rename or link of `path` survive a power loss, as far as possible. Reports no error.
void sync_directory_of(const std::string& path);

[[noreturn]] void throw_store_error(const std::string& path, const std::string& why,
                                    const std::string& remedy = {});

}  // namespace kiln::cache
