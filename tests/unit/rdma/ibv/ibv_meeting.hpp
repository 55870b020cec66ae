// Groups that were started separately, each with its own launcher, in this thread: they exchange their
// endpoint addresses.
#pragma once

#include "tests/unit/rdma/ibv/ibv_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hydrant::testing {

using Blob = std::vector<std::byte>;

inline Blob group_address_of(IbvRank& process) {
  Blob blob(IbvTransport::kMaxGroupAddressBytes);
  size_t bytes = 0;
  EXPECT_EQ(process.transport->group_address(blob, &bytes), Status::kOk) << last_error_text();
  blob.resize(bytes);
  return blob;
}

inline ibv::GroupAddress read_endpoint(const Blob& blob) {
  ibv::GroupAddress endpoint;
  EXPECT_EQ(ibv::decode_group_address(blob, &endpoint), Status::kOk) << last_error_text();
  return endpoint;
}

inline Blob written(const ibv::GroupAddress& endpoint) {
  Blob blob(ibv::group_address_bytes(endpoint.endpoint.rail_count));
  ibv::encode_group_address(endpoint, blob.data());
  return blob;
}

inline std::vector<Blob> group_addresses_of(IbvWorld& world) {
  std::vector<Blob> endpoints;
  for (auto& rank : world.ranks) endpoints.push_back(group_address_of(*rank));
  return endpoints;
}

inline Status join(IbvRank& process, const std::vector<Blob>& endpoints,
                   std::vector<Rank>* numbers) {
  const std::vector<std::span<const std::byte>> spans(endpoints.begin(), endpoints.end());
  numbers->assign(endpoints.size(), kNoRank);
  return process.transport->join(spans, *numbers);
}

inline IbvTransport::Options joining(uint32_t most, IbvTransport::Options options) {
  options.max_joined = most;
  return options;
}

// Two groups.
struct Meeting {
  Meeting(Rank first, Rank second, const IbvTransport::Options& options = IbvWorld::single())
      : a(first, joining(second, options)), b(second, joining(first, options)) {}
  // All ranks join the other group, in different orders: those of `a` as listed, those of `b` the last first.
  void join_all() {
    std::vector<Blob> of_a = group_addresses_of(a);
    const std::vector<Blob> of_b = group_addresses_of(b);
    std::reverse(of_a.begin(), of_a.end());
    for (auto& rank : a.ranks) join_one(*rank, of_b);
    for (auto& rank : b.ranks) join_one(*rank, of_a);
  }
  static void join_one(IbvRank& process, const std::vector<Blob>& endpoints) {
    std::vector<Rank> numbers;
    ASSERT_EQ(join(process, endpoints, &numbers), Status::kOk) << last_error_text();
    const Rank own = process.bootstrap.topology().size;
    for (Rank i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], own + i);
  }
  // The number under which rank `to` of the other group is a peer.
  Rank from_a(Rank to) const { return static_cast<Rank>(a.ranks.size()) + to; }
  Rank from_b(Rank to) const { return static_cast<Rank>(b.ranks.size() + a.ranks.size()) - 1 - to; }
  void poll_all() {
    for (IbvWorld* world : {&a, &b}) {
      for (auto& rank : world->ranks) {
        if (rank != nullptr) rank->poll();
      }
    }
  }
  bool until(const std::function<bool()>& holds) {
    const uint64_t deadline = in_seconds(10);
    while (!holds()) {
      if (now_ns() > deadline) return false;
      poll_all();
    }
    return true;
  }
  Status insist(const std::function<Status()>& attempt) {
    Status status = Status::kNotReady;
    (void)until([&] { return (status = attempt()) != Status::kNotReady; });
    return status;
  }
  Status send(IbvRank& from, Rank to, Lane lane, const std::string& text) {
    return insist([&] { return from.try_send(to, lane, 1, text); });
  }

  IbvWorld a;
  IbvWorld b;
};

// All processes send to all others, on both lanes, with and without a cell: the text names the sender, the
// number must agree.
inline void all_talk_to_all(Meeting& meeting) {
  struct Process {
    IbvRank* rank;
    std::string name;
    std::vector<std::pair<Rank, std::string>> peers;  // number and name
  };
  std::vector<Process> all;
  const auto name = [](char group, Rank rank) { return group + std::to_string(rank); };
  const auto a = static_cast<Rank>(meeting.a.ranks.size());
  const auto b = static_cast<Rank>(meeting.b.ranks.size());
  for (Rank i = 0; i < a; ++i) {
    Process& one = all.emplace_back(Process{meeting.a.ranks[i].get(), name('a', i), {}});
    for (Rank j = 0; j < a; ++j) {
      if (j != i) one.peers.emplace_back(j, name('a', j));
    }
    for (Rank j = 0; j < b; ++j) one.peers.emplace_back(meeting.from_a(j), name('b', j));
  }
  for (Rank i = 0; i < b; ++i) {
    Process& one = all.emplace_back(Process{meeting.b.ranks[i].get(), name('b', i), {}});
    for (Rank j = 0; j < b; ++j) {
      if (j != i) one.peers.emplace_back(j, name('b', j));
    }
    for (Rank j = 0; j < a; ++j) one.peers.emplace_back(meeting.from_b(j), name('a', j));
  }
  for (Process& from : all) {
    for (const auto& [number, to] : from.peers) {
      const std::string text = from.name + to;
      ASSERT_EQ(meeting.send(*from.rank, number, Lane::kRequest, text), Status::kOk)
          << text << last_error_text();
      const Rank peer = number;
      ASSERT_EQ(meeting.insist([&] {
        return from.rank->try_send_cell(peer, Lane::kReply, 2, text, text + text);
      }),
                Status::kOk)
          << text << last_error_text();
    }
  }
  for (Process& to : all) {
    ASSERT_TRUE(meeting.until([&] { return to.rank->inbox.count >= 2 * to.peers.size(); }));
    std::multiset<std::string> expected;
    std::multiset<std::string> found;
    for (const auto& [number, from] : to.peers) {
      expected.insert(std::to_string(number) + " " + from + to.name + " ");
      expected.insert(std::to_string(number) + " " + from + to.name + " " + from + to.name + from +
                      to.name);
    }
    for (const Inbox::Letter& letter : to.rank->inbox.letters)
      found.insert(std::to_string(letter.from) + " " + letter.head + " " + letter.payload);
    EXPECT_EQ(found, expected) << to.name;
  }
}

}  // namespace hydrant::testing
