// The files of `kiln bundle`. Input is a path or stdin; an output file is written completely or not at all.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "base/stream.hpp"

namespace kiln::cli {

class BundleInput {
 public:
  /// "-" means stdin. Throws Error(io), and Error(invalid_argument) when stdin is a terminal.
  explicit BundleInput(const std::string& path);
  /// Reads from the beginning. May be called more than once when `rereadable`. Reading may throw Interrupted.
  base::Read reader() const;
  bool rereadable() const noexcept { return regular_; }
  /// Size in bytes; 0 when it is not known.
  std::uint64_t size() const noexcept { return size_; }
  /// The name in messages: "'FILE'", "stdin".
  const std::string& name() const noexcept { return name_; }

 private:
  base::Fd opened_;
  int fd_ = -1;
  std::string name_;
  bool regular_ = false;
  std::uint64_t size_ = 0;
};

/// An output whose file appears when `commit` is called and never before. A device, a pipe or stdout ("-")
/// receives the bytes directly.
class BundleOutput {
 public:
  /// Throws Error(io); Error(invalid_argument) when stdout is a terminal.
  explicit BundleOutput(const std::string& path);
  ~BundleOutput();
  BundleOutput(const BundleOutput&) = delete;
  BundleOutput& operator=(const BundleOutput&) = delete;
  void write(std::string_view bytes);
  /// Syncs the file and renames it to its path. Throws Error(io).
  void commit();
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// True for a regular file, beside which a signature can lie.
  bool is_file() const noexcept { return !direct_; }

 private:
  [[noreturn]] void fail(const char* what) const;
  std::string path_, temporary_;  // temporary_ is empty while the file has no name
  base::Fd opened_;
  int fd_ = -1;
  bool direct_ = false;
  std::uint64_t bytes_ = 0;
};

}  // namespace kiln::cli
