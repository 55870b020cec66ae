// How much a firehose.h client may pin: GASNet's arithmetic of M, R and MAXVICTIM, as a pure function.
//
// Words of that API: M is memory a process keeps for its peers' firehoses, MAXVICTIM what it may pin
// beyond M for itself; R and MAXVICTIM_R are the same in regions; RS is the largest region. Source:
// GASNet 2025.8.0, other/firehose, fh_init_plugin() of both modes and firehose_get_params().
#pragma once

#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// A GASNET_FIREHOSE_* variable: an explicit "0" differs from an unset variable.
struct CompatSetting {
  uint64_t number = 0;
  bool given = false;
};

struct CompatEnvironment {
  CompatSetting m = {};
  CompatSetting max_victim_m = {};
  CompatSetting r = {};
  CompatSetting max_victim_r = {};
  CompatSetting max_region_size = {};
};

// Reads the variables named after the fields.
CompatEnvironment read_compat_environment() noexcept;

// The limits that a client requests; 0 lifts a limit.
struct CompatRequest {
  bool page_mode = false;
  bool local_only = false;
  uint64_t max_bytes = 0;
  uint64_t max_regions = 0;       // region mode only
  uint64_t max_region_bytes = 0;  // region mode only
  uint64_t prepinned_bytes = 0;
  uint64_t prepinned_regions = 0;
  uint64_t bucket_bytes = 4096;  // power of two
  double victim_ratio = 0.25;
  bool sends = false;  // the client can reach its peers, so that M is of use
  bool warns = true;   // log warnings: one rank of a job does
};

// The limits in force for local pins, prepinned memory not included; 0: the client sets no limit.
struct CompatLimits {
  uint64_t m_bytes = 0;  // set aside for peers: not for local pins
  uint64_t victim_bytes = 0;
  uint64_t victim_regions = 0;  // page mode: 0
  uint64_t region_bytes = 0;    // page mode: 0
  // Reported to the client: so many regions of the largest size fit together.
  uint64_t local_regions = 0;
  // For all peers together, prepinned memory not included; 0: the client sets no limit, or has no peers.
  uint64_t remote_bytes = 0;
  uint64_t remote_regions = 0;
};

// The limits of one peer in this process.
struct CompatPeerLimits {
  uint64_t budget_bytes = 0;   // of all peers
  uint64_t pin_bytes = 0;      // longest pin
  uint64_t regions = 0;        // so many of pin_bytes at once; page mode: 0
  uint64_t max_firehoses = 0;  // in use or idle; 0: the cache chooses
};

// Errors: kBadArg, with a text that names the variable or the argument, if no memory could be pinned.
// Logs warnings about settings that are only unwise.
Status compute_compat_limits(const CompatRequest& request, const CompatEnvironment& environment,
                             CompatLimits* limits) noexcept;

// Divides the limits equally among `peers` peers. `domain_bytes`: the budget of a cache whose client named
// none. Errors: kBadArg: there is not enough for so many.
Status split_for_peers(const CompatRequest& request, const CompatLimits& limits,
                       uint64_t domain_bytes, uint32_t peers, CompatPeerLimits* of_one) noexcept;

// The split of max_bytes into M and MAXVICTIM by environment and ratio. Errors, warnings: as above.
Status split_compat_memory(uint64_t max_bytes, double victim_ratio,
                           const CompatEnvironment& environment, bool warns, uint64_t* m_bytes,
                           uint64_t* victim_bytes) noexcept;

}  // namespace hydrant
