#include "tools/kiln/import/sizes.hpp"

#include <algorithm>
#include <charconv>

namespace kiln::cli {
namespace {

void take_size(ImportArgument& argument, std::uint32_t size) {
  if (argument.type == "struct" || bytes_of(argument.type) == size) return;
  if (!argument.sized_by_image)
    argument.todo = "the declaration reads as " + argument.type + ", and the image has " +
                    std::to_string(size) + " bytes";
  argument.type = "struct<" + std::to_string(size) + '>';
  argument.sized_by_image = true;
}

template <class Three>
std::vector<std::string> dimensions(const Three& three) {
  std::vector<std::string> out;
  for (const auto v : three) out.push_back(std::to_string(std::max<std::uint32_t>(v, 1)));
  while (out.size() > 1 && out.back() == "1") out.pop_back();
  return out;
}

}  // namespace

std::uint32_t bytes_of(const std::string& type) {
  if (type == "struct") return 0;
  if (type == "tensormap") return 128;
  if (type.starts_with("struct<")) {
    std::uint32_t out = 0;
    std::from_chars(type.data() + 7, type.data() + type.size(), out);
    return out;
  }
  return type == "i32" || type == "u32" || type == "f32" ? 4 : 8;
}

void take_sizes(ImportDraft& draft, const compile::Facts& facts) {
  const std::size_t declared = draft.arguments.size(), there = facts.arguments.size();
  const std::string differ = "the declaration reads as " + std::to_string(declared) +
                             " arguments, and the image has " + std::to_string(there);
  draft.arguments.resize(std::min(declared, there));
  if (declared > there && there > 0) draft.arguments.back().todo = differ;
  for (const compile::ArgumentFact& fact : facts.arguments) {
    if (fact.ordinal >= draft.arguments.size()) {
      ImportArgument hidden;
      hidden.name = "arg" + std::to_string(draft.arguments.size());
      hidden.type = "struct<" + std::to_string(fact.size) + '>';
      hidden.declared = "not seen in the declaration";
      hidden.todo = differ;
      hidden.sized_by_image = true;
      draft.arguments.push_back(std::move(hidden));
      continue;
    }
    take_size(draft.arguments[fact.ordinal], fact.size);
  }
  if (facts.required_block[0] > 0) draft.block = dimensions(facts.required_block);
  if (facts.cluster[0] > 0 && draft.cluster.empty()) draft.cluster = dimensions(facts.cluster);
}

}  // namespace kiln::cli
