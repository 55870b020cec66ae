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

bool holds(const SegmentAddress& address, uintptr_t addr, size_t bytes) noexcept {
  const uintptr_t offset = addr - address.addr;
  return offset <= address.size && bytes <= address.size - offset;
}

}  // namespace

void choose_segment_check() noexcept {
  is_on.store(job().debug && job().segment_mode != kSegmentEverything &&
                  knob_number(JobKnob::kSegmentCheck) != 0,
              std::memory_order_relaxed);
}

bool checks_segments() noexcept { return is_on.load(std::memory_order_relaxed); }

Status check_in_segment(Rank rank, uintptr_t addr, size_t bytes) noexcept {
  if (bytes == 0 || !segments_are_known()) return Status::kOk;
  SegmentAddress address;
  if (const Status status = find_segment(rank, &address); status != Status::kOk) return status;
  if (address.size == 0) {
    return fail(Status::kBadArg,
                "%zu bytes at %#zx of rank %u, which has no segment: with GASNET_DEBUG targets "
                "must lie in segments (HYDRANT_SEGMENT_CHECK=n allows any memory)",
                bytes, static_cast<size_t>(addr), rank);
  }
  if (holds(address, addr, bytes)) return Status::kOk;
  char relation[kSegmentRelationText];
  return fail(Status::kBadArg,
              "%zu bytes at %#zx of rank %u are not in its segment%s. With GASNET_DEBUG "
              "targets must lie in segments (HYDRANT_SEGMENT_CHECK=n allows any memory)",
              bytes, static_cast<size_t>(addr), rank,
              relate_to_segment(rank, addr, bytes, relation, sizeof relation));
}

bool leaves_segment(Rank rank, uintptr_t addr, size_t bytes) noexcept {
  SegmentAddress address;
  if (bytes == 0 || !find_known(rank, &address) || holds(address, addr, bytes)) return false;
  const auto is_inside = [&address](uintptr_t at) { return at - address.addr < address.size; };
  return is_inside(addr) || is_inside(addr + bytes - 1) || address.addr - addr < bytes;
}

const char* relate_to_segment(Rank rank, uintptr_t addr, size_t bytes, char* text,
                              size_t room) noexcept {
  text[0] = '\0';
  SegmentAddress address;
  if (bytes == 0 || !find_known(rank, &address) || holds(address, addr, bytes)) return text;
  const bool is_before = addr < address.addr;
  const uint64_t last = addr + (bytes - 1);
  const uint64_t beyond =
      is_before ? address.addr - addr : last - (address.addr + address.size - 1);
  if (beyond > kFarBytes) return text;
  (void)snprintf(text, room, "; they %s %llu byte%s %s of its segment [%#llx, +%llu)",
                 is_before ? "begin" : "reach", static_cast<unsigned long long>(beyond),
                 beyond == 1 ? "" : "s", is_before ? "before the start" : "past the end",
                 static_cast<unsigned long long>(address.addr),
                 static_cast<unsigned long long>(address.size));
  return text;
}

}  // namespace hydrant
