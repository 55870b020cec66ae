// What this machine lets a process pin, and the budget that follows from it.
//
// Threads: any. Cost: a dozen small files of /proc and /sys; for start-up, not for a data path.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

inline constexpr uint64_t kUnlimited = UINT64_MAX;

struct MachineLimits {
  uint64_t memlock_bytes = kUnlimited;       // soft RLIMIT_MEMLOCK of this process
  uint64_t memlock_hard_bytes = kUnlimited;  // what `ulimit -l` may raise it to without privilege
  bool memlock_lifted =
      false;  // CAP_IPC_LOCK in the first user namespace: the kernel ignores the limit

  uint32_t cgroup_version = 0;  // of the hierarchy that controls memory: 1, 2; 0 if none does
  uint64_t cgroup_limit_bytes = kUnlimited;  // smallest limit from our group up to the visible root
  uint64_t cgroup_used_bytes = 0;            // in use now, in the group that has that limit
  char cgroup_path[256] = "";  // of that group, as a directory; our own where none limits

  uint64_t memory_total_bytes = 0;      // MemTotal
  uint64_t memory_available_bytes = 0;  // MemAvailable
  uint64_t page_bytes = 4096;
  uint64_t huge_page_bytes = 0;   // of a transparent huge page, else of hugetlb; 0 if unknown
  char thp_mode[16] = "unknown";  // "always", "madvise" or "never"
  uint32_t cpu_count = 1;         // that this process may run on
  char kernel_release[64] = "unknown";
  bool membarrier = false;  // MEMBARRIER_CMD_PRIVATE_EXPEDITED is offered
};

// Reads them all; what cannot be read keeps the default above. `root` is put before every path of /proc
// and /sys, for tests; resource limits and CPUs are always those of the calling process.
MachineLimits read_machine_limits(const char* root = "") noexcept;

enum class BudgetReason : uint32_t { kMemlock, kPhysicalMemory, kCgroup, kRegistrar, kFloor };

struct BudgetDecision {
  uint64_t bytes = 0;  // finite, whole pages, at least one
  BudgetReason decided_by = BudgetReason::kFloor;
  char text[200] = "";  // "7/8 of the memlock limit of 8 MiB (ulimit -l)"
};

// The most bytes a domain keeps charged unless it is told otherwise: the smallest of
//   7/8 of the memlock limit, unless it is lifted (the rest is for other users of the same account);
//   half of the physical memory;
//   3/4 of the cgroup's limit;
//   what the registrar's account allows in all (traits().max_charge_bytes).
BudgetDecision default_budget(const MachineLimits& limits, uint64_t registrar_max_charge) noexcept;

// The same for this machine, the number alone.
uint64_t default_budget_bytes(uint64_t registrar_max_charge) noexcept;

// "memlock" and so on, for tables and JSON.
const char* budget_reason_name(BudgetReason reason) noexcept;

}  // namespace hydrant
