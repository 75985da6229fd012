#include "tools/kiln/caches/tree/listing.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/wire.hpp"

namespace kiln::cli {
namespace {

constexpr std::string_view kMagic = "kilntree";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLongestName = 255;

using Kind = TreeEntry::Kind;

TreeEntry read_entry(base::Reader& in) {
  TreeEntry out;
  const auto kind = in.number<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(Kind::symlink)) throw base::Malformed("unknown kind of entry");
  out.kind = static_cast<Kind>(kind);
  out.path = in.string(kLongestPath);
  out.mode = in.number<std::uint32_t>() & 0777;
  if (out.is_file()) {
    out.size = in.number<std::uint64_t>();
    out.modified_ns = in.number<std::int64_t>();
    std::memcpy(out.digest.bytes.data(), in.take(out.digest.bytes.size()).data(), out.digest.bytes.size());
  } else if (out.kind == Kind::symlink) {
    out.target = in.string(kLongestPath);
  }
  return out;
}

}  // namespace

std::uint64_t Tree::files() const noexcept {
  return static_cast<std::uint64_t>(
      std::count_if(entries.begin(), entries.end(), [](const TreeEntry& e) { return e.is_file(); }));
}

std::uint64_t Tree::bytes() const noexcept {
  std::uint64_t out = 0;
  for (const TreeEntry& entry : entries) out += entry.size;
  return out;
}

bool is_inside(std::string_view path) noexcept {
  if (path.empty() || path.size() > kLongestPath || path.find('\0') != std::string_view::npos) return false;
  while (true) {
    const auto slash = path.find('/');
    const std::string_view name = path.substr(0, slash);
    if (name.empty() || name == "." || name == ".." || name.size() > kLongestName) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

bool stays_inside(std::string_view path, std::string_view target) noexcept {
  auto above = std::count(path.begin(), path.end(), '/');
  while (target == ".." || target.starts_with("../")) {
    if (--above < 0) return false;
    target.remove_prefix(target == ".." ? 2 : 3);
    if (target.empty()) return true;
  }
  return is_inside(target);
}

std::string encode(const Tree& tree) {
  base::Writer out;
  out.str() += kMagic;
  out.number(kVersion).bytes(tree.root).number(tree.root_mode);
  out.list(tree.entries, [](base::Writer& to, const TreeEntry& entry) {
    to.number(entry.kind).bytes(entry.path).number(entry.mode);
    if (entry.is_file()) {
      to.number(entry.size).number(entry.modified_ns);
      to.str().append(reinterpret_cast<const char*>(entry.digest.bytes.data()), entry.digest.bytes.size());
    } else if (entry.kind == Kind::symlink) {
      to.bytes(entry.target);
    }
  });
  return std::move(out.str());
}

Tree decode_tree(std::string_view bytes) {
  base::Reader in(bytes);
  if (in.take(kMagic.size()) != kMagic || in.number<std::uint32_t>() != kVersion)
    throw base::Malformed("no list of files, or one of another version");
  Tree out;
  out.root = in.string(kLongestPath);
  out.root_mode = in.number<std::uint32_t>() & 0777;
  std::set<std::string, std::less<>> directories, all;
  in.list([&](base::Reader& from) {
    TreeEntry entry = read_entry(from);
    if (!is_inside(entry.path)) throw base::Malformed("a path leaves the directory: " + entry.path);
    const auto slash = entry.path.rfind('/');
    if (slash != std::string::npos && !directories.contains(std::string_view(entry.path).substr(0, slash)))
      throw base::Malformed("the directory of a path is not in the list: " + entry.path);
    if (!all.insert(entry.path).second) throw base::Malformed("a path comes twice: " + entry.path);
    if (entry.kind == Kind::symlink && !stays_inside(entry.path, entry.target))
      throw base::Malformed("a symlink leaves the directory: " + entry.path);
    if (entry.kind == Kind::directory) directories.insert(entry.path);
    out.entries.push_back(std::move(entry));
  });
  if (!in.empty()) throw base::Malformed("bytes after the end of a list of files");
  return out;
}

}  // namespace kiln::cli
