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

// The way of most calls: memory that this thread knows to be mapped here. Null if it is not.
hydrant_peer* known_peer(gex_TM_t tm, gex_Rank_t rank, const void* remote, const void* local,
                         size_t bytes) noexcept {
  if (tm != &hydrant_world || rank >= hydrant_my_peers.count || local == nullptr) return nullptr;
  hydrant_peer& peer = hydrant_my_peers.first[rank];
  const uintptr_t offset = reinterpret_cast<uintptr_t>(remote) - peer.addr;
  if (offset >= peer.size || bytes > peer.size - offset || remote == nullptr) return nullptr;
  return &peer;
}
void count_mapped(hydrant_peer& peer, Direction direction, size_t bytes) noexcept {
  hydrant_path_counts& counts =
      peer.path_counts[static_cast<uint32_t>(direction)][HYDRANT_PATH_MAPPED];
  counts.ops += bytes != 0;
  counts.bytes += bytes;
}
bool put_known(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
               size_t bytes) noexcept {
  hydrant_peer* peer = known_peer(tm, rank, dest, source, bytes);
  if (peer == nullptr) return false;
  copy_bytes(static_cast<std::byte*>(dest) + peer->shift, source, bytes);
  count_mapped(*peer, Direction::kPut, bytes);
  return true;
}
bool get_known(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
               size_t bytes) noexcept {
  hydrant_peer* peer = known_peer(tm, rank, source, dest, bytes);
  if (peer == nullptr) return false;
  copy_bytes(dest, static_cast<const std::byte*>(source) + peer->shift, bytes);
  count_mapped(*peer, Direction::kGet, bytes);
  return true;
}

}  // namespace

extern "C" {

int hydrant_put_blocking(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes,
                         gex_Flags_t flags) {
  if (put_known(tm, rank, dest, source, bytes)) [[likely]]
    return GASNET_OK;
  return finish_blocking(tm, rank, put_of(dest, source, bytes, flags), "gex_RMA_PutBlocking");
}

gex_Event_t hydrant_put_nb(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                           size_t bytes, gex_Event_t* lc_opt, gex_Flags_t flags) {
  gex_Event_t event = GEX_EVENT_INVALID;
  if (!put_known(tm, rank, dest, source, bytes)) {
    Transfer what = put_of(dest, source, bytes, flags);
    what.source_is_free = lc_opt != GEX_EVENT_DEFER;
    event = start_with_event(tm, rank, what, "gex_RMA_PutNB");
  }
  if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
  return event;
}

int hydrant_put_nbi(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes,
                    gex_Event_t* lc_opt, gex_Flags_t flags) {
  int code = GASNET_OK;
  if (!put_known(tm, rank, dest, source, bytes)) {
    Transfer what = put_of(dest, source, bytes, flags);
    what.source_is_free = lc_opt != GEX_EVENT_DEFER;
    code = start_implicit(tm, rank, what, "gex_RMA_PutNBI");
  }
  if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
  return code;
}

int hydrant_get_blocking(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source, size_t bytes,
                         gex_Flags_t flags) {
  if (get_known(tm, rank, dest, source, bytes)) [[likely]]
    return GASNET_OK;
  return finish_blocking(tm, rank, get_of(dest, source, bytes, flags), "gex_RMA_GetBlocking");
}

gex_Event_t hydrant_get_nb(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source,
                           size_t bytes, gex_Flags_t flags) {
  if (get_known(tm, rank, dest, source, bytes)) return GEX_EVENT_INVALID;
  return start_with_event(tm, rank, get_of(dest, source, bytes, flags), "gex_RMA_GetNB");
}

int hydrant_get_nbi(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source, size_t bytes,
                    gex_Flags_t flags) {
  if (get_known(tm, rank, dest, source, bytes)) return GASNET_OK;
  return start_implicit(tm, rank, get_of(dest, source, bytes, flags), "gex_RMA_GetNBI");
}

}  // extern "C"
