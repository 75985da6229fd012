// Records of other toolchains: when they may be served, as on a slim production image, and when never.
#include "compile/key/key.hpp"
#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "support/places.hpp"

namespace kiln::testing {
namespace {

using runtime::Service;

class ToolchainChoiceTest : public ServiceTest {
 protected:
  void publish_for_another_toolchain(const std::string& compiler_version, std::int64_t created,
                                     const std::string& marker) {
    Service service(options());
    const auto own = compile(service, "scale", {Dtype::f32, 7});
    service.core().path().flush();
    const auto store = service.core().state().stores.writable();
    const auto record = store->peek(own.image->key, base::Deadline::never());
    ASSERT_TRUE(record);
    compile::Facts facts = own.image->facts;
    facts.compiler_version = compiler_version;
    facts.created_s = created;
    Key key = own.image->key;
    key.toolchain.bytes[0] = static_cast<std::uint8_t>(key.toolchain.bytes[0] + created);
    ASSERT_EQ(store->put({key, compile::encode(facts), record->key_text, marker}).put, cache::Put::stored);
  }
};

TEST_F(ToolchainChoiceTest, ASlimHostHitsWithoutCompilerOrHeaders) {
  {
    Service builder(options());
    compile(builder, "scale", {Dtype::f32, 7});
  }
  Service slim(slim_options());
  EXPECT_FALSE(slim.core().state().files.toolkit().has_compiler());
  EXPECT_TRUE(slim.core().state().files.toolkit().include_dirs.empty());
  EXPECT_EQ(compile(slim, "scale", {Dtype::f32, 7}).outcome, Outcome::disk);
  EXPECT_EQ(slim.core().state().counters.foreign_toolchain, 1u);
}

TEST_F(ToolchainChoiceTest, ASlimHostHitsATemplateThatIncludesVendorHeadersAndCub) {
  if (toolkit_.include_dirs.empty()) GTEST_SKIP() << "no toolkit headers on this machine";
  Options full = options();
  full.template_path = std::string(places::kSourceDirectory) + "/tests/fixtures/templates";
  Options slim = slim_options();
  slim.template_path = full.template_path;
  {
    Service builder(full);
    EXPECT_EQ(compile(builder, "cub_block_sum", {Dtype::bf16, 1024}).outcome, Outcome::compiled);
  }
  {
    Service again(full);
    EXPECT_EQ(compile(again, "cub_block_sum", {Dtype::bf16, 1024}).outcome, Outcome::disk) << "published";
  }
  Service service(slim);
  EXPECT_EQ(compile(service, "cub_block_sum", {Dtype::bf16, 1024}).outcome, Outcome::disk);
}

TEST_F(ToolchainChoiceTest, WithoutACompilerAMissListsWhatWasTried) {
  Service slim(slim_options());
  try {
    compile(slim, "scale", {Dtype::f32, 7});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::no_compiler);
    for (const std::string& part :
         {std::string("scale T=f32 N=7"), tree_.at("empty"), std::string("KILN_CUDA_HOME")}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in " << error.what();
    }
  }
}

TEST_F(ToolchainChoiceTest, OwnComesFirstAndForeignOnlyWhereItMay) {
  publish_for_another_toolchain("12.8", 1, "foreign image");
  {
    Service normal(options());
    EXPECT_NE(compile(normal, "scale", {Dtype::f32, 7}).image->bytes, "foreign image") << "its own";
  }
  Options own = slim_options();
  own.toolchain = "own";
  Service strict(own);
  EXPECT_THROW(compile(strict, "scale", {Dtype::f32, 7}), Error)
      << "KILN_TOOLCHAIN=own never takes another's";
}

TEST_F(ToolchainChoiceTest, AmongForeignOnesTheNewestCompilerThenTheYoungest) {
  publish_for_another_toolchain("12.8", 9, "old compiler, young");
  publish_for_another_toolchain("14.0", 3, "new compiler, old");
  publish_for_another_toolchain("14.0", 5, "new compiler, young");
  Service slim(slim_options());
  EXPECT_EQ(compile(slim, "scale", {Dtype::f32, 7}).image->bytes, "new compiler, young");
}

TEST_F(ToolchainChoiceTest, AnIdTakesThatToolchainOnly) {
  Key own;
  {
    Service service(options());
    own = compile(service, "scale", {Dtype::f32, 7}).image->key;
  }
  publish_for_another_toolchain("14.0", 3, "another");
  Options by_id = slim_options();
  by_id.toolchain = own.toolchain.hex().substr(0, 12);
  Service service(by_id);
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).image->key, own);
}

TEST_F(ToolchainChoiceTest, ARecordWithProjectFilesReachedThroughTheToolkitIsNeverServedToAnother) {
  if (toolkit_.include_dirs.empty()) GTEST_SKIP() << "no toolkit headers on this machine";
  {
    Service service(options());
    const auto own = compile(service, "scale", {Dtype::f32, 7});
    service.core().path().flush();
    const auto record =
        service.core().state().stores.writable()->peek(own.image->key, base::Deadline::never());
    compile::Facts facts = own.image->facts;
    facts.project_header_through_toolkit = true;
    Key key = own.image->key;
    key.toolchain.bytes[0] ^= 1;
    facts.compiler_version = "99.0";
    ASSERT_EQ(service.core()
                  .state()
                  .stores.writable()
                  ->put({key, compile::encode(facts), record->key_text, "must not be served"})
                  .put,
              cache::Put::stored);
  }
  Service slim(slim_options());
  EXPECT_NE(compile(slim, "scale", {Dtype::f32, 7}).image->bytes, "must not be served");
}

TEST_F(ToolchainChoiceTest, AHashMatchAloneIsNotIdentity) {
  {
    Service service(options());
    const auto own = compile(service, "scale", {Dtype::f32, 7});
    service.core().path().flush();
    auto record = *service.core().state().stores.writable()->peek(own.image->key, base::Deadline::never());
    record.key_text[record.key_text.find("scale")] = 'S';
    record.image = "another kernel's image";
    ASSERT_EQ(service.core().state().stores.writable()->put(record).put, cache::Put::stored);
  }
  {
    Service service(options());
    EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::compiled);
    EXPECT_EQ(service.core().state().counters.miss_other_key_text, 1u);
  }
  Service service(options());
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::disk) << "the next publish heals it";
}

}  // namespace
}  // namespace kiln::testing
