// What an audit compares: an entry's key with today's, its image and facts with those of a compile of today.
#pragma once

#include <string>
#include <string_view>

#include "compile/key/facts.hpp"

namespace kiln::cli {

/// "source, include kiln/dtype.cuh": the fields in which two key texts differ; a few of them, and how many
/// more.
std::string key_difference(std::string_view cached, std::string_view now);

struct ImageDifference {
  std::string section;  ///< the first ELF section that differs; empty: none, or no ELF to tell by
  std::string text;     ///< for people; empty: the images and facts are equal
};
ImageDifference compare_images(const compile::Facts& cached_facts, std::string_view cached,
                               const compile::Facts& facts, std::string_view image);

}  // namespace kiln::cli
