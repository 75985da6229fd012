// What libkiln uses of libsodium (see late_library.hpp). Without it sodium_init fails, which all who use it
// ask first.
#include <sodium.h>
#include <sys/random.h>

#include <cstring>

#include "late/late_library.hpp"

namespace {
constinit const char* const kNames[] = {"libsodium.so.23", "libsodium.so.26"};
constinit kiln::late::LateLibrary g_sodium(kNames);
}  // namespace

using Bytes = unsigned char*;
using View = const unsigned char*;
using Size = unsigned long long;

KILN_LATE(g_sodium, int, sodium_init, (void), (), -1)
KILN_LATE(g_sodium, int, crypto_sign_keypair, (Bytes open, Bytes secret), (open, secret), -1)
KILN_LATE(g_sodium, int, crypto_sign_seed_keypair, (Bytes open, Bytes secret, View seed),
          (open, secret, seed), -1)
KILN_LATE(g_sodium, int, crypto_sign_detached, (Bytes out, Size* size, View in, Size in_size, View secret),
          (out, size, in, in_size, secret), -1)
KILN_LATE(g_sodium, int, crypto_sign_verify_detached, (View signature, View in, Size in_size, View open),
          (signature, in, in_size, open), -1)
KILN_LATE(g_sodium, int, crypto_generichash,
          (Bytes out, std::size_t size, View in, Size in_size, View key, std::size_t key_size),
          (out, size, in, in_size, key, key_size), -1)
KILN_LATE(g_sodium, int, crypto_generichash_blake2b_init,
          (crypto_generichash_blake2b_state * state, View key, const std::size_t key_size,
           const std::size_t size),
          (state, key, key_size, size), -1)
KILN_LATE(g_sodium, int, crypto_generichash_blake2b_update,
          (crypto_generichash_blake2b_state * state, View in, Size size), (state, in, size), -1)
KILN_LATE(g_sodium, int, crypto_generichash_blake2b_final,
          (crypto_generichash_blake2b_state * state, Bytes out, const std::size_t size), (state, out, size),
          -1)
KILN_LATE(g_sodium, int, crypto_pwhash_scryptsalsa208sha256,
          (Bytes const out, Size size, const char* const password, Size password_size, View const salt,
           Size operations, std::size_t memory),
          (out, size, password, password_size, salt, operations, memory), -1)
KILN_LATE(g_sodium, std::size_t, sodium_base64_encoded_len, (const std::size_t size, const int variant),
          (size, variant), 1)
KILN_LATE(g_sodium, char*, sodium_bin2base64,
          (char* const out, const std::size_t size, View const in, const std::size_t in_size,
           const int variant),
          (out, size, in, in_size, variant), out)
KILN_LATE(g_sodium, int, sodium_base642bin,
          (Bytes const out, const std::size_t size, const char* const in, const std::size_t in_size,
           const char* const ignore, std::size_t* const out_size, const char** const end, const int variant),
          (out, size, in, in_size, ignore, out_size, end, variant), -1)
KILN_LATE(g_sodium, int, sodium_is_zero, (View bytes, const std::size_t size), (bytes, size), 0)
KILN_LATE(g_sodium, int, sodium_memcmp, (const void* const a, const void* const b, std::size_t size),
          (a, b, size), -1)
KILN_LATE(g_sodium, void, sodium_memzero, (void* const at, const std::size_t size), (at, size),
          ::explicit_bzero(at, size))
KILN_LATE(g_sodium, void, randombytes_buf, (void* const at, const std::size_t size), (at, size),
          static_cast<void>(::getentropy(at, size)))
