#include "cache/store/writable_file.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "cache/store/eviction.hpp"
#include "cache/store/file/fresh_file.hpp"
#include "cache/store/recent_uses.hpp"
#include "cache/store/rewrite.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr int kHealPauses = 10;  // pause after a failed healing, as a multiple of the time it took

}  // namespace

std::uint64_t size_of(const std::string& path) noexcept {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
}

Entered WritableFile::enter(base::Deadline deadline, std::optional<WriteTransaction>& out, std::string& why) {
  for (const bool again : {true, false}) {
    const Entered entered = WriteTransaction::enter(file_, deadline, out, why);
    if (entered == Entered::yes && !swept_.exchange(true)) remove_leftovers(file_.path);
    if (entered != Entered::absent || !again) return entered;
    create_directories(file_.place);
    create_data_file(file_.path);
  }
  return Entered::failed;
}

bool WritableFile::fits(std::uint64_t live_bytes) noexcept {
  if (live_bytes > live_limit() / 4 * 3 && !recent_made_.exchange(true)) create_recent_uses(file_);
  return live_bytes <= live_limit();
}

std::optional<std::uint64_t> WritableFile::make_room(std::uint64_t live_bytes, base::Deadline deadline,
                                                     Entered& entered, std::string& why) {
  try {
    if (size_of(file_.path) <= cap_bytes_) return evict(file_, {live_bytes, cap_bytes_}, deadline);
  } catch (const LmdbError& error) {
    if (error.rc() != MDB_MAP_FULL) throw;
  }
  std::optional<WriteTransaction> writing;
  entered = enter(deadline, writing, why);
  if (entered != Entered::yes) return std::nullopt;
  const std::uint64_t file_bytes = writing->file_bytes();
  const PageFile pages = writing->pages();
  if (file_bytes <= cap_bytes_ && pages.snapshot().live_bytes() <= live_bytes) return 0;
  PageCheck(pages).whole_tree();  // damage is left to `heal`, which keeps the damaged file
  try {
    return rewrite(file_, *writing, {.live_bytes = live_bytes, .keep_aside = true}).dropped;
  } catch (const Damaged&) {
    throw;
  } catch (const Error&) {  // no room for a second file, or no right to make one
  }
  writing.reset();
  return evict(file_, {live_bytes, file_bytes + kTreeSlack}, deadline);
}

std::string WritableFile::heal(const std::string& why, ino_t seen, base::Deadline deadline) {
  if (base::Clock::now().time_since_epoch().count() < no_heal_before_)
    throw_store_error(file_.path, why + "; a recent attempt to move its entries to a fresh file failed");
  std::optional<WriteTransaction> writing;
  std::string gate;
  if (enter(deadline, writing, gate) != Entered::yes) throw_store_error(file_.path, why + "; " + gate);
  struct stat st {};
  if (::fstat(writing->fd(), &st) == 0 && st.st_ino != seen) return {};
  writing->distrust();
  const auto started = base::Clock::now();
  std::string aside = "the damaged file stays as " + damaged_name(file_.path) + " until `kiln gc` runs";
  Rewritten done;
  try {
    try {
      done = rewrite(file_, *writing, {.live_bytes = live_limit(), .set_aside = true});
    } catch (const LmdbError& error) {
      if (!out_of_space(error.rc())) throw;
      // There is no room for a copy beside the damaged file, and there would never be any while it stays.
      done = rewrite(file_, *writing, {.live_bytes = 0});
      aside = "the damaged file was deleted, because there is no room for both";
    }
  } catch (const Error&) {
    const auto now = base::Clock::now();
    no_heal_before_ = (now + kHealPauses * (now - started)).time_since_epoch().count();
    throw;
  }
  return "store " + file_.path + ": " + why + "; moved " + std::to_string(done.kept) +
         " intact entries to a fresh file; " + aside;
}

Rewritten WritableFile::replace(std::uint64_t live_bytes, base::Deadline deadline) {
  if (!file_.writable) throw_store_error(file_.path, "was opened read-only");
  std::optional<WriteTransaction> writing;
  std::string why;
  if (enter(deadline, writing, why) != Entered::yes) throw_store_error(file_.path, why);
  return rewrite(file_, *writing, {.live_bytes = live_bytes});
}

}  // namespace kiln::cache
