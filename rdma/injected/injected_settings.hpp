// HYDRANT_INJECT: what is put between this job and its transport, so that one machine shows what a path costs
// on a network, and tests meet one. The same on all ranks.
//
//   send_only                         only messages: no one-sided operations, no shared memory
//   delay=5us,bandwidth=10G,depth=64  a network with one-sided operations; docs/put_get.md has the list
//   delay=5us,pins=64M                the same, whose adapter moves data between pinned memory only
//
// Threads: any. Errors: kBadArg, naming the text and what is known.
#pragma once

#include "firehose/base/status.hpp"

#include <cstdint>
#include <string_view>

namespace hydrant {

// In nanoseconds, bytes and counts; 0 is "no such limit" but for credits and depth.
struct InjectedNetwork {
  uint64_t delay_ns = 0;          // one way
  uint64_t bytes_per_second = 0;  // of each ordered pair of ranks
  uint64_t window_bytes = 0;      // under way to one peer in one lane: no message begins beyond
  uint64_t reorder_ns = 0;        // what comes from different ranks is this much out of order
  uint64_t seed = 1;
  uint32_t credits = 128;  // messages under way to one peer in one lane
  uint32_t cells = 0;      // taken or under way in one lane
  uint32_t depth = 256;    // one-sided operations under way
  bool has_pins = false;   // they move data between pinned memory only
  bool pins_are_fake = false;
  uint64_t pin_bytes = 0;  // pinned at once
};

struct Injection {
  bool send_only = false;
  bool has_network = false;
  InjectedNetwork network;

  // Nothing of another rank is mapped here then, whatever the inner transport could.
  bool hides_memory() const noexcept { return send_only || has_network; }
};

// Empty text: nothing is injected. On failure *injection is unchanged.
Status parse_injection(std::string_view text, Injection* injection) noexcept;

}  // namespace hydrant
