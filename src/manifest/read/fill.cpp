#include "manifest/read/fill.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "manifest/read/order.hpp"
#include "manifest/read/parse.hpp"

namespace kiln::source {
namespace {

using Fill = ArgumentSpec::Fill;

std::string trimmed(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::optional<double> number_from(const std::string& text) {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end != text.data() + text.size() || out - out != 0)
    return std::nullopt;  // no nan, no infinity
  return out;
}

/// Splits at the commas outside of parentheses: "0, min(a, b)" has two pieces.
std::vector<std::string> arguments_of(std::string_view text) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const bool end = i == text.size();
    if (!end && text[i] == '(') ++depth;
    if (!end && text[i] == ')') --depth;
    if (!end && (text[i] != ',' || depth > 0)) continue;
    out.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return out;
}

class FillReader {
 public:
  FillReader(const Draft& draft, const ArgumentSpec& argument, const TableReader& reader)
      : draft_(draft), argument_(argument), reader_(reader), text_(reader.need_line("fill")) {}

  Fill read() {
    if (text_.find("::") != std::string::npos) return kernel();
    if (text_ == "permutation") return indices({.kind = Fill::Kind::permutation});
    const auto open = text_.find('(');
    if (open == std::string::npos || text_.back() != ')') fail(" is not a fill");
    const std::string name = text_.substr(0, open);
    pieces_ = arguments_of(std::string_view(text_).substr(open + 1, text_.size() - open - 2));
    if (name == "normal") return normal();
    if (name == "uniform") return uniform();
    if (name == "int") return integer();
    if (name == "indptr") return offsets();
    if (name == "work_list" || name == "plan") return lengths();
    if (name == "const") return take(1), Fill{.kind = Fill::Kind::constant, .a = number(0), .b = 0};
    fail(" is unknown");
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    reader_.fail(
        "fill",
        base::quote(text_) + why +
            "; allowed: normal(mean, sd) uniform(lo, hi) int(lo, hi) permutation "
            "indptr(total) const(v) work_list(array), or a kernel of the source such as \"ns::fill<{T}>\"");
  }
  void take(std::size_t count) const {
    if (pieces_.size() != count || pieces_[0].empty())
      fail(" takes " + std::to_string(count) + (count == 1 ? " value" : " values"));
  }
  double number(std::size_t i) const {
    const auto value = number_from(pieces_[i]);
    if (!value) fail(": " + base::quote(pieces_[i]) + " is no number");
    return *value;
  }
  Expression expression(std::size_t i) const {
    try {
      const auto slots = static_cast<std::size_t>(draft_.out.slots.total());
      return Expression::compile(pieces_[i], draft_.run, "its value")
          .folded(std::vector<std::int64_t>(slots), std::vector<bool>(slots, false));
    } catch (const Error& error) {
      fail(": " + base::quote(pieces_[i]) + " is no integer expression (" + error.what() + ')');
    }
  }
  Fill normal() const {
    take(2);
    Fill out{.kind = Fill::Kind::normal, .a = number(0), .b = number(1)};
    if (out.b < 0) fail(": a standard deviation must not be negative");
    return out;
  }
  Fill uniform() const {
    take(2);
    Fill out{.kind = Fill::Kind::uniform, .a = number(0), .b = number(1)};
    if (out.a > out.b) fail(": the lower bound must come first");
    return out;
  }
  Fill integer() const {
    take(2);
    Fill out{.kind = Fill::Kind::integer, .low = expression(0), .high = expression(1)};
    const auto low = out.low.constant_value(), high = out.high.constant_value();
    if (low && high && *low > *high) fail(": the lower bound must come first");
    return out;
  }
  Fill offsets() const {
    take(1);
    Fill out{.kind = Fill::Kind::offsets, .low = Expression::constant(0), .high = expression(0)};
    if (const auto total = out.high.constant_value(); total && *total < 0)
      fail(": a total must not be negative");
    return indices(std::move(out));
  }
  Fill lengths() const {
    take(1);
    if (!draft_.out.slots.run)
      fail(": it needs a table " + draft_.work_list.run_title() + " that gives the lengths");
    const std::vector<std::string> known(draft_.work_list.kind->arrays.begin(),
                                         draft_.work_list.kind->arrays.end());
    if (std::find(known.begin(), known.end(), pieces_[0]) == known.end())
      fail(": the lengths are " + base::join(known, " "));
    return indices({.kind = Fill::Kind::lengths, .lengths = pieces_[0]});
  }
  /// The dtype of a pointer to a parameter's dtype is only known when it runs: `kiln run`
  /// makes this check then.
  Fill indices(Fill out) const {
    const auto dtype = argument_.type.dtype;
    if (!dtype || *dtype == Dtype::i32 || *dtype == Dtype::u32 || *dtype == Dtype::i64 ||
        *dtype == Dtype::u64)
      return out;
    fail(" needs elements of type i32, u32, i64 or u64, and they are " + std::string(to_string(*dtype)));
  }
  Fill kernel() const {
    check_cpp(draft_, reader_, "fill", text_);
    return Fill{.kind = Fill::Kind::kernel, .instantiate = text_};
  }

  const Draft& draft_;
  const ArgumentSpec& argument_;
  const TableReader& reader_;
  const std::string text_;
  std::vector<std::string> pieces_;
};

}  // namespace

ArgumentSpec::Fill read_fill(const Draft& draft, const ArgumentSpec& argument, const TableReader& reader) {
  return FillReader(draft, argument, reader).read();
}

}  // namespace kiln::source
