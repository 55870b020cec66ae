// The loops of vector and indexed transfers between mapped memories: for each piece a loop compares its
// length with that of the pieces before, and its address with the mapped memory, while it copies. Pieces that
// lie one behind the other are one copy. vis_transfer.cpp and the short way of vis_calls.cpp call it.
#include "extended/vis/copy_list.hpp"

#include "extended/vis/copy_piece.hpp"

#include <algorithm>

namespace hydrant {
namespace {

// After so many pieces the loop looks again whether pieces lie one behind the other.
constexpr size_t kPart = 256;

// ---- three ways to name pieces: `at` is an address, `length` that of one piece ----

struct Vector {
  const gex_Memvec_t* list;
  uintptr_t at(size_t i) const noexcept { return reinterpret_cast<uintptr_t>(list[i].gex_addr); }
  size_t length(size_t i) const noexcept { return list[i].gex_len; }
  Vector from(size_t i) const noexcept { return {list + i}; }
};
struct Indexed {
  void* const* list;
  size_t bytes;
  uintptr_t at(size_t i) const noexcept { return reinterpret_cast<uintptr_t>(list[i]); }
  size_t length(size_t) const noexcept { return bytes; }
  Indexed from(size_t i) const noexcept { return {list + i, bytes}; }
};
struct Contiguous {
  uintptr_t start;
  size_t bytes;
  uintptr_t at(size_t i) const noexcept { return start + i * bytes; }
  size_t length(size_t) const noexcept { return bytes; }
};

// Pieces that a loop of one size class has copied; the next one differs, is not mapped, or there is none.
template <typename Size, typename Dest, typename Source>
[[gnu::always_inline]] inline size_t copy_equal(const Dest& dest, const Source& source,
                                                const Shifts& shifts, size_t begin, size_t end,
                                                size_t bytes) noexcept {
  // Copies of what the stores below could change, as far as the compiler knows.
  const Dest dests = dest;
  const Source sources = source;
  const uintptr_t dest_shift = shifts.dest;
  const uintptr_t source_shift = shifts.source;
  const uintptr_t start = shifts.start;
  const size_t room = shifts.room - bytes;
  const bool peer_is_dest = shifts.peer_is_dest;
  size_t i = begin;
  for (; i < end; ++i) {
    const uintptr_t to = dests.at(i);
    const uintptr_t from = sources.at(i);
    const uintptr_t offset = (peer_is_dest ? to : from) - start;
    if (dests.length(i) != bytes || sources.length(i) != bytes || offset > room) break;
    Size::copy(reinterpret_cast<std::byte*>(to + dest_shift),
               reinterpret_cast<const std::byte*>(from + source_shift), bytes);
  }
  return i;
}

// Pieces of kBytes by wide moves.
#ifdef __x86_64__
template <size_t kBytes, typename List>
[[gnu::target("avx"), gnu::noinline]] size_t copy_wide(const List dest, const List source,
                                                       const Shifts shifts, size_t count) noexcept {
  size_t i = 0;
  for (; i < count; ++i) {
    const uintptr_t to = dest.at(i);
    const uintptr_t from = source.at(i);
    const uintptr_t offset = (shifts.peer_is_dest ? to : from) - shifts.start;
    if (dest.length(i) != kBytes || source.length(i) != kBytes || offset > shifts.room - kBytes)
      break;
    WideMoves<kBytes>::copy(reinterpret_cast<std::byte*>(to + shifts.dest),
                            reinterpret_cast<const std::byte*>(from + shifts.source));
  }
  return i;
}
#else
template <size_t kBytes, typename List>
size_t copy_wide(const List&, const List&, const Shifts&, size_t) noexcept {
  return 0;
}
#endif
// Fewer pieces do not repay the change of registers.
constexpr size_t kLeastWide = 8;

// The end of the pieces from `begin` on that have the length of the first and lie one behind the other on
// both sides.
template <typename Dest, typename Source>
size_t end_of_run(const Dest& dest, const Source& source, size_t begin, size_t count) noexcept {
  const size_t bytes = dest.length(begin);
  uintptr_t to = dest.at(begin);
  uintptr_t from = source.at(begin);
  size_t i = begin;
  for (; i < count; ++i) {
    if (dest.at(i) != to || source.at(i) != from || dest.length(i) != bytes ||
        source.length(i) != bytes)
      break;
    to += bytes;
    from += bytes;
  }
  return i;
}

template <typename Dest, typename Source>
size_t copy_lists(const Dest& dest, const Source& source, size_t count,
                  const Shifts& shifts) noexcept {
  size_t i = 0;
  while (i < count) {
    const size_t bytes = dest.length(i);
    if (bytes != source.length(i)) break;
    if (bytes == 0) {
      ++i;
      continue;
    }
    const uintptr_t offset = (shifts.peer_is_dest ? dest.at(i) : source.at(i)) - shifts.start;
    if (bytes > shifts.room || offset > shifts.room - bytes) break;
    if (i + 1 < count && dest.at(i + 1) == dest.at(i) + bytes &&
        source.at(i + 1) == source.at(i) + bytes) {
      const size_t run = end_of_run(dest, source, i, count);
      const size_t sum = (run - i) * bytes;
      if (sum > shifts.room - offset) break;
      std::memcpy(reinterpret_cast<void*>(dest.at(i) + shifts.dest),
                  reinterpret_cast<const void*>(source.at(i) + shifts.source), sum);
      i = run;
      continue;
    }
    const size_t end = std::min(i + kPart, count);
    i = with_size_class(bytes, [&](auto size) {
      return copy_equal<decltype(size)>(dest, source, shifts, i, end, bytes);
    });
  }
  return i;
}

// Calls function(the list, its number of pieces).
template <typename Function>
auto with_list(const Side& side, Function function) noexcept {
  if (side.kind == Side::Kind::kVector) return function(Vector{side.vector});
  return function(Indexed{side.addresses, side.bytes});
}

// True if the pieces of `list` are as long as `whole` in all: for addresses that the call has checked. A
// vector's pieces have to be equal.
bool is_divided(const Side& list, size_t whole) noexcept {
  const size_t bytes = list.at(0).bytes;
  if (bytes == 0 || whole / bytes != list.count || whole % bytes != 0) return false;
  if (list.kind == Side::Kind::kIndexed) return true;
  size_t different = 0;
  for (size_t i = 0; i < list.count; ++i) different |= list.vector[i].gex_len ^ bytes;
  return different == 0;
}

}  // namespace

namespace {

// Lists of `count` pieces beside memory of `peer`, without the questions that copy_lists() asks for each part
// of a list.
template <bool kPut, typename List>
[[gnu::always_inline]] inline size_t copy_known(const List& dest, const List& source, size_t count,
                                                const KnownPeer& peer) noexcept {
  const size_t bytes = dest.length(0);
  const auto shift = static_cast<uintptr_t>(peer.shift);
  const Shifts shifts = {kPut ? shift : 0, kPut ? 0 : shift, peer.addr, peer.size, kPut};
  if (bytes == 0 || bytes > shifts.room ||
      (count > 1 && dest.at(1) == dest.at(0) + bytes && source.at(1) == source.at(0) + bytes))
    return copy_lists(dest, source, count, shifts);
  size_t done = 0;
  if (bytes == 64 && has_wide_moves() && count >= kLeastWide) {
    done = copy_wide<64>(dest, source, shifts, count);
  } else if (bytes == 128 && has_wide_moves() && count >= kLeastWide) {
    done = copy_wide<128>(dest, source, shifts, count);
  } else {
    done = with_size_class(bytes, [&](auto size) {
      return copy_equal<decltype(size)>(dest, source, shifts, 0, count, bytes);
    });
  }
  if (done == count) [[likely]]
    return count;
  return done + copy_lists(dest.from(done), source.from(done), count - done, shifts);
}

}  // namespace

size_t copy_indexed(void* const* dest, void* const* source, size_t count, size_t bytes,
                    const KnownPeer& peer, bool is_put) noexcept {
  const Indexed to = {dest, bytes};
  const Indexed from = {source, bytes};
  return is_put ? copy_known<true>(to, from, count, peer)
                : copy_known<false>(to, from, count, peer);
}

size_t copy_vectors(const gex_Memvec_t* dest, const gex_Memvec_t* source, size_t count,
                    const KnownPeer& peer, bool is_put) noexcept {
  const Vector to = {dest};
  const Vector from = {source};
  return is_put ? copy_known<true>(to, from, count, peer)
                : copy_known<false>(to, from, count, peer);
}

ListPositions copy_list(const Side& dest, const Side& source, const Shifts& shifts) noexcept {
  if (dest.count == 0 || source.count == 0) return {};
  if (source.count == 1 && dest.count > 1 && is_divided(dest, source.at(0).bytes)) {
    const Contiguous from = {source.at(0).addr, dest.at(0).bytes};
    const size_t done = with_list(
        dest, [&](const auto& list) { return copy_lists(list, from, dest.count, shifts); });
    if (done == dest.count) return {{done, 0}, {1, 0}};
    return {{done, 0}, {0, done * from.bytes}};
  }
  if (dest.count == 1 && source.count > 1 && is_divided(source, dest.at(0).bytes)) {
    const Contiguous to = {dest.at(0).addr, source.at(0).bytes};
    const size_t done = with_list(
        source, [&](const auto& list) { return copy_lists(to, list, source.count, shifts); });
    if (done == source.count) return {{1, 0}, {done, 0}};
    return {{0, done * to.bytes}, {done, 0}};
  }
  const size_t count = std::min(dest.count, source.count);
  const size_t done = with_list(dest, [&](const auto& to) {
    return with_list(source, [&](const auto& from) { return copy_lists(to, from, count, shifts); });
  });
  return {{done, 0}, {done, 0}};
}

}  // namespace hydrant
