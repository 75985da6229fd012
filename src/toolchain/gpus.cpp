#include "toolchain/gpus.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace kiln::toolchain {
namespace {

struct GpuRow {
  const char* name;
  std::array<int, 4> capabilities;  ///< zeros after the last one
};

constexpr std::array<std::string_view, 4> kGenerations{"blackwell", "hopper", "ada", "ampere"};

constexpr GpuRow kRows[]{
    {"blackwell", {100, 103, 120, 121}},
    {"hopper", {90}},
    {"ada", {89}},
    {"ampere", {80, 86}},
    {"B300", {103}},
    {"GB300", {103}},
    {"B200", {100}},
    {"GB200", {100}},
    {"B100", {100}},
    {"RTX 5090", {120}},
    {"RTX PRO 6000", {120}},
    {"GB10", {121}},
    {"H200", {90}},
    {"GH200", {90}},
    {"H100", {90}},
    {"H800", {90}},
    {"H20", {90}},
    {"L40S", {89}},
    {"L40", {89}},
    {"L20", {89}},
    {"L4", {89}},
    {"RTX 6000 Ada", {89}},
    {"RTX 4090", {89}},
    {"RTX 4080", {89}},
    {"A100", {80}},
    {"A800", {80}},
    {"A30", {80}},
    {"A40", {86}},
    {"A10", {86}},
    {"A10G", {86}},
    {"RTX 3090", {86}},
    {"orin", {87}},
    {"thor", {110}},
};

std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != ' ' && c != '-' && c != '_')
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::vector<int> capabilities_of(std::string_view name) {
  const std::string wanted = plain(name);
  std::vector<int> out;
  for (const GpuRow& row : kRows) {
    if (plain(row.name) != wanted) continue;
    for (const int capability : row.capabilities)
      if (capability != 0) out.push_back(capability);
    break;
  }
  return out;
}

std::vector<int> capabilities_of_generations() {
  std::vector<int> out;
  for (const std::string_view generation : kGenerations)
    for (const int capability : capabilities_of(generation)) out.push_back(capability);
  std::sort(out.begin(), out.end());
  return out;
}

std::string known_gpus() {
  std::string out;
  for (const GpuRow& row : kRows) out += (out.empty() ? "" : ", ") + std::string(row.name);
  return out;
}

}  // namespace kiln::toolchain
