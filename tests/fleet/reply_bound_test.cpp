// The scanner that bounds an answer before hiredis parses it, and the parser.
#include "cache/fleet/redis/reply_bound.hpp"

#include <gtest/gtest.h>

#include <random>

#include "cache/fleet/redis/command_bytes.hpp"
#include "cache/fleet/redis/reply_reader.hpp"

using namespace kiln::fleet;
using Verdict = ReplyBound::Verdict;

namespace {

Verdict verdict(std::string_view bytes, std::uint64_t limit = 1 << 16) {
  ReplyBound bound;
  bound.expect(limit);
  return bound.see(bytes).verdict;
}

std::string bulk(const std::string& text) {
  return '$' + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

std::string nested(int depth) {
  std::string out;
  for (int i = 0; i < depth; ++i) out += "*1\r\n";
  return out + ":1\r\n";
}

/// A random reply of the protocol's grammar; `budget` bounds its elements.
std::string random_reply(std::mt19937& random, int depth, int& budget) {
  const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  --budget;
  switch (upto(depth < 6 && budget > 0 ? 7 : 5)) {
    case 0:
      return "+OK and more\r\n";
    case 1:
      return "-ERR so\r\n";
    case 2:
      return ":" + std::to_string(upto(2000) - 1000) + "\r\n";
    case 3:
      return upto(2) ? "$-1\r\n" : "*-1\r\n";
    case 4: {
      std::string text(static_cast<std::size_t>(upto(50)), '\0');
      for (char& c : text) c = "\r\n*$:1a"[upto(7)];
      return bulk(text);
    }
    default: {
      const int count = upto(4);
      std::string out = '*' + std::to_string(count) + "\r\n";
      for (int i = 0; i < count; ++i) out += random_reply(random, depth + 1, budget);
      return out;
    }
  }
}

}  // namespace

TEST(RemoteReplyBound, StopsCountsAndLengthsBeforeTheyCostMemory) {
  EXPECT_EQ(verdict("*1000000000\r\n"), Verdict::too_large);
  EXPECT_EQ(verdict("$99999999999\r\n"), Verdict::too_large);
  EXPECT_EQ(verdict("*1000000000\r\n", 16 << 20), Verdict::too_large);
  EXPECT_EQ(verdict("*9223372036854775807\r\n", ~0ull / 2), Verdict::too_large);
  EXPECT_EQ(verdict("$9223372036854775807\r\n", 1 << 20), Verdict::too_large);
  EXPECT_EQ(verdict("$9999999999999999999\r\n", 1 << 20), Verdict::malformed);
  EXPECT_EQ(verdict("$99999999999999999999\r\n"), Verdict::malformed);
  EXPECT_EQ(verdict("$65537\r\n"), Verdict::too_large);
  EXPECT_EQ(verdict("$60000\r\n"), Verdict::fine);
  EXPECT_EQ(verdict('+' + std::string(70000, 'x')), Verdict::too_large);
  // The elements of many small arrays in one array are counted together.
  std::string wide = "*1000\r\n";
  for (int i = 0; i < 1000; ++i) wide += "*1000\r\n";
  EXPECT_EQ(verdict(wide, 1 << 17), Verdict::too_large);
}

TEST(RemoteReplyBound, RefusesWhatIsNoReply) {
  for (const char* bytes :
       {"HTTP/1.1 200", "\r\n", "$abc\r\n", "$\r\n", "$-2\r\n", "$-\r\n", "$--1\r\n", "$1\r\nab\r\n",
        "$1\r\na\n\n", ":1 \r\n", ":1\n", "*-2\r\n", "%1\r\n", "_\r\n", "(123\r\n", "$1-\r\n", ":1\rx"})
    EXPECT_EQ(verdict(bytes), Verdict::malformed) << bytes;
  EXPECT_EQ(verdict(nested(ReplyBound::kDeepest)), Verdict::fine);
  EXPECT_EQ(verdict(nested(ReplyBound::kDeepest + 1)), Verdict::malformed);
}

TEST(RemoteReplyBound, RefusesAReplyThatNobodyExpects) {
  ReplyBound bound;
  bound.expect(100);
  const auto seen = bound.see("+OK\r\n+again\r\n");
  EXPECT_EQ(seen.verdict, Verdict::malformed);
  EXPECT_EQ(seen.usable, 5u);
}

TEST(RemoteReplyBound, GivesTheRepliesBeforeABadOne) {
  ReplyBound bound;
  for (int i = 0; i < 3; ++i) bound.expect(100);
  const auto seen = bound.see("+OK\r\n$2\r\nab\r\n$200\r\n");
  EXPECT_EQ(seen.verdict, Verdict::too_large);
  EXPECT_EQ(seen.usable, 13u);
}

TEST(RemoteReplyBound, TellsWhatWasAnnounced) {
  ReplyBound bound;
  bound.expect(5000);
  bound.see("*2\r\n$1000\r\n");
  EXPECT_EQ(bound.announced(), 1000u);
  bound.see(std::string(1000, 'x') + "\r\n$20\r\n");
  EXPECT_EQ(bound.announced(), 1020u);
  EXPECT_FALSE(bound.idle());
  bound.see(std::string(20, 'x') + "\r\n");
  EXPECT_TRUE(bound.idle());
}

TEST(RemoteReplyBound, AgreesWithTheParserHoweverTheBytesCome) {
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    int budget = 20, replies = 1 + static_cast<int>(random() % 3);
    std::string bytes;
    ReplyBound bound;
    ReplyReader reader;
    for (int i = 0; i < replies; ++i) bytes += random_reply(random, 0, budget), bound.expect(4096);
    int parsed = 0;
    bool fine = true;
    for (std::size_t at = 0; at < bytes.size();) {
      const auto piece = std::string_view(bytes).substr(at, 1 + random() % 9);
      const auto seen = bound.see(piece);
      ASSERT_EQ(seen.verdict, Verdict::fine) << bytes;
      reader.feed(piece);
      while (reader.next(fine)) ++parsed;
      ASSERT_TRUE(fine) << bytes;
      at += piece.size();
    }
    ASSERT_EQ(parsed, replies) << bytes;
    ASSERT_TRUE(bound.idle()) << bytes;
  }
}

TEST(RemoteReplyBound, LetsNothingThroughThatTheParserRefuses) {
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 200000; ++round) {
    int budget = 12;
    std::string bytes = random_reply(random, 0, budget);
    for (unsigned i = random() % 3; i > 0; --i)
      bytes[random() % bytes.size()] = "*$:+-\r\n0129x"[random() % 12];
    ReplyBound bound;
    bound.expect(4096);
    const auto seen = bound.see(bytes);
    if (seen.verdict != Verdict::fine) ++refused;
    ReplyReader reader;
    reader.feed(std::string_view(bytes).substr(0, seen.usable));
    bool fine = true;
    while (reader.next(fine)) {
    }
    ASSERT_TRUE(fine) << bytes;
  }
  EXPECT_GT(refused, 10000);
}

TEST(RemoteReplyReader, MakesEveryKind) {
  ReplyReader reader;
  bool fine = false;
  reader.feed("*6\r\n+OK\r\n-ERR x\r\n:-7\r\n$-1\r\n" + bulk(std::string("a\0b", 3)) + "*1\r\n");
  EXPECT_FALSE(reader.next(fine));
  EXPECT_TRUE(fine);
  reader.feed("*-1\r\n");
  const auto reply = reader.next(fine);
  ASSERT_TRUE(reply && fine);
  ASSERT_EQ(reply->kind, Reply::Kind::array);
  ASSERT_EQ(reply->elements.size(), 6u);
  EXPECT_EQ(reply->elements[0].kind, Reply::Kind::status);
  EXPECT_EQ(reply->elements[1].kind, Reply::Kind::error);
  EXPECT_EQ(reply->elements[2].integer, -7);
  EXPECT_EQ(reply->elements[3].kind, Reply::Kind::nil);
  EXPECT_EQ(reply->elements[4].text, std::string("a\0b", 3));
  EXPECT_EQ(reply->elements[5].elements.at(0).kind, Reply::Kind::nil);
}

TEST(RemoteCommandBytes, WritesWordsWithTheirLengths) {
  std::string out = "x";
  EXPECT_TRUE(append_command(out, {"SET", "k", std::string("\0\r\n", 3)}));
  EXPECT_EQ(out, "x*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n" + std::string("\0\r\n", 3) + "\r\n");
  EXPECT_FALSE(append_command(out, {}));
  EXPECT_FALSE(append_command(out, {"SET", "k", std::string(kLargestCommand, 'x')}));
}
