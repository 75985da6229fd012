#include "tools/kiln/run/fill.hpp"

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

constexpr unsigned kThreads = 256;

bool takes_out_n_seed(const compile::Facts& facts) {
  return facts.arguments.size() == 3 &&
         std::all_of(facts.arguments.begin(), facts.arguments.end(),
                     [](const compile::ArgumentFact& argument) { return argument.size == 8; });
}

}  // namespace

FillKernel::FillKernel(runtime::Service& service, PrimaryContext& gpu, const runtime::KernelTemplate& opened,
                       const source::Resolved& resolved, const std::string& instantiate,
                       const std::string& argument)
    : driver_(gpu.driver()) {
  const bool reference = variant_for(opened.origin().manifest, resolved.arch).reference.has_value();
  const source::Instantiation unit = source::with_entry_point(
      source::instantiate(opened.shared_origin(), resolved,
                          reference ? source::Which::reference : source::Which::kernel),
      instantiate);
  what_ = "fill '" + unit.name_expression + "' of argument '" + argument + '\'';
  const compile::Compiled compiled = service.core().compile_alone(unit, false);
  if (!takes_out_n_seed(compiled.facts)) {
    throw Error(Errc::manifest, opened.origin().manifest.file + ": " + what_ +
                                    " must take (T* out, long long n, unsigned long long seed)");
  }
  std::string refusal;
  library_ = runtime::Library::load(driver_, compiled.image, {{compiled.facts.lowered_name}, {}},
                                    "loading " + what_, refusal);
  if (!library_) throw Error(Errc::driver, "the driver refuses the image of " + what_ + ": " + refusal);
}

void FillKernel::launch(const Buffer& buffer, std::uint64_t elements, std::uint64_t seed) const {
  toolchain::LaunchConfig config;
  config.grid_x =
      static_cast<unsigned>(std::min<std::uint64_t>((elements + kThreads - 1) / kThreads, 0x7fffffff));
  config.block_x = kThreads;
  toolchain::CUdeviceptr out = buffer.address();
  auto n = static_cast<long long>(elements);
  auto drawn = static_cast<unsigned long long>(seed);
  void* arguments[] = {&out, &n, &drawn};
  driver_.check(driver_.cuLaunchKernelEx(&config, library_->function(), arguments, nullptr),
                "cuLaunchKernelEx", "launching " + what_);
}

}  // namespace kiln::cli
