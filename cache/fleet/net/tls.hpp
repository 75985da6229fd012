// TLS between two heaps of bytes: no socket, so no SIGPIPE and no blocking. OpenSSL 3 behind it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "cache/fleet/net/socket.hpp"

struct ssl_st;
struct ssl_ctx_st;
struct bio_st;

namespace kiln::fleet {

struct OpenSsl;

/// Files of PEM; empty: the system's authorities, no client certificate. `ca` may be a directory of hashes.
struct TlsFiles {
  std::string ca, cert, key;
};

/// Certificates and what is accepted: TLS 1.2 or later, a server's certificate that an authority of ours has
/// signed. Thread-safe once made.
class TlsContext {
 public:
  /// Opens OpenSSL and reads the files. Null, and `why`, when there is none or a file is not usable.
  static std::shared_ptr<const TlsContext> make(const TlsFiles& files, std::string& why);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext();

 private:
  friend class TlsSession;
  TlsContext(const OpenSsl& library, ssl_ctx_st* context) noexcept : library_(library), context_(context) {}
  const OpenSsl& library_;
  ssl_ctx_st* const context_;
};

/// One connection's. Not thread-safe.
class TlsSession {
 public:
  /// The server must show a certificate of `host`, a name or an IP address. Null without memory.
  static std::unique_ptr<TlsSession> make(std::shared_ptr<const TlsContext> context, const std::string& host);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  ~TlsSession();

  /// `again`: send what take() gives, give() what comes, and call again.
  Io handshake();
  Io write(std::string_view plain, std::size_t& moved);
  Io read(char* into, std::size_t size, std::size_t& moved);

  /// Bytes from the network.
  void give(std::string_view secret);
  /// Bytes for the network, appended.
  void take(std::string& secret);
  /// What failed, for people: "certificate has expired".
  const std::string& why() const noexcept { return why_; }

 private:
  TlsSession(std::shared_ptr<const TlsContext> context, ssl_st* session) noexcept
      : context_(std::move(context)), session_(session) {}
  Io ended(int result);

  const std::shared_ptr<const TlsContext> context_;
  ssl_st* const session_;
  bio_st *in_ = nullptr, *out_ = nullptr;  // the session's
  std::string why_;
};

}  // namespace kiln::fleet
