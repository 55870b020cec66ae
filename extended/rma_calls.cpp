// The C functions of rma.h: describe the operation, start it, wait or hand out its event.
#include <hydrant/gasnet/rma.h>

#include "extended/copy.hpp"
#include "extended/event.hpp"
#include "extended/rma.hpp"
#include "extended/rma_events.hpp"
#include "extended/rma_thread.hpp"

using namespace hydrant;

namespace {

bool is_event(const gex_Event_t* lc_opt) noexcept {
  return reinterpret_cast<uintptr_t>(lc_opt) > reinterpret_cast<uintptr_t>(GEX_EVENT_GROUP);
}

Transfer put_of(void* dest, const void* source, size_t bytes, gex_Flags_t flags) noexcept {
  return {.direction = Direction::kPut,
          .remote = reinterpret_cast<uintptr_t>(dest),
          .local = static_cast<std::byte*>(const_cast<void*>(source)),
          .bytes = bytes,
          .immediate = (flags & GEX_FLAG_IMMEDIATE) != 0};
}
Transfer get_of(void* dest, const void* source, size_t bytes, gex_Flags_t flags) noexcept {
  return {.direction = Direction::kGet,
          .remote = reinterpret_cast<uintptr_t>(source),
          .local = static_cast<std::byte*>(dest),
          .bytes = bytes,
          .immediate = (flags & GEX_FLAG_IMMEDIATE) != 0};
}

// The way of most calls: memory that this thread knows to be mapped here. Null if it is not. The row of this
// rank itself begins at 1, so that null is in none.
inline hydrant_peer* known_peer(gex_TM_t tm, gex_Rank_t rank, const void* remote, const void* local,
                                size_t bytes) noexcept {
  if (tm != &hydrant_world || rank >= hydrant_my_peers.count || local == nullptr) return nullptr;
  hydrant_peer& peer = hydrant_my_peers.first[rank];
  const uintptr_t offset = reinterpret_cast<uintptr_t>(remote) - peer.addr;
  if (offset >= peer.size || bytes > peer.size - offset) return nullptr;
  return &peer;
}
inline void count_mapped(hydrant_peer& peer, Direction direction, size_t bytes) noexcept {
  hydrant_path_counts& counts =
      peer.path_counts[static_cast<uint32_t>(direction)][HYDRANT_PATH_MAPPED];
  counts.ops += bytes != 0;
  // One vector addition instead of two scalar ones waits for the last one's store.
  asm("" : "+m"(counts.ops));
  counts.bytes += bytes;
}
// Counted first: nothing is left to do after the copy, and nothing to be kept across its call.
inline bool put_known(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                      size_t bytes) noexcept {
  hydrant_peer* peer = known_peer(tm, rank, dest, source, bytes);
  if (peer == nullptr) [[unlikely]]
    return false;
  count_mapped(*peer, Direction::kPut, bytes);
  copy_bytes(static_cast<std::byte*>(dest) + peer->shift, source, bytes);
  return true;
}
inline bool get_known(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                      size_t bytes) noexcept {
  hydrant_peer* peer = known_peer(tm, rank, source, dest, bytes);
  if (peer == nullptr) [[unlikely]]
    return false;
  count_mapped(*peer, Direction::kGet, bytes);
  copy_bytes(dest, static_cast<const std::byte*>(source) + peer->shift, bytes);
  return true;
}

// What is not known to be mapped. Functions of their own, so that those above need no frame.
[[gnu::noinline]] int put_blocking(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                                   size_t bytes, gex_Flags_t flags) noexcept {
  return finish_blocking(tm, rank, put_of(dest, source, bytes, flags), "gex_RMA_PutBlocking");
}
[[gnu::noinline]] gex_Event_t put_nb(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                                     size_t bytes, gex_Event_t* lc_opt,
                                     gex_Flags_t flags) noexcept {
  Transfer what = put_of(dest, source, bytes, flags);
  what.source_is_free = lc_opt != GEX_EVENT_DEFER;
  const gex_Event_t event = start_with_event(tm, rank, what, "gex_RMA_PutNB");
  if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
  return event;
}
[[gnu::noinline]] int put_nbi(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                              size_t bytes, gex_Event_t* lc_opt, gex_Flags_t flags) noexcept {
  Transfer what = put_of(dest, source, bytes, flags);
  what.source_is_free = lc_opt != GEX_EVENT_DEFER;
  const int code = start_implicit(tm, rank, what, "gex_RMA_PutNBI");
  if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
  return code;
}
[[gnu::noinline]] int get_blocking(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source,
                                   size_t bytes, gex_Flags_t flags) noexcept {
  return finish_blocking(tm, rank, get_of(dest, source, bytes, flags), "gex_RMA_GetBlocking");
}
[[gnu::noinline]] gex_Event_t get_nb(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source,
                                     size_t bytes, gex_Flags_t flags) noexcept {
  return start_with_event(tm, rank, get_of(dest, source, bytes, flags), "gex_RMA_GetNB");
}
[[gnu::noinline]] int get_nbi(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source,
                              size_t bytes, gex_Flags_t flags) noexcept {
  return start_implicit(tm, rank, get_of(dest, source, bytes, flags), "gex_RMA_GetNBI");
}

}  // namespace

extern "C" {

int hydrant_put_blocking(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes,
                         gex_Flags_t flags) {
  if (put_known(tm, rank, dest, source, bytes)) return GASNET_OK;
  return put_blocking(tm, rank, dest, source, bytes, flags);
}

gex_Event_t hydrant_put_nb(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                           size_t bytes, gex_Event_t* lc_opt, gex_Flags_t flags) {
  if (!put_known(tm, rank, dest, source, bytes))
    return put_nb(tm, rank, dest, source, bytes, lc_opt, flags);
  if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
  return GEX_EVENT_INVALID;
}

int hydrant_put_nbi(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes,
                    gex_Event_t* lc_opt, gex_Flags_t flags) {
  if (!put_known(tm, rank, dest, source, bytes))
    return put_nbi(tm, rank, dest, source, bytes, lc_opt, flags);
  if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
  return GASNET_OK;
}

int hydrant_get_blocking(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source, size_t bytes,
                         gex_Flags_t flags) {
  if (get_known(tm, rank, dest, source, bytes)) return GASNET_OK;
  return get_blocking(tm, dest, rank, source, bytes, flags);
}

gex_Event_t hydrant_get_nb(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source,
                           size_t bytes, gex_Flags_t flags) {
  if (get_known(tm, rank, dest, source, bytes)) return GEX_EVENT_INVALID;
  return get_nb(tm, dest, rank, source, bytes, flags);
}

int hydrant_get_nbi(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source, size_t bytes,
                    gex_Flags_t flags) {
  if (get_known(tm, rank, dest, source, bytes)) return GASNET_OK;
  return get_nbi(tm, dest, rank, source, bytes, flags);
}

}  // extern "C"
