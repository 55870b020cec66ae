// Ranks on adapters of their own, which keep writes until something shows them: for tests of what a completed
// put promises.
#pragma once

#include "tests/unit/rdma/ibv/ibv_rails_world.hpp"

#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

namespace hydrant::testing {

class OrderTest : public RailTest {
 protected:
  // Rank i uses the port `ports[i]`, or the ports. `node_ranks`: as CardBox has them.
  struct OwnAdapters : IbvWorld {
    explicit OwnAdapters(std::initializer_list<const char*> ports,
                         IbvTransport::Options options = single(),
                         std::vector<Rank> node_ranks = {})
        : IbvWorld(0) {
      box.node_ranks = std::move(node_ranks);
      for (const char* const each : ports) {
        options.ports = each;
        ranks.push_back(std::make_unique<IbvRank>(box, static_cast<Rank>(ranks.size()),
                                                  static_cast<Rank>(ports.size()), options));
        EXPECT_EQ(ranks.back()->opened, Status::kOk) << last_error_text();
      }
    }
  };

  // Only completions and reads show what was written from now on.
  static void add_holding_devices(uint32_t count, fake_verbs::WriteOrder order) {
    fake_verbs::Device device = fake_verbs::adapter();
    device.write_order = order;
    fake_verbs::reset();
    add_devices(count, device);
    fake_verbs::hold_writes(true);
  }
  static bool is_there(const PinnedMemory& here, const PinnedMemory& there, size_t bytes) {
    return std::memcmp(here.data.get(), there.data.get(), bytes) == 0;
  }
  static Status announce(IbvWorld& world, Rank from, Rank to) {
    const uint64_t before = world[to].inbox.count;
    const Status sent = world.send(from, to, Lane::kRequest, 1, "12345678");
    if (sent != Status::kOk) return sent;
    return world.arrived(to, before + 1) ? Status::kOk : Status::kNotReady;
  }
  // The queue pair that this device has connected, the only one.
  static ibv_qp* pair_on(const char* device) {
    for (ibv_qp* const pair : fake_verbs::connected_pairs()) {
      if (std::strcmp(pair->context->device->name, device) == 0) return pair;
    }
    return nullptr;
  }
};

}  // namespace hydrant::testing
