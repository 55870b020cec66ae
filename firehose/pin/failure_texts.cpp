// Writes the error texts of failures that several places detect. The C functions, misses, releases and remote
// pins return these statuses.
#include "firehose/pin/failure_texts.hpp"

namespace hydrant {

Status fail_unknown_access(uint32_t access) noexcept {
  return fail(Status::kBadArg,
              "access %#x has unknown bits: pass an or of HYDRANT_LOCAL_WRITE and so on, which are "
              "all in HYDRANT_ACCESS_ALL (%#x)",
              access, bits(Access::kAll));
}

Status fail_wrapping(MemoryRange range) noexcept {
  return fail(Status::kBadArg, "range [%#zx, +%zu) wraps around the address space: correct it",
              static_cast<size_t>(range.addr), range.len);
}

Status fail_pin_of_parent() noexcept {
  return fail(Status::kNotInit,
              "this pin was taken before the fork that made this process: drop the handle, and pin "
              "through a domain of this process");
}

Status fail_pin_released() noexcept {
  return fail(
      Status::kBadArg,
      "this pin is not live: it was released before, or never taken; release each pin once");
}

Status fail_rank_exited(uint32_t rank) noexcept {
  return fail(Status::kBroken,
              "rank %u is gone: its memory cannot be reached; release the pins of its memory",
              rank);
}

Status fail_no_memory(const char* domain, MemoryRange requested, const char* what) noexcept {
  return fail(Status::kResource,
              "domain %s: the system has no memory for %s, which pinning [%#zx, +%zu) needs: free "
              "memory, raise the process's limit (ulimit -v), or copy",
              domain, what, static_cast<size_t>(requested.addr), requested.len);
}

}  // namespace hydrant
