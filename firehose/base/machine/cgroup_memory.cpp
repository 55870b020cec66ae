// Finds this process's memory control group and reads its limit and use, for machine_limits.cpp and
// oom_kills.cpp. File formats: proc_pid_cgroup(5), proc_pid_mountinfo(5), the kernel's cgroup documents.
#include "firehose/base/machine/cgroup_memory.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/machine/small_file.hpp"

#include <cstdio>
#include <string_view>

namespace hydrant {
namespace {

// Version 1 writes "no limit" as the largest multiple of a page below 2^63.
constexpr uint64_t kNoLimitV1 = uint64_t{1} << 62;

struct Hierarchy {
  uint32_t version = 0;
  char mount_point[kPathBytes] = "";
  char mount_root[kPathBytes] = "";
  char group[kPathBytes] = "";
};

void copy(char* out, size_t room, std::string_view text) noexcept {
  std::snprintf(out, room, "%.*s", static_cast<int>(text.size()), text.data());
}

// Removes the part before `separator` from `rest` and returns it.
std::string_view take(std::string_view* rest, char separator) noexcept {
  const size_t at = rest->find(separator);
  const auto part = rest->substr(0, at);
  rest->remove_prefix(at == std::string_view::npos ? rest->size() : at + 1);
  return part;
}

bool lists(std::string_view list, std::string_view wanted) noexcept {
  while (!list.empty()) {
    if (take(&list, ',') == wanted) return true;
  }
  return false;
}

// Parses lines "4:memory:/some/group" (version 1) or "0::/some/group" (version 2).
bool find_group(const char* root, Hierarchy* found) noexcept {
  char path[kPathBytes];
  if (!join_path(path, sizeof path, root, "/proc/self/cgroup")) return false;
  bool any = false;
  for_each_line(path, [&](std::string_view line) noexcept {
    take(&line, ':');
    const auto controllers = take(&line, ':');
    const bool ours = found->version == 1 ? lists(controllers, "memory") : controllers.empty();
    if (ours) copy(found->group, sizeof found->group, line);
    any = any || ours;
    return !ours;
  });
  return any;
}

// Parses lines "35 31 0:32 /root /mount/point options [fields] - cgroup source options"
bool find_mount(const char* root, Hierarchy* found) noexcept {
  char path[kPathBytes];
  if (!join_path(path, sizeof path, root, "/proc/self/mountinfo")) return false;
  bool any = false;
  for_each_line(path, [&](std::string_view line) noexcept {
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) return true;
    auto kind = line.substr(dash + 3);
    const auto type = take(&kind, ' ');
    take(&kind, ' ');
    if (found->version == 1 ? type != "cgroup" || !lists(kind, "memory") : type != "cgroup2") {
      return true;
    }
    for (int skip = 0; skip < 3; ++skip) take(&line, ' ');
    copy(found->mount_root, sizeof found->mount_root, take(&line, ' '));
    copy(found->mount_point, sizeof found->mount_point, take(&line, ' '));
    any = true;
    return false;
  });
  return any;
}

// The group's directory below the mount point: "" or "/a/b". A group outside the mount: "".
std::string_view group_below_mount(const Hierarchy& hierarchy) noexcept {
  std::string_view group = hierarchy.group;
  const std::string_view mounted = hierarchy.mount_root;
  if (mounted != "/") {
    const bool inside = group.starts_with(mounted) &&
                        (group.size() == mounted.size() || group[mounted.size()] == '/');
    if (!inside) return {};
    group.remove_prefix(mounted.size());
  }
  // "/../other" is a group outside this namespace.
  if (group == "/" || group.find("..") != std::string_view::npos) return {};
  return group;
}

uint64_t read_limit(const char* directory, const char* file) noexcept {
  char path[kPathBytes];
  char text[64];
  uint64_t value = 0;
  if (!join_path(path, sizeof path, directory, "/", file)) return UINT64_MAX;
  if (read_small_file(path, text, sizeof text) == 0) return UINT64_MAX;
  if (!parse_count(text, &value)) return UINT64_MAX;  // the file says "max"
  return value >= kNoLimitV1 ? UINT64_MAX : value;
}

struct GroupFiles {
  const char* limit;
  const char* soft_limit;  // reaching it throttles the group
  const char* used;
};
constexpr GroupFiles kFilesV1 = {"memory.limit_in_bytes", nullptr, "memory.usage_in_bytes"};
constexpr GroupFiles kFilesV2 = {"memory.max", "memory.high", "memory.current"};

void note_group(const char* directory, uint32_t version, CgroupMemory* best) noexcept {
  const GroupFiles& files = version == 1 ? kFilesV1 : kFilesV2;
  uint64_t limit = read_limit(directory, files.limit);
  if (files.soft_limit != nullptr) {
    const uint64_t soft = read_limit(directory, files.soft_limit);
    limit = soft < limit ? soft : limit;
  }
  const uint64_t used = read_limit(directory, files.used);
  if (used == UINT64_MAX) return;  // this hierarchy does not control memory
  if (best->version != 0 && limit >= best->limit_bytes) return;
  best->version = version;
  best->limit_bytes = limit;
  best->used_bytes = used;
  copy(best->path, sizeof best->path, directory);
}

void walk_up(const char* root, uint32_t version, CgroupMemory* best) noexcept {
  Hierarchy hierarchy;
  hierarchy.version = version;
  if (!find_group(root, &hierarchy) || !find_mount(root, &hierarchy)) return;
  auto group = group_below_mount(hierarchy);
  for (;;) {
    char below[kPathBytes];
    char directory[kPathBytes];
    copy(below, sizeof below, group);
    if (!join_path(directory, sizeof directory, root, hierarchy.mount_point, below)) return;
    note_group(directory, version, best);
    if (group.empty()) return;
    const size_t slash = group.rfind('/');
    group = group.substr(0, slash == std::string_view::npos ? 0 : slash);
  }
}

}  // namespace

bool find_own_cgroup(const char* root, uint32_t version, char* directory, size_t room) noexcept {
  Hierarchy hierarchy;
  hierarchy.version = version;
  if (!find_group(root, &hierarchy) || !find_mount(root, &hierarchy)) return false;
  char below[kPathBytes];
  copy(below, sizeof below, group_below_mount(hierarchy));
  return join_path(directory, room, root, hierarchy.mount_point, below);
}

CgroupMemory read_cgroup_memory(const char* root) noexcept {
  CgroupMemory best;
  walk_up(root, 1, &best);
  walk_up(root, 2, &best);
  return best;
}

}  // namespace hydrant
