// The limits on pinned memory of this machine and process, and the default budget that follows from them.
//
// Threads: any. Cost: reads a dozen small files of /proc and /sys; call it at startup only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

inline constexpr uint64_t kUnlimited = UINT64_MAX;

struct MachineLimits {
  uint64_t memlock_bytes = kUnlimited;       // soft RLIMIT_MEMLOCK of this process
  uint64_t memlock_hard_bytes = kUnlimited;  // `ulimit -l` may raise it to this without privilege
  // CAP_IPC_LOCK in the initial user namespace: the kernel ignores the limit.
  bool memlock_lifted = false;

  uint32_t cgroup_version = 0;  // version that controls memory: 1, 2; 0 if none does
  uint64_t cgroup_limit_bytes =
      kUnlimited;                  // smallest limit from the process's group up to the visible root
  uint64_t cgroup_used_bytes = 0;  // current use of the group that has that limit
  char cgroup_path[256] = "";  // directory of that group; without a limit, of the process's group

  // MemTotal and MemAvailable; without /proc from sysinfo(2), which does not count cached files as available.
  uint64_t memory_total_bytes = 0;               // 0 if unknown
  uint64_t memory_available_bytes = kUnlimited;  // kUnlimited if unknown
  uint64_t page_bytes = 4096;
  uint64_t huge_page_bytes = 0;   // of a transparent huge page, else of hugetlb; 0 if unknown
  char thp_mode[16] = "unknown";  // "always", "madvise" or "never"
  uint64_t file_size_bytes = kUnlimited;      // soft RLIMIT_FSIZE
  uint64_t address_space_bytes = kUnlimited;  // soft RLIMIT_AS
  uint32_t cpu_count = 1;                     // CPUs that this process may run on
  char kernel_release[64] = "unknown";
  bool membarrier = false;  // MEMBARRIER_CMD_PRIVATE_EXPEDITED is offered
};

// Reads all of them; unreadable ones keep the defaults above. `root` is a prefix of every path of /proc and
// /sys, for tests; resource limits and CPUs are always those of the calling process.
MachineLimits read_machine_limits(const char* root = "") noexcept;

// Soft RLIMIT_FSIZE of this process.
uint64_t file_size_limit() noexcept;
// Soft RLIMIT_AS, and the address space in use; 0 if that is unknown, or there is no limit.
struct AddressSpace {
  uint64_t limit_bytes = kUnlimited;
  uint64_t used_bytes = 0;
};
AddressSpace read_address_space() noexcept;
// The address space that RLIMIT_AS leaves; half of it if the use is unknown; kUnlimited without a limit.
uint64_t address_space_left() noexcept;

enum class BudgetReason : uint32_t { kMemlock, kPhysicalMemory, kCgroup, kRegistrar, kFloor };

struct BudgetDecision {
  uint64_t bytes = 0;  // finite, whole pages, at least one
  BudgetReason decided_by = BudgetReason::kFloor;
  char text[200] = "";  // "7/8 of the memlock limit of 8 MiB (ulimit -l)"
};

// The part of the memlock limit that a domain pins by default; the rest is for the account's other processes.
struct MemlockShare {
  static constexpr unsigned kParts = 7;
  static constexpr unsigned kWhole = 8;
  // kUnlimited remains kUnlimited.
  static constexpr uint64_t of(uint64_t memlock_bytes) noexcept {
    return memlock_bytes == kUnlimited ? kUnlimited : memlock_bytes / kWhole * kParts;
  }
};

// Whether the kernel charges the registrar's pins to RLIMIT_MEMLOCK.
enum class MemlockUse : bool { kFree, kCharged };

// A domain's default limit on charged bytes, the smallest of
//   MemlockShare of the memlock limit, unless it is lifted or the pins are not charged to it;
//   half of the physical memory;
//   3/4 of the cgroup's limit;
//   the registrar's total (traits().max_charge_bytes).
BudgetDecision default_budget(const MachineLimits& limits, uint64_t registrar_max_charge,
                              MemlockUse use = MemlockUse::kCharged) noexcept;

// The default budget of this machine.
BudgetDecision default_budget(uint64_t registrar_max_charge,
                              MemlockUse use = MemlockUse::kCharged) noexcept;

// A short name for tables and JSON, such as "memlock".
const char* budget_reason_name(BudgetReason reason) noexcept;

}  // namespace hydrant
