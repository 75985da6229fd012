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
  /// Null, and `why`: no OpenSSL, or a file that is not usable.
  std::shared_ptr<const TlsContext> context(std::string& why);
  /// A handshake failed: certificates are replaced while programs run.
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
