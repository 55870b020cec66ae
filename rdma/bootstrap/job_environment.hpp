// Variables that hydrant-run sets for a rank. HYDRANT_JOB_WIRE has the rank and the descriptors of its
// sockets to the supervisor; HYDRANT_JOB_RANK and HYDRANT_JOB_SIZE are for scripts.
//
// A process that a rank starts may inherit the variable without the descriptors. The sockets' inode numbers
// detect that. A rank's environment has no GASNET_PSHM_NODES, so one beside such a variable was set for the
// process itself, to start a job of its own.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/wire.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace hydrant::launch {

inline constexpr char kWireVariable[] = "HYDRANT_JOB_WIRE";
inline constexpr char kForkVariable[] = "GASNET_PSHM_NODES";

struct JobWire {
  Rank rank = 0;
  Rank size = 1;
  uint32_t nodes = 1;  // number of nodes that the ranks simulate
  RankSockets ends;
};

// The text of the variable, and the sockets' inode numbers as it names them.
struct WireText {
  JobWire wire;
  uint64_t calls_inode = 0;
  uint64_t events_inode = 0;
};
std::string write_wire_text(const WireText& wire_text);
// False unless write_wire_text() writes this text for a rank of a job. *wire_text is unchanged then.
bool read_wire_text(std::string_view text, WireText* wire_text) noexcept;

// Sets the variables for a program that is about to be executed, removes GASNET_PSHM_NODES, and makes the
// descriptors inheritable. Errors: kResource.
Status set_job_environment(const JobWire& wire) noexcept;

// Reads HYDRANT_JOB_WIRE. Errors: kNotReady: not set; kBadArg: malformed, with a text; kBroken: the
// descriptors are missing (*wire is valid otherwise).
Status read_job_environment(JobWire* wire) noexcept;

// In a rank that GASNET_PSHM_NODES has forked: removes that variable, and those of a job that this one is
// inside, from the environment that the rank's children inherit. Only while the process has one thread.
void remove_job_request() noexcept;
// The value that it has removed, or null.
char* removed_job_request() noexcept;

}  // namespace hydrant::launch
