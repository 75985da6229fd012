// Probes with two processes that contend for a lock: the store's gate, and the flight lock of a key.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Two processes use the gate of a store made in `directory`. A put must wait for the other process's lock,
/// and must get the lock when that process is killed.
void probe_gate(const std::string& directory, Findings& out);
/// Does this with the flight lock of one key in /dev/shm, and checks that others see its holder.
void probe_flight(Findings& out);

}  // namespace kiln::cli
