// Writes and parses HYDRANT_JOB_WIRE: hydrant_run.cpp writes it, the bootstrap of a rank reads it.
#include "rdma/bootstrap/job_environment.hpp"

#include "firehose/base/errno_text.hpp"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>

namespace hydrant::launch {
namespace {

// The inode of a socket; 0 if the descriptor is not a socket.
uint64_t socket_inode(int fd) noexcept {
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) return 0;
  return info.st_ino;
}

constexpr std::string_view kVersion = "2";
constexpr const char* kPlaceVariables[] = {"HYDRANT_JOB_RANK", "HYDRANT_JOB_SIZE"};

// Written while the process has one thread. unsetenv(3) leaves the text where it is.
constinit char* g_removed_request = nullptr;

// Takes the next field, which ends at a colon, or at the end of the text if it is the last one. Only plain
// digits as std::to_string() writes them.
template <class Number>
bool take_field(std::string_view* text, bool is_last, Number* number) noexcept {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  const auto length = static_cast<size_t>(end - text->data());
  if (error != std::errc{} || text->front() == '-' || (length > 1 && text->front() == '0'))
    return false;
  text->remove_prefix(length);
  if (is_last) return text->empty();
  if (!text->starts_with(':')) return false;
  text->remove_prefix(1);
  return true;
}

}  // namespace

std::string write_wire_text(const WireText& wire_text) {
  const JobWire& wire = wire_text.wire;
  std::string text(kVersion);
  for (const uint64_t number :
       {uint64_t{wire.rank}, uint64_t{wire.size}, uint64_t{wire.nodes},
        static_cast<uint64_t>(wire.ends.calls), static_cast<uint64_t>(wire.ends.events),
        wire_text.calls_inode, wire_text.events_inode}) {
    text += ':' + std::to_string(number);
  }
  return text;
}

bool read_wire_text(std::string_view text, WireText* wire_text) noexcept {
  WireText got;
  JobWire& wire = got.wire;
  if (!text.starts_with(kVersion)) return false;
  text.remove_prefix(kVersion.size());
  if (!text.starts_with(':')) return false;
  text.remove_prefix(1);
  const bool is_read =
      take_field(&text, false, &wire.rank) && take_field(&text, false, &wire.size) &&
      take_field(&text, false, &wire.nodes) && take_field(&text, false, &wire.ends.calls) &&
      take_field(&text, false, &wire.ends.events) && take_field(&text, false, &got.calls_inode) &&
      take_field(&text, true, &got.events_inode);
  if (!is_read || wire.size > kMaxRanks || wire.rank >= wire.size || wire.nodes == 0 ||
      wire.nodes > wire.size)
    return false;
  *wire_text = got;
  return true;
}

Status set_job_environment(const JobWire& wire) noexcept {
  for (const int fd : {wire.ends.calls, wire.ends.events}) {
    if (fcntl(fd, F_SETFD, 0) != 0) {
      return fail(Status::kResource, "fcntl(%d, F_SETFD): %s", fd, errno_text(errno));
    }
  }
  const std::string text = write_wire_text({.wire = wire,
                                            .calls_inode = socket_inode(wire.ends.calls),
                                            .events_inode = socket_inode(wire.ends.events)});
  if (setenv(kWireVariable, text.c_str(), 1) != 0 ||
      setenv(kPlaceVariables[0], std::to_string(wire.rank).c_str(), 1) != 0 ||
      setenv(kPlaceVariables[1], std::to_string(wire.size).c_str(), 1) != 0 ||
      unsetenv(kForkVariable) != 0) {
    return fail(Status::kResource, "setenv(): %s", errno_text(errno));
  }
  return Status::kOk;
}

Status read_job_environment(JobWire* wire) noexcept {
  const char* text = std::getenv(kWireVariable);
  if (text == nullptr || *text == '\0') return Status::kNotReady;
  WireText wire_text;
  if (!read_wire_text(text, &wire_text)) {
    return fail(Status::kBadArg, "%s=\"%.100s\" was not set by this version of hydrant-run",
                kWireVariable, text);
  }
  JobWire got = wire_text.wire;
  const bool ours = wire_text.calls_inode != 0 && wire_text.events_inode != 0 &&
                    socket_inode(got.ends.calls) == wire_text.calls_inode &&
                    socket_inode(got.ends.events) == wire_text.events_inode;
  if (!ours) got.ends = {};
  *wire = got;
  if (ours) return Status::kOk;
  return fail(
      Status::kBroken,
      "this process has the environment of rank %u of %u under hydrant-run, but not its "
      "connection: "
      "a rank has started it, or a program between them closed the descriptors; to run it as a job "
      "of its own, set %s for it alone (1: one rank)",
      got.rank, got.size, kForkVariable);
}

void remove_job_request() noexcept {
  g_removed_request = std::getenv(kForkVariable);
  for (const char* name : {kForkVariable, kWireVariable, kPlaceVariables[0], kPlaceVariables[1]})
    unsetenv(name);
}

char* removed_job_request() noexcept { return g_removed_request; }

}  // namespace hydrant::launch
