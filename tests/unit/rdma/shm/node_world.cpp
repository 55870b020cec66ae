#include "tests/unit/rdma/shm/node_world.hpp"

#include <csignal>
#include <cstddef>
#include <ctime>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

namespace hydrant::testing {

std::string run_ranks(uint32_t ranks, const std::function<int(uint32_t)>& body) {
  std::vector<pid_t> pids;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(body(rank));
    }
    pids.push_back(pid);
  }
  std::string failed;
  const uint64_t deadline = in_seconds(60);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    int status = 0;
    pid_t done = 0;
    while ((done = waitpid(pids[rank], &status, WNOHANG)) == 0 && now_ns() < deadline) {
      const timespec moment{0, 1'000'000};
      nanosleep(&moment, nullptr);
    }
    if (done == 0) {
      kill(pids[rank], SIGKILL);
      waitpid(pids[rank], &status, 0);
      failed += "rank " + std::to_string(rank) + " did not end; ";
    } else if (status != 0) {
      failed += "rank " + std::to_string(rank) +
                (WIFSIGNALED(status) ? " died of signal " + std::to_string(WTERMSIG(status))
                                     : " says " + std::to_string(WEXITSTATUS(status))) +
                "; ";
    }
  }
  return failed;
}

bool refuse_system_call(long number, int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace hydrant::testing
