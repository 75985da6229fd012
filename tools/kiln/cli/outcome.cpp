#include "tools/kiln/cli/outcome.hpp"

#include <cmath>
#include <cstdint>

#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

std::string_view name_of(Outcome outcome) noexcept {
  constexpr std::string_view names[] = {"memory", "disk", "layer", "remote", "compiled", "waited"};
  return names[static_cast<int>(outcome)];
}

std::string resources_of(const compile::EntryFacts& f) {
  const std::uint64_t spills = f.spill_bytes();
  std::string out =
      counted(f.registers, "register") + ", " + (spills ? human_bytes(spills) + " of spills" : "no spills");
  if (f.shared_bytes) out += ", " + human_bytes(f.shared_bytes) + " shared";
  if (f.stack_bytes) out += ", " + human_bytes(f.stack_bytes) + " stack";
  if (f.max_threads) out += ", at most " + counted(f.max_threads, "thread");
  if (f.cluster[0]) {
    out += ", cluster " + std::to_string(f.cluster[0]) + " x " + std::to_string(f.cluster[1]) + " x " +
           std::to_string(f.cluster[2]);
  }
  return out;
}

std::string phases_of(const compile::Facts& f) {
  const auto whole = [](double ms) { return std::to_string(std::lround(ms)); };
  if (f.compile_ms <= 0)
    return "by NVRTC " + f.compiler_version + "; compile times are not known for an entry from a bundle";
  std::string out = human_ms(f.compile_ms);
  if (f.frontend_ms + f.nvvm_ms + f.ptxas_ms > 0) {
    out += " (front end " + whole(f.frontend_ms) + ", NVVM " + whole(f.nvvm_ms) + ", ptxas " +
           whole(f.ptxas_ms) + ')';
  }
  return out + " with NVRTC " + f.compiler_version;
}

}  // namespace kiln::cli
