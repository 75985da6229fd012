// [[tensormap]] and [template] arguments: what they say, and what is refused.
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

using From = PassedArgument::From;

const std::string kMap = R"toml([[tensormap]]
name = "map_x"
of = "x"
dims = ["H", "rows"]
strides = ["stride_x"]
box = [64, "VEC"]
swizzle = "64 * sizeof(T)"
)toml";

std::string map_with(const std::string& more) { return with(kMap + more + "\n"); }
std::string without(const std::string& line) {
  std::string out = kMap;
  return with(out.replace(out.find(line), line.size() + 1, ""));
}

std::string passed_names(const Manifest& m) {
  std::string out;
  for (const PassedArgument& p : m.passed) out += (out.empty() ? "" : " ") + passed_name(m, p);
  return out;
}

TEST(ManifestTensorMap, SaysAnArrayAndABox) {
  const Manifest m = parse(map_with("l2 = 256\nfill = \"nan\"\nelement_strides = [1, 2]\ndoc = \"rows\""));
  ASSERT_EQ(m.tensor_maps.size(), 1u);
  const TensorMapSpec& map = m.tensor_maps[0];
  EXPECT_EQ(map.name, "map_x");
  EXPECT_EQ(map.doc, "rows");
  EXPECT_EQ(map.of, 0);
  EXPECT_EQ(map.element.text(), "T");  // the pointer's own dtype
  EXPECT_EQ(map.dims.size(), 2u);
  EXPECT_EQ(map.strides[0].text(), "stride_x");
  EXPECT_FALSE(map.strides_in_bytes);
  EXPECT_EQ(map.swizzle.text(), "64 * sizeof(T)");
  EXPECT_EQ(map.l2.constant_value(), 256);
  EXPECT_EQ(map.interleave.constant_value(), 0);
  EXPECT_TRUE(map.fill_nan);
  EXPECT_EQ(map.in, -1);
  EXPECT_EQ(passed_names(m), "x rows stride_x eps map_x");
  EXPECT_EQ(passed_size(m, m.passed.back()), 128u);
  EXPECT_NO_THROW(parse("needs = [\"tensormap\"]\n" + map_with("")));
}

TEST(ManifestTensorMap, HasElementsOfItsOwn) {
  EXPECT_EQ(parse(map_with("dtype = \"u8\"")).tensor_maps[0].element.constant_value(),
            static_cast<std::int64_t>(Dtype::u8));
  const Manifest m = parse(map_with("dtype = \"tf32\""));
  EXPECT_EQ(m.tensor_maps[0].element.constant_value(), static_cast<std::int64_t>(Dtype::f32));
  EXPECT_EQ(m.tensor_maps[0].float32, TensorMapSpec::Float32::tf32);
  expect_refused(map_with("dtype = \"half\""), "dtype = \"half\"",
                 {"[[tensormap]] 'map_x' dtype", "'half' is no dtype and no dtype parameter", "f32_flushed"});
  std::string bytes = map_with("");
  bytes.replace(bytes.find("ptr<T>"), 6, "ptr<void>");
  expect_refused(bytes, "[[tensormap]]", {"dtype", "is missing, and 'x' is a ptr<void>"});
}

TEST(ManifestTensorMap, IsRefusedWithItsReason) {
  expect_refused(without("of = \"x\""), "[[tensormap]]", {"needs 'of'"});
  expect_refused(with("[[tensormap]]\nname = \"m\"\nof = \"rows\"\ndims = [1]\nbox = [1]\n"), "of = \"rows\"",
                 {"'rows' is no argument that is a pointer; known: x"});
  expect_refused(map_with("box_size = 1"), "box_size", {"box_size", "unknown"});
  expect_refused(without("strides = [\"stride_x\"]"), "[[tensormap]]",
                 {"strides", "has 0 strides; expected one for each of dims but the first", "makes 1"});
  expect_refused(map_with("byte_strides = [16]"), "strides = [\"stride_x\"]", {"write one of them"});
  expect_refused(map_with("element_strides = [1]"), "element_strides", {"has 1 dimensions, and dims has 2"});
  expect_refused(map_with("fill = \"one\""), "fill = \"one\"", {"'one' is unknown; allowed: zero nan"});
  expect_refused(map_with("offset = 64"), "offset = 64", {"which `in` must name"});
  expect_refused(map_with("in = \"x\""), "in = \"x\"", {"'x' is no argument that is a struct; known: none"});
  expect_refused(map_with("[[tensormap]]\nname = \"rows\"\nof = \"x\"\ndims = [1]\nbox = [1]"),
                 "name = \"rows\"\nof", {"two of the", "tensor maps", "are called 'rows'"});
  expect_refused(map_with("[[require]]\nexpr = \"map_x > 0\"\nmessage = \"no\""), "expr = \"map_x > 0\"",
                 {"'map_x' cannot be used here: it is a tensor map"});
  expect_refused(with("[[tensormap]]\nname = \"m\"\nof = \"x\"\ndims = [1, 1, 1, 1, 1, 1]\nbox = [1]\n"),
                 "dims", {"has 6 expressions; expected 1 to 5"});
}

TEST(ManifestTensorMap, TheKernelsArgumentsAreNamed) {
  const auto arguments = [](const std::string& names) {
    std::string out = map_with("");
    const std::string at = "name = \"rms_norm\"\n";
    return out.insert(out.find(at) + at.size(), "arguments = " + names + '\n');
  };
  const Manifest m = parse(arguments("[\"rows\", \"map_x\", \"eps\"]"));
  EXPECT_EQ(passed_names(m), "rows map_x eps");
  EXPECT_EQ(m.passed[1].from, From::tensor_map);
  EXPECT_EQ(m.passed[2].index, 3u);
  EXPECT_EQ(m.arguments.size(), 4u);  // a call is as before
  expect_refused(
      arguments("[\"row\"]"), "arguments",
      {"'row' is no argument and no tensor map", "did you mean 'rows'", "x rows stride_x eps map_x"});
  expect_refused(arguments("[\"eps\", \"eps\"]"), "arguments", {"'eps' stands there twice"});
}

TEST(ManifestTensorMap, AStructHoldsMaps) {
  const std::string held =
      with("[[arg]]\nname = \"params\"\ntype = \"struct\"\n[export]\nPLACE = \"offsetof(P, map)\"\n" + kMap +
           "in = \"params\"\noffset = \"PLACE\"\n");
  const Manifest m = parse(held);
  EXPECT_EQ(m.tensor_maps[0].in, 4);
  EXPECT_EQ(m.tensor_maps[0].offset.text(), "PLACE");
  EXPECT_EQ(passed_names(m), "x rows stride_x eps params");
  std::string moving = held;
  expect_refused(moving.replace(moving.find("\"PLACE\"\n"), 7, "\"rows\""), "offset = \"rows\"",
                 {"a struct has one layout"});
  std::string left_out = held;
  const std::string at = "name = \"rms_norm\"\n";
  expect_refused(left_out.insert(left_out.find(at) + at.size(), "arguments = [\"x\"]\n"), "arguments",
                 {"leaves out 'params'", "struct<BYTES>"});
}

TEST(ManifestTensorMap, AnArchAndAnEntryPointHaveArgumentsOfTheirOwn) {
  const Manifest m =
      parse(map_with("[arch.sm_80]\narguments = [\"x\", \"rows\"]\n"
                     "[[kernel]]\nname = \"other\"\ninstantiate = \"f<{T}>\"\narguments = [\"m\"]\n"
                     "[[kernel.arg]]\nname = \"p\"\ntype = \"ptr<T>\"\n"
                     "[[kernel.tensormap]]\nname = \"m\"\nof = \"p\"\ndims = [64]\nbox = [64]\n"
                     "[kernel.launch]\ngrid = [1]\nblock = [32]"));
  EXPECT_EQ(passed_names(m), "x rows stride_x eps map_x");
  EXPECT_EQ(passed_names(variant_for(m, base::Arch(80))), "x rows");
  ASSERT_EQ(m.entries.size(), 1u);
  EXPECT_EQ(passed_names(*m.entries[0]), "m");
  EXPECT_EQ(m.entries[0]->tensor_maps.size(), 1u);
}

TEST(ManifestConstants, TheKernelMayBePassedWhatNoCallGives) {
  const auto arguments = [](const std::string& names) {
    return changed("name = \"rms_norm\"\n", "name = \"rms_norm\"\narguments = " + names + '\n');
  };
  const Manifest m =
      parse(arguments("[\"x\", { null = true }, { u32 = \"H * rows\" }, { f32 = 0.5 }, \"rows\", { f64 = "
                      "\"H\" }, { i64 = -1 }]"));
  EXPECT_EQ(passed_names(m), "x null u32 H * rows f32 0.5 rows f64 H i64 -1");
  EXPECT_EQ(passed_text(m), "x, null, u32 H * rows, f32 0.5, rows, f64 H, i64 -1");
  const std::uint32_t sizes[] = {8, 8, 4, 4, 4, 8, 8};
  for (std::size_t i = 0; i < std::size(sizes); ++i) EXPECT_EQ(passed_size(m, m.passed[i]), sizes[i]) << i;
  EXPECT_EQ(m.constants.size(), 5u);
  expect_refused(arguments("[{ }]"), "arguments", {"a constant has one type", "{ null = true }"});
  expect_refused(arguments("[{ u32 = 1, i32 = 1 }]"), "arguments", {"a constant has one type"});
  expect_refused(arguments("[{ null = false }]"), "arguments", {"null", "must be true"});
  expect_refused(arguments("[{ u16 = 1 }]"), "arguments", {"u16", "unknown"});
  expect_refused(arguments("[{ u32 = 0.5 }]"), "arguments", {"[template] arguments u32"});
  expect_refused(arguments("[{ u32 = \"W\" }]"), "arguments", {"'W'"});
  expect_refused(arguments("[1]"), "arguments", {"names of arguments and tensor maps, and constants"});
  expect_refused(arguments("\"x\""), "arguments", {"an array of names and constants"});
}

}  // namespace
}  // namespace kiln::source
