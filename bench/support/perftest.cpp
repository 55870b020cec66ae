// Starts perftest's programs and ucx_perftest as child processes and parses their output; for verbs_compare.
#include "bench/support/perftest.hpp"

#include "firehose/base/thread.hpp"

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

extern char** environ;

namespace hydrant::bench {
namespace {

constexpr uint64_t kMaxNs = 20'000'000'000;
constexpr uint64_t kConnectNs = 8'000'000'000;
constexpr timespec kPause{0, 50'000'000};
constexpr double kMegabyte = 1048576.0;  // perftest's definition

// Runs a program and collects its output until it ends or the deadline passes; *status is that of waitpid(2).
// Uses posix_spawn instead of fork(), because the caller has registered memory.
bool run(std::vector<std::string> arguments, uint64_t deadline_ns, std::string* output,
         int* status) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t child = -1;
  const int error = posix_spawnp(&child, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  for (bool is_open = error == 0; is_open;) {
    pollfd fd{ends[0], POLLIN, 0};
    const uint64_t now = now_ns();
    const int ready =
        now < deadline_ns ? poll(&fd, 1, static_cast<int>((deadline_ns - now) / 1'000'000) + 1) : 0;
    if (ready <= 0) {
      kill(child, SIGKILL);
      break;
    }
    char text[4096];
    const ssize_t bytes = read(ends[0], text, sizeof text);
    is_open = bytes > 0;
    if (is_open) output->append(text, static_cast<size_t>(bytes));
  }
  close(ends[0]);
  if (error == 0) waitpid(child, status, 0);
  return error == 0;
}

// Parses the line that begins with the number of bytes. Latencies: bytes, iterations, min, max, typical, ...;
// bandwidths: bytes, iterations, peak, average, ...
double figure_of(const PerftestCall& call, const std::string& output) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    double numbers[5] = {};
    size_t count = 0;
    while (count < 5 && words >> numbers[count]) ++count;
    if (count < 4 || numbers[0] != call.bytes) continue;
    if (call.is_latency) return count == 5 ? numbers[4] * 1e3 : -1;
    return numbers[3] > 0 ? call.bytes / (numbers[3] * kMegabyte) * 1e9 : -1;
  }
  return -1;
}

// Parses the line of results: iterations, then median, average and overall time of an operation, ...
double figure_of(const UctCall& call, const std::string& output) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    double numbers[4] = {};
    size_t count = 0;
    if (!(words >> first) || first != "Final:") continue;
    while (count < 4 && words >> numbers[count]) ++count;
    return count == 4 ? (call.is_latency ? numbers[1] : numbers[3]) * 1e3 : -1;
  }
  return -1;
}

template <typename Call>
double run_side(const Call& call, std::vector<std::string> arguments, bool is_server) {
  if (!is_server) arguments.emplace_back("127.0.0.1");
  const uint64_t begin = now_ns();
  for (;;) {
    std::string output;
    int status = -1;
    if (!run(arguments, begin + kMaxNs, &output, &status)) return -1;
    const bool is_good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (is_good) return is_server ? 0 : figure_of(call, output);
    const bool is_late = now_ns() > begin + kConnectNs;
    if (is_server || is_late) return -1;
    nanosleep(&kPause, nullptr);
  }
}

std::string path_of(const PerftestPlace& place, const std::string& program) {
  return place.folder.empty() ? program : place.folder + "/" + program;
}

}  // namespace

double run_perftest(const PerftestCall& call, const PerftestPlace& place, bool is_server) {
  std::vector<std::string> arguments = {path_of(place, call.program),
                                        "-F",
                                        "-d",
                                        place.device,
                                        "-i",
                                        std::to_string(place.port),
                                        "-x",
                                        std::to_string(place.gid_index),
                                        "-p",
                                        std::to_string(place.tcp_port),
                                        "-s",
                                        std::to_string(call.bytes),
                                        "-n",
                                        std::to_string(call.iterations)};
  if (call.receives != 0) {
    arguments.emplace_back("-r");
    arguments.push_back(std::to_string(call.receives));
  }
  if (call.under_way != 0) {
    arguments.emplace_back("-t");
    arguments.push_back(std::to_string(call.under_way));
  }
  return run_side(call, std::move(arguments), is_server);
}

double run_uct(const UctCall& call, const PerftestPlace& place, bool is_server) {
  return run_side(
      call,
      {path_of(place, "ucx_perftest"), "-d", place.device + ":" + std::to_string(place.port), "-x",
       "rc_verbs", "-t", call.test, "-D", call.layout, "-O", std::to_string(call.under_way), "-p",
       std::to_string(place.tcp_port), "-s", std::to_string(call.bytes), "-n",
       std::to_string(call.iterations), "-w", std::to_string(call.iterations / 10)},
      is_server);
}

}  // namespace hydrant::bench
