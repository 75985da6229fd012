#include "runtime/kernels/wanted.hpp"

#include <algorithm>

#include "kiln/kernel_template.hpp"

namespace kiln::runtime {

TunedCall CallResolver::resolve(std::span<const Value> values, const GetRequest& request, source::Archs archs,
                                Disk disk) const {
  const Permission now = core_.permission(request.asked());
  return resolve_tuned(core_.state().files, core_.choices(), origin_, values, target_.arch,
                       target_.device.name, archs, now.disk ? disk : Disk::left_alone, request.deadline);
}

Wanted CallResolver::want(std::span<const Value> values, const GetRequest& request, Disk disk,
                          source::Archs archs) const {
  Wanted wanted;
  TunedCall call = resolve(values, request, archs, disk);
  wanted.resolved = std::move(call.resolved), wanted.undecided = std::move(call.undecided);
  if (request.which == source::Which::kernel) wanted.files = std::move(call.files);
  wanted.exact.set(wanted.resolved.slots.data(), packing_.count());
  if (disk == Disk::asked && is_open(core_, wanted, request.asked()))
    return wanted;  // the next call with these values may get a choice
  kiln_value given[source::kMaxParameters];
  for (std::size_t i = 0; i < values.size(); ++i) given[i] = kiln::detail::to_c(values[i]);
  PackedParameters packed;
  if (packing_.pack(nullptr, given, values.size(), packed)) wanted.given = packed;
  return wanted;
}

Wanted CallResolver::decided(Wanted wanted, const GetRequest& request) const {
  if (wanted.undecided.empty()) return wanted;
  const auto& [template_name, parameters] = wanted.resolved.specialization;
  const std::vector<std::string>& open = wanted.resolved.open;
  std::vector<Value> values;
  for (const Parameter& p : parameters)
    values.push_back(std::find(open.begin(), open.end(), p.name) != open.end()
                         ? Value()
                         : Value(std::string_view(p.value)));
  Wanted out = want(values, request, Disk::asked, source::Archs::any);
  out.given = out.undecided.empty() ? wanted.given : std::nullopt;
  return out;
}

}  // namespace kiln::runtime
