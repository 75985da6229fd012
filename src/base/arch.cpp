#include "base/arch.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "kiln/error.hpp"

namespace kiln::base {
namespace {

constexpr std::uint32_t KiB = 1024;
constexpr int kFirstExact = 90, kFirstFamily = 100, kOrin = 87;

/// The compute capabilities that images are compiled for. A device may have a newer one.
constexpr std::array kCapabilities{75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121};

struct SmRow {
  int arch;
  SmLimits limits;
};

/// Source: CUDA C++ Programming Guide 13.0, "Compute Capabilities", the tables of technical specifications
/// and of shared memory capacity. Blocks are as in the toolkit's cuda_occupancy.h. From 8.0 on, the system
/// keeps 1 KiB of shared memory in each block.
constexpr SmRow kSmTable[] = {
    {75, {32, 16, 64 * KiB, 64 * KiB, 0}},      {80, {64, 32, 164 * KiB, 163 * KiB, KiB}},
    {86, {48, 16, 100 * KiB, 99 * KiB, KiB}},   {87, {48, 16, 164 * KiB, 163 * KiB, KiB}},
    {88, {48, 16, 100 * KiB, 99 * KiB, KiB}},   {89, {48, 24, 100 * KiB, 99 * KiB, KiB}},
    {90, {64, 32, 228 * KiB, 227 * KiB, KiB}},  {100, {64, 32, 228 * KiB, 227 * KiB, KiB}},
    {103, {64, 32, 228 * KiB, 227 * KiB, KiB}}, {110, {48, 24, 228 * KiB, 227 * KiB, KiB}},
    {120, {48, 24, 100 * KiB, 99 * KiB, KiB}},  {121, {48, 24, 100 * KiB, 99 * KiB, KiB}},
};

bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

}  // namespace

Arch Arch::parse(std::string_view text) {
  std::string_view digits = text;
  const bool ptx = digits.starts_with("compute_");
  if (ptx) digits.remove_prefix(8);
  if (digits.starts_with("sm_")) digits.remove_prefix(3);
  const bool base = take_suffix(digits, "_base"), family = !base && take_suffix(digits, "f"),
             exact_suffix = !base && !family && take_suffix(digits, "a");
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool number_ok =
      error == std::errc{} && end == digits.data() + digits.size() && number >= 50 && number < 1000;
  if (!number_ok || (ptx && (base || family || exact_suffix)) || (exact_suffix && number < kFirstExact) ||
      ((base || family) && number < kFirstFamily)) {
    throw Error(
        Errc::unsupported_arch,
        "unknown arch '" + std::string(text) +
            "': expected a compute capability such as 80, sm_80, sm_90a or sm_120 "
            "(kiln adds the 'a' from 9.0 on), or from 10.0 on a target for more GPUs, such as sm_100f "
            "or sm_100_base; compute_80 is PTX");
  }
  if (ptx) return {number, Features::ptx};
  if (base) return {number, Features::base};
  if (family) return {number, Features::family};
  return Arch(number);
}

std::string Arch::name() const {
  if (features == Features::ptx) return "compute_" + std::to_string(number);
  return compiler_name() + (features == Features::base && number >= kFirstExact ? "_base" : "");
}

std::string Arch::compiler_name() const {
  const char* suffix = features == Features::exact ? "a" : features == Features::family ? "f" : "";
  return "sm_" + std::to_string(number) + suffix;
}

bool Arch::runs_on(int device) const noexcept {
  if (number == device || (features == Features::ptx && number < device)) return true;
  if (features == Features::exact || number == kOrin || device == kOrin) return false;
  // The families of the compute capabilities so far are their major versions.
  return number / 10 == device / 10 && number < device;
}

std::vector<Arch> Arch::that_run_on(int device) {
  std::vector<Arch> out{Arch(device)};
  for (const Features features : {Features::family, Features::base}) {
    if (features == Features::family && device < kFirstFamily) continue;
    if (const Arch own{device, features}; own != out.front() && device >= kFirstFamily) out.push_back(own);
    for (auto number = kCapabilities.rbegin(); number != kCapabilities.rend(); ++number)
      if (const Arch older{*number, features}; *number != device && older.runs_on(device))
        out.push_back(older);
  }
  out.emplace_back(device, Features::ptx);
  for (auto number = kCapabilities.rbegin(); number != kCapabilities.rend(); ++number)
    if (*number < device) out.emplace_back(*number, Features::ptx);
  return out;
}

std::optional<SmLimits> sm_limits(Arch arch) noexcept {
  for (const SmRow& row : kSmTable)
    if (row.arch == arch.number) return row.limits;
  return std::nullopt;
}

SmLimits sm_limits_or_guess(Arch arch) noexcept {
  if (const auto known = sm_limits(arch)) return *known;
  const auto newest = std::find_if(std::rbegin(kSmTable), std::rend(kSmTable), [&](const SmRow& row) {
    return row.arch / 10 == arch.number / 10 && row.arch < arch.number;
  });
  if (newest != std::rend(kSmTable)) return newest->limits;
  return std::min_element(
             std::begin(kSmTable), std::end(kSmTable),
             [](const SmRow& a, const SmRow& b) { return a.limits.shared_bytes < b.limits.shared_bytes; })
      ->limits;
}

}  // namespace kiln::base
