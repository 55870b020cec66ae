// The short way of vector, indexed and strided calls: memory that the calling thread knows to be mapped, for
// clients that need no checks. It leaves no count, and is inlined in the calls (vis_calls.cpp), because small
// transfers take some nanoseconds. False: nothing is complete; take the other way, which also reports errors.
#pragma once

#include "extended/rma/common/copy.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/vis/copy_grid.hpp"
#include "extended/vis/copy_list.hpp"
#include "extended/vis/vis_transfer.hpp"

namespace hydrant {

// Null: take the other way. While a peer completion is armed (peer_completion.cpp) the thread's rows are
// hidden, so that its next put comes to start_vis().
[[gnu::always_inline]] inline const KnownPeer* known_peer(gex_TM_t tm, gex_Rank_t rank) noexcept {
  if (tm != &hydrant_world || rank >= hydrant_known_peers.count) return nullptr;
  return hydrant_known_peers.first + rank;
}
[[gnu::always_inline]] inline bool holds(const KnownPeer& peer, const MemoryRange& range) noexcept {
  const uintptr_t offset = range.addr - peer.addr;
  return offset < peer.size && range.len <= peer.size - offset;
}
inline Shifts shifts_of(const KnownPeer& peer, bool is_put) noexcept {
  return Shifts::of({peer.addr, peer.size}, peer.shift, is_put);
}

struct VectorList {
  size_t count;
  const gex_Memvec_t* list;
};
struct IndexedList {
  size_t count;
  void* const* list;
  size_t bytes;
};

[[gnu::always_inline]] inline bool copy_if_known(gex_TM_t tm, gex_Rank_t rank, bool is_put,
                                                 const VectorList& dest,
                                                 const VectorList& source) noexcept {
  const KnownPeer* peer = known_peer(tm, rank);
  if (peer == nullptr || dest.list == nullptr || source.list == nullptr || dest.count == 0)
    return false;
  if (dest.count == source.count) {
    if (copy_vectors(dest.list, source.list, dest.count, *peer, is_put) != dest.count) return false;
  } else {
    const ListPositions end =
        copy_list(Side::of(dest.list, dest.count), Side::of(source.list, source.count),
                  shifts_of(*peer, is_put));
    if (end.dest.piece != dest.count || end.source.piece != source.count) return false;
  }
  return true;
}

[[gnu::always_inline]] inline bool copy_if_known(gex_TM_t tm, gex_Rank_t rank, bool is_put,
                                                 const IndexedList& dest,
                                                 const IndexedList& source) noexcept {
  const KnownPeer* peer = known_peer(tm, rank);
  if (peer == nullptr || dest.list == nullptr || source.list == nullptr || dest.count == 0 ||
      dest.bytes == 0 || source.bytes == 0)
    return false;
  if (dest.count == source.count) {
    if (dest.bytes != source.bytes) return false;
    if (copy_indexed(dest.list, source.list, dest.count, dest.bytes, *peer, is_put) != dest.count)
      return false;
  } else {
    const ListPositions end =
        copy_list(Side::of(dest.list, dest.count, dest.bytes),
                  Side::of(source.list, source.count, source.bytes), shifts_of(*peer, is_put));
    if (end.dest.piece != dest.count || end.source.piece != source.count) return false;
  }
  return true;
}

// The first dimensions of a strided transfer that are contiguous on both sides: their bytes and their number.
// 0 bytes: the transfer has to be checked.
struct Front {
  size_t bytes;
  size_t levels;
};
[[gnu::always_inline]] inline Front front_of(const StridedArguments& arguments) noexcept {
  size_t bytes = arguments.element;
  size_t i = 0;
  if (arguments.count == nullptr || arguments.dest_strides == nullptr ||
      arguments.source_strides == nullptr)
    return {arguments.levels == 0 ? bytes : 0, 0};
  for (; i < arguments.levels; ++i) {
    const size_t count = arguments.count[i];
    if (count == 1) continue;
    if (static_cast<size_t>(arguments.dest_strides[i]) != bytes ||
        static_cast<size_t>(arguments.source_strides[i]) != bytes)
      break;
    if (__builtin_mul_overflow(bytes, count, &bytes)) return {0, 0};
  }
  return {bytes, i};
}

// A transfer that is one row behind its contiguous dimensions, with its dimensions in order: most are. An
// element of 0 bytes: it is not so, or has to be checked.
[[gnu::always_inline]] inline Row row_of(const StridedArguments& arguments,
                                         const Front& front) noexcept {
  Row row = {static_cast<std::byte*>(arguments.dest),
             static_cast<const std::byte*>(arguments.source),
             front.bytes,
             {arguments.dest_strides[front.levels], arguments.source_strides[front.levels],
              arguments.count[front.levels]}};
  PairDimension& dimension = row.dimension;
  bool is_row = dimension.count != 0;
  for (size_t i = front.levels + 1; i < arguments.levels; ++i) {
    if (arguments.count[i] == 1) continue;
    is_row &= static_cast<size_t>(arguments.dest_strides[i]) ==
                  static_cast<size_t>(dimension.dest) * dimension.count &&
              static_cast<size_t>(arguments.source_strides[i]) ==
                  static_cast<size_t>(dimension.source) * dimension.count &&
              !__builtin_mul_overflow(dimension.count, arguments.count[i], &dimension.count) &&
              dimension.count != 0;
  }
  if (!is_row) row.element = 0;
  return row;
}

// Writes the memory between the first and the last byte of one side; false: it wraps around.
[[gnu::always_inline]] inline bool has_box(const Row& row, const std::byte* start, ptrdiff_t stride,
                                           MemoryRange* box) noexcept {
  box->addr = reinterpret_cast<uintptr_t>(start);
  box->len = row.element;
  ptrdiff_t distance = 0;
  if (row.dimension.count > size_t{PTRDIFF_MAX} ||
      __builtin_mul_overflow(stride, static_cast<ptrdiff_t>(row.dimension.count - 1), &distance))
    return false;
  if (distance < 0) box->addr -= magnitude(distance);
  return !__builtin_add_overflow(box->len, magnitude(distance), &box->len);
}

[[gnu::always_inline]] inline bool copy_if_known(gex_TM_t tm, gex_Rank_t rank, bool is_put,
                                                 const StridedArguments& arguments) noexcept {
  const KnownPeer* peer = known_peer(tm, rank);
  if (peer == nullptr || arguments.dest == nullptr || arguments.source == nullptr) return false;
  const Front front = front_of(arguments);
  if (front.bytes == 0) return false;
  if (front.levels == arguments.levels) {
    const auto addr = reinterpret_cast<uintptr_t>(is_put ? arguments.dest : arguments.source);
    if (!holds(*peer, {addr, front.bytes})) return false;
    copy_bytes(static_cast<std::byte*>(arguments.dest) + (is_put ? peer->shift : 0),
               static_cast<const std::byte*>(arguments.source) + (is_put ? 0 : peer->shift),
               front.bytes);
    return true;
  }
  Row row = row_of(arguments, front);
  MemoryRange box;
  if (row.element == 0 || !(is_put ? has_box(row, row.dest, row.dimension.dest, &box)
                                   : has_box(row, row.source, row.dimension.source, &box)))
    return false;
  if (!holds(*peer, box)) return false;
  if (is_put)
    row.dest += peer->shift;
  else
    row.source += peer->shift;
  copy_row(row);
  return true;
}

// A strided transfer that is no row, in its canonical form; `box` is around the peer's side.
inline bool copy_if_known(gex_TM_t tm, gex_Rank_t rank, bool is_put, const GridPair& grids,
                          const MemoryRange& box) noexcept {
  const KnownPeer* peer = known_peer(tm, rank);
  if (peer == nullptr || !holds(*peer, box)) return false;
  copy_grid(grids, is_put ? peer->shift : 0, is_put ? 0 : peer->shift);
  return true;
}

}  // namespace hydrant
