// The places that are searched for an installation's files. This program defines KILN_INSTALL_PREFIX, as
// users of the static library do.
#include "base/installation.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "kiln/kiln.h"

namespace kiln::testing {
namespace {

using Places = std::vector<std::string>;

TEST(Installation, IsLookedForAroundTheProgramThenAtThePackagesPrefixThenWhereItWasConfigured) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto around = [&](const std::filesystem::path& prefix) { return (prefix / "share/x").string(); };
  EXPECT_EQ(
      base::candidates_of({.below = "share/x", .configured = "/configured/x", .beside = {}}),
      (Places{around(program), around(program.parent_path()), around(program.parent_path().parent_path()),
              "/opt/of the package/share/x", "/configured/x"}));
}

TEST(Installation, AWorkerMayLieBesideTheProgram) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  EXPECT_EQ(base::candidates_of({.below = "libexec/x", .configured = "/configured/x", .beside = "x"}).front(),
            program / "x");
}

TEST(Installation, NamesEachPlaceOnce) {
  const std::string place = "/opt/of the package/share/x";
  const Places places = base::candidates_of({.below = "share/x", .configured = place, .beside = {}});
  EXPECT_EQ(std::count(places.begin(), places.end(), place), 1);
}

}  // namespace
}  // namespace kiln::testing
