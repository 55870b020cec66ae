// What hydrant-run tells a rank through its environment: HYDRANT_JOB_WIRE says which rank it is and which
// descriptors lead to the supervisor. HYDRANT_JOB_RANK and HYDRANT_JOB_SIZE say the same to scripts.
//
// A process may inherit the variable without the descriptors: something that a rank has started. The
// sockets' inode numbers tell.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/launch/supervisor.hpp"

namespace hydrant::launch {

inline constexpr char kWireVariable[] = "HYDRANT_JOB_WIRE";

struct JobWire {
  Rank rank = 0;
  Rank size = 1;
  uint32_t nodes = 1;  // that the ranks are to believe in
  RankEnds ends;
};

// Sets the variables for a program that is about to be executed, and lets it inherit the descriptors.
// Errors: kResource.
Status set_job_environment(const JobWire& wire) noexcept;

// Reads HYDRANT_JOB_WIRE. Errors: kNotReady: it is not set; kBadArg: it is not one of ours, with a text;
// kBroken: the descriptors are not there (*wire is valid but for them).
Status read_job_environment(JobWire* wire) noexcept;

}  // namespace hydrant::launch
