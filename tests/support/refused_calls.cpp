// Installs the filter and answers its reports.
#include "tests/support/refused_calls.hpp"

#include <linux/filter.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace hydrant::testing {

bool RefusedCalls::install() {
  std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const CallKind& kind : kinds_) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kind.number, 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(code.size()), code.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  const long listener =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
  listener_ = static_cast<int>(listener);
  return listener >= 0;
}

std::string RefusedCalls::run(std::vector<CallKind> kinds,
                              const std::function<std::string(RefusedCalls&)>& body) {
  RefusedCalls calls(std::move(kinds));
  std::string result;
  std::atomic<bool> begun{false}, installed{false}, answers{false};
  std::thread filtered([&] {
    installed = calls.install();
    begun = true;
    begun.notify_one();
    answers.wait(false);
    result = installed ? body(calls) : kNoFilter;
  });
  begun.wait(false);
  // The thread that answers is not filtered: it starts here.
  std::thread answering([&] {
    if (installed) calls.answer();
  });
  answers = true;
  answers.notify_one();
  filtered.join();
  calls.is_over_ = true;
  answering.join();
  if (installed) close(calls.listener_);
  return result;
}

void RefusedCalls::answer() {
  constexpr int kLookMs = 10;
  while (!is_over_) {
    pollfd reports{listener_, POLLIN, 0};
    if (poll(&reports, 1, kLookMs) <= 0 || (reports.revents & POLLIN) == 0) continue;
    seccomp_notif call{};
    if (ioctl(listener_, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue;
    seccomp_notif_resp response{};
    response.id = call.id;
    if (refuses(call.data)) {
      response.error = -error_;
    } else {
      response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    }
    ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &response);
  }
}

void RefusedCalls::refuse(size_t kind, int skip, int times, int error) {
  kind_ = kind;
  skip_ = skip;
  error_ = error;
  refused_ = 0;
  times_ = times;
}

int RefusedCalls::allow() {
  times_ = 0;
  return refused_;
}

bool RefusedCalls::refuses(const seccomp_data& call) {
  if (times_ == 0) return false;
  const CallKind& kind = kinds_[kind_];
  if (static_cast<uint32_t>(call.nr) != kind.number) return false;
  if (kind.counts != nullptr && !kind.counts(call)) return false;
  if (skip_ > 0) return --skip_, false;
  --times_;
  ++refused_;
  return true;
}

}  // namespace hydrant::testing
