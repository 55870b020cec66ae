// Limits of segment sizes: parses GASNET_MAX_SEGSIZE and reads the available memory from /proc and
// control groups. Called at job start (job.cpp), by segments.cpp and by error texts.
#include "am/segment/segment_size.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/machine/cgroup_memory.hpp"
#include "firehose/base/machine/machine_limits.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gasnet_config.h>
#include <sys/sysinfo.h>

namespace hydrant {
namespace {

// The share of the available memory that the segments of a host may use together.
constexpr double kShare = 0.85;
// Upper bound that fits the address space of a job.
constexpr uint64_t kMost = uint64_t{1} << 44;

uint64_t max_segment = 0;
bool is_default = true;
uint32_t ranks_of_host = 1;
AvailableMemory available_at_start;

void limit_by(AvailableMemory* available, uint64_t bytes, const char* limit,
              const char* name) noexcept {
  if (bytes >= available->bytes) return;
  available->bytes = bytes;
  std::snprintf(available->limited_by, sizeof available->limited_by, "%s%s", limit, name);
}

// The value of `name` in /proc/meminfo, converted from KiB to bytes; 0 if absent.
uint64_t meminfo(const char* text, const char* name) noexcept {
  const char* at = std::strstr(text, name);
  return at != nullptr ? std::strtoull(at + std::strlen(name), nullptr, 10) * 1024 : 0;
}

// The kernel's remaining commit limit, if overcommit is disabled; else no limit.
uint64_t commit_room(const char* root) noexcept {
  char path[300];
  char text[4096];
  if (!join_path(path, sizeof path, root, "/proc/sys/vm/overcommit_memory") ||
      read_small_file(path, text, sizeof text) == 0 || text[0] != '2')
    return kUnlimited;
  if (!join_path(path, sizeof path, root, "/proc/meminfo") ||
      read_small_file(path, text, sizeof text) == 0)
    return kUnlimited;
  const uint64_t limit = meminfo(text, "CommitLimit:");
  const uint64_t promised = meminfo(text, "Committed_AS:");
  return limit > promised ? limit - promised : 0;
}

bool scale_of(char unit, uint64_t* scale) noexcept {
  switch (std::toupper(static_cast<unsigned char>(unit))) {
    case 'B': *scale = 1; return true;
    case 'K': *scale = uint64_t{1} << 10; return true;
    case 'M': *scale = uint64_t{1} << 20; return true;
    case 'G': *scale = uint64_t{1} << 30; return true;
    case 'T': *scale = uint64_t{1} << 40; return true;
    default: return false;
  }
}

Status unreadable(std::string_view text) noexcept {
  return fail(Status::kBadArg,
              "GASNET_MAX_SEGSIZE is '%.*s'; a size (512MB), a size per process or host (512MB/P, "
              "4GB/H), or a "
              "fraction of memory (0.85/H) is accepted",
              static_cast<int>(text.size()), text.data());
}

uint64_t whole_pages(double bytes) noexcept {
  const double bounded = std::clamp(bytes, 0.0, static_cast<double>(kMost));
  return static_cast<uint64_t>(bounded) / GASNET_PAGESIZE * GASNET_PAGESIZE;
}

}  // namespace

AvailableMemory find_available_memory(const char* root) noexcept {
  const MachineLimits limits = read_machine_limits(root);
  AvailableMemory available;
  available.bytes = limits.memory_available_bytes;
  struct sysinfo machine {};
  // Without /proc/meminfo: free memory, a lower bound.
  if (available.bytes == 0 && sysinfo(&machine) == 0)
    available.bytes = uint64_t{machine.freeram} * machine.mem_unit;
  std::snprintf(available.limited_by, sizeof available.limited_by, "the machine's memory");
  if (limits.cgroup_limit_bytes != kUnlimited) {
    const uint64_t used = std::min(limits.cgroup_used_bytes, limits.cgroup_limit_bytes);
    limit_by(&available, limits.cgroup_limit_bytes - used, "the control group ",
             limits.cgroup_path);
  }
  limit_by(&available, commit_room(root), "the commit limit (vm.overcommit_memory is 2)", "");
  return available;
}

Status parse_segment_size(std::string_view text, uint64_t available, uint32_t ranks_here,
                          uint64_t* bytes) noexcept {
  std::string_view rest = text;
  char per = 0;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    if (rest.size() != slash + 2) return unreadable(text);
    per = static_cast<char>(std::toupper(static_cast<unsigned char>(rest[slash + 1])));
    if (per != 'P' && per != 'H') return unreadable(text);
    rest = rest.substr(0, slash);
  }
  double number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number <= 0) return unreadable(text);
  std::string_view unit(end, static_cast<size_t>(rest.data() + rest.size() - end));
  const bool fraction = unit.empty() && number <= 1.0;
  uint64_t scale = uint64_t{1} << 20;  // a plain number is MiB, as in GASNet
  if (!unit.empty()) {
    if (!scale_of(unit.front(), &scale)) return unreadable(text);
    unit.remove_prefix(1);
    if (!unit.empty() &&
        (unit.size() != 1 || std::toupper(static_cast<unsigned char>(unit.front())) != 'B'))
      return unreadable(text);
  }
  double wanted =
      fraction ? number * static_cast<double>(available) : number * static_cast<double>(scale);
  if (per == 'H' || (per == 0 && fraction)) wanted /= ranks_here;
  if (wanted < GASNET_PAGESIZE) {
    return fail(Status::kBadArg,
                "GASNET_MAX_SEGSIZE is '%.*s', for %u ranks here: less than a page (%d)",
                static_cast<int>(text.size()), text.data(), ranks_here, GASNET_PAGESIZE);
  }
  *bytes = whole_pages(wanted);
  return Status::kOk;
}

Status choose_max_segment(uint32_t ranks_here) noexcept {
  ranks_of_host = ranks_here;
  available_at_start = find_available_memory();
  const uint64_t available = available_at_start.bytes;
  const char* text = std::getenv("GASNET_MAX_SEGSIZE");
  is_default = text == nullptr || *text == '\0';
  if (!is_default) {
    return parse_segment_size(text, available, ranks_here, &max_segment);
  }
  max_segment = std::max<uint64_t>(
      whole_pages(kShare * static_cast<double>(available) / ranks_here), GASNET_PAGESIZE);
  return Status::kOk;
}

uintptr_t max_local_segment() noexcept { return max_segment; }
bool max_segment_is_default() noexcept { return is_default; }

const char* explain_max_segment(char* text, size_t room) noexcept {
  if (!is_default) {
    std::snprintf(text, room, "the limit is set by GASNET_MAX_SEGSIZE, which may be raised");
    return text;
  }
  char available[32];
  std::snprintf(text, room,
                "%d %% of the %s that were available at start (limited by %s), for %u rank%s of "
                "this host; GASNET_MAX_SEGSIZE=SIZE allows more, and so does a higher limit",
                static_cast<int>(100 * kShare),
                format_size_rounded(available_at_start.bytes, available, sizeof available),
                available_at_start.limited_by, ranks_of_host, ranks_of_host == 1 ? "" : "s");
  return text;
}

}  // namespace hydrant
