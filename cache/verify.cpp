#include "cache/verify.hpp"

#include <sys/stat.h>

#include "cache/data_file.hpp"
#include "cache/pieces.hpp"
#include "cache/record.hpp"
#include "cache/write_check.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kGateWait = 10s;
constexpr std::size_t kBatch = 64;  // entries per pass of the gate

std::optional<Reading> enter(StoreFile& file) {
  std::optional<Reading> out;
  std::string why;
  if (Reading::enter(file, base::Deadline::after(kGateWait), out, why) != Entered::yes)
    throw_store_error(file.path, "cannot be read: " + why);
  return out;
}

/// The leaf pages are walked even where branches are damaged: what is cut off shows up as missing pieces.
void verify_pages(StoreFile& file, Verified& out) {
  const auto report = [&](const Damaged& damage) { out.damaged.push_back({{}, damage.what()}); };
  const auto reading = enter(file);
  const Snapshot& snapshot = reading->pages().snapshot();
  out.bytes = snapshot.bytes();
  struct stat st {};
  if (::stat(file.path.c_str(), &st) == 0 && (st.st_mode & S_ISVTX) != 0)
    out.damaged.push_back(
        {{}, "a write to it failed earlier; the next put moves its entries to a fresh file"});
  try {
    WriteCheck(reading->pages()).whole_tree();
    return;
  } catch (const Damaged& first) {
    const std::size_t before = out.damaged.size();
    walk_tree(reading->pages(), snapshot.main,
              {[&](const TreePage& page, const KeyBounds& bounds) { check_strictly(page, bounds); }, report});
    if (out.damaged.size() == before) report(first);
  }
}

}  // namespace

Verified verify(StoreFile& file, const std::function<void(std::uint64_t)>& progress) {
  Verified out;
  std::optional<Key> from = Key{};
  try {
    verify_pages(file, out);
    for (bool more = true; more && from;) {
      const auto reading = enter(file);
      RecordWalk walk(reading->pages());
      for (std::size_t n = 0; n < kBatch && from && (more = walk.seek(*from)); ++n) {
        const Key key = walk.key();
        from = successor(key);
        try {
          Buffer encoded;
          const bool whole =
              copy_record(reading->pages(), key, encoded) == Copied::complete && decode(encoded.view());
          if (whole)
            ++out.entries;
          else
            out.damaged.push_back({key.hex(), "its bytes do not have their checksum"});
        } catch (const Damaged& damage) {
          out.damaged.push_back({key.hex(), damage.what()});
        }
      }
      if (progress) progress(out.entries);
    }
  } catch (const Damaged& damage) {
    out.damaged.push_back({{}, damage.what()});  // no way on from here
  }
  return out;
}

}  // namespace kiln::cache
