// Sending Active Messages: one path for both APIs, requests and replies, to others and to oneself.
#pragma once

#include <hydrant/gasnet/am.h>

#include "am/message.hpp"
#include "am/token.hpp"
#include "rdma/transport.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// A message as its sender describes it.
struct Sending {
  Rank peer = 0;
  Lane lane = Lane::kRequest;
  Category category = Category::kShort;
  uint32_t handler = 0;
  uint32_t nargs = 0;
  const int32_t* args = nullptr;
  const void* source = nullptr;
  size_t bytes = 0;
  void* dest = nullptr;        // Long
  const Cell* cell = nullptr;  // the payload is in it already, and it is given up
  bool immediate = false;
};

// Sends it, waiting for room by polling (replies: by taking replies only) unless `immediate`.
// Errors: kNotReady: immediate, and there is no room; kBroken: the peer is gone, or the job is ending.
Status send(const Sending& message) noexcept;

// Runs the handler of a message to this process in the calling thread; in a no-interrupt section, keeps a
// request for run_held_messages(). Errors: kResource: no memory for a copy.
Status send_to_self(const Sending& message) noexcept;
// The calling thread's no-interrupt section is over. Not in handlers.
void run_held_messages() noexcept;

// Which rank of the job (tm, rank) names. Errors: kBadArg.
Status resolve(gex_TM_t tm, gex_Rank_t rank, Rank* peer) noexcept;

// Largest payloads in bytes. A Long may be longer than what travels at once.
inline constexpr size_t kMaxLong = 0x7fffffff;
size_t max_medium() noexcept;

}  // namespace hydrant
