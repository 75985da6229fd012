// Two processes contend for the locks that keep a cache whole and make one compile per kernel.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Two processes at the gate of a store that is made in `directory`: a put waits for the other's lock, and
/// gets it when the other is killed.
void probe_gate(const std::string& directory, Findings& out);
/// The same for the flight lock of one key, in /dev/shm, and whether others see who holds it.
void probe_flight(Findings& out);

}  // namespace kiln::cli
