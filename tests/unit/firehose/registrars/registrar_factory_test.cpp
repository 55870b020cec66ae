#include "firehose/registrars/registrar_factory.hpp"

#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/registrars/error_text.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

namespace hydrant {
namespace {

using testing::run_in_child;
using testing::says;
using testing::TestFile;

// Installs a filter that fails io_uring_setup(). For a child process only.
std::string filter_io_uring(uint32_t answer) {
  const sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{};
  program.len = std::size(code);
  program.filter = const_cast<sock_filter*>(code);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return "no_new_privs";
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return "no seccomp here";
  return "";
}

// As in a container.
std::string forbid_io_uring(int error) {
  return filter_io_uring(SECCOMP_RET_ERRNO | static_cast<uint32_t>(error));
}

TEST(RegistrarFactory, MakesByName) {
  for (const char* name : {"uring", "mlock"}) {
    NamedRegistrar named;
    const Status status = make_registrar(name, &named);
    if (status == Status::kUnsupported) continue;  // the reason is tested elsewhere
    ASSERT_EQ(status, Status::kOk);
    EXPECT_STREQ(named.registrar->traits().name, name);
    EXPECT_EQ(named.uring != nullptr, std::string(name) == "uring");
  }
}

TEST(RegistrarFactory, UnknownNamesAreUnsupported) {
  NamedRegistrar named;
  EXPECT_EQ(make_registrar("infiniband", &named), Status::kUnsupported);
  EXPECT_TRUE(says("infiniband")) << last_error_text();
  EXPECT_EQ(make_registrar("", &named), Status::kUnsupported);
  EXPECT_EQ(make_registrar(nullptr, &named), Status::kBadArg);
  EXPECT_EQ(named.registrar, nullptr);
}

// Runs make_registrar("auto") where io_uring is refused; returns the text on standard error.
std::string auto_without_uring(int error) {
  TestFile log;
  std::string wrong = run_in_child([&]() -> std::string {
    std::string failed = forbid_io_uring(error);
    if (!failed.empty()) return failed;
    dup2(log.fd(), STDERR_FILENO);
    unsetenv("HYDRANT_LOG");
    NamedRegistrar named;
    if (make_registrar("uring", &named) != Status::kUnsupported) return "uring was made";
    if (make_registrar("auto", &named) != Status::kOk) return last_error_text();
    if (named.uring != nullptr) return "auto took uring";
    return std::strcmp(named.registrar->traits().name, "mlock") == 0 ? "" : "auto took another";
  });
  return wrong.empty() ? log.read(4096) : "failed: " + wrong;
}

TEST(RegistrarFactory, AutoFallsBackToMlockAndLogsTheReason) {
  for (const int error : {EPERM, ENOSYS}) {
    const std::string log = auto_without_uring(error);
    if (log == "failed: no seccomp here") GTEST_SKIP() << "no seccomp filters here";
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
    EXPECT_NE(log.find("mlock"), std::string::npos) << log;
    EXPECT_NE(log.find("seccomp"), std::string::npos) << log;
    EXPECT_NE(log.find("io_uring_setup"), std::string::npos) << log;
  }
}

#if defined(__x86_64__)

// A sandbox may emulate system calls in a signal handler, also while other signals are blocked.
TEST(RegistrarFactory, HandlerOfSigsysMayRefuseIoUring) {
  EXPECT_EQ(run_in_child([]() -> std::string {
              struct sigaction action {};
              action.sa_flags = SA_SIGINFO;
              action.sa_sigaction = [](int, siginfo_t*, void* context) {
                static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = -EPERM;
              };
              sigaction(SIGSYS, &action, nullptr);
              if (!filter_io_uring(SECCOMP_RET_TRAP).empty()) return "";
              NamedRegistrar named;
              const Status status = make_registrar("uring", &named);
              return status == Status::kUnsupported ? "" : "another status";
            }),
            "");
}

#endif

TEST(RegistrarFactory, ProbeReportsEach) {
  const auto probes = probe_registrars();
  int chosen = 0;
  for (const RegistrarProbe& probe : probes) {
    EXPECT_EQ(probe.usable, probe.reason[0] == '\0') << probe.reason;
    if (probe.usable) {
      EXPECT_STREQ(probe.traits.name, probe.name);
    }
    chosen += probe.default_choice ? 1 : 0;
  }
  EXPECT_LE(chosen, 1);
  EXPECT_EQ(run_in_child([]() -> std::string {
              if (!forbid_io_uring(EPERM).empty()) return "";
              for (const RegistrarProbe& probe : probe_registrars()) {
                if (std::strcmp(probe.name, "uring") != 0) continue;
                if (probe.usable || probe.default_choice) return "usable though forbidden";
                return std::strstr(probe.reason, "seccomp") != nullptr ? "" : probe.reason;
              }
              return "uring is not listed";
            }),
            "");
}

}  // namespace
}  // namespace hydrant
