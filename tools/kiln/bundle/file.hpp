// The files of `kiln bundle`: read from a path or stdin, written whole or not at all.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "base/stream.hpp"

namespace kiln::cli {

/// Ctrl-C came while waiting for bytes.
struct Interrupted {};

class BundleInput {
 public:
  /// "-": stdin. Throws Error(io), Error(invalid_argument) for a terminal.
  explicit BundleInput(const std::string& path);
  /// From the beginning. A file that can be read again may be asked more than once. May throw Interrupted.
  base::Read reader() const;
  bool rereadable() const noexcept { return regular_; }
  /// Bytes; 0 when not known.
  std::uint64_t size() const noexcept { return size_; }
  /// How it is called in messages: "'FILE'", "stdin".
  const std::string& name() const noexcept { return name_; }

 private:
  base::Fd opened_;
  int fd_ = -1;
  std::string name_;
  bool regular_ = false;
  std::uint64_t size_ = 0;
};

/// Takes the place of a file when `commit` is called and never before; a device, pipe or stdout ("-") is
/// written as it comes.
class BundleOutput {
 public:
  /// Throws Error(io); Error(invalid_argument) when stdout is a terminal.
  explicit BundleOutput(const std::string& path);
  ~BundleOutput();
  BundleOutput(const BundleOutput&) = delete;
  BundleOutput& operator=(const BundleOutput&) = delete;
  void write(std::string_view bytes);
  /// Synced, then renamed. Throws Error(io).
  void commit();
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// A file took its place, so that something can lie beside it.
  bool is_file() const noexcept { return !direct_; }

 private:
  [[noreturn]] void fail(const char* what) const;
  std::string path_, temporary_;  // temporary_: empty while the file has no name
  base::Fd opened_;
  int fd_ = -1;
  bool direct_ = false;
  std::uint64_t bytes_ = 0;
};

}  // namespace kiln::cli
