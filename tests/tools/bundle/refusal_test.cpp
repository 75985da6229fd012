// Bundles with entries whose parts disagree. Each is refused, and nothing of it becomes a kernel or a path.
#include <filesystem>
#include <limits>
#include <set>

#include "tools/bundle/fixture.hpp"

using namespace kiln;
using namespace kiln::test;

namespace {

struct BundleLies : BundleCommand {
  /// Imports a bundle with this entry. Returns the exit status and stderr.
  std::string said_of(const cache::Record& entry) {
    write_bundle("lie.kb", {entry});
    const Finished verified = kiln({"bundle", "verify", path("lie.kb")});
    const Finished done = import(path("lie.kb"), path("other"));
    EXPECT_EQ(verified.status, done.status);
    EXPECT_EQ(entries_in(path("other")), 0u);
    return std::to_string(done.status) + ' ' + done.err;
  }
};

#define EXPECT_SAID(entry, status, why)                   \
  do {                                                    \
    const std::string said = said_of(entry);              \
    EXPECT_EQ(said.substr(0, 2), status " ") << said;     \
    EXPECT_NE(said.find(why), std::string::npos) << said; \
  } while (false)

}  // namespace

TEST_F(BundleLies, AKeyOfAnotherKeyText) {
  cache::Record entry = Made(1).record();
  entry.key = Made(2).key();
  EXPECT_SAID(entry, "4", "its key does not match its key text");
}

TEST_F(BundleLies, FactsOfAnotherTemplateArchNameOrParameter) {
  const auto with = [](auto&& change) {
    cache::Record entry = Made(1).record();
    compile::Facts facts = Made(1).facts;
    change(facts);
    entry.facts = compile::encode(facts);
    return entry;
  };
  EXPECT_SAID(with([](auto& f) { f.unit = "other"; }), "4", "disagree on the template");
  EXPECT_SAID(with([](auto& f) { f.arch = "sm_80"; }), "4", "disagree on the arch");
  EXPECT_SAID(with([](auto& f) { f.name_expression = "x"; }), "4", "disagree on the name");
  EXPECT_SAID(with([](auto& f) { f.parameters[0].value = "2"; }), "4", "disagree on the parameters");
  EXPECT_SAID(with([](auto& f) { f.project_header_through_toolkit = true; }), "4", "headers");
  EXPECT_SAID(with([](auto& f) { f.lowered_name = "_Z5other"; }), "4", "has no kernel");
  EXPECT_SAID(with([](auto& f) { f.arguments[1].size = 8; }), "4", "disagree on the arguments");
}

TEST_F(BundleLies, FactsOfOtherResourcesThanTheImageHas) {
  const auto with = [](auto&& change) {
    cache::Record entry = Made(1).record();
    compile::Facts facts = Made(1).facts;
    change(facts);
    entry.facts = compile::encode(facts);
    return entry;
  };
  EXPECT_SAID(with([](auto& f) { f.registers = 255; }), "4", "disagree on the resources");
  EXPECT_SAID(with([](auto& f) { f.shared_bytes = 200'000; }), "4", "disagree on the resources");
  EXPECT_SAID(with([](auto& f) { f.max_threads = 32; }), "4", "disagree on the resources");
  EXPECT_SAID(with([](auto& f) { f.required_block = {1, 2, 3}; }), "4", "disagree on the resources");
  EXPECT_SAID(with([](auto& f) { f.cluster = {2, 1, 1}; }), "4", "disagree on the resources");
}

TEST_F(BundleLies, NamesThatNoTemplateHas) {
  EXPECT_SAID(Made(1, "../../../tmp/evil").record(), "4", "a name that no template can have");
  EXPECT_SAID(Made(1, "red\x1b[31m").record(), "4", "a name that no template can have");
  EXPECT_SAID(Made(1, "tool@other").record(), "4", "a name that no template can have");
  Made parameter(1), value(1), expression(1), version(1);
  parameter.facts.parameters.push_back({"../../N", "1"});
  EXPECT_SAID(parameter.record(), "4", "a name that no template can have");
  value.facts.parameters.push_back({"M", "1\n2"});
  EXPECT_SAID(value.record(), "4", "a name that no template can have");
  expression.facts.name_expression = "tool<\x1b]0;title\x07>";
  EXPECT_SAID(expression.record(), "4", "a name that no template can have");
  version.facts.compiler_version = "13.0\x7f";
  EXPECT_SAID(version.record(), "4", "a name that no template can have");
}

TEST_F(BundleLies, FactsThatAreDamaged) {
  cache::Record entry = Made(1).record();
  entry.facts += 'x';
  EXPECT_SAID(entry, "4", "facts are damaged");
  entry.facts = "";
  EXPECT_SAID(entry, "4", "facts are damaged");
}

TEST_F(BundleLies, ImagesThatAreNoneOrForAnotherArch) {
  cache::Record entry = Made(1).record();
  entry.image = "MZ";
  EXPECT_SAID(entry, "4", "no cubin");
  entry.image = Made(1, "tool", "sm_80").image;
  EXPECT_SAID(entry, "4", "is for sm_80");
}

TEST_F(BundleLies, KeyTextsThatAreNone) {
  cache::Record entry = Made(1).record();
  entry.key_text = "nothing";
  entry.key = compile::key_of_text(entry.key_text);
  EXPECT_SAID(entry, "4", "its key text does not begin with");
  entry.key_text = Made(1).key_text() + "header 99:short\n";
  entry.key = compile::key_of_text(entry.key_text);
  EXPECT_SAID(entry, "4", "its key text is damaged");
}

TEST_F(BundleLies, AnotherVersionIsSkippedAndCounted) {
  Made schema(1), facts(2);
  schema.schema = "1";
  facts.facts_version = "9";
  write_bundle("a.kb", {schema.record(), facts.record(), Made(3).record()});
  const Finished done = import(path("a.kb"), path("other"));
  EXPECT_EQ(done.status, 3);
  EXPECT_EQ(done.json()["other_version"], 2);
  EXPECT_EQ(done.json()["stored"], 1);
  EXPECT_EQ(kiln({"bundle", "verify", path("a.kb")}).status, 0);
}

TEST_F(BundleLies, ValuesWithPathsInThemMakeNoFiles) {
  Made made(1);
  made.facts.parameters.push_back({"M", "../../../tmp/evil"});
  write_bundle("a.kb", {made.record()});
  const auto files = [&] {
    std::set<std::string> out;
    for (const auto& file : std::filesystem::recursive_directory_iterator(path("other")))
      out.insert(file.path());
    return out;
  };
  ASSERT_EQ(import(path("a.kb"), path("other")).status, 0);
  EXPECT_EQ(files(), (std::set<std::string>{path("other/v1"), path("other/v1/data.mdb")}));
  EXPECT_FALSE(exists("/tmp/evil"));
  EXPECT_EQ(kiln({"ls", "--cache-dir", path("other")}).status, 0);
}

TEST_F(BundleLies, TimesThatNoExportWritesAreNotTaken) {
  Made made(1);
  made.facts.compile_ms = std::numeric_limits<double>::quiet_NaN();
  made.facts.ptxas_ms = -1e308;
  write_bundle("a.kb", {made.record(), Made(2).record()});
  ASSERT_EQ(import(path("a.kb"), path("other")).status, 0);
  const auto stats = kiln({"stats", "--cache-dir", path("other"), "--json"}).json();
  EXPECT_EQ(stats["entries"], 2);
  EXPECT_EQ(stats["compile_ms"], 0);
}

TEST_F(BundleLies, WhatCameBeforeDamageIsWholeAndStays) {
  cache::Record lie = Made(1).record();
  lie.image = "MZ";
  std::vector<cache::Record> entries{lie};
  for (std::uint32_t number = 2; number < 12; ++number) entries.push_back(Made(number).record());
  write_bundle("a.kb", entries);
  std::uint64_t before = 0;
  for (const cache::Record& entry : entries) before += entry.key < lie.key;
  const Finished done = import(path("a.kb"), path("other"));
  EXPECT_EQ(done.status, 4);
  EXPECT_EQ(done.json()["stored"], before);
  EXPECT_EQ(done.json()["error"]["code"], "damaged");
  EXPECT_EQ(kiln({"verify", "--cache-dir", path("other")}).status, 0);
  EXPECT_EQ(entries_in(path("other")), before);
}

TEST_F(BundleLies, TooMuchForMaxBytesIsRefused) {
  write_bundle("a.kb", {Made(1).record(), Made(2).record()});
  const Finished done = import(path("a.kb"), path("other"), {"--max-bytes", "1K"});
  EXPECT_EQ(done.status, 1);
  EXPECT_NE(done.err.find("--max-bytes"), std::string::npos) << done.err;
  EXPECT_EQ(import(path("a.kb"), path("other"), {"--max-bytes", "many"}).status, 2);
}
