// hydrant-info's facts about watching: how memory of each kind would be cached here, with and without the
// hooks library, and remedies. They come from the library itself, in this process and in a child of the other
// kind (PROGRAM --probe-coverage).
#pragma once

#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>

#include "firehose/base/config/knobs.hpp"
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/registrars/registrar_factory.hpp"
#include "firehose/watch/hooks_abi.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <spawn.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace hydrant::info {

using Json = nlohmann::ordered_json;

inline constexpr const char* kProbeFlag = "--probe-coverage";
inline constexpr const char* kHooksName = "libfirehose_hooks.so";

// The registrar of a domain that names none; null if it is not usable here.
inline const char* default_registrar() {
  const std::string_view wanted = knob_choice(Knob::kRegistrar);
  const char* name = nullptr;
  for (const RegistrarProbe& probe : probe_registrars()) {
    if (probe.usable && (wanted == "auto" ? probe.default_choice : wanted == probe.name))
      name = probe.name;
  }
  return name;
}

// A domain as a program has it; where no registrar is usable, over one that does nothing.
class ProbeDomain {
 public:
  explicit ProbeDomain(uint32_t watch) {
    if (const char* name = default_registrar(); name != nullptr) {
      hydrant_domain_options_t options;
      hydrant_domain_options_init(&options);
      options.registrar_name = name;
      options.watch = watch;
      works_ = hydrant_domain_create(&options, &domain_) == GASNET_OK;
      return;
    }
    hydrant_registrar_t registrar{};
    registrar.size = sizeof registrar;
    registrar.name = "nothing";
    registrar.pin = [](void*, uintptr_t, size_t, uint32_t, void*) { return GASNET_OK; };
    registrar.unpin = [](void*, uintptr_t, size_t, const void*) { return HYDRANT_UNPIN_DONE; };
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.registrar = &registrar;
    options.watch = watch;
    works_ = hydrant_domain_create(&options, &domain_) == GASNET_OK;
  }
  ProbeDomain(const ProbeDomain&) = delete;
  ProbeDomain& operator=(const ProbeDomain&) = delete;
  ~ProbeDomain() {
    if (works_) hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN);
  }
  // Null if the library does not know.
  Json coverage(const void* addr, size_t len) const {
    uint32_t coverage = HYDRANT_COVERAGE_NONE;
    if (!works_ || addr == nullptr || addr == MAP_FAILED ||
        hydrant_coverage(domain_, addr, len, &coverage) != GASNET_OK) {
      return {};
    }
    if (coverage != HYDRANT_COVERAGE_NONE && is_registered_anew(addr))
      coverage = HYDRANT_COVERAGE_NONE;
    return hydrant_coverage_name(coverage);
  }

 private:
  // True if each pin registers, for lack of descriptors or address space, say.
  bool is_registered_anew(const void* addr) const {
    constexpr int kTries = 100;  // earlier releases of memory may have to be reported first
    for (int i = 0; i < kTries; ++i) {
      const uint64_t before = misses();
      const hydrant_pin_t pin = hydrant_pin(domain_, addr, 1, HYDRANT_LOCAL_WRITE);
      if (pin.region == nullptr) return false;  // not known
      hydrant_release(pin);
      if (misses() == before) return false;
      usleep(1000);
    }
    return true;
  }
  uint64_t misses() const {
    hydrant_stats_t stats{};
    stats.size = sizeof stats;
    (void)hydrant_get_stats(domain_, &stats);
    return stats.misses;
  }

  hydrant_domain_t domain_ = 0;
  bool works_ = false;
};

inline constexpr size_t kProbeBytes = 1 << 20;

inline Json coverage_of_mapping(const ProbeDomain& domain, int flags, int file) {
  void* p = mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE, flags, file, 0);
  Json coverage = domain.coverage(p, kProbeBytes);
  if (p != MAP_FAILED) munmap(p, kProbeBytes);
  return coverage;
}

inline Json coverage_of_malloc(const ProbeDomain& domain) {
  void* p = std::calloc(64, 1);
  Json coverage = domain.coverage(p, 64);
  std::free(p);
  return coverage;
}

// The coverage of memory from an allocator that announces it, like libhydrant_alloc.
inline Json coverage_of_arena(const ProbeDomain& domain) {
  const hydrant_monitor_t* monitor = hydrant_monitor(HYDRANT_MONITOR_VERSION);
  void* p = mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return {};
  const auto addr = reinterpret_cast<uintptr_t>(p);
  Json coverage;
  if (monitor->add_arena(addr, kProbeBytes) == 0) {
    coverage = domain.coverage(p, kProbeBytes);
    monitor->drop_arena(addr, kProbeBytes);
  }
  munmap(p, kProbeBytes);
  return coverage;
}

// How memory of each kind would be cached in this process by a program that leaves options.watch open.
inline Json coverage_here() {
  const ProbeDomain domain(HYDRANT_WATCH_DEFAULT);
  Json in_thread;
  try {
    std::thread([&] { in_thread = coverage_of_malloc(domain); }).join();
  } catch (const std::system_error&) {
    // Without the thread, for example because its stack does not fit, the result stays unknown.
  }
  Json all = {
      {"anonymous", coverage_of_mapping(domain, MAP_PRIVATE | MAP_ANONYMOUS, -1)},
      {"malloc", coverage_of_malloc(domain)},
      {"malloc_in_threads", in_thread},
      {"arena", coverage_of_arena(domain)},
  };
  // Last: with a low limit the watching needs the descriptor.
  const int file = memfd_create("hydrant-info", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, kProbeBytes) != 0) std::perror("ftruncate of a memfd");
  all["files"] = coverage_of_mapping(domain, MAP_SHARED, file);
  if (file >= 0) close(file);
  return all;
}

inline const hydrant_hooks_t* hooks_here() {
  return static_cast<const hydrant_hooks_t*>(dlsym(RTLD_DEFAULT, "hydrant_hooks_1"));
}

// Names of the families of functions in `mask`.
inline Json families(uint32_t mask) {
  constexpr const char* kNames[] = {"mmap", "malloc", "threads", "loader", "files"};
  Json names = Json::array();
  for (uint32_t i = 0; i < std::size(kNames); ++i) {
    if ((mask >> i & 1) != 0) names.push_back(kNames[i]);
  }
  return names;
}

// The document that a probing child prints.
inline Json probe() {
  const hydrant_hooks_t* hooks = hooks_here();
  return {{"coverage", coverage_here()},
          {"hooks", hooks != nullptr},
          {"families", families(hooks != nullptr ? hooks->families : 0)},
          {"missing", families(hooks != nullptr ? ~hooks->families : 0)}};
}

// The remedy for what keeps a process from being started.
inline std::string cannot_start(int error) {
  const char* remedy = error == EMFILE || error == ENFILE ? "raise ulimit -n"
                       : error == EAGAIN                  ? "raise ulimit -u"
                       : error == ENOMEM                  ? "raise ulimit -v"
                       : error == ENOENT                  ? "mount /proc"
                                                          : "";
  return std::string("no process could be started to try it (") + std::strerror(error) + ")" +
         (*remedy != '\0' ? std::string(": ") + remedy : "");
}

// The probe of a process with this LD_PRELOAD; null when it fails, with a reason if it could not be started.
inline Json probe_child(const std::string& preload, std::string* why) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    *why = cannot_start(errno);
    return {};
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  // Discards its messages: repeated warnings, or the loader's about a missing library.
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string variable = "LD_PRELOAD=" + preload;
  std::vector<char*> environment{variable.data()};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  std::string program = "hydrant-info";
  std::string flag = kProbeFlag;
  char* const arguments[] = {program.data(), flag.data(), nullptr};
  pid_t pid = -1;
  const int failed =
      posix_spawn(&pid, "/proc/self/exe", &files, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; failed == 0 && (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  if (failed == 0) waitpid(pid, nullptr, 0);
  if (failed != 0) *why = cannot_start(failed);
  Json answer = Json::parse(text, nullptr, false);
  return answer.is_object() ? answer : Json();
}

// The hooks library that belongs to this program: installed or built beside it, else found by the loader.
inline std::string find_hooks_library() {
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  std::string folder(self, n > 0 ? static_cast<size_t>(n) : 0);
  folder.resize(folder.find_last_of('/') == std::string::npos ? 0 : folder.find_last_of('/'));
  for (const char* place : {"/../firehose/watch/hooks", "/../lib", "/../lib64",
                            "/../lib/x86_64-linux-gnu", "/../lib/aarch64-linux-gnu"}) {
    char* whole = realpath((folder + place).c_str(), nullptr);
    if (whole == nullptr) continue;
    const std::string path = std::string(whole) + "/" + kHooksName;
    std::free(whole);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return kHooksName;
}

// The first number after `field` in a small file; -1 if missing.
inline int number_in(const char* path, const char* field) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return -1;
  char line[256];
  int number = -1;
  while (number < 0 && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, field, std::strlen(field)) == 0) {
      number = std::atoi(line + std::strlen(field));
    }
  }
  std::fclose(file);
  return number;
}

// The reason why userfaultfd is unavailable, as far as it can be determined; "" if it is available.
inline std::string why_no_userfaultfd(int seccomp) {
  const std::string reason = hydrant_monitor(HYDRANT_MONITOR_VERSION)->reason();
  const std::string said = reason.empty() ? "" : "Memory cannot be watched: " + reason + ".";
  const long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  if (fd >= 0) {
    close(static_cast<int>(fd));
    return said;
  }
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) return said;
  const std::string filter = seccomp == 2
                                 ? " A seccomp filter is in force here (a container's default "
                                   "profile?): allow the system call userfaultfd in it."
                                 : "";
  switch (errno) {
    case EPERM: return "The system call userfaultfd is not permitted." + filter;
    case ENOSYS:
      return "This kernel has no userfaultfd (CONFIG_USERFAULTFD), or a sandbox hides it." + filter;
    case EINVAL:
      return "This kernel's userfaultfd does not support user-mode-only faults, which need Linux "
             "5.11.";
    default: return std::string("userfaultfd: ") + std::strerror(errno) + ".";
  }
}

inline Json describe_userfaultfd(bool available) {
  const int seccomp = number_in("/proc/self/status", "Seccomp:");
  const int sysctl = number_in("/proc/sys/vm/unprivileged_userfaultfd", "");
  std::string reason = available ? "" : why_no_userfaultfd(seccomp);
  if (!available && reason.empty()) reason = "Cannot start the kernel's reports.";
  return {
      {"available", available},
      {"reason", available ? Json() : Json(reason)},
      // Informational only: the library needs user-mode faults only, which require no privilege.
      {"sysctl_unprivileged_userfaultfd", sysctl < 0 ? Json() : Json(sysctl)},
      {"seccomp_filter", seccomp == 2}};
}

// For memory that is not cached.
inline void advise_on_limits(Json* list) {
  constexpr rlim_t kFewDescriptors = 64;
  constexpr rlim_t kLittleSpace = rlim_t{256} << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kFewDescriptors) {
    list->push_back("At most " + std::to_string(limit.rlim_cur) +
                    " descriptors may be open, and nothing is cached without two for the watching: "
                    "raise it with ulimit -n.");
  }
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < kLittleSpace) {
    list->push_back("The address space is limited to " + std::to_string(limit.rlim_cur >> 10) +
                    " KiB, and nothing is cached without room for the cache's tables (a small "
                    "program needs 60 MB): "
                    "raise it with ulimit -v.");
  }
}

// Whether this process caches anonymous memory.
inline bool caches_anonymous(const Json& watching) {
  const bool is_hooked = watching.at("hooks").at("present").get<bool>();
  for (const Json& row : watching.at("coverage")) {
    if (row.at("memory") != "anonymous") continue;
    const Json& coverage = row.at(is_hooked ? "with_hooks" : "without_hooks");
    return !coverage.is_null() && coverage != "none";
  }
  return false;
}

// Remedies that allow more caching, most effective first.
inline Json advice(const Json& watching, const MachineLimits& limits) {
  Json list = Json::array();
  const Json& hooks = watching.at("hooks");
  const bool off = watching.at("watch") == "none";
  if (off) {
    list.push_back(
        "FIREHOSE_WATCH=none is in force: only memory from libhydrant_alloc and memory that the "
        "program "
        "vouches for is cached. Unset it, or set it to auto.");
  }
  if (!watching.at("userfaultfd").at("available").get<bool>()) {
    list.push_back(
        watching.at("userfaultfd").at("reason").get<std::string>() +
        " Until then only memory from libhydrant_alloc and memory that the program vouches for, or "
        "invalidates itself, is cached.");
  } else if (!off && !hooks.at("present").get<bool>()) {
    if (!hooks.at("untried").is_null()) {
      list.push_back(std::string(kHooksName) + ": " + hooks.at("untried").get<std::string>() + ".");
    } else if (hooks.at("library").is_null()) {
      list.push_back(std::string(kHooksName) +
                     " was not found: install it and preload or link it; " +
                     "without it each use of cached memory queries the kernel (0.3 us).");
    } else {
      list.push_back(
          "Start programs with LD_PRELOAD=" + hooks.at("library").get<std::string>() +
          ", or link them by pkg-config --libs firehose or Hydrant::firehose: each use of cached "
          "memory then saves a query to the kernel (0.3 us).");
    }
  } else if (!off && !hooks.at("missing").empty()) {
    list.push_back("Some functions do not resolve to the hooks (" + hooks.at("missing").dump() +
                   "): another library interposes them; preload " + kHooksName + " first.");
  }
  if (!off && !caches_anonymous(watching)) advise_on_limits(&list);
  if (!limits.memlock_lifted && limits.memlock_bytes != kUnlimited) {
    list.push_back("At most " + std::to_string(limits.memlock_bytes >> 10) +
                   " KiB can be locked: raise it with ulimit -l, above the hard limit with a line "
                   "'USER - memlock unlimited' in /etc/security/limits.conf and a new login.");
  }
  return list;
}

inline Json describe_watching(const MachineLimits& limits) {
  const Json here = probe();
  const bool present = here.at("hooks").get<bool>();
  const std::string library = find_hooks_library();
  std::string why;
  const Json other = probe_child(present ? "" : library, &why);
  const Json hooked = present ? here : other;
  const bool found = hooked.is_object() && hooked.at("hooks").get<bool>();
  const Json plain = present ? other : here;
  Json rows = Json::array();
  for (const auto& [memory, coverage] : here.at("coverage").items()) {
    rows.push_back({{"memory", memory},
                    {"without_hooks", plain.is_object() ? plain.at("coverage").at(memory) : Json()},
                    {"with_hooks", found ? hooked.at("coverage").at(memory) : Json()}});
  }
  Json watching = {{"watch", std::string(knob_choice(Knob::kWatch))}, {"coverage", rows}};
  const ProbeDomain watcher(HYDRANT_WATCH_AUTO);
  watching["userfaultfd"] =
      describe_userfaultfd(coverage_of_mapping(watcher, MAP_PRIVATE | MAP_ANONYMOUS, -1) != "none");
  watching["hooks"] = {{"present", present},
                       {"library", found ? Json(library) : Json()},
                       {"untried", why.empty() ? Json() : Json(why)},
                       {"families", found ? hooked.at("families") : Json::array()},
                       {"missing", found ? hooked.at("missing") : Json::array()}};
  watching["advice"] = advice(watching, limits);
  return watching;
}

}  // namespace hydrant::info
