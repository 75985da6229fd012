// The Tier over a backend that is not Redis: the tier's policy needs only the functions of the seam.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cache/fleet/tier.hpp"
#include "fleet/memory_backend.hpp"
#include "fleet/trust_fixture.hpp"
#include "kiln/error.hpp"

using namespace kiln;
using namespace kiln::fleet;
using namespace kiln::testing;
using namespace std::chrono_literals;

namespace {

class TierOverMemory : public ::testing::Test {
 protected:
  /// A node of the fleet that may write, and signs with the fleet's key.
  struct Node {
    Node(std::shared_ptr<Backend> backend, std::shared_ptr<const trust::SigningKey> signer) {
      TierOptions options;
      options.fleet = true;
      options.signer = std::move(signer);
      options.who = "node";
      options.patience = 10s;
      tier = std::make_unique<Tier>(std::move(options), std::move(backend), counts);
    }
    Tier::Reply ask(const PublishedRecord& entry, std::function<void()> on_wait = {}) {
      return tier->ask(
          {.key = entry.key, .key_text = entry.key_text, .acceptable = {}, .on_wait = std::move(on_wait)});
    }
    void publish(const PublishedRecord& entry, std::shared_ptr<HeldLease> lease = nullptr) {
      EXPECT_TRUE(tier->publish(entry, {.created_s = 7, .serves_others = true, .compiler_version = "13.0"},
                                std::move(lease), Tier::Full::wait));
    }
    const std::shared_ptr<Counts> counts = std::make_shared<Counts>();
    std::unique_ptr<Tier> tier;
  };

  Node node() { return Node(server_, key_); }

  const std::shared_ptr<MemoryBackend> server_ = std::make_shared<MemoryBackend>();
  const std::shared_ptr<const trust::SigningKey> key_ =
      std::make_shared<const trust::SigningKey>(signing_key(1));
  const PublishedRecord entry_ = some_entry(1);
};

}  // namespace

TEST_F(TierOverMemory, GivesOneNodeWhatAnotherHasPut) {
  Node writer = node(), reader = node();
  Tier::Reply first = writer.ask(entry_);
  EXPECT_FALSE(first.entry);
  EXPECT_TRUE(first.absent);
  ASSERT_TRUE(first.lease);
  EXPECT_EQ(writer.counts->remote_miss_absent, 1u);
  EXPECT_EQ(writer.counts->remote_leases, 1u);
  writer.publish(entry_, std::move(first.lease));
  ASSERT_TRUE(writer.tier->flush(base::Deadline::never()));
  EXPECT_EQ(writer.counts->remote_puts, 1u);

  const Tier::Reply reply = reader.ask(entry_);
  ASSERT_TRUE(reply.entry);
  EXPECT_EQ(reply.entry->image, entry_.image);
  EXPECT_EQ(reply.entry->facts, entry_.facts);
  EXPECT_EQ(reply.entry->signed_by, key_->public_key().id);
  EXPECT_FALSE(reply.lease);
  const auto fetched =
      reader.tier->fetch({asked_for(entry_), asked_for(some_entry(2))}, base::Deadline::never());
  ASSERT_EQ(fetched.size(), 2u);
  EXPECT_TRUE(fetched[0].entry);
  EXPECT_FALSE(fetched[1].entry);
  EXPECT_EQ(fetched[1].fault, Fault::none);
}

TEST_F(TierOverMemory, FindsAnotherToolchainsEntryByItsSignedRow) {
  Node writer = node(), reader = node();
  writer.publish(entry_);
  ASSERT_TRUE(writer.tier->flush(base::Deadline::never()));
  const std::string section = entry_.key_text.substr(0, entry_.key_text.find("toolchain"));
  const auto found = reader.tier->find(
      {.specialisation = entry_.key.specialisation, .text = section, .wanted = {}, .acceptable = {}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->image, entry_.image);
  EXPECT_EQ(reader.tier->are_listed({entry_.key, some_entry(1, 9).key}, base::Deadline::never(),
                                    reader.tier->trusted()),
            (std::vector<bool>{true, false}));
  EXPECT_FALSE(reader.tier->find(
      {.specialisation = some_entry(2).key.specialisation, .text = section, .wanted = {}, .acceptable = {}}));
}

TEST_F(TierOverMemory, WaitsForALeaseThatAnotherHolds) {
  Node holder = node(), waiter = node();
  Tier::Reply held = holder.ask(entry_);
  ASSERT_TRUE(held.lease);
  std::atomic<bool> waits = false;
  Tier::Reply reply;
  std::thread thread([&] { reply = waiter.ask(entry_, [&] { waits = true; }); });
  while (!waits) std::this_thread::sleep_for(1ms);
  holder.publish(entry_, std::move(held.lease));
  thread.join();
  ASSERT_TRUE(reply.entry);
  EXPECT_EQ(reply.entry->image, entry_.image);
  EXPECT_TRUE(reply.waited);
  EXPECT_FALSE(reply.lease);
  EXPECT_EQ(waiter.counts->remote_waits, 1u);
  EXPECT_EQ(waiter.counts->remote_leases, 0u);
}

TEST_F(TierOverMemory, TakesALeaseOverThatWasGivenBackWithoutAnEntry) {
  Node holder = node(), waiter = node();
  Tier::Reply held = holder.ask(entry_);
  ASSERT_TRUE(held.lease);
  std::atomic<bool> waits = false;
  Tier::Reply reply;
  std::thread thread([&] { reply = waiter.ask(entry_, [&] { waits = true; }); });
  while (!waits) std::this_thread::sleep_for(1ms);
  held.lease.reset();
  thread.join();
  EXPECT_FALSE(reply.entry);
  EXPECT_TRUE(reply.lease);
  EXPECT_EQ(waiter.counts->remote_leases, 1u);
  reply.lease.reset();
  waiter.tier.reset();
  holder.tier.reset();
  EXPECT_EQ(server_->leases(), 0u);
}

TEST_F(TierOverMemory, CountsAFaultAsAMissAndLosesTheEntryAlone) {
  Node one = node();
  server_->fail(Fault::timeout);
  const Tier::Reply reply = one.ask(entry_);
  EXPECT_FALSE(reply.entry);
  EXPECT_FALSE(reply.lease);
  EXPECT_FALSE(reply.absent);
  EXPECT_EQ(one.counts->remote_miss_timeout, 1u);
  EXPECT_FALSE(one.tier->find(
      {.specialisation = entry_.key.specialisation, .text = "", .wanted = {}, .acceptable = {}}));
  EXPECT_EQ(one.counts->remote_miss_timeout, 2u);
  one.publish(entry_);
  ASSERT_TRUE(one.tier->flush(base::Deadline::never()));
  EXPECT_EQ(one.counts->remote_puts_failed, 1u);
  EXPECT_EQ(one.tier->totals().last_fault, Fault::timeout);
  EXPECT_EQ(one.tier->backend().health().front().last_error, "timeout: as the test wants");

  server_->fail(Fault::none);
  one.publish(entry_);
  ASSERT_TRUE(one.tier->flush(base::Deadline::never()));
  EXPECT_EQ(one.counts->remote_puts, 1u);
  EXPECT_TRUE(one.ask(entry_).entry);
}

TEST_F(TierOverMemory, BelievesNothingThatTheServerChanged) {
  Node one = node();
  one.publish(entry_);
  ASSERT_TRUE(one.tier->flush(base::Deadline::never()));
  server_->entry(entry_.key)[EnvelopePlaces(entry_).signature] ^= 1;
  const Tier::Reply reply = one.ask(entry_);
  EXPECT_FALSE(reply.entry);
  EXPECT_TRUE(reply.lease);
  EXPECT_EQ(one.counts->remote_rejected_signature, 1u);
}

TEST_F(TierOverMemory, ReportsAMissedRowOnce) {
  Node one = node();
  server_->fail(Fault::timeout);
  one.tier->report_missing("rms_norm T=bf16");
  ASSERT_TRUE(one.tier->flush(base::Deadline::never()));
  EXPECT_EQ(one.counts->remote_reported, 0u);
  server_->fail(Fault::none);
  one.tier->report_missing("rms_norm T=bf16");
  one.tier->report_missing("rms_norm T=f16");
  ASSERT_TRUE(one.tier->flush(base::Deadline::never()));
  EXPECT_EQ(one.counts->remote_reported, 2u);
  EXPECT_EQ(server_->missed(), (std::vector<std::string>{"rms_norm T=bf16", "rms_norm T=f16"}));
}

TEST(Backend, WithoutUpkeepShowsNoServersAndSaysSoOfMissedRows) {
  struct : MemoryBackend {
    Upkeep& upkeep() noexcept override { return Backend::upkeep(); }
  } plain;
  EXPECT_TRUE(plain.upkeep().servers().empty());
  EXPECT_TRUE(plain.upkeep().reach({}));
  const MissedPage page = plain.upkeep().missed("", 10);
  EXPECT_EQ(page.fault, Fault::refused);
  EXPECT_NE(page.detail.find("cannot list the kernels that were missed"), std::string::npos);
}

TEST(TierUrl, NamesItsServersWithoutThePassword) {
  EXPECT_EQ(TierUrl::parse("redis://me:secret@a:1,b:2/3").safe(), "redis://a:1,b:2/3");
  EXPECT_THROW(TierUrl::parse("https://host"), Error);
}
