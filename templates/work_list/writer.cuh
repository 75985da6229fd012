// Writes an attention work list on the device. The words are those that src/attention/plan.cpp writes for the
// same lengths. Tests compile this header for the host, with a crew of one thread.
//
// The host walks along the line of tiles. Here each step is parallel. cutter.cuh has the first steps, which cut the
// line into shares. Two steps follow.
// - count() counts the items of each share, and finds where they begin in the list.
// - write() writes the items, each from its index alone.
//
// Each block of the grid measures, cuts and counts for itself, and writes its part of the list. So the blocks
// need not wait for each other.
#pragma once

#include "work_list/cutter.cuh"

namespace kiln::work_list {

/// A sum over the shares.
struct ShareSum {
  int items, slots, busy;
  KILN_BOTH ShareSum operator+(const ShareSum& b) const {
    return {items + b.items, slots + b.slots, busy + b.busy};
  }
};

template <class Crew>
struct Writer : Cutter<Crew> {
  using Base = Cutter<Crew>;
  using Base::common, Base::crew, Base::lengths, Base::list, Base::places, Base::requests, Base::shares;

  /// Writes the list, or returns the FaultReason for which it does not. REQUIRES: OneTileWriter::load().
  KILN_BOTH unsigned operator()() {
    if (common.refusal != FAULT_NONE) return common.refusal;
    const RequestSum all = this->measure(common.marks.several != 0);
    if (common.refused != FAULT_NONE) return static_cast<unsigned>(common.refused);
    if (all.tiles <= static_cast<int>(common.most_shares.value)) this->find_longest(all.tiles);
    const Cutting cutting(common.shape, {all.line, all.tiles, common.longest}, common.most_shares);
    cutting.alone ? this->part(cutting) : this->cut(cutting);
    const ShareSum counted = count(cutting, all);
    write(cutting, all, counted);
    return FAULT_NONE;
  }

 private:
  using Base::items_of_column, Base::one_item, Base::request_at, Base::tiles_of;

  // ---- count ----

  /// Items of `many` whole tiles of a column that follow each other.
  KILN_BOTH int items_of_run(const TileRanges& tiles, int many) const {
    return many > 1 && one_item(tiles) ? 1 : many;
  }
  /// A place between two tiles of a column, for counting items: the items of whole tiles before the tile and
  /// after it.
  struct Around {
    int column_at;  // items of the columns before the tile's column
    int before, after, of_column;
  };
  KILN_BOTH Around around(const Share& cut, const TileRanges& tiles) const {
    const int each = items_of_column(tiles), after = static_cast<int>(tiles.count()) - 1 - cut.tile;
    return {places[cut.request].columns_at + cut.head * each, items_of_run(tiles, cut.tile),
            items_of_run(tiles, after), each};
  }

  /// The items between two cut tiles, of which either may be missing.
  struct Middle {
    bool same_tile, same_column;
    int first;      // items of the column of the first tile, after that tile
    int full;       // items of whole columns
    int last;       // items of the column of the second tile, before that tile
    int column_at;  // items of the columns before the whole columns
    KILN_BOTH int items() const { return first + full + last; }
  };
  KILN_BOTH KILN_APART Middle middle(const Share& from, const Share& to, int columns) const {
    Middle out{false, false, 0, columns, 0, 0};
    if (from.request >= 0) {
      const TileRanges tiles = tiles_of(requests[from.request]);
      const Around at = around(from, tiles);
      if (to.request == from.request && to.head == from.head) {
        const int tiles_between = to.tile - from.tile - 1;
        out.same_column = true;
        out.same_tile = tiles_between < 0;
        out.first = out.same_tile ? 0 : items_of_run(tiles, tiles_between);
        out.full = 0;
        return out;
      }
      out.first = at.after;
      out.column_at = at.column_at + at.of_column;
    }
    if (to.request >= 0) {
      const Around at = around(to, tiles_of(requests[to.request]));
      out.last = at.before;
      out.full = at.column_at - out.column_at;
    } else {
      out.full = columns - out.column_at;
    }
    return out;
  }
  /// Columns that have kv tokens, before this one.
  KILN_BOTH int live_before(int request, int head) const {
    const Place& of = places[request];
    const bool live = places[request + 1].live_at > of.live_at;
    return of.live_at + (live ? head : 0);
  }
  /// Returns whether an item between two cut tiles has kv tokens. Of an item with several tiles, only the first
  /// tile counts.
  KILN_BOTH bool is_live(const Share& from, const Share& to, const Middle& of) const {
    int begin = 0, end = places[lengths.requests].live_at;
    if (from.request >= 0) {
      const TileRanges tiles = tiles_of(requests[from.request]);
      const int behind = of.same_column ? to.tile : static_cast<int>(tiles.count());
      if (of.first > 0 && tiles.has_kv(one_item(tiles) ? from.tile + 1 : behind - 1)) return true;
      if (of.same_column) return false;
      begin = live_before(from.request, from.head + 1);
    }
    if (to.request >= 0) {
      const TileRanges tiles = tiles_of(requests[to.request]);
      if (of.last > 0 && tiles.has_kv(one_item(tiles) ? 0 : to.tile - 1)) return true;
      end = live_before(to.request, to.head);
    }
    return end > begin;
  }

  KILN_BOTH static bool begins_in_tile(const Share& share) {
    return share.request >= 0 && share.at < share.kv_blocks;
  }
  /// Returns whether a share has the begin of the tile that the next cut divides, which another cut does not.
  KILN_BOTH static bool ends_in_tile(const Share& next, const Middle& of) {
    return next.request >= 0 && !of.same_tile && next.at > 0;
  }

  /// The cuts [first, end) that fall into one tile.
  struct Cuts {
    int first, end;
  };
  /// The cuts that fall into the tile of cut s.
  KILN_BOTH KILN_APART Cuts cuts_of(const Cutting& cutting, int s) const {
    const Int tile = shares[s].tile_begin;
    Cuts out{s, s + 1};
    KILN_KEEP_LOOP
    for (int low = 0; out.first - low > 1;) {  // share `low` begins in a tile before
      const int middle = (low + out.first) / 2;
      (shares[middle].tile_begin < tile ? low : out.first) = middle;
    }
    KILN_KEEP_LOOP
    for (int high = static_cast<int>(cutting.shares); high - out.end > 0;) {
      const int middle = (out.end + high) / 2;
      if (shares[middle].tile_begin > tile || shares[middle].request < 0)
        high = middle;
      else
        out.end = middle + 1;
    }
    return out;
  }
  /// The parts of the tile that these cuts divide.
  KILN_BOTH int parts_of(const Cuts& cuts) const {
    const Share &first = shares[cuts.first], &last = shares[cuts.end - 1];
    const Int idle = (first.at == 0 ? 1 : 0) + (last.at == last.kv_blocks ? 1 : 0);
    return static_cast<int>(1 + cuts.end - cuts.first - idle);
  }

  KILN_BOTH ShareSum count(const Cutting& cutting, const RequestSum& all) {
    return crew.template scan<ShareSum>(
        static_cast<int>(cutting.shares),
        [&](int s) {
          Share& share = shares[s];
          share.items = 0;
          if (all.tiles == 0 || (s > 0 && share.request < 0)) return ShareSum{0, 0, 0};
          const Share& next = shares[s + 1];
          const Middle between = middle(share, next, all.columns);
          const bool begins = begins_in_tile(share), ends = ends_in_tile(next, between);
          share.items = static_cast<int>(begins + between.items() + ends);
          const auto tile_has_kv = [&](const Share& cut) {
            return tiles_of(requests[cut.request]).has_kv(cut.tile);
          };
          const bool busy = (begins && tile_has_kv(share)) || (ends && tile_has_kv(next)) ||
                            (!between.same_tile && is_live(share, next, between));
          int parts = 0;
          if (s > 0) {
            const Cuts cuts = cuts_of(cutting, s);
            if (cuts.first == s) parts = parts_of(cuts);
          }
          return ShareSum{share.items, parts > 1 ? static_cast<int>(parts * common.team) : 0,
                          busy ? static_cast<int>(common.team) : 0};
        },
        [&](Int s, const ShareSum& before) {
          shares[s].items_at = before.items;
          shares[s].slots_at = before.slots;
        });
  }

  // ---- write ----

  /// The tiles [tile, tile + many) of a request and a group of heads, which are one item.
  struct Stretch {
    int request, head, tile, many;
    int cut;  // the cut whose tile this is, or a piece of it; -1: the item has only whole tiles
  };
  KILN_BOTH static Stretch stretch_of(const Share& cut, int number) {
    return {cut.request, cut.head, cut.tile, 1, number};
  }
  /// Item `nth` of a share.
  KILN_BOTH Stretch stretch_of_item(int s, int nth, int columns) const {
    const Share &share = shares[s], &next = shares[s + 1];
    if (begins_in_tile(share) && nth-- == 0) return stretch_of(share, s);
    const Middle between = middle(share, next, columns);
    if (nth >= between.items()) return stretch_of(next, s + 1);
    Stretch out{share.request, share.head, share.tile + 1 + nth, 0, -1};
    int end = next.tile;  // of the last item that is made of several tiles
    if (nth >= between.first + between.full) {
      out.request = next.request;
      out.head = next.head;
      out.tile = nth - between.first - between.full;
    } else if (nth >= between.first) {
      const int at = between.column_at + nth - between.first;
      out.request = request_at(&Place::columns_at, at);
      out.tile = at - places[out.request].columns_at;  // of all heads
      end = -1;
    } else if (!between.same_column) {
      end = 0;
    }
    const TileRanges tiles = tiles_of(requests[out.request]);
    if (end < 0) {
      const int each = items_of_column(tiles);
      out.head = common.head_groups > 1 ? static_cast<int>(divide(out.tile, each)) : 0;
      out.tile -= out.head * each;
    }
    if (end <= 0) end = static_cast<int>(tiles.count());
    out.many = one_item(tiles) ? end - out.tile : 1;
    return out;
  }

  /// Item `nth` of a share, as the first worker of the team has it.
  KILN_BOTH AttentionItem item_of(const Cutting& cutting, int s, int nth, int columns) const {
    const Stretch place = stretch_of_item(s, nth, columns);
    const AttentionRequest& of = requests[place.request];
    const KvRange range = tiles_of(of).range(place.tile);
    AttentionItem out = {place.request,
                         static_cast<int>(place.head * common.team),
                         static_cast<int>(place.tile * common.shape.tile_rows),
                         of.qo_begin,
                         of.qo_len,
                         of.kv_len,
                         of.kv_base,
                         range.begin,
                         range.end,
                         -place.many,
                         0,
                         1};
    if (place.cut >= 0) take_part(cutting, place.cut, s, out);
    return out;
  }

  /// Turns a whole tile into the part that share s has of it. `cut` is the cut at which the share begins or ends.
  KILN_BOTH void take_part(const Cutting& cutting, int cut, int s, AttentionItem& tile) const {
    const Cuts cuts = cuts_of(cutting, cut);
    const int parts = parts_of(cuts), begin = tile.kv_begin;
    if (parts == 1) return;
    const auto at_cut = [&](int c) { return static_cast<int>(begin + shares[c].at * common.shape.tile_kv); };
    tile.parts = parts;
    tile.first_slot = shares[cuts.first].slots_at;
    if (s + 1 < cuts.end && shares[s + 1].at < shares[cut].kv_blocks) tile.kv_end = at_cut(s + 1);
    if (s < cuts.first) return;
    tile.part = s - cuts.first + (shares[cuts.first].at == 0 ? 0 : 1);
    tile.kv_begin = at_cut(s);
  }

  KILN_BOTH void write(const Cutting& cutting, const RequestSum& all, const ShareSum& counted) {
    const int team = static_cast<int>(common.team), workers = common.workers;
    int* const first_items = AttentionWords::first_items(list, workers);
    int* const items = first_items + workers * AttentionWords::ITEM;
    const Int requests_at = items + static_cast<Int>(counted.items) * team * AttentionWords::ITEM - list;
    crew.spread(counted.items * team, [&](int i) {
      const int nth_of_all = static_cast<int>(divide(i, common.by_team)), member = i - nth_of_all * team;
      int s = 0;
      KILN_KEEP_LOOP
      for (int high = static_cast<int>(cutting.shares); high - s > 1;) {
        const int middle = (s + high) / 2;
        (shares[middle].items_at <= nth_of_all ? s : high) = middle;
      }
      const Share& share = shares[s];
      const int nth = nth_of_all - share.items_at;
      AttentionItem out = item_of(cutting, s, nth, all.columns);
      out.kv_head += static_cast<int>(member);
      if (out.parts > 1) out.first_slot += static_cast<int>(member * out.parts);
      const int at = share.items_at * team + member * share.items + nth;
      crew.store(items + static_cast<Int>(at) * AttentionWords::ITEM, out);
      if (nth == 0) crew.store(first_items + (s * team + member) * AttentionWords::ITEM, out);
    });
    const int table = AttentionWords::table(workers);
    crew.spread(table, [&](int i) {
      const int s = static_cast<int>(divide(i, common.by_team)), member = i - s * team;
      list[AttentionWords::HEADER + i] = static_cast<int>(
          s < cutting.shares ? shares[s].items_at * team + member * shares[s].items : counted.items * team);
      AttentionWords::counters(list, workers)[i] = 0;
    });
    crew.spread(lengths.requests,
                [&](int i) { reinterpret_cast<AttentionRequest*>(list + requests_at)[i] = requests[i]; });
    crew.spread(1, [&](int) {
      AttentionHeader& to = *reinterpret_cast<AttentionHeader*>(list);
      to.made_for = common.made_for;
      to.requests = lengths.requests;
      to.tokens = static_cast<int>(common.tokens);
      to.slots = counted.slots;
      to.requests_at = static_cast<int>(requests_at);
      to.busy = counted.busy;
      to.ticks = 0;
    });
  }
};

}  // namespace kiln::work_list
