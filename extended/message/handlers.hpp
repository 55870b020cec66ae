// Indices of the extended API's own Active Message handlers, 1 to 127. The same on every rank, because
// all ranks run one build.
#pragma once

#include <cstdint>

namespace hydrant {

inline constexpr uint32_t kBarrierHandler = 1;       // message without an id
inline constexpr uint32_t kNamedBarrierHandler = 2;  // message with an id

// Put and get (rma_messages.cpp).
inline constexpr uint32_t kPutMediumHandler = 3;
inline constexpr uint32_t kPutLongHandler = 4;
inline constexpr uint32_t kFillHandler = 5;
inline constexpr uint32_t kDoneHandler = 6;
inline constexpr uint32_t kGetMediumHandler = 7;
inline constexpr uint32_t kGetLongHandler = 8;
inline constexpr uint32_t kGotMediumHandler = 9;
inline constexpr uint32_t kGotLongHandler = 10;

// Remote pins (firehose_binding.cpp).
inline constexpr uint32_t kRemotePinHandler = 13;
inline constexpr uint32_t kRemotePinReplyHandler = 14;
inline constexpr uint32_t kMappedPinHandler = 15;
inline constexpr uint32_t kMappedPinReplyHandler = 16;

// Collective operations (collective_messages.cpp).
inline constexpr uint32_t kCollectiveDataHandler = 11;
inline constexpr uint32_t kCollectiveAnnouncementHandler = 12;
inline constexpr uint32_t kCollectiveReadHandler = 17;

// Vector, indexed and strided transfers (packets.cpp, peer_completion.cpp).
inline constexpr uint32_t kVisPutHandler = 32;
inline constexpr uint32_t kVisGetHandler = 33;
inline constexpr uint32_t kVisGotHandler = 34;
inline constexpr uint32_t kVisGetRefusedHandler = 35;
inline constexpr uint32_t kVisPeerCompletionHandler = 36;

// Remote atomics (atomic_messages.cpp).
inline constexpr uint32_t kAtomicHandler = 24;
inline constexpr uint32_t kAtomicReplyHandler = 25;

}  // namespace hydrant
