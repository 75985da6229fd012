// A wrong memo may cost a hit, but never reaches a record.
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/hash.hpp"
#include "closure/scan_memo.hpp"
#include "closure/trace_memo.hpp"
#include "compile/key/key.hpp"
#include "runtime/service_fixture.hpp"
#include "support/places.hpp"

namespace kiln::testing {
namespace {

using runtime::Service;

class MemoTest : public ServiceTest {
 protected:
  /// Expects that a memo which `falsify` makes wrong costs at most a hit.
  void expect_harmless(const std::string& name, const std::function<void(const std::string&)>& falsify);
};

void MemoTest::expect_harmless(const std::string& name,
                               const std::function<void(const std::string&)>& falsify) {
  if (toolkit_.include_dirs.empty()) GTEST_SKIP() << "no toolkit headers on this machine";
  const std::string memo_file = tree_.at(name);
  Options o = options();
  o.template_path = std::string(places::kSourceDirectory) + "/tests/fixtures/templates";
  Key honest;
  {
    Service service(o, memo_file);
    honest = compile(service, "vendor_scale", {Dtype::bf16, 3}).image->key;
  }
  falsify(memo_file);

  {
    Service service(o, memo_file);
    const auto got = compile(service, "vendor_scale", {Dtype::bf16, 3});
    EXPECT_EQ(got.outcome, Outcome::disk) << "the honest key was found by hashing again before a compile";
    EXPECT_EQ(got.image->key, honest);
    EXPECT_EQ(service.core().state().counters.compiles, 0u);
  }
  Service service(o, memo_file);
  const auto fresh = compile(service, "vendor_scale", {Dtype::bf16, 4});
  EXPECT_EQ(fresh.outcome, Outcome::compiled);
  EXPECT_EQ(fresh.image->key.toolchain, honest.toolchain) << "compiled under the key of the real headers";
}

/// Changes every remembered digest, as in a stale memo.
TEST_F(MemoTest, AWrongMemoNeverReachesARecord) {
  expect_harmless("headers", [&](const std::string& memo_file) {
    std::filesystem::remove(memo_file + ".closures");
    source::ScanMemo memo(memo_file);
    const std::string header = toolkit_.include_dirs[0] + "/cuda_bf16.h";
    auto entry = memo.find(header);
    ASSERT_TRUE(entry) << header << " was not remembered";
    entry->digest = base::digest_of(std::string_view("something else"));
    memo.add(header, *entry);
    memo.save();
  });
}

TEST_F(MemoTest, AWrongTraceNeverReachesARecord) {
  expect_harmless("traces", [&](const std::string& memo_file) {
    const std::string file = memo_file + ".closures";
    const auto head = base::read_file(file);
    ASSERT_TRUE(head) << "no trace was kept";
    Digest key;  // the first entry's; it follows magic, checksum, boot id and count
    std::memcpy(key.bytes.data(), head->bytes.data() + 8 + 8 + 4 + 36 + 4, key.bytes.size());
    source::ClosureMemo memo(file);
    const auto trace = memo.find(key);
    ASSERT_TRUE(trace);
    const auto content = base::read_file(toolkit_.include_dirs[0] + "/cuda_bf16.h");
    ASSERT_TRUE(content);
    const Digest digest = base::digest_of(content->bytes);
    const std::string_view right(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
    std::string wrong = *trace;
    ASSERT_NE(wrong.find(right), std::string::npos);
    wrong[wrong.find(right)] ^= 1;
    memo.add(key, wrong);
    memo.save();
    std::filesystem::remove(memo_file);
  });
}

}  // namespace
}  // namespace kiln::testing
