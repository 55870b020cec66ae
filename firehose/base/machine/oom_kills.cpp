// Reads the kernel's out-of-memory counters and describes new kills, for launchers and surviving ranks.
// Sources: the kernel's cgroup-v1/memory and cgroup-v2 documents; oom_kill of /proc/vmstat.
#include "firehose/base/machine/oom_kills.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/machine/cgroup_memory.hpp"
#include "firehose/base/machine/small_file.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hydrant {
namespace {

constexpr size_t kFileBytes = 16384;

// The number after `name` at the start of a line; false if no line has it.
bool number_of(const char* text, const char* name, uint64_t* value) noexcept {
  const size_t length = std::strlen(name);
  for (const char* line = text; line != nullptr; line = std::strchr(line, '\n')) {
    if (*line == '\n') ++line;
    if (std::strncmp(line, name, length) != 0 || line[length] != ' ') continue;
    *value = std::strtoull(line + length, nullptr, 10);
    return true;
  }
  return false;
}

bool read_count(const char* directory, const char* file, uint64_t* value) noexcept {
  char path[1200];
  char text[kFileBytes];
  return join_path(path, sizeof path, directory, file) &&
         read_small_file(path, text, sizeof text) != 0 && number_of(text, "oom_kill", value);
}

uint64_t read_size(const char* directory, const char* file) noexcept {
  char path[1200];
  char text[64];
  uint64_t value = 0;
  if (!join_path(path, sizeof path, directory, file) ||
      read_small_file(path, text, sizeof text) == 0 || !parse_count(text, &value))
    return 0;
  return value;
}

struct OwnGroup {
  uint32_t version = 0;
  char directory[1024] = "";
};

// Finds this process's group if it counts kills: version 2 first, which includes child groups.
OwnGroup find_group(const char* root, uint64_t* kills) noexcept {
  for (const uint32_t version : {2U, 1U}) {
    OwnGroup group;
    if (find_own_cgroup(root, version, group.directory, sizeof group.directory) &&
        read_count(group.directory, version == 2 ? "/memory.events" : "/memory.oom_control",
                   kills)) {
      group.version = version;
      return group;
    }
  }
  return {};
}

const char* size_or_no_limit(uint64_t bytes, char* text, size_t room) noexcept {
  if (bytes == 0 || bytes >= uint64_t{1} << 62) return "no limit";
  return format_size_rounded(bytes, text, room);
}

}  // namespace

OomCounts read_oom_counts(const char* root) noexcept {
  OomCounts counts;
  (void)find_group(root, &counts.group);
  (void)read_count(root, "/proc/vmstat", &counts.machine);
  return counts;
}

const char* describe_oom_kills(const OomCounts& before, char* text, size_t room,
                               const char* root) noexcept {
  text[0] = '\0';
  OomCounts now;
  const OwnGroup group = find_group(root, &now.group);
  (void)read_count(root, "/proc/vmstat", &now.machine);
  char used[32];
  char most[32];
  char limit[32];
  if (group.version != 0 && now.group > before.group) {
    const bool is_second = group.version == 2;
    const CgroupMemory tightest = read_cgroup_memory(root);
    const uint64_t in_use =
        read_size(group.directory, is_second ? "/memory.current" : "/memory.usage_in_bytes");
    const uint64_t peak =
        read_size(group.directory, is_second ? "/memory.peak" : "/memory.max_usage_in_bytes");
    (void)std::snprintf(
        text, room,
        "; out of memory: the kernel has killed %llu process%s of the control group %s since the "
        "job began; in use now: %s, peak: %s, limit: %s",
        static_cast<unsigned long long>(now.group - before.group),
        now.group - before.group == 1 ? "" : "es", group.directory,
        format_size_rounded(in_use, used, sizeof used),
        format_size_rounded(peak > in_use ? peak : in_use, most, sizeof most),
        size_or_no_limit(tightest.limit_bytes, limit, sizeof limit));
  } else if (group.version == 0 && now.machine > before.machine) {
    (void)std::snprintf(text, room,
                        "; probably out of memory: the kernel has killed %llu process%s of this "
                        "machine for lack of memory since the job began",
                        static_cast<unsigned long long>(now.machine - before.machine),
                        now.machine - before.machine == 1 ? "" : "es");
  }
  return text;
}

}  // namespace hydrant
