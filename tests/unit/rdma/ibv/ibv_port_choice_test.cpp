// Choice among several ports: by distance if the environment names none, by name otherwise.
#include "rdma/ibv/device/ibv_port_choice.hpp"

#include "rdma/ibv/device/port_distance.hpp"
#include "tests/fakes/fake_ibverbs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace hydrant::ibv {
namespace {

using fake_verbs::Call;
using fake_verbs::ipv4_gid;
using ::testing::HasSubstr;

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
    if (open_ports(wanted, most, &ports_, sys_.root()) != Status::kOk) return last_error_text();
    std::string names;
    for (uint32_t i = 0; i < ports_.count; ++i) {
      if (i != 0) names += " ";
      names += std::string(ports_.all[i].name) + ":" + std::to_string(ports_.all[i].number);
    }
    return names;
  }
  FakeSys sys_;
  Ports ports_;
};

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

TEST_F(IbvPortChoice, WithoutDistancesTheFirstPortIsUsedAndNoOtherOpened) {
  fake_verbs::add_device({.name = "a"});
  fake_verbs::add_device({.name = "b"});
  EXPECT_EQ(open(""), "a:1");
  EXPECT_EQ(fake_verbs::calls(Call::kOpenDevice), 1U);
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
  fake_verbs::Gid other = ipv4_gid(1);
  other.gid.raw[14] = 9;  // 10.0.9.1
  fake_verbs::add_device({.name = "near0", .gids = {other}});
  fake_verbs::add_device({.name = "near1", .ethernet = false, .lid = 3});
  for (const char* name : {"near0", "near1"}) sys_.put(name, 0);
  sys_.put("far0", 1);
  EXPECT_EQ(open(""), "far0:1");
  // A device at the smallest distance on the same network is preferred to the first.
  fake_verbs::add_device({.name = "near2"});
  sys_.put("near2", 0);
  EXPECT_EQ(open(""), "near2:1");
}

TEST_F(IbvPortChoice, NetworksAreDistinguished) {
  const auto port = [](std::initializer_list<uint8_t> first, bool is_ethernet) {
    Port made;
    made.is_ethernet = is_ethernet;
    std::copy(first.begin(), first.end(), made.gid.raw);
    return made;
  };
  const auto ipv4 = [&](uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
    return port({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}, true);
  };
  EXPECT_TRUE(is_same_network(ipv4(10, 0, 0, 1), ipv4(10, 0, 0, 200)));
  EXPECT_FALSE(is_same_network(ipv4(10, 0, 0, 1), ipv4(10, 0, 1, 1)));
  // 127.0.0.1 is an interface's, with a netmask of 8 bits; but the other's decides as well.
  EXPECT_TRUE(is_same_network(ipv4(127, 0, 0, 1), ipv4(127, 0, 0, 9)));
  const Port ipv6 = port({0x20, 1, 0, 0, 0, 0, 0, 1, 5}, true);
  EXPECT_TRUE(is_same_network(ipv6, port({0x20, 1, 0, 0, 0, 0, 0, 1, 6}, true)));
  EXPECT_FALSE(is_same_network(ipv6, port({0x20, 1, 0, 0, 0, 0, 0, 2, 5}, true)));
  EXPECT_FALSE(is_same_network(ipv6, ipv4(10, 0, 0, 1)));
  EXPECT_TRUE(is_same_network(port({0xfe, 0x80}, false), port({0xfe, 0x80}, false)));
  EXPECT_FALSE(is_same_network(port({0xfe, 0x80}, false), port({0xfe, 0x81}, false)));
  EXPECT_FALSE(is_same_network(port({0xfe, 0x80}, false), port({0xfe, 0x80}, true)));
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

TEST_F(IbvPortChoice, ReportExplainsSkippedPorts) {
  fake_verbs::add_device({.name = "far0"});
  fake_verbs::add_device({.name = "near0"});
  fake_verbs::add_device({.name = "near1"});
  fake_verbs::add_device({.name = "ib0", .ethernet = false, .lid = 3});
  fake_verbs::add_device({.name = "down0", .state = IBV_PORT_DOWN});
  sys_.put("far0", 1);
  for (const char* name : {"near0", "near1"}) sys_.put(name, 0);
  PortReports reports = report_ports("", kMaxRails, sys_.root());
  ASSERT_EQ(reports.all.size(), 5U);
  EXPECT_EQ(reports.why, "");
  EXPECT_FALSE(reports.all[0].is_chosen);
  EXPECT_EQ(reports.all[0].distance, 21U);
  EXPECT_THAT(reports.all[0].left_out, HasSubstr("farther (21) than near0:1 (10)"));
  EXPECT_TRUE(reports.all[1].is_chosen);
  EXPECT_EQ(reports.all[1].left_out, "");
  EXPECT_THAT(reports.all[2].left_out, HasSubstr("no nearer than near0:1"));
  EXPECT_THAT(reports.all[3].left_out, HasSubstr("another network than far0:1"));
  EXPECT_FALSE(reports.all[4].is_usable);
  EXPECT_THAT(reports.all[4].reason, HasSubstr("down0 port 1 is down"));
  EXPECT_EQ(reports.all[4].left_out, "");

  reports = report_ports("near1,ib0,far0", 1, sys_.root());
  EXPECT_THAT(reports.all[0].left_out, HasSubstr("names 1 before it"));
  EXPECT_THAT(reports.all[1].left_out, HasSubstr("does not name it"));
  EXPECT_TRUE(reports.all[2].is_chosen);
  EXPECT_THAT(reports.all[3].left_out, HasSubstr("of another kind than that of near1:1"));

  reports = report_ports("near1,far0", kMaxRails, sys_.root());
  EXPECT_EQ(reports.all[2].place, 0U);
  EXPECT_EQ(reports.all[0].place, 1U);
  EXPECT_TRUE(reports.all[0].is_chosen);

  EXPECT_TRUE(reports.passed_by.empty());

  reports = report_ports("near1,near0:1:77,nosuch0", kMaxRails, sys_.root());
  EXPECT_TRUE(reports.all[2].is_chosen);
  EXPECT_THAT(reports.all[1].left_out,
              HasSubstr("not as 'near0:1:77': near0 port 1 has no GID 77"));
  ASSERT_EQ(reports.passed_by.size(), 2U);
  EXPECT_EQ(reports.passed_by[0].item, "near0:1:77");
  EXPECT_EQ(reports.passed_by[1].item, "nosuch0");
  EXPECT_THAT(reports.passed_by[1].reason, HasSubstr("no verbs device 'nosuch0'"));

  reports = report_ports("none", kMaxRails, sys_.root());
  EXPECT_THAT(reports.why, HasSubstr("'none'"));
  EXPECT_EQ(reports.all[0].left_out, reports.why);
}

}  // namespace
}  // namespace hydrant::ibv
