#include "cache/fleet/net/openssl.hpp"

#include <dlfcn.h>

#include <cstring>
#include <iterator>

#include "base/lazy.hpp"

namespace kiln::fleet {
namespace {

#define KILN_NAME(name) #name,
constexpr const char* kNames[] = {KILN_SSL_ENTRIES(KILN_NAME) KILN_CRYPTO_ENTRIES(KILN_NAME)};
#undef KILN_NAME
static_assert(std::size(kNames) * sizeof(void*) == sizeof(OpenSsl), "an entry of openssl.hpp is not listed");

struct Loaded {
  OpenSsl table{};
  std::string error;
};

#ifdef KILN_OPENSSL_LINKED
Loaded load() {
  Loaded loaded;
#define KILN_ENTRY(name) loaded.table.name = &::name;
  KILN_SSL_ENTRIES(KILN_ENTRY)
  KILN_CRYPTO_ENTRIES(KILN_ENTRY)
#undef KILN_ENTRY
  return loaded;
}
#else
Loaded load() {
  Loaded loaded;
  const auto open = [&](const char* name) {
    void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library && loaded.error.empty()) {
      const char* reason = ::dlerror();
      loaded.error = std::string("TLS needs OpenSSL 3: ") + (reason ? reason : name);
    }
    return library;
  };
  const auto find = [&](void* library, const char* name, auto& function) {
    void* const symbol = library ? ::dlsym(library, name) : nullptr;
    if (!symbol && loaded.error.empty())
      loaded.error = std::string("TLS needs OpenSSL 3: this one lacks ") + name;
    std::memcpy(&function, &symbol, sizeof function);
  };
  void* const crypto = open("libcrypto.so.3");
  void* const ssl = open("libssl.so.3");
#define KILN_ENTRY(name) find(ssl, #name, loaded.table.name);
  KILN_SSL_ENTRIES(KILN_ENTRY)
#undef KILN_ENTRY
#define KILN_ENTRY(name) find(crypto, #name, loaded.table.name);
  KILN_CRYPTO_ENTRIES(KILN_ENTRY)
#undef KILN_ENTRY
  return loaded;
}
#endif

/// Never destroyed: threads may be in a session at exit.
union Forever {
  base::Lazy<Loaded> value;
  constexpr Forever() : value() {}
  ~Forever() {}
};
constinit Forever g_loaded;

}  // namespace

const OpenSsl* open_openssl(std::string& why) {
  const Loaded& loaded = g_loaded.value.get([] {
    Loaded made = load();
    // exit() must not clean up, since a thread of ours may be in the middle of a session then. OpenSSL heeds
    // the first call in a process, so an engine that uses OpenSSL keeps its own way.
    if (made.error.empty() && made.table.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr) != 1)
      made.error = "OpenSSL cannot start";
    return made;
  });
  if (loaded.error.empty()) return &loaded.table;
  why = loaded.error;
  return nullptr;
}

}  // namespace kiln::fleet
