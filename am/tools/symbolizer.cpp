// Runs addr2line(1) for the frames of a backtrace, one process per loaded object. Called by
// backtrace.cpp; run_helper() also starts gdb.
#include "am/tools/symbolizer.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kLookUpNs = 10'000'000'000;
constexpr size_t kOutputBytes = size_t{64} << 10;
constexpr int kOptions = 4;  // "-f", "-C", "-e" and the file
constexpr const char* kReaders[] = {"addr2line", "eu-addr2line", "llvm-addr2line", nullptr};
constexpr int kExecFailed = 127;

// Static, because it is too large for the stack of a signal handler.
struct Room {
  CodeLocation locations[kMaxLocations];
  const link_map* objects[kMaxLocations];
  bool is_done[kMaxLocations];
  int requested[kMaxLocations];  // frames of one object, in the order of `addresses`
  char addresses[kMaxLocations][24];
  const char* arguments[kOptions + kMaxLocations + 1];
  char helper_output[kOutputBytes];
};

// Reads until the end of the pipe or the deadline; returns the bytes stored.
size_t read_output(int fd, char* text, size_t room, uint64_t deadline_ns) noexcept {
  size_t used = 0;
  while (used < room) {
    const uint64_t now = now_ns();
    if (now >= deadline_ns) break;
    pollfd one{fd, POLLIN, 0};
    const int ready =
        uncancelled::poll(&one, 1, static_cast<int>((deadline_ns - now) / 1'000'000) + 1);
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t bytes = ready > 0 ? uncancelled::read(fd, text + used, room - used) : 0;
    if (bytes <= 0) break;
    used += static_cast<size_t>(bytes);
  }
  return used;
}

// Removes one line from the text and stores it in `line`; "??" leaves `line` unchanged.
void take_line(const char** at, const char* end, char* line, size_t room) noexcept {
  const char* stop = static_cast<const char*>(memchr(*at, '\n', static_cast<size_t>(end - *at)));
  if (stop == nullptr) stop = end;
  const char* text = *at;
  *at = stop < end ? stop + 1 : end;
  if (stop - text >= 2 && text[0] == '?' && text[1] == '?') return;
  std::snprintf(line, room, "%.*s", static_cast<int>(stop - text), text);
  if (char* note = std::strstr(line, " (discriminator"); note != nullptr) *note = '\0';
  const size_t length = std::strlen(line);
  if (line[0] == ':' || (length > 2 && std::strcmp(line + length - 2, ":?") == 0)) line[0] = '\0';
}

// Looks up all frames that lie in the same object as frame `first`. False: further lookups are pointless.
bool look_up(Room& room, void* const* frames, int count, int first, uint64_t deadline_ns) noexcept {
  const link_map& object = *room.objects[first];
  // The main program's link_map has no name.
  char own_file[64];
  std::snprintf(own_file, sizeof own_file, "/proc/%d/exe", static_cast<int>(getpid()));
  const char* const file = *object.l_name != '\0' ? object.l_name : own_file;
  int used = 0;
  for (const char* option : {"-f", "-C", "-e", file}) room.arguments[used++] = option;
  int requested = 0;
  for (int i = first; i < count; ++i) {
    if (room.objects[i] != &object) continue;
    room.is_done[i] = true;
    // The address before the return address always lies in the calling function.
    const auto address = reinterpret_cast<uintptr_t>(frames[i]) - 1 - object.l_addr;
    std::snprintf(room.addresses[requested], sizeof room.addresses[requested], "0x%zx",
                  static_cast<size_t>(address));
    room.arguments[used++] = room.addresses[requested];
    room.requested[requested++] = i;
  }
  room.arguments[used] = nullptr;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const pid_t child = run_helper(kReaders, room.arguments, ends[1]);
  uncancelled::close(ends[1]);
  size_t bytes = 0;
  bool is_over = false;
  if (child > 0) {
    bytes = read_output(ends[0], room.helper_output, sizeof room.helper_output, deadline_ns);
    const uint64_t now = now_ns();
    is_over = await_helper(child, deadline_ns > now ? deadline_ns - now : 0) || bytes > 0;
  }
  uncancelled::close(ends[0]);
  const char* at = room.helper_output;
  const char* const end = at + bytes;
  for (int i = 0; i < requested && at < end; ++i) {
    CodeLocation& location = room.locations[room.requested[i]];
    take_line(&at, end, location.name, sizeof location.name);
    take_line(&at, end, location.place, sizeof location.place);
  }
  return child > 0 && (is_over || now_ns() < deadline_ns);
}

}  // namespace

// vfork(2), because the child only calls execve(2). fork(3) would run registered atfork handlers, in a
// process that may be damaged.
pid_t run_helper(const char* const* programs, const char* const* arguments, int output) noexcept {
  constexpr int kMaxArguments = kOptions + kMaxLocations + 2;
  const char* all[kMaxArguments + 1];
  int count = 1;
  for (; *arguments != nullptr && count < kMaxArguments; ++arguments) all[count++] = *arguments;
  all[count] = nullptr;
  // A minimal environment: LD_PRELOAD must not affect the helper.
  char path[4096];
  const char* const own_path = std::getenv("PATH");
  std::snprintf(path, sizeof path, "PATH=%s", own_path != nullptr ? own_path : "/usr/bin:/bin");
  char language[] = "LC_ALL=C";
  char* environment[] = {path, language, nullptr};
  // Volatile: the child returns from vfork() before the parent, into the same frame.
  const char* const* volatile program = programs;
  while (*program != nullptr) {
    all[0] = *program;
    // Set by the child, which shares this memory, if the exec failed.
    volatile bool has_failed = false;
    // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork): see above
    const pid_t child = vfork();
    if (child == 0) {
      // System calls alone touch no memory of the parent.
      // NOLINTNEXTLINE(clang-analyzer-unix.Vfork)
      dup2(output, STDOUT_FILENO);
      const int nowhere = uncancelled::open("/dev/null", O_RDWR | O_CLOEXEC);
      if (nowhere >= 0) {
        dup2(nowhere, STDIN_FILENO);
        dup2(nowhere, STDERR_FILENO);
      }
      execvpe(all[0], const_cast<char* const*>(all), environment);
      has_failed = true;
      _exit(kExecFailed);
    }
    if (child < 0) return -1;
    if (!has_failed) return child;
    while (uncancelled::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    program = program + 1;
  }
  return -1;
}

bool await_helper(pid_t child, uint64_t limit_ns) noexcept {
  const uint64_t deadline = now_ns() + limit_ns;
  for (;;) {
    int status = 0;
    const pid_t ended = uncancelled::waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ended < 0 && errno != EINTR) return false;
    if (now_ns() >= deadline) break;
    uncancelled::sleep_ns(1'000'000);
  }
  kill(child, SIGKILL);
  while (uncancelled::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return false;
}

const CodeLocation* find_code_locations(void* const* frames, int count) noexcept {
  constinit static std::atomic_flag is_busy;
  static Room room;
  if (count > kMaxLocations || is_busy.test_and_set(std::memory_order_acquire)) return nullptr;
  const uint64_t deadline = now_ns() + kLookUpNs;
  for (int i = 0; i < count; ++i) {
    room.locations[i].name[0] = room.locations[i].place[0] = '\0';
    room.is_done[i] = false;
    room.objects[i] = nullptr;
    Dl_info info{};
    void* object = nullptr;
    void* const address = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(frames[i]) - 1);
    if (dladdr1(address, &info, &object, RTLD_DL_LINKMAP) != 0)
      room.objects[i] = static_cast<const link_map*>(object);
  }
  bool goes_on = true;
  for (int i = 0; goes_on && i < count; ++i) {
    if (!room.is_done[i] && room.objects[i] != nullptr)
      goes_on = look_up(room, frames, count, i, deadline);
  }
  is_busy.clear(std::memory_order_release);
  return room.locations;
}

}  // namespace hydrant
