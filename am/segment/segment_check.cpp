// Compares the targets of puts, gets and Longs with the segments of their ranks (segments.cpp). Called
// by the send and RMA calls, and for error texts.
#include "am/segment/segment_check.hpp"

#include "am/job/job.hpp"
#include "am/segment/segments.hpp"
#include "rdma/config/job_knobs.hpp"

#include <atomic>
#include <cstdio>

namespace hydrant {
namespace {

constexpr uint64_t kFarBytes = uint64_t{4} << 30;

std::atomic<bool> is_on{false};  // relaxed: written before other threads exist

// False if this process knows of no segment of `rank`.
bool find_known(Rank rank, SegmentAddress* address) noexcept {
  return job().segment_mode != kSegmentEverything && find_segment(rank, address) == Status::kOk &&
         address->size != 0;
}

// Formats how far a range outside of the segment is beyond which end.
const char* relate(const SegmentAddress& address, uintptr_t addr, size_t bytes, char* text,
                   size_t room) noexcept {
  text[0] = '\0';
  const bool is_before = addr < address.addr;
  const uint64_t last = addr + (bytes - 1);
  const uint64_t beyond =
      is_before ? address.addr - addr : last - (address.addr + address.size - 1);
  if (beyond > kFarBytes) return text;
  (void)snprintf(text, room, "; the range %s %llu byte%s %s of its segment [%#llx, +%llu)",
                 is_before ? "begins" : "reaches", static_cast<unsigned long long>(beyond),
                 beyond == 1 ? "" : "s", is_before ? "before the start" : "past the end",
                 static_cast<unsigned long long>(address.addr),
                 static_cast<unsigned long long>(address.size));
  return text;
}

}  // namespace

void choose_segment_check() noexcept {
  is_on.store(job().debug && job().segment_mode != kSegmentEverything &&
                  knob_number(JobKnob::kSegmentCheck) != 0,
              std::memory_order_relaxed);
}

bool checks_segments() noexcept { return is_on.load(std::memory_order_relaxed); }

Status check_in_segment(Rank rank, uint32_t endpoint, uintptr_t addr, size_t bytes) noexcept {
  if (bytes == 0 || !segments_are_known()) return Status::kOk;
  SegmentAddress address;
  if (const Status status = find_segment(rank, &address, true, endpoint); status != Status::kOk)
    return status;
  // An address of the whole address space (GASNET_SEGMENT_EVERYTHING) holds every range.
  if (address.size != 0 && address.holds(addr, bytes)) return Status::kOk;
  char whose[48];
  (void)snprintf(whose, sizeof whose, endpoint == 0 ? "rank %u" : "rank %u (endpoint %u)", rank,
                 endpoint);
  constexpr const char* kRule =
      "With GASNET_DEBUG targets must lie in segments (HYDRANT_SEGMENT_CHECK=n allows any memory)";
  if (address.size == 0) {
    return fail(Status::kBadArg, "%zu bytes at %#zx of %s, which has no segment%s. %s", bytes,
                static_cast<size_t>(addr), whose,
                endpoint == 0 ? "" : " that was published to this rank", kRule);
  }
  char relation[kSegmentRelationText];
  return fail(Status::kBadArg, "%zu bytes at %#zx of %s are not in its segment%s. %s", bytes,
              static_cast<size_t>(addr), whose,
              relate(address, addr, bytes, relation, sizeof relation), kRule);
}

bool leaves_segment(Rank rank, uintptr_t addr, size_t bytes) noexcept {
  SegmentAddress address;
  if (bytes == 0 || !find_known(rank, &address) || address.holds(addr, bytes)) return false;
  const auto is_inside = [&address](uintptr_t at) { return at - address.addr < address.size; };
  return is_inside(addr) || is_inside(addr + bytes - 1) || address.addr - addr < bytes;
}

const char* relate_to_segment(Rank rank, uintptr_t addr, size_t bytes, char* text,
                              size_t room) noexcept {
  text[0] = '\0';
  SegmentAddress address;
  if (bytes == 0 || !find_known(rank, &address) || address.holds(addr, bytes)) return text;
  return relate(address, addr, bytes, text, room);
}

}  // namespace hydrant
