// Executes the schedules of all members of a team in one thread, in a random order of members, and counts
// messages.
#pragma once

#include "extended/collective/steps/schedules.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace hydrant::testing {

using Bytes = std::vector<std::byte>;

class SimulatedTeam {
 public:
  using Builder = std::function<Schedule(Member)>;
  // left op right, into out; left and right may be changed by the next call only.
  using Combine =
      std::function<void(const std::byte* left, std::byte* right, std::byte* out, size_t bytes)>;

  SimulatedTeam(Rank size, size_t source_bytes, size_t dest_bytes)
      : sources(size, Bytes(source_bytes)),
        dests(size, Bytes(dest_bytes)),
        nodes(size),
        messages_of(size),
        bytes_sent_of(size),
        peers_of(size) {
    std::iota(nodes.begin(), nodes.end(), 0u);
  }

  // Source and dest of each member.
  std::vector<Bytes> sources;
  std::vector<Bytes> dests;
  // The node of each member, each one's own if not set; and how many bits Member::node_bits has.
  std::vector<uint32_t> nodes;
  uint32_t node_bits = 0;
  // Messages, their bytes, and peers by sender.
  std::vector<uint64_t> messages_of;
  std::vector<uint64_t> bytes_sent_of;
  std::vector<std::set<Rank>> peers_of;
  uint64_t messages = 0;
  uint64_t bytes_sent = 0;
  uint64_t messages_between_nodes = 0;
  uint64_t bytes_between_nodes = 0;
  bool in_place = false;  // dest is the source

  // False: the schedules wait for each other.
  bool run(const Builder& build, const Combine& combine, std::mt19937& random) {
    const auto size = static_cast<Rank>(sources.size());
    std::vector<Schedule> schedules;
    std::vector<size_t> next(size);
    scratch_.clear();
    for (Rank rank = 0; rank < size; ++rank) {
      schedules.push_back(build({rank, size, node_bits}));
      EXPECT_TRUE(schedules.back().ok());
      scratch_.emplace_back(schedules.back().scratch_bytes());
    }
    for (;;) {
      std::vector<Rank> waiting;
      for (Rank rank = 0; rank < size; ++rank) {
        if (next[rank] < schedules[rank].steps().size()) waiting.push_back(rank);
      }
      if (waiting.empty()) return network_is_empty();
      std::shuffle(waiting.begin(), waiting.end(), random);
      bool moved = false;
      for (const Rank rank : waiting) {
        if (!execute(rank, schedules[rank].steps()[next[rank]], combine)) continue;
        ++next[rank];
        moved = true;
      }
      if (!moved) return false;
    }
  }

 private:
  std::byte* at(Rank rank, Place place) {
    Bytes& area = place.area == Area::kSource ? (in_place ? dests[rank] : sources[rank])
                  : place.area == Area::kDest ? dests[rank]
                                              : scratch_[rank];
    EXPECT_LE(place.offset, area.size());
    return area.data() + place.offset;
  }

  bool execute(Rank rank, const Step& step, const Combine& combine) {
    switch (step.kind) {
      case Step::Kind::kSend: {
        const std::byte* data = at(rank, step.from);
        auto& queue = network_[{rank, step.peer, step.tag}];
        // A key identifies one transfer.
        EXPECT_TRUE(used_.insert({rank, step.peer, step.tag}).second);
        queue.emplace_back(data, data + step.bytes);
        ++messages;
        ++messages_of[rank];
        bytes_sent += step.bytes;
        bytes_sent_of[rank] += step.bytes;
        if (nodes[rank] != nodes[step.peer]) {
          ++messages_between_nodes;
          bytes_between_nodes += step.bytes;
        }
        peers_of[rank].insert(step.peer);
        return true;
      }
      case Step::Kind::kReceive: {
        auto& queue = network_[{step.peer, rank, step.tag}];
        if (queue.empty()) return false;
        EXPECT_EQ(queue.front().size(), step.bytes);
        if (step.bytes != 0) std::memcpy(at(rank, step.to), queue.front().data(), step.bytes);
        queue.pop_front();
        return true;
      }
      case Step::Kind::kCopy:
        std::memmove(at(rank, step.to), at(rank, step.from), step.bytes);
        return true;
      case Step::Kind::kCombine:
        EXPECT_NE(step.with.area, Area::kSource) << "user functions would overwrite the source";
        combine(at(rank, step.from), at(rank, step.with), at(rank, step.to), step.bytes);
        return true;
    }
    return false;
  }

  bool network_is_empty() const {
    for (const auto& [key, queue] : network_) {
      if (!queue.empty()) return false;
    }
    return true;
  }

  std::vector<Bytes> scratch_;
  std::map<std::tuple<Rank, Rank, uint32_t>, std::deque<Bytes>> network_;
  std::set<std::tuple<Rank, Rank, uint32_t>> used_;
};

}  // namespace hydrant::testing
