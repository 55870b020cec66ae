// Properties of the machine and the process: processors, memory, names, limits, standard streams.
// Called by clients through gasnet_tools.h.
#include "am/tools/settings.hpp"
#include "firehose/base/uncancelled.hpp"

#include <climits>
#include <cstdio>
#include <fcntl.h>
#include <gasnet_tools.h>
#include <initializer_list>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#if HYDRANT_DEBUG
#define HYDRANT_TOOLS_SLOW "        internal checks (HYDRANT_DEBUG)\n"
#else
#define HYDRANT_TOOLS_SLOW ""
#endif

namespace hydrant {
namespace {

struct LimitName {
  int resource;
  const char* name;
};
constexpr LimitName kLimits[] = {{RLIMIT_CPU, "RLIMIT_CPU"},
                                 {RLIMIT_DATA, "RLIMIT_DATA"},
                                 {RLIMIT_STACK, "RLIMIT_STACK"},
                                 {RLIMIT_RSS, "RLIMIT_RSS"},
                                 {RLIMIT_AS, "RLIMIT_AS"}};

// Filled by pthread_once(), constant afterwards.
char g_host_name[HOST_NAME_MAX + 1];
char g_exe_name[PATH_MAX];

void find_host_name() {
  if (::gethostname(g_host_name, sizeof g_host_name) != 0) {
    std::snprintf(g_host_name, sizeof g_host_name, "unknown");
  }
  g_host_name[sizeof g_host_name - 1] = '\0';
}

void find_exe_name() {
  const ssize_t len = ::readlink("/proc/self/exe", g_exe_name, sizeof g_exe_name - 1);
  g_exe_name[len > 0 ? len : 0] = '\0';
}

bool raise_limit(int resource) noexcept {
  rlimit limit{};
  const auto which = static_cast<__rlimit_resource_t>(resource);
  if (::getrlimit(which, &limit) != 0) return false;
  if (limit.rlim_cur == limit.rlim_max) return true;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(which, &limit) == 0;
}

}  // namespace
}  // namespace hydrant

const int GASNETT_LINKCONFIG_IDIOTCHECK(ABI_1) = 1;

int hydrant_tools_cpu_count(void) {
  const long count = ::sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? static_cast<int>(count) : 0;
}

uint64_t hydrant_tools_getPhysMemSz(int failure_is_fatal) {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) {
    return static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
  }
  if (failure_is_fatal) gasnett_fatalerror("cannot determine the size of physical memory");
  return 0;
}

const char* hydrant_tools_gethostname(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, &hydrant::find_host_name);
  return hydrant::g_host_name;
}

const char* hydrant_tools_exe_name(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, &hydrant::find_exe_name);
  return hydrant::g_exe_name;
}

int hydrant_tools_set_affinity(int rank) {
  const int count = hydrant_tools_cpu_count();
  if (count == 0) return 1;
  const int cpu = (rank % count + count) % count;
  if (cpu >= CPU_SETSIZE) return 1;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0 ? 0 : 1;
}

int hydrant_tools_maximize_rlimit(int res, const char* lim_desc) {
  char variable[128];
  std::snprintf(variable, sizeof variable, "GASNET_MAXIMIZE_%s", lim_desc);
  if (!hydrant::read_switch(variable, true)) return 1;
  return hydrant::raise_limit(res) ? 1 : 0;
}

int hydrant_tools_maximize_rlimits(void) {
  int all = 1;
  for (const auto& limit : hydrant::kLimits) {
    all &= hydrant_tools_maximize_rlimit(limit.resource, limit.name);
  }
  return all;
}

void* hydrant_tools_mmap(uintptr_t size) {
  return ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
}

void hydrant_tools_flush_streams(void) {
  (void)hydrant::uncancelled::fflush(stdout);
  (void)hydrant::uncancelled::fflush(stderr);
  (void)hydrant::uncancelled::fsync(STDOUT_FILENO);
  (void)hydrant::uncancelled::fsync(STDERR_FILENO);
}

void hydrant_tools_close_streams(void) {
  (void)hydrant::uncancelled::fflush(stdout);
  (void)hydrant::uncancelled::fflush(stderr);
  const int nowhere = hydrant::uncancelled::open("/dev/null", O_RDWR | O_CLOEXEC);
  // Replaced, not closed: otherwise the next opened file would become standard output.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (nowhere >= 0)
      (void)::dup2(nowhere, fd);
    else
      (void)hydrant::uncancelled::close(fd);
  }
  if (nowhere > STDERR_FILENO) (void)hydrant::uncancelled::close(nowhere);
}

const char* hydrant_tools_performance_warning_str(void) { return HYDRANT_TOOLS_SLOW; }

const char* hydrant_tools_release_version_str(void) {
  return _STRINGIFY(GASNET_RELEASE_VERSION_MAJOR) "." _STRINGIFY(
      GASNET_RELEASE_VERSION_MINOR) "." _STRINGIFY(GASNET_RELEASE_VERSION_PATCH);
}

uint64_t hydrant_tools_release_version(void) {
  return GASNET_RELEASE_VERSION_MAJOR * UINT64_C(1000000) +
         GASNET_RELEASE_VERSION_MINOR * UINT64_C(10000) + GASNET_RELEASE_VERSION_PATCH;
}
