// Applies netem to eth0 with tc, for the tests of a pair of guests.
#include "tests/verbs/pair/link_faults.hpp"

#include "firehose/base/thread.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>

namespace hydrant::testing {
namespace {

// Full path, because the tc of the guest's shell does not support netem.
constexpr char kTc[] = "/job/tc qdisc ";
constexpr char kTimes[] = "/tmp/cut";  // start and end of a cut, from /proc/uptime

void run(const std::string& command) { EXPECT_EQ(std::system(command.c_str()), 0) << command; }

}  // namespace

LinkFaults::~LinkFaults() { remove(); }

void LinkFaults::set(const std::string& what) {
  run(std::string(kTc) + "replace dev eth0 root netem limit 10000 " + what);
  is_set_ = true;
}

void LinkFaults::remove() {
  if (!is_set_) return;
  is_set_ = false;
  run(std::string(kTc) + "del dev eth0 root");
}

void LinkFaults::cut_for_ms(unsigned ms) {
  std::remove(kTimes);
  run("cat /proc/uptime >/tmp/cut.new");
  set("loss 100%");
  run("(usleep " + std::to_string(ms * 1000) + "; " + kTc +
      "change dev eth0 root netem limit 10000 loss 0%; cat /proc/uptime >>/tmp/cut.new; "
      "mv /tmp/cut.new " +
      kTimes + ") &");
}

unsigned LinkFaults::wait_for_cut() {
  const uint64_t deadline = now_ns() + 60'000'000'000;
  while (now_ns() < deadline) {
    std::ifstream file(kTimes);
    double began = 0;
    double ended = 0;
    double idle = 0;
    if (file >> began >> idle >> ended) return static_cast<unsigned>((ended - began) * 1000 + 10);
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  ADD_FAILURE() << "the cut did not end in time";
  return 0;
}

uint64_t LinkFaults::dropped() const {
  uint64_t count = 0;
  FILE* const told =
      popen("/job/tc -s qdisc show dev eth0 root | sed -n 's/.*dropped \\([0-9]*\\).*/\\1/p'", "r");
  if (told == nullptr || std::fscanf(told, "%lu", &count) != 1)
    ADD_FAILURE() << "tc reports no drop counter";
  if (told != nullptr) pclose(told);
  return count;
}

}  // namespace hydrant::testing
