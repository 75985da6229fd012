// The functions of src/late, as libkiln has them inside: this program is linked with them instead of the
// libraries.
#include "late/late_library.hpp"

#include <gtest/gtest.h>

#include "base/file.hpp"
#include "kiln/error.hpp"
#include "tests/remote/trust_fixture.hpp"

using namespace kiln;
using namespace kiln::testing;

namespace {

bool is_loaded(const char* library) {
  return base::read_proc("/proc/self/maps").find(library) != std::string::npos;
}

}  // namespace

// First: nothing may have used them before.
TEST(Late, LibrariesAreLoadedByTheirFirstUse) {
  ASSERT_FALSE(is_loaded("libsodium"));
  ASSERT_FALSE(is_loaded("libzstd"));
  remote::need_envelope_libraries();
  EXPECT_TRUE(is_loaded("libsodium"));
  EXPECT_TRUE(is_loaded("libzstd"));
  const remote::SigningKey key = signing_key(1);
  const remote::Entry entry = some_entry();
  const std::string sealed = remote::seal_envelope(entry, &key);
  EXPECT_EQ(verdict(sealed, asked_for(entry), {key.public_key()}), "accepted");
  std::string changed = sealed;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  EXPECT_EQ(verdict(changed, asked_for(entry), {key.public_key()}), "bad_digest");
  char bytes[16] = {}, zeros[16] = {};
  ::randombytes_buf(bytes, sizeof bytes);
  EXPECT_NE(::sodium_memcmp(bytes, zeros, sizeof bytes), 0);
  ::sodium_memzero(bytes, sizeof bytes);
  EXPECT_EQ(::sodium_memcmp(bytes, zeros, sizeof bytes), 0);
}

TEST(Late, AMissingLibraryIsAskedForOnceAndHasNoFunctions) {
  static constinit const char* const names[] = {"libkiln-has-no-such-library.so.1"};
  late::LateLibrary library(names);
  std::atomic<void*> slot{nullptr};
  EXPECT_EQ(library.find<int (*)()>(slot, "sodium_init"), nullptr);
  EXPECT_EQ(library.find<int (*)()>(slot, "sodium_init"), nullptr);
}
