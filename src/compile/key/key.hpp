// The only key maker. The identity of an image is a canonical text and a digest of it.
//
// Key text, schema 2: each line has a label (fields.hpp) and length-prefixed values; there are two sections.
// A value is "<bytes>:<value>", so no value can imitate another field. A key text never has absolute paths,
// cwd, HOME, times, host or user.
//
//     kiln-key 1:2
//     template 8:rms_norm                     unit: the template's name, or NAME@reference
//     arch 6:sm_90a
//     source 32:<digest of the bytes>
//     include 0: 17:"kiln/dtype.cuh" 20:.k0/kiln/dtype.cuh 32:<digest>
//                                             includer, spelling, path that the compiler sees, content
//     replace 11:exception.h 6:stub.h         an include of the first name becomes one of the second
//     host-code 26:cut (version 5, keep pick) only with host_code = "cut": version of the rules, keep and cut
//     name 35:kiln::rms_norm<kiln::bf16, 4096>
//     entry 6:reduce 12:kiln::reduce          a further entry point; global and export have the same form
//     parameter 1:H 4:4096                    each one: even a value that only the geometry reads
//     option 10:-std=c++17                    the manifest's, in order
//     toolchain 1:1                           here the second section begins
//     facts 1:2                               grammar of the facts that are stored with the image
//     nvrtc 40:<build-id>                     of a library without build-id: xxh3-128:<digest of the file>
//     builtins 40:<build-id>
//     kiln-option 10:--no-cache               options that kiln adds, without -frandom-seed
//     header 17:.t0/cuda_bf16.h 32:<digest>   each file reached only through the toolkit
//     project-header ...                      such a file outside the toolkit's directories; a record with
//                                             this line is never served for another toolchain
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

/// The key of an entry, from the entry's key text.
Key key_of_text(std::string_view text) noexcept;

/// The lines of a key text as labels and values, for show, why and diff. Parsing stops at the
/// first malformed line.
struct KeyField {
  std::string label;
  std::vector<std::string> values;
};
std::vector<KeyField> parse_key_text(std::string_view text);

/// Offset of the toolchain section in a key text, or its size when there is none.
std::size_t toolchain_section(std::string_view text) noexcept;

/// Options that kiln adds to every compile, as in the key. The worker leaves out options that
/// its NVRTC does not know.
const std::vector<std::string>& kiln_options();

}  // namespace kiln::compile
