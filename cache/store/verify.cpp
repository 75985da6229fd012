#include "cache/store/verify.hpp"

#include <sys/stat.h>

#include <vector>

#include "cache/record/record.hpp"
#include "cache/store/file/fresh_file.hpp"
#include "cache/store/file/page_check.hpp"
#include "cache/store/file/pieces.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kGateWait = 10s;
constexpr std::size_t kBatch = 64;  // entries per pass of the gate

std::optional<Reading> enter(StoreFile& file) {
  std::optional<Reading> out;
  std::string why;
  const auto enter_once = [&] { return Reading::enter(file, base::Deadline::after(kGateWait), out, why); };
  Entered entered = Entered::failed;
  try {
    entered = enter_once();
  } catch (const Damaged&) {
    entered = enter_once();
  }
  if (entered != Entered::yes) throw_store_error(file.path, "cannot be read: " + why);
  return out;
}

/// Reports each damaged page. The walk goes on past damaged branches; what they cut off shows
/// up as missing pieces.
void report_pages(const PageFile& pages, const Damaged& first, Verified& out) {
  const std::size_t before = out.damaged.size();
  walk_tree(pages, pages.snapshot().main,
            {[](const TreePage& page, const KeyBounds& bounds) { check_strictly(page, bounds); },
             [&](const Damaged& damage) {
               out.damaged.push_back({{}, damage.what()});
             }});
  if (out.damaged.size() == before) out.damaged.push_back({{}, first.what()});
}

/// Damage is believed only when a second look finds it. The first look may have read a meta page while a
/// writer of another process wrote it.
void verify_pages(StoreFile& file, Verified& out) {
  struct stat st {};
  if (::stat(file.path.c_str(), &st) == 0 && (st.st_mode & S_ISVTX) != 0)
    out.damaged.push_back(
        {{}, "an earlier write to the file failed; the next put moves its entries to a fresh file"});
  for (const bool again : {true, false}) {
    const auto reading = enter(file);
    out.bytes = reading->pages().snapshot().bytes();
    try {
      return PageCheck(reading->pages()).whole_tree();
    } catch (const Damaged& first) {
      if (!again) report_pages(reading->pages(), first, out);
    }
  }
}

/// Says what is wrong with an entry; an empty string means nothing.
std::string damage_of(const PageFile& pages, const Key& key) try {
  Buffer encoded;
  const bool whole = copy_record(pages, key, encoded) == Copied::complete && is_intact(encoded.view());
  return whole ? "" : "its bytes do not match its checksum";
} catch (const Damaged& damage) {
  return damage.what();
}

/// Judges an entry that a first look found damaged, for the reason that verify_pages names.
void look_again(StoreFile& file, const Key& key, Verified& out) {
  std::string what;
  try {
    const auto reading = enter(file);
    RecordWalk walk(reading->pages());
    if (!walk.seek(key) || walk.key() != key) return;  // removed meanwhile
    what = damage_of(reading->pages(), key);
  } catch (const Damaged& damage) {
    what = damage.what();
  }
  if (what.empty())
    ++out.entries;
  else
    out.damaged.push_back({key.hex(), what});
}

/// Verifies the next entries at or after `from`, which moves on and is nothing after the last one. Throws
/// Damaged where the tree leads nowhere.
void verify_batch(StoreFile& file, std::optional<Key>& from, std::vector<Key>& suspects, Verified& out) {
  const auto reading = enter(file);
  RecordWalk walk(reading->pages());
  for (std::size_t n = 0; n < kBatch && from; ++n) {
    if (!walk.seek(*from)) return from.reset();
    from = successor(walk.key());
    if (damage_of(reading->pages(), walk.key()).empty())
      ++out.entries;
    else
      suspects.push_back(walk.key());
  }
}

}  // namespace

Verified verify(StoreFile& file, const std::function<void(std::uint64_t)>& progress) {
  Verified out;
  try {
    verify_pages(file, out);
  } catch (const Damaged& damage) {  // not even a meta page is sane
    out.damaged.push_back({{}, damage.what()});
    return out;
  }
  std::optional<Key> from = Key{};
  for (bool again = true; from;) {
    std::vector<Key> suspects;
    try {
      verify_batch(file, from, suspects, out);
      again = true;
    } catch (const Damaged& damage) {
      if (!again) {
        out.damaged.push_back({{}, damage.what()});  // no way on from here
        from.reset();
      }
      again = false;
    }
    for (const Key& key : suspects) look_again(file, key, out);
    if (progress) progress(out.entries);
  }
  return out;
}

}  // namespace kiln::cache
