// Streams among misses: runs of requests that follow each other in memory, upwards or downwards, side by
// side or at a constant distance. For the next registration of such a run it advises how far to extend it.
//
// A miss continues a stream if it begins where the last registration of the stream ended, or reaches over
// that end, or comes where the constant distance says. From the second continuation on the registration is
// twice as long as the last one, up to a limit. A stream that pauses comes down by half for every 64 misses
// of others; one whose registration ended elsewhere than advised (refused, cut, evicted) begins anew.
//
// Each extension that was never used raises the number of continuations that all streams of the domain need
// before the next extension, up to 512; each one that was used lowers it. So short streams stop costing
// anything, and long ones are still extended.
//
// Threads: none of its own; the domain's mutex guards it. Cost: 20 to 50 ns a miss.
#pragma once

#include "firehose/base/memory_range.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

class StreamDetector {
 public:
  struct Advice {
    MemoryRange range;  // the request, or more in the direction of its stream
    bool down = false;  // more at its lower end
    // The stream has moved four times as far already: its own misses would cost others as much memory.
    bool earned = false;
    uintptr_t passed = 0;  // not 0: the stream has gone through the extended region with this byte
  };

  // Notes a miss of `pages` and returns what to register: at most `most` bytes, or the request. The same
  // request again at once is ignored; it is returned as it is. Requires: ranges rounded to one granule
  // throughout.
  Advice note_miss(MemoryRange pages, size_t most, uint64_t now_ns) noexcept;

  // Notes that the advice for `pages` was not followed: `range`, of the same start (or end), was registered.
  void note_cut(MemoryRange pages, MemoryRange range) noexcept;
  // Notes that the advised range was refused; the request may be granted. For a second no stream is advised
  // to cross the border; where exactly it is, is approached by halves.
  void note_refused(MemoryRange pages, MemoryRange range, uint64_t now_ns) noexcept;
  void note_granted(MemoryRange range, bool down) noexcept;

  // An extended registration has ended, mostly unused or not.
  void note_outcome(bool wasted) noexcept;

  // Forgets the borders in the range, whose memory has changed.
  void forget_borders(MemoryRange range) noexcept;
  bool has_borders() const noexcept { return next_border_ != 0; }
  void clear() noexcept { *this = {}; }

  // Number of continuations before a stream is extended.
  uint32_t patience() const noexcept { return patience_; }

 private:
  static constexpr size_t kStreams = 16;
  static constexpr size_t kBorders = 8;

  // Addresses of a stream that goes down are mirrored, so that every stream goes up.
  struct Stream {
    MemoryRange last, reach;  // the last request, and what was advised for it
    size_t stride;            // distance of its requests where they do not touch, else 0
    uintptr_t next;           // with a stride: where the next miss is expected
    uint64_t asked_bytes;     // distance that the stream has moved
    uint64_t used_at;         // misses when it was last continued; 0: unused entry
    uint32_t run;             // continuations
    bool down;
  };
  // No registration that begins before `bad` and reached `bad` was granted, one up to `good` was.
  struct Border {
    uintptr_t good, bad;
    uint64_t until_ns;  // 0: unused entry
    bool down;
  };

  // The part of a stream that a search of all streams reads: the limit of its next request, and its expiry.
  struct Window {
    uintptr_t from;
    uintptr_t len;
    uint64_t worth;
  };

  bool continues(const Stream& s, MemoryRange m, size_t* stride) const noexcept;
  Advice advance(Stream& s, MemoryRange m, size_t stride, size_t most, uint64_t now_ns) noexcept;
  size_t room_before_border(MemoryRange m, size_t len, bool down, uint64_t now_ns) const noexcept;
  bool follows(const Stream& s, MemoryRange pages, Stream* as, size_t* stride) const noexcept;
  void set_window(size_t i) noexcept;
  Stream* find(MemoryRange pages) noexcept;

  Stream streams_[kStreams] = {};
  Window windows_[kStreams] = {};
  Border borders_[kBorders] = {};
  uint64_t misses_ = 0;
  uint32_t next_border_ = 0;
  uint32_t patience_ = 2;
};

}  // namespace hydrant
