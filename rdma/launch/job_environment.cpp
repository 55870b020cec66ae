// Writes and parses HYDRANT_JOB_WIRE: hydrant_run.cpp writes it, the bootstrap of a rank reads it.
#include "rdma/launch/job_environment.hpp"

#include "firehose/base/errno_text.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>

namespace hydrant::launch {
namespace {

// The inode of a socket; 0 if the descriptor is not a socket.
uint64_t socket_inode(int fd) noexcept {
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) return 0;
  return info.st_ino;
}

}  // namespace

Status set_job_environment(const JobWire& wire) noexcept {
  for (const int fd : {wire.ends.calls, wire.ends.words}) {
    if (fcntl(fd, F_SETFD, 0) != 0) {
      return fail(Status::kResource, "fcntl(%d, F_SETFD): %s", fd, errno_text(errno));
    }
  }
  char text[160];
  std::snprintf(text, sizeof text, "2:%u:%u:%u:%d:%d:%" PRIu64 ":%" PRIu64, wire.rank, wire.size,
                wire.nodes, wire.ends.calls, wire.ends.words, socket_inode(wire.ends.calls),
                socket_inode(wire.ends.words));
  if (setenv(kWireVariable, text, 1) != 0 ||
      setenv("HYDRANT_JOB_RANK", std::to_string(wire.rank).c_str(), 1) != 0 ||
      setenv("HYDRANT_JOB_SIZE", std::to_string(wire.size).c_str(), 1) != 0) {
    return fail(Status::kResource, "setenv(): %s", errno_text(errno));
  }
  return Status::kOk;
}

Status read_job_environment(JobWire* wire) noexcept {
  const char* text = std::getenv(kWireVariable);
  if (text == nullptr || *text == '\0') return Status::kNotReady;
  JobWire got;
  uint64_t calls_inode = 0;
  uint64_t words_inode = 0;
  int used = 0;
  const int fields =
      std::sscanf(text, "2:%u:%u:%u:%d:%d:%" SCNu64 ":%" SCNu64 "%n", &got.rank, &got.size,
                  &got.nodes, &got.ends.calls, &got.ends.words, &calls_inode, &words_inode, &used);
  if (fields != 7 || text[used] != '\0' || got.rank >= got.size || got.size > kMaxRanks ||
      got.nodes == 0 || got.nodes > got.size) {
    return fail(Status::kBadArg, "%s=\"%.100s\" was not set by this version of hydrant-run",
                kWireVariable, text);
  }
  const bool ours = calls_inode != 0 && words_inode != 0 &&
                    socket_inode(got.ends.calls) == calls_inode &&
                    socket_inode(got.ends.words) == words_inode;
  if (!ours) got.ends = {};
  *wire = got;
  if (ours) return Status::kOk;
  return fail(
      Status::kBroken,
      "this process has the environment of rank %u of %u under hydrant-run, but not its "
      "connection: "
      "a rank has started it, or a program between them closed the descriptors; to run it as a job "
      "of its own: env -u %s, then the command",
      got.rank, got.size, kWireVariable);
}

}  // namespace hydrant::launch
