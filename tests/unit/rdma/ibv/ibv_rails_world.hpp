// Helpers of the tests with several ports: simulated devices, and ranks that are connected by all of them.
#pragma once

#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gtest/gtest.h>

namespace hydrant::testing {

inline constexpr size_t kStripe = 65536;

inline IbvTransport::Options rail_options() {
  IbvTransport::Options options = IbvWorld::single();
  options.ports = "*";
  options.stripe_bytes = kStripe;
  return options;
}

class RailTest : public VerbsTest {
 protected:
  void SetUp() override { fake_verbs::reset(); }
  // fake0, fake1, ..., each like `like`.
  static void add_devices(uint32_t count, fake_verbs::Device like = fake_verbs::adapter()) {
    static const char* const kNames[] = {"fake0", "fake1", "fake2", "fake3"};
    for (uint32_t i = 0; i < count; ++i) {
      like.name = kNames[i];
      fake_verbs::add_device(like);
    }
  }
  static void fill(PinnedMemory& memory, size_t seed) {
    for (size_t i = 0; i < memory.bytes_; ++i)
      memory.data.get()[i] = static_cast<std::byte>(i * 13 + i / 251 + seed);
  }
  // Ranks 0 and 1 are connected, idle, and both know of exactly `rails` rails between them.
  static bool settle(IbvWorld& world, uint32_t rails) {
    world.connect(0, 1);
    const auto known = [&](Rank rank) { return world[rank].transport->rails_with(1 - rank); };
    const bool settled = world.until([&] { return known(0) == rails && known(1) == rails; });
    for (int i = 0; i < 100; ++i) world.poll_all();
    return settled && known(0) == rails && known(1) == rails;
  }
  static Status finish(IbvWorld& world, const std::function<Status(Told*)>& begin) {
    Told told;
    const Status begun = world.insist([&] { return begin(&told); });
    if (begun != Status::kOk) return begun;
    EXPECT_TRUE(world.until([&] { return told.times != 0; }));
    EXPECT_EQ(told.times, 1U);
    return told.status;
  }
  static Status put(IbvWorld& world, const PinnedOperations::Pinned& remote,
                    const PinnedOperations::Pinned& local, size_t bytes) {
    return finish(world, [&](Told* told) {
      return world[0].transport->pinned()->put(1, remote, local, bytes, told);
    });
  }
  static Status get(IbvWorld& world, const PinnedOperations::Pinned& remote,
                    const PinnedOperations::Pinned& local, size_t bytes) {
    return finish(world, [&](Told* told) {
      return world[0].transport->pinned()->get(1, remote, local, bytes, told);
    });
  }
  // Imports `memory` as a rank whose registrar is `importer` does.
  static void import(PinnedMemory& memory, Registrar& importer, std::byte* key) {
    std::byte blob[64];
    size_t length = sizeof blob;
    const MemoryRange range{memory.address(), memory.bytes_};
    ASSERT_EQ(memory.registrar->export_key(range, memory.key.data(), blob, &length), Status::kOk);
    ASSERT_EQ(importer.import_key(blob, length, key), Status::kOk) << last_error_text();
  }
};

}  // namespace hydrant::testing
