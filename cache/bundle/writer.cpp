#include "cache/bundle/writer.hpp"

#include "base/bytes.hpp"
#include "base/wire.hpp"

namespace kiln::bundle {

using base::view;

Writer::Writer(const base::Write& out) : out_(out) {
  base::Writer header;
  header.str() += kMagic;
  header.number(kVersion).number(std::uint32_t{0});
  out(header.str());
}

void Writer::put(std::string_view bytes) {
  hash_.add(bytes);
  out_.write(bytes);
  summary_.content_bytes += bytes.size();
}

ContentDigest Writer::put_digest() {
  const auto digest = hash_.digest<kContentDigestBytes>();
  put(view(digest));
  return digest;
}

void Writer::add(const cache::Record& record) {
  const Limits limits;
  const std::string name = "entry " + record.key.hex();
  if (last_ && !(*last_ < record.key))
    throw Error(Errc::invalid_argument, name + " does not come after " + last_->hex() + " in a bundle");
  if (record.facts.size() > limits.facts || record.key_text.size() > limits.key_text ||
      record.image.size() > limits.image)
    throw Error(Errc::invalid_argument, name + " is larger than a bundle's entry may be");
  last_ = record.key;
  base::Writer head;
  head.number(kEntryMark);
  head.str().append(view(record.key.specialisation)).append(view(record.key.toolchain));
  head.number(static_cast<std::uint32_t>(record.facts.size()));
  head.number(static_cast<std::uint32_t>(record.key_text.size()));
  head.number(static_cast<std::uint64_t>(record.image.size()));
  put(head.str());
  put(record.facts);
  put(record.key_text);
  put(record.image);
  put_digest();
  ++summary_.entries;
}

Summary Writer::end() {
  base::Writer mark;
  mark.number(kEndMark).number(summary_.entries);
  put(mark.str());
  summary_.digest = put_digest();
  out_.end();
  return summary_;
}

}  // namespace kiln::bundle
