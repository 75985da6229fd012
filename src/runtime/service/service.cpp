#include "runtime/service/service.hpp"

namespace kiln::runtime {

Service::Service(const Options& options, const std::string& memo_file, Events events,
                 source::WorkListKinds work_lists)
    : core_(options, memo_file, events),
      catalog_(core_.config().template_directories(), core_.config().about_templates(), work_lists),
      scopes_(core_, catalog_),
      own_(scopes_),
      operators_(own_, catalog_) {}

std::uint64_t Service::adopt() {
  std::uint64_t adopted = 0;
  const auto templates = scopes_.templates(own_);
  for (const auto& opened : templates) adopted += opened->adopt();
  for (const auto& opened : templates) opened->follow_generic();
  return adopted;
}

std::vector<KernelFault> Service::device_faults() {
  std::vector<KernelFault> out;
  for (const auto& opened : scopes_.templates(own_)) opened->take_faults(out);
  return out;
}

Used Service::used() {
  Used out;
  for (const auto& opened : scopes_.templates(own_)) opened->describe_loaded(out[kKernelSpace]);
  for (BlobSpace* space : blobs_.all()) space->describe_used(out[space->space()]);
  return out;
}

}  // namespace kiln::runtime
