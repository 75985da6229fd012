// A small engine. It opens two templates of an installed kiln, and launches a kernel of each on its own
// stream with an engine's arguments. It compares the results with the formula in double on the CPU. Without a
// GPU it compiles both kernels for sm_90a.
//
//   engine [--require-gpu]     exit status: 0 done, 1 an error, 2 results differ,
//                              77 no GPU although one was required
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "bfloat16.hpp"
#include "driver.hpp"
#include "kiln/kiln.hpp"

namespace {

constexpr int kHidden = 4096, kVocabulary = 32000;

const char* name_of(int outcome) {
  constexpr const char* names[] = {"memory", "disk", "layer", "remote", "compiled", "waited"};
  return outcome >= 0 && outcome < 6 ? names[outcome] : "unknown";
}

void report(const kiln::Kernel& kernel) {
  const kiln_kernel_info info = kernel.info();
  std::printf("%s: %s, key %s, %u registers, %u spill bytes\n", info.specialization, name_of(info.outcome),
              info.key, info.registers, info.spill_bytes);
}

/// Reproducible numbers in [-1, 1), not symmetric.
float number(std::size_t i) {
  return static_cast<float>((i * 2654435761u >> 8) % 65536) / 32768.0f - 1.0f + 0.125f;
}

/// Compares element by element; true when the relative RMS error is within `tolerance`.
class Comparison {
 public:
  void add(double got, double expected) {
    const double error = std::fabs(got - expected);
    if (!(error <= max_error_)) max_error_ = error;  // NaN too
    squares_ += error * error, reference_ += expected * expected;
  }
  bool within(double tolerance, const char* what) const {
    const double rms = std::sqrt(squares_ / reference_);
    std::printf("%s: max error %.3g, relative RMS error %.3g (tolerance %.3g)\n", what, max_error_, rms,
                tolerance);
    return rms <= tolerance;
  }

 private:
  double max_error_ = 0, squares_ = 0, reference_ = 0;
};

bool compare_rms_norm(const std::vector<BFloat16>& x, const std::vector<BFloat16>& residual,
                      const std::vector<BFloat16>& w, const std::vector<BFloat16>& out,
                      const std::vector<BFloat16>& sum, int rows, double eps) {
  Comparison normalised, added;
  for (int r = 0; r < rows; ++r) {
    const std::size_t first = static_cast<std::size_t>(r) * kHidden;
    double squares = 0;
    const auto v = [&](int i) {
      const auto at = first + static_cast<std::size_t>(i);
      return static_cast<double>(x[at]) + static_cast<double>(residual[at]);
    };
    for (int i = 0; i < kHidden; ++i) squares += v(i) * v(i);
    const double scale = 1 / std::sqrt(squares / kHidden + eps);
    for (int i = 0; i < kHidden; ++i) {
      const auto at = first + static_cast<std::size_t>(i);
      normalised.add(static_cast<double>(out[at]),
                     v(i) * scale * static_cast<double>(w[static_cast<std::size_t>(i)]));
      added.add(static_cast<double>(sum[at]), v(i));
    }
  }
  const bool a = normalised.within(4e-3, "rms_norm, out"), b = added.within(4e-3, "rms_norm, residual");
  return a && b;
}

bool compare_softmax(const std::vector<float>& x, const std::vector<float>& out, int rows,
                     double temperature) {
  Comparison comparison;
  for (int r = 0; r < rows; ++r) {
    const float* row = x.data() + static_cast<std::size_t>(r) * kVocabulary;
    double sum = 0;
    for (int i = 0; i < kVocabulary; ++i) sum += std::exp(row[i] / temperature);
    for (int i = 0; i < kVocabulary; ++i)
      comparison.add(out[static_cast<std::size_t>(r) * kVocabulary + static_cast<std::size_t>(i)],
                     std::exp(row[i] / temperature) / sum);
  }
  return comparison.within(4e-6, "softmax, out");
}

int run_on_gpu(kiln::Service& service, const Driver& driver) {
  constexpr int rows = 7, requests = 3;
  constexpr float eps = 1e-5f, temperature = 0.7f;
  driver.use_first_device();
  const kiln::KernelTemplate rms_norm = service.open("rms_norm"), softmax = service.open("softmax");
  const kiln::Kernel norm = rms_norm.get({{"T", kiln::Dtype::bf16}, {"H", kHidden}, {"FUSED_ADD", true}});
  const kiln::Kernel sample = softmax.get(kiln::Dtype::f32, kVocabulary);
  report(norm);
  report(sample);

  std::vector<BFloat16> x(rows * kHidden), residual(rows * kHidden), w(kHidden), out(rows * kHidden);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = BFloat16(3 * number(i)), residual[i] = BFloat16(number(7 * i + 1));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = BFloat16(number(3 * i));
  std::vector<float> logits(requests * kVocabulary), probabilities(requests * kVocabulary);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 10 * number(i);

  BFloat16 *d_x = driver.upload(x), *d_residual = driver.upload(residual), *d_w = driver.upload(w),
           *d_out = driver.upload(out);
  float *d_logits = driver.upload(logits), *d_probabilities = driver.upload(probabilities);
  const CUstream first = driver.make_stream(), second = driver.make_stream();
  norm(first, d_out, d_x, d_w, rows, kHidden, kHidden, eps, d_residual, kHidden);
  sample(second, d_probabilities, d_logits, requests, kVocabulary, kVocabulary, temperature);
  driver.synchronize(first);
  driver.synchronize(second);
  const bool a = compare_rms_norm(x, residual, w, driver.download(d_out, out.size()),
                                  driver.download(d_residual, residual.size()), rows, eps);
  const bool b =
      compare_softmax(logits, driver.download(d_probabilities, probabilities.size()), requests, temperature);
  return a && b ? 0 : 2;
}

int compile_only(kiln::Service& service) {
  const auto compile = [&](const char* name, kiln::Dtype type, int size) {
    const kiln::Image image = service.open(name, kiln::Device::none("sm_90a")).compile(type, size);
    std::printf("%s for %s: %s, key %s, %zu bytes\n", image.specialization().c_str(), image.arch().c_str(),
                name_of(static_cast<int>(image.outcome())), image.key().c_str(), image.cubin().size());
  };
  compile("rms_norm", kiln::Dtype::bf16, kHidden);
  compile("softmax", kiln::Dtype::f32, kVocabulary);
  std::printf("both kernels are in the cache; without a GPU nothing was launched\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const bool require_gpu = argc > 1 && std::strcmp(argv[1], "--require-gpu") == 0;
  std::string why;
  const Driver* driver = Driver::find(why);
  if (!driver) std::printf("no GPU: %s\n", why.c_str());
  if (!driver && require_gpu) return 77;
  kiln::Service service;
  return driver ? run_on_gpu(service, *driver) : compile_only(service);
} catch (const kiln::CompileError& error) {
  std::fprintf(stderr, "engine: %s\n%s\n", error.what(), error.log().c_str());
  return 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "engine: %s\n", error.what());
  return 1;
}
