// Texts for the arguments of transfers. An element takes at most kElementBytes and a heading at most
// kHeadingBytes; the *_bufsz() functions return these bounds. Called by clients through gasnet_tools.h.
#include <hydrant/gasnet/formatters.h>

#include "am/tools/console.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace hydrant {
namespace {

constexpr size_t kElementBytes = 64;   // "[0x0123456789abcdef +18446744073709551615], "
constexpr size_t kHeadingBytes = 256;  // numbers and words around a list

struct Memvec {  // gex_Memvec_t
  const void* addr;
  size_t len;
};

size_t list_bufsz(size_t count) noexcept { return kHeadingBytes + count * kElementBytes; }

void include(hydrant_tools_blocks_t* all, const void* addr, size_t len) noexcept {
  const void* const last = static_cast<const char*>(addr) + (len > 0 ? len - 1 : 0);
  if (all->minaddr == nullptr || addr < all->minaddr) all->minaddr = addr;
  if (last > all->maxaddr) all->maxaddr = last;
  all->maxsz = std::max(all->maxsz, len);
  all->totalsz += len;
}

size_t put_summary(char* buf, size_t room, const hydrant_tools_blocks_t& all,
                   size_t count) noexcept {
  return append(buf, room, 0, "%zu blocks of %zu..%zu bytes, total=%zu, in [%p..%p]:", count,
                all.minsz, all.maxsz, all.totalsz, all.minaddr, all.maxaddr);
}

size_t put_peer(char* buf, size_t room, const void* tm, uint32_t rank, size_t bytes) noexcept {
  return append(buf, room, 0, "(%p,%" PRIu32 ") moves %zu bytes", tm, rank, bytes);
}

size_t put_strides(char* buf, size_t room, size_t used, const char* name, size_t count,
                   const ptrdiff_t* list) noexcept {
  used = append(buf, room, used, "%s[", name);
  for (size_t i = 0; i < count; ++i) {
    used = append(buf, room, used, i == 0 ? "%td" : ", %td", list[i]);
  }
  return append(buf, room, used, "]");
}

}  // namespace
}  // namespace hydrant

using hydrant::append;
using hydrant::kHeadingBytes;
using hydrant::list_bufsz;

size_t hydrant_tools_format_memveclist_bufsz(size_t count) { return list_bufsz(count); }

hydrant_tools_blocks_t hydrant_tools_format_memveclist(char* buf, size_t count, const void* list) {
  const auto* const vectors = static_cast<const hydrant::Memvec*>(list);
  hydrant_tools_blocks_t all = {};
  for (size_t i = 0; i < count; ++i) {
    all.minsz = i == 0 ? vectors[i].len : std::min(all.minsz, vectors[i].len);
    hydrant::include(&all, vectors[i].addr, vectors[i].len);
  }
  const size_t room = list_bufsz(count);
  size_t used = hydrant::put_summary(buf, room, all, count);
  for (size_t i = 0; i < count; ++i) {
    used = append(buf, room, used, " [%p +%zu]", vectors[i].addr, vectors[i].len);
  }
  return all;
}

size_t hydrant_tools_format_putvgetv_bufsz(size_t dstcount, size_t srccount) {
  return kHeadingBytes + list_bufsz(dstcount) + list_bufsz(srccount);
}

size_t hydrant_tools_format_putvgetv(char* buf, const void* tm, uint32_t rank, size_t dstcount,
                                     const void* dstlist, size_t srccount, const void* srclist) {
  size_t bytes = 0;
  for (size_t i = 0; i < dstcount; ++i)
    bytes += static_cast<const hydrant::Memvec*>(dstlist)[i].len;
  size_t used = hydrant::put_peer(buf, kHeadingBytes, tm, rank, bytes);
  used = append(buf, kHeadingBytes, used, "; dst: ");
  (void)hydrant_tools_format_memveclist(buf + used, dstcount, dstlist);
  used += std::strlen(buf + used);
  // NOLINTNEXTLINE(bugprone-not-null-terminated-result): what follows is
  std::memcpy(buf + used, "; src: ", 7);
  (void)hydrant_tools_format_memveclist(buf + used + 7, srccount, srclist);
  return bytes;
}

size_t hydrant_tools_format_addrlist_bufsz(size_t count) { return list_bufsz(count); }

hydrant_tools_blocks_t hydrant_tools_format_addrlist(char* buf, size_t count, void* const* list,
                                                     size_t len) {
  hydrant_tools_blocks_t all = {};
  if (count > 0) all.minsz = len;
  for (size_t i = 0; i < count; ++i) hydrant::include(&all, list[i], len);
  const size_t room = list_bufsz(count);
  size_t used = hydrant::put_summary(buf, room, all, count);
  for (size_t i = 0; i < count; ++i) used = append(buf, room, used, " %p", list[i]);
  return all;
}

size_t hydrant_tools_format_putigeti_bufsz(size_t dstcount, size_t srccount) {
  return kHeadingBytes + list_bufsz(dstcount) + list_bufsz(srccount);
}

size_t hydrant_tools_format_putigeti(char* buf, const void* tm, uint32_t rank, size_t dstcount,
                                     void* const dstlist[], size_t dstlen, size_t srccount,
                                     void* const srclist[], size_t srclen) {
  const size_t bytes = dstcount * dstlen;
  size_t used = hydrant::put_peer(buf, kHeadingBytes, tm, rank, bytes);
  used = append(buf, kHeadingBytes, used, "; dst: ");
  (void)hydrant_tools_format_addrlist(buf + used, dstcount, dstlist, dstlen);
  used += std::strlen(buf + used);
  // NOLINTNEXTLINE(bugprone-not-null-terminated-result): what follows is
  std::memcpy(buf + used, "; src: ", 7);
  (void)hydrant_tools_format_addrlist(buf + used + 7, srccount, srclist, srclen);
  return bytes;
}

size_t hydrant_tools_format_strides_bufsz(size_t count) { return list_bufsz(count); }

void hydrant_tools_format_strides(char* buf, size_t count, const ptrdiff_t* list) {
  (void)hydrant::put_strides(buf, list_bufsz(count), 0, "", count, list);
}

size_t hydrant_tools_format_putsgets_bufsz(size_t stridelevels) {
  return kHeadingBytes + 3 * list_bufsz(stridelevels);
}

size_t hydrant_tools_format_putsgets(char* buf, void* stats, const void* tm, uint32_t rank,
                                     const void* dstaddr, const ptrdiff_t dststrides[],
                                     const void* srcaddr, const ptrdiff_t srcstrides[],
                                     size_t elemsz, const size_t count[], size_t stridelevels) {
  (void)stats;
  size_t bytes = elemsz;
  for (size_t i = 0; i < stridelevels; ++i) bytes *= count[i];
  const size_t room = hydrant_tools_format_putsgets_bufsz(stridelevels);
  size_t used = hydrant::put_peer(buf, room, tm, rank, bytes);
  used = append(buf, room, used, "; dst: %p strides=", dstaddr);
  used = hydrant::put_strides(buf, room, used, "", stridelevels, dststrides);
  used = append(buf, room, used, "; src: %p strides=", srcaddr);
  used = hydrant::put_strides(buf, room, used, "", stridelevels, srcstrides);
  used = append(buf, room, used, "; element=%zu count=[", elemsz);
  for (size_t i = 0; i < stridelevels; ++i) {
    used = append(buf, room, used, i == 0 ? "%zu" : ", %zu", count[i]);
  }
  (void)append(buf, room, used, "]");
  return bytes;
}

size_t hydrant_tools_format_bits(char* buf, uint64_t value, const hydrant_tools_bit_name_t* names,
                                 size_t name_count) {
  size_t needed = 1;
  uint64_t left = value;
  if (buf != nullptr) *buf = '\0';
  const auto add = [&](const char* text) {
    const size_t len = std::strlen(text);
    if (needed > 1) {
      if (buf != nullptr) buf[needed - 1] = '|';
      ++needed;
    }
    if (buf != nullptr) std::memcpy(buf + needed - 1, text, len + 1);
    needed += len;
  };
  for (size_t i = 0; i < name_count; ++i) {
    if (names[i].bits == 0 || (value & names[i].bits) != names[i].bits) continue;
    add(names[i].name);
    left &= ~names[i].bits;
  }
  char rest[24];
  std::snprintf(rest, sizeof rest, value == 0 ? "%" PRIu64 : "0x%" PRIx64, left);
  if (left != 0 || value == 0) add(rest);
  return needed;
}
