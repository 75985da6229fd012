// What a directory must be before a store is opened in it: whose it is, who else may write it, and what its
// path leads over. What lies in a store ends up on the GPU, so a place that others may write to is never used
// as it is.
#pragma once

#include <string>

namespace kiln::cache {

// All functions take absolute paths and throw Error(io) that names the path and the reason.

/// Throws when the way to `path` leads over a symlink that belongs to neither root nor this user (whoever
/// owns it decides where it leads), or over more than 40 symlinks. What does not exist yet is no fault.
void refuse_foreign_links(const std::string& path);

/// Throws when `directory` lies, or would lie, on a network filesystem: locks and mappings are not to be
/// trusted there.
void refuse_network(const std::string& directory);

/// "kiln-1000"
std::string private_name();

/// Where a writable store for `wanted` goes: there, or into its private subdirectory kiln-<uid>/ when
/// `wanted` exists and somebody else owns it or may write it (a Kubernetes emptyDir). Creates nothing.
std::string own_directory(const std::string& wanted);

/// Creates `directory` and what is missing above it, 0700. Throws when it cannot, and when `directory` then
/// is not a directory of this user alone. With `final_link` refused, it may not be a symlink either.
enum class FinalLink { followed, refused };
void make_own(const std::string& directory, FinalLink final_link);
/// Throws when `directory`'s v1/ or v1/data.mdb are there and not this user's alone: planted, or left by a
/// process that ran as somebody else.
void check_own_store(const std::string& directory);

/// Throws unless `directory`, its v1/ and v1/data.mdb belong to root or this user and nobody else may write
/// them: what a read-only layer must be.
void check_layer(const std::string& directory);

/// A directory for a layer, made 0755 with what is missing above it. Throws as `check_layer` would for the
/// directory that is there.
void make_layer(const std::string& directory);
/// Lets everybody read what the layer holds: directories 0755, files 0644.
void share_layer(const std::string& directory);

}  // namespace kiln::cache
