#include "tools/kiln/stats/marks.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/file.hpp"
#include "base/text.hpp"
#include "cache/place/directory.hpp"
#include "cache/store/tally.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/store/lifetime_counters.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kNameLimit = 64, kFileLimit = 4096;
constexpr const char* kHead = "kiln-mark 1";

std::string place_of(const std::string& directory) { return directory + "/v1/marks"; }

bool is_mark_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kNameLimit && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                  c == '_' || c == '-';
         });
}

template <class Number>
bool parse(std::string_view text, Number& out) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), out);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

bool decode(std::string_view text, Mark& out) {
  const std::vector<std::string> lines = base::split(text, '\n');
  if (lines.size() != 3 || lines[0] != kHead) return false;
  const std::vector<std::string> taken = base::split(lines[1], ' '), values = base::split(lines[2], ' ');
  if (taken.size() != 2 || taken[0] != "taken" || !parse(taken[1], out.taken_s)) return false;
  if (values.size() != 1 + cache::kTallyValues || values[0] != "values") return false;
  for (std::size_t i = 1; i < values.size(); ++i)
    if (!parse(values[i], out.values.emplace_back())) return false;
  return true;
}

std::string encode(const Mark& mark) {
  std::string out = kHead + std::string("\ntaken ") + std::to_string(mark.taken_s) + "\nvalues";
  for (const std::uint64_t value : mark.values) out += ' ' + std::to_string(value);
  return out + '\n';
}

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw Error(Errc::io,
              "cannot keep a mark in '" + place + "': " + why +
                  "; marks are kept in the store's directory, which this user must own and may write");
}

}  // namespace

void check_mark_name(const std::string& name) {
  if (is_mark_name(name)) return;
  throw Error(Errc::invalid_argument, "'" + name + "' is no name for a mark; allowed: 1 to " +
                                          std::to_string(kNameLimit) +
                                          " characters of A-Z a-z 0-9 . _ -, not beginning with a dot");
}

Mark set_mark(const std::string& directory, const std::string& name) {
  check_mark_name(name);
  const std::string place = place_of(directory);
  struct stat st {};
  if (::stat((directory + "/v1").c_str(), &st) != 0) {
    throw Error(Errc::io, "nothing is cached in '" + directory + "' yet: there are no counters to mark");
  }
  cache::check_own_store(directory);
  if (::mkdir(place.c_str(), 0700) != 0 && errno != EEXIST) refuse(place, std::strerror(errno));
  if (::lstat(place.c_str(), &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != ::geteuid())
    refuse(place, "not a directory of this user");
  Mark mark{name, static_cast<std::int64_t>(std::time(nullptr)), read_lifetime(directory)};
  // The draft has a name that no mark can have, so a killed writer leaves no broken mark.
  const std::string draft = place + "/." + name + '.' + std::to_string(::getpid());
  try {
    base::write_file(draft, encode(mark), 0600);
  } catch (const Error& error) {
    refuse(place, error.what());
  }
  if (::rename(draft.c_str(), (place + '/' + name).c_str()) != 0) {
    const std::string why = std::strerror(errno);
    ::unlink(draft.c_str());
    refuse(place, why);
  }
  return mark;
}

Mark read_mark(const std::string& directory, const std::string& name) {
  check_mark_name(name);
  const std::string path = place_of(directory) + '/' + name;
  const auto file = base::read_file(path, kFileLimit);
  if (!file && errno == ENOENT) {
    const std::vector<std::string> names = mark_names(directory);
    throw Error(Errc::invalid_argument, "no mark '" + name + "' in '" + directory + "'" +
                                            base::did_you_mean(name, names) + "; " +
                                            (names.empty() ? "there is none yet, 'kiln stats --mark' sets one"
                                                           : "there are: " + base::join(names, " ")));
  }
  if (!file) throw Error(Errc::io, "cannot read the mark '" + path + "': " + std::strerror(errno));
  Mark mark;
  mark.name = name;
  if (!decode(file->bytes, mark))
    throw Error(Errc::io, "the mark '" + path + "' is damaged; 'kiln stats --mark " + name + "' replaces it");
  return mark;
}

std::vector<std::string> mark_names(const std::string& directory) {
  std::vector<std::string> out;
  std::error_code error;
  for (std::filesystem::directory_iterator it(place_of(directory), error), end; !error && it != end;
       it.increment(error)) {
    if (std::string name = it->path().filename().string(); is_mark_name(name)) out.push_back(std::move(name));
  }
  std::sort(out.begin(), out.end());
  return out;
}

Since since(const Mark& mark, const std::vector<std::uint64_t>& now) {
  Since out{now, false};
  for (std::size_t i = 0; i < now.size(); ++i) out.reset |= now[i] < mark.values[i];
  for (std::size_t i = 0; !out.reset && i < now.size(); ++i) out.values[i] -= mark.values[i];
  return out;
}

}  // namespace kiln::cli
