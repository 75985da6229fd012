// delta_recurrent and its reference against a step loop in double on the CPU, at small sizes. The loop is
// written from the papers' recurrence, so that a misreading that kernel and reference share is found.
#include <algorithm>
#include <utility>

#include "templates/kernel_fixture.hpp"

namespace kiln::testing::delta_recurrent {
namespace {

constexpr int kHeads = 2, kValueHeads = 4;

struct Case {
  int k, v;
  const char *gate, *input, *beta, *beta_input;
  bool norm;
};

class DeltaRecurrentTest : public KernelTest {
 protected:
  const std::vector<std::int64_t> bounds_ = {0, 0, 1, 18, 18, 27};  // five sequences, two of them empty
  const int sequences_ = static_cast<int>(bounds_.size()) - 1, tokens_ = static_cast<int>(bounds_.back());

  struct Inputs {
    std::vector<std::uint16_t> q, k, v, beta;
    std::vector<float> g, initial, a_log, bias;
  };
  struct Results {
    std::vector<double> out, states;
  };

  static std::vector<float> normal(std::size_t n, unsigned seed, float mean, float deviation) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution(mean, deviation);
    std::vector<float> out(n);
    std::generate(out.begin(), out.end(), [&] { return distribution(random); });
    return out;
  }

  Inputs inputs(const Case& c) const {
    const auto tokens = static_cast<std::size_t>(tokens_), k = static_cast<std::size_t>(c.k),
               v = static_cast<std::size_t>(c.v);
    Inputs in;
    in.q = random_bf16(tokens * kHeads * k, 1);
    in.k = random_bf16(tokens * kHeads * k, 2);
    if (!c.norm) {
      for (auto& x : in.k) x = float_to_bf16(bf16_to_float(x) * 0.8f / std::sqrt(static_cast<float>(c.k)));
    }
    in.v = random_bf16(tokens * kValueHeads * v, 3);
    in.beta = random_bf16(tokens * kValueHeads * (c.beta[0] == 'v' ? v : 1), 4);
    if (c.beta_input[0] == 'p') {
      for (auto& x : in.beta) x = float_to_bf16(1 / (1 + std::exp(-bf16_to_float(x))));
    }
    const bool logarithm = c.input[0] == 'l';
    in.g = normal(tokens * kValueHeads * (c.gate[0] == 'k' ? k : 1), 5, logarithm ? -0.3f : 0.0f,
                  logarithm ? 0.05f : 1.5f);
    in.initial = normal(static_cast<std::size_t>(sequences_) * kValueHeads * k * v, 6, 0, 1);
    in.a_log = normal(kValueHeads, 7, -2, 0.5f);
    in.bias = normal(kValueHeads * k, 8, 0, 1);
    return in;
  }

  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  Results on_the_cpu(const Case& c, const Inputs& in) const {
    Results r;
    r.out.resize(static_cast<std::size_t>(tokens_ * kValueHeads * c.v));
    r.states.assign(in.initial.begin(), in.initial.end());
    const double scale = 1 / std::sqrt(static_cast<double>(c.k));
    for (int n = 0; n < sequences_; ++n) {
      for (int hv = 0; hv < kValueHeads; ++hv) {
        double* state = r.states.data() + static_cast<std::ptrdiff_t>(n * kValueHeads + hv) * c.k * c.v;
        for (auto t = bounds_[static_cast<std::size_t>(n)]; t < bounds_[static_cast<std::size_t>(n) + 1];
             ++t) {
          step(c, in, static_cast<int>(t), hv, scale, state, r.out.data() + (t * kValueHeads + hv) * c.v);
        }
      }
    }
    return r;
  }

  static void step(const Case& c, const Inputs& in, int t, int hv, double scale, double* state, double* out) {
    const int head = hv * kHeads / kValueHeads, at = t * kValueHeads + hv;
    const auto row = [&](const std::vector<std::uint16_t>& x) {
      std::vector<double> values;
      double squares = 0;
      for (int i = 0; i < c.k; ++i) {
        values.push_back(bf16_to_float(x[static_cast<std::size_t>((t * kHeads + head) * c.k + i)]));
        squares += values.back() * values.back();
      }
      for (auto& value : values) value /= c.norm ? std::sqrt(squares + 1e-6) : 1;
      return values;
    };
    const auto q = row(in.q), k = row(in.k);
    const auto decay = [&](int i) {
      if (c.gate[0] == 'n') return 1.0;
      const bool key = c.gate[0] == 'k';
      double g = static_cast<double>(in.g[static_cast<std::size_t>(key ? at * c.k + i : at)]);
      if (c.input[0] == 'l') return std::exp(g);
      g += static_cast<double>(in.bias[static_cast<std::size_t>(key ? hv * c.k + i : hv)]);
      const double rate = std::exp(static_cast<double>(in.a_log[static_cast<std::size_t>(hv)]));
      return std::exp(c.input[0] == 's' ? -rate * std::log(1 + std::exp(g)) : -5 * sigmoid(rate * g));
    };
    for (int i = 0; i < c.k; ++i) {
      for (int j = 0; j < c.v; ++j) state[i * c.v + j] *= decay(i);
    }
    for (int j = 0; j < c.v; ++j) {
      double u = bf16_to_float(in.v[static_cast<std::size_t>(at * c.v + j)]), beta = 1, o = 0;
      if (c.beta[0] != 'n') {
        beta = bf16_to_float(in.beta[static_cast<std::size_t>(c.beta[0] == 'v' ? at * c.v + j : at)]);
        if (c.beta_input[0] != 'p') beta = sigmoid(beta) * (c.beta_input[0] == 't' ? 2 : 1);
      }
      for (int i = 0; i < c.k; ++i) u -= k[static_cast<std::size_t>(i)] * state[i * c.v + j];
      for (int i = 0; i < c.k; ++i) {
        state[i * c.v + j] += k[static_cast<std::size_t>(i)] * beta * u;
        o += q[static_cast<std::size_t>(i)] * state[i * c.v + j];
      }
      out[j] = o * scale;
    }
  }

  void check(const Case& c) {
    const Inputs in = inputs(c);
    const Results want = on_the_cpu(c, in);
    const Pair pair = get("delta_recurrent", {{"T", Dtype::bf16},
                                              {"K", c.k},
                                              {"V", c.v},
                                              {"GATE", c.gate},
                                              {"GATE_INPUT", c.input},
                                              {"BETA", c.beta},
                                              {"BETA_INPUT", c.beta_input},
                                              {"L2NORM", c.norm}});
    const DeviceArray q(*driver_, in.q), k(*driver_, in.k), v(*driver_, in.v), beta(*driver_, in.beta);
    const DeviceArray g(*driver_, in.g), initial(*driver_, in.initial), a_log(*driver_, in.a_log),
        bias(*driver_, in.bias);
    const DeviceArray bounds(*driver_, bounds_);
    const DeviceArray out(*driver_, std::vector<std::uint16_t>(want.out.size(), 0xffff));
    const DeviceArray state(*driver_, std::vector<float>(want.states.size(), NAN));
    const DeviceArray out_double(*driver_, std::vector<double>(want.out.size(), NAN)),
        state_double(*driver_, std::vector<double>(want.states.size(), NAN));
    const bool gated = c.gate[0] != 'n', raw = c.input[0] != 'l';
    const auto run = [&](const runtime::LoadedKernel& kernel, void* to, void* final_state) {
      launch(kernel, to, pointer(q), pointer(k), pointer(v), c.beta[0] == 'n' ? null() : pointer(beta),
             tokens_, sequences_, kHeads, kValueHeads, kHeads * c.k, kHeads * c.k, kValueHeads * c.v,
             kValueHeads * c.v, 0.0f, gated ? pointer(g) : null(), pointer(initial), final_state,
             pointer(bounds), raw ? pointer(a_log) : null(), raw ? pointer(bias) : null(), -5.0f);
    };
    run(*pair.reference, pointer(out_double), pointer(state_double));
    run(*pair.kernel, pointer(out), pointer(state));

    const std::string what = "K=" + std::to_string(c.k) + " V=" + std::to_string(c.v) + " gate " + c.gate +
                             ' ' + c.input + " beta " + c.beta + ' ' + c.beta_input +
                             (c.norm ? " normalised" : "");
    const auto got = state.host();
    EXPECT_LT(relative_rms(out_double.host(), want.out), 1e-12) << what;
    EXPECT_LT(relative_rms(state_double.host(), want.states), 1e-12) << what;
    EXPECT_LT(relative_rms(widened(out.host()), want.out), 2e-3) << what;
    EXPECT_LT(relative_rms({got.begin(), got.end()}, want.states), 1e-5) << what;
  }
};

TEST_F(DeltaRecurrentTest, AgreesWithTheCpuForEveryGateAndBeta) {
  for (const char* gate : {"none", "head", "key"}) {
    for (const char* input : {"log_decay", "softplus", "bounded"}) {
      if (gate[0] == 'n' && input[0] != 'l') continue;
      for (const char* beta : {"none", "head", "value"}) {
        check({64, 64, gate, input, beta, "plain", true});
        if (beta[0] != 'n')
          check({64, 64, gate, input, beta, beta[0] == 'h' ? "sigmoid" : "twice_sigmoid", true});
      }
    }
  }
}

TEST_F(DeltaRecurrentTest, AgreesWithTheCpuForEverySize) {
  const std::pair<int, int> sizes[] = {{4, 4}, {32, 60}, {60, 100}, {100, 32}, {128, 128}, {256, 128}};
  for (const auto& [k, v] : sizes) {
    check({k, v, "none", "log_decay", "head", "plain", false});
    check({k, v, "key", "log_decay", "head", "plain", true});
  }
}

}  // namespace
}  // namespace kiln::testing::delta_recurrent
