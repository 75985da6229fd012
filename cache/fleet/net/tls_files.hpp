// The certificates in use, read again when they may have changed.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/process.hpp"
#include "cache/fleet/net/tls.hpp"

namespace kiln::fleet {

/// Thread-safe. A forked child reads the files itself.
class TlsFilesInUse {
 public:
  explicit TlsFilesInUse(TlsFiles files) : files_(std::move(files)) {}
  /// Returns null when there is no OpenSSL or a file is not usable; `why` then says so.
  std::shared_ptr<const TlsContext> context(std::string& why);
  /// Makes the next call read the files again. Called when a handshake failed, since certificates are
  /// replaced while programs run.
  void forget();

 private:
  struct State {
    std::mutex mutex;  // guards what follows
    std::shared_ptr<const TlsContext> context;
  };
  const TlsFiles files_;
  base::PerProcess<State> state_;
};

}  // namespace kiln::fleet
