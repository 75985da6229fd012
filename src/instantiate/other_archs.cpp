#include "instantiate/other_archs.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>

#include "kiln/error.hpp"

namespace kiln::source {
namespace {

std::vector<NamedText> all_names(const Instantiation& unit) {
  std::vector<NamedText> out;
  for (const auto* names : {&unit.entries, &unit.globals, &unit.exports})
    out.insert(out.end(), names->begin(), names->end());
  return out;
}

/// True when both are the same text for the compiler. The values behind the text are compared, too, because a
/// launch computes with them.
bool same_kernel(const Instantiation& a, const Instantiation& b) {
  const Manifest &manifest_a = a.manifest(), &manifest_b = b.manifest();
  const int values = manifest_a.slots.argument_slot(0);
  if (values != manifest_b.slots.argument_slot(0)) return false;
  const std::vector<NamedText> names_a = all_names(a), names_b = all_names(b);
  return std::equal(a.resolved.slots.begin(), a.resolved.slots.begin() + values, b.resolved.slots.begin()) &&
         a.unit == b.unit && a.name_expression == b.name_expression && a.options == b.options &&
         a.source_name == b.source_name && a.source == b.source &&
         std::equal(
             names_a.begin(), names_a.end(), names_b.begin(), names_b.end(),
             [](const NamedText& x, const NamedText& y) { return x.name == y.name && x.cpp == y.cpp; });
}

/// `exact` for another arch, or nothing when that is another kernel.
std::optional<Instantiation> for_arch(const Instantiation& exact, base::Arch arch) {
  std::vector<Value> values;
  for (const Parameter& p : exact.resolved.specialization.parameters)
    values.push_back(Value(std::string_view(p.value)));
  try {
    Instantiation out = instantiate(exact.origin, resolve(exact.origin->manifest, values, arch), exact.which);
    if (same_kernel(exact, out)) return out;
  } catch (const Error&) {  // a [[require]] refuses these values on that arch
  }
  return std::nullopt;
}

}  // namespace

std::vector<Instantiation> for_other_archs(const Instantiation& exact) {
  std::vector<Instantiation> out;
  for (const base::Arch arch : base::Arch::that_run_on(exact.resolved.arch.number)) {
    if (arch == exact.resolved.arch || !supports(exact.origin->manifest, arch)) continue;
    if (auto found = for_arch(exact, arch)) out.push_back(std::move(*found));
  }
  return out;
}

std::vector<base::Arch> covering_archs(const std::shared_ptr<const Template>& origin,
                                       std::span<const Value> values, std::span<const int> devices,
                                       std::vector<std::string>* refused) {
  std::map<base::Arch, std::vector<int>> serves;  // the devices that the image of an arch serves
  std::vector<int> left;
  std::exception_ptr why_none;
  const auto made_for = [&](base::Arch arch) -> std::optional<Resolved> {
    try {
      return resolve(origin->manifest, values, arch);
    } catch (const Error& error) {
      if (error.code() != Errc::requirement) throw;
      why_none = std::current_exception();
      if (refused && arch == base::Arch(arch.number)) refused->emplace_back(error.what());
      return std::nullopt;
    }
  };
  for (const int device : devices) {
    const base::Arch own(device);
    if (!supports(origin->manifest, own) || std::find(left.begin(), left.end(), device) != left.end())
      continue;
    std::optional<Resolved> resolved = made_for(own);
    if (!resolved) continue;
    left.push_back(device);
    serves[own].push_back(device);
    const Instantiation exact = instantiate(origin, std::move(*resolved));
    for (const Instantiation& other : for_other_archs(exact)) {
      if (other.resolved.arch.features == base::Features::ptx) continue;
      // The image will be made from `values`, whose defaults may be others on that arch.
      const std::optional<Resolved> made = made_for(other.resolved.arch);
      if (made && made->specialization == exact.resolved.specialization) serves[made->arch].push_back(device);
    }
  }
  if (left.empty() && why_none) std::rethrow_exception(why_none);
  if (left.empty())  // says why
    resolve(origin->manifest, values, devices.empty() ? base::Arch{} : base::Arch(devices.front()));
  std::vector<base::Arch> out;
  while (!left.empty()) {
    const auto count = [&](const auto& candidate) {
      return std::count_if(candidate.second.begin(), candidate.second.end(), [&](int device) {
        return std::find(left.begin(), left.end(), device) != left.end();
      });
    };
    const auto best = std::max_element(serves.begin(), serves.end(), [&](const auto& a, const auto& b) {
      const auto ca = count(a), cb = count(b);
      return ca != cb ? ca < cb : a.first.features > b.first.features;
    });
    out.push_back(best->first);
    std::erase_if(left, [&](int device) {
      return std::find(best->second.begin(), best->second.end(), device) != best->second.end();
    });
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace kiln::source
