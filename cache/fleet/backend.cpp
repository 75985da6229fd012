#include "cache/fleet/backend.hpp"

#include "base/process.hpp"
#include "cache/fleet/upkeep.hpp"

namespace kiln::fleet {
namespace {

/// The upkeep of a backend whose servers no command can look after.
class NoUpkeep : public Upkeep {
 public:
  std::vector<std::unique_ptr<ServerUpkeep>> servers() override { return {}; }
  Outcome reach(const Digest&) override { return {}; }
  MissedPage missed(const std::string&, std::size_t) override {
    MissedPage out;
    out.fault = Fault::refused, out.detail = "a tier of this kind cannot list the kernels that were missed";
    return out;
  }
  std::string missed_removal() const override { return {}; }
  Outcome forget(std::span<const std::string>) override { return {}; }
};

constinit base::ProcessWide<NoUpkeep> g_no_upkeep;

}  // namespace

Upkeep& Backend::upkeep() noexcept { return g_no_upkeep.get(); }

}  // namespace kiln::fleet
