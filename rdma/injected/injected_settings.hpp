// HYDRANT_INJECT: layers between this job and its transport, so that one machine shows the cost of a path on
// a network, and tests exercise one. It must be the same on all ranks.
//
//   send_only                         only messages: no one-sided operations, no shared memory
//   delay=5us,bandwidth=10G,depth=64  a network with one-sided operations; docs/put_get.md has the list
//   delay=5us,pins=64M                the same, whose adapter moves data between pinned memory only
//
// Threads: any. Errors: kBadArg, with the wrong text and the known items.
#pragma once

#include "firehose/base/status.hpp"

#include <cstdint>
#include <string_view>

namespace hydrant {

// Nanoseconds, bytes and counts; 0 means "no limit" except for credits and depth.
struct InjectedNetwork {
  uint64_t delay_ns = 0;          // one way
  uint64_t bytes_per_second = 0;  // of each ordered pair of ranks
  uint64_t window_bytes = 0;      // most bytes under way to one peer in one lane, or one message
  uint64_t reorder_ns = 0;        // largest extra delay, which puts different ranks out of order
  uint64_t seed = 1;
  uint32_t credits = 128;  // most messages under way to one peer in one lane
  uint32_t cells = 0;      // most cells taken or under way in one lane
  uint32_t depth = 256;    // most one-sided operations under way
  bool has_pins = false;   // operations move data between pinned memory only
  bool pins_are_fake = false;
  uint64_t pin_bytes = 0;  // most bytes pinned at once
};

struct Injection {
  bool send_only = false;
  bool has_network = false;
  InjectedNetwork network;

  // True if memory of other ranks is not mapped here, whatever the inner transport can map.
  bool hides_memory() const noexcept { return send_only || has_network; }
};

// An empty text injects nothing. On failure *injection is unchanged.
Status parse_injection(std::string_view text, Injection* injection) noexcept;

}  // namespace hydrant
