// The permission of a call, by mode, seal and what the call asked for.
#include "runtime/state/permission.hpp"

#include <gtest/gtest.h>

namespace kiln::testing {
namespace {

using runtime::MissAfterSeal;
using runtime::Permission;

constexpr Mode kModes[] = {Mode::by_default, Mode::jit, Mode::warn, Mode::sealed};

Permission permission(Mode mode, bool closed, const runtime::Asked& asked = {}) {
  Options options = Options::hermetic();
  options.mode = mode;
  runtime::Seal seal(runtime::Config::resolve(options));
  if (closed) seal.close();
  return seal.permission(asked);
}

TEST(PermissionOfACall, BeforeTheSealNoMissIsHandledInAnotherWay) {
  for (const Mode mode : kModes) EXPECT_EQ(permission(mode, false).after_seal, MissAfterSeal::quiet);
}

TEST(PermissionOfACall, AfterTheSealAMissIsHandledByTheModeThatWasSet) {
  EXPECT_EQ(permission(Mode::by_default, true).after_seal, MissAfterSeal::refuse);
  EXPECT_EQ(permission(Mode::jit, true).after_seal, MissAfterSeal::quiet);
  EXPECT_EQ(permission(Mode::warn, true).after_seal, MissAfterSeal::warn);
  EXPECT_EQ(permission(Mode::sealed, true).after_seal, MissAfterSeal::refuse);
}

TEST(PermissionOfACall, PrepareIsHeldBackByNothing) {
  for (const Mode mode : kModes) {
    const Permission now = permission(mode, true, {.past_seal = true});
    EXPECT_TRUE(now.disk && now.tier && now.compile);
    EXPECT_EQ(now.after_seal, MissAfterSeal::quiet);
  }
}

TEST(PermissionOfACall, OnlyModeSealedCountsWhatThePathRefuses) {
  for (const bool closed : {false, true})
    for (const bool may_compile : {false, true})
      for (const Mode mode : kModes)
        EXPECT_EQ(permission(mode, closed, {.may_compile = may_compile}).counts_sealed_miss,
                  mode == Mode::sealed)
            << "a seal alone, or a call that may not compile, is not counted by the path";
}

TEST(PermissionOfACall, ASealedServiceReadsNoDiskAfterItsSeal) {
  EXPECT_TRUE(permission(Mode::sealed, false).disk);
  EXPECT_FALSE(permission(Mode::sealed, false).compile);
  for (const Mode mode : {Mode::by_default, Mode::sealed}) {
    EXPECT_FALSE(permission(mode, true).disk);
    EXPECT_FALSE(permission(mode, true).compile);
  }
}

}  // namespace
}  // namespace kiln::testing
