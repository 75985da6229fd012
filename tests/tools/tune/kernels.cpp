// The kernels of the tune tests on the CPU, preloaded into the command over the fake
// driver. They compute, so that checks mean something. The environment sets their time and
// faults, by the number of threads of a block.
// - TUNE_US=32=9,64=5: microseconds of a launch with 32 and with 64 threads (default 10)
// - TUNE_OTHER_BITS=64: a block of 64 threads changes the last bit of its results
// - TUNE_WRONG=64: a block of 64 threads computes something else
// - TUNE_NAN=64: a block of 64 threads writes a NaN
// - TUNE_OUTSIDE=64: a block of 64 threads writes beyond its output
// - TUNE_UNSTEADY=1: the last bits change from launch to launch
// - TUNE_SLEEP_MS=20: wall time of each launch
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tools/own_kernels.hpp"

namespace {

using kiln::test::compare, kiln::test::fill;

long number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atol(text) : 0;
}

/// The faults that the environment asks for, read once, because a search makes thousands of launches.
const struct Faults {
  unsigned other_bits = static_cast<unsigned>(number("TUNE_OTHER_BITS"));
  unsigned wrong = static_cast<unsigned>(number("TUNE_WRONG"));
  unsigned nan = static_cast<unsigned>(number("TUNE_NAN"));
  unsigned outside = static_cast<unsigned>(number("TUNE_OUTSIDE"));
  bool unsteady = number("TUNE_UNSTEADY") != 0;
  long sleep_ms = number("TUNE_SLEEP_MS");
} kFaults;

double microseconds(unsigned threads) {
  const char* text = std::getenv("TUNE_US");
  const std::string all = std::string(",") + (text ? text : ""), wanted = ',' + std::to_string(threads) + '=';
  const auto at = all.find(wanted);
  return at == std::string::npos ? 10 : std::atof(all.c_str() + at + wanted.size());
}

float last_bit_changed(float value) { return std::nextafter(value, 1e30f); }

/// tuned<N, THREADS>(float* out, const float* x, int n): out = N * x, where N is in the kernel's name.
void tuned(const kiln_fake_launch& k, long factor) {
  auto* out = argument<float*>(k, 0);
  const auto* x = argument<const float*>(k, 1);
  const auto n = argument<std::int32_t>(k, 2);
  const unsigned threads = k.block[0];
  static unsigned launches = 0;
  ++launches;
  for (int i = 0; i < n; ++i) {
    out[i] = static_cast<float>(factor) * x[i];
    if (threads == kFaults.wrong) out[i] += 1;
    if (threads == kFaults.other_bits) out[i] = last_bit_changed(out[i]);
    if (kFaults.unsteady && launches % 2) out[i] = last_bit_changed(out[i]);
  }
  if (threads == kFaults.nan) out[0] = std::nanf("");
  if (threads == kFaults.outside) out[n] = 1;
  if (kFaults.sleep_ms) ::usleep(static_cast<useconds_t>(1000 * kFaults.sleep_ms));
  kiln_fake_spend(microseconds(threads));
}

void reference(const kiln_fake_launch& k, long factor) {
  auto* out = argument<double*>(k, 0);
  const auto* x = argument<const float*>(k, 1);
  for (int i = 0; i < argument<std::int32_t>(k, 2); ++i) out[i] = static_cast<double>(factor) * x[i];
}

/// The first template argument in the mangled name, such as 3 in "...ILi3E...".
long first_number(const char* name) {
  const char* at = std::strstr(name, "ILi");
  return at ? std::atol(at + 3) : 0;
}

void on_launch(const kiln_fake_launch* launch, void*) {
  const std::string name = launch->kernel;
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("reference")) return reference(*launch, first_number(launch->kernel));
  if (has("tuned")) return tuned(*launch, first_number(launch->kernel));
  if (has("compare")) return compare(*launch);
  if (has("fill")) return fill(*launch);
}

[[maybe_unused]] const bool kRegistered = (kiln_fake_on_launch(on_launch, nullptr), true);

}  // namespace
