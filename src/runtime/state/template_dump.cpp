#include "runtime/state/template_dump.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "kiln/error.hpp"
#include "manifest/toml/tree.hpp"

namespace kiln::runtime {
namespace {

/// Returns `manifest` with the source's name in `table` changed from `from` to `to`. Sources from memory have
/// no file, so two templates may use one name. `table` may come from a text before earlier changes, because a
/// change leaves the lines where they are.
std::string with_source(std::string manifest, const source::TomlValue* table, const std::string& from,
                        const std::string& to) {
  const source::TomlValue* place = table ? table->find("source") : nullptr;
  if (from == to || !place) return manifest;
  std::size_t begin = 0;
  for (int line = 1; line < place->line; ++line) begin = manifest.find('\n', begin) + 1;
  const std::size_t end = std::min(manifest.find('\n', begin), manifest.size());
  for (const char quote : {'"', '\''}) {
    const std::string said = quote + from + quote;
    const std::size_t at = manifest.find(said, manifest.find("source", begin));
    if (at == std::string::npos || at >= end) continue;
    return manifest.replace(at, said.size(), '"' + to + '"');
  }
  return manifest;
}

bool same(const std::string& file, const std::string& bytes) {
  const auto content = base::read_file(file);
  return content && content->bytes == bytes;
}

}  // namespace

bool dump_template(const std::string& directory, const std::string& name, const source::MemoryTemplate& in,
                   source::WorkListKinds work_lists) {
  const std::string source = name + ".cu", reference = name + ".reference.cu";
  const source::Manifest before = source::parse_manifest(in.manifest, "<memory>", work_lists);
  const source::TomlValue tree = source::parse_toml(in.manifest, "<memory>");
  std::string manifest = with_source(in.manifest, tree.find("template"), before.kernel.source, source);
  if (before.reference)
    manifest = with_source(manifest, tree.find("reference"), before.reference->source, reference);
  if (const source::TomlValue* archs = tree.find("arch")) {  // each arch may name the template's source
    for (const auto& [arch, over] : archs->members)
      manifest = with_source(manifest, &over, before.kernel.source, source);
  }
  const source::Manifest after = source::parse_manifest(manifest, "<memory>", work_lists);
  const bool variants_too =
      std::all_of(after.variants.begin(), after.variants.end(),
                  [&](const auto& variant) { return variant.second->kernel.source == source; });
  if (after.name != name || after.kernel.source != source || !variants_too ||
      (before.reference && after.reference->source != reference)) {
    throw Error(Errc::io, "the manifest of '" + name + "' writes the name of its source in a way that kiln " +
                              "cannot change to '" + source + "'");
  }

  const std::string base = directory + '/' + name;
  struct stat st {};
  if (::stat((base + ".toml").c_str(), &st) == 0) {
    return same(base + ".toml", manifest) && same(base + ".cu", in.source) &&
           (!before.reference || same(base + ".reference.cu", in.reference));
  }
  if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST)
    throw Error(Errc::io, "cannot create '" + directory + "': " + std::strerror(errno));
  base::write_file(base + ".cu", in.source);
  if (before.reference) base::write_file(base + ".reference.cu", in.reference);
  base::write_file(base + ".toml", manifest);  // last: a template with a manifest is whole
  return true;
}

}  // namespace kiln::runtime
