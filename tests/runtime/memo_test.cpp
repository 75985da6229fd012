// A wrong memo may cost a hit, and never reaches a record (DESIGN 4).
#include "base/hash.hpp"
#include "compile/key.hpp"
#include "runtime/service_fixture.hpp"
#include "source/scan_memo.hpp"

namespace kiln::testing {
namespace {

using runtime::Service;

class MemoTest : public ServiceTest {};

TEST_F(MemoTest, AWrongMemoNeverReachesARecord) {
  if (toolkit_.include_dirs.empty()) GTEST_SKIP() << "no toolkit headers on this machine";
  const std::string memo_file = tree_.at("memo");
  Options o = options();
  o.template_path = KILN_SOURCE_DIR "/tests/fixtures/templates";
  Key honest;
  {
    Service service(o, memo_file);
    honest = compile(service, "vendor_scale", {Dtype::bf16, 3}).image->key;
  }
  // Every remembered digest becomes another: what a stale memo would look like.
  source::ScanMemo memo(memo_file);
  const std::string header = toolkit_.include_dirs[0] + "/cuda_bf16.h";
  auto entry = memo.find(header);
  ASSERT_TRUE(entry) << header << " was not remembered";
  entry->digest = base::digest_of(std::string_view("something else"));
  memo.add(header, *entry);
  memo.save();

  {
    Service service(o, memo_file);
    const auto got = compile(service, "vendor_scale", {Dtype::bf16, 3});
    EXPECT_EQ(got.outcome, Outcome::disk) << "the honest key was found by hashing again before a compile";
    EXPECT_EQ(got.image->key, honest);
    EXPECT_EQ(service.pipeline().counters().compiles, 0u);
  }
  Service service(o, memo_file);
  const auto fresh = compile(service, "vendor_scale", {Dtype::bf16, 4});
  EXPECT_EQ(fresh.outcome, Outcome::compiled);
  EXPECT_EQ(fresh.image->key.toolchain, honest.toolchain) << "compiled under the key of the real headers";
}

}  // namespace
}  // namespace kiln::testing
