// A node for tests: its memory, and ranks that are threads, forked processes, or this thread alone.
#pragma once

#include "rdma/shm/shm_transport.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {

// Collects messages: the head's first words, or whatever `then` does with them.
class Inbox final : public Receiver {
 public:
  struct Letter {
    Rank from;
    Lane lane;
    uint32_t tag;
    std::string head;
    std::string payload;
  };
  void deliver(const Incoming& message) noexcept override {
    ++count;
    if (then) {
      then(message);
      return;
    }
    letters.push_back({message.from,
                       message.lane,
                       message.tag,
                       {reinterpret_cast<const char*>(message.head), message.head_room},
                       message.payload == nullptr
                           ? std::string()
                           : std::string(reinterpret_cast<const char*>(message.payload), 16)});
  }
  uint64_t count = 0;
  std::vector<Letter> letters;
  std::function<void(const Incoming&)> then;
};

// A rank's memory and transport, in any process or thread.
struct NodeRank {
  NodeRank(int fd, uint32_t rank, uint32_t ranks,
           ShmTransport::Threads threads = ShmTransport::Threads::kOne) {
    EXPECT_EQ(memory.attach(fd, rank), Status::kOk) << last_error_text();
    JobTopology place;
    place.rank = place.node_rank = rank;
    place.size = ranks;
    place.node_ranks.clear();
    for (uint32_t i = 0; i < ranks; ++i) place.node_ranks.push_back(i);
    EXPECT_EQ(ShmTransport::open(memory, place, threads, &transport), Status::kOk)
        << last_error_text();
  }

  Status try_send(Rank to, Lane lane, uint32_t tag, const void* data, uint32_t bytes) {
    Outgoing room;
    const Status status = transport->messages(to).reserve(to, lane, bytes, &room);
    if (status != Status::kOk) return status;
    std::memcpy(room.head, data, bytes);
    transport->messages(to).commit(room, tag);
    return status;
  }
  Status try_send(Rank to, Lane lane, uint32_t tag, uint64_t value) {
    return try_send(to, lane, tag, &value, sizeof value);
  }
  Status try_send_cell(Rank to, Lane lane, uint32_t tag, uint32_t bytes, int fill) {
    Cell cell;
    Status status = transport->messages(to).take_cell(to, lane, bytes, &cell);
    if (status != Status::kOk) return status;
    Outgoing room;
    status = transport->messages(to).reserve(to, lane, sizeof(uint64_t), &room);
    if (status != Status::kOk) {
      transport->messages(to).drop_cell(to, lane, cell);
      return status;
    }
    std::memset(cell.data, fill, bytes);
    const uint64_t told = bytes;
    std::memcpy(room.head, &told, sizeof told);
    transport->messages(to).commit_with_cell(room, tag, cell, bytes);
    return status;
  }

  shm::NodeMemory memory;
  std::unique_ptr<ShmTransport> transport;
};

// The node's memory, closed at the end of the test.
struct NodeFile {
  explicit NodeFile(uint32_t ranks) {
    EXPECT_EQ(shm::NodeMemory::create(ranks, &fd), Status::kOk) << last_error_text();
  }
  ~NodeFile() { close(fd); }
  NodeFile(const NodeFile&) = delete;
  NodeFile& operator=(const NodeFile&) = delete;
  int fd = -1;
};

// Two ranks in this thread.
struct Pair {
  explicit Pair(ShmTransport::Threads threads = ShmTransport::Threads::kOne)
      : file(2), a(file.fd, 0, 2, threads), b(file.fd, 1, 2, threads) {}
  uint32_t poll_b(uint32_t budget = 1000, bool replies_only = false) {
    return b.transport->poll(inbox, budget, replies_only);
  }
  NodeFile file;
  NodeRank a;
  NodeRank b;
  Inbox inbox;
};

// For positive waits: times HYDRANT_TEST_PATIENCE.
inline uint64_t in_seconds(double seconds) {
  return now_ns() + static_cast<uint64_t>(seconds * patience() * 1e9);
}
inline uint64_t word_of(const Incoming& message) {
  uint64_t value = 0;
  std::memcpy(&value, message.head, sizeof value);
  return value;
}

// Forks `ranks` processes that run body(rank); "" if all returned 0 within a minute, else what failed.
std::string run_ranks(uint32_t ranks, const std::function<int(uint32_t)>& body);

// Has a system call of this process fail from now on (seccomp). For a child only.
bool refuse_system_call(long number, int error);

}  // namespace hydrant::testing
