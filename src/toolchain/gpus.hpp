// The compute capabilities of NVIDIA's GPUs, by the names that people use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::toolchain {

/// The compute capabilities, such as {100, 103, 120, 121}, of a GPU ("B200", "RTX 5090") or of a generation
/// ("blackwell", which has no Jetson or DRIVE: name them as orin and thor). Case, spaces, "-" and "_" do not
/// matter. Empty when the name is not known.
/// Source: NVIDIA, "CUDA GPU Compute Capability", as of CUDA 13.0.
std::vector<int> capabilities_of(std::string_view name);

/// The compute capabilities of all generations, ascending.
std::vector<int> capabilities_of_generations();

/// The names that capabilities_of knows, for an error message: generations first.
std::string known_gpus();

}  // namespace kiln::toolchain
