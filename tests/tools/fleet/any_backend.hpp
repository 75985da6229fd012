// A tier with a backend that is not Redis.
#pragma once

#include <gtest/gtest.h>

#include "cache/fleet/tier.hpp"
#include "fleet/memory_backend.hpp"
#include "fleet/trust_fixture.hpp"

namespace kiln::testing {

class AnyBackend : public ::testing::Test {
 protected:
  void put(const fleet::PublishedRecord& entry, const trust::SigningKey& signer) {
    const fleet::ToolchainRow row{entry.key, 7, 100, true, "13.0", entry.toolchain};
    ASSERT_TRUE(server_->put(entry.key, fleet::seal_row(row, &signer), fleet::seal_envelope(entry, &signer),
                             base::Deadline::never()));
  }
  static fleet::TierOptions options(std::shared_ptr<const trust::SigningKey> signer) {
    fleet::TierOptions out;
    out.fleet = true;
    out.signer = std::move(signer);
    return out;
  }

  const std::shared_ptr<MemoryBackend> server_ = std::make_shared<MemoryBackend>();
  const std::shared_ptr<const trust::SigningKey> key_ =
      std::make_shared<const trust::SigningKey>(signing_key(1));
  fleet::Tier tier_{options(key_), server_, std::make_shared<fleet::Counts>()};
};

}  // namespace kiln::testing
