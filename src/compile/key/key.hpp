// The only key maker: what identifies an image, as canonical text and as a digest of it.
//
// Key text, schema 2: lines of a label (fields.hpp) and length-prefixed values, in two sections. A value is
// "<bytes>:<value>", so no value can imitate another field. Never in it: absolute paths, cwd, HOME, times,
// host, user.
//
//   kiln-key 1:2
//   template 8:rms_norm                     unit: the template's name, or NAME@reference
//   arch 6:sm_90a
//   source 32:<digest of the bytes>
//   include 0: 17:"kiln/dtype.cuh" 20:.k0/kiln/dtype.cuh 32:<digest>
//                                           includer, spelling, where the compiler sees it, content
//   replace 11:exception.h 6:stub.h         an include of that name, and of what it is one instead
//   name 35:kiln::rms_norm<kiln::bf16, 4096>
//   entry 6:reduce 12:kiln::reduce          a further entry point; likewise global and export
//   parameter 1:H 4:4096                    each: one that is only in the geometry makes an entry of its own
//   option 10:-std=c++17                    the manifest's, in order
//   toolchain 1:1                           here the second section begins
//   facts 1:2                               grammar of the facts that are stored with the image
//   nvrtc 40:<build-id>
//   builtins 40:<build-id>
//   kiln-option 10:--no-cache               what kiln itself adds, without -frandom-seed
//   header 17:.t0/cuda_bf16.h 32:<digest>   each file reached only through the toolkit
//   project-header ...                      the same for a file that lies outside it: such a record is never
//                                           foreign_toolchain's
#pragma once

#include <string>
#include <vector>

#include "closure/closure.hpp"
#include "instantiate/instantiate.hpp"
#include "kiln/digest.hpp"
#include "toolchain/locate.hpp"

namespace kiln::compile {

struct MadeKey {
  Key key;
  std::string text;              ///< both sections
  std::size_t toolchain_at = 0;  ///< offset of the second section in `text`
  bool project_header_through_toolkit = false;

  std::string_view specialisation_text() const noexcept {
    return std::string_view(text).substr(0, toolchain_at);
  }
};

MadeKey make_key(const source::Instantiation& unit, const source::Closure& closure,
                 const toolchain::Toolkit& toolkit);

/// The key of a key text, which is that of an entry whose text it is.
Key key_of_text(std::string_view text) noexcept;

/// A key text's lines as label and values, for show, why and diff. Stops at the first malformed line.
struct KeyField {
  std::string label;
  std::vector<std::string> values;
};
std::vector<KeyField> parse_key_text(std::string_view text);

/// Offset of the toolchain section in a key text, or its size when there is none.
std::size_t toolchain_section(std::string_view text) noexcept;

/// Options that kiln adds to every compile, as the key shows them; the worker drops those that its NVRTC does
/// not know.
const std::vector<std::string>& kiln_options();

}  // namespace kiln::compile
