// Prints backtraces by one of three mechanisms: glibc's unwinder (names and lines from symbolizer.cpp, else
// from the dynamic linker), gdb(1), or the client's own function. Fatal errors (fatal.cpp, debugger.cpp) and
// clients call it.
#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/env.h>

#include "am/tools/console.hpp"
#include "am/tools/debugger.hpp"
#include "am/tools/job_hooks.hpp"
#include "am/tools/rank_list.hpp"
#include "am/tools/settings.hpp"
#include "am/tools/symbolizer.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/quiet_write.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <initializer_list>
#include <strings.h>
#include <sys/prctl.h>
#include <unistd.h>

// Null unless the client defines the variable.
extern "C" __attribute__((weak)) gasnett_backtrace_type_t hydrant_tools_backtrace_user;

namespace hydrant {
namespace {

constexpr int kMaxFrames = 100;
constexpr int kOwnFrames = 1;
constexpr size_t kLineBytes = 1024;

// Formats "#3  0x7f12 in name at file.c:12 (object+0x1c)". Looks up the address before the return
// address, which always lies in the calling function. `known` may be null.
void write_frame(int fd, int number, void* frame, const CodeLocation* known) noexcept {
  char line[kLineBytes];
  constexpr size_t kRoom = sizeof line - 1;
  const auto address = reinterpret_cast<uintptr_t>(frame);
  size_t used = 0;
  if (const int rank = tools_rank(); rank >= 0) used = append(line, kRoom, used, "[%d] ", rank);
  used = append(line, kRoom, used, "#%-3d 0x%016zx", number, static_cast<size_t>(address));
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(address - 1), &info) != 0) {
    if (known != nullptr && known->name[0] != '\0') {
      used = append(line, kRoom, used, " in %s", known->name);
    } else if (info.dli_sname != nullptr) {
      used = append(line, kRoom, used, " in %s+0x%zx", info.dli_sname,
                    static_cast<size_t>(address - reinterpret_cast<uintptr_t>(info.dli_saddr)));
    }
    if (known != nullptr && known->place[0] != '\0')
      used = append(line, kRoom, used, " at %s", known->place);
    if (info.dli_fname != nullptr) {
      used = append(line, kRoom, used, " (%s+0x%zx)", info.dli_fname,
                    static_cast<size_t>(address - reinterpret_cast<uintptr_t>(info.dli_fbase)));
    }
  }
  line[used++] = '\n';
  (void)write_quietly(fd, line, used);
}

[[gnu::noinline]] int write_execinfo(int fd) noexcept {
  std::array<void*, kMaxFrames> frames;
  const int count = ::backtrace(frames.data(), kMaxFrames);
  static_assert(kMaxFrames <= kMaxLocations);
  const CodeLocation* const known = find_code_locations(frames.data(), count);
  for (int i = kOwnFrames; i < count; ++i) {
    write_frame(fd, i - kOwnFrames, frames[static_cast<size_t>(i)],
                known != nullptr ? known + i : nullptr);
  }
  return count > kOwnFrames ? 0 : 1;
}

// Writes the backtrace of all threads, by a gdb that attaches to this process.
int write_gdb(int fd) noexcept {
  constexpr uint64_t kLimitNs = 60'000'000'000;
  constexpr const char* kPrograms[] = {"gdb", nullptr};
  char pid[16];
  std::snprintf(pid, sizeof pid, "%d", static_cast<int>(::getpid()));
  const char* const arguments[] = {"-nx",  "-batch", "-iex", "set debuginfod enabled off",
                                   "-p",   pid,      "-ex",  "thread apply all backtrace",
                                   nullptr};
  // Allows the attach if the kernel restricts ptrace to ancestors.
  (void)::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  const CancellationDisabled guard;
  const pid_t child = run_helper(kPrograms, arguments, fd);
  const bool is_done = child > 0 && await_helper(child, kLimitNs);
  (void)::prctl(PR_SET_PTRACER, 0, 0, 0, 0);
  return is_done ? 0 : 1;
}

constexpr gasnett_backtrace_type_t kGdb = {"GDB", &write_gdb, 1};
constexpr gasnett_backtrace_type_t kExecinfo = {"EXECINFO", &write_execinfo, 1};

const gasnett_backtrace_type_t* user_mechanism() noexcept {
  const gasnett_backtrace_type_t* const user = &hydrant_tools_backtrace_user;
  return user != nullptr && user->name != nullptr && user->fnp != nullptr ? user : nullptr;
}

// Must not allocate: it also runs in damaged processes.
void write_default_list(char* list, size_t room) noexcept {
  const auto* const user = user_mechanism();
  std::snprintf(list, room, "%s,%s%s%s", kExecinfo.name, kGdb.name, user != nullptr ? "," : "",
                user != nullptr ? user->name : "");
}

const gasnett_backtrace_type_t* find_mechanism(const char* name, size_t len) noexcept {
  const auto* const user = user_mechanism();
  for (const gasnett_backtrace_type_t* known : {&kExecinfo, &kGdb, user}) {
    if (known != nullptr && std::strlen(known->name) == len &&
        strncasecmp(known->name, name, len) == 0) {
      return known;
    }
  }
  return nullptr;
}

// Tries the mechanisms of the list in order, but only those with (or without) thread support.
bool try_listed(const char* list, bool with_threads, int fd) noexcept {
  while (*list != '\0') {
    const size_t len = std::strcspn(list, ",");
    const auto* const mechanism = find_mechanism(list, len);
    if (mechanism != nullptr && (mechanism->threadsupport != 0) == with_threads &&
        mechanism->fnp(fd) == 0) {
      return true;
    }
    list += len;
    if (*list == ',') ++list;
  }
  return false;
}

bool is_set(const char* name, bool otherwise) noexcept {
  return is_switched_on(hydrant_tools_getenv(name), otherwise);
}

int print_if_enabled(int fd) {
  constinit static std::atomic_flag
      is_said;  // relaxed: only selects the thread that writes the line
  if (!is_set("GASNET_BACKTRACE", false)) {
    if (!is_said.test_and_set(std::memory_order_relaxed)) {
      console_message("NOTICE", "set GASNET_BACKTRACE=1 to see a backtrace here");
    }
    return 1;
  }
  const int rank = tools_rank();
  if (rank >= 0 && !rank_list_contains(hydrant_tools_getenv("GASNET_BACKTRACE_NODES"), rank)) {
    return 1;
  }
  return hydrant_tools_print_backtrace(fd);
}

void warn_of_unknown(const char* list) noexcept {
  if (tools_rank() > 0) return;  // the first rank warns for all
  for (; *list != '\0'; list += std::strspn(list, ",")) {
    const size_t len = std::strcspn(list, ",");
    if (find_mechanism(list, len) == nullptr) {
      console_message("WARNING", "GASNET_BACKTRACE_TYPE: unknown backtrace mechanism '%.*s'",
                      static_cast<int>(len), list);
    }
    list += len;
  }
}

}  // namespace

void check_backtrace_type() noexcept {
  if (const char* const list = hydrant_tools_getenv("GASNET_BACKTRACE_TYPE")) warn_of_unknown(list);
}

}  // namespace hydrant

int (*hydrant_tools_print_backtrace_ifenabled)(int fd) = &hydrant::print_if_enabled;

int hydrant_tools_print_backtrace(int fd) {
  char usual[64];
  hydrant::write_default_list(usual, sizeof usual);
  const char* list = hydrant_tools_getenv("GASNET_BACKTRACE_TYPE");
  if (list == nullptr || *list == '\0') list = usual;
  const bool threads_first = hydrant::is_set("GASNET_BACKTRACE_MT", true);
  if (hydrant::try_listed(list, threads_first, fd)) return 0;
  return hydrant::try_listed(list, !threads_first, fd) ? 0 : 1;
}

void hydrant_tools_backtrace_init(const char* exename) {
  (void)exename;  // frames contain their file's name
  char usual[64];
  hydrant::write_default_list(usual, sizeof usual);
  (void)hydrant::read_switch("GASNET_BACKTRACE", false);
  (void)hydrant::read_switch("GASNET_BACKTRACE_MT", true);
  hydrant::warn_of_unknown(hydrant_tools_getenv_withdefault("GASNET_BACKTRACE_TYPE", usual));
  // The first call loads the unwinder, which allocates. Do it now, because a damaged process may not be
  // able to.
  void* frame = nullptr;
  (void)::backtrace(&frame, 1);
  hydrant::install_debugging_signals();
}
