#include "manifest/read/prewarm_values.hpp"

#include <algorithm>
#include <cstdint>

#include "base/arch.hpp"
#include "base/quote.hpp"
#include "kiln/error.hpp"
#include "manifest/read/order.hpp"

namespace kiln::source {
namespace {
using Kind = TomlValue::Kind;

/// The end of the error about a value that no [[prewarm]] key takes.
constexpr const char* kWanted =
    "a string, an integer, true, false, { from, to, step | times }, or a list of these";

/// The texts so far, with a limit, so that a typing error does not fill the memory.
class Texts {
 public:
  Texts(const TableReader& row, std::string_view key) : row_(row), key_(key) {}

  void add(const TomlValue& value) {
    if (value.kind == Kind::table) return add_range(value);
    room_for(1);
    if (value.kind == Kind::integer)
      out_.push_back(std::to_string(value.integer));
    else if (value.kind == Kind::boolean)
      out_.push_back(value.boolean ? "true" : "false");
    else if (value.kind == Kind::string)
      out_.push_back(value.string);
    else
      row_.fail_wanted(key_, value, kWanted);
  }
  std::vector<std::string> take() { return std::move(out_); }

 private:
  [[noreturn]] void fail(const TomlValue& range, const std::string& message) const {
    throw Error(Errc::manifest, row_.file() + ':' + std::to_string(range.line) + ": " + row_.title() + ' ' +
                                    std::string(key_) + ": " + message);
  }

  void room_for(std::uint64_t more) const {
    if (more > kMaxPlanned - out_.size())
      row_.fail(key_, std::to_string(out_.size() + more) + " values; a plan may have " +
                          std::to_string(kMaxPlanned) + " specialisations");
  }

  std::int64_t integer(const TableReader& range, std::string_view key) const {
    const TomlValue& value = range.need(key);
    if (value.kind != Kind::integer) range.fail_wanted(key, value, "an integer");
    return value.integer;
  }

  /// Adds from, from + step, ... or from, from * times, ..., up to `to`.
  void add_range(const TomlValue& value) {
    const TableReader range(value, row_.title() + ' ' + std::string(key_), row_.file(),
                            {"from", "to", "step", "times"});
    const std::int64_t from = integer(range, "from"), to = integer(range, "to");
    if (range.has("step") == range.has("times"))
      fail(value, std::string("needs ") + (range.has("step") ? "only one of" : "one of") +
                      " 'step' (adds) and 'times' (multiplies)");
    if (from > to)
      fail(value, "from = " + std::to_string(from) + " is above to = " + std::to_string(to) +
                      ": the range is empty");
    if (range.has("step")) {
      const std::int64_t step = integer(range, "step");
      if (step < 1) range.fail("step", std::to_string(step) + " must be 1 or more");
      const std::uint64_t span = static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
      const std::uint64_t steps = span / static_cast<std::uint64_t>(step);
      if (steps >= kMaxPlanned) {
        fail(value, (steps + 1 ? std::to_string(steps + 1) : "2^64") + " values; a plan may have " +
                        std::to_string(kMaxPlanned) + " specialisations");
      }
      room_for(steps + 1);
      // Unsigned, because the distance between the two ends of the integers does not fit a signed number.
      for (std::uint64_t i = 0; i <= steps; ++i) {
        const std::uint64_t at = static_cast<std::uint64_t>(from) + i * static_cast<std::uint64_t>(step);
        out_.push_back(std::to_string(static_cast<std::int64_t>(at)));
      }
      return;
    }
    const std::int64_t times = integer(range, "times");
    if (times < 2) range.fail("times", std::to_string(times) + " must be 2 or more");
    if (from < 1) range.fail("from", std::to_string(from) + " must be 1 or more where 'times' multiplies it");
    for (std::int64_t at = from;;) {
      room_for(1);
      out_.push_back(std::to_string(at));
      if (at > to / times) return;
      at *= times;
    }
  }

  const TableReader& row_;
  const std::string_view key_;
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> prewarm_texts(const TableReader& row, std::string_view key) {
  const TomlValue& value = row.need(key);
  Texts texts(row, key);
  if (value.kind == Kind::array) {
    if (value.items.empty()) row.fail(key, "an empty list");
    for (const TomlValue& item : value.items) texts.add(item);
  } else {
    texts.add(value);
  }
  return texts.take();
}

std::vector<std::string> prewarm_archs(const TableReader& row) {
  const TomlValue& value = row.need("arch");
  std::vector<std::string> out;
  const auto add = [&](const TomlValue& item) {
    if (item.kind != Kind::string) row.fail_wanted("arch", item, "a string or a list of strings");
    try {
      const std::string name = base::Arch::parse(item.string).name();
      if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
    } catch (const Error& error) {
      row.fail("arch", error.what());
    }
  };
  if (value.kind == Kind::array) {
    if (value.items.empty()) row.fail("arch", "an empty list");
    for (const TomlValue& item : value.items) add(item);
  } else {
    add(value);
  }
  return out;
}

}  // namespace kiln::source
