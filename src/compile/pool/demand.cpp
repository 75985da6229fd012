#include "compile/pool/demand.hpp"

namespace kiln::compile {
namespace {

constexpr std::uint64_t kCompilerBytes = 110'000'000, kPerHeaderByte = 30;

}  // namespace

Demand demand_of(const source::Instantiation& unit, const source::Closure& closure,
                 base::Clock::duration compile_limit) {
  std::uint64_t bytes = unit.source.size();
  for (const source::ClosureFile& file : closure.files) bytes += file.stamp.size;
  Demand out;
  out.subject = unit.unit + ' ' + unit.resolved.arch.name();
  out.what = unit.resolved.specialization.to_string() + " for " + unit.resolved.arch.name();
  out.memory = kCompilerBytes + kPerHeaderByte * bytes;
  out.compile_limit = compile_limit;
  return out;
}

}  // namespace kiln::compile
