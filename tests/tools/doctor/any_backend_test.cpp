// Doctor's probe of a tier with a backend that is not Redis.
#include "tools/fleet/any_backend.hpp"
#include "tools/kiln/doctor/fleet.hpp"

namespace kiln::cli {
namespace {

class DoctorOfAnyBackend : public testing::AnyBackend {};

TEST_F(DoctorOfAnyBackend, FindsAServerWell) {
  put(testing::some_entry(1), *key_);
  Findings found;
  probe_servers(tier_, found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].status, Finding::Status::ok);
  EXPECT_TRUE(found[0].text.starts_with("memory answers in ")) << found[0].text;
  EXPECT_NE(found[0].text.find(", 2 keys; this node reads and writes"), std::string::npos) << found[0].text;
}

TEST_F(DoctorOfAnyBackend, SaysWhatTheBackendAdvises) {
  fleet::ServerLook look;
  look.advice = {"it forgets everything"};
  server_->say(look);
  Findings found;
  probe_servers(tier_, found);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].status, Finding::Status::note);
  EXPECT_EQ(found[1].text, "memory: it forgets everything");
}

TEST_F(DoctorOfAnyBackend, SaysWhyAServerDoesNotAnswer) {
  server_->fail(fleet::Fault::connect, "nobody listens");
  Findings found;
  probe_servers(tier_, found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].status, Finding::Status::warning);
  EXPECT_EQ(found[0].text,
            "memory does not answer: connect: nobody listens; kernels are compiled here meanwhile");
  EXPECT_EQ(found[0].fix, "start the server, or correct KILN_REMOTE");
}

}  // namespace
}  // namespace kiln::cli
