// Starts hunts as separate programs and judges their output.
#include "tests/stale/hunt/programs.hpp"

#include "tests/support/patience.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char** environ;

namespace hydrant::stale {
namespace {

using Clock = std::chrono::steady_clock;
// Set in a restarted process. Not a name of the library.
constexpr char kRestarted[] = "STALE_HUNT_RESTARTED";
// A hunt is killed this long after its time limit.
constexpr double kGraceSeconds = 60;
// The operations of a process that hunts a mutant: about a second's worth.
constexpr uint64_t kMutantOperations = 20'000;
// A hunt of a mutant has the time for its operations at this rate, multiplied by the patience. An idle
// machine does several times as many in a second, an emulated one some hundreds.
constexpr double kFewestPerSecond = 5'000;
constexpr int kSkippedStatus = 77;

std::string own_path() {
  char path[4096];
  const ssize_t len = readlink("/proc/self/exe", path, sizeof path);
  return len > 0 ? std::string(path, static_cast<size_t>(len)) : "";
}

// This process's environment with these libraries preloaded, in addition to the current ones if `more`.
std::vector<std::string> environment_with(const std::string& libraries, bool more) {
  constexpr char kPreload[] = "LD_PRELOAD=";
  std::string preload = kPreload + libraries;
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, kPreload, sizeof kPreload - 1) == 0) {
      if (more) preload += std::string(" ") + (*entry + sizeof kPreload - 1);
    } else {
      environment.push_back(*entry);
    }
  }
  if (preload != kPreload) environment.push_back(preload);
  return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t start(std::vector<std::string> arguments, std::vector<std::string> environment, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, arguments[0].c_str(), &actions, nullptr,
                                pointers_to(arguments).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  errno = error;
  return error == 0 ? pid : -1;
}

// Reads all output of the process until it closes it; kills the process at the deadline.
std::string read_all(int from, pid_t pid, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds * testing::patience());
  std::string text;
  for (;;) {
    if (Clock::now() > end) {
      kill(pid, SIGKILL);
      return text + "\nkilled at the deadline";
    }
    pollfd ready{from, POLLIN, 0};
    if (poll(&ready, 1, 100) <= 0) continue;
    char bytes[4096];
    const ssize_t n = read(from, bytes, sizeof bytes);
    if (n <= 0) return text;
    text.append(bytes, static_cast<size_t>(n));
  }
}

// The first line with this beginning, or "".
std::string line_with(const std::string& text, const std::string& beginning) {
  size_t at = text.find(beginning);
  while (at != std::string::npos && at != 0 && text[at - 1] != '\n') {
    at = text.find(beginning, at + 1);
  }
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

MutantRun judge(const std::string& output, int status) {
  MutantRun run;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkippedStatus) {
    run.end = MutantEnd::kSkipped;
    run.text = line_with(output, "skipped: ");
    return run;
  }
  uint64_t opportunities = 0, stale = 0;
  const bool ended =
      std::sscanf(line_with(output, "operations ").c_str(),
                  "operations %" SCNu64 ", opportunities %" SCNu64 ", stale %" SCNu64,
                  &run.operations, &opportunities, &stale) == 3;
  if (!ended || !WIFEXITED(status)) {
    run.text = "the program ended with wait status " + std::to_string(status) + ": " + output;
    return run;
  }
  run.end = stale != 0 ? MutantEnd::kCaught : MutantEnd::kSurvived;
  run.text = stale != 0 ? line_with(output, "FOUND ")
                        : line_with(output, "seed ") + ": " + line_with(output, "operations ");
  return run;
}

}  // namespace

std::string hooks_library() { return HYDRANT_HUNT_HOOKS; }
bool has_hooks() noexcept { return dlsym(RTLD_DEFAULT, "hydrant_hooks_1") != nullptr; }

std::string restart_with(const std::string& libraries, char** argv) {
  if (std::getenv(kRestarted) != nullptr) return "";
  std::vector<std::string> environment = environment_with(libraries, true);
  environment.push_back(std::string(kRestarted) + "=1");
  execve("/proc/self/exe", argv, pointers_to(environment).data());
  return std::string("cannot restart this program: ") + std::strerror(errno);
}

ProgramEnd run_program(const std::vector<std::string>& arguments, const std::string& libraries,
                       double seconds) {
  ProgramEnd end;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    end.output = "pipe2() failed";
    return end;
  }
  const pid_t pid = start(arguments, environment_with(libraries, false), ends[1]);
  const int error = errno;
  close(ends[1]);
  end.started = pid > 0;
  if (end.started) {
    end.output = read_all(ends[0], pid, seconds + kGraceSeconds);
    waitpid(pid, &end.status, 0);
  } else {
    end.output = "cannot start " + arguments[0] + ": " + std::strerror(error);
  }
  close(ends[0]);
  return end;
}

MutantRun run_mutant(const std::string& program, const MutantHunt& mutant, uint64_t seed,
                     uint64_t operations) {
  const auto begun = Clock::now();
  const double longest = static_cast<double>(operations) / kFewestPerSecond;
  const double most_seconds = longest * testing::patience();
  MutantRun run;
  uint64_t done = 0;
  do {
    const ProgramEnd end = run_program(
        {program, "--mutant", mutant.name, "--seed", std::to_string(seed), "--operations",
         std::to_string(kMutantOperations), "--seconds", std::to_string(most_seconds - run.seconds),
         "--least-opportunities", "0", "--quiet"},
        mutant.needs == Needs::kHooks ? hooks_library() : "", longest);
    if (end.started) {
      run = judge(end.output, end.status);
    } else {
      run.text = end.output;
    }
    run.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    // More than that were those of bystanders.
    run.operations = done += std::min(run.operations, kMutantOperations);
    ++seed;
  } while (run.end == MutantEnd::kSurvived && done < operations && run.seconds < most_seconds);
  return run;
}

std::string beside_this_program(const std::string& name) {
  const std::string own = own_path();
  return own.substr(0, own.rfind('/') + 1) + name;
}

std::string program_with_mutants() {
  return has_mutants() ? own_path() : beside_this_program("stale_hunt_mutants");
}

}  // namespace hydrant::stale
