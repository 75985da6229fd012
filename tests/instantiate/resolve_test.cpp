#include "instantiate/instantiate.hpp"
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

const base::Arch kArch{90};

Resolved resolve_named(const Manifest& m, std::initializer_list<NamedValue> values, base::Arch arch = kArch) {
  const auto list = positional(m, std::span(values.begin(), values.size()));
  return resolve(m, list, arch);
}
std::string text_of(const Manifest& m, std::initializer_list<NamedValue> values, base::Arch arch = kArch) {
  return resolve_named(m, values, arch).specialization.to_string();
}

TEST(Resolve, FillsDefaultsInTheOrderOfTheManifest) {
  const Manifest m = parse(kManifest);
  EXPECT_EQ(text_of(m, {{"H", 4096}, {"T", Dtype::bf16}}), "rms_norm T=bf16 H=4096 VEC=8 ACT=silu");
  EXPECT_EQ(text_of(m, {{"H", 4}, {"T", Dtype::f32}}), "rms_norm T=f32 H=4 VEC=4 ACT=silu");
  EXPECT_EQ(text_of(m, {{"H", 4096}, {"T", "f16"}, {"VEC", 2}, {"ACT", "gelu"}}),
            "rms_norm T=f16 H=4096 VEC=2 ACT=gelu");
  const Value values[] = {Dtype::bf16, 64};
  EXPECT_EQ(resolve(m, values, kArch).specialization.to_string(), "rms_norm T=bf16 H=64 VEC=8 ACT=silu");
  const Value unset[] = {Dtype::bf16, 64, Value(), "gelu"};
  EXPECT_EQ(resolve(m, unset, kArch).specialization.to_string(), "rms_norm T=bf16 H=64 VEC=8 ACT=gelu");
}

TEST(Resolve, FillsTheSlotsThatAreKnown) {
  const Manifest m = parse(kManifest);
  const Resolved r = resolve_named(m, {{"T", "bf16"}, {"H", 4096}});
  ASSERT_EQ(r.slots.size(), static_cast<std::size_t>(m.slots.total()));
  const auto slot = [&](const char* name) { return r.slots[static_cast<std::size_t>(slot_index(m, name))]; };
  EXPECT_EQ(slot("T"), 2);
  EXPECT_EQ(slot("H"), 4096);
  EXPECT_EQ(slot("CHUNKS"), 512);
  EXPECT_EQ(slot("arch"), 90);
  EXPECT_EQ(slot("rows"), 0);
  EXPECT_EQ(slot("dev.sms"), 0);
  EXPECT_EQ(r.arch, kArch);
}

TEST(Resolve, DefaultsMayNeedDerivesAndTheArch) {
  std::string text = changed("\"gcd(H, 16 / sizeof(T))\"", "\"HALF > 100 && arch >= 90 ? 8 : 4\"");
  const std::string derive = "[derive]\n";
  text.replace(text.find(derive), derive.size(), "[derive]\nHALF = \"H / 2\"\n");
  const Manifest m = parse(text);
  EXPECT_EQ(text_of(m, {{"T", "f32"}, {"H", 256}}), "rms_norm T=f32 H=256 VEC=8 ACT=silu");
  EXPECT_EQ(text_of(m, {{"T", "f32"}, {"H", 64}}), "rms_norm T=f32 H=64 VEC=4 ACT=silu");
  EXPECT_EQ(text_of(m, {{"T", "f32"}, {"H", 256}}, base::Arch{80}), "rms_norm T=f32 H=256 VEC=4 ACT=silu");
}

TEST(Resolve, DefaultsMayNeedTheMemoryAndRegistersOfTheArch) {
  const auto derived = [](const char* expression, const char* arch) {
    std::string text = kManifest;
    text.replace(text.find("[derive]\n"), 9, "[derive]\nFACT = \"" + std::string(expression) + "\"\n");
    const Manifest m = parse(text);
    const Resolved r = resolve_named(m, {{"T", "f32"}, {"H", 64}}, base::Arch::parse(arch));
    return r.slots[static_cast<std::size_t>(slot_index(m, "FACT"))];
  };
  EXPECT_EQ(derived("arch.smem_sm", "sm_80"), 164 * 1024);
  EXPECT_EQ(derived("arch.smem_sm / 1024", "sm_89"), 100);
  EXPECT_EQ(derived("arch.smem_block", "sm_90a"), 227 * 1024);
  EXPECT_EQ(derived("arch.smem_block", "sm_100a"), 227 * 1024);
  EXPECT_EQ(derived("arch.regs", "sm_120"), 65536);
  EXPECT_EQ(derived("arch.smem_sm", "sm_106"), 228 * 1024)
      << "unknown: the newest known one of that major version";
  EXPECT_EQ(derived("arch.smem_sm", "sm_130"), 64 * 1024) << "nothing is known: the smallest";
  EXPECT_EQ(derived("arch", "sm_103a"), 103);
}

TEST(Resolve, AGivenValueKeepsItsDefaultFromBeingWorkedOut) {
  const Manifest m = parse(changed("\"gcd(H, 16 / sizeof(T))\"", "\"8 / (H - 64)\""));
  EXPECT_EQ(text_of(m, {{"T", "f32"}, {"H", 64}, {"VEC", 2}}), "rms_norm T=f32 H=64 VEC=2 ACT=silu");
  expect_error(Errc::requirement, {"'rms_norm'", "default of 'VEC'", "division by zero", "8 / (H - 64)"},
               [&] {
                 resolve_named(m, {{"T", "f32"}, {"H", 64}});
               });
}

TEST(Resolve, TextIsAcceptedForEveryKind) {
  const Manifest m = parse(with("[param.B]\nkind = \"bool\"\n"));
  EXPECT_EQ(text_of(m, {{"T", "bf16"}, {"H", "128"}, {"B", "true"}}),
            "rms_norm T=bf16 H=128 VEC=8 ACT=silu B=true");
  EXPECT_EQ(text_of(m, {{"T", "bf16"}, {"H", "0128"}, {"B", "0"}}),
            "rms_norm T=bf16 H=128 VEC=8 ACT=silu B=false");
  EXPECT_EQ(text_of(m, {{"T", "bf16"}, {"H", 128}, {"B", true}}),
            "rms_norm T=bf16 H=128 VEC=8 ACT=silu B=true");
}

TEST(Resolve, NothingButWhitelistedValuesPasses) {
  const Manifest m = parse(with("[param.B]\nkind = \"bool\"\ndefault = false\n"));
  const auto refused = [&](const char* name, const Value& value, std::initializer_list<std::string> pieces) {
    std::vector<NamedValue> values = {{"T", "bf16"}, {"H", 64}};
    if (std::string_view(name) == "T")
      values[0].value = value;
    else if (std::string_view(name) == "H")
      values[1].value = value;
    else
      values.push_back({name, value});
    const std::string message =
        expect_error(Errc::invalid_value, pieces, [&] { resolve(m, positional(m, values), kArch); });
    EXPECT_NE(message.find("template 'rms_norm', parameter '" + std::string(name) + "'"), std::string::npos)
        << message;
  };
  refused("H", 0, {": 0 is not allowed; allowed: 1 to 65536"});
  refused("H", 65537, {"65537 is not allowed"});
  refused("H", -1, {"-1 is not allowed"});
  refused("H", "", {"'' is not allowed"});
  refused("H", "4096 ", {"'4096 ' is not allowed"});
  refused("H", "+4", {"'+4' is not allowed"});
  refused("H", "0x10", {"'0x10' is not allowed"});
  refused("H", "4096>(); int x", {"'4096>(); int x' is not allowed"});
  refused("H", "4096\n#include </etc/passwd>", {"'4096\\n#include </etc/passwd>'"});
  refused("H", "99999999999999999999", {"is not allowed"});
  refused("H", true, {"true is not allowed"});
  refused("H", Dtype::f32, {"f32 is not allowed"});
  refused("T", Dtype::f64, {"f64 is not allowed; allowed: f32, f16, bf16"});
  refused("T", static_cast<Dtype>(99), {"dtype number 99 is not allowed"});
  refused("T", 2, {"2 is not allowed"});
  refused("T", "kiln::bf16", {"'kiln::bf16' is not allowed"});
  refused("T", std::string_view("bf16\0", 5), {"'bf16\\x00' is not allowed"});
  refused("VEC", 3, {"3 is not allowed; allowed: 1, 2, 4, 8"});
  refused("ACT", "relu", {"'relu' is not allowed; allowed: silu, gelu"});
  refused("ACT", 0, {"0 is not allowed; allowed: silu, gelu"});
  refused("ACT", "kiln::Act::silu", {"is not allowed"});
  refused("ACT", "silu\"", {"'silu\"' is not allowed"});
  refused("B", 1, {"1 is not allowed; allowed: true, false"});
  refused("B", "yes", {"'yes' is not allowed; allowed: true, false"});
  refused("B", "TRUE", {"'TRUE' is not allowed"});
  refused("H", std::string(1000, '7').c_str(), {"...' is not allowed"});
}

TEST(Resolve, MissingValuesAreNamed) {
  const Manifest m = parse(kManifest);
  expect_error(Errc::unknown_parameter, {"template 'rms_norm'", "parameter 'H'", "no default", "1 to 65536"},
               [&] {
                 resolve_named(m, {{"T", "bf16"}});
               });
  expect_error(Errc::unknown_parameter, {"parameter 'T'", "f32, f16, bf16"}, [&] { resolve(m, {}, kArch); });
  const Value many[] = {Dtype::bf16, 64, 8, "silu", 1};
  expect_error(Errc::invalid_argument, {"'rms_norm' takes 4 parameters (T H VEC ACT), not 5"},
               [&] { resolve(m, many, kArch); });
}

TEST(Resolve, UnknownAndRepeatedNames) {
  const Manifest m = parse(kManifest);
  const NamedValue unknown[] = {{"VEX", 4}}, twice[] = {{"H", 4}, {"T", "bf16"}, {"H", 4}},
                   evil[] = {{"H\n", 4}};
  expect_error(Errc::unknown_parameter,
               {"template 'rms_norm' has no parameter 'VEX'", "did you mean 'VEC'?", "T H VEC ACT"},
               [&] { positional(m, unknown); });
  expect_error(Errc::unknown_parameter, {"parameter 'H' is given twice"}, [&] { positional(m, twice); });
  expect_error(Errc::unknown_parameter, {"'H\\n'"}, [&] { positional(m, evil); });
}

TEST(Resolve, ADefaultOutsideTheWhitelistIsAnInvalidValue) {
  const Manifest m = parse(changed("\"gcd(H, 16 / sizeof(T))\"", "\"H\""));
  expect_error(Errc::invalid_value,
               {"template 'rms_norm', parameter 'VEC'", "default 'H' gives 3", "allowed: 1, 2, 4, 8",
                "give VEC a value"},
               [&] {
                 resolve_named(m, {{"T", "bf16"}, {"H", 3}});
               });
}

TEST(Resolve, RequirementsAreCheckedBeforeCompiling) {
  const Manifest m = parse(kManifest);
  expect_error(Errc::requirement,
               {"rms_norm T=bf16 H=12 VEC=8 ACT=silu (sm_90a)", "VEC must divide H = 12", "H % VEC == 0"},
               [&] {
                 resolve_named(m, {{"T", "bf16"}, {"H", 12}, {"VEC", 8}});
               });
  const Manifest launch = parse(changed("\"H % VEC == 0\"", "\"rows % 2 == 1\""));
  EXPECT_NO_THROW(resolve_named(launch, {{"T", "bf16"}, {"H", 12}}));
  const Manifest broken = parse(changed("\"H % VEC == 0\"", "\"1 / (H - 12)\""));
  expect_error(Errc::requirement, {"'rms_norm'", "[[require]]", "division by zero"}, [&] {
    resolve_named(broken, {{"T", "bf16"}, {"H", 12}});
  });
  const Manifest derive = parse(changed("\"ceil_div(H, VEC)\"", "\"H / (VEC - 8)\""));
  expect_error(Errc::requirement, {"'rms_norm'", "derive 'CHUNKS'", "division by zero"}, [&] {
    resolve_named(derive, {{"T", "bf16"}, {"H", 64}});
  });
}

TEST(Resolve, Arch) {
  const Manifest least =
      parse(changed("name = \"rms_norm\"", "name = \"rms_norm\"\narch = { min = \"sm_80\" }"));
  EXPECT_NO_THROW(resolve_named(least, {{"T", "bf16"}, {"H", 64}}, base::Arch{80}));
  expect_error(Errc::unsupported_arch, {"template 'rms_norm' does not run on sm_75", "sm_80 or newer"}, [&] {
    resolve_named(least, {{"T", "bf16"}, {"H", 64}}, base::Arch{75});
  });
  const Manifest only = parse(
      changed("name = \"rms_norm\"", "name = \"rms_norm\"\narch = { only = [\"sm_90a\", \"sm_100a\"] }"));
  EXPECT_NO_THROW(resolve_named(only, {{"T", "bf16"}, {"H", 64}}, base::Arch{100}));
  expect_error(Errc::unsupported_arch, {"'rms_norm' does not run on sm_120a; it runs on: sm_90a sm_100a"},
               [&] {
                 resolve_named(only, {{"T", "bf16"}, {"H", 64}}, base::Arch{120});
               });
}

TEST(Resolve, MessagesShowValuesAsACallerKnowsThem) {
  const Manifest m = parse(with("[param.B]\nkind = \"bool\"\ndefault = true\n"));
  std::vector<std::int64_t> slots(static_cast<std::size_t>(m.slots.total()));
  slots[0] = 2, slots[1] = -7, slots[3] = 1, slots[4] = 1;
  slots[static_cast<std::size_t>(slot_index(m, "x"))] = 0xabc0;
  slots[static_cast<std::size_t>(slot_index(m, "rows"))] = 5;
  EXPECT_EQ(render_message(m, "{T} {H} {ACT} {B} {x} {rows} {{H}} {zzz}", slots),
            "bf16 -7 gelu true 0xabc0 5 {H} {zzz}");
  EXPECT_EQ(render_message(m, "{rows}", std::span(slots).first(2)), "{rows}");
}

TEST(ParseAssignments, SplitsAtTheFirstEqualsSignAndTakesSpacesAroundIt) {
  const std::string pieces[] = {"T=bf16", "ACT=a=b", "H="};
  const auto values = parse_assignments(pieces);
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values[0].name, "T");
  EXPECT_EQ(values[0].value.text, "bf16");
  EXPECT_EQ(values[1].value.text, "a=b");
  EXPECT_EQ(values[2].value.text, "");
  const std::string spaced[] = {"T", "=", "bf16", "H=4"};
  const auto words = parse_assignments(spaced);
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[0].name, "T");
  EXPECT_EQ(words[0].value.text, "bf16");
  EXPECT_EQ(words[1].name, "H");
  const std::string bad[] = {"bf16"}, empty[] = {"=3"}, cut[] = {"T", "="};
  expect_error(Errc::invalid_argument, {"'T'", "NAME=VALUE"}, [&] { parse_assignments(cut); });
  expect_error(Errc::invalid_argument, {"'bf16'", "NAME=VALUE"}, [&] { parse_assignments(bad); });
  expect_error(Errc::invalid_argument, {"'=3'"}, [&] { parse_assignments(empty); });
}

}  // namespace
}  // namespace kiln::source
