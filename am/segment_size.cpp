#include "am/segment_size.hpp"

#include "firehose/base/machine_limits.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <gasnet_config.h>

namespace hydrant {
namespace {

// Of what is available, what the ranks of a host may make segments of.
constexpr double kShare = 0.85;
// Where the job's address space could not hold more.
constexpr uint64_t kMost = uint64_t{1} << 44;

uint64_t max_segment = 0;

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

uint64_t available_memory() noexcept {
  const MachineLimits limits = read_machine_limits();
  uint64_t available = limits.memory_available_bytes;
  if (limits.cgroup_limit_bytes != kUnlimited) {
    const uint64_t used = std::min(limits.cgroup_used_bytes, limits.cgroup_limit_bytes);
    available = std::min(available, limits.cgroup_limit_bytes - used);
  }
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
  const uint64_t available = available_memory();
  const char* text = std::getenv("GASNET_MAX_SEGSIZE");
  if (text != nullptr && *text != '\0') {
    return parse_segment_size(text, available, ranks_here, &max_segment);
  }
  max_segment = std::max<uint64_t>(
      whole_pages(kShare * static_cast<double>(available) / ranks_here), GASNET_PAGESIZE);
  return Status::kOk;
}

uintptr_t max_local_segment() noexcept { return max_segment; }

}  // namespace hydrant
