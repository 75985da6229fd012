// fuzz_seeds DIR: makes the first corpora from a real small store.
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>

#include "base/file.hpp"
#include "base/wire.hpp"
#include "cache/bundle/writer.hpp"
#include "cache/fleet/envelope.hpp"
#include "cache/fleet/toolchain_row.hpp"
#include "cache/flight/board.hpp"
#include "cache/store/store.hpp"
#include "cache/store/tally.hpp"
#include "cache/trust/blake2b.hpp"
#include "cache/trust/secret_key.hpp"

using namespace kiln;
using namespace kiln::cache;

namespace {

namespace fs = std::filesystem;

Key key_of(std::uint8_t number) {
  Key key;
  key.specialisation.bytes[3] = number;
  return key;
}

Record record_of(std::uint8_t number, std::size_t image) {
  return {key_of(number), "facts " + std::to_string(number), "key text " + std::to_string(number),
          std::string(image, static_cast<char>(number))};
}

void copy(const std::string& from, const std::string& to) {
  base::write_file(to, base::read_file(from)->bytes);
}

/// A small file after each step of its life: empty, one leaf, a branch, with free pages.
void make_pages(const std::string& corpus, const std::string& scratch) {
  StoreOptions options;
  options.directory = scratch;
  const auto store = Store::open(options);
  const std::string file = scratch + "/v1/data.mdb";
  copy(file, corpus + "/empty");
  for (std::uint8_t number = 0; number < 12; ++number) {
    store->put(record_of(number, number % 3 == 0 ? 9000 : 700));
    if (number % 3 == 0) copy(file, corpus + "/puts" + std::to_string(number));
  }
  for (std::uint8_t number = 0; number < 6; ++number) {
    Record other = record_of(number, 5000);
    other.key_text = "another";
    store->put(other);
  }
  copy(file, corpus + "/replaced");
}

/// A bundle's file, and the content inside its compression with the count in front (see bundle.cpp).
void make_bundles(const std::string& corpus) {
  for (std::uint8_t entries = 0; entries < 4; ++entries) {
    std::string file, content(1, static_cast<char>(entries));
    bundle::Writer writer([&](std::string_view bytes) { file += bytes; });
    for (std::uint8_t number = 0; number < entries; ++number) {
      const Record record = record_of(number, number * 50u);
      writer.add(record);
      base::Writer head;
      head.number(bundle::kEntryMark);
      const Key key = key_of(number);
      for (const Digest* half : {&key.specialisation, &key.toolchain})
        head.str().append(reinterpret_cast<const char*>(half->bytes.data()), half->bytes.size());
      head.number(static_cast<std::uint32_t>(record.facts.size()))
          .number(static_cast<std::uint32_t>(record.key_text.size()))
          .number(static_cast<std::uint64_t>(record.image.size()));
      content += head.str() + record.facts + record.key_text + record.image;
    }
    writer.end();
    base::write_file(corpus + "/file" + std::to_string(entries), file);
    base::write_file(corpus + "/content" + std::to_string(entries), content);
  }
}

void make_signatures(const std::string& corpus) {
  const trust::SecretKey key = trust::SecretKey::generate();
  base::write_file(corpus + "/secret", key.file().bytes());
  base::write_file(corpus + "/public", key.public_key().file());
  base::write_file(corpus + "/line", key.public_key().text());
  base::write_file(corpus + "/signature", key.sign(trust::blake2b<64>("x"), "4 entries").file("c"));
}

/// Entries and rows as the fleet's server has them.
void make_envelopes(const std::string& corpus) {
  const trust::SecretKey pair = trust::SecretKey::generate();
  const trust::SigningKey key(pair.public_key().id, pair.bytes());
  for (std::uint8_t number = 0; number < 4; ++number) {
    const fleet::PublishedRecord envelope{record_of(number, number * 100u), "sm_90a", "NVRTC 13.0"};
    base::write_file(corpus + "/entry" + std::to_string(number), fleet::seal_envelope(envelope, &key));
    base::write_file(corpus + "/row" + std::to_string(number),
                     fleet::seal_row({key_of(number), 1, 2, number % 2 == 0, "13.0", "NVRTC 13.0"}, &key));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: fuzz_seeds DIR\n"), 2;
  const std::string root = argv[1], scratch = root + "/scratch";
  for (const char* name : {"record", "pages", "tally", "board", "bundle", "minisign", "envelope", "scratch"})
    fs::create_directories(root + '/' + name);
  make_pages(root + "/pages", scratch);
  make_bundles(root + "/bundle");
  make_signatures(root + "/minisign");
  make_envelopes(root + "/envelope");
  for (std::uint8_t number = 0; number < 4; ++number)
    base::write_file(root + "/record/" + std::to_string(number), encode(record_of(number, number * 100u)));
  const std::uint64_t counts[] = {1, 2, 3};
  Tally(scratch + "/v1").add(counts);
  copy(scratch + "/v1/counters", root + "/tally/counters");
  Board board(scratch + "/v1/board", 4711);
  board.end(board.begin(key_of(1), "rms_norm T=bf16 for sm_90a"), FlightState::failed, "an error");
  const std::string slots = base::read_file(scratch + "/v1/board")->bytes;
  const std::size_t at = slots.find("KBRD");
  base::write_file(root + "/board/slot", slots.substr(at, 400));
  base::write_file(root + "/board/body", slots.substr(at + 20, 380));
  fs::remove_all(scratch);
  return 0;
}
