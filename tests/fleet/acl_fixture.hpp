// A Redis server with the configuration files of docs/fleet, and a client for each of its users.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "base/file.hpp"
#include "cache/fleet/redis/client.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "fleet/redis_server.hpp"
#include "support/places.hpp"

namespace kiln::fleet {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

inline const std::string kUsers = std::string(places::kSourceDirectory) + "/docs/fleet/users.acl",
                         kConfiguration = std::string(places::kSourceDirectory) + "/docs/fleet/redis.conf";

inline Key some_key(std::uint8_t number = 1) {
  Key key;
  key.specialisation.bytes[0] = number;
  key.toolchain.bytes[0] = 7;
  return key;
}
inline const std::string kEntry = entry_key(some_key()), kLease = lease_key(some_key()),
                         kRows = rows_key(some_key().specialisation), kMissing(kMissingKey);

/// In small letters, as Valkey shows rules. Neither server distinguishes capitals in rules.
inline std::string small(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

/// A server on a Unix socket, set up as docs/guide/fleet/server.md says.
class Acl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kiln::testing::RedisServer::installed()) GTEST_SKIP() << "redis-server is not installed";
    std::string users = base::read_file(kUsers)->bytes;
    if (give_passwords_) {
      for (std::size_t at = 0; (at = users.find(" on ", at)) != std::string::npos; at += 4)
        users.insert(at + 4, ">of-the-test ");
    }
    base::write_file(directory_.path() + "/users.acl", users);
    const std::string log = directory_.path() + "/log";
    ASSERT_TRUE(server_.start(
        {kiln::testing::redis_server(), kConfiguration, "--port", "0", "--unixsocket", socket(), "--dir",
         directory_.path(), "--aclfile", directory_.path() + "/users.acl", "--daemonize", "no"},
        log));
    const bool ready = base::poll_until(base::Deadline::after(20s), [&] {
      return base::read_proc(log).find("eady to accept connections") != std::string::npos ||
             !server_.running();
    });
    ASSERT_TRUE(ready && server_.running()) << base::read_proc(log);
  }

  std::string socket() const { return directory_.path() + "/socket"; }
  Client& as(const std::string& user, const std::string& password = "of-the-test") {
    auto& client = clients_[user];
    if (!client) {
      ClientOptions options{.url =
                                Url::parse("redis+unix://" + socket() +
                                           (user.empty() ? "" : "?user=" + user + "&password=" + password))};
      options.timeouts = {.connect = 5s, .read = 5s};
      client = std::make_unique<Client>(std::move(options));
    }
    return *client;
  }
  Answer ask(const std::string& user, Words words) {
    return as(user).call(Command{.words = std::move(words), .tag = {}, .reply_limit = 1 << 20},
                         base::Deadline::after(10s));
  }
  static bool is_forbidden(const Answer& answer) {
    return answer.fault == Fault::refused && answer.detail.starts_with("NOPERM");
  }
  ::testing::AssertionResult allows(const std::string& user, Words words) {
    const std::string text = text_of(words);
    const Answer answer = ask(user, std::move(words));
    if (answer || (answer.fault == Fault::refused && !is_forbidden(answer)))
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << user << ": " << text << ": " << name_of(answer.fault) << ' ' << answer.detail;
  }
  ::testing::AssertionResult forbids(const std::string& user, Words words) {
    const std::string text = text_of(words);
    const Answer answer = ask(user, std::move(words));
    if (is_forbidden(answer)) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << user << ": " << text << ": " << name_of(answer.fault) << ' ' << answer.detail;
  }
  static std::string text_of(const Words& words) {
    std::string out;
    for (const std::string& word : words) out += word.substr(0, 80) + ' ';
    return out;
  }

  /// The server's answer to `user` for this command or subcommand ("config|get"). Arguments are names of a
  /// lease. They are added until their number is right, as the server checks it before permissions.
  Answer try_command(const std::string& user, const std::string& name);
  /// Every command that the server allows to the user on at least one key, in small letters.
  std::set<std::string> allowed_to(const std::string& user);

  bool give_passwords_ = true;

 private:
  const base::TempDir directory_{"kiln-acl-"};
  kiln::testing::Process server_;
  std::map<std::string, std::unique_ptr<Client>> clients_;
};

inline Answer Acl::try_command(const std::string& user, const std::string& name) {
  const std::size_t bar = name.find('|');
  Words words{name.substr(0, bar)};
  if (bar != std::string::npos) words.push_back(name.substr(bar + 1));
  for (;; words.push_back(kLease)) {
    Answer answer = ask(user, words);
    if (!answer.detail.starts_with("ERR wrong number of arguments") || words.size() > 10) return answer;
  }
}

inline std::set<std::string> Acl::allowed_to(const std::string& user) {
  std::set<std::string> out;
  const auto add = [&](const std::string& commands) {
    std::istringstream in(commands);
    for (std::string word; in >> word;)
      if (word != "-@all") out.insert(small(word.substr(1)));
    EXPECT_TRUE(commands.starts_with("-@all")) << commands;
  };
  // The list has pairs of name and value. A selector is another such list.
  const auto read = [&](const Reply& list, auto&& self) -> void {
    for (std::size_t i = 0; i + 1 < list.elements.size(); i += 2) {
      if (list.elements[i].text == "commands") add(list.elements[i + 1].text);
      if (list.elements[i].text == "selectors")
        for (const Reply& selector : list.elements[i + 1].elements) self(selector, self);
    }
  };
  const Answer answer = ask("admin", {"ACL", "GETUSER", user});
  read(answer.reply, read);
  return out;
}

}  // namespace kiln::fleet
