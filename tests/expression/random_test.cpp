// Compares random expressions with a second, plain evaluator: a tree in 128-bit
// arithmetic, without optimisations.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <random>

#include "expression/expression.hpp"
#include "kiln/error.hpp"

namespace kiln::source {
namespace {

using Wide = __int128_t;

struct Node {
  std::string op;  ///< "" for a leaf
  std::string leaf;
  std::int64_t value = 0;
  std::vector<std::unique_ptr<Node>> kids;
};

/// The value; empty for a fault.
using Result = std::optional<std::int64_t>;

Result fit(Wide value) {
  if (value < std::numeric_limits<std::int64_t>::min() || value > std::numeric_limits<std::int64_t>::max())
    return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Result reference(const Node& node) {
  if (node.op.empty()) return node.value;
  const std::string& op = node.op;
  const Result first = reference(*node.kids[0]);
  if (!first) return std::nullopt;
  const Wide a = *first;
  if (op == "&&") {
    if (a == 0) return 0;
    const Result b = reference(*node.kids[1]);
    return b ? Result(*b != 0) : std::nullopt;
  }
  if (op == "||") {
    if (a != 0) return 1;
    const Result b = reference(*node.kids[1]);
    return b ? Result(*b != 0) : std::nullopt;
  }
  if (op == "?") return reference(*node.kids[a != 0 ? 1 : 2]);
  if (op == "neg") return fit(-a);
  if (op == "!") return a == 0;
  if (op == "~") return ~*first;
  const Result second = reference(*node.kids[1]);
  if (!second) return std::nullopt;
  const Wide b = *second;
  if (op == "+") return fit(a + b);
  if (op == "-") return fit(a - b);
  if (op == "*") return fit(a * b);
  if (op == "/") return b == 0 ? std::nullopt : fit(a / b);
  if (op == "%") return b == 0 || !fit(a / b) ? std::nullopt : fit(a % b);
  if (op == "<<") return b < 0 || b > 63 ? std::nullopt : fit(a * (Wide{1} << static_cast<int>(b)));
  if (op == ">>") return b < 0 || b > 63 ? std::nullopt : Result(*first >> static_cast<int>(b));
  if (op == "<") return a < b;
  if (op == "<=") return a <= b;
  if (op == ">") return a > b;
  if (op == ">=") return a >= b;
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  if (op == "&") return *first & *second;
  if (op == "|") return *first | *second;
  if (op == "^") return *first ^ *second;
  if (op == "min") return a < b ? *first : *second;
  if (op == "max") return a > b ? *first : *second;
  if (op == "ceil_div") {
    if (b == 0) return std::nullopt;
    return fit(a / b + (a % b != 0 && (a < 0) == (b < 0) ? 1 : 0));
  }
  ADD_FAILURE() << op;
  return std::nullopt;
}

int precedence(const std::string& op) {
  static const std::vector<std::vector<std::string>> levels = {
      {"?"},        {"||"},     {"&&"},         {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", "<=", ">", ">="},
      {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    for (const std::string& o : levels[i]) {
      if (o == op) return static_cast<int>(i);
    }
  }
  return 100;
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }

  std::unique_ptr<Node> tree(int depth) {
    auto node = std::make_unique<Node>();
    if (depth == 0 || below(5) == 0) {
      if (below(3) == 0) {
        const int slot = below(3);
        node->leaf = std::string(1, static_cast<char>('a' + slot));
        node->value = slots[slot];
      } else {
        node->value = below(8) ? below(20) : std::numeric_limits<std::int64_t>::max() - below(3);
        node->leaf = std::to_string(node->value);
      }
      return node;
    }
    static const std::vector<std::string> ops = {"+", "-",   "*",  "/",  "%",   "<<",  ">>",      "<",  "<=",
                                                 ">", ">=",  "==", "!=", "&",   "|",   "^",       "&&", "||",
                                                 "?", "neg", "!",  "~",  "min", "max", "ceil_div"};
    node->op = ops[static_cast<std::size_t>(below(static_cast<int>(ops.size())))];
    const int kids = node->op == "?" ? 3 : node->op == "neg" || node->op == "!" || node->op == "~" ? 1 : 2;
    for (int i = 0; i < kids; ++i) node->kids.push_back(tree(depth - 1));
    return node;
  }

  /// The expression's text. It has parentheses where C needs them, and sometimes elsewhere.
  std::string text(const Node& node, int outer) {
    if (node.op.empty()) return node.leaf;
    const auto kid = [&](std::size_t i, int level) { return text(*node.kids[i], level); };
    const int own = precedence(node.op);
    std::string out;
    if (node.op == "?") {
      out = kid(0, 1) + " ? " + kid(1, 0) + " : " + kid(2, 0);
    } else if (node.kids.size() == 1) {
      out = (node.op == "neg" ? "-" : node.op) + (below(2) ? " " : "") + kid(0, 99);
      return outer > 99 || below(9) == 0 ? '(' + out + ')' : out;
    } else if (own == 100) {
      return node.op + '(' + kid(0, 0) + ", " + kid(1, 0) + ')';
    } else {
      const std::string gap = below(4) ? " " : "";
      out = kid(0, own) + gap + node.op + gap + kid(1, own + 1);
    }
    return own < outer || below(9) == 0 ? '(' + out + ')' : out;
  }

  std::int64_t slots[3] = {};

 private:
  std::mt19937 engine_;
};

TEST(ExpressionRandom, AgreesWithAPlainEvaluator) {
  Symbols symbols;
  symbols.slots = {{"a", 0}, {"b", 1}, {"c", 2}};
  int faults = 0, values = 0;
  for (unsigned seed = 0; seed < 20'000; ++seed) {
    Random random(seed);
    for (auto& slot : random.slots)
      slot = random.below(4) ? random.below(100) - 50
                             : std::numeric_limits<std::int64_t>::min() + random.below(2);
    const auto tree = random.tree(1 + static_cast<int>(seed % 5));
    const std::string text = random.text(*tree, 0);
    const Result expected = reference(*tree);
    const Expression expression = Expression::compile(text, symbols, "random");
    Result actual;
    try {
      actual = expression.evaluate(random.slots);
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(Errc::requirement));
    }
    ASSERT_EQ(actual, expected) << text << " with a=" << random.slots[0] << " b=" << random.slots[1]
                                << " c=" << random.slots[2];
    ++(expected ? values : faults);
  }
  EXPECT_GT(values, 5000);
  EXPECT_GT(faults, 500);
}

TEST(ExpressionRandom, FoldingChangesNoValueAndNoFault) {
  Symbols symbols;
  symbols.slots = {{"a", 0}, {"b", 1}, {"c", 2}};
  int constants = 0, faults = 0;
  for (unsigned seed = 0; seed < 20'000; ++seed) {
    Random random(seed);
    for (auto& slot : random.slots)
      slot = random.below(4) ? random.below(100) - 50
                             : std::numeric_limits<std::int64_t>::min() + random.below(2);
    const auto tree = random.tree(1 + static_cast<int>(seed % 5));
    const Expression expression = Expression::compile(random.text(*tree, 0), symbols, "random");
    const Result expected = reference(*tree);
    std::string fault;
    try {
      expression.evaluate(random.slots);
    } catch (const Error& error) {
      fault = error.what();
    }
    for (unsigned known = 0; known < 8; ++known) {
      const std::vector<bool> mask = {(known & 1) != 0, (known & 2) != 0, (known & 4) != 0};
      const Expression folded = expression.folded(random.slots, mask);
      std::int64_t slots[3];  // known slots are not read again
      for (std::size_t i = 0; i < 3; ++i) slots[i] = mask[i] ? -987654321 : random.slots[i];
      Result actual;
      try {
        actual = folded.evaluate(slots);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::requirement);
        EXPECT_EQ(error.what(), fault) << "the same words";
        ++faults;
      }
      ASSERT_EQ(actual, expected) << expression.text() << " with a=" << random.slots[0]
                                  << " b=" << random.slots[1] << " c=" << random.slots[2] << ", known "
                                  << known;
      if (known == 7 && expected) {
        ASSERT_EQ(folded.constant_value(), expected) << expression.text();
        ++constants;
      }
      for (const int slot : folded.reads()) ASSERT_FALSE(mask[static_cast<std::size_t>(slot)]);
    }
  }
  EXPECT_GT(constants, 5000);
  EXPECT_GT(faults, 500);
}

TEST(ExpressionRandom, NoiseIsRefusedCleanly) {
  Symbols symbols;
  symbols.slots = {{"a", 0}, {"b", 1}};
  symbols.pointers = {"a"};
  symbols.strides = {{"a", {"b", "1"}}};
  static constexpr std::string_view pieces[] = {
      "a", "b",  "1",  "(",  ")",    "+",       "-",      "?",
      ":", "&&", "||", "<<", "min(", "sizeof(", "align(", "stride(a, 1)",
      ",", " ",  ".",  "0x", "\xff", "\n",      "~",      "!",
      "=="};
  std::mt19937 engine(7);
  int compiled = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string text;
    for (unsigned n = engine() % 12; n-- > 0;) text += pieces[engine() % std::size(pieces)];
    try {
      const Expression e = Expression::compile(text, symbols, "noise");
      ++compiled;
      const std::int64_t slots[] = {3, 5};
      e.evaluate(slots);
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Errc::manifest || error.code() == Errc::requirement) << error.what();
    }
  }
  EXPECT_GT(compiled, 100);
}

}  // namespace
}  // namespace kiln::source
