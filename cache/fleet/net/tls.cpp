#include "cache/fleet/net/tls.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "cache/fleet/net/openssl.hpp"

namespace kiln::fleet {
namespace {

constexpr unsigned kNoPartialWildcards = X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS;

/// Keys under a password are refused: OpenSSL would ask on the terminal.
int no_password(char*, int, int, void*) { return 0; }

std::string reason(const OpenSsl& library) {
  const unsigned long error = library.ERR_get_error();
  const char* text = error != 0 ? library.ERR_reason_error_string(error) : nullptr;
  library.ERR_clear_error();
  return text ? text : "no reason given";
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

std::shared_ptr<const TlsContext> TlsContext::make(const TlsFiles& files, std::string& why) {
  const OpenSsl* const library = open_openssl(why);
  if (!library) return nullptr;
  const OpenSsl& ssl = *library;
  ssl.ERR_clear_error();
  SSL_CTX* const raw = ssl.SSL_CTX_new(ssl.TLS_client_method());
  if (!raw) {
    why = "TLS: " + reason(ssl);
    return nullptr;
  }
  std::shared_ptr<const TlsContext> context(new TlsContext(ssl, raw));
  ssl.SSL_CTX_ctrl(raw, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
  ssl.SSL_CTX_ctrl(raw, SSL_CTRL_MODE, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER,
                   nullptr);
  ssl.SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  ssl.SSL_CTX_set_default_passwd_cb(raw, no_password);
  const auto usable = [&](bool fine, const std::string& what) {
    if (!fine) why = what + " is not usable: " + reason(ssl);
    return fine;
  };
  if (files.ca.empty()) {
    if (!usable(ssl.SSL_CTX_set_default_verify_paths(raw) == 1, "the system's store of authorities"))
      return nullptr;
  } else {
    const int result = is_directory(files.ca) ? ssl.SSL_CTX_load_verify_dir(raw, files.ca.c_str())
                                              : ssl.SSL_CTX_load_verify_file(raw, files.ca.c_str());
    if (!usable(result == 1, "ca=" + files.ca)) return nullptr;
  }
  if (!files.cert.empty()) {
    if (!usable(ssl.SSL_CTX_use_certificate_chain_file(raw, files.cert.c_str()) == 1, "cert=" + files.cert))
      return nullptr;
    const bool fits = ssl.SSL_CTX_use_PrivateKey_file(raw, files.key.c_str(), SSL_FILETYPE_PEM) == 1 &&
                      ssl.SSL_CTX_check_private_key(raw) == 1;
    if (!usable(fits, "key=" + files.key)) return nullptr;
  }
  return context;
}

TlsContext::~TlsContext() { library_.SSL_CTX_free(context_); }

std::unique_ptr<TlsSession> TlsSession::make(std::shared_ptr<const TlsContext> context,
                                             const std::string& host) {
  const OpenSsl& ssl = context->library_;
  ssl.ERR_clear_error();
  SSL* const raw = ssl.SSL_new(context->context_);
  if (!raw) return nullptr;
  std::unique_ptr<TlsSession> session(new TlsSession(std::move(context), raw));
  BIO* const in = ssl.BIO_new(ssl.BIO_s_mem());
  BIO* const out = ssl.BIO_new(ssl.BIO_s_mem());
  if (!in || !out) {
    ssl.BIO_free(in);
    ssl.BIO_free(out);
    return nullptr;
  }
  ssl.SSL_set_bio(raw, in, out);  // owns them from here on
  session->in_ = in;
  session->out_ = out;
  ssl.SSL_set_connect_state(raw);
  bool set = false;
  if (Address::numeric(host, 0)) {
    const std::string without_scope = host.substr(0, host.find('%'));
    set = ssl.X509_VERIFY_PARAM_set1_ip_asc(ssl.SSL_get0_param(raw), without_scope.c_str()) == 1;
  } else {
    ssl.SSL_set_hostflags(raw, kNoPartialWildcards);
    std::string name = host;
    set = ssl.SSL_set1_host(raw, name.c_str()) == 1 &&
          ssl.SSL_ctrl(raw, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data()) == 1;
  }
  // Without the name, anybody's certificate would do.
  return set ? std::move(session) : nullptr;
}

TlsSession::~TlsSession() { context_->library_.SSL_free(session_); }

Io TlsSession::handshake() {
  context_->library_.ERR_clear_error();
  const int result = context_->library_.SSL_do_handshake(session_);
  return result == 1 ? Io::done : ended(result);
}

Io TlsSession::write(std::string_view plain, std::size_t& moved) {
  context_->library_.ERR_clear_error();
  const int result = context_->library_.SSL_write_ex(session_, plain.data(), plain.size(), &moved);
  return result == 1 ? Io::done : ended(result);
}

Io TlsSession::read(char* into, std::size_t size, std::size_t& moved) {
  context_->library_.ERR_clear_error();
  const int result = context_->library_.SSL_read_ex(session_, into, size, &moved);
  return result == 1 ? Io::done : ended(result);
}

Io TlsSession::ended(int result) {
  const OpenSsl& ssl = context_->library_;
  switch (ssl.SSL_get_error(session_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return Io::again;
    case SSL_ERROR_ZERO_RETURN:
      return Io::closed;
    default:
      break;
  }
  why_ = reason(ssl);
  if (const long verdict = ssl.SSL_get_verify_result(session_); verdict != X509_V_OK)
    why_ = std::string("the server's certificate: ") + ssl.X509_verify_cert_error_string(verdict);
  return Io::failed;
}

void TlsSession::give(std::string_view secret) {
  context_->library_.BIO_write(in_, secret.data(), static_cast<int>(secret.size()));
}

void TlsSession::take(std::string& secret) {
  char buffer[16 << 10];
  for (;;) {
    const int got = context_->library_.BIO_read(out_, buffer, sizeof buffer);
    if (got <= 0) return;
    secret.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace kiln::fleet
