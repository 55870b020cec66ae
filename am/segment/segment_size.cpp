// Limits of segment sizes: parses GASNET_MAX_SEGSIZE, reads the available memory from /proc and control
// groups, and counts the limits of this process. Called at job start (am/start_job.cpp), by segments.cpp and
// by error texts.
#include "am/segment/segment_size.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/machine/cgroup_memory.hpp"
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/base/machine/small_file.hpp"
#include "rdma/transport/guarded_memory.hpp"

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
constexpr uint64_t kMax = uint64_t{1} << 44;

enum class Source { kMemory, kVariable, kFileSize, kAddressSpace };

uint64_t max_segment = 0;      // without the limits of this process
uint64_t max_with_limits = 0;  // with them
// The limit named by `source` at the start: the size of a file, or what is left of the address space.
uint64_t limit_at_start = 0;
bool is_default = true;
Source source = Source::kMemory;
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
  const double bounded = std::clamp(bytes, 0.0, static_cast<double>(kMax));
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

uint64_t max_in_file(uint64_t limit, uint32_t ranks_here) noexcept {
  // The last slice ends anywhere.
  const uint64_t unit = ranks_here == 1 ? GASNET_PAGESIZE : kHugePage;
  return limit / ranks_here / unit * unit;
}

uint64_t max_in_address_space(uint64_t left, uint32_t ranks_here) noexcept {
  const auto share = static_cast<uint64_t>((1 - kShare) * static_cast<double>(left));
  // At least the room that guards leave, unless that is most of it.
  const uint64_t kept = std::max(share, std::min(kMinSpaceLeft, left / 2));
  const uint64_t usable = left - std::min(left, kept + kHugePage);  // to align the last one
  // Guards have room beside segments of their size and more.
  constexpr uint64_t kGuards = 2 * kMinGuardBytes;
  const uint64_t each = usable / ranks_here;
  const uint64_t most = each > 2 * kGuards ? each - kGuards : std::min(each, kGuards);
  return most / GASNET_PAGESIZE * GASNET_PAGESIZE;
}

Status choose_max_segment(uint32_t ranks_here) noexcept {
  ranks_of_host = ranks_here;
  available_at_start = find_available_memory();
  const uint64_t available = available_at_start.bytes;
  const char* text = std::getenv("GASNET_MAX_SEGSIZE");
  is_default = text == nullptr || *text == '\0';
  if (!is_default) {
    if (const Status status = parse_segment_size(text, available, ranks_here, &max_segment);
        status != Status::kOk)
      return status;
  } else {
    max_segment = std::max<uint64_t>(
        whole_pages(kShare * static_cast<double>(available) / ranks_here), GASNET_PAGESIZE);
  }
  // publish_max_segment() repeats it at the end of init and reports the error.
  static_cast<void>(count_process_limits());
  return Status::kOk;
}

Status count_process_limits() noexcept {
  max_with_limits = max_segment;
  source = is_default ? Source::kMemory : Source::kVariable;
  const auto bound = [](uint64_t most, Source by, uint64_t limit) {
    if (most >= max_with_limits) return;
    max_with_limits = std::max<uint64_t>(most, GASNET_PAGESIZE);
    source = by;
    limit_at_start = limit;
  };
  const uint64_t file = file_size_limit();
  if (file != kUnlimited) bound(max_in_file(file, ranks_of_host), Source::kFileSize, file);
  const uint64_t left = address_space_left();
  if (left == kUnlimited) return Status::kOk;
  const uint64_t most = max_in_address_space(left, ranks_of_host);
  bound(most, Source::kAddressSpace, left);
  if (most >= GASNET_PAGESIZE) return Status::kOk;
  return fail(Status::kResource,
              "the limit on address space leaves %llu bytes for segments of %u ranks and for the "
              "program, less than a page (%d) each: raise the limit (ulimit -v)",
              static_cast<unsigned long long>(left), ranks_of_host, GASNET_PAGESIZE);
}

const char* remedy_of_no_room(uint64_t bytes, const char* if_larger) noexcept {
  if (bytes > GASNET_PAGESIZE) return if_larger;
  return "the limit on address space is too small for any segment: raise it (ulimit -v)";
}

uintptr_t max_local_segment() noexcept { return max_with_limits; }
uintptr_t max_attempted_segment() noexcept { return max_segment; }
bool max_segment_is_asked_for() noexcept { return source == Source::kVariable; }

const char* explain_max_segment(char* text, size_t room) noexcept {
  char available[32];
  const char* const plural = ranks_of_host == 1 ? "" : "s";
  switch (source) {
    case Source::kMemory: break;
    case Source::kVariable:
      std::snprintf(text, room, "the limit is set by GASNET_MAX_SEGSIZE, which may be raised");
      return text;
    case Source::kFileSize:
      std::snprintf(text, room,
                    "the limit on file sizes is %s (ulimit -f), for one memory file with the "
                    "segments of %u rank%s of this host; only a higher limit allows more",
                    format_size_rounded(limit_at_start, available, sizeof available), ranks_of_host,
                    plural);
      return text;
    case Source::kAddressSpace:
      std::snprintf(text, room,
                    "the limit on address space (ulimit -v) leaves %s, for the segments of %u "
                    "rank%s of this host with their guards, and the program; only a higher limit "
                    "allows more",
                    format_size_rounded(limit_at_start, available, sizeof available), ranks_of_host,
                    plural);
      return text;
  }
  std::snprintf(text, room,
                "%d %% of the %s that were available at start (limited by %s), for %u rank%s of "
                "this host; GASNET_MAX_SEGSIZE=SIZE allows more, and so does a higher limit",
                static_cast<int>(100 * kShare),
                format_size_rounded(available_at_start.bytes, available, sizeof available),
                available_at_start.limited_by, ranks_of_host, plural);
  return text;
}

}  // namespace hydrant
