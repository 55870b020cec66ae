// The environment variables of libhydrant: jobs, segments, transports, put and get, barriers.
// firehose/base/config/config.hpp reads them.
#pragma once

#include "firehose/base/config/config.hpp"

#include <cstdint>

namespace hydrant {

enum class JobKnob : uint32_t {
  kPollMax,
  kProgressThread,
  kTimeSlice,
  kSupernodeMaxsize,
  kSegmentCommit,
  kSegmentCheck,
  kBootstrap,
  kStopWarn,
  kGasnetPshmNodes,
  kGasnetExitTimeout,
  kGasnetExitTimeoutMax,
  kGasnetExitTimeoutMin,
  kGasnetExitTimeoutFactor,
  kBarrier,
  kBarrierStrict,
  kBarrierRadix,
  kCollNode,
  kCollNet,
  kCollBroadcast,
  kCollReduceAll,
  kCollGatherAll,
  kJobWaitWarn,
  kPath,
  kPutInMoveMax,
  kBounceMax,
  kBouncePool,
  kAmLongPrealloc,
  kMediumLongThreshold,
  kUseLongGets,
  kUseLongPuts,
  kCma,
  kVisPath,
  kVisPacketMax,
  kNetworkDepth,
  kNbiThrottle,
  kOnFault,
  kStats,
  kTraceFile,
  kTraceMask,
  kTraceNodes,
  kTraceFlush,
  kTraceLocal,
  kStatsFile,
  kStatsMask,
  kStatsNodes,
  kTransport,
  kIbvPorts,
  kIbvStripeMin,
  kIbvPatience,
  kIbvCredits,
  kIbvOdp,
  kIbvRelaxedOrdering,
  kAmEager,
  kInject,
  kIbvPkey,
  kIbvServiceLevel,
  kIbvTrafficClass,
  kIbvConnectThread,
  kIbvForkSafe,
  kIbvOrder,
  kEnd,  // not a knob
};

const KnobInfo& knob_info(JobKnob knob) noexcept;

}  // namespace hydrant
