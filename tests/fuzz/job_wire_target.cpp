// Fuzz target: HYDRANT_JOB_WIRE, by which hydrant-run tells a rank its place in the job and its connection.
#include "firehose/base/log.hpp"
#include "rdma/bootstrap/job_environment.hpp"
#include "tests/fuzz/own_environment.hpp"

#include <sys/socket.h>
#include <sys/stat.h>

namespace hydrant::fuzz {
namespace {

using namespace launch;

void check_wire(const WireText& told) {
  const JobWire& wire = told.wire;
  HYDRANT_FUZZ_CHECK(wire.rank < wire.size && wire.size <= kMaxRanks);
  HYDRANT_FUZZ_CHECK(wire.nodes >= 1 && wire.nodes <= wire.size);
  HYDRANT_FUZZ_CHECK(wire.ends.calls >= 0 && wire.ends.events >= 0);
}

// An accepted text is the one that is written for what it says.
void check_text(std::string_view text) {
  constexpr Rank kMark = 4711;
  WireText told;
  told.wire.rank = kMark;
  if (!read_wire_text(text, &told)) {
    HYDRANT_FUZZ_CHECK(told.wire.rank == kMark && told.wire.ends.calls == -1);
    return;
  }
  check_wire(told);
  HYDRANT_FUZZ_CHECK(write_wire_text(told) == text);
}

// Any place that hydrant-run can write is read back.
void check_written(Input input) {
  WireText told;
  told.wire.size = 1 + input.take<uint32_t>() % kMaxRanks;
  told.wire.rank = input.take<uint32_t>() % told.wire.size;
  told.wire.nodes = 1 + input.take<uint32_t>() % told.wire.size;
  told.wire.ends = {.calls = input.take<int>() & INT32_MAX,
                    .events = input.take<int>() & INT32_MAX};
  told.calls_inode = input.take<uint64_t>();
  told.events_inode = input.take<uint64_t>();
  WireText back;
  HYDRANT_FUZZ_CHECK(read_wire_text(write_wire_text(told), &back));
  HYDRANT_FUZZ_CHECK(back.wire.rank == told.wire.rank && back.wire.size == told.wire.size);
  HYDRANT_FUZZ_CHECK(back.wire.nodes == told.wire.nodes);
  HYDRANT_FUZZ_CHECK(back.wire.ends.calls == told.wire.ends.calls);
  HYDRANT_FUZZ_CHECK(back.wire.ends.events == told.wire.ends.events);
  HYDRANT_FUZZ_CHECK(back.calls_inode == told.calls_inode &&
                     back.events_inode == told.events_inode);
}

// The inode number of a descriptor of this process; 0 if it is no socket.
uint64_t inode_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

void check_variable(const std::string& text) {
  const OwnEnvironment own({std::string(kWireVariable) + "=" + text});
  WireText told;
  const bool is_good = read_wire_text(text, &told);
  JobWire wire;
  const Status status = read_job_environment(&wire);
  if (text.empty() || !is_good) {
    HYDRANT_FUZZ_CHECK(status == (text.empty() ? Status::kNotReady : Status::kBadArg));
    HYDRANT_FUZZ_CHECK(wire.size == 1 && wire.ends.calls == -1);
    return;
  }
  const bool is_ours = told.calls_inode != 0 && told.events_inode != 0 &&
                       inode_of(told.wire.ends.calls) == told.calls_inode &&
                       inode_of(told.wire.ends.events) == told.events_inode;
  HYDRANT_FUZZ_CHECK(status == (is_ours ? Status::kOk : Status::kBroken));
  HYDRANT_FUZZ_CHECK(wire.rank == told.wire.rank && wire.size == told.wire.size);
  HYDRANT_FUZZ_CHECK(wire.ends.calls == (is_ours ? told.wire.ends.calls : -1));
  HYDRANT_FUZZ_CHECK(wire.ends.events == (is_ours ? told.wire.ends.events : -1));
}

// A text that names sockets of this process is accepted.
bool check_own_sockets() {
  int pair[2] = {-1, -1};
  HYDRANT_FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  WireText told;
  told.wire.ends = {.calls = pair[0], .events = pair[1]};
  told.calls_inode = inode_of(pair[0]);
  told.events_inode = inode_of(pair[1]);
  check_variable(write_wire_text(told));
  for (const int fd : pair) close(fd);
  check_variable(write_wire_text(told));
  return true;
}

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  if (size > 1024) return 0;
  static const bool is_checked = check_own_sockets();
  HYDRANT_FUZZ_CHECK(is_checked);
  const GuardedCopy text({data, size});
  check_text(text.text());
  check_written(Input(data, size));
  // The variable's text has no zeros.
  check_variable(std::string(text.text().substr(0, text.text().find('\0'))));
  return 0;
}
