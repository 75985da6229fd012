// The contract that every backend of remote tiers must keep. It is tested on the tests' memory backend, and
// on the backend of a real server of the Redis protocol.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "cache/fleet/redis/backend.hpp"
#include "cache/fleet/redis/keys.hpp"
#include "fleet/memory_backend.hpp"
#include "fleet/redis_server.hpp"
#include "fleet/trust_fixture.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::testing;
using namespace std::chrono_literals;

namespace {

/// A backend with its own server, and a test's actions on that server without the backend.
class SeamServer {
 public:
  virtual ~SeamServer() = default;
  virtual Backend& backend() = 0;
  /// Replaces the entry by a value of another type. For a toolchain of zeros, replaces the rows.
  virtual void spoil(const Key& key) = 0;
  virtual void leave_other_version() = 0;
  virtual void stop() = 0;
};

class SeamInMemory : public SeamServer {
 public:
  Backend& backend() override { return backend_; }
  void spoil(const Key& key) override { backend_.spoil(key); }
  void leave_other_version() override { backend_.leave_other_version("kiln:0:x"); }
  void stop() override { backend_.fail(Fault::connect); }

 private:
  MemoryBackend backend_;
};

class SeamOfRedis : public SeamServer {
 public:
  Backend& backend() override { return backend_; }
  void spoil(const Key& key) override {
    const std::string name = key.toolchain == Digest{} ? rows_key(key.specialisation) : entry_key(key);
    ask({"DEL", name});
    ask({"SADD", name, "x"});
  }
  void leave_other_version() override {
    ask({"SET", "kiln:0:x", "of an older version"});
    ask({"SET", "somebody", "else's"});
  }
  void stop() override { server_.stop(); }

 private:
  void ask(std::vector<std::string> words) {
    EXPECT_TRUE(client_.call(Command{std::move(words), {}, 64}, base::Deadline::never()));
  }

  RedisServer server_;
  Client client_{{.url = Url::parse(server_.unix_url()), .timeouts = {.connect = 5s, .read = 5s}}};
  RedisBackend backend_{Url::parse(server_.unix_url()), {.timeouts = {.connect = 5s, .read = 5s}}};
};

class RemoteSeam : public ::testing::TestWithParam<const char*> {
 protected:
  using Kind = StoredValue::Kind;
  using Lease = LeaseRequest::Kind;

  void SetUp() override {
    if (GetParam() == std::string("memory")) {
      server_ = std::make_unique<SeamInMemory>();
      return;
    }
    if (!RedisServer::installed()) GTEST_SKIP() << "redis-server is not installed";
    server_ = std::make_unique<SeamOfRedis>();
  }

  static base::Deadline soon() { return base::Deadline::after(20s); }
  Backend& backend() { return server_->backend(); }
  Upkeep& upkeep() { return backend().upkeep(); }
  std::unique_ptr<ServerUpkeep> only_server() {
    auto servers = upkeep().servers();
    EXPECT_EQ(servers.size(), 1u);
    return std::move(servers.at(0));
  }
  void put(const Key& key) {
    const Outcome done = backend().put(key, "row of " + key.hex(), "entry of " + key.hex(), soon());
    ASSERT_TRUE(done) << done.detail;
  }
  std::vector<StoredValue> walk(ServerUpkeep::Walk what) {
    std::vector<StoredValue> out;
    const Outcome done = only_server()->walk(
        what, [&](std::span<const StoredValue> page) { out.insert(out.end(), page.begin(), page.end()); });
    EXPECT_TRUE(done) << done.detail;
    std::sort(out.begin(), out.end(),
              [](const StoredValue& a, const StoredValue& b) { return a.kind < b.kind; });
    return out;
  }
  StoredValue stored(StoredValue::Kind kind) {
    for (StoredValue& value : walk(ServerUpkeep::Walk::everything))
      if (value.kind == kind) return std::move(value);
    ADD_FAILURE() << "no value of this kind";
    return {};
  }
  LeaseAnswer lease(LeaseRequest::Kind kind, const std::string& token) {
    return backend().lease({{kind, key_, token}}, {}, soon()).answers.at(0);
  }

  std::unique_ptr<SeamServer> server_;
  const Key key_ = some_entry(1, 1).key, of_other_toolchain_ = some_entry(1, 2).key,
            other_ = some_entry(2, 1).key;
};

TEST_P(RemoteSeam, GivesInOrderWhatWasPut) {
  put(key_), put(other_);
  const std::vector<Key> asked = {other_, of_other_toolchain_, key_};
  std::vector<Value> got;
  backend().get(asked, soon(), [&](std::size_t index, Value value) {
    EXPECT_EQ(index, got.size());
    got.push_back(std::move(value));
  });
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].bytes, "entry of " + other_.hex());
  EXPECT_EQ(got[1].kind, Value::Kind::absent);
  EXPECT_TRUE(got[1]);
  EXPECT_EQ(got[2].bytes, "entry of " + key_.hex());
}

TEST_P(RemoteSeam, AValueThatIsNoEntryIsNoFaultAndIsReplaced) {
  put(key_);
  server_->spoil(key_);
  Value got;
  backend().get({&key_, 1}, soon(), [&](std::size_t, Value value) { got = std::move(value); });
  EXPECT_TRUE(got) << got.detail;
  EXPECT_EQ(got.kind, Value::Kind::other);
}

TEST_P(RemoteSeam, ListsTheToolchainsOfEachSpecialisation) {
  put(key_), put(of_other_toolchain_);
  const std::vector<Digest> asked = {other_.specialisation, key_.specialisation};
  std::vector<Rows> listed = backend().list(asked, soon());
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_TRUE(listed[0]);
  EXPECT_TRUE(listed[0].rows.empty());
  std::sort(listed[1].rows.begin(), listed[1].rows.end());
  const std::vector<std::pair<std::string, std::string>> both = {
      {key_.toolchain.hex(), "row of " + key_.hex()},
      {of_other_toolchain_.toolchain.hex(), "row of " + of_other_toolchain_.hex()}};
  EXPECT_EQ(listed[1].rows, both);
}

TEST_P(RemoteSeam, LeasesAKeyToOneTokenAtATime) {
  EXPECT_TRUE(lease(Lease::acquire, "1:a").granted);
  const LeaseAnswer second = lease(Lease::acquire, "2:b");
  EXPECT_EQ(second.state, LeaseAnswer::State::answered);
  EXPECT_FALSE(second.granted);
  EXPECT_FALSE(second.entry);
  EXPECT_EQ(lease(Lease::look, "").holder, "1:a");
  EXPECT_TRUE(lease(Lease::renew, "1:a").granted);
  EXPECT_FALSE(lease(Lease::renew, "2:b").granted);
  EXPECT_FALSE(lease(Lease::release, "2:b").granted);
  EXPECT_TRUE(lease(Lease::release, "1:a").granted);
  EXPECT_TRUE(base::poll_until(soon(), [&] { return lease(Lease::acquire, "2:b").granted; }));
  put(key_);
  EXPECT_EQ(lease(Lease::look, "").entry, "entry of " + key_.hex());
  EXPECT_EQ(lease(Lease::acquire, "3:c").entry, "entry of " + key_.hex()) << "read after it was decided";
}

TEST_P(RemoteSeam, GivesReportedRowsInPagesUntilTheyAreForgotten) {
  EXPECT_TRUE(upkeep().missed("", 10));
  EXPECT_TRUE(upkeep().missed("", 10).rows.empty());
  const std::vector<std::string> rows = {"first", "second", "third"};
  for (const std::string& row : rows)
    for (const Outcome& told : backend().report({&row, 1}, soon())) EXPECT_TRUE(told) << told.detail;
  const MissedPage page = upkeep().missed("", 2);
  ASSERT_EQ(page.rows.size(), 2u);
  EXPECT_EQ(page.rows[0].text, "first");
  EXPECT_EQ(page.rows[1].text, "second");
  EXPECT_GE(page.rows[1].bytes, 6u);
  const MissedPage next = upkeep().missed(page.rows[1].id, 2);
  ASSERT_EQ(next.rows.size(), 1u);
  EXPECT_EQ(next.rows[0].text, "third");
  EXPECT_TRUE(upkeep().missed(next.rows[0].id, 2).rows.empty());
  EXPECT_EQ(only_server()->look().missing, 3u);
  const std::vector<std::string> made = {page.rows[1].id, next.rows[0].id};
  EXPECT_TRUE(upkeep().forget(made));
  EXPECT_TRUE(upkeep().forget(made)) << "they are gone already";
  ASSERT_EQ(upkeep().missed("", 2).rows.size(), 1u);
  EXPECT_EQ(upkeep().missed("", 2).rows[0].text, "first");
}

TEST_P(RemoteSeam, ManyRowsReportedAtOnceAreAnsweredEach) {
  const std::vector<std::string> rows(20, "row");
  EXPECT_EQ(backend().report(rows, soon()).size(), rows.size());
  EXPECT_EQ(upkeep().missed("", 100).rows.size(), rows.size());
}

TEST_P(RemoteSeam, LooksAtItsServer) {
  put(key_);
  EXPECT_TRUE(upkeep().reach(key_.specialisation));
  EXPECT_TRUE(only_server()->reach());
  const ServerLook look = only_server()->look();
  EXPECT_TRUE(look) << look.detail;
  EXPECT_EQ(look.keys, 2u);
  EXPECT_EQ(look.missing, 0u);
  ASSERT_EQ(backend().health().size(), 1u);
  EXPECT_EQ(backend().health()[0].name, look.name);
}

TEST_P(RemoteSeam, WalksOverEveryKindOfItsValues) {
  put(key_), put(of_other_toolchain_);
  EXPECT_TRUE(lease(Lease::regain, "1:a").granted);
  const std::string row = "row";
  EXPECT_EQ(backend().report({&row, 1}, soon()).size(), 1u);
  server_->leave_other_version();
  const std::vector<StoredValue> all = walk(ServerUpkeep::Walk::everything);
  ASSERT_EQ(all.size(), 6u) << "and nothing of anybody else's";
  const std::vector<Kind> kinds = {Kind::entry, Kind::entry,       Kind::rows,
                                   Kind::lease, Kind::missed_rows, Kind::other_version};
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].kind, kinds[i]) << all[i].name;
  EXPECT_EQ(all[2].key, (Key{key_.specialisation, {}}));
  EXPECT_EQ(all[3].key, key_);
  std::vector<Key> entries;
  for (const StoredValue& value : walk(ServerUpkeep::Walk::entries)) entries.push_back(value.key);
  std::sort(entries.begin(), entries.end());
  EXPECT_EQ(entries, (std::vector<Key>{key_, of_other_toolchain_}));
}

TEST_P(RemoteSeam, ErasesRowsAndValues) {
  put(key_), put(of_other_toolchain_);
  server_->leave_other_version();
  const auto server = only_server();
  const std::vector<std::string> toolchains = {key_.toolchain.hex(), "nobody's"};
  const Erased rows = server->erase_rows(key_.specialisation, toolchains);
  EXPECT_TRUE(rows) << rows.detail;
  EXPECT_EQ(rows.count, 1u);
  const auto left = server->rows(key_.specialisation);
  ASSERT_TRUE(left && *left);
  ASSERT_EQ(left->rows.size(), 1u);
  EXPECT_EQ(left->rows[0].first, of_other_toolchain_.toolchain.hex());
  const StoredValue other = stored(Kind::other_version), all_rows = stored(Kind::rows);
  EXPECT_EQ(server->erase(other).count, 1u);
  EXPECT_EQ(server->erase(other).count, 0u) << "it is gone already";
  EXPECT_EQ(server->erase(all_rows).count, 1u);
  for (const StoredValue& value : walk(ServerUpkeep::Walk::entries))
    EXPECT_EQ(server->erase(value).count, 1u);
  EXPECT_TRUE(walk(ServerUpkeep::Walk::everything).empty());
  EXPECT_EQ(server->has_entry(key_), false);
  EXPECT_EQ(server->entry(key_).kind, Value::Kind::absent);
  EXPECT_TRUE(server->rows(key_.specialisation).value().rows.empty());
}

TEST_P(RemoteSeam, ReadsWhatLiesOnOneServer) {
  put(key_), put(other_);
  const auto server = only_server();
  EXPECT_EQ(server->entry(key_).bytes, "entry of " + key_.hex());
  EXPECT_EQ(server->has_entry(key_), true);
  EXPECT_EQ(server->rows(key_.specialisation).value().rows.size(), 1u);
  server_->spoil(key_);
  server_->spoil({other_.specialisation, {}});
  EXPECT_TRUE(server->entry(key_));
  EXPECT_EQ(server->entry(key_).kind, Value::Kind::other);
  EXPECT_FALSE(server->rows(other_.specialisation));
}

TEST_P(RemoteSeam, AServerThatIsDownIsAnAnswer) {
  put(key_);
  const StoredValue value = stored(Kind::entry);
  const auto server = only_server();
  server_->stop();
  const ServerLook look = server->look();
  EXPECT_FALSE(look);
  EXPECT_FALSE(look.name.empty());
  EXPECT_FALSE(look.keys || look.missing);
  EXPECT_TRUE(look.advice.empty());
  EXPECT_FALSE(server->reach());
  EXPECT_FALSE(server->walk(ServerUpkeep::Walk::everything, [](auto) { ADD_FAILURE() << "a page"; }));
  EXPECT_FALSE(server->entry(key_));
  EXPECT_FALSE(server->has_entry(key_).has_value());
  const auto rows = server->rows(key_.specialisation);
  ASSERT_TRUE(rows) << "nobody knows that they are none";
  EXPECT_FALSE(*rows);
  EXPECT_FALSE(server->erase(value));
  const std::string some = "some";
  EXPECT_FALSE(server->erase_rows(key_.specialisation, {&some, 1}));
  EXPECT_FALSE(upkeep().missed("", 1));
  EXPECT_FALSE(upkeep().forget({&some, 1}));
  EXPECT_FALSE(upkeep().reach(key_.specialisation));

  EXPECT_FALSE(backend().put(key_, "row", "entry", soon()));
  Value got;
  backend().get({&key_, 1}, soon(), [&](std::size_t, Value one) { got = std::move(one); });
  EXPECT_FALSE(got);
  EXPECT_EQ(got.kind, Value::Kind::absent);
  EXPECT_FALSE(backend().list({&key_.specialisation, 1}, soon()).at(0));
  EXPECT_FALSE(backend().report({&some, 1}, soon()).at(0));
  EXPECT_EQ(lease(Lease::acquire, "1:a").state, LeaseAnswer::State::unanswered);
  EXPECT_FALSE(backend().health().at(0).last_error.empty());
}

INSTANTIATE_TEST_SUITE_P(Backends, RemoteSeam, ::testing::Values("memory", "redis"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
