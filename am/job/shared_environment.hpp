// The environment of rank 0, which gasnet_getenv() returns on every rank, because launchers may give
// other ranks a different environment. Rank 0 publishes it in the job's store; a rank with an equal
// environment keeps no copy.
//
// Variables by which launchers identify processes (HYDRANT_JOB_*, PMI*, OMPI_*, SLURM_* and similar)
// are each rank's own. An environment larger than kMaxBytes is not shared, with a warning.
//
// Threads: publish and adopt while the job starts; find from any thread afterwards.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace hydrant {

class SharedEnvironment {
 public:
  static constexpr size_t kMaxBytes = size_t{256} << 10;

  // The variables to share, out of `variables` ("NAME=value", null-terminated list), each followed by a
  // zero byte.
  static std::string shared_part(const char* const* variables);

  // Called by rank 0, before a fence. Errors: as Bootstrap::put().
  Status publish(Bootstrap& bootstrap) noexcept;
  // Called by the other ranks, after the fence. On failure this rank uses its own environment, with a
  // warning. Warns of bad values that differ from rank 0's, of which rank 0 does not warn.
  void adopt(Bootstrap& bootstrap) noexcept;

  // Rank 0's value, or null.
  char* find(const char* name) noexcept;
  // True if this rank has another value than rank 0. False on rank 0, and where rank 0's is not known.
  bool differs(const char* name) noexcept;

 private:
  Status fetch(Bootstrap& bootstrap) noexcept;
  void warn_of_own_values() noexcept;
  std::string variables_;  // empty: the process's own environment is equal
};

// The job's instance, never destroyed.
SharedEnvironment& shared_environment() noexcept;

}  // namespace hydrant
