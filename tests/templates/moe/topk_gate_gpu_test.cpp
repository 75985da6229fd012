// topk_gate and its reference against the CPU, at small sizes: ids exactly, weights in double.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "templates/kernel_fixture.hpp"

namespace kiln::testing::topk_gate {
namespace {

constexpr int kTokens = 37;

struct Gate {
  int experts, k;
  const char* score;
  bool bias, renorm;
  int groups = 1, topk_groups = 1;
};

std::string name_of(const Gate& g) {
  return std::to_string(g.experts) + " experts, k " + std::to_string(g.k) + ", " + g.score +
         (g.bias ? ", bias" : "") + (g.renorm ? ", renorm" : "") + ", groups " + std::to_string(g.groups) +
         '/' + std::to_string(g.topk_groups);
}

struct Chosen {
  std::vector<double> weights;
  std::vector<int> ids;
};

/// The expected result for one token by the manifest's definition. REQUIRES: finite logits.
Chosen choose(const Gate& g, const float* logits, const std::vector<float>& bias, double scale) {
  std::vector<double> score, choice;
  const double largest = *std::max_element(logits, logits + g.experts);
  double sum = 0;
  for (int e = 0; e < g.experts; ++e) sum += std::exp(logits[e] - largest);
  for (int e = 0; e < g.experts; ++e) {
    const double v = logits[e];
    score.push_back(std::string(g.score) == "softmax" ? std::exp(v - largest) / sum : 1 / (1 + std::exp(-v)));
    choice.push_back(g.bias ? score.back() + static_cast<double>(bias[static_cast<std::size_t>(e)]) : v);
  }
  const auto best_first = [](const std::vector<double>& values) {
    std::vector<int> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
    });
    return order;
  };
  const int size = g.experts / g.groups;
  std::vector<double> of_group;
  for (int group = 0; group < g.groups; ++group) {
    std::vector<double> own(choice.begin() + group * size, choice.begin() + (group + 1) * size);
    std::sort(own.rbegin(), own.rend());
    of_group.push_back(g.bias && size > 1 ? own[0] + own[1] : own[0]);
  }
  const std::vector<int> groups = best_first(of_group);
  Chosen out;
  for (const int e : best_first(choice)) {
    const auto end = groups.begin() + g.topk_groups;
    if (static_cast<int>(out.ids.size()) < g.k && std::find(groups.begin(), end, e / size) != end) {
      out.ids.push_back(e);
      out.weights.push_back(score[static_cast<std::size_t>(e)]);
    }
  }
  const double total = std::accumulate(out.weights.begin(), out.weights.end(), 0.0);
  for (double& w : out.weights) w *= scale / (g.renorm ? total : 1);
  return out;
}

class TopkGateTest : public KernelTest {
 protected:
  /// Runs both kernels on these logits, and expects the CPU's ids. The reference's weights are compared in
  /// double, the kernel's in f32.
  void expect_right(const Gate& g, const std::vector<float>& logits, const std::vector<float>& bias) {
    const Pair k = get("topk_gate", {{"T", Dtype::f32},
                                     {"E", g.experts},
                                     {"K", g.k},
                                     {"SCORE", g.score},
                                     {"BIAS", g.bias},
                                     {"RENORM", g.renorm},
                                     {"GROUPS", g.groups},
                                     {"TOPK_GROUPS", g.topk_groups}});
    const auto n = static_cast<std::size_t>(kTokens * g.k);
    const DeviceArray x(*driver_, logits), b(*driver_, bias);
    const DeviceArray weights(*driver_, std::vector<float>(n, NAN));
    const DeviceArray ids(*driver_, std::vector<int>(n, -1));
    const DeviceArray weights_double(*driver_, std::vector<double>(n, NAN)),
        ids_double(*driver_, std::vector<double>(n, NAN));
    launch(*k.reference, pointer(weights_double), pointer(ids_double), pointer(x), kTokens, g.experts, 2.5f,
           g.bias ? pointer(b) : null());
    launch(*k.kernel, pointer(weights), pointer(ids), pointer(x), kTokens, g.experts, 2.5f,
           g.bias ? pointer(b) : null());

    std::vector<double> want;
    std::vector<int> want_ids;
    for (int t = 0; t < kTokens; ++t) {
      const Chosen chosen = choose(g, logits.data() + t * g.experts, bias, 2.5);
      want.insert(want.end(), chosen.weights.begin(), chosen.weights.end());
      want_ids.insert(want_ids.end(), chosen.ids.begin(), chosen.ids.end());
    }
    const auto reference_ids = ids_double.host();
    const auto got = weights.host();
    EXPECT_EQ(ids.host(), want_ids) << name_of(g);
    EXPECT_EQ(std::vector<int>(reference_ids.begin(), reference_ids.end()), want_ids) << name_of(g);
    EXPECT_LT(relative_rms(weights_double.host(), want), 1e-12) << name_of(g);
    EXPECT_LT(relative_rms(std::vector<double>(got.begin(), got.end()), want), 4e-6) << name_of(g);
  }
};

std::vector<Gate> gates() {
  std::vector<Gate> out;
  for (const char* score : {"softmax", "sigmoid"}) {
    for (const bool bias : {false, true}) {
      for (const bool renorm : {false, true}) {
        out.push_back({8, 2, score, bias, renorm});
        out.push_back({97, 5, score, bias, renorm});
        out.push_back({160, 6, score, bias, renorm, 8, 3});
        out.push_back({256, 8, score, bias, renorm, 8, 4});
        out.push_back({512, 32, score, bias, renorm});
      }
    }
  }
  return out;
}

TEST_F(TopkGateTest, AgreesWithTheCpuForEveryScoreAndGrouping) {
  for (const Gate& g : gates()) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> logits(static_cast<std::size_t>(kTokens * g.experts)),
        bias(static_cast<std::size_t>(g.experts));
    for (float& v : logits) v = normal(random);
    for (float& v : bias) v = 0.1f * normal(random);
    expect_right(g, logits, bias);
  }
}

TEST_F(TopkGateTest, TiesTakeTheLowerId) {
  for (const Gate& g : gates()) {
    std::mt19937 random(12);
    std::vector<float> logits(static_cast<std::size_t>(kTokens * g.experts));
    for (float& v : logits) v = static_cast<float>(random() % 3) - 1;
    expect_right(g, logits, std::vector<float>(static_cast<std::size_t>(g.experts)));
  }
}

}  // namespace
}  // namespace kiln::testing::topk_gate
