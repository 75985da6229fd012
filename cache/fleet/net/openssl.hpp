// OpenSSL 3 by dlopen, so that only processes that use rediss:// pay for it. In a static build the same table
// is filled from the linked archives.
#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <string>

/// X(name): functions of libssl, then of libcrypto.
#define KILN_SSL_ENTRIES(X)             \
  X(OPENSSL_init_ssl)                   \
  X(TLS_client_method)                  \
  X(SSL_CTX_new)                        \
  X(SSL_CTX_free)                       \
  X(SSL_CTX_ctrl)                       \
  X(SSL_CTX_set_verify)                 \
  X(SSL_CTX_set_default_passwd_cb)      \
  X(SSL_CTX_load_verify_file)           \
  X(SSL_CTX_load_verify_dir)            \
  X(SSL_CTX_set_default_verify_paths)   \
  X(SSL_CTX_use_certificate_chain_file) \
  X(SSL_CTX_use_PrivateKey_file)        \
  X(SSL_CTX_check_private_key)          \
  X(SSL_new)                            \
  X(SSL_free)                           \
  X(SSL_ctrl)                           \
  X(SSL_set_bio)                        \
  X(SSL_set_connect_state)              \
  X(SSL_set1_host)                      \
  X(SSL_set_hostflags)                  \
  X(SSL_get0_param)                     \
  X(SSL_do_handshake)                   \
  X(SSL_read_ex)                        \
  X(SSL_write_ex)                       \
  X(SSL_get_error)                      \
  X(SSL_get_verify_result)
#define KILN_CRYPTO_ENTRIES(X)     \
  X(BIO_new)                       \
  X(BIO_free)                      \
  X(BIO_s_mem)                     \
  X(BIO_read)                      \
  X(BIO_write)                     \
  X(BIO_ctrl)                      \
  X(ERR_get_error)                 \
  X(ERR_clear_error)               \
  X(ERR_reason_error_string)       \
  X(X509_VERIFY_PARAM_set1_ip_asc) \
  X(X509_verify_cert_error_string)

namespace kiln::fleet {

/// The functions of OpenSSL that TLS calls.
struct OpenSsl {
  decltype(&::OPENSSL_init_ssl) OPENSSL_init_ssl;
  decltype(&::TLS_client_method) TLS_client_method;
  decltype(&::SSL_CTX_new) SSL_CTX_new;
  decltype(&::SSL_CTX_free) SSL_CTX_free;
  decltype(&::SSL_CTX_ctrl) SSL_CTX_ctrl;
  decltype(&::SSL_CTX_set_verify) SSL_CTX_set_verify;
  decltype(&::SSL_CTX_set_default_passwd_cb) SSL_CTX_set_default_passwd_cb;
  decltype(&::SSL_CTX_load_verify_file) SSL_CTX_load_verify_file;
  decltype(&::SSL_CTX_load_verify_dir) SSL_CTX_load_verify_dir;
  decltype(&::SSL_CTX_set_default_verify_paths) SSL_CTX_set_default_verify_paths;
  decltype(&::SSL_CTX_use_certificate_chain_file) SSL_CTX_use_certificate_chain_file;
  decltype(&::SSL_CTX_use_PrivateKey_file) SSL_CTX_use_PrivateKey_file;
  decltype(&::SSL_CTX_check_private_key) SSL_CTX_check_private_key;
  decltype(&::SSL_new) SSL_new;
  decltype(&::SSL_free) SSL_free;
  decltype(&::SSL_ctrl) SSL_ctrl;
  decltype(&::SSL_set_bio) SSL_set_bio;
  decltype(&::SSL_set_connect_state) SSL_set_connect_state;
  decltype(&::SSL_set1_host) SSL_set1_host;
  decltype(&::SSL_set_hostflags) SSL_set_hostflags;
  decltype(&::SSL_get0_param) SSL_get0_param;
  decltype(&::SSL_do_handshake) SSL_do_handshake;
  decltype(&::SSL_read_ex) SSL_read_ex;
  decltype(&::SSL_write_ex) SSL_write_ex;
  decltype(&::SSL_get_error) SSL_get_error;
  decltype(&::SSL_get_verify_result) SSL_get_verify_result;
  decltype(&::BIO_new) BIO_new;
  decltype(&::BIO_free) BIO_free;
  decltype(&::BIO_s_mem) BIO_s_mem;
  decltype(&::BIO_read) BIO_read;
  decltype(&::BIO_write) BIO_write;
  decltype(&::BIO_ctrl) BIO_ctrl;
  decltype(&::ERR_get_error) ERR_get_error;
  decltype(&::ERR_clear_error) ERR_clear_error;
  decltype(&::ERR_reason_error_string) ERR_reason_error_string;
  decltype(&::X509_VERIFY_PARAM_set1_ip_asc) X509_VERIFY_PARAM_set1_ip_asc;
  decltype(&::X509_verify_cert_error_string) X509_verify_cert_error_string;
};

/// Loads OpenSSL once, for the life of the process. Returns null when there is none; `why`
/// then says the reason.
const OpenSsl* open_openssl(std::string& why);

}  // namespace kiln::fleet
