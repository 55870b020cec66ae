// Recognises streams among misses and advises how far to extend the next registration. The planner reports
// each miss to it (step 3 of "Tour: a miss with eviction"); Extensions reports whether an extension was used.
#include "firehose/cache/region/stream_detector.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr uint32_t kMinPatience = 2;
constexpr uint32_t kMaxPatience = 512;
// A stream's constant distance is at most so many times the length of its requests. Beyond that, registering
// the memory in between costs more than the registrations that are saved.
constexpr size_t kMaxSpread = 4;
// A stream has earned an extension that costs others their memory once it has moved so many times its
// length.
constexpr size_t kEarnedTimes = 4;
constexpr uint64_t kPauseMisses = 64;
constexpr uint64_t kBorderLifeNs = 1'000'000'000;

MemoryRange mirrored(MemoryRange r) { return {~r.last(), r.len}; }
MemoryRange turned(MemoryRange r, bool down) { return down ? mirrored(r) : r; }

}  // namespace

// In the stream's own direction, upwards. *stride is 0 where the requests touch.
bool StreamDetector::continues(const Stream& s, MemoryRange m, size_t* stride) const noexcept {
  *stride = 0;
  if (m.addr <= s.last.addr) return false;
  if (m.addr <= s.reach.end()) return m.end() > s.reach.end();
  if (s.run == 0) {
    *stride = m.addr - s.last.addr;
    return *stride <= kMaxSpread * m.len;
  }
  *stride = s.stride;
  return s.stride != 0 && m.addr == s.next && s.stride <= kMaxSpread * m.len;
}

// How long a registration of m may become before it meets a border; at least m.
size_t StreamDetector::room_before_border(MemoryRange m, size_t len, bool down,
                                          uint64_t now_ns) const noexcept {
  for (const Border& b : borders_) {
    if (now_ns >= b.until_ns || b.down != down) continue;
    if (m.end() >= b.bad || m.addr + len < b.bad) continue;
    const uintptr_t to = b.good > m.end() ? b.good : m.addr + (b.bad - m.addr) / 2;
    len = std::max(to - m.addr, m.len);
  }
  return len;
}

StreamDetector::Advice StreamDetector::advance(Stream& s, MemoryRange m, size_t stride, size_t most,
                                               uint64_t now_ns) noexcept {
  Advice advice;
  advice.down = s.down;
  if (s.reach != s.last) {
    const uintptr_t last = s.reach.last();
    advice.passed = s.down ? ~last : last;
  }
  const uint64_t pauses = std::min<uint64_t>((misses_ - s.used_at) / kPauseMisses, 63);
  const size_t before = std::max((s.reach.end() - s.last.addr) >> pauses, m.len);
  s.asked_bytes += m.addr - s.last.addr;
  s.used_at = misses_;
  s.stride = stride;
  ++s.run;
  size_t len = m.len;
  const size_t step = stride != 0 ? stride : m.len;
  if (s.run >= patience_ && m.len <= most && m.addr < UINTPTR_MAX - 2 * most) {
    size_t wanted = std::max(std::min(2 * before, most), std::min(m.len + step, most));
    wanted = room_before_border(m, wanted, s.down, now_ns);
    // Whole requests, so that the next one does not begin inside.
    len += (wanted - m.len) / step * step;
  }
  s.last = m;
  s.reach = {m.addr, len};
  s.next = m.addr + (len - m.len) + step;
  advice.range = turned(s.reach, s.down);
  advice.earned = s.asked_bytes >= kEarnedTimes * len;
  return advice;
}

// The window is wide enough for every request that continues the stream. A stream that was continued outlives
// 64 misses of others.
void StreamDetector::set_window(size_t i) noexcept {
  const Stream& s = streams_[i];
  const uintptr_t far = s.reach.len + s.stride + (kMaxSpread + 1) * s.last.len;
  const MemoryRange last = turned(s.last, s.down);
  windows_[i] = {last.addr - far, 2 * far, s.used_at + (s.run >= kMinPatience ? kPauseMisses : 0)};
}

StreamDetector::Stream* StreamDetector::find(MemoryRange pages) noexcept {
  for (Stream& s : streams_) {
    if (s.used_at != 0 && turned(s.last, s.down) == pages) return &s;
  }
  return nullptr;
}

// True if the request continues the stream; *as is the stream, turned the right way.
bool StreamDetector::follows(const Stream& s, MemoryRange pages, Stream* as,
                             size_t* stride) const noexcept {
  if (s.used_at == 0) return false;
  *as = s;
  if (continues(s, turned(pages, s.down), stride)) return true;
  if (s.run != 0) return false;
  // A single request has no direction yet.
  as->down = true;
  as->last = mirrored(s.last);
  as->reach = mirrored(s.reach);
  return continues(*as, mirrored(pages), stride);
}

StreamDetector::Advice StreamDetector::note_miss(MemoryRange pages, size_t most,
                                                 uint64_t now_ns) noexcept {
  ++misses_;
  size_t oldest = 0;
  size_t found = kStreams;
  size_t found_stride = 0;
  Stream found_as{};
  for (size_t i = 0; i < kStreams; ++i) {
    if (windows_[i].worth < windows_[oldest].worth) oldest = i;
    if (pages.addr - windows_[i].from > windows_[i].len) continue;
    if (turned(streams_[i].last, streams_[i].down) == pages) return {.range = pages};
    size_t stride = 0;
    Stream as;
    if (!follows(streams_[i], pages, &as, &stride)) continue;
    // Two requests at a distance are a stream only if the third belongs to no other stream.
    const bool sure = as.run != 0 || stride == 0;
    if (!sure && found != kStreams) continue;
    found = i;
    found_stride = stride;
    found_as = as;
    if (sure) break;
  }
  if (found != kStreams) {
    Stream& s = streams_[found] = found_as;
    const Advice advice = advance(s, turned(pages, s.down), found_stride, most, now_ns);
    set_window(found);
    return advice;
  }
  streams_[oldest] = {pages, pages, 0, 0, pages.len, misses_, 0, false};
  set_window(oldest);
  return {.range = pages};
}

void StreamDetector::note_cut(MemoryRange pages, MemoryRange range) noexcept {
  Stream* s = find(pages);
  if (s == nullptr) return;
  s->reach = turned(range, s->down);
  if (s->stride != 0) {
    const size_t ahead = std::max(s->reach.end(), s->last.end()) - s->last.end();
    s->next = s->last.addr + (ahead / s->stride + 1) * s->stride;
  }
  set_window(static_cast<size_t>(s - streams_));
}

void StreamDetector::note_refused(MemoryRange pages, MemoryRange range, uint64_t now_ns) noexcept {
  note_cut(pages, pages);
  const bool down = range.addr < pages.addr;
  const MemoryRange requested = turned(pages, down);
  const uintptr_t bad = turned(range, down).end();
  for (Border& b : borders_) {
    if (now_ns >= b.until_ns || b.down != down || requested.end() >= b.bad) continue;
    if (bad <= b.good || bad > b.bad) continue;  // another border
    b = {std::max(b.good, requested.end()), bad, now_ns + kBorderLifeNs, down};
    return;
  }
  borders_[next_border_++ % kBorders] = {requested.end(), bad, now_ns + kBorderLifeNs, down};
}

void StreamDetector::note_granted(MemoryRange range, bool down) noexcept {
  const MemoryRange m = turned(range, down);
  for (Border& b : borders_) {
    if (b.until_ns != 0 && b.down == down && m.end() < b.bad && m.end() > b.good) b.good = m.end();
  }
}

void StreamDetector::note_outcome(bool wasted) noexcept {
  patience_ =
      wasted ? std::min(patience_ * 2, kMaxPatience) : std::max(patience_ / 2, kMinPatience);
}

void StreamDetector::forget_borders(MemoryRange range) noexcept {
  for (Border& b : borders_) {
    if (b.until_ns == 0) continue;
    const MemoryRange open = turned({b.good, b.bad - b.good}, b.down);
    if (open.overlaps(range)) b.until_ns = 0;
  }
}

}  // namespace hydrant
