// A rank behind an injected network, in this process: the clock advances when a test says so.
#pragma once

#include "rdma/injected/injected_transport.hpp"
#include "tests/unit/rdma/shm/node_world.hpp"

#include <atomic>
#include <vector>

namespace hydrant::testing {

inline std::atomic<uint64_t> test_clock_ns{0};
inline uint64_t test_clock() noexcept { return test_clock_ns.load(); }

// Rank 0 of `ranks` behind a network; the others have none.
struct InjectedNode {
  explicit InjectedNode(const InjectedNetwork& network, uint32_t ranks = 2, bool has_thread = false)
      : file(ranks) {
    test_clock_ns = 1'000'000;
    for (uint32_t i = 0; i < ranks; ++i) {
      all.push_back(std::make_unique<NodeRank>(file.fd, i, ranks, ShmTransport::Threads::kMany));
    }
    JobTopology place;
    place.size = ranks;
    place.node_ranks.clear();
    for (uint32_t i = 0; i < ranks; ++i) place.node_ranks.push_back(i);
    InjectedTransport::Options options{.network = network, .has_thread = has_thread};
    if (!has_thread) options.clock = test_clock;
    EXPECT_EQ(InjectedTransport::open(std::move(all[0]->transport), place, options, &net),
              Status::kOk)
        << last_error_text();
  }

  Status send(Rank to, Lane lane, uint32_t tag, uint64_t value) {
    Outgoing room;
    const Status status = net->messages(to).reserve(to, lane, sizeof value, &room);
    if (status != Status::kOk) return status;
    std::memcpy(room.head, &value, sizeof value);
    net->messages(to).commit(room, tag);
    return Status::kOk;
  }
  Status send_cell(Rank to, Lane lane, const std::string& text) {
    Cell cell;
    Status status =
        net->messages(to).take_cell(to, lane, static_cast<uint32_t>(text.size()), &cell);
    if (status != Status::kOk) return status;
    Outgoing room;
    status = net->messages(to).reserve(to, lane, 8, &room);
    if (status != Status::kOk) {
      net->messages(to).drop_cell(to, lane, cell);
      return status;
    }
    std::memcpy(cell.data, text.data(), text.size());
    net->messages(to).commit_with_cell(room, 0, cell, static_cast<uint32_t>(text.size()));
    return Status::kOk;
  }
  // Advances the clock; returns what poll() did.
  uint32_t after(uint64_t ns) {
    test_clock_ns += ns;
    return net->poll(inbox, 1000, false);
  }
  // The first words of the messages that have reached rank `to` since the last call.
  std::vector<uint64_t> arrived(Rank to = 1) {
    std::vector<uint64_t> words;
    Inbox there;
    there.then = [&](const Incoming& message) { words.push_back(word_of(message)); };
    while (all[to]->transport->poll(there, 1000, false) != 0) {
    }
    return words;
  }

  NodeFile file;
  std::vector<std::unique_ptr<NodeRank>> all;
  std::unique_ptr<Transport> net;
  Inbox inbox;
};

struct Told final : Completion {
  Told() : Completion{on_done} {}
  static void on_done(Completion& completion, Status status) noexcept {
    auto& told = static_cast<Told&>(completion);
    told.status = status;
    ++told.times;
  }
  Status status = Status::kNotInit;
  std::atomic<int> times{0};
};

inline uintptr_t at(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

}  // namespace hydrant::testing
