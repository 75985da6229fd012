#include "cache/store/survey.hpp"

#include <algorithm>

namespace kiln::cache {

std::vector<Surveyed> survey(const PageFile& file, const KeyRange& range) {
  std::vector<Surveyed> out, orphans;
  TreeCursor cursor(file);
  for (bool more = cursor.seek(piece_key(range.first, 0)); more; more = cursor.next()) {
    const auto piece = parse_piece_key(cursor.key());
    if (!piece || range.last < piece->key) break;
    if (out.empty() || out.back().key != piece->key) out.push_back({piece->key});
    ++out.back().pieces;
  }
  std::size_t at = 0;  // uses have the same order as records
  for (bool more = cursor.seek(use_key(range.first)); more; more = cursor.next()) {
    const auto key = parse_use_key(cursor.key());
    if (!key || range.last < *key) break;
    while (at < out.size() && out[at].key < *key) ++at;
    const std::int64_t tick = decode_use(cursor.value().bytes).tick;
    if (at < out.size() && out[at].key == *key)
      out[at].tick = tick;
    else
      orphans.push_back({*key, Surveyed::kNeverUsed, 0});
  }
  out.insert(out.end(), orphans.begin(), orphans.end());
  return out;
}

std::vector<Surveyed> survey_by_use(const PageFile& file, const RecentUses& recent, const KeyRange& range) {
  auto out = survey(file, range);
  for (Surveyed& entry : out)
    if (entry.pieces > 0) entry.tick = recent.later(entry.key, entry.tick);
  std::stable_sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.tick < b.tick; });
  return out;
}

}  // namespace kiln::cache
