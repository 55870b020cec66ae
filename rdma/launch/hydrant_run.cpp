// Implements the program hydrant-run: parses options, forks the ranks through a Supervisor, and executes the
// program in each child.
#include "firehose/base/config/config.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/job_environment.hpp"
#include "rdma/launch/cpu_binding.hpp"
#include "rdma/launch/supervisor.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace hydrant::launch {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitStart = 1;
constexpr int kExitNotExecutable = 126;
constexpr int kExitNotFound = 127;

struct Options {
  Rank size = 0;
  Rank nodes = 1;
  std::vector<std::string> variables;
  std::string bind = "none";
  double timeout_s = 0;
  bool verbose = false;
  std::vector<std::string> command;
};

const char kFooter[] =
    R"(The first process that calls gasnet_exit, dies, or exits with another code than 0 ends the job; an
exit with 0 does so in jobs of GASNet. The others are notified at once, get SIGQUIT after 0.25 s, or
after half of GASNET_EXITTIMEOUT if that exit was one with 0, and are killed after GASNET_EXITTIMEOUT.
The exit code is that of the first event other than an exit with 0: 128 + the signal, or the code; else 0.
HYDRANT_JOB_RANK and HYDRANT_JOB_SIZE are set for each process. Standard input goes to rank 0. Ctrl-C and
SIGTERM are forwarded to every process; the second one kills them. Other exit codes: 1: a process cannot
be started; 2: wrong options; 126, 127: the program cannot be run; 124: --timeout.)";

std::string check_variable(const std::string& text) {
  const size_t equals = text.find('=');
  return equals == 0 || equals == text.npos ? "\"" + text + "\" is not VAR=VALUE" : "";
}

// Checked as text, because CLI11's own message for a bad number does not give the range.
std::string check_ranks(const std::string& text) {
  Rank size = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, size);
  if (error == std::errc{} && stop == end && size >= 1 && size <= kMaxRanks) return "";
  return "\"" + text + "\": expected a whole number from 1 to " + std::to_string(kMaxRanks);
}

std::string check_seconds(const std::string& text) {
  constexpr double kMaxSeconds = 1e9;
  double seconds = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  if (error == std::errc{} && stop == end && seconds >= 0 && seconds <= kMaxSeconds) return "";
  return "\"" + text + "\": expected seconds, from 0 to 1000000000";
}

void declare(CLI::App* app, Options* options) {
  app->footer(kFooter);
  app->set_version_flag("--version", std::string("hydrant-run ") + HYDRANT_VERSION);
  app->add_option("-n,--ranks", options->size,
                  "Number of processes: 1 to " + std::to_string(kMaxRanks) + "; also -np N")
      ->required()
      ->check(check_ranks, "")
      ->type_name("N");
  app->add_option("--nodes", options->nodes,
                  "For tests: divide the ranks into this many groups that act as separate "
                  "machines and communicate "
                  "over the network")
      ->check(check_ranks, "")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("-E,--env", options->variables,
                  "Set an environment variable for the processes; may be repeated")
      ->type_name("VAR=VALUE")
      ->allow_extra_args(false)
      ->check(check_variable);
  app->add_option("--bind", options->bind,
                  "none: no binding; core: bind each process to a core, wrapping around if there "
                  "are too few")
      ->check(CLI::IsMember({"none", "core"}).description(""))
      ->type_name("none|core")
      ->capture_default_str();
  app->add_option("--timeout", options->timeout_s, "End the job after this time; 0 means never")
      ->check(check_seconds, "")
      ->type_name("SECONDS")
      ->capture_default_str();
  app->add_flag("--verbose", options->verbose, "Report the start and end of each process");
  app->add_option("program", options->command, "The program and its arguments")
      ->required()
      ->type_name("[ARGUMENTS]");
  app->positionals_at_end();
  app->prefix_command(false);
}

// The command line for the parser, the last argument first. CLI11 has no short name of two letters: "-np",
// which other launchers take, becomes "-n". What follows the program's name is the program's.
std::vector<std::string> read_arguments(int argc, char** argv) {
  const std::string_view with_value[] = {"-n",    "--ranks", "--nodes",  "-E",
                                         "--env", "--bind",  "--timeout"};
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string& text = arguments[i];
    if (text == "--" || !text.starts_with('-')) break;
    if (text.starts_with("-np")) text.erase(2, 1);
    if (std::find(std::begin(with_value), std::end(with_value), text) != std::end(with_value)) ++i;
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

// An unknown option explains a missing one: it may be misspelt.
int refuse(const CLI::App& app, const CLI::RequiredError& error) {
  const std::vector<std::string> unknown = app.remaining();
  const bool has_any = std::any_of(unknown.begin(), unknown.end(), [](const std::string& text) {
    return text.starts_with('-') && text != "--";
  });
  if (has_any)
    app.exit(CLI::ExtrasError(unknown));
  else
    app.exit(error);
  return kExitUsage;
}

// Finds `program` in the same way as execvp(3); "" with errno.
std::string find_program(const std::string& program) {
  if (program.empty()) {
    errno = ENOENT;
    return "";
  }
  const auto runs = [](const std::string& path) {
    struct stat info {};
    if (access(path.c_str(), X_OK) != 0 || stat(path.c_str(), &info) != 0) return false;
    if (S_ISREG(info.st_mode)) return true;
    errno = S_ISDIR(info.st_mode) ? EISDIR : EACCES;
    return false;
  };
  if (program.find('/') != program.npos) return runs(program) ? program : "";
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "/bin:/usr/bin";
  int error = ENOENT;
  for (size_t at = 0; at <= rest.size();) {
    const size_t end = std::min(rest.find(':', at), rest.size());
    std::string found = end > at ? rest.substr(at, end - at) : ".";
    found.append("/").append(program);
    if (runs(found)) return found;
    if (errno == EACCES || errno == EISDIR) error = EACCES;
    at = end + 1;
  }
  errno = error;
  return "";
}

// Executes the program in this process. On failure reports the errno to the supervisor.
[[noreturn]] void become_program(const Options& options, const std::string& path, Rank rank,
                                 const RankSockets& ends) {
  Event event{.kind = EventKind::kStartFailure, .rank = rank, .code = ENOMEM};
  if (set_job_environment(
          {.rank = rank, .size = options.size, .nodes = options.nodes, .ends = ends}) ==
      Status::kOk) {
    for (const std::string& one : options.variables) {
      const size_t equals = one.find('=');
      setenv(one.substr(0, equals).c_str(), one.substr(equals + 1).c_str(), 1);
    }
    std::vector<char*> arguments;
    for (const std::string& one : options.command)
      arguments.push_back(const_cast<char*>(one.c_str()));
    arguments.push_back(nullptr);
    execvp(path.c_str(), arguments.data());
    event.code = errno;
  }
  send_message(ends.events, bytes_of(event));
  _exit(kExitNotFound);
}

int run_job(const Options& options) {
  if (options.nodes > options.size) {
    std::fprintf(stderr, "hydrant-run: --nodes %u exceeds the number of ranks, %u\n", options.nodes,
                 options.size);
    return kExitUsage;
  }
  const std::string path = find_program(options.command[0]);
  if (path.empty()) {
    const int error = errno;
    std::fprintf(stderr, "hydrant-run: cannot run %s: %s\n",
                 options.command[0].empty() ? "\"\"" : options.command[0].c_str(),
                 errno_text(error));
    return error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitNotExecutable;
  }
  std::unique_ptr<Supervisor> supervisor;
  const SupervisorOptions how{.program = "hydrant-run",
                              .size = options.size,
                              .timeout_ns = static_cast<uint64_t>(options.timeout_s * 1e9),
                              .verbose = options.verbose};
  if (Supervisor::create(how, &supervisor) != Status::kOk) {
    std::fprintf(stderr, "hydrant-run: %s\n", last_error_text());
    return kExitStart;
  }
  const CpuBinding binding = options.bind == "core" ? CpuBinding::by_core() : CpuBinding{};
  for (Rank rank = 0; rank < options.size; ++rank) {
    RankSockets ends;
    const Supervisor::Side side = supervisor->start(rank, &ends);
    if (side == Supervisor::Side::kChild) {
      supervisor.reset();
      binding.apply(rank);
      become_program(options, path, rank, ends);
    }
    if (side == Supervisor::Side::kFailed) {
      how.say("%s", last_error_text());
      supervisor->abandon();
      return kExitStart;
    }
  }
  return supervisor->run();
}

// Opens closed descriptors 0, 1 and 2: otherwise a socket could get that number and receive output.
void hold_stdio() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  }
}

}  // namespace
}  // namespace hydrant::launch

// NOLINTNEXTLINE(bugprone-exception-escape): only std::bad_alloc remains, which ends the process
int main(int argc, char** argv) {
  using namespace hydrant::launch;
  hold_stdio();
  hydrant::leave_warnings_to_ranks();
  Options options;
  CLI::App app("Starts N processes of a program on this machine as one job, and ends them as one.",
               "hydrant-run");
  declare(&app, &options);
  app.failure_message([](const CLI::App* one, const CLI::Error& error) {
    return "hydrant-run: " + CLI::FailureMessage::simple(one, error);
  });
  try {
    app.parse(read_arguments(argc, argv));
  } catch (const CLI::RequiredError& error) {
    return refuse(app, error);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return run_job(options);
}
