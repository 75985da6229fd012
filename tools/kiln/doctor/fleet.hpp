// Probes of the fleet's tier: its settings, and whether each server answers and is configured for kiln.
#pragma once

#include "cache/fleet/tier.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Probes the fleet's tier, when one is configured.
void probe_remote(Context& context, Findings& out);
/// Reports for each server of a tier whether it answers, and which of its settings should change.
void probe_servers(fleet::Tier& tier, Findings& out);
/// The setting's value with passwords removed.
std::string shown_value(const runtime::Setting& setting);

}  // namespace kiln::cli
