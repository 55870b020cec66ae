// Reads limits and sizes of this machine, and derives a domain's default budget from them. Domains and
// hydrant-info call it.
#include "firehose/base/machine/machine_limits.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/machine/cgroup_memory.hpp"
#include "firehose/base/machine/small_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <linux/membarrier.h>
#include <sched.h>
#include <string_view>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint32_t kCapIpcLock = 14;  // capabilities(7)

size_t read_under(const char* root, const char* path, char* text, size_t room) noexcept {
  char full[kPathBytes];
  text[0] = '\0';
  return join_path(full, sizeof full, root, path) ? read_small_file(full, text, room) : 0;
}

// The value after "name:" in a file of such lines, up to the end of the line; empty if missing.
std::string_view field(std::string_view text, std::string_view name) noexcept {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    auto line = text.substr(0, end);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':')) {
      line.remove_prefix(name.size() + 1);
      return line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return {};
}

// Converts "24684092 kB" to bytes; 0 if malformed.
uint64_t kilobytes(std::string_view text) noexcept {
  uint64_t bytes = 0;
  return parse_size(text, 1, &bytes) ? bytes : 0;
}

uint64_t from_rlim(rlim_t value) noexcept {
  return value == RLIM_INFINITY ? kUnlimited : static_cast<uint64_t>(value);
}

uint64_t soft_limit(decltype(RLIMIT_AS) of) noexcept {
  rlimit limit{};
  return getrlimit(of, &limit) == 0 ? from_rlim(limit.rlim_cur) : kUnlimited;
}

// The kernel checks the capability in the initial user namespace. In another one (a rootless container) root
// shows a full CapEff but is still limited. The kernel fixes the initial namespace's inode
// (include/linux/proc_ns.h).
bool in_first_user_namespace(const char* root) noexcept {
  char path[kPathBytes];
  char text[64];
  if (!join_path(path, sizeof path, root, "/proc/self/ns/user")) return false;
  const ssize_t len = readlink(path, text, sizeof text);
  if (len < 0) return errno == ENOENT;  // a kernel without user namespaces
  return std::string_view(text, static_cast<size_t>(len)) == "user:[4026531837]";
}

bool has_ipc_lock(const char* root) noexcept {
  char text[8192];
  if (read_under(root, "/proc/self/status", text, sizeof text) == 0) return false;
  char hex[32];
  const auto capabilities = field(text, "CapEff");
  std::snprintf(hex, sizeof hex, "0x%.*s", static_cast<int>(capabilities.size()),
                capabilities.data());
  uint64_t bits = 0;
  if (!parse_count(hex, &bits) || ((bits >> kCapIpcLock) & 1) == 0) return false;
  return in_first_user_namespace(root);
}

void read_memlock(const char* root, MachineLimits* limits) noexcept {
  rlimit memlock{};
  if (getrlimit(RLIMIT_MEMLOCK, &memlock) == 0) {
    limits->memlock_bytes = from_rlim(memlock.rlim_cur);
    limits->memlock_hard_bytes = from_rlim(memlock.rlim_max);
  }
  limits->memlock_lifted = has_ipc_lock(root);
}

void read_cgroup(const char* root, MachineLimits* limits) noexcept {
  const CgroupMemory cgroup = read_cgroup_memory(root);
  static_assert(sizeof limits->cgroup_path == sizeof cgroup.path);
  limits->cgroup_version = cgroup.version;
  limits->cgroup_limit_bytes = cgroup.limit_bytes;
  limits->cgroup_used_bytes = cgroup.used_bytes;
  std::memcpy(limits->cgroup_path, cgroup.path, sizeof cgroup.path);
}

void read_memory(const char* root, MachineLimits* limits) noexcept {
  char text[4096];
  read_under(root, "/proc/meminfo", text, sizeof text);
  limits->memory_total_bytes = kilobytes(field(text, "MemTotal"));
  uint64_t available = kilobytes(field(text, "MemAvailable"));
  // Fallback without /proc, for this machine only: sysinfo(2).
  struct sysinfo info {};
  if (*root == '\0' && (limits->memory_total_bytes == 0 || available == 0) && sysinfo(&info) == 0) {
    if (limits->memory_total_bytes == 0)
      limits->memory_total_bytes = uint64_t{info.totalram} * info.mem_unit;
    if (available == 0) available = (uint64_t{info.freeram} + info.bufferram) * info.mem_unit;
  }
  if (available != 0) limits->memory_available_bytes = available;
  limits->huge_page_bytes = kilobytes(field(text, "Hugepagesize"));

  const long page = sysconf(_SC_PAGESIZE);
  if (page > 0) limits->page_bytes = static_cast<uint64_t>(page);
  uint64_t huge = 0;
  constexpr const char* kThp = "/sys/kernel/mm/transparent_hugepage/";
  char path[128];
  join_path(path, sizeof path, kThp, "hpage_pmd_size");
  if (read_under(root, path, text, sizeof text) > 0 && parse_count(text, &huge)) {
    limits->huge_page_bytes = huge;
  }
  join_path(path, sizeof path, kThp, "enabled");
  read_under(root, path, text, sizeof text);  // for example "always [madvise] never"
  const std::string_view modes(text);
  const size_t open = modes.find('[');
  const size_t close = modes.find(']', open == std::string_view::npos ? 0 : open);
  if (open == std::string_view::npos || close == std::string_view::npos) return;
  const auto mode = modes.substr(open + 1, close - open - 1);
  std::snprintf(limits->thp_mode, sizeof limits->thp_mode, "%.*s", static_cast<int>(mode.size()),
                mode.data());
}

uint32_t count_cpus() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more CPUs than cpu_set_t holds
  return online > 0 ? static_cast<uint32_t>(online) : 1;
}

bool offers_membarrier() noexcept {
  constexpr long kNeeded =
      MEMBARRIER_CMD_PRIVATE_EXPEDITED | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
  const long offered = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  return offered > 0 && (offered & kNeeded) == kNeeded;
}

struct Candidate {
  BudgetReason reason;
  uint64_t bytes;
  uint64_t limit;
};

void explain(const MachineLimits& limits, const Candidate& chosen,
             BudgetDecision* decision) noexcept {
  char size[32];
  format_size_rounded(chosen.limit, size, sizeof size);
  char* text = decision->text;
  const size_t room = sizeof decision->text;
  switch (chosen.reason) {
    case BudgetReason::kMemlock:
      std::snprintf(text, room, "%u/%u of the memlock limit of %s (ulimit -l)",
                    MemlockShare::kParts, MemlockShare::kWhole, size);
      break;
    case BudgetReason::kPhysicalMemory:
      std::snprintf(text, room, "half of the physical memory of %s", size);
      break;
    case BudgetReason::kCgroup:
      std::snprintf(text, room, "3/4 of the memory limit of %s of control group %.100s", size,
                    limits.cgroup_path);
      break;
    case BudgetReason::kRegistrar:
      std::snprintf(text, room, "the most that the registrar can charge, %s", size);
      break;
    case BudgetReason::kFloor:
      std::snprintf(text, room, "one page: the limits leave nothing to pin, or could not be read");
      break;
  }
}

}  // namespace

MachineLimits read_machine_limits(const char* root) noexcept {
  MachineLimits limits;
  read_memlock(root, &limits);
  read_cgroup(root, &limits);
  read_memory(root, &limits);
  limits.file_size_bytes = file_size_limit();
  limits.address_space_bytes = soft_limit(RLIMIT_AS);
  limits.cpu_count = count_cpus();
  limits.membarrier = offers_membarrier();
  utsname name{};
  if (uname(&name) == 0) {
    std::snprintf(limits.kernel_release, sizeof limits.kernel_release, "%.63s", name.release);
  }
  return limits;
}

uint64_t file_size_limit() noexcept { return soft_limit(RLIMIT_FSIZE); }

AddressSpace read_address_space() noexcept {
  AddressSpace space{.limit_bytes = soft_limit(RLIMIT_AS)};
  char text[256];
  if (space.limit_bytes != kUnlimited && read_small_file("/proc/self/statm", text, sizeof text) > 0)
    space.used_bytes =
        std::strtoull(text, nullptr, 10) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return space;
}

uint64_t address_space_left() noexcept {
  const AddressSpace space = read_address_space();
  if (space.limit_bytes == kUnlimited) return kUnlimited;
  const uint64_t used = space.used_bytes != 0 ? space.used_bytes : space.limit_bytes / 2;
  return space.limit_bytes - std::min(space.limit_bytes, used);
}

BudgetDecision default_budget(const MachineLimits& limits, uint64_t registrar_max_charge,
                              MemlockUse use) noexcept {
  const bool is_limited = use == MemlockUse::kCharged && !limits.memlock_lifted;
  const uint64_t memlock = is_limited ? limits.memlock_bytes : kUnlimited;
  const auto share = [](uint64_t limit, uint64_t part, uint64_t of) {
    return limit == kUnlimited ? kUnlimited : limit / of * part;
  };
  const uint64_t physical = limits.memory_total_bytes == 0 ? kUnlimited : limits.memory_total_bytes;
  const Candidate candidates[] = {
      {BudgetReason::kPhysicalMemory, share(physical, 1, 2), physical},
      {BudgetReason::kCgroup, share(limits.cgroup_limit_bytes, 3, 4), limits.cgroup_limit_bytes},
      {BudgetReason::kRegistrar, registrar_max_charge, registrar_max_charge},
      {BudgetReason::kMemlock, MemlockShare::of(memlock), memlock},
  };
  Candidate chosen =
      *std::min_element(std::begin(candidates), std::end(candidates),
                        [](const Candidate& a, const Candidate& b) { return a.bytes < b.bytes; });
  if (chosen.bytes == kUnlimited) chosen.bytes = 0;  // no limit is known: use the floor
  chosen.bytes -= chosen.bytes % limits.page_bytes;
  if (chosen.bytes == 0) chosen = {BudgetReason::kFloor, limits.page_bytes, 0};

  BudgetDecision decision;
  decision.bytes = chosen.bytes;
  decision.decided_by = chosen.reason;
  explain(limits, chosen, &decision);
  return decision;
}

BudgetDecision default_budget(uint64_t registrar_max_charge, MemlockUse use) noexcept {
  return default_budget(read_machine_limits(), registrar_max_charge, use);
}

const char* budget_reason_name(BudgetReason reason) noexcept {
  switch (reason) {
    case BudgetReason::kMemlock: return "memlock";
    case BudgetReason::kPhysicalMemory: return "physical memory";
    case BudgetReason::kCgroup: return "cgroup";
    case BudgetReason::kRegistrar: return "registrar";
    case BudgetReason::kFloor: return "floor";
  }
  return "unknown";
}

}  // namespace hydrant
