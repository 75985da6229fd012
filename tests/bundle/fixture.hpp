// The vocabulary of the bundle's tests: entries, bundles in memory, and crafted bundles.
#pragma once

#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/wire.hpp"
#include "cache/bundle/reader.hpp"
#include "cache/bundle/writer.hpp"
#include "cache/trust/blake2b.hpp"

namespace kiln::bundle::test {

inline Key key_of(std::uint8_t number) {
  Key key;
  key.specialisation.bytes[0] = number;
  return key;
}

inline cache::Record entry_of(std::uint8_t number, std::size_t image = 300) {
  cache::Record out{
      key_of(number), "facts " + std::to_string(number), "key text " + std::to_string(number), {}};
  std::uint32_t state = number;
  for (std::size_t i = 0; i < image; ++i)
    out.image += static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  return out;
}

inline bool same(const cache::Record& a, const cache::Record& b) {
  return a.key == b.key && a.facts == b.facts && a.key_text == b.key_text && a.image == b.image;
}

/// Reads from memory, at most `most` bytes at a time.
inline base::Read from(std::string bytes, std::size_t most = std::size_t{1} << 20) {
  auto held = std::make_shared<std::string>(std::move(bytes));
  auto at = std::make_shared<std::size_t>(0);
  return [held, at, most](char* out, std::size_t size) {
    const std::size_t take = std::min({size, most, held->size() - *at});
    std::memcpy(out, held->data() + *at, take);
    *at += take;
    return take;
  };
}

inline std::string bundle_of(const std::vector<cache::Record>& entries, Summary* summary = nullptr) {
  std::string out;
  Writer writer([&](std::string_view bytes) { out += bytes; });
  for (const cache::Record& entry : entries) writer.add(entry);
  const Summary written = writer.end();
  if (summary) *summary = written;
  return out;
}

inline std::vector<cache::Record> read_all(const std::string& bytes, const Limits& limits = {},
                                           std::size_t most = 4096) {
  Reader reader(from(bytes, most), limits);
  std::vector<cache::Record> out;
  while (auto entry = reader.next()) out.push_back(std::move(*entry));
  return out;
}

/// Builds content that a Writer would never make.
class Crafted {
 public:
  Crafted& entry(const cache::Record& e) {
    return head(e.key, static_cast<std::uint32_t>(e.facts.size()),
                static_cast<std::uint32_t>(e.key_text.size()), e.image.size())
        .raw(e.facts + e.key_text + e.image)
        .digest();
  }
  Crafted& head(const Key& key, std::uint32_t facts, std::uint32_t key_text, std::uint64_t image) {
    ++count_;
    out_.number(std::uint8_t{1});
    for (const Digest* half : {&key.specialisation, &key.toolchain})
      out_.str().append(reinterpret_cast<const char*>(half->bytes.data()), 16);
    out_.number(facts).number(key_text).number(image);
    return *this;
  }
  Crafted& raw(std::string_view bytes) {
    out_.str() += bytes;
    return *this;
  }
  Crafted& end() { return end(count_); }
  Crafted& end(std::uint64_t count) {
    out_.number(std::uint8_t{0}).number(count);
    return digest();
  }
  /// Appends the digest of the content so far.
  Crafted& digest() {
    const auto of_it = trust::blake2b<32>(out_.str());
    return raw({reinterpret_cast<const char*>(of_it.bytes.data()), 32});
  }
  std::string content() { return out_.str(); }
  static std::string header(std::uint32_t version = 1) {
    base::Writer out;
    out.str() = "kilnbndl";
    out.number(version).number(std::uint32_t{0});
    return out.str();
  }
  static std::string compressed(const std::string& content, int window_log = 0) {
    std::string out(ZSTD_compressBound(content.size()), '\0');
    ZSTD_CCtx* context = ZSTD_createCCtx();
    if (window_log) {
      ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
      ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
    }
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    ZSTD_inBuffer in{content.data(), content.size(), 0};
    while (in.pos < in.size) ZSTD_compressStream2(context, &to, &in, ZSTD_e_continue);
    while (ZSTD_compressStream2(context, &to, &in, ZSTD_e_end) != 0) {
    }
    ZSTD_freeCCtx(context);
    out.resize(to.pos);
    return out;
  }
  std::string file() { return header() + compressed(content()); }

 private:
  base::Writer out_;
  std::uint64_t count_ = 0;
};

/// The reason why the bundle is refused: "" when it is not, "error: ..." for another Error.
inline std::string refusal_of(const std::string& file, const Limits& limits = {}) {
  try {
    read_all(file, limits);
    return {};
  } catch (const Refused& refused) {
    return refused.what();
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

}  // namespace kiln::bundle::test
