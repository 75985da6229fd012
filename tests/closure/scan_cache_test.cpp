#include <sys/stat.h>

#include <thread>

#include "base/hash.hpp"
#include "tests/closure/closure_tree.hpp"

namespace kiln::source {
namespace {

TEST(ScanCache, LooksAtRegularFilesOnly) {
  const Tree t;
  ScanCache cache;
  const std::string path = t.write("a.h", "#include <b.h>\n");
  const auto entry = cache.look(path, false, Trust::content);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->digest, base::digest_of(std::string_view("#include <b.h>\n")));
  EXPECT_EQ(entry->scan->directives.size(), 1u);
  EXPECT_EQ(entry->stamp, *base::FileStamp::of(path));
  EXPECT_FALSE(entry->settled);
  EXPECT_FALSE(cache.look(t.path("nothing.h"), false, Trust::content));
  EXPECT_FALSE(cache.look(t.path(), false, Trust::content));
  EXPECT_FALSE(cache.look(path + "/beneath.h", false, Trust::content));
}

TEST(ScanCache, RemembersSettledFilesUntilTheirStampChanges) {
  const Tree t;
  ScanCache cache;
  const std::string old = t.write("old.h", "int a;\n");
  const auto fresh = cache.look(old, false, Trust::content);
  EXPECT_NE(cache.look(old, false, Trust::content)->scan, fresh->scan);  // too young: it is read again
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  const auto first = cache.look(old, false, Trust::content);
  EXPECT_TRUE(first->settled);
  EXPECT_EQ(cache.look(old, false, Trust::content)->scan, first->scan);
  t.write("old.h", "int b;\n");
  const auto edited = cache.look(old, false, Trust::content);
  EXPECT_NE(edited->digest, first->digest);
  t.remove("old.h");
  EXPECT_FALSE(cache.look(old, false, Trust::content));
}

TEST(ScanCache, ServesManyThreads) {
  const Tree t;
  ScanCache cache;
  for (int i = 0; i < 8; ++i) t.write("h" + std::to_string(i), "#include <x" + std::to_string(i) + ">\n");
  std::vector<std::thread> threads;
  for (int n = 0; n < 8; ++n) {
    threads.emplace_back([&] {
      for (int i = 0; i < 400; ++i) {
        const auto entry = cache.look(t.path("h" + std::to_string(i % 8)), false, Trust::content);
        ASSERT_TRUE(entry);
        EXPECT_EQ(entry->scan->directives[0].name, "x" + std::to_string(i % 8));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kiln::source
