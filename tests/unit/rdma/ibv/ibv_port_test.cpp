#include "rdma/ibv/device/gid_choice.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/device/networks.hpp"
#include "tests/fakes/fake_ibverbs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace hydrant::ibv {
namespace {

using fake_verbs::Call;
using ::testing::AllOf;
using ::testing::HasSubstr;

fake_verbs::Gid gid(std::initializer_list<uint8_t> first, uint8_t last, ibv_gid_type type) {
  fake_verbs::Gid made;
  std::copy(first.begin(), first.end(), made.gid.raw);
  made.gid.raw[15] = last;
  made.type = type;
  return made;
}
const fake_verbs::Gid kLinkLocal = gid({0xfe, 0x80}, 1, IBV_GID_TYPE_ROCE_V2);
const fake_verbs::Gid kLinkLocal1 = gid({0xfe, 0x80}, 1, IBV_GID_TYPE_ROCE_V1);
const fake_verbs::Gid kGlobal = gid({0x20, 0x01}, 1, IBV_GID_TYPE_ROCE_V2);
const fake_verbs::Gid kIpv4 = fake_verbs::ipv4_gid(7);
const fake_verbs::Gid kEmpty = gid({}, 0, IBV_GID_TYPE_ROCE_V2);

class IbvPort : public ::testing::Test {
 protected:
  void SetUp() override { fake_verbs::reset(); }
  void TearDown() override {
    if (port_.device.context != nullptr) close_ibv_device(port_.device);
    EXPECT_TRUE(fake_verbs::live().none());
  }
  Port port_;
};

TEST_F(IbvPort, TakesTheFirstThatIsUp) {
  fake_verbs::add_device({.name = "down0", .state = IBV_PORT_DOWN});
  fake_verbs::add_device({.name = "up0"});
  ASSERT_EQ(open_port("", &port_), Status::kOk) << last_error_text();
  EXPECT_STREQ(port_.name, "up0");
  EXPECT_EQ(port_.number, 1);
  EXPECT_TRUE(port_.is_ethernet);
  EXPECT_EQ(port_.max_message_bytes, 1U << 20);
}

TEST_F(IbvPort, IpV4OfVersion2IsTheBestGid) {
  EXPECT_EQ(rate_gid(kEmpty.gid, true), 0U);
  EXPECT_GT(rate_gid(kIpv4.gid, true), rate_gid(kGlobal.gid, true));
  EXPECT_GT(rate_gid(kGlobal.gid, true), rate_gid(kLinkLocal.gid, true));
  EXPECT_GT(rate_gid(kLinkLocal.gid, true), rate_gid(kIpv4.gid, false));
  fake_verbs::Gid ipv4_version_1 = kIpv4;
  ipv4_version_1.type = IBV_GID_TYPE_ROCE_V1;
  fake_verbs::add_device(
      {.gids = {kLinkLocal1, kLinkLocal, ipv4_version_1, kIpv4, kGlobal, kEmpty}});
  ASSERT_EQ(open_port("", &port_), Status::kOk);
  EXPECT_EQ(port_.gid_index, 3);
  EXPECT_EQ(std::memcmp(port_.gid.raw, kIpv4.gid.raw, 16), 0);
}

TEST_F(IbvPort, FirstOfEqualGidsIsUsed) {
  fake_verbs::add_device({.gids = {kLinkLocal, fake_verbs::ipv4_gid(1), fake_verbs::ipv4_gid(2)}});
  ASSERT_EQ(open_port("", &port_), Status::kOk);
  EXPECT_EQ(port_.gid_index, 1);
}

// A node gets its addresses in an order of its own.
TEST_F(IbvPort, GidOfTheLowestNetworkIsUsedWhereverItIsInTheTable) {
  fake_verbs::Gid other = fake_verbs::ipv4_gid(7);
  other.gid.raw[12] = 192;  // 192.0.0.7
  fake_verbs::add_device({.name = "a", .gids = {other, kIpv4}});
  fake_verbs::add_device({.name = "b", .gids = {kIpv4, other}});
  for (const char* const name : {"a", "b"}) {
    ASSERT_EQ(open_port(name, &port_), Status::kOk);
    EXPECT_EQ(std::memcmp(port_.gid.raw, kIpv4.gid.raw, 16), 0) << name;
    close_ibv_device(port_.device);
  }
  port_ = {};
}

constexpr uint32_t kLoopback = 1;  // index of the interface "lo"
constexpr uint32_t kNoInterface = 0x7ffffff0;

TEST_F(IbvPort, GidOfAnInterfaceThatIsNotThereIsTheLastChoice) {
  fake_verbs::Gid gone = kIpv4;
  gone.interface = kNoInterface;
  fake_verbs::add_device({.name = "a", .gids = {gone, kLinkLocal1}});
  ASSERT_EQ(open_port("a", &port_), Status::kOk);
  EXPECT_EQ(port_.gid_index, 1);
  EXPECT_EQ(port_.gid_version, 1);
  close_ibv_device(port_.device);
  fake_verbs::add_device({.name = "b", .gids = {gone}});
  ASSERT_EQ(open_port("b", &port_), Status::kOk) << "better than none";
}

TEST_F(IbvPort, TraitsOfGidsAreComparedInTheirOrder) {
  using State = NetworkInterfaces::State;
  const GidTraits usual{.interface = State::kUp, .rating = 5};
  NetworkId higher;
  higher.bytes[16] = 1;
  EXPECT_FALSE(is_better(usual, usual));
  for (const GidTraits& worse : {
           GidTraits{.interface = State::kUnknown, .rating = 6},
           GidTraits{.interface = State::kGone, .rating = 6},
           GidTraits{.interface = State::kUp, .rating = 4},
           GidTraits{.interface = State::kUp, .rating = 5, .is_virtual = true},
           GidTraits{.interface = State::kUp, .rating = 5, .network = higher},
       }) {
    EXPECT_TRUE(is_better(usual, worse));
    EXPECT_FALSE(is_better(worse, usual));
  }
}

TEST_F(IbvPort, InterfacesAreKnownByTheirIndex) {
  const NetworkInterfaces interfaces;
  EXPECT_EQ(interfaces.state_of(0), NetworkInterfaces::State::kUnknown);
  EXPECT_EQ(interfaces.state_of(kNoInterface), NetworkInterfaces::State::kGone);
  EXPECT_FALSE(interfaces.is_virtual(0, ""));
  EXPECT_FALSE(interfaces.is_virtual(kLoopback, ""));
  char root[] = "/tmp/hydrant-interface-XXXXXX";
  ASSERT_NE(mkdtemp(root), nullptr);
  const std::filesystem::path folder = std::string(root) + "/sys/class/net/lo";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "uevent") << "DEVTYPE=vlan\nINTERFACE=lo\nIFINDEX=1\n";
  EXPECT_TRUE(interfaces.is_virtual(kLoopback, root));
  std::filesystem::remove_all(root);
}

TEST_F(IbvPort, KnobNamesDevicePortAndGid) {
  fake_verbs::add_device({.name = "a"});
  fake_verbs::add_device({.name = "b", .ports = 2, .gids = {kIpv4, kLinkLocal}});
  ASSERT_EQ(open_port("b:2:1", &port_), Status::kOk) << last_error_text();
  EXPECT_STREQ(port_.name, "b");
  EXPECT_EQ(port_.number, 2);
  EXPECT_EQ(port_.gid_index, 1);
}

TEST_F(IbvPort, KnobIsAListInOrderOfPreference) {
  fake_verbs::add_device({.name = "a"});
  fake_verbs::add_device({.name = "b"});
  ASSERT_EQ(open_port("none,b:1,*", &port_), Status::kOk);
  EXPECT_STREQ(port_.name, "b");
}

TEST_F(IbvPort, MalformedNameIsABadArgument) {
  fake_verbs::add_device({});
  for (const char* text : {":", "a:", "a:x", "a:1:x", "a:0", "a:1:256", ",a", "a:1:2:3", "a:999",
                           "a:1:", "a::", "a::1", "*:", "a: ", " a:"}) {
    EXPECT_EQ(open_port(text, &port_), Status::kBadArg) << text;
  }
  EXPECT_THAT(last_error_text(), HasSubstr("DEVICE[:PORT[:GID]]"));
  EXPECT_EQ(open_port("a:4294967295", &port_), Status::kBadArg);
  EXPECT_EQ(open_port("a:1:1023", &port_), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("'a:1:1023': connections use no GID index above 255"));
}

TEST_F(IbvPort, MissingFeaturesAreReported) {
  EXPECT_EQ(open_port("", &port_), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("no verbs device"), HasSubstr("0 of")));
  fake_verbs::add_device({.name = "d"});
  EXPECT_EQ(open_port("x", &port_), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("'x'"), HasSubstr("HYDRANT_IBV_PORTS")));
  EXPECT_EQ(open_port("d:2", &port_), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("no port 2"));
  EXPECT_EQ(open_port("d:1:9", &port_), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("no GID 9"));
  fake_verbs::reset();
  fake_verbs::add_device({.state = IBV_PORT_DOWN});
  EXPECT_EQ(open_port("", &port_), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("port 1 is down"));
  fake_verbs::reset();
  fake_verbs::add_device({.gids = {kEmpty}});
  EXPECT_EQ(open_port("", &port_), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("no usable GID"));
  fake_verbs::reset();
  fake_verbs::add_device({.ethernet = false, .lid = 0});
  EXPECT_EQ(open_port("", &port_), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("no subnet manager"));
}

TEST_F(IbvPort, InfiniBandNeedsNoGid) {
  fake_verbs::add_device({.ethernet = false, .lid = 12, .gids = {}});
  ASSERT_EQ(open_port("", &port_), Status::kOk) << last_error_text();
  EXPECT_EQ(port_.lid, 12);
  EXPECT_FALSE(port_.is_ethernet);
}

TEST_F(IbvPort, AllPortsAreListedWithTheirFaults) {
  EXPECT_TRUE(report_ports("", 1).all.empty());
  EXPECT_THAT(report_ports("", 1).why, HasSubstr("no verbs device"));
  fake_verbs::fail_call(Call::kGetDeviceList, ENOSYS);
  EXPECT_TRUE(report_ports("", 1).all.empty());
  fake_verbs::fail_call(Call::kGetDeviceList, ENOSYS, 2);
  EXPECT_THAT(report_ports("x", 1).why, HasSubstr("ib_uverbs"));
  fake_verbs::add_device({.name = "down0", .state = IBV_PORT_DOWN});
  fake_verbs::add_device({.name = "two0", .ports = 2, .gids = {kLinkLocal, kIpv4}});
  const std::vector<PortReport> reports = report_ports("", 1).all;
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_STREQ(reports[0].port.name, "down0");
  EXPECT_FALSE(reports[0].is_usable);
  EXPECT_THAT(reports[0].reason, HasSubstr("down0 port 1 is down"));
  for (const uint8_t number : {uint8_t{1}, uint8_t{2}}) {
    const PortReport& report = reports[number];
    EXPECT_STREQ(report.port.name, "two0");
    EXPECT_EQ(report.port.number, number);
    EXPECT_TRUE(report.is_usable);
    EXPECT_EQ(report.reason, "");
    EXPECT_EQ(report.port.gid_index, 1);
    EXPECT_EQ(report.port.device.context, nullptr);
  }
  EXPECT_TRUE(fake_verbs::live().none());
  fake_verbs::fail_call(Call::kOpenDevice, EACCES);
  EXPECT_THAT(report_ports("", 1).all[0].reason, HasSubstr("down0"));
  EXPECT_TRUE(fake_verbs::live().none());
}

TEST_F(IbvPort, EveryCallMayFail) {
  fake_verbs::add_device({.name = "only0"});
  for (const Call call : {Call::kGetDeviceList, Call::kOpenDevice, Call::kAllocPd,
                          Call::kQueryDevice, Call::kQueryPort, Call::kQueryGid}) {
    fake_verbs::fail_call(call, EIO);
    EXPECT_EQ(open_port("", &port_), Status::kUnsupported) << static_cast<int>(call);
    EXPECT_STRNE(last_error_text(), "");
    EXPECT_TRUE(fake_verbs::live().none());
  }
}

}  // namespace
}  // namespace hydrant::ibv
