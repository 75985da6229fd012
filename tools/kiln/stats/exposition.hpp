// The Prometheus text exposition format, version 0.0.4.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kiln::cli {

class Exposition {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  enum class Type { counter, gauge };

  /// The labels in `everywhere` come before the own labels of each sample.
  explicit Exposition(Labels everywhere = {}) : everywhere_(std::move(everywhere)) {}
  /// Begins a metric. All its samples must follow before the next metric.
  void metric(std::string_view name, Type type, std::string_view help);
  void sample(const Labels& labels, std::uint64_t value);
  void sample(const Labels& labels, double value);
  const std::string& text() const noexcept { return text_; }

 private:
  void line(const Labels& labels, std::string_view value);
  const Labels everywhere_;
  std::string name_, text_;
};

}  // namespace kiln::cli
