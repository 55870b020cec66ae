#include "firehose/stream_detector.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr uint32_t kLeastPatience = 2;
constexpr uint32_t kMostPatience = 512;
// Requests at a constant distance of more than so many times their length: what lies between costs more to
// register than the registrations that are saved.
constexpr size_t kMostSpread = 4;
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
    return *stride <= kMostSpread * m.len;
  }
  *stride = s.stride;
  return s.stride != 0 && m.addr == s.next && s.stride <= kMostSpread * m.len;
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
  s.asked_bytes += m.end() - s.reach.end();
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
  advice.earned = s.asked_bytes >= len;
  return advice;
}

// What one may lose: a stream that was continued outlives 64 misses of others.
StreamDetector::Stream& StreamDetector::oldest() noexcept {
  const auto worth = [](const Stream& s) {
    return s.used_at + (s.run >= kLeastPatience ? kPauseMisses : 0);
  };
  return *std::min_element(streams_, streams_ + kStreams,
                           [&](const Stream& a, const Stream& b) { return worth(a) < worth(b); });
}

StreamDetector::Stream* StreamDetector::find(MemoryRange pages) noexcept {
  for (Stream& s : streams_) {
    if (s.used_at != 0 && turned(s.last, s.down) == pages) return &s;
  }
  return nullptr;
}

StreamDetector::Advice StreamDetector::note_miss(MemoryRange pages, size_t most,
                                                 uint64_t now_ns) noexcept {
  ++misses_;
  Stream* follows = nullptr;
  size_t stride = 0;
  const MemoryRange mirror = mirrored(pages);
  for (Stream& s : streams_) {
    if (s.used_at == 0) continue;
    const MemoryRange m = s.down ? mirror : pages;
    if (s.last == m) return {.range = pages};
    if (continues(s, m, &stride)) {
      follows = &s;
      break;
    }
    if (s.run != 0) continue;
    // One request has no direction yet.
    Stream other = s;
    other.down = true;
    other.last = mirrored(s.last);
    other.reach = mirrored(s.reach);
    if (!continues(other, mirror, &stride)) continue;
    s = other;
    follows = &s;
    break;
  }
  if (follows != nullptr) {
    return advance(*follows, follows->down ? mirror : pages, stride, most, now_ns);
  }
  oldest() = {pages, pages, 0, 0, pages.len, misses_, 0, false};
  return {.range = pages};
}

void StreamDetector::note_cut(MemoryRange pages, MemoryRange range) noexcept {
  Stream* s = find(pages);
  if (s == nullptr) return;
  s->reach = turned(range, s->down);
  // The requests go on where the registration ends, or the stream is at its end.
  if (s->stride == 0) return;
  const size_t ahead = std::max(s->reach.end(), s->last.end()) - s->last.end();
  s->next = s->last.addr + (ahead / s->stride + 1) * s->stride;
}

void StreamDetector::note_refused(MemoryRange pages, MemoryRange range, uint64_t now_ns) noexcept {
  note_cut(pages, pages);
  const bool down = range.addr < pages.addr;
  const MemoryRange asked = turned(pages, down);
  const uintptr_t bad = turned(range, down).end();
  for (Border& b : borders_) {
    if (now_ns >= b.until_ns || b.down != down || asked.end() >= b.bad || bad > b.bad) continue;
    b = {b.good < bad ? std::max(b.good, asked.end()) : asked.end(), bad, now_ns + kBorderLifeNs,
         down};
    return;
  }
  borders_[next_border_++ % kBorders] = {asked.end(), bad, now_ns + kBorderLifeNs, down};
}

void StreamDetector::note_granted(MemoryRange range, bool down) noexcept {
  const MemoryRange m = turned(range, down);
  for (Border& b : borders_) {
    if (b.until_ns != 0 && b.down == down && m.end() < b.bad && m.end() > b.good) b.good = m.end();
  }
}

void StreamDetector::note_outcome(bool wasted) noexcept {
  patience_ = wasted ? std::min(patience_ * 2, kMostPatience)
                     : std::max(patience_ / 2, kLeastPatience);
}

void StreamDetector::forget_borders(MemoryRange range) noexcept {
  for (Border& b : borders_) {
    if (b.until_ns == 0) continue;
    const MemoryRange open = turned({b.good, b.bad - b.good}, b.down);
    if (open.overlaps(range)) b.until_ns = 0;
  }
}

}  // namespace hydrant
