// A single name for the 36 calls: by shape, direction, completion and API.
#pragma once

#include <gasnet.h>

#include <cstddef>
#include <gasnet_vis.h>

enum class How { kBlocking, kEvent, kImplicit };
struct Manner {
  bool is_get = false;
  How how = How::kBlocking;
  bool is_gasnet1 = false;  // the team is that of all ranks, and the flags are 0
  gex_Flags_t flags = 0;
};
// The result of a call: an event, or a code.
struct Started {
  gex_Event_t event = GEX_EVENT_INVALID;
  int code = 0;
  bool is_nothing() const { return event == GEX_EVENT_NO_OP || code != 0; }
};
inline Started started(gex_Event_t event) { return {event, 0}; }
inline Started started(int code) { return {GEX_EVENT_INVALID, code}; }

struct Vectors {
  size_t dest_count;
  const gex_Memvec_t* dest;
  size_t source_count;
  const gex_Memvec_t* source;
};
inline const gasnet_memvec_t* as_gasnet1(const gex_Memvec_t* list) {
  return static_cast<const gasnet_memvec_t*>(static_cast<const void*>(list));
}

inline Started call(const Manner& manner, gex_TM_t tm, gex_Rank_t rank, const Vectors& v) {
  const gex_Flags_t flags = manner.flags;
  if (manner.is_gasnet1) {
    const gasnet_memvec_t* dest = as_gasnet1(v.dest);
    const gasnet_memvec_t* source = as_gasnet1(v.source);
    if (manner.how == How::kEvent)
      return started(manner.is_get
                         ? gasnet_getv_nb_bulk(v.dest_count, dest, rank, v.source_count, source)
                         : gasnet_putv_nb_bulk(rank, v.dest_count, dest, v.source_count, source));
    if (manner.how == How::kImplicit) {
      if (manner.is_get)
        gasnet_getv_nbi_bulk(v.dest_count, dest, rank, v.source_count, source);
      else
        gasnet_putv_nbi_bulk(rank, v.dest_count, dest, v.source_count, source);
    } else if (manner.is_get) {
      gasnet_getv_bulk(v.dest_count, dest, rank, v.source_count, source);
    } else {
      gasnet_putv_bulk(rank, v.dest_count, dest, v.source_count, source);
    }
    return {};
  }
  if (manner.is_get) {
    if (manner.how == How::kEvent)
      return started(
          gex_VIS_VectorGetNB(tm, v.dest_count, v.dest, rank, v.source_count, v.source, flags));
    return started(
        (manner.how == How::kBlocking ? gex_VIS_VectorGetBlocking : gex_VIS_VectorGetNBI)(
            tm, v.dest_count, v.dest, rank, v.source_count, v.source, flags));
  }
  if (manner.how == How::kEvent)
    return started(
        gex_VIS_VectorPutNB(tm, rank, v.dest_count, v.dest, v.source_count, v.source, flags));
  return started((manner.how == How::kBlocking ? gex_VIS_VectorPutBlocking : gex_VIS_VectorPutNBI)(
      tm, rank, v.dest_count, v.dest, v.source_count, v.source, flags));
}

struct Indices {
  size_t dest_count;
  void* const* dest;
  size_t dest_bytes;
  size_t source_count;
  void* const* source;
  size_t source_bytes;
};
inline Started call(const Manner& manner, gex_TM_t tm, gex_Rank_t rank, const Indices& i) {
  const gex_Flags_t flags = manner.flags;
  if (manner.is_gasnet1) {
    if (manner.how == How::kEvent)
      return started(manner.is_get ? gasnet_geti_nb_bulk(i.dest_count, i.dest, i.dest_bytes, rank,
                                                         i.source_count, i.source, i.source_bytes)
                                   : gasnet_puti_nb_bulk(rank, i.dest_count, i.dest, i.dest_bytes,
                                                         i.source_count, i.source, i.source_bytes));
    if (manner.is_get)
      (manner.how == How::kBlocking ? gasnet_geti_bulk : gasnet_geti_nbi_bulk)(
          i.dest_count, i.dest, i.dest_bytes, rank, i.source_count, i.source, i.source_bytes);
    else
      (manner.how == How::kBlocking ? gasnet_puti_bulk : gasnet_puti_nbi_bulk)(
          rank, i.dest_count, i.dest, i.dest_bytes, i.source_count, i.source, i.source_bytes);
    return {};
  }
  if (manner.is_get) {
    if (manner.how == How::kEvent)
      return started(gex_VIS_IndexedGetNB(tm, i.dest_count, i.dest, i.dest_bytes, rank,
                                          i.source_count, i.source, i.source_bytes, flags));
    return started((manner.how == How::kBlocking
                        ? gex_VIS_IndexedGetBlocking
                        : gex_VIS_IndexedGetNBI)(tm, i.dest_count, i.dest, i.dest_bytes, rank,
                                                 i.source_count, i.source, i.source_bytes, flags));
  }
  if (manner.how == How::kEvent)
    return started(gex_VIS_IndexedPutNB(tm, rank, i.dest_count, i.dest, i.dest_bytes,
                                        i.source_count, i.source, i.source_bytes, flags));
  return started((manner.how == How::kBlocking
                      ? gex_VIS_IndexedPutBlocking
                      : gex_VIS_IndexedPutNBI)(tm, rank, i.dest_count, i.dest, i.dest_bytes,
                                               i.source_count, i.source, i.source_bytes, flags));
}

struct Strides {
  void* dest;
  const ptrdiff_t* dest_strides;
  void* source;
  const ptrdiff_t* source_strides;
  const size_t* count;  // count[0] is the bytes of an element
  size_t levels;
};
inline const size_t* as_gasnet1(const ptrdiff_t* strides) {
  return static_cast<const size_t*>(static_cast<const void*>(strides));
}
inline Started call(const Manner& manner, gex_TM_t tm, gex_Rank_t rank, const Strides& s) {
  const gex_Flags_t flags = manner.flags;
  if (manner.is_gasnet1) {
    const size_t* dest = as_gasnet1(s.dest_strides);
    const size_t* source = as_gasnet1(s.source_strides);
    if (manner.how == How::kEvent)
      return started(
          manner.is_get
              ? gasnet_gets_nb_bulk(s.dest, dest, rank, s.source, source, s.count, s.levels)
              : gasnet_puts_nb_bulk(rank, s.dest, dest, s.source, source, s.count, s.levels));
    if (manner.is_get)
      (manner.how == How::kBlocking ? gasnet_gets_bulk : gasnet_gets_nbi_bulk)(
          s.dest, dest, rank, s.source, source, s.count, s.levels);
    else
      (manner.how == How::kBlocking ? gasnet_puts_bulk : gasnet_puts_nbi_bulk)(
          rank, s.dest, dest, s.source, source, s.count, s.levels);
    return {};
  }
  if (manner.is_get) {
    if (manner.how == How::kEvent)
      return started(gex_VIS_StridedGetNB(tm, s.dest, s.dest_strides, rank, s.source,
                                          s.source_strides, s.count[0], s.count + 1, s.levels,
                                          flags));
    return started(
        (manner.how == How::kBlocking ? gex_VIS_StridedGetBlocking : gex_VIS_StridedGetNBI)(
            tm, s.dest, s.dest_strides, rank, s.source, s.source_strides, s.count[0], s.count + 1,
            s.levels, flags));
  }
  if (manner.how == How::kEvent)
    return started(gex_VIS_StridedPutNB(tm, rank, s.dest, s.dest_strides, s.source,
                                        s.source_strides, s.count[0], s.count + 1, s.levels,
                                        flags));
  return started(
      (manner.how == How::kBlocking ? gex_VIS_StridedPutBlocking : gex_VIS_StridedPutNBI)(
          tm, rank, s.dest, s.dest_strides, s.source, s.source_strides, s.count[0], s.count + 1,
          s.levels, flags));
}
