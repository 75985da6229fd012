// A small manifest that parses, and ways to change it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "library/work_lists.hpp"
#include "manifest/manifest.hpp"
#include "support/expect_error.hpp"

namespace kiln::source {

inline const std::string kManifest = R"toml(format = 1
[template]
name = "rms_norm"
source = "rms_norm.cu"
instantiate = "kiln::rms_norm<{T}, {H}, {VEC}>"
[param.T]
kind = "dtype"
values = ["f32", "f16", "bf16"]
[param.H]
kind = "int"
range = [1, 65536]
[param.VEC]
kind = "int"
values = [1, 2, 4, 8]
default = "gcd(H, 16 / sizeof(T))"
[param.ACT]
kind = "enum"
values = { silu = "kiln::Act::silu", gelu = "kiln::Act::gelu" }
default = "silu"
[derive]
CHUNKS = "ceil_div(H, VEC)"
[[require]]
expr = "H % VEC == 0"
message = "VEC must divide H = {H}"
[[arg]]
name = "x"
type = "ptr<T>"
shape = ["rows", "H"]
stride = ["stride_x", "1"]
[[arg]]
name = "rows"
type = "i32"
value = 4096
[[arg]]
name = "stride_x"
type = "i64"
value = "H"
[[arg]]
name = "eps"
type = "f32"
value = 1e-5
[launch]
grid = ["rows"]
block = ["CHUNKS"]
)toml";

/// The manifest with the first `from` replaced. Fails the test when `from` is missing.
inline std::string changed(const std::string& from, const std::string& to) {
  std::string out = kManifest;
  const auto at = out.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? out : out.replace(at, from.size(), to);
}
inline std::string with(const std::string& more) { return kManifest + more; }
inline Manifest parse(const std::string& text) {
  return parse_manifest(text, "dir/rms_norm.toml", library::work_lists());
}

/// The line of the first `piece`, as messages show it.
inline std::string at_line_of(const std::string& text, const std::string& piece) {
  const auto at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return "dir/rms_norm.toml:" +
         std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')) +
         ": ";
}

/// Expects Error(manifest) at the line of `at`, with these pieces.
inline void expect_refused(const std::string& text, const std::string& at,
                           std::initializer_list<std::string> pieces) {
  const std::string message = expect_error(Errc::manifest, pieces, [&] { parse(text); });
  EXPECT_EQ(message.find(at_line_of(text, at)), 0u) << "expected line of " << at << " in: " << message;
}

}  // namespace kiln::source
