// On-demand paging over the fake: which devices support what puts and gets need of it, and local memory that
// is not registered.
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "tests/unit/rdma/ibv/ibv_rails_world.hpp"

#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace hydrant {
namespace {

using ::testing::HasSubstr;
using testing::IbvWorld;
using testing::PinnedMemory;

class IbvOnDemand : public testing::RailTest {};

TEST_F(IbvOnDemand, NeedsAllOfMemoryAndWritesAndReads) {
  const struct {
    bool odp, implicit;
    uint32_t rc;
    bool extended, usable;
  } rows[] = {
      {true, true, IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ, true, true},
      {true, true, IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ, true, true},
      {true, true, IBV_ODP_SUPPORT_WRITE, true, false},
      {true, true, IBV_ODP_SUPPORT_READ, true, false},
      {true, true, IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV, true, false},
      {true, false, IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ, true, false},
      {false, true, IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ, true, false},
      {true, true, IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ, false, false},
  };
  for (const auto& row : rows) {
    fake_verbs::reset();
    fake_verbs::add_device(
        {.odp = row.odp, .implicit_odp = row.implicit, .rc_odp = row.rc, .extended = row.extended});
    std::unique_ptr<IbvRegistrar> registrar;
    ASSERT_EQ(IbvRegistrar::open(nullptr, &registrar), Status::kOk);
    alignas(IbvKey) std::byte key[sizeof(IbvKey)];
    const Status status = registrar->implicit_key(Access::kLocalRead, key);
    EXPECT_EQ(status, row.usable ? Status::kOk : Status::kUnsupported) << row.rc;
    if (!row.usable) {
      EXPECT_THAT(last_error_text(), HasSubstr("RDMA writes and reads"));
    }
    registrar.reset();
    const ibv::PortReports reports = ibv::report_ports("", 1);
    ASSERT_EQ(reports.all.size(), 1U);
    EXPECT_EQ(reports.all[0].on_demand, row.usable) << row.rc;
  }
}

// A device whose attributes cannot be queried counts as one without the feature.
TEST_F(IbvOnDemand, PortOfADeviceWithoutAttributesIsUsable) {
  add_devices(1, {.odp = true, .implicit_odp = true});
  fake_verbs::fail_call(fake_verbs::Call::kQueryDevice, EIO, 2);
  const ibv::PortReports reports = ibv::report_ports("", 1);
  ASSERT_EQ(reports.all.size(), 1U);
  EXPECT_TRUE(reports.all[0].is_usable);
  EXPECT_FALSE(reports.all[0].on_demand);
}

// With one port, and with two devices, each of which pages by a key of its own.
TEST_F(IbvOnDemand, TransfersUnregisteredMemory) {
  for (const uint32_t devices : {1U, 2U}) {
    fake_verbs::reset();
    add_devices(devices, {.odp = true, .implicit_odp = true});
    IbvWorld world(2, testing::rail_options());
    ASSERT_TRUE(settle(world, devices));
    constexpr size_t kBytes = 4 * testing::kStripe;
    PinnedMemory there(*world[1].transport, Access::kRemoteWrite | Access::kRemoteRead, kBytes);
    PinnedMemory importer(*world[0].transport, Access::kLocalRead, 4096);
    std::vector<std::byte> remote_key(there.key.size());
    import(there, *importer.registrar, remote_key.data());
    const PinnedOperations::Pinned remote{there.address(), remote_key.data()};

    const size_t registered = fake_verbs::live().mrs;
    alignas(8) std::byte read_key[128], write_key[128];
    ASSERT_LE(importer.registrar->traits().key_bytes, sizeof read_key);
    ASSERT_EQ(importer.registrar->implicit_key(Access::kLocalRead, read_key), Status::kOk);
    ASSERT_EQ(importer.registrar->implicit_key(Access::kLocalWrite, write_key), Status::kOk);
    EXPECT_EQ(fake_verbs::live().mrs, registered + 2 * devices);

    std::vector<std::byte> source(kBytes), target(kBytes);
    for (size_t i = 0; i < kBytes; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 251);
    const auto at = [](std::vector<std::byte>& data) {
      return reinterpret_cast<uintptr_t>(data.data());
    };
    ASSERT_EQ(put(world, remote, {at(source), read_key}, kBytes), Status::kOk) << last_error_text();
    EXPECT_EQ(std::memcmp(there.data.get(), source.data(), kBytes), 0);
    ASSERT_EQ(get(world, remote, {at(target), write_key}, kBytes), Status::kOk);
    EXPECT_EQ(target, source);
    EXPECT_EQ(fake_verbs::live().mrs, registered + 2 * devices);
  }
}

// A key for local reads gives neither the adapter nor any peer a right to write.
TEST_F(IbvOnDemand, KeyHasOnlyTheRequestedRights) {
  add_devices(1, {.odp = true, .implicit_odp = true});
  std::unique_ptr<IbvRegistrar> registrar;
  ASSERT_EQ(IbvRegistrar::open(nullptr, &registrar), Status::kOk);
  alignas(IbvKey) std::byte key[sizeof(IbvKey)];
  ASSERT_EQ(registrar->implicit_key(Access::kLocalRead, key), Status::kOk);
  EXPECT_EQ(fake_verbs::last_registration().access, unsigned{IBV_ACCESS_ON_DEMAND});
  ASSERT_EQ(registrar->implicit_key(Access::kLocalWrite, key), Status::kOk);
  EXPECT_EQ(fake_verbs::last_registration().access,
            unsigned{IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE});
}

}  // namespace
}  // namespace hydrant
