// A child process that serves a test over a socket pair.
#include "tests/support/child_server.hpp"

#include "tests/support/patience.hpp"

#include <cstdio>
#include <cstring>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

constexpr int kWaitMs = 5;

int a_minute_ms() { return static_cast<int>(60'000 * patience()); }

const int (&make_ends())[2] {
  static int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) ends[0] = ends[1] = -1;
  return ends;
}

}  // namespace

MessageSocket::~MessageSocket() {
  if (fd_ >= 0) close(fd_);
}

bool MessageSocket::say(const void* bytes, size_t len) {
  return send(fd_, bytes, len, MSG_NOSIGNAL) == static_cast<ssize_t>(len);
}

std::string MessageSocket::hear() {
  pollfd ready{fd_, POLLIN, 0};
  if (poll(&ready, 1, a_minute_ms()) != 1) return "";
  std::string text(size_t{64} << 10, '\0');
  const ssize_t n = recv(fd_, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

bool MessageSocket::has_message() {
  pollfd ready{fd_, POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

OtherProcess::OtherProcess(const std::function<void(MessageSocket&)>& body)
    : OtherProcess(body, make_ends()) {}

OtherProcess::OtherProcess(const std::function<void(MessageSocket&)>& body, const int (&ends)[2])
    : talk_(ends[0]) {
  std::fflush(nullptr);
  const int theirs = ends[1];
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[0]);
    {
      MessageSocket talk(theirs);
      body(talk);
    }
    _exit(0);
  }
  close(theirs);
}

OtherProcess::~OtherProcess() { kill(); }

void OtherProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  (void)waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string OtherProcess::end() {
  if (pid_ <= 0) return "it has ended already";
  int status = 0;
  pid_t ended = 0;
  for (int waits = 0; ended == 0 && waits < a_minute_ms() / kWaitMs; ++waits) {
    ended = waitpid(pid_, &status, WNOHANG);
    if (ended == 0) usleep(kWaitMs * 1000);
  }
  if (ended == 0) {
    kill();
    return "it did not end in time";
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) return "it was killed by " + std::string(strsignal(WTERMSIG(status)));
  return WEXITSTATUS(status) == 0 ? "" : "it exited with " + std::to_string(WEXITSTATUS(status));
}

}  // namespace hydrant::testing
