// The comparisons of an audit: an entry's key with today's key, its image and facts with a new compile's.
#pragma once

#include <string>
#include <string_view>

#include "compile/key/facts.hpp"

namespace kiln::cli {

/// Names a few fields in which two key texts differ, and the number of further ones:
/// "source, include kiln/dtype.cuh".
std::string key_difference(std::string_view cached, std::string_view now);

struct ImageDifference {
  std::string section;  ///< the first ELF section that differs; empty: none, or no ELF file
  std::string text;     ///< for people; empty: the images and facts are equal
};
ImageDifference compare_images(const compile::Facts& cached_facts, std::string_view cached,
                               const compile::Facts& facts, std::string_view image);

}  // namespace kiln::cli
