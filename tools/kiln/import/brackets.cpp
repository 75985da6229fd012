// Navigation between tokens: brackets, lists, and text made from tokens.
#include "tools/kiln/import/brackets.hpp"

#include "tools/kiln/import/tokens.hpp"

namespace kiln::cli {
namespace {

bool opens(const Token& t) { return t.is("(") || t.is("[") || t.is("{"); }
bool closes(const Token& t) { return t.is(")") || t.is("]") || t.is("}"); }

/// True when no blank stands between them: "a::b", "T<int>", "float*", "f(x)".
bool close_together(const Token& left, const Token& right) {
  const auto wordy = [](const Token& t) { return t.kind != Token::Kind::punctuation; };
  if (wordy(left) && wordy(right)) return false;
  for (const char* tight : {"::", "(", "[", "{", "<", "!", "~"})
    if (left.is(tight)) return true;
  for (const char* tight : {"::", ")", "]", "}", "<", ">", ",", "(", "[", "*", "&", "&&", "...", "{"})
    if (right.is(tight)) return !left.is(",") && !left.is("=");
  return left.is("-") && right.kind == Token::Kind::number;
}

}  // namespace

std::string joined(const Tokens& tokens, std::size_t begin, std::size_t end) {
  std::string out;
  for (std::size_t i = begin; i < end && i < tokens.size(); ++i) {
    if (i > begin && !close_together(tokens[i - 1], tokens[i])) out += ' ';
    out += tokens[i].text;
  }
  return out;
}

std::size_t behind_bracket(const Tokens& tokens, std::size_t open, std::size_t end) {
  std::size_t depth = 0;
  for (std::size_t i = open; i < end; ++i) {
    if (opens(tokens[i])) ++depth;
    if (closes(tokens[i]) && --depth == 0) return i + 1;
  }
  return end;
}

std::size_t behind_angle(const Tokens& tokens, std::size_t open, std::size_t end) {
  constexpr std::size_t kLongest = 4096;  // tokens; keeps text full of open brackets from quadratic time
  std::size_t depth = 0;
  for (std::size_t i = open; i < end && i - open < kLongest;) {
    if (opens(tokens[i])) {
      i = behind_bracket(tokens, i, end);
      continue;
    }
    if (tokens[i].is(";") || closes(tokens[i])) return end;
    if (tokens[i].is("<")) ++depth;
    if (tokens[i].is(">") && --depth == 0) return i + 1;
    ++i;
  }
  return end;
}

std::vector<TokenRange> between_commas(const Tokens& tokens, std::size_t begin, std::size_t end) {
  std::vector<TokenRange> out;
  if (begin >= end) return out;
  std::size_t from = begin, depth = 0;
  for (std::size_t i = begin; i < end;) {
    if (opens(tokens[i])) {
      i = behind_bracket(tokens, i, end);
      continue;
    }
    if (tokens[i].is("<")) ++depth;
    if (tokens[i].is(">") && depth > 0) --depth;
    if (tokens[i].is(",") && depth == 0) {
      out.push_back({from, i});
      from = i + 1;
    }
    ++i;
  }
  out.push_back({from, end});
  return out;
}

}  // namespace kiln::cli
