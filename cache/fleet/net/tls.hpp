// TLS between two buffers of bytes, by OpenSSL 3. It has no socket, so it raises no SIGPIPE and never blocks.
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

/// PEM files. Empty names mean the system's authorities, and no client certificate. `ca` may be
/// a directory of hashes.
struct TlsFiles {
  std::string ca, cert, key;
};

/// The certificates, and what is accepted: TLS 1.2 or later, and a server's certificate that one of our
/// authorities has signed. Thread-safe once made.
class TlsContext {
 public:
  /// Opens OpenSSL and reads the files. Returns null when there is no OpenSSL or a file is not usable;
  /// `why` then says so.
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

/// The TLS session of one connection. Not thread-safe.
class TlsSession {
 public:
  /// The server must show a certificate of `host`, a name or an IP address. Returns null when the
  /// session cannot be made.
  static std::unique_ptr<TlsSession> make(std::shared_ptr<const TlsContext> context, const std::string& host);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  ~TlsSession();

  /// `again`: send what take() gives, give() what comes, and call again.
  Io handshake();
  Io write(std::string_view plain, std::size_t& moved);
  Io read(char* into, std::size_t size, std::size_t& moved);

  /// Takes bytes that came from the network.
  void give(std::string_view secret);
  /// Appends the bytes that must go to the network.
  void take(std::string& secret);
  /// The reason of the last failure, for people: "certificate has expired".
  const std::string& why() const noexcept { return why_; }

 private:
  TlsSession(std::shared_ptr<const TlsContext> context, ssl_st* session) noexcept
      : context_(std::move(context)), session_(session) {}
  Io ended(int result);

  const std::shared_ptr<const TlsContext> context_;
  ssl_st* const session_;
  bio_st *in_ = nullptr, *out_ = nullptr;  // owned by the session
  std::string why_;
};

}  // namespace kiln::fleet
