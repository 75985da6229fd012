#include "cache/store/file/store_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "cache/place/directory.hpp"
#include "cache/store/file/enter.hpp"

namespace kiln::cache {
namespace {

std::string absolute_or_throw(const std::string& path) {
  const auto out = base::absolute(path);
  if (!out) throw_store_error(path, std::strerror(errno));
  return *out;
}

}  // namespace

StoreFile::StoreFile(const std::string& dir, bool may_write)
    : directory(absolute_or_throw(dir)),
      place(directory + "/v" + std::to_string(kStoreSchema)),
      path(place + "/data.mdb"),
      recent_path(place + "/recent"),
      writable(may_write),
      readers(path, O_RDONLY | O_NONBLOCK, FdPool::Keep::none_yet),
      writers(path, O_RDWR | O_NONBLOCK, FdPool::Keep::none_yet),
      recent(recent_path, O_RDWR | O_NONBLOCK | O_NOFOLLOW, FdPool::Keep::none_yet) {}

FileState state_of(int fd, const std::string& path) noexcept {
  struct stat held {
  }, now{};
  if (::fstat(fd, &held) != 0 || ::stat(path.c_str(), &now) != 0) return FileState::replaced;
  if (held.st_dev != now.st_dev || held.st_ino != now.st_ino) return FileState::replaced;
  const bool ours = held.st_uid == 0 || held.st_uid == ::geteuid();
  return ours && S_ISREG(held.st_mode) && (held.st_mode & 022) == 0 ? FileState::current : FileState::foreign;
}

Entered Reading::enter(StoreFile& file, base::Deadline deadline, std::optional<Reading>& out,
                       std::string& why) {
  return enter_gate(
      file, file.readers,
      {"cannot open the data file",
       "no reader could enter the gate in time; a stopped process may hold it: see `lslocks`"},
      [&](int fd) { return enter_reader(fd, deadline); },
      [&](FdPool::Lease&& fd, RangeLock&& lock) {
        const Snapshot snapshot = newest_snapshot(fd.get());
        out.emplace(Reading(std::move(fd), std::move(lock), snapshot));
      },
      why);
}

Entered read_pages(StoreFile& file, base::Deadline deadline, std::string& why,
                   const std::function<void(const PageFile&)>& body) {
  std::optional<Reading> reading;
  const Entered entered = Reading::enter(file, deadline, reading, why);
  if (entered == Entered::yes) body(reading->pages());
  return entered;
}

void read_pages_or_throw(StoreFile& file, base::Deadline deadline,
                         const std::function<void(const PageFile&)>& body) {
  std::string why;
  const auto read = [&] {
    if (read_pages(file, deadline, why, body) != Entered::yes)
      throw_store_error(file.path, "cannot be read: " + why);
  };
  try {
    read();
  } catch (const Damaged&) {
    read();
  }
}

}  // namespace kiln::cache
