// Templates from memory are written to files beside a record.
#include "runtime/service/service.hpp"
#include "runtime/service_fixture.hpp"
#include "runtime/state/recorder_fixture.hpp"
#include "runtime/state/template_dump.hpp"

namespace kiln::testing {
namespace {

source::MemoryTemplate from_memory(const std::string& name, const std::string& body) {
  std::string manifest = small_manifest(name);
  const std::string own = "\"" + name + ".cu\"";
  manifest.replace(manifest.find(own), own.size(), "'kernel.cu'");
  return {manifest, small_source("", body), ""};
}

TEST_F(RecorderTest, TemplatesFromMemoryAreDumpedBesideIt) {
  source::Catalog engine({});
  const auto one = engine.add(from_memory("one", "out[i] = T(N);"));
  const auto two = engine.add(from_memory("two", "out[i] = T(N + 1);"));  // with the same source name
  Recorder recorder(file_);
  recorder.record(*one, resolved(*one, 1));
  recorder.record(*two, resolved(*two, 2));
  recorder.record(*two, resolved(*two, 3));
  EXPECT_EQ(rows(), (Rows{1, 2, 3}));
  source::Catalog dumped({runtime::templates_beside(file_)});
  EXPECT_EQ(dumped.names(), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(dumped.open("one")->kernel.read(), one->kernel.memory);
  EXPECT_EQ(dumped.open("two")->kernel.read(), two->kernel.memory);
  EXPECT_EQ(dumped.open("two")->manifest.kernel.source, "two.cu");
  EXPECT_EQ(warnings(), 0u);
}

TEST_F(RecorderTest, AnotherTemplateOfTheNameIsNotMixedIn) {
  source::Catalog first({}), second({}), again({});
  const auto old = first.add(from_memory("one", "out[i] = T(N);"));
  const auto other = second.add(from_memory("one", "out[i] = T(N + 1);"));
  {
    Recorder recorder(file_);
    recorder.record(*old, resolved(*old, 1));
  }
  {
    Recorder recorder(file_);
    recorder.record(*other, resolved(*other, 2));
    recorder.record(*other, resolved(*other, 3));
    record(recorder, 4);
  }
  EXPECT_EQ(rows(), (Rows{1, 4}));
  ASSERT_EQ(warnings(), 1u);
  EXPECT_NE(lines_[0].find("'one'"), std::string::npos) << lines_[0];
  EXPECT_EQ(source::Catalog({runtime::templates_beside(file_)}).open("one")->kernel.read(),
            old->kernel.memory);
  const auto same = again.add(from_memory("one", "out[i] = T(N);"));
  Recorder recorder(file_);
  recorder.record(*same, resolved(*same, 5));
  EXPECT_EQ(rows(), (Rows{1, 4, 5}));
}

TEST_F(RecorderTest, AnOverridesSourceIsThatOfTheDump) {
  source::MemoryTemplate in = from_memory("one", "out[i] = T(N);");
  in.manifest += "[arch.sm_90a]\nsource = \"kernel.cu\"\ncompile = { std = \"c++20\" }\n";
  source::Catalog engine({});
  const auto one = engine.add(in);
  Recorder recorder(file_);
  recorder.record(*one, resolved(*one, 1));
  EXPECT_EQ(warnings(), 0u);
  const auto dumped = source::Catalog({runtime::templates_beside(file_)}).open("one");
  EXPECT_EQ(variant_for(dumped->manifest, {90}).kernel.source, "one.cu");
}

TEST_F(RecorderTest, AReferenceIsDumpedWithItsTemplate) {
  source::MemoryTemplate in = from_memory("one", "out[i] = T(N);");
  in.manifest +=
      "[reference]\nsource = \"kernel.cu\"\ninstantiate = \"scale<{T}, {N}>\"\ngrid = [\"1\"]\nblock = "
      "[\"64\"]\n";
  in.reference = "// naive\n" + in.source;
  source::Catalog engine({});
  const auto one = engine.add(in);
  Recorder recorder(file_);
  recorder.record(*one, resolved(*one, 1));
  const auto dumped = source::Catalog({runtime::templates_beside(file_)}).open("one");
  EXPECT_EQ(dumped->reference.read(), in.reference);
  EXPECT_EQ(dumped->kernel.read(), in.source);
}

using RecordedService = ServiceTest;

TEST_F(RecordedService, TemplatesFromMemoryAreWarmInAnotherStore) {
  Options engine = options();
  engine.record = tree_.at("record");
  {
    runtime::Service service(engine);
    service.add(from_memory("one", "out[i] = T(N);"));
    service.add(from_memory("two", "out[i] = T(N + 1);"));
    for (const char* name : {"one", "two"})
      EXPECT_EQ(compile(service, name, {Value(Dtype::f32), Value(3)}).outcome, Outcome::compiled);
  }
  engine.cache_dir = tree_.at("elsewhere"), engine.record = "";
  {
    Options prewarm = engine;
    prewarm.template_path += ':' + runtime::templates_beside(tree_.at("record"));
    runtime::Service service(prewarm);
    for (const auto& planned :
         source::parse_plan(base::read_file(tree_.at("record"))->bytes, tree_.at("record"))) {
      std::vector<NamedValue> named;
      for (const Parameter& p : planned.values) named.push_back({p.name, Value(p.value)});
      auto& opened = service.open(planned.template_name, KILN_DEVICE_NONE, planned.arch);
      EXPECT_EQ(opened.compile(source::positional(opened.origin().manifest, named)).outcome,
                Outcome::compiled);
    }
    service.core().path().flush();
  }
  engine.mode = Mode::sealed;
  {
    runtime::Service service(engine);
    service.add(from_memory("one", "out[i] = T(N);"));
    service.add(from_memory("two", "out[i] = T(N + 1);"));
    for (const char* name : {"one", "two"})
      EXPECT_EQ(compile(service, name, {Value(Dtype::f32), Value(3)}).outcome, Outcome::disk);
  }
  forget(tree_.at("elsewhere"));
}

}  // namespace
}  // namespace kiln::testing
