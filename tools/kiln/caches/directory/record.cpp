#include "tools/kiln/caches/directory/record.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/wire.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

runtime::BlobSpace& files_of(runtime::Service& service) {
  return service.blobs().open({kFileSpace, kFileCompatibility, 0, runtime::SealedMiss::quiet});
}

runtime::BlobSpace& records_of(const Target& target, runtime::Service& service) {
  return service.blobs().open(
      {target.record.space, target.record.compatibility, 0, runtime::SealedMiss::quiet});
}

/// The command that stores every file of the target again.
std::string full_capture_of(const Target& target) {
  const std::string& key = target.record.key;
  std::string out = "kiln caches capture ";
  if (target.profile)
    out += target.profile->name + (key == kDefaultRecord ? "" : " --name " + key);
  else
    out += key == target.root ? key : "DIR --name " + key;
  return out + " --full";
}

/// The directories with the files of the stores and layers. Throws Error(invalid_argument) when `root` lies in one of
/// them: a capture would read the file that it writes.
std::set<DirectoryId> own_directories(const std::string& root, runtime::Service& service) {
  std::set<DirectoryId> out;
  struct stat status {};
  for (const auto& store : service.state().stores.asked())
    if (::stat((store->directory() + "/v1").c_str(), &status) == 0) out.emplace(status.st_dev, status.st_ino);
  std::error_code unknown;
  const std::string real = std::filesystem::canonical(root, unknown).string();
  for (std::string at = unknown ? root : real; !at.empty(); at = at.substr(0, at.rfind('/')))
    if (::stat(at.c_str(), &status) == 0 && out.contains({status.st_dev, status.st_ino}))
      throw Error(Errc::invalid_argument,
                  "'" + root + "' is in kiln's own store '" + at +
                      "', which a capture cannot store in itself; name another directory");
  return out;
}

constexpr int kCaptures = 3;  // of a directory whose files are cleared meanwhile

/// True when the store has the record, and the files that it names with all their parts.
bool is_whole(const CapturedTarget& captured, const Target& target, runtime::Service& service) {
  if (!records_of(target, service).get(target.record.key)) return false;
  std::set<std::string> there;
  for (const auto& blob : files_of(service).list())
    if (blob.compatibility == kFileCompatibility) there.insert(blob.key);
  return std::all_of(captured.tree.entries.begin(), captured.tree.entries.end(), [&](const TreeEntry& entry) {
    return !entry.is_file() || there.contains(entry.digest.hex());
  });
}

CapturedTarget capture_once(const Target& target, bool full, runtime::Service& service) {
  runtime::BlobSpace& records = records_of(target, service);
  const runtime::BlobSpace::Found before = records.get(target.record.key);
  std::optional<Tree> last;
  try {
    if (before) last = decode_tree(before->view);
  } catch (const base::Malformed&) {  // written by another version: everything is read
  }
  CaptureRequest request{target.root, {}, last ? &*last : nullptr, full};
  if (target.profile) request.choice = {target.profile->include, target.profile->exclude};
  request.choice.stores = own_directories(target.root, service);
  CapturedTarget out{capture(request, files_of(service)), false};
  const std::string content = encode(out.tree);
  out.changed = before != content;
  if (!out.changed) return out;
  // The files were put first, so a record that is found has them unless a clear removes them.
  const auto put = records.put_many({{target.record.key, content}});
  if (put.skipped > 0) throw Error(Errc::io, "could not store the list of files: " + put.why);
  return out;
}

}  // namespace

/// A clear in another process may remove files that no record named when it looked.
CapturedTarget capture_target(const Target& target, bool full, runtime::Service& service) {
  CapturedTarget out = capture_once(target, full, service);
  for (int captures = 1; !is_whole(out, target, service); ++captures) {
    if (captures == kCaptures)
      throw Error(Errc::io, "files of '" + target.root +
                                "' were removed from the store while they were captured, " +
                                std::to_string(kCaptures) +
                                " times; let 'kiln caches clear' end, and run the command again");
    CapturedTarget again = capture_once(target, full, service);
    again.changed |= out.changed;
    again.read += out.read, again.stored += out.stored, again.stored_bytes += out.stored_bytes;
    out = std::move(again);
  }
  return out;
}

RestoredTarget restore_target(const Target& target, const RestoreChoice& choice, runtime::Service& service) {
  RestoredTarget out;
  const auto content = records_of(target, service).get(target.record.key);
  if (!content) {
    out.missing = "no store has a record of it for these facts";
    return out;
  }
  try {
    out.tree = decode_tree(content->view);
  } catch (const base::Malformed& error) {
    out.missing = std::string("its record cannot be used: ") + error.what();
    return out;
  }
  const RestoreRequest request{target.root, target.profile && target.profile->immutable, choice.copy,
                               choice.force, choice.full};
  static_cast<Restored&>(out) = restore(request, *out.tree, files_of(service));
  if (!out.missing.empty())
    out.missing += "; where the directory still is, '" + full_capture_of(target) + "' stores them again";
  return out;
}

}  // namespace kiln::cli
