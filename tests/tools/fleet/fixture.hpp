// Nodes of a fleet, through the command: each has its own cache
// directory; they share one redis-server and one key.
#pragma once

#include <sys/stat.h>

#include "cache/fleet/redis/client.hpp"
#include "support/places.hpp"
#include "tests/fleet/client_calls.hpp"
#include "tests/fleet/redis_server.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {

/// Without a server, for tests that start their own.
class FleetCommand : public KilnCompiler {
 protected:
  void SetUp() override {
    KilnCompiler::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(kiln({"bundle", "keygen", path("fleet")}).status, 0);
    ASSERT_EQ(kiln({"bundle", "keygen", path("other")}).status, 0);
  }

  Environment node(const std::string& name, const std::string& url) const {
    return {{"KILN_CACHE_DIR", path(name)},
            {"KILN_REMOTE", url},
            {"KILN_REMOTE_MODE", "fleet"},
            {"KILN_REMOTE_SIGN", path("fleet.key")}};
  }
  /// A node that only reads.
  Environment reader(const std::string& name, const std::string& url) const {
    return {{"KILN_CACHE_DIR", path(name)}, {"KILN_REMOTE", url}, {"KILN_REMOTE_KEY", path("fleet.pub")}};
  }
  static Arguments compile(int n) { return {"compile", "scale", "N=" + std::to_string(n), "--json"}; }

  /// A worker script that waits until the file `name` exists. Compiles
  /// of nodes with this worker wait with it.
  std::string held_worker(const std::string& name) const {
    const std::string file = path(name + ".sh");
    base::write_file(file, "#!/bin/sh\nwhile [ ! -e " + path(name) +
                               " ]; do [ -e \"$0\" ] || exit; sleep 0.02; done\nexec " +
                               std::string(places::kBuildDirectory) + "/kiln-worker \"$@\"\n");
    ::chmod(file.c_str(), 0755);
    return file;
  }
  void release(const std::string& name) const { write(name, ""); }

  /// The lifetime counters of a node.
  nlohmann::json counts(const Environment& of) { return kiln({"stats", "--json"}, of).json()["lifetime"]; }
};

class Fleet : public FleetCommand {
 protected:
  void SetUp() override {
    if (!testing::RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    FleetCommand::SetUp();
    if (IsSkipped()) return;
    server_.emplace();
    client_.emplace(fleet::test::options(server_->unix_url()));
  }

  Environment node(const std::string& name) const { return FleetCommand::node(name, server_->patient_url()); }
  Environment reader(const std::string& name) const {
    return FleetCommand::reader(name, server_->patient_url());
  }

  fleet::Reply ask(std::vector<std::string> words) {
    fleet::Command command{std::move(words), {}, std::uint64_t{64} << 20};
    fleet::Answer answer = client_->call(command, base::Deadline::never());
    EXPECT_TRUE(answer) << name_of(answer.fault) << ' ' << answer.detail;
    return std::move(answer.reply);
  }
  std::vector<std::string> names(const std::string& pattern) {
    std::vector<std::string> out;
    for (const fleet::Reply& name : ask({"KEYS", pattern}).elements) out.push_back(name.text);
    return out;
  }
  std::size_t entries() { return names("kiln:1:*:e:*").size(); }
  /// Waits until no node has a lease. A lease that was not released would end by itself only after 10 s.
  /// The wait is needed: a release lets the lease live for a millisecond, and a command that ends does
  /// not wait until the release has arrived.
  bool leases_given_back() {
    return base::poll_until(base::Deadline::after(std::chrono::seconds(5)),
                            [&] { return names("kiln:1:*:l:*").empty(); });
  }
  bool comes_true(const std::function<bool()>& condition) const {
    return base::poll_until(base::Deadline::after(std::chrono::seconds(30)), condition);
  }

  std::optional<testing::RedisServer> server_;
  std::optional<fleet::Client> client_;
};

}  // namespace kiln::test
