// Stores and bundles with entries like the path's, made without a compiler.
#pragma once

#include <sys/resource.h>

#include "base/hash.hpp"
#include "cache/bundle/writer.hpp"
#include "cache/trust/minisign.hpp"
#include "cache/trust/secret_key.hpp"
#include "compile/key/facts.hpp"
#include "compile/key/fields.hpp"
#include "compile/key/key.hpp"
#include "tests/support/fake_driver/make_cubin.hpp"
#include "tools/store_command.hpp"

namespace kiln::test {

/// An entry of `tool` with N = number. Its parts agree with each other. A test
/// that changes one part makes them disagree.
struct Made {
  explicit Made(std::uint32_t number, std::string unit = "tool", std::string arch = "sm_90a") {
    facts.unit = std::move(unit);
    facts.parameters = {{"N", std::to_string(number)}};
    facts.arch = std::move(arch);
    facts.name_expression = "tool<" + std::to_string(number) + ">";
    facts.lowered_name = "_Z4toolILi" + std::to_string(number) + "EEvPfi";
    facts.arguments = {{0, 8}, {1, 4}};
    facts.created_s = 1'700'000'000 + number;
    facts.compile_ms = 3.5 * number, facts.frontend_ms = 1;
    facts.log = "a remark\nptxas info    : Compile time = 0." + std::to_string(number) + " ms\nanother";
    facts.compiler_version = "13.0";
    CubinRecipe recipe;
    recipe.sm = facts.arch == "sm_80" ? 80 : 90;
    recipe.kernels = {make_kernel(facts.lowered_name, {8, 4})};
    facts.registers = recipe.kernels[0].registers;
    image = make_cubin(recipe);
  }
  std::string key_text() const {
    const auto field = [](const std::string& label, const std::vector<std::string>& values) {
      std::string out = label;
      for (const std::string& value : values) out += ' ' + std::to_string(value.size()) + ':' + value;
      return out + '\n';
    };
    std::string out = field("kiln-key", {schema}) + field("template", {facts.unit}) +
                      field("arch", {facts.arch}) + field("source", {base::digest_of(source).hex()}) +
                      field("name", {facts.name_expression});
    for (const Parameter& p : facts.parameters) out += field("parameter", {p.name, p.value});
    return out + field("toolchain", {"1"}) + field("facts", {facts_version}) + field("nvrtc", {nvrtc}) +
           field("builtins", {"def"});
  }
  Key key() const { return compile::key_of_text(key_text()); }
  cache::Record record() const { return {key(), compile::encode(facts), key_text(), image}; }

  compile::Facts facts;
  std::string image, source = "the source", nvrtc = "abc", schema{compile::kKeySchema},
                     facts_version = std::to_string(compile::kFactsVersion);
};

class BundleCommand : public StoreCommand {
 protected:
  /// Puts `tool` for N = first to last - 1 into the cache, or into the store in `directory`.
  void put(std::uint32_t first, std::uint32_t last, const std::string& directory = {}) const {
    const auto store = open(directory);
    for (std::uint32_t number = first; number < last; ++number)
      ASSERT_EQ(store->put(Made(number).record()).put, cache::Put::stored);
  }
  std::uint64_t entries_in(const std::string& directory) const {
    return exists(directory + "/v1/data.mdb") ? open(directory)->stats().entries : 0;
  }
  /// Writes a bundle of these entries, sorted. Nothing in the entries is checked.
  void write_bundle(const std::string& name, std::vector<cache::Record> entries) const {
    std::sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.key < b.key; });
    std::string out;
    bundle::Writer writer([&](std::string_view bytes) { out += bytes; });
    for (const cache::Record& entry : entries) writer.add(entry);
    writer.end();
    write(name, out);
  }
  std::string bytes_of(const std::string& name) const { return base::read_file(path(name))->bytes; }
  Finished import(const std::string& bundle, const std::string& directory, Arguments more = {}) {
    Arguments arguments{"bundle", "import", bundle, "--cache-dir", directory, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return kiln(arguments);
  }
};

}  // namespace kiln::test
