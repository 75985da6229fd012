// The fleet's tier: its settings, and whether each server answers and is set up for it.
#pragma once

#include "cache/fleet/tier.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// The fleet's tier, if one is configured.
void probe_remote(Context& context, Findings& out);
/// Each server of a tier: whether it answers, and what ought to be set otherwise on it.
void probe_servers(fleet::Tier& tier, Findings& out);
/// Without passwords.
std::string shown_value(const runtime::Setting& setting);

}  // namespace kiln::cli
