// Values that get() refuses never match a ready kernel.
#include <limits>

#include "runtime/core_fixture.hpp"

namespace kiln::testing {
namespace {

class RefusedValues : public Core {
 protected:
  static std::string name_of(const Kernel& k) { return k.info().specialization; }
  static void with_parameters(Service& service, const std::string& name, const std::string& instantiate,
                              const std::string& parameters, const std::string& head) {
    service.add_template("format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
                             ".cu\"\ninstantiate = \"" + instantiate + "\"\n" + parameters +
                             "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\n"
                             "[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n",
                         "template <" + head + "> __global__ void f(float* out) { *out = float(N); }\n");
  }
};

TEST_F(RefusedValues, TheLeastIntegerIsNotTheDefault) {
  Service service(options());
  with_parameters(service, "least", "f<{N}>",
                  "[param.N]\nkind = \"int\"\nrange = [-9223372036854775808, 9]\ndefault = 1\n",
                  "long long N");
  const KernelTemplate t = service.open("least");
  expect_error(Errc::invalid_value, {"-9223372036854775808"},
               [&] { t.get(std::numeric_limits<std::int64_t>::min()); });
  EXPECT_EQ(name_of(t.get()), "least N=1");
}

TEST_F(RefusedValues, AKindThatIsNoneIsRefusedReadyOrNot) {
  Service service(options());
  with_parameters(service, "named", "f<{N}>", "[param.N]\nkind = \"enum\"\nvalues = [\"a\", \"b\"]\n",
                  "int N");
  const KernelTemplate t = service.open("named");
  const kiln_value garbage{-1, 0, 1, nullptr};
  const kiln_kernel* out = nullptr;
  EXPECT_NE(kiln_template_get(t.handle(), nullptr, &garbage, 1, nullptr, &out), KILN_OK);
  t.get("b");
  out = nullptr;
  EXPECT_NE(kiln_template_get(t.handle(), nullptr, &garbage, 1, nullptr, &out), KILN_OK);
  EXPECT_EQ(kiln_template_try_get(t.handle(), &garbage, 1), nullptr);
}

TEST_F(RefusedValues, ANameTwiceIsRefusedReadyOrNot) {
  Service service(options());
  with_parameters(
      service, "s", "f<{N}, {M}>",
      "[param.N]\nkind = \"int\"\nrange = [1, 9]\n[param.M]\nkind = \"int\"\nrange = [1, 9]\ndefault = 1\n",
      "int N, int M");
  const KernelTemplate t = service.open("s");
  const char* names[] = {"N", "N"};
  const kiln_value values[] = {{KILN_VALUE_UNSET, 0, 0, nullptr}, {KILN_VALUE_INTEGER, 0, 5, nullptr}};
  const kiln_kernel* out = nullptr;
  EXPECT_NE(kiln_template_get(t.handle(), names, values, 2, nullptr, &out), KILN_OK);
  t.get(5);
  EXPECT_NE(kiln_template_get(t.handle(), names, values, 2, nullptr, &out), KILN_OK);
}

TEST_F(RefusedValues, TextIsAcceptedForEveryKind) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  const Kernel ready = t.get(5);
  EXPECT_EQ(t.get("5").handle(), ready.handle());
  EXPECT_EQ(t.try_get("5").handle(), ready.handle()) << "it is ready";
  with_parameters(service, "flag", "f<{N}>", "[param.N]\nkind = \"bool\"\n", "bool N");
  const KernelTemplate flag = service.open("flag");
  const Kernel yes = flag.get(true);
  EXPECT_EQ(flag.get("true").handle(), yes.handle());
  EXPECT_EQ(flag.try_get("true").handle(), yes.handle()) << "it is ready";
}

TEST_F(RefusedValues, ANameWithAZeroIsNoName) {
  Service service(options());
  small(service, "s");
  EXPECT_ANY_THROW(service.open("s").get({{std::string_view("N\0x", 3), 5}}));
}

TEST_F(RefusedValues, AHugeUnsignedIsNotANegativeNumber) {
  Service service(options());
  with_parameters(service, "u", "f<{N}>", "[param.N]\nkind = \"int\"\nrange = [-9, 9]\ndefault = 1\n",
                  "int N");
  EXPECT_ANY_THROW(service.open("u").get(std::numeric_limits<std::uint64_t>::max()));
}

}  // namespace
}  // namespace kiln::testing
