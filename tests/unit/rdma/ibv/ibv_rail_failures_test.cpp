// Failures with several ports: every call at every count, registrations of one device, a port that is cut,
// peers that are disconnected half-way.
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/registrar/rail_registrar.hpp"
#include "rdma/ibv/registrar/verbs_memory.hpp"
#include "tests/unit/rdma/ibv/ibv_rails_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using testing::kStripe;
using testing::kTarget;
using testing::PinnedMemory;
using testing::rail_options;
using testing::Told;

constexpr size_t kFailingBytes = 4 * kStripe;

class IbvRailFailures : public testing::RailTest {
 protected:
  // The time that a rank waits for a reply of a rank that cannot reply.
  static constexpr uint64_t kShort = 100'000'000;
  // Start, connection, puts and gets in stripes, a message behind each. What went wrong first. No call hangs.
  static Status do_everything(uint64_t connect_ns = IbvTransport::Options().handshakes.connect_ns) {
    testing::CardBox box;
    std::vector<std::unique_ptr<IbvRank>> ranks;
    for (Rank rank = 0; rank < 2; ++rank) {
      IbvTransport::Options options = rail_options();
      options.handshakes.connect_ns = connect_ns;
      options.abandons_silent_ranks = true;
      options.send_depth = 16;
      ranks.push_back(std::make_unique<IbvRank>(box, rank, 2, options));
      if (ranks.back()->opened != Status::kOk) return ranks.back()->opened;
    }
    const uint64_t deadline = testing::in_seconds(10);
    const auto insist = [&](auto attempt) {
      Status status = Status::kNotReady;
      while ((status = attempt()) == Status::kNotReady && now_ns() < deadline) {
        for (auto& rank : ranks) rank->poll();
      }
      return status;
    };
    const Status met = insist([&] { return ranks[0]->try_send(1, Lane::kRequest, 1, "first"); });
    if (met != Status::kOk) return met;
    const auto registrars = std::array{ranks[0]->transport->pinned()->make_registrar(),
                                       ranks[1]->transport->pinned()->make_registrar()};
    if (registrars[0] == nullptr || registrars[1] == nullptr) return Status::kUnsupported;
    const auto memory = std::array{allocate(), allocate()};
    std::array<std::array<std::byte, 64>, 2> keys = {};
    std::array<std::byte, 64> remote = {};
    const auto range = [&](size_t i) {
      return MemoryRange{reinterpret_cast<uintptr_t>(memory.at(i).get()), kFailingBytes};
    };
    Status status = registrars[0]->pin(range(0), Access::kLocalWrite, keys[0].data());
    if (status != Status::kOk) return status == Status::kNotReady ? Status::kResource : status;
    status = registrars[1]->pin(range(1), kTarget, keys[1].data());
    if (status != Status::kOk) {
      EXPECT_EQ(registrars[0]->unpin(range(0), keys[0].data()), UnpinResult::kDone);
      return status == Status::kNotReady ? Status::kResource : status;
    }
    std::byte blob[64];
    size_t length = sizeof blob;
    EXPECT_EQ(registrars[1]->export_key(range(1), keys[1].data(), blob, &length), Status::kOk);
    EXPECT_EQ(registrars[0]->import_key(blob, length, remote.data()), Status::kOk);
    const PinnedOperations::Pinned to{range(1).addr, remote.data()};
    const PinnedOperations::Pinned from{range(0).addr, keys[0].data()};
    for (uint32_t i = 0; i < 12 && status == Status::kOk; ++i) {
      std::memset(memory[0].get(), static_cast<int>(i + 1), kFailingBytes);
      if (i % 2 == 1) std::memset(memory[1].get(), static_cast<int>(i + 101), kFailingBytes);
      Told told;
      IbvTransport& transport = *ranks[0]->transport;
      status = insist([&] {
        return i % 2 == 0 ? transport.pinned()->put(1, to, from, kFailingBytes, &told)
                          : transport.pinned()->get(1, to, from, kFailingBytes, &told);
      });
      if (status == Status::kOk)
        status = insist([&] { return told.times != 0 ? told.status : Status::kNotReady; });
      EXPECT_LE(told.times, 1U);
      // The status that a callback is given comes without a text of this thread.
      if (told.times != 0 && status != Status::kOk)
        status = fail(status, "the operation has ended");
      if (status == Status::kOk) {
        EXPECT_EQ(std::memcmp(memory[0].get(), memory[1].get(), kFailingBytes), 0);
        status = insist([&] { return ranks[0]->try_send(1, Lane::kRequest, 1, "more"); });
      }
    }
    ranks[0]->transport->flush(testing::in_seconds(1));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(registrars.at(i)->unpin(range(i), keys.at(i).data()), UnpinResult::kDone);
    }
    return status;
  }
  static std::unique_ptr<std::byte, PinnedMemory::Free> allocate() {
    return std::unique_ptr<std::byte, PinnedMemory::Free>(
        static_cast<std::byte*>(std::aligned_alloc(4096, kFailingBytes)));
  }
};

TEST_F(IbvRailFailures, EveryCallMayFailAtEveryCount) {
  constexpr Call kCalls[] = {Call::kGetDeviceList, Call::kOpenDevice,    Call::kQueryDevice,
                             Call::kAllocPd,       Call::kRegMr,         Call::kQueryPort,
                             Call::kQueryGid,      Call::kCreateChannel, Call::kCreateCq,
                             Call::kPollCq,        Call::kCreateSrq,     Call::kPostSrqRecv,
                             Call::kCreateQp,      Call::kModifyQp,      Call::kPostSend,
                             Call::kPostRecv,      Call::kCreateAh,      Call::kResizeCq};
  const fake_verbs::Device like{.max_message = 16384};
  ::testing::internal::CaptureStderr();
  add_devices(3, like);
  ASSERT_EQ(do_everything(), Status::kOk) << last_error_text();
  for (const Call call : kCalls) {
    fake_verbs::reset();
    add_devices(3, like);
    ASSERT_EQ(do_everything(), Status::kOk);
    const uint64_t counts = fake_verbs::calls(call);
    for (uint64_t nth = 1; nth <= counts; nth += nth < 40 ? 1 : counts / 20 + 1) {
      fake_verbs::reset();
      add_devices(3, like);
      fake_verbs::fail_call(call, ENOMEM, nth);
      clear_error_text();
      const Status status = do_everything(kShort);
      EXPECT_NE(status, Status::kNotReady) << static_cast<int>(call) << " " << nth << ": it hangs";
      EXPECT_NE(status, Status::kBadArg) << static_cast<int>(call) << " " << nth;
      if (status != Status::kOk) {
        EXPECT_STRNE(last_error_text(), "") << static_cast<int>(call) << " " << nth;
      }
      EXPECT_TRUE(fake_verbs::live().none()) << static_cast<int>(call) << " " << nth;
    }
  }
  (void)::testing::internal::GetCapturedStderr();
}

// Ranks go on by the rails that they have got.
TEST_F(IbvRailFailures, UnopenableRailIsLeftOut) {
  struct {
    Call call;
    uint64_t nth;  // which of its calls is that for the second port as a rail of the first rank
    const char* text;
  } const cases[] = {{Call::kCreateCq, 5, "cannot create a completion queue"},
                     {Call::kRegMr, 1, "a rail's fences"}};
  for (const auto& one : cases) {
    fake_verbs::reset();
    add_devices(3);
    fake_verbs::fail_call(one.call, ENOMEM, one.nth);
    ::testing::internal::CaptureStderr();
    IbvWorld world(2, rail_options());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("fake1:1 is left out"), HasSubstr(one.text)));
    // The third port of one is joined with the third of the other all the same.
    ASSERT_TRUE(settle(world, 2));
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFailingBytes);
    PinnedMemory there(*world[1].transport, kTarget, kFailingBytes);
    fill(here, 3);
    ASSERT_EQ(put(world, there.for_peer(), here.local(), kFailingBytes), Status::kOk);
    EXPECT_EQ(std::memcmp(there.data.get(), here.data.get(), kFailingBytes), 0);
    EXPECT_GT(fake_verbs::traffic_of("fake2").writes, 0U);
    EXPECT_EQ(fake_verbs::traffic_of("fake1").writes, 0U);
  }
}

TEST_F(IbvRailFailures, RailWithoutAQueuePairIsUnusedWithThatPeer) {
  for (const Call call : {Call::kCreateQp, Call::kModifyQp}) {
    fake_verbs::reset();
    add_devices(2);
    IbvWorld world(2, rail_options());
    // At first contact the first rank makes two queue pairs, and starts them.
    fake_verbs::fail_call(call, ENOMEM, 2);
    ::testing::internal::CaptureStderr();
    ASSERT_TRUE(settle(world, 1)) << static_cast<int>(call);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("fake1 port 1 is not used for rank 1"));
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFailingBytes);
    PinnedMemory there(*world[1].transport, kTarget, kFailingBytes);
    ASSERT_EQ(put(world, there.for_peer(), here.local(), kFailingBytes), Status::kOk);
    EXPECT_EQ(world[0].transport->counts().striped, 0U);
  }
}

TEST_F(IbvRailFailures, RailThatHasLostItsAddressIsUnusedWithLaterPeers) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  std::vector<uint16_t>& pkeys = fake_verbs::facts_of("fake1").pkeys;
  std::fill(pkeys.begin(), pkeys.end(), 0x8005);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(settle(world, 1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("fake1 port 1 is not used for rank 1: fake1 port 1 has lost P_Key"));
}

// If one of two ranks cannot connect a rail, the other must not send over that rail.
TEST_F(IbvRailFailures, RailFailingOnOneSideIsUnusedOnBoth) {
  uint32_t without = 0;
  for (uint64_t nth = 3; nth <= 12; ++nth) {
    fake_verbs::reset();
    add_devices(2);
    IbvTransport::Options options = rail_options();
    options.handshakes.connect_ns = testing::patient_ns(1'000'000'000);
    options.abandons_silent_ranks = true;
    IbvWorld world(2, options);
    ::testing::internal::CaptureStderr();
    fake_verbs::fail_call(Call::kModifyQp, EINVAL, nth);
    const Status status = world.send(0, 1, Lane::kRequest, 1, "12345678");
    for (int i = 0; i < 100; ++i) world.poll_all();
    (void)::testing::internal::GetCapturedStderr();
    if (status != Status::kOk || world[1].transport->counts().lost != 0) continue;
    if (world[0].transport->rails_with(1) != 1) continue;
    ++without;
    ASSERT_TRUE(world.until([&] { return world[1].transport->rails_with(0) == 1; })) << nth;
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFailingBytes);
    PinnedMemory there(*world[1].transport, kTarget, kFailingBytes);
    ASSERT_EQ(put(world, there.for_peer(), here.local(), kFailingBytes), Status::kOk) << nth;
  }
  EXPECT_GE(without, 2U);
}

TEST_F(IbvRailFailures, CutRailFailsThePeerAndIsNamed) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFailingBytes);
  PinnedMemory there(*world[1].transport, kTarget, kFailingBytes);
  const PinnedOperations::Pinned remote = there.for_peer();
  std::array<Told, 3> told;
  for (Told& one : told) {
    ASSERT_EQ(world[0].transport->pinned()->put(1, remote, here.local(), kFailingBytes, &one),
              Status::kOk);
  }
  fake_verbs::hold_device("fake0", true);
  fake_verbs::fail_work(IBV_WC_RETRY_EXC_ERR, 2);  // of the second port: its first fence
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(world.until([&] { return world[0].transport->counts().lost != 0; }));
  fake_verbs::hold_device("fake0", false);
  ASSERT_TRUE(world.until([&] { return told[2].times != 0; }));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("fake1 port 1"), HasSubstr("rank 1")));
  for (const Told& one : told) {
    EXPECT_EQ(one.times, 1U);
    EXPECT_EQ(one.status, Status::kBroken);
  }
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("rank 1 is gone"), HasSubstr("fake1 port 1")));
}

// The first port carries out all that it is given, probes included.
TEST_F(IbvRailFailures, StalledRailFailsThePeer) {
  add_devices(2);
  IbvTransport::Options options = rail_options();
  options.probe_ns = 2'000'000;
  options.stall_timeout_ns = 20'000'000;
  IbvWorld world(2, options);
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFailingBytes);
  PinnedMemory there(*world[1].transport, kTarget, kFailingBytes);
  fake_verbs::hold_device("fake1", true);
  Told told;
  ASSERT_EQ(
      world[0].transport->pinned()->put(1, there.for_peer(), here.local(), kFailingBytes, &told),
      Status::kOk);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(world.until([&] { return world[0].transport->counts().lost != 0; }));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("fake1 port 1: no request to rank 1"));
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kBroken);
  EXPECT_THAT(
      last_error_text(),
      HasSubstr(
          "rank 1 is gone: the adapter reports no completions and no errors, on fake1 port 1"));
  fake_verbs::hold_device("fake1", false);
  EXPECT_TRUE(world.until([&] { return told.times != 0; }));
  EXPECT_EQ(told.status, Status::kBroken);
}

// The pieces of the operation have been carried out, or have not, and none of them has completed.
TEST_F(IbvRailFailures, DisconnectedMidwayCompletesOnce) {
  for (const bool is_put : {true, false}) {
    constexpr uint32_t kUnasked = 9;
    for (const uint32_t moves : {0U, 1U, 2U, kUnasked}) {
      fake_verbs::reset();
      add_devices(3, with_messages(4096));
      IbvTransport::Options options = rail_options();
      options.send_depth = 16;
      IbvWorld world(2, options);
      ASSERT_TRUE(settle(world, 3));
      PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFailingBytes);
      PinnedMemory there(*world[1].transport, kTarget, kFailingBytes);
      const PinnedOperations::Pinned remote = there.for_peer();
      fake_verbs::hold_device("fake0", true);
      fake_verbs::hold_device("fake1", moves == 0);
      Told told;
      IbvTransport& transport = *world[0].transport;
      ASSERT_EQ(is_put ? transport.pinned()->put(1, remote, here.local(), kFailingBytes, &told)
                       : transport.pinned()->get(1, remote, here.local(), kFailingBytes, &told),
                Status::kOk);
      // Or all posted requests are carried out, without a poll of the completions.
      if (moves == kUnasked) {
        world[1].poll();
      } else {
        for (uint32_t i = 0; i < moves; ++i) world[0].poll();
      }
      transport.disconnect(1);
      fake_verbs::hold_device("fake0", false);
      fake_verbs::hold_device("fake1", false);
      ASSERT_TRUE(world.until([&] { return told.times != 0; })) << is_put << moves;
      for (int i = 0; i < 20; ++i) world.poll_all();
      EXPECT_EQ(told.times, 1U);
      EXPECT_EQ(told.status, Status::kBroken);
    }
  }
}

TEST_F(IbvRailFailures, FlushWaitsForStripesUntilItsDeadline) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
  PinnedMemory here(*world[0].transport, Access::kLocalWrite, kFailingBytes);
  PinnedMemory there(*world[1].transport, kTarget, kFailingBytes);
  Told told;
  fake_verbs::hold_device("fake1", true);
  ASSERT_EQ(
      world[0].transport->pinned()->put(1, there.for_peer(), here.local(), kFailingBytes, &told),
      Status::kOk);
  const uint64_t until = now_ns() + 20'000'000;
  world[0].transport->flush(until);
  EXPECT_GE(now_ns(), until);
  EXPECT_EQ(told.times, 0U);
  fake_verbs::hold_device("fake1", false);
  world[0].transport->flush(testing::in_seconds(10));
  EXPECT_EQ(told.times, 1U);
}

TEST_F(IbvRailFailures, EventsOfTheSecondDeviceAreHandled) {
  add_devices(2);
  IbvWorld world(2, rail_options());
  ASSERT_TRUE(settle(world, 2));
  ibv_context* second = nullptr;
  for (ibv_qp* pair : fake_verbs::connected_pairs()) {
    if (std::string(pair->context->device->name) == "fake1") second = pair->context;
  }
  ASSERT_NE(second, nullptr);
  ::testing::internal::CaptureStderr();
  fake_verbs::raise_event(second, IBV_EVENT_PORT_ERR, 1, nullptr);
  (void)world[0].transport->notices().arm_events();
  (void)world[1].transport->notices().arm_events();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("fake1 port 1 is down"));
}

// ---- registrations ----

TEST_F(IbvRailFailures, RefusedMemoryIsNamedWithTheDeviceAndTheLimit) {
  add_devices(1);
  ibv::Port port;
  ASSERT_EQ(ibv::open_port("fake0", &port), Status::kOk);
  {
    ibv::VerbsMemory memory;
    fake_verbs::fail_call(Call::kRegMr, ENOMEM);
    EXPECT_EQ(memory.open(port.device.pd, 5000, IBV_ACCESS_LOCAL_WRITE, "cells"),
              Status::kResource);
  }
  EXPECT_THAT(last_error_text(),
              AllOf(HasSubstr("fake0: 8192 bytes for cells cannot be registered: Cannot allocate "
                              "memory (memlock is "),
                    HasSubstr("raise it with ulimit -l, hydrant-info says how much")));
  close_ibv_device(port.device);
}

TEST_F(IbvRailFailures, ForkProtectionHoldsForAllDevices) {
  add_devices(2);
  for (const ibv_fork_status status : {IBV_FORK_DISABLED, IBV_FORK_ENABLED}) {
    fake_verbs::set_fork_status(status);
    ibv::Ports ports;
    ASSERT_EQ(ibv::open_ports("*", ibv::kMaxRails, &ports), Status::kOk);
    ibv_pd* const domains[] = {ports.all[0].device.pd, ports.all[1].device.pd};
    std::unique_ptr<Registrar> registrar;
    ASSERT_EQ(RailRegistrar::create(domains, &registrar), Status::kOk) << last_error_text();
    EXPECT_EQ(registrar->traits().unpin_before_release, status == IBV_FORK_ENABLED);
    registrar.reset();
    ibv::close_ports(ports);
  }
}

TEST_F(IbvRailFailures, RegistrationRefusedByOneDeviceIsUndoneOnTheOthers) {
  add_devices(3);
  ibv::Ports ports;
  ASSERT_EQ(ibv::open_ports("*", ibv::kMaxRails, &ports), Status::kOk);
  ibv_pd* const domains[] = {ports.all[0].device.pd, ports.all[1].device.pd,
                             ports.all[2].device.pd};
  std::unique_ptr<Registrar> registrar;
  ASSERT_EQ(RailRegistrar::create(domains, &registrar), Status::kOk) << last_error_text();
  const RegistrarTraits& traits = registrar->traits();
  EXPECT_EQ(traits.key_bytes, 48U);
  EXPECT_EQ(traits.export_bytes, 40U);
  const MemoryRange range{0x10000, 0x4000};
  std::array<std::byte, 64> key = {};
  struct {
    int error;
    Status status;
    const char* text;
  } const cases[] = {{ENOMEM, Status::kNotReady, "memlock"},
                     {EFAULT, Status::kRefused, "does not register"},
                     {EPERM, Status::kBroken, "may not pin"}};
  for (const auto& one : cases) {
    for (uint64_t nth = 1; nth <= 3; ++nth) {
      fake_verbs::fail_call(Call::kRegMr, one.error, nth);
      EXPECT_EQ(registrar->pin(range, kTarget, key.data()), one.status) << nth;
      EXPECT_THAT(last_error_text(),
                  AllOf(HasSubstr("fake" + std::to_string(nth - 1)), HasSubstr(one.text)));
      EXPECT_EQ(fake_verbs::live().mrs, 0U);
      EXPECT_EQ(key[0], std::byte{0}) << "unchanged on failure";
    }
  }
  ASSERT_EQ(registrar->pin(range, kTarget, key.data()), Status::kOk);
  EXPECT_EQ(fake_verbs::live().mrs, 3U);
  // If one device fails to deregister, the others are deregistered all the same.
  fake_verbs::fail_call(Call::kDeregMr, EIO, 2);
  EXPECT_EQ(registrar->unpin(range, key.data()), UnpinResult::kBroken);
  EXPECT_EQ(fake_verbs::live().mrs, 1U);
  fake_verbs::drop_registrations();
  registrar.reset();
  close_ports(ports);
}

TEST_F(IbvRailFailures, PeerKeysAreCutToTheLocalPorts) {
  add_devices(3);
  ibv::Ports ports;
  ASSERT_EQ(ibv::open_ports("*", ibv::kMaxRails, &ports), Status::kOk);
  ibv_pd* const domains[] = {ports.all[0].device.pd, ports.all[1].device.pd,
                             ports.all[2].device.pd};
  std::unique_ptr<Registrar> three;
  std::unique_ptr<Registrar> two;
  std::unique_ptr<Registrar> one;
  ASSERT_EQ(RailRegistrar::create({domains, 3}, &three), Status::kOk);
  ASSERT_EQ(RailRegistrar::create({domains, 2}, &two), Status::kOk);
  ASSERT_EQ(RailRegistrar::create({domains, 1}, &one), Status::kOk);
  EXPECT_EQ(RailRegistrar::create({}, &one), Status::kBadArg);
  const MemoryRange range{0x10000, 0x4000};
  std::array<IbvKey, 3> own;
  auto* key = reinterpret_cast<std::byte*>(own.data());
  ASSERT_EQ(three->pin(range, kTarget, key), Status::kOk);
  std::byte blob[64];
  size_t length = 20;
  EXPECT_EQ(three->export_key(range, key, blob, &length), Status::kBadArg);
  ASSERT_EQ(length, 40U);
  ASSERT_EQ(three->export_key(range, key, blob, &length), Status::kOk);
  std::array<IbvKey, 3> read;
  auto* imported = reinterpret_cast<std::byte*>(read.data());
  ASSERT_EQ(two->import_key(blob, length, imported), Status::kOk);
  EXPECT_EQ(read[0].rkey, own[0].rkey);
  EXPECT_EQ(read[1].rkey, own[1].rkey);
  EXPECT_EQ(read[2].rkey, 0U) << "not written";
  EXPECT_EQ(three->export_key(range, imported, blob, &length), Status::kBadArg);
  EXPECT_EQ(three->unpin(range, imported), UnpinResult::kBroken);
  // A key of a rank with fewer rails.
  std::array<IbvKey, 3> theirs;
  ASSERT_EQ(one->pin(range, kTarget, reinterpret_cast<std::byte*>(theirs.data())), Status::kOk);
  length = sizeof blob;
  ASSERT_EQ(one->export_key(range, reinterpret_cast<std::byte*>(theirs.data()), blob, &length),
            Status::kOk);
  EXPECT_EQ(length, 32U);
  ASSERT_EQ(three->import_key(blob, length, imported), Status::kOk);
  EXPECT_EQ(read[0].rkey, theirs[0].rkey);
  EXPECT_EQ(read[1].rkey, 0U);
  blob[6] = std::byte{1};
  EXPECT_EQ(three->import_key(blob, length, imported), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("2 ports"));
  blob[6] = std::byte{4};
  EXPECT_EQ(three->import_key(blob, 48, imported), Status::kBadArg);
  EXPECT_EQ(one->unpin(range, reinterpret_cast<std::byte*>(theirs.data())), UnpinResult::kDone);
  EXPECT_EQ(three->unpin(range, key), UnpinResult::kDone);
  three.reset();
  two.reset();
  one.reset();
  close_ports(ports);
}

}  // namespace
}  // namespace hydrant
