// Certificate authorities and certificates for tests, the fixture that shares them, and a redis-server that
// uses a certificate.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "fleet/redis_server.hpp"

namespace kiln::testing {

/// Authorities and certificates, which the openssl command makes once.
class Certificates {
 public:
  Certificates() {
    authority("ca");
    authority("stranger");
    certificate("server", "ca", "DNS:localhost,IP:127.0.0.1", 10);
    certificate("expired", "ca", "DNS:localhost,IP:127.0.0.1", -1);
    certificate("elsewhere", "ca", "DNS:other.example,IP:192.0.2.1", 10);
    certificate("client", "ca", "DNS:client", 10);
    certificate("foreign", "stranger", "DNS:client", 10);
    run("openssl ec -in client.key -aes256 -passout pass:p -out locked.key");
  }
  static bool possible() { return RedisServer::installed() && have_program("openssl"); }
  std::string operator[](const std::string& file) const { return directory_.path() + '/' + file; }
  bool fine() const { return fine_; }
  void copy(const std::string& from, const std::string& to) { run("cp " + from + ' ' + to); }

 private:
  void run(const std::string& command) {
    fine_ = std::system(("cd " + directory_.path() + " && " + command + " > log 2>&1").c_str()) == 0 && fine_;
  }
  void authority(const std::string& name) {
    run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 10 -subj /CN=" + name +
        " -keyout " + name + ".key -out " + name + ".pem");
  }
  void certificate(const std::string& name, const std::string& by, const std::string& names, int days) {
    run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + name + " -keyout " +
        name + ".key -out " + name + ".csr");
    run("printf 'subjectAltName=" + names + "\n' > extensions && openssl x509 -req -in " + name +
        ".csr -CA " + by + ".pem -CAkey " + by + ".key -CAcreateserial -days " + std::to_string(days) +
        " -extfile extensions -out " + name + ".pem");
  }

  const base::TempDir directory_{"kiln-certificates-"};
  bool fine_ = true;
};

/// A fixture whose tests share the certificates. They are skipped where none can be made.
template <class Base>
class WithCertificates : public Base {
 protected:
  static void SetUpTestSuite() {
    if (Certificates::possible()) files = new Certificates;
  }
  static void TearDownTestSuite() {
    delete files;
    files = nullptr;
  }
  void SetUp() override {
    if (!files) GTEST_SKIP() << "redis-server or openssl is not installed";
    ASSERT_TRUE(files->fine());
    Base::SetUp();
  }

  /// The options of a URL: the authority that is trusted, and the certificate that is shown.
  static std::string ca(const std::string& name = "ca") { return "?ca=" + (*files)[name + ".pem"]; }
  static std::string shown(const std::string& name) { return shown(name, name); }
  static std::string shown(const std::string& certificate, const std::string& key) {
    return "&cert=" + (*files)[certificate + ".pem"] + "&key=" + (*files)[key + ".key"];
  }

  static inline Certificates* files = nullptr;
};

/// `clients` is redis's tls-auth-clients: "yes" requires certificates of clients.
struct TlsServer : RedisServer {
  TlsServer(const Certificates& files, const std::string& certificate, const char* clients = "no")
      : TlsServer(files, certificate, clients, free_port()) {}
  std::string at(const std::string& host) const {
    return "rediss://" + host + ':' + std::to_string(tls_port);
  }
  const int tls_port;

 private:
  TlsServer(const Certificates& files, const std::string& certificate, const char* clients, int port)
      : RedisServer({"--tls-port", std::to_string(port), "--tls-cert-file", files[certificate + ".pem"],
                     "--tls-key-file", files[certificate + ".key"], "--tls-ca-cert-file", files["ca.pem"],
                     "--tls-auth-clients", clients}),
        tls_port(port) {}
};

}  // namespace kiln::testing
