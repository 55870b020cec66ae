// Probes io_uring by trial pins when a uring registrar is created: limits, delays of charges, costs.
#include "firehose/registrars/uring/uring_probe.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/registrars/charge/memlock.hpp"
#include "firehose/registrars/uring/uring_status.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr size_t kProbePages = 16;
constexpr int kRepetitions = 5;
// Clearing larger huge pages would cost more than the probe gains.
constexpr size_t kLargestProbe = size_t{4} << 20;
constexpr uint64_t kPartsOfBlock = 8;
// Largest limit that a trial of a privileged process exceeds: a larger one is too expensive.
constexpr uint64_t kTrialBytes = uint64_t{16} << 20;

class ProbeMemory {
 public:
  ProbeMemory(size_t len, int advice) noexcept : len_(len) {
    addr_ = mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (addr_ == MAP_FAILED) return;
    if (advice == 0) return;  // the caller advises and touches the memory
    madvise(addr_, len, advice);
    std::memset(addr_, 1, len);
  }
  ~ProbeMemory() {
    if (valid()) munmap(addr_, len_);
  }
  ProbeMemory(const ProbeMemory&) = delete;
  ProbeMemory& operator=(const ProbeMemory&) = delete;
  bool valid() const noexcept { return addr_ != MAP_FAILED; }
  MemoryRange first(size_t len) const noexcept { return {reinterpret_cast<uintptr_t>(addr_), len}; }

 private:
  void* addr_;
  size_t len_;
};

struct Times {
  uint64_t pin_ns = UINT64_MAX;
  uint64_t unpin_ns = UINT64_MAX;
};

// Pins and unpins once and keeps the shorter times. Returns 0 or a negative errno.
int pin_once(UringRing& ring, MemoryRange range, uint64_t charge_bytes, Times* times) noexcept {
  UringRun run;
  if (!ring.claim(range.len, false)) return -EXFULL;
  const uint64_t start = now_ns();
  int error = ring.register_run(range, charge_bytes, &run);
  if (error != 0) return error;
  const uint64_t pinned = now_ns();
  if (!ring.begin_unregister(range, run)) return -EIO;
  error = ring.finish_unregister(run.first, UringSize::of(range.len));
  times->pin_ns = std::min(times->pin_ns, pinned - start);
  times->unpin_ns = std::min(times->unpin_ns, now_ns() - pinned);
  return error;
}

// Some security modules deny a capability that the process seems to have, so this tries to exceed the limit.
// charge_bytes is 1: an unlimited process leaves no charge pending.
bool limit_is_applied(UringRing& ring, uint64_t limit_bytes, size_t page_bytes) noexcept {
  const ProbeMemory memory(limit_bytes / page_bytes * page_bytes + page_bytes, MADV_HUGEPAGE);
  Times times;
  const size_t len = limit_bytes / page_bytes * page_bytes + page_bytes;
  return memory.valid() && pin_once(ring, memory.first(len), 1, &times) == -ENOMEM;
}

uint64_t find_limit(UringRing& ring, size_t page_bytes) noexcept {
  const MemlockLimit limit = read_memlock_limit();
  if (!limit.privileged) return limit.bytes;
  const bool applied =
      limit.bytes <= kTrialBytes && limit_is_applied(ring, limit.bytes, page_bytes);
  return applied ? limit.bytes : UINT64_MAX;
}

void measure(UringRing& ring, const ProbeMemory& memory, size_t page_bytes,
             UringFacts* facts) noexcept {
  Times one, many;
  // If charges return late, each repetition occupies budget for a second.
  const int repetitions = facts->late_charges ? 1 : kRepetitions;
  const size_t len = page_bytes * kProbePages;
  for (int i = 0; i < repetitions; ++i) {
    if (pin_once(ring, memory.first(page_bytes), page_bytes, &one) != 0) return;
    if (pin_once(ring, memory.first(len), len, &many) != 0) return;
  }
  const uint64_t more_ns = many.pin_ns > one.pin_ns ? many.pin_ns - one.pin_ns : 0;
  facts->pin_base_ns = static_cast<uint32_t>(one.pin_ns);
  facts->pin_page_ns = static_cast<uint32_t>(more_ns / (kProbePages - 1));
  facts->unpin_base_ns = static_cast<uint32_t>(one.unpin_ns);
}

}  // namespace

bool huge_pages_pin_whole(UringRing& ring, const HugePages& huge_pages) noexcept {
  const size_t block = huge_pages.huge_bytes();
  if (!huge_pages.known() || block > kLargestProbe) return false;
  const ProbeMemory memory(2 * block, 0);
  if (!memory.valid()) return false;
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t start = round_out({memory.first(1).last() + block - 1, 1}, block).addr;
  madvise(reinterpret_cast<void*>(start), block, MADV_HUGEPAGE);
  *reinterpret_cast<volatile char*>(start) = 1;
  const MemoryRange part{start, page_bytes};
  if (huge_pages.charge(part) != block) return false;
  Times one, whole;
  for (int i = 0; i < kRepetitions; ++i) {
    if (pin_once(ring, part, block, &one) != 0) return false;
    if (pin_once(ring, {start, block}, block, &whole) != 0) return false;
  }
  return whole.pin_ns < kPartsOfBlock * one.pin_ns;
}

Status probe_uring(UringRing& ring, UringFacts* facts) noexcept {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const ProbeMemory memory(page_bytes * kProbePages, MADV_NOHUGEPAGE);
  if (!memory.valid())
    return fail(Status::kResource,
                "cannot map memory for a trial of io_uring: free memory, or raise ulimit -v");
  Times times;
  const int error = pin_once(ring, memory.first(page_bytes), page_bytes, &times);
  facts->late_charges = ring.pending_bytes() != 0;
  facts->limit_bytes = find_limit(ring, page_bytes);
  if (error == -ENOMEM && facts->limit_bytes >= page_bytes) {
    // Other processes of this user, or one that just died, hold the whole account: may work later.
    facts->late_charges = true;
    return Status::kOk;
  }
  if (error == -ENOMEM) {
    char advice[256];
    describe_memlock({facts->limit_bytes, false}, advice, sizeof advice);
    return fail(Status::kUnsupported, "io_uring cannot pin a single page: %s", advice);
  }
  if (error == -EFAULT || error == -EOPNOTSUPP || error == -EINVAL) {
    return fail(Status::kUnsupported,
                "io_uring cannot pin memory here: io_uring_register: %s; use mlock",
                errno_text(-error));
  }
  if (error != 0) return explain_uring_unusable({error, "io_uring_register"});
  if (!facts->late_charges) ring.set_tagged(false);
  measure(ring, memory, page_bytes, facts);
  return Status::kOk;
}

}  // namespace hydrant
