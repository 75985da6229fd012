// Blobs through the C++ interface that programs use.
#include <gtest/gtest.h>

#include "kiln/kiln.hpp"
#include "support/tree.hpp"

namespace kiln::testing {
namespace {

TEST(Blobs, AProgramGetsPutsListsAndDeletes) {
  const Tree tree;
  Options options = Options::hermetic();
  options.cache_dir = tree.at("cache");
  Service service(options);
  const Blobs blobs = service.blobs("mine", "v1");
  const std::string key("k\0\xff", 3);
  EXPECT_FALSE(blobs.get(key));
  Blobs::Leased leased = blobs.lease(key, 10);
  ASSERT_FALSE(leased.found);
  ASSERT_TRUE(leased.lease);
  EXPECT_EQ(blobs.put(key, std::string("a\0b", 3), std::move(leased.lease)), Blobs::Put::stored);
  EXPECT_EQ(blobs.get(key), std::string("a\0b", 3));
  EXPECT_EQ(blobs.lease(key, 10).found, std::string("a\0b", 3));
  EXPECT_EQ(blobs.put("empty", ""), Blobs::Put::stored);
  EXPECT_EQ(blobs.get("empty"), "");
  EXPECT_NE(blobs.list().find("\"empty\""), std::string::npos);
  EXPECT_TRUE(blobs.erase(key));
  EXPECT_FALSE(blobs.erase(key));
  EXPECT_THROW(service.blobs("A B"), Error);
  EXPECT_THROW(blobs.get(std::string(70000, 'k')), Error);
}

}  // namespace
}  // namespace kiln::testing
