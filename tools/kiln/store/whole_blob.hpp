// The content of a blob of any size, from its records.
#pragma once

#include <functional>

#include "cache/blob/blob.hpp"
#include "cache/record/record.hpp"
#include "cache/store/results.hpp"

namespace kiln::cli {

/// Returns the record of a key, or why it cannot be read.
using RecordOf = std::function<cache::Peeked<cache::Record>(const Key&)>;

/// The content of the blob that `head`, with these facts, names; `record` gives the records of its parts. A miss
/// is `absent` when a part is not there, and `damaged` when the pieces are not the content that the facts tell.
/// REQUIRES: facts.part == 0.
cache::Peeked<cache::Bytes> whole_blob(const cache::BlobFacts& facts, const cache::Record& head,
                                       const RecordOf& record);

}  // namespace kiln::cli
