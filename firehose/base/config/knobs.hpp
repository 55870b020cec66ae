// The environment variables of libfirehose, and of what it shares with libhydrant (log, allocator).
// config.hpp reads them.
#pragma once

#include "firehose/base/config/config.hpp"

#include <cstdint>

namespace hydrant {

enum class Knob : uint32_t {
  kRegistrar,
  kBudget,
  kMaxRegions,
  kMaxRegionSize,
  kMode,
  kBucket,
  kMerge,
  kStream,
  kAdmission,
  kEagerAccess,
  kThreadTable,
  kWaitWarn,
  kMembarrier,
  kWatch,
  kHits,
  kLog,
  kAllocBackend,
  kRemoteBudget,
  kRemoteFirehoses,
  kRemoteBase,
  kRemoteZombies,
  kRemotePeerRegions,
  kRemoteMerge,
  kRemoteStream,
  kGasnetM,
  kGasnetMaxVictimM,
  kGasnetR,
  kGasnetMaxVictimR,
  kGasnetMaxRegionSize,
  kGasnetVerbose,
  kGasnetTableScale,
  kEnd,  // not a knob
};

const KnobInfo& knob_info(Knob knob) noexcept;

}  // namespace hydrant
