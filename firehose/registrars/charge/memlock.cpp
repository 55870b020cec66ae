// Reads RLIMIT_MEMLOCK, CAP_IPC_LOCK and /proc counters for the registrars' limits and error texts.
#include "firehose/registrars/charge/memlock.hpp"

#include "firehose/base/machine/small_file.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {
namespace {

// The inode of the initial user namespace, a constant of the kernel (include/linux/proc_ns.h).
constexpr ino_t kInitialUserNamespace = 0xEFFFFFFD;

bool has_effective_ipc_lock() noexcept {
  __user_cap_header_struct header{};
  header.version = _LINUX_CAPABILITY_VERSION_3;
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3]{};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
}

bool in_initial_user_namespace() noexcept {
  struct stat info {};
  return stat("/proc/self/ns/user", &info) == 0 && info.st_ino == kInitialUserNamespace;
}

}  // namespace

MemlockLimit read_memlock_limit() noexcept {
  MemlockLimit limit;
  rlimit value{};
  if (getrlimit(RLIMIT_MEMLOCK, &value) == 0) {
    limit.bytes = value.rlim_cur == RLIM_INFINITY ? UINT64_MAX : value.rlim_cur;
  }
  limit.privileged = has_effective_ipc_lock() && in_initial_user_namespace();
  return limit;
}

const char* describe_memlock(const MemlockLimit& limit, char* text, size_t text_bytes) noexcept {
  if (limit.usable_bytes() == UINT64_MAX) {
    std::snprintf(text, text_bytes, "RLIMIT_MEMLOCK does not limit this process");
    return text;
  }
  char kib[32] = "";
  if (limit.bytes != 0)
    std::snprintf(kib, sizeof kib, " (%llu KiB)",
                  static_cast<unsigned long long>(limit.bytes / 1024));
  std::snprintf(text, text_bytes,
                "RLIMIT_MEMLOCK is %llu bytes%s: raise it with 'ulimit -l', LimitMEMLOCK= in "
                "the systemd unit or a memlock line in /etc/security/limits.conf, or grant "
                "CAP_IPC_LOCK",
                static_cast<unsigned long long>(limit.bytes), kib);
  return text;
}

uint64_t read_process_bytes(const char* field) noexcept {
  char text[4096];
  (void)read_small_file("/proc/self/status", text, sizeof text);
  const size_t field_len = std::strlen(field);
  for (const char* line = text; line != nullptr && *line != '\0';) {
    if (std::strncmp(line, field, field_len) == 0 && line[field_len] == ':') {
      return std::strtoull(line + field_len + 1, nullptr, 10) * 1024;
    }
    line = std::strchr(line, '\n');
    if (line != nullptr) ++line;
  }
  return 0;
}

}  // namespace hydrant
