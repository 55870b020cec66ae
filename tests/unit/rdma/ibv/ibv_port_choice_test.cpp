// Choice among several ports: by kind, rate, network and distance if the environment names none, by name
// otherwise.
#include "rdma/ibv/device/ibv_port_choice.hpp"

#include "rdma/ibv/device/networks.hpp"
#include "rdma/ibv/device/port_distance.hpp"
#include "rdma/ibv/device/port_rank.hpp"
#include "tests/fakes/fake_ibverbs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace hydrant::ibv {
namespace {

using fake_verbs::Call;
using fake_verbs::ipv4_gid;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Two memory nodes. All possible processors are on the first one, whatever this machine has.
class FakeSys {
 public:
  FakeSys() {
    char name[] = "/tmp/hydrant-port-XXXXXX";
    root_ = mkdtemp(name);
    write("devices/system/node/online", "0-1\n");
    write("devices/system/node/node0/cpulist", "0-1023\n");
    write("devices/system/node/node0/distance", "10 21\n");
    write("devices/system/node/node1/cpulist", "\n");
    write("devices/system/node/node1/distance", "21 10\n");
  }
  ~FakeSys() { std::filesystem::remove_all(root_); }
  FakeSys(const FakeSys&) = delete;
  FakeSys& operator=(const FakeSys&) = delete;
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + "/sys/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  void put(const std::string& device, int node) {
    write("class/infiniband/" + device + "/device/numa_node", std::to_string(node) + "\n");
  }
  const char* root() const { return root_.c_str(); }

 private:
  std::string root_;
};

class IbvPortChoice : public ::testing::Test {
 protected:
  void SetUp() override { fake_verbs::reset(); }
  void TearDown() override {
    close_ports(ports_);
    EXPECT_TRUE(fake_verbs::live().none());
  }
  // The names of what is opened, or the text of the error.
  std::string open(const char* wanted, uint32_t most = kMaxRails) {
    close_ports(ports_);
    ports_ = {};
    if (open_ports(wanted, most, &ports_, settings()) != Status::kOk) return last_error_text();
    std::string names;
    for (uint32_t i = 0; i < ports_.count; ++i) {
      if (i != 0) names += " ";
      names += std::string(ports_.all[i].name) + ":" + std::to_string(ports_.all[i].number);
    }
    return names;
  }
  PortReports report(const char* wanted, uint32_t most = kMaxRails) {
    return report_ports(wanted, most, settings());
  }
  PortSettings settings() const { return {.root = sys_.root()}; }
  FakeSys sys_;
  Ports ports_;
};

fake_verbs::Gid gid_of_another_network() {
  fake_verbs::Gid other = ipv4_gid(1);
  other.gid.raw[14] = 9;  // 10.0.9.1
  return other;
}

TEST_F(IbvPortChoice, DistanceIsThatOfTheProcessors) {
  sys_.put("near0", 0);
  sys_.put("far0", 1);
  sys_.put("nowhere0", -1);
  EXPECT_EQ(distance_to("near0", sys_.root()), 10U);
  EXPECT_EQ(distance_to("far0", sys_.root()), 21U);
  EXPECT_EQ(distance_to("nowhere0", sys_.root()), kUnknownDistance);
  EXPECT_EQ(distance_to("absent0", sys_.root()), kUnknownDistance);
  sys_.write("devices/system/node/node1/distance", "21\n");
  EXPECT_EQ(distance_to("far0", sys_.root()), kUnknownDistance);
}

// (No real machine reports this, but each processor counts on both nodes here.)
TEST_F(IbvPortChoice, DistanceIsTheMeanOverTheProcessors) {
  sys_.put("near0", 0);
  sys_.write("devices/system/node/node0/cpulist", "0-1023\n");
  sys_.write("devices/system/node/node1/cpulist", "0-1023\n");
  EXPECT_EQ(distance_to("near0", sys_.root()), 16U);  // (10 + 21) / 2
}

TEST_F(IbvPortChoice, NearestPortIsChosenWithoutAKnob) {
  fake_verbs::add_device({.name = "far0"});
  fake_verbs::add_device({.name = "unknown0"});
  fake_verbs::add_device({.name = "near0"});
  fake_verbs::add_device({.name = "near1"});
  sys_.put("far0", 1);
  sys_.put("near0", 0);
  sys_.put("near1", 0);
  EXPECT_EQ(open(""), "near0:1");
  EXPECT_EQ(open("*"), "far0:1 unknown0:1 near0:1 near1:1");
}

TEST_F(IbvPortChoice, InfiniBandIsPreferredToAFasterAndNearerRocePort) {
  fake_verbs::add_device({.name = "roce0", .speed = 128});
  fake_verbs::add_device({.name = "ib0", .ethernet = false, .lid = 3, .speed = 4});
  sys_.put("roce0", 0);
  sys_.put("ib0", 1);
  EXPECT_EQ(open(""), "ib0:1");
}

TEST_F(IbvPortChoice, FasterPortIsPreferredToANearerOne) {
  fake_verbs::add_device({.name = "slow0", .width = 1});
  fake_verbs::add_device({.name = "fast0"});
  sys_.put("slow0", 0);
  sys_.put("fast0", 1);
  EXPECT_EQ(open(""), "fast0:1");
  EXPECT_EQ(ports_.all[0].rate_mbps, 100'000U);
}

TEST_F(IbvPortChoice, IwarpAdapterIsNeverUsed) {
  fake_verbs::add_device({.name = "iwarp0", .transport = IBV_TRANSPORT_IWARP, .speed = 128});
  EXPECT_THAT(open(""), HasSubstr("iwarp0 cannot be used: it is an iWARP adapter"));
  fake_verbs::add_device({.name = "roce0"});
  EXPECT_EQ(open(""), "roce0:1");
  EXPECT_EQ(open("*"), "roce0:1");
  EXPECT_EQ(open("iwarp0,roce0"), "roce0:1");
  EXPECT_THAT(open("iwarp0"), HasSubstr("iWARP"));
  EXPECT_THAT(report("").all[0].reason, HasSubstr("iWARP"));
}

TEST_F(IbvPortChoice, SoftwareDeviceThatWasLeftOverIsTheLastChoice) {
  constexpr uint32_t kVendorOfRxe = 0xffffff;
  fake_verbs::add_device({.name = "rxe0", .vendor = kVendorOfRxe, .speed = 128});
  EXPECT_EQ(open(""), "rxe0:1");
  fake_verbs::add_device({.name = "roce0", .speed = 1});
  sys_.put("rxe0", 0);
  sys_.put("roce0", 1);
  EXPECT_EQ(open(""), "roce0:1");
  EXPECT_THAT(report("").all[0].left_out,
              HasSubstr("it is a software device, and roce0:1 is an adapter"));
}

TEST_F(IbvPortChoice, PortsOfADeviceMayDiffer) {
  fake_verbs::Device two{.name = "two0", .ports = 2, .speed = 128};
  two.further_ports = {{.ethernet = false, .lid = 3}};
  fake_verbs::add_device(two);
  fake_verbs::add_device({.name = "roce0"});
  EXPECT_EQ(open(""), "two0:2");
  EXPECT_EQ(fake_verbs::live().contexts, 1U);
  EXPECT_EQ(open("two0"), "two0:1");
}

TEST_F(IbvPortChoice, OrderOfTheDevicesDecidesNothing) {
  std::vector<fake_verbs::Device> devices = {
      {.name = "iwarp0", .transport = IBV_TRANSPORT_IWARP},
      {.name = "rxe0", .vendor = 0xffffff},
      {.name = "mlx5_10"},
      {.name = "mlx5_2"},
      {.name = "mlx5_1", .gids = {gid_of_another_network()}},
  };
  const auto is_lower = [](const auto& a, const auto& b) {
    return std::strcmp(a.name, b.name) < 0;
  };
  std::sort(devices.begin(), devices.end(), is_lower);
  do {
    fake_verbs::reset();
    for (const fake_verbs::Device& device : devices) fake_verbs::add_device(device);
    ASSERT_EQ(open(""), "mlx5_2:1");
    EXPECT_EQ(fake_verbs::live().contexts, 1U);
    close_ports(ports_);
    ports_ = {};
  } while (std::next_permutation(devices.begin(), devices.end(), is_lower));
}

TEST_F(IbvPortChoice, FabricsWithOnePrefixAreToldApartByTheirSubnetManagers) {
  fake_verbs::Gid gid;
  gid.gid.raw[0] = 0xfe;
  gid.gid.raw[1] = 0x80;
  fake_verbs::add_device({.name = "b", .ethernet = false, .lid = 5, .sm_lid = 2, .gids = {gid}});
  fake_verbs::add_device({.name = "a", .ethernet = false, .lid = 5, .sm_lid = 1, .gids = {gid}});
  for (const int node_of_a : {0, 1}) {
    sys_.put("a", node_of_a);
    sys_.put("b", 1 - node_of_a);
    EXPECT_EQ(open(""), "a:1");
  }
}

TEST_F(IbvPortChoice, WithoutDistancesTheLowestNameIsUsed) {
  fake_verbs::add_device({.name = "b"});
  fake_verbs::add_device({.name = "a"});
  EXPECT_EQ(open(""), "a:1");
  EXPECT_EQ(fake_verbs::live().contexts, 1U);
}

TEST_F(IbvPortChoice, FirstActivePortWinsAmongEquallyNear) {
  fake_verbs::add_device({.name = "far0"});
  fake_verbs::add_device({.name = "down0", .state = IBV_PORT_DOWN});
  fake_verbs::add_device({.name = "near0", .ports = 2});
  fake_verbs::add_device({.name = "near1"});
  sys_.put("far0", 1);
  for (const char* name : {"down0", "near0", "near1"}) sys_.put(name, 0);
  EXPECT_EQ(open(""), "near0:1");
}

TEST_F(IbvPortChoice, NearerPortOfAnotherNetworkIsSkipped) {
  fake_verbs::add_device({.name = "far0"});
  fake_verbs::add_device({.name = "near0", .gids = {gid_of_another_network()}});
  sys_.put("near0", 0);
  sys_.put("far0", 1);
  EXPECT_EQ(open(""), "far0:1");
  // A device at the smallest distance on the same network is preferred to the first.
  fake_verbs::add_device({.name = "near2"});
  sys_.put("near2", 0);
  EXPECT_EQ(open(""), "near2:1");
}

TEST_F(IbvPortChoice, NetworksAreDistinguished) {
  const NetworkInterfaces interfaces;
  const auto gid = [](std::initializer_list<uint8_t> first) {
    ibv_gid made{};
    std::copy(first.begin(), first.end(), made.raw);
    return made;
  };
  const auto ipv4 = [&](uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
    return ethernet_network(gid({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}),
                            interfaces);
  };
  EXPECT_EQ(ipv4(10, 0, 0, 1), ipv4(10, 0, 0, 200));
  EXPECT_NE(ipv4(10, 0, 0, 1), ipv4(10, 0, 1, 1));
  // 127.0.0.1 is an interface's, with a netmask of 8 bits.
  EXPECT_EQ(ipv4(127, 0, 0, 1), ipv4(127, 0, 0, 1));
  const NetworkId ipv6 = ethernet_network(gid({0x20, 1, 0, 0, 0, 0, 0, 1, 5}), interfaces);
  EXPECT_EQ(ipv6, ethernet_network(gid({0x20, 1, 0, 0, 0, 0, 0, 1, 6}), interfaces));
  EXPECT_NE(ipv6, ethernet_network(gid({0x20, 1, 0, 0, 0, 0, 0, 2, 5}), interfaces));
  EXPECT_NE(ipv6, ipv4(10, 0, 0, 1));
  const NetworkId infiniband = infiniband_network(gid({0xfe, 0x80}), 1);
  EXPECT_EQ(infiniband, infiniband_network(gid({0xfe, 0x80, 0, 0, 0, 0, 0, 0, 7}), 1));
  EXPECT_NE(infiniband, infiniband_network(gid({0xfe, 0x81}), 1));
  EXPECT_NE(infiniband, infiniband_network(gid({0xfe, 0x80}), 2));
  EXPECT_NE(infiniband, ethernet_network(gid({0xfe, 0x80}), interfaces));
}

TEST_F(IbvPortChoice, NamesSelectAllMatchingPorts) {
  fake_verbs::add_device({.name = "a", .ports = 2});
  fake_verbs::add_device({.name = "b", .ports = 2, .gids = {ipv4_gid(3), ipv4_gid(4)}});
  EXPECT_EQ(open("a"), "a:1 a:2");
  EXPECT_EQ(ports_.all[0].device.context, ports_.all[1].device.context);
  EXPECT_EQ(fake_verbs::live().contexts, 1U);
  EXPECT_EQ(open("b:2:1,a:1"), "b:2 a:1");
  EXPECT_EQ(ports_.all[0].gid_index, 1);
  EXPECT_EQ(open("b:2,b:2,b"), "b:2 b:1");
  EXPECT_EQ(open("none,b:1,*"), "b:1 a:1 a:2 b:2");
  EXPECT_EQ(fake_verbs::live().contexts, 2U);
  EXPECT_EQ(open("none,b:1,*", 1), "b:1");
  EXPECT_EQ(open("*", 3), "a:1 a:2 b:1");
}

TEST_F(IbvPortChoice, PortsThatAreDownOrOfAnotherLinkAreSkipped) {
  fake_verbs::add_device({.name = "down0", .state = IBV_PORT_DOWN});
  fake_verbs::add_device({.name = "a"});
  fake_verbs::add_device({.name = "ib0", .ethernet = false, .lid = 3});
  fake_verbs::add_device({.name = "b"});
  EXPECT_EQ(open("down0,a,ib0,b"), "a:1 b:1");
  EXPECT_EQ(open("ib0,a"), "ib0:1");
  EXPECT_THAT(open("down0"), HasSubstr("port 1 is down"));
  EXPECT_EQ(ports_.count, 0U);
  EXPECT_THAT(open("a,a:0"), HasSubstr("'a:0'"));
  EXPECT_EQ(fake_verbs::live().contexts, 0U);
}

TEST_F(IbvPortChoice, EveryCallMayFail) {
  fake_verbs::add_device({.name = "a"});
  fake_verbs::add_device({.name = "b"});
  for (const Call call :
       {Call::kOpenDevice, Call::kAllocPd, Call::kQueryDevice, Call::kQueryPort, Call::kQueryGid}) {
    fake_verbs::fail_call(call, EIO, 1);
    EXPECT_EQ(open("a,b"), "b:1") << static_cast<int>(call);
    fake_verbs::fail_call(call, EIO, 2);
    EXPECT_EQ(open("a,b"), "a:1") << static_cast<int>(call);
  }
}

TEST_F(IbvPortChoice, ReportExplainsWhyPortsAreNotTheBest) {
  fake_verbs::add_device({.name = "far0"});
  fake_verbs::add_device({.name = "near0"});
  fake_verbs::add_device({.name = "near1"});
  fake_verbs::add_device({.name = "other0", .gids = {gid_of_another_network()}});
  fake_verbs::add_device({.name = "slow0", .width = 1});
  fake_verbs::add_device({.name = "down0", .state = IBV_PORT_DOWN});
  sys_.put("far0", 1);
  for (const char* name : {"near0", "near1", "other0", "slow0"}) sys_.put(name, 0);
  PortReports reports = report("");
  ASSERT_EQ(reports.all.size(), 6U);
  EXPECT_EQ(reports.why, "");
  EXPECT_FALSE(reports.all[0].is_chosen);
  EXPECT_EQ(reports.all[0].distance, 21U);
  EXPECT_THAT(reports.all[0].left_out, HasSubstr("farther (21) than near0:1 (10)"));
  EXPECT_TRUE(reports.all[1].is_chosen);
  EXPECT_EQ(reports.all[1].left_out, "");
  EXPECT_THAT(reports.all[2].left_out, HasSubstr("no nearer than near0:1"));
  EXPECT_THAT(reports.all[3].left_out, HasSubstr("another network than near0:1"));
  EXPECT_THAT(reports.all[4].left_out, HasSubstr("slower (25 Gbit/s) than near0:1 (100 Gbit/s)"));
  EXPECT_FALSE(reports.all[5].is_usable);
  EXPECT_THAT(reports.all[5].reason, HasSubstr("down0 port 1 is down"));
  EXPECT_EQ(reports.all[5].left_out, "");
  fake_verbs::add_device({.name = "ib0", .ethernet = false, .lid = 3});
  reports = report("");
  EXPECT_TRUE(reports.all[6].is_chosen);
  EXPECT_THAT(reports.all[1].left_out, HasSubstr("it is RoCE, and ib0:1 is InfiniBand"));
}

TEST_F(IbvPortChoice, ReportExplainsSkippedPorts) {
  fake_verbs::add_device({.name = "far0"});
  fake_verbs::add_device({.name = "near0"});
  fake_verbs::add_device({.name = "near1"});
  fake_verbs::add_device({.name = "ib0", .ethernet = false, .lid = 3});
  fake_verbs::add_device({.name = "down0", .state = IBV_PORT_DOWN});
  PortReports reports = report("near1,ib0,far0", 1);
  EXPECT_THAT(reports.all[0].left_out, HasSubstr("names 1 before it"));
  EXPECT_THAT(reports.all[1].left_out, HasSubstr("does not name it"));
  EXPECT_TRUE(reports.all[2].is_chosen);
  EXPECT_THAT(reports.all[3].left_out, HasSubstr("of another kind than that of near1:1"));

  reports = report("near1,far0");
  EXPECT_EQ(reports.all[2].place, 0U);
  EXPECT_EQ(reports.all[0].place, 1U);
  EXPECT_TRUE(reports.all[0].is_chosen);

  EXPECT_TRUE(reports.passed_by.empty());

  reports = report("near1,near0:1:77,nosuch0");
  EXPECT_TRUE(reports.all[2].is_chosen);
  EXPECT_THAT(reports.all[1].left_out,
              HasSubstr("not as 'near0:1:77': near0 port 1 has no GID 77"));
  ASSERT_EQ(reports.passed_by.size(), 2U);
  EXPECT_EQ(reports.passed_by[0].item, "near0:1:77");
  EXPECT_EQ(reports.passed_by[1].item, "nosuch0");
  EXPECT_THAT(reports.passed_by[1].reason, HasSubstr("no verbs device 'nosuch0'"));

  reports = report("none");
  EXPECT_THAT(reports.why, HasSubstr("'none'"));
  EXPECT_EQ(reports.all[0].left_out, "HYDRANT_IBV_PORTS does not name it");
  reports = report("far0:1:77");
  EXPECT_THAT(reports.all[0].left_out, HasSubstr("not as 'far0:1:77': far0 port 1 has no GID 77"));
}

TEST_F(IbvPortChoice, ItemsThatAddNoPortAreToldWithTheReason) {
  fake_verbs::add_device({.name = "a"});
  fake_verbs::add_device({.name = "two0", .ports = 2});
  fake_verbs::add_device({.name = "ib0", .ethernet = false, .lid = 3});
  constexpr const char* kNoDevice =
      "no verbs device 'b' among the 3 of /sys/class/infiniband: a, two0, ib0 (";
  const struct {
    const char* wanted;
    const char* item;
    const char* reason;
  } cases[] = {{"a,b", "b", kNoDevice},
               {"b,a", "b", kNoDevice},
               {"a, a:1", "a:1", "an item before it names a:1"},
               {"a,a:7", "a:7", "a has no port 7: it has 1, counted from 1"},
               {"a,two0:3", "two0:3", "two0 has no port 3: it has 2, counted from 1"},
               {"a,ib0", "ib0", "the link of ib0:1 is of another kind than that of a:1"}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.wanted);
    Ports ports;
    std::vector<PassedBy> passed_by;
    ASSERT_EQ(open_ports(one.wanted, kMaxRails, &ports, settings(), &passed_by), Status::kOk);
    EXPECT_EQ(ports.count, 1U);
    close_ports(ports);
    ASSERT_EQ(passed_by.size(), 1U);
    EXPECT_EQ(passed_by[0].item, one.item);
    EXPECT_THAT(passed_by[0].reason, HasSubstr(one.reason));
  }
}

TEST_F(IbvPortChoice, FirstFailureIsReportedWithTheNumberOfOthers) {
  for (const char* name : {"down0", "down1", "down2"})
    fake_verbs::add_device({.name = name, .state = IBV_PORT_DOWN});
  for (const char* wanted : {"", "*", "down0,down1,down2"}) {
    EXPECT_THAT(open(wanted), AllOf(HasSubstr("down0 port 1 is down"),
                                    HasSubstr("; 2 more cannot be used either: see hydrant-info")));
  }
  EXPECT_THAT(open("down1"), AllOf(HasSubstr("down1"), Not(HasSubstr("more"))));
}

TEST_F(IbvPortChoice, ListOfDevicesInATextIsBounded) {
  static const char* const kNames[] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"};
  for (const char* name : kNames) fake_verbs::add_device({.name = name});
  EXPECT_THAT(open("x"), HasSubstr(": d0, d1, d2, d3, d4, d5, d6, d7, ... ("));
}

TEST_F(IbvPortChoice, RatesMayBeFractions) {
  EXPECT_EQ(rate_text(2500), "2.5 Gbit/s");
  EXPECT_EQ(rate_text(400'000), "400 Gbit/s");
  EXPECT_EQ(rate_text(0), "not known");
}

}  // namespace
}  // namespace hydrant::ibv
