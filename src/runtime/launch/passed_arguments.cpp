#include "runtime/launch/passed_arguments.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace kiln::runtime {
namespace {

using source::PassedArgument;

constexpr std::size_t kStructAlignment = 64;  // of a struct that holds a CUtensorMap

std::uint64_t pointer_of(const void* data) {
  std::uint64_t address;
  std::memcpy(&address, data, sizeof address);
  return address;
}

/// The position in the recipe of the manifest's map `index`, which the kernel gets.
std::size_t position_of(const LaunchRecipe& recipe, std::size_t index) {
  std::size_t i = 0;
  while (recipe.tensor_maps[i].index() != index) ++i;
  return i;
}

}  // namespace

PassedArguments::PassedArguments(const KernelDescription& kernel, const toolchain::Driver& driver)
    : kernel_(kernel), driver_(driver) {
  const auto& maps = kernel_.recipe.tensor_maps;
  for (std::size_t i = 0; i < maps.size(); ++i) {
    caches_.push_back(std::make_unique<TensorMapCache>(1 + maps[i].varying().size()));
    if (maps[i].spec().in < 0) continue;
    const auto argument = static_cast<std::size_t>(maps[i].spec().in);
    const std::size_t bytes = kernel_.bytes_of(argument);
    const std::int64_t offset = maps[i].spec().offset.evaluate(kernel_.recipe.slots);
    if (offset < 0 || offset % static_cast<std::int64_t>(kStructAlignment) != 0 ||
        static_cast<std::uint64_t>(offset) + source::kTensorMapBytes > bytes)
      kernel_.fail(Errc::requirement,
                   "tensor map '" + maps[i].spec().name + "': offset = " + maps[i].spec().offset.text() +
                       " = " + std::to_string(offset) +
                       " must be a multiple of 64 that leaves 128 bytes of the " + std::to_string(bytes) +
                       " of '" + kernel_.manifest.arguments[argument].name + "'");
    auto holder = std::find_if(structs_.begin(), structs_.end(),
                               [&](const Struct& s) { return s.argument == argument; });
    if (holder == structs_.end()) {
      structs_.push_back({argument, bytes, struct_bytes_, {}});
      holder = std::prev(structs_.end());
      struct_bytes_ += bytes;
    }
    for (const Struct::Held& other : holder->held)
      if (static_cast<std::size_t>(offset) < other.offset + source::kTensorMapBytes &&
          other.offset < static_cast<std::size_t>(offset) + source::kTensorMapBytes)
        kernel_.fail(Errc::requirement, "tensor maps '" + maps[other.map].spec().name + "' and '" +
                                            maps[i].spec().name + "' overlap in '" +
                                            kernel_.manifest.arguments[argument].name + "'");
    holder->held.push_back({i, static_cast<std::size_t>(offset)});
  }
  for (const PassedArgument& passed : kernel_.recipe.passed) {
    const auto copied = std::find_if(structs_.begin(), structs_.end(),
                                     [&](const Struct& s) { return s.argument == passed.index; });
    if (passed.from == PassedArgument::From::tensor_map)
      sources_.push_back({Source::From::map, position_of(kernel_.recipe, passed.index)});
    else if (passed.from == PassedArgument::From::constant)
      sources_.push_back({Source::From::constant, passed.index});
    else if (copied != structs_.end())
      sources_.push_back({Source::From::copied_struct, copied->at});
    else
      sources_.push_back({Source::From::call, passed.index});
  }
}

/// A map of an argument that was left out has no address to be of: the kernel gets zeros.
void PassedArguments::make_map(std::size_t i, PreparedLaunch& out) const {
  const TensorMapRecipe& map = kernel_.recipe.tensor_maps[i];
  auto& into = out.maps[i];
  const std::uint64_t address = pointer_of(out.parameters[static_cast<std::size_t>(map.spec().of)]);
  if (address == 0) {
    if (!map.array().optional && map.array().exists.empty())
      kernel_.fail(Errc::invalid_argument, "argument '" + map.array().name + "' is null, and tensor map '" +
                                               map.spec().name + "' is made of it");
    into.fill(0);
    return;
  }
  std::array<std::uint64_t, 1 + TensorMapShape::properties> key;
  key[0] = address;
  std::size_t words = 1;
  for (const TensorMapRecipe::Varying& property : map.varying())
    key[words++] = static_cast<std::uint64_t>(property.of(out.slots));
  const std::span<const std::uint64_t> wanted(key.data(), words);
  if (caches_[i]->find(wanted, into.data())) return;
  const TensorMapShape shape = map.shape(wanted.subspan(1));
  if (const std::string why = map.problem(address, shape); !why.empty()) kernel_.fail(Errc::requirement, why);
  const EncodedTensorMap made = map.encode(driver_, address, shape, "launching " + kernel_.name);
  caches_[i]->put(wanted, made);
  into = made.words;
}

void PassedArguments::copy_structs(PreparedLaunch& out) const {
  out.structs = std::make_unique<std::byte[]>(struct_bytes_);
  for (const Struct& s : structs_) {
    std::byte* const copy = out.structs.get() + s.at;
    std::memcpy(copy, out.parameters[s.argument], s.bytes);
    for (const Struct::Held& held : s.held)
      std::memcpy(copy + held.offset, out.maps[held.map].data(), source::kTensorMapBytes);
  }
}

void* PassedArguments::constant(std::size_t i, PreparedLaunch& out) const {
  const LaunchRecipe::Constant& constant = kernel_.recipe.constants[i];
  if (constant.value.empty()) return const_cast<std::uint64_t*>(&constant.bits);  // the driver does not write
  const std::int64_t number = constant.value.evaluate(out.slots);
  if (is_integer(constant.kind) && !fits(constant.kind, number)) {
    kernel_.fail(Errc::requirement, "the kernel's constant '" + kernel_.manifest.constants[i].text +
                                        "' = " + std::to_string(number) + " does not fit its type");
  }
  out.constants[i] = constant.bits_for(number);
  return &out.constants[i];
}

void PassedArguments::replace(PreparedLaunch& out) const {
  for (std::size_t i = 0; i < kernel_.recipe.tensor_maps.size(); ++i) make_map(i, out);
  if (!structs_.empty()) copy_structs(out);
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    switch (source.from) {
      case Source::From::call:
        out.replaced[i] = out.parameters[source.at];
        break;
      case Source::From::map:
        out.replaced[i] = out.maps[source.at].data();
        break;
      case Source::From::copied_struct:
        out.replaced[i] = out.structs.get() + source.at;
        break;
      case Source::From::constant:
        out.replaced[i] = constant(source.at, out);
    }
  }
  out.passed = out.replaced.data();
}

}  // namespace kiln::runtime
