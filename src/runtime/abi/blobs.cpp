// The C ABI over blobs.
#include <functional>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "runtime/abi/common.hpp"

using namespace kiln;
using namespace kiln::runtime;
using namespace kiln::runtime::c_api;

struct kiln_lease {
  std::unique_ptr<BlobLease> held;
};

namespace {

BlobSpace& of(kiln_blobs* blobs) {
  require(blobs != nullptr, "kiln_blobs is null");
  return *reinterpret_cast<BlobSpace*>(blobs);
}

std::string_view bytes_of(const void* data, std::size_t size, const char* what) {
  require(data != nullptr || size == 0, what);
  return {static_cast<const char*>(data), size};
}
std::string_view key_of(const void* key, std::size_t size) { return bytes_of(key, size, "key is null"); }

void give_blob(kiln_text* out, BlobSpace::Found&& blob) {
  if (!blob) return fill_sized(out, kiln_text{});
  const std::string_view bytes = blob->view.data() ? blob->view : std::string_view("");  // null: no blob
  give_bytes(out, std::move(blob->owner), bytes);
}

std::string dumped(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json json_of(const BlobSpace& space) {
  nlohmann::json out{{"space", space.space()}, {"compatibility", space.compatibility()}};
  const SpaceState::Values counts = space.own_counts();
  std::size_t i = 0;
  for (const BlobCounter& counter : blob_counters()) out[counter.name] = counts[i++];
  return out;
}

/// Spaces of `kiln caches`, which opens them without this ABI.
void refuse_reserved(std::string_view space) {
  if (space == "files" || space == "dir" || space.starts_with("dir."))
    throw Error(Errc::invalid_argument, "space '" + std::string(space) +
                                            "' has the directories that 'kiln caches capture' stores; choose "
                                            "another name for these blobs");
}

}  // namespace

extern "C" {

kiln_status kiln_service_open_blobs(kiln_service* service, const kiln_blobs_options* options,
                                    kiln_blobs** out) {
  return guarded([&] {
    require(options && out, "options and out must not be null");
    const kiln_blobs_options given = sized(options);
    refuse_reserved(text(given.space));
    BlobSpace& opened = c_api::of(service).blobs().open(
        {text(given.space), text(given.compatibility), given.budget_bytes,
         given.refuse_when_sealed ? SealedMiss::refuse : SealedMiss::tell, given.behind != 0});
    *out = reinterpret_cast<kiln_blobs*>(&opened);
  });
}

kiln_status kiln_blob_get(kiln_blobs* blobs, const void* key, size_t key_size, kiln_text* out) {
  return guarded([&] {
    require_sized(out, sizeof *out);
    give_blob(out, of(blobs).get(key_of(key, key_size)));
  });
}

kiln_status kiln_blob_put(kiln_blobs* blobs, const void* key, size_t key_size, const void* data, size_t size,
                          kiln_lease* lease, int32_t* state) {
  const std::unique_ptr<kiln_lease> ended(lease);
  return guarded([&] {
    std::string why;
    const BlobSpace::Put put = of(blobs).put(key_of(key, key_size), bytes_of(data, size, "data is null"),
                                             ended ? std::move(ended->held) : nullptr, why);
    if (state) *state = static_cast<int32_t>(put);
  });
}

kiln_status kiln_blob_lease(kiln_blobs* blobs, const void* key, size_t key_size, double wait_seconds,
                            kiln_text* out, kiln_lease** lease) {
  return kiln_blob_lease_interruptible(blobs, key, key_size, wait_seconds, nullptr, nullptr, out, lease);
}

kiln_status kiln_blob_lease_interruptible(kiln_blobs* blobs, const void* key, size_t key_size,
                                          double wait_seconds, int32_t (*interrupted)(void* context),
                                          void* context, kiln_text* out, kiln_lease** lease) {
  return guarded([&] {
    require_sized(out, sizeof *out);
    require(lease != nullptr, "lease must not be null");
    std::function<bool()> ask;
    if (interrupted) ask = [&] { return interrupted(context) != 0; };
    BlobSpace::Leased got = of(blobs).lease(key_of(key, key_size), wait_of(wait_seconds), ask);
    auto held = got.lease ? std::make_unique<kiln_lease>() : nullptr;
    if (held) held->held = std::move(got.lease);
    give_blob(out, std::move(got.found));
    *lease = held.release();
  });
}

void kiln_service_end_waits(kiln_service* service) {
  if (service) c_api::of(service).blobs().end_waits();
}

void kiln_lease_end(kiln_lease* lease) { delete lease; }

kiln_status kiln_blobs_flush(kiln_blobs* blobs, double wait_seconds, int32_t* flushed) {
  return guarded([&] {
    const bool done = of(blobs).flush(wait_of(wait_seconds));
    if (flushed) *flushed = done ? 1 : 0;
  });
}

kiln_status kiln_blobs_list(kiln_blobs* blobs, kiln_text* out) {
  return guarded([&] {
    give_text(out, [&] {
      nlohmann::json items = nlohmann::json::array();
      for (const BlobSpace::Listed& item : of(blobs).list())
        items.push_back({{"key", item.key},
                         {"key_hex", base::hex(item.key)},
                         {"compatibility", item.compatibility},
                         {"size", item.size},
                         {"stored_bytes", item.stored_bytes},
                         {"last_used_s", item.last_used_s},
                         {"uses", item.uses},
                         {"directory", item.directory}});
      return dumped(items);
    });
  });
}

kiln_status kiln_blob_delete(kiln_blobs* blobs, const void* key, size_t key_size, int32_t* deleted) {
  return guarded([&] {
    const bool there = of(blobs).erase(key_of(key, key_size));
    if (deleted) *deleted = there ? 1 : 0;
  });
}

kiln_status kiln_blob_identify(kiln_blobs* blobs, const void* key, size_t key_size, const void* identity,
                               size_t size) {
  return guarded(
      [&] { of(blobs).identify(key_of(key, key_size), bytes_of(identity, size, "identity is null")); });
}

kiln_status kiln_service_describe_blobs(kiln_service* service, kiln_text* out) {
  return guarded([&] {
    give_text(out, [&] {
      nlohmann::json items = nlohmann::json::array();
      for (const BlobSpace* space : c_api::of(service).blobs().all()) items.push_back(json_of(*space));
      return dumped(items);
    });
  });
}

}  // extern "C"
