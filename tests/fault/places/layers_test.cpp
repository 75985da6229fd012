// Read-only layers under a writable store.
#include <fstream>

#include "cache/place/directory.hpp"
#include "fault/places/fixture.hpp"
#include "runtime/state/lifetime.hpp"
#include "runtime/state/places.hpp"

namespace kiln::testing {
namespace {

using runtime::Service;

class LayersTest : public PlacesTest {
 protected:
  /// A layer that holds scale for each N in `numbers`, written like `kiln prewarm --layer` writes one.
  std::string bake(const std::string& name, const std::vector<int>& numbers) {
    const std::string layer = tree_.at(name);
    EXPECT_EQ(as_user(0,
                      [&] {
                        Service service(options(), "");
                        service.core().state().stores.use_only(runtime::create_layer(layer));
                        for (const int n : numbers) compile(service, "scale", {Dtype::f32, n});
                        service.core().path().flush();
                        cache::share_layer(layer);
                        return std::string("baked");
                      }),
              "baked");
    return layer;
  }
  Options with_layers(const std::string& layers) const {
    Options o = options();
    o.cache_layers = layers;
    return o;
  }
};

TEST_F(LayersTest, AnImageThatRootBakedIsReadByAnotherUser) {
  KILN_NEEDS_ROOT();
  const std::string layer = bake("layer", {7});
  make(tree_.at("cache"), 0700, kUser);
  const Options o = with_layers(layer);
  const Served hit = serve(kUser, o);
  EXPECT_EQ(hit.outcome, "layer");
  EXPECT_EQ(hit.directory, tree_.at("cache"));
  EXPECT_TRUE(hit.warnings.empty()) << hit.warnings[0];
  EXPECT_EQ(serve(kUser, o, {}, 8).outcome, "compiled");
  EXPECT_EQ(serve(kUser, o, {}, 8).outcome, "disk") << "what the layer lacks goes into the store";
  EXPECT_EQ(serve(kUser, o).outcome, "layer");
  EXPECT_FALSE(std::filesystem::exists(layer + "/v1/counters"));
}

TEST_F(LayersTest, LayersAreAskedInOrderThenTheStoreAndCounted) {
  const std::string first = bake("first", {1}), second = bake("second", {1, 2});
  Service service(with_layers(first + ':' + second), "");
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 1}).outcome, Outcome::layer);
  EXPECT_FALSE(std::filesystem::exists(tree_.at("cache"))) << "the store is opened when it is needed";
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 2}).outcome, Outcome::layer);
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 3}).outcome, Outcome::compiled);
  service.core().path().flush();
  EXPECT_EQ(service.core().state().stores.layers().size(), 2u);
  const auto& counters = service.core().state().counters;
  EXPECT_EQ(counters.layer_hits, 2u);
  EXPECT_EQ(counters.disk_hits, 0u);
  EXPECT_EQ(counters.miss_absent, 1u);
  EXPECT_EQ(counters.puts, 1u);
  kiln_stats stats{};
  read(counters, stats);
  EXPECT_EQ(stats.layer_hits, 2u);
  EXPECT_EQ(service.core().state().stores.writable()->stats().entries, 1u);
}

TEST_F(LayersTest, ADamagedRecordFallsThroughToTheNextPlace) {
  const std::string first = bake("first", {7}), second = bake("second", {7});
  const std::string file = first + "/v1/data.mdb";
  const std::string bytes = base::read_file(file)->bytes;
  const auto elf = bytes.find(
      "\x7f"
      "ELF");
  ASSERT_NE(elf, std::string::npos);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(elf) + 100)
      .write("damage", 6);
  EXPECT_EQ(serve(0, with_layers(first + ':' + second)).outcome, "layer");
  Served got = serve(0, with_layers(first));
  EXPECT_EQ(got.outcome, "compiled");
  expect_one_warning(got, {first, "damaged", "kiln prewarm --layer"});
  EXPECT_EQ(serve(0, with_layers(first)).outcome, "disk") << "the store has what the layer lost";
  remove_with_shared_memory(tree_.at("cache"));
  Service service(with_layers(first), "");
  compile(service, "scale", {Dtype::f32, 7});
  EXPECT_EQ(service.core().state().counters.miss_damaged, 1u);
  EXPECT_EQ(service.core().state().counters.miss_absent, 0u);
  service.core().path().flush();
}

TEST_F(LayersTest, AnUnusableLayerIsOneWarningAndTheRestWorks) {
  const std::string good = bake("good", {7});
  const auto expect = [&](const std::string& layer, const std::string& why) {
    const Served got = serve(0, with_layers(layer + ':' + good));
    EXPECT_EQ(got.outcome, "layer") << layer;
    expect_one_warning(got, {layer, "left out", why, "KILN_CACHE_LAYERS"});
  };
  expect(tree_.at("missing"), "No such file or directory; 'kiln prewarm --layer' and");
  expect("relative", "absolute");
  make(tree_.at("empty"), 0755, ::geteuid());
  expect(tree_.at("empty"), "No such file");
  tree_.write("file", "");
  expect(tree_.at("file"), "ot a directory");
  make(tree_.at("garbage/v1"), 0755, ::geteuid());
  tree_.write("garbage/v1/data.mdb", std::string(10000, 'g'));
  expect(tree_.at("garbage"), "no valid meta page; write it again with 'kiln prewarm --layer'");
  const std::string open = bake("open", {7});
  ::chmod(open.c_str(), 0777);
  expect(open, "others may write it (mode 0777); chmod go-w it");
  if (::geteuid() != 0) return;
  const std::string theirs = bake("theirs", {7});
  ASSERT_EQ(::chown((theirs + "/v1/data.mdb").c_str(), kStranger, kStranger), 0);
  expect(theirs, "belongs to uid " + std::to_string(kStranger));
  ASSERT_EQ(::symlink(good.c_str(), tree_.at("link").c_str()), 0);
  ASSERT_EQ(::lchown(tree_.at("link").c_str(), kStranger, kStranger), 0);
  expect(tree_.at("link"), "a symlink of uid");
}

TEST_F(LayersTest, ALayerServesWithoutAnyWritableStore) {
  KILN_NEEDS_ROOT();
  const std::string layer = bake("layer", {7});
  const std::string in_the_way = "/var/tmp" + name_of(kUser);
  base::write_file(in_the_way, "");
  make(tree_.at("locked"), 0755, 0);
  Options o = with_layers(layer);
  o.cache_dir = tree_.at("locked");
  const Variables nowhere{{"TMPDIR", tree_.at("locked")}};
  const Served hit = serve(kUser, o, nowhere), miss = serve(kUser, o, nowhere, 8);
  std::filesystem::remove(in_the_way);
  EXPECT_EQ(hit.outcome, "layer");
  EXPECT_EQ(miss.outcome, "compiled");
  EXPECT_EQ(miss.directory, "memory");
}

TEST_F(LayersTest, ASealedServiceIsServedFromALayer) {
  Options o = with_layers(bake("layer", {7}));
  o.mode = Mode::sealed;
  EXPECT_EQ(serve(0, o).outcome, "layer");
  EXPECT_NE(serve(0, o, {}, 8).outcome.find("not in the cache"), std::string::npos);
}

TEST_F(LayersTest, ASlimHostFindsAnotherToolchainsRecordInALayer) {
  Options slim = slim_options();
  slim.cache_layers = bake("layer", {7});
  Service service(slim, "");
  EXPECT_EQ(compile(service, "scale", {Dtype::f32, 7}).outcome, Outcome::layer);
  EXPECT_EQ(service.core().state().counters.foreign_toolchain, 1u);
  EXPECT_EQ(service.core().state().counters.layer_hits, 0u) << "its own toolchain's only";
}

TEST_F(LayersTest, WhatAServiceCountedIsInItsStoreAfterwards) {
  const std::string layer = bake("layer", {7});
  const auto counts = [&] {
    std::map<std::string, std::uint64_t> out;
    const auto values = cache::Tally(tree_.at("cache/v1")).read();
    const auto counters = runtime::lifetime_counters();
    for (std::size_t i = 0; i < counters.size(); ++i)
      out[std::string(counters[i].group) + '.' + counters[i].name] = values[i];
    return out;
  };
  for (int i = 0; i < 3; ++i) {
    Service service(with_layers(layer), "");
    compile(service, "scale", {Dtype::f32, 7});
    compile(service, "scale", {Dtype::f32, 8});
    compile(service, "scale", {Dtype::f32, 8});
  }
  auto now = counts();
  EXPECT_EQ(now["hits.layer"], 3u);
  EXPECT_EQ(now["hits.disk"], 2u);
  EXPECT_EQ(now["hits.memory"], 3u);
  EXPECT_EQ(now["misses.absent"], 1u);
  EXPECT_EQ(now[".compiles"], 1u);
  EXPECT_EQ(now["puts.stored"], 1u);
  EXPECT_GT(now[".compile_us"], 0u);
  // A child must not count anything that its parent has not saved yet.
  {
    Service service(with_layers(layer), "");
    compile(service, "scale", {Dtype::f32, 8});
    const pid_t pid = ::fork();
    if (pid == 0) {
      service.~Service();
      ::_exit(0);
    }
    ::waitpid(pid, nullptr, 0);
    EXPECT_EQ(counts()["hits.disk"], 2u);
  }
  EXPECT_EQ(counts()["hits.disk"], 3u);
}

}  // namespace
}  // namespace kiln::testing
