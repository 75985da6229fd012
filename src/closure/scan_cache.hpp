// Remembers files that were scanned for includes, within a process and across processes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/file.hpp"
#include "closure/include_scan.hpp"
#include "kiln/digest.hpp"

namespace kiln::source {

/// Says if a remembered digest of a toolkit header may stand for its content. A memo may only decide a hit.
/// Before a compile the content is read again, so a wrong memo never reaches a record.
enum class Trust { memo, content };

/// Remembers stamp, digest and scan of files. Within a process this covers all settled files; across
/// processes (closure/scan_memo.hpp), settled toolkit headers. Traces of whole scans (closure/trace.hpp) are
/// kept in a second file, whose name ends in ".closures". Thread-safe.
class ScanCache {
 public:
  /// With an empty name, nothing is remembered across processes.
  explicit ScanCache(std::string memo_file = {});
  ~ScanCache();
  struct Scanned {
    base::FileStamp stamp;
    Digest digest;
    std::shared_ptr<const ScanResult> scan;
    bool settled = false;
    bool memoised = false;  ///< digest and scan come from another process
  };
  /// Nothing when the file does not exist or is a directory. Throws Error(source) when it exists but cannot
  /// be read, is a FIFO or device, or is larger than 64 MB.
  std::optional<Scanned> look(const std::string& path, bool toolkit = false, Trust trust = Trust::content);
  bool remembers() const noexcept;
  /// The trace of a scan with this key; null when there is none.
  std::shared_ptr<const std::string> trace(const Digest& key);
  void keep_trace(const Digest& key, std::string trace);
  /// Writes what was learnt about toolkit headers since the last call. A fault is ignored: the
  /// next process scans again.
  void save() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln::source
