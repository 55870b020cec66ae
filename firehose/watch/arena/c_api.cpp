// Implements the C functions of hydrant/alloc.h. Only this file checks arguments; arenas.cpp does the work.
#include <gasnet_errors.h>
#include <hydrant/alloc.h>

#include "firehose/watch/arena/arenas.hpp"
#include "firehose/watch/arena/size_classes.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

using hydrant::arena::address_map;
using hydrant::arena::AddressReservation;
using hydrant::arena::Arenas;
using hydrant::arena::kMaxBytes;
using hydrant::arena::natural_alignment;
using hydrant::arena::PageStore;
using hydrant::arena::PageStoreStats;

namespace {

Arenas& arenas() noexcept { return Arenas::instance(); }

// The size to allocate, at least 1. 0 with ENOMEM if it exceeds kMaxBytes.
size_t checked_bytes(size_t bytes) noexcept {
  if (bytes <= kMaxBytes) return std::max<size_t>(bytes, 1);
  errno = ENOMEM;
  return 0;
}

// The alignment to use; 0 with EINVAL or ENOMEM.
size_t checked_alignment(size_t alignment, size_t bytes) noexcept {
  if (!std::has_single_bit(alignment)) {
    errno = EINVAL;
    return 0;
  }
  if (alignment <= kMaxBytes) return std::max(alignment, natural_alignment(bytes));
  errno = ENOMEM;
  return 0;
}

void fill(PageStore::Kind kind, hydrant_alloc_arena_stats_t* stats) noexcept {
  const auto [counts, in_use_bytes] = arenas().usage(kind);
  stats->in_use_bytes = in_use_bytes;
  stats->touched_bytes = counts.touched_bytes;
  stats->idle_bytes = counts.idle_bytes;
  stats->reserved_bytes = counts.reserved_bytes;
  stats->unannounced_bytes = counts.unannounced_bytes;
  stats->emptied_bytes = counts.emptied_bytes;
  stats->kept_blocks = counts.refusals;
}

}  // namespace

void* hydrant_alloc(size_t bytes) {
  const size_t checked = checked_bytes(bytes);
  return checked == 0 ? nullptr : arenas().allocate(checked, natural_alignment(checked));
}

void* hydrant_calloc(size_t count, size_t bytes) {
  size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) all = SIZE_MAX;
  void* p = hydrant_alloc(all);
  // Always needed: freed memory that a cache has registered keeps its old contents.
  if (p != nullptr) std::memset(p, 0, all);
  return p;
}

void* hydrant_aligned_alloc(size_t alignment, size_t bytes) {
  const size_t checked = checked_bytes(bytes);
  const size_t aligned = checked_alignment(alignment, checked);
  return checked == 0 || aligned == 0 ? nullptr : arenas().allocate(checked, aligned);
}

void* hydrant_realloc(void* p, size_t bytes) {
  if (p == nullptr) return hydrant_alloc(bytes);
  const size_t checked = checked_bytes(bytes);
  return checked == 0 ? nullptr : arenas().reallocate(p, checked);
}

void hydrant_free(void* p) {
  if (p != nullptr) arenas().release(p);
}

size_t hydrant_alloc_usable_size(const void* p) {
  return p == nullptr ? 0 : arenas().usable_bytes(p);
}

int hydrant_alloc_owns(const void* addr) { return address_map().find(addr) != nullptr ? 1 : 0; }

void* hydrant_alloc_shared(size_t alignment, size_t bytes) {
  const size_t checked = checked_bytes(bytes);
  const size_t aligned = checked_alignment(alignment, checked);
  return checked == 0 || aligned == 0 ? nullptr : arenas().allocate_shared(checked, aligned);
}

int hydrant_alloc_shared_location(const void* addr, hydrant_alloc_location_t* location) {
  const AddressReservation* in = address_map().find(addr);
  if (in == nullptr || in->file < 0 || in->lost || location == nullptr) return GASNET_ERR_BAD_ARG;
  if (!in->identity.is(in->file)) return GASNET_ERR_BAD_ARG;  // the program has closed it
  location->fd = in->file;
  location->reserved = 0;
  location->offset = reinterpret_cast<uintptr_t>(addr) - in->addr;
  location->file_bytes = in->bytes;
  return GASNET_OK;
}

size_t hydrant_alloc_trim(void) { return arenas().trim(); }

void hydrant_alloc_announce(void) { arenas().announce(); }

const char* hydrant_alloc_backend(void) {
  return arenas().backend().jemalloc() != nullptr ? "jemalloc" : "extents";
}

const char* hydrant_alloc_backend_reason(void) { return arenas().backend().reason(); }

void hydrant_alloc_get_stats(hydrant_alloc_stats_t* stats) {
  hydrant_alloc_stats_t filled = {};
  filled.size = std::min(stats->size, sizeof filled);
  filled.has_monitor = arenas().has_monitor() ? 1 : 0;
  fill(PageStore::Kind::kPrivate, &filled.own);
  fill(PageStore::Kind::kShared, &filled.shared);
  const PageStoreStats shared = arenas().usage(PageStore::Kind::kShared).counts;
  filled.shared_kept_bytes = shared.kept_bytes;
  filled.shared_recalled_blocks = shared.recalls;
  std::memcpy(stats, &filled, filled.size);
}
