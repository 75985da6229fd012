// The checks of a directory before a store is opened in it: its owner, who else may write it, and the
// symlinks on its path. The images in a store end up on the GPU, so a place that others may write to is never
// used as it is.
#pragma once

#include <string>

namespace kiln::cache {

/// The version of the store on disk: the 1 of the directory v1/.
inline constexpr int kStoreSchema = 1;

// All functions take absolute paths and throw Error(io) that names the path and the reason.

/// Throws when `path` leads over a symlink that belongs to neither root nor this user, since its owner
/// decides where it leads. Throws as well for more than 40 symlinks. A part of the path that does not exist
/// yet is no fault.
void refuse_foreign_links(const std::string& path);

/// Throws when `directory` lies, or would lie, on a network filesystem, where locks and
/// mappings cannot be trusted.
void refuse_network(const std::string& directory);

/// "kiln-1000", where 1000 is the effective uid.
std::string private_name();

/// Returns the directory for a writable store that is configured as `wanted`. That is `wanted`, or its
/// private subdirectory kiln-<uid>/ when `wanted` exists and somebody else owns it or may write it (a
/// Kubernetes emptyDir). Creates nothing.
std::string own_directory(const std::string& wanted);

enum class FinalLink { followed, refused };
/// Creates `directory` and its missing parents, 0700. Throws when that fails, and when `directory` then is
/// not a directory of this user alone. With `final_link` refused, `directory` may not be a symlink either.
void make_own(const std::string& directory, FinalLink final_link);
/// Throws when v1/ or v1/data.mdb in `directory` exists and is not this user's alone. Somebody planted it
/// then, or a process that ran as another user left it.
void check_own_store(const std::string& directory);

/// Checks a read-only layer: throws unless `directory`, its v1/ and v1/data.mdb belong to root or this user
/// and nobody else may write them.
void check_layer(const std::string& directory);

/// Creates a directory for a layer, and its missing parents, 0755. Throws as `check_layer` would for the
/// directory that is there.
void make_layer(const std::string& directory);
/// Lets everybody read what the layer holds: directories 0755, files 0644.
void share_layer(const std::string& directory);

}  // namespace kiln::cache
