// A job of several ranks in one process: engines of every algorithm, their shared lines, and messages
// that are delivered when the test decides.
#pragma once

#include "extended/barrier/barrier_messages.hpp"
#include "extended/barrier/barrier_shm.hpp"
#include "tests/unit/extended/rdma_network.hpp"

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace hydrant::test {

// An algorithm and its parameter: the radix of SHM, or the ranks per node of RDMA.
struct Algorithm {
  enum Kind { kShm, kDissemination, kCentral, kRdma } kind = kShm;
  uint32_t radix = 0;  // 0: the number of ranks

  std::string name() const {
    if (kind == kDissemination) return "Dissemination";
    if (kind == kCentral) return "Central";
    if (kind == kRdma) return radix == 0 ? "RdmaOneNode" : "Rdma" + std::to_string(radix);
    return radix == 0 ? "ShmFlat" : "ShmRadix" + std::to_string(radix);
  }
};
inline const Algorithm kAlgorithms[] = {
    {Algorithm::kShm, 0},           {Algorithm::kShm, 2},     {Algorithm::kShm, 3},
    {Algorithm::kDissemination, 0}, {Algorithm::kCentral, 0}, {Algorithm::kRdma, 1},
    {Algorithm::kRdma, 2},          {Algorithm::kRdma, 3},    {Algorithm::kRdma, 0}};

// The lines of all ranks, as a transport provides them.
class SharedLines {
 public:
  explicit SharedLines(uint32_t size) : lines_(std::make_unique<Rank2[]>(size)), size_(size) {}
  std::vector<BarrierLines> all() const {
    std::vector<BarrierLines> lines(size_);
    for (uint32_t rank = 0; rank < size_; ++rank) {
      for (uint32_t parity = 0; parity < 2; ++parity)
        lines[rank].of_parity[parity] = lines_[rank][parity].words;
    }
    return lines;
  }

 private:
  struct alignas(128) Line {
    std::atomic<uint64_t> words[BarrierLines::kRounds] = {};
  };
  using Rank2 = std::array<Line, 2>;
  std::unique_ptr<Rank2[]> lines_;
  uint32_t size_;
};

class BarrierWorld {
 public:
  // `room`: messages that fit between two ranks.
  BarrierWorld(Algorithm algorithm, uint32_t size, size_t room = 4)
      : size_(size),
        room_(room),
        is_rdma_(algorithm.kind == Algorithm::kRdma),
        lines_(size),
        network_(size, algorithm.radix == 0 ? size : algorithm.radix, room),
        queues_(size_t{size} * size) {
    for (Rank rank = 0; rank < size; ++rank)
      senders_.push_back(std::make_unique<MessageSender>(*this, rank));
    for (Rank rank = 0; rank < size; ++rank) engines_.push_back(make(algorithm, rank));
  }

  uint32_t size() const { return size_; }
  BarrierEngine& engine(Rank rank) { return *engines_[rank]; }
  // Transfers ownership of an engine; deliver() still reaches it.
  std::unique_ptr<BarrierEngine> release(Rank rank) { return std::move(engines_[rank]); }

  // Delivers the oldest message from one rank to another; false if there is none, or if it was refused.
  bool deliver(Rank from, Rank to) {
    if (is_rdma_) return network_.deliver(from, to, bytewise ? ++delivered_ % 8 + 1 : 8);
    Sent message;
    {
      const std::lock_guard lock(mu_);
      auto& queue = queues_[from * size_ + to];
      if (queue.empty()) return false;
      message = queue.front();
      queue.pop_front();
    }
    if (!receivers_[to]->receive(from, BarrierMessage::from(message.bits, message.id))) ++refused;
    return true;
  }
  void deliver_all_to(Rank to) {
    if (!has_messages()) return;
    for (Rank from = 0; from < size_; ++from) {
      while (deliver(from, to)) {
      }
    }
  }
  bool has_active_messages() const { return !receivers_.empty(); }
  bool has_messages() const { return is_rdma_ || !receivers_.empty(); }
  RdmaNetwork& network() { return network_; }

  bool bytewise = false;  // delivers RDMA words in parts
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> sent_with_id{0};

 private:
  struct Sent {
    uint32_t bits = 0;
    uint32_t id = 0;
  };
  struct MessageSender final : BarrierMessageSender {
    MessageSender(BarrierWorld& of, Rank from) : world(of), rank(from) {}
    bool send(Rank peer, const BarrierMessage& message) noexcept override {
      const std::lock_guard lock(world.mu_);
      auto& queue = world.queues_[rank * world.size_ + peer];
      if (peer == rank || queue.size() >= world.room_) return false;
      // Without an id in the message, the receiver gets 0.
      queue.push_back({message.bits(), message.with_id ? message.name.id : 0});
      ++world.sent;
      world.sent_with_id += message.with_id ? 1 : 0;
      return true;
    }
    BarrierWorld& world;
    Rank rank;
  };

  std::unique_ptr<BarrierEngine> make(Algorithm algorithm, Rank rank) {
    if (algorithm.kind == Algorithm::kShm) {
      const uint32_t radix = algorithm.radix == 0 ? size_ : algorithm.radix;
      return std::make_unique<ShmBarrier>(
          ShmBarrier::Config{.rank = rank,
                             .size = size_,
                             .radix = limit_barrier_radix(size_, radix),
                             .lines = lines_.all(),
                             .sleeping = nullptr});
    }
    if (is_rdma_) return std::make_unique<RdmaBarrier>(network_.config_of(rank));
    std::unique_ptr<MessageBarrier> engine;
    if (algorithm.kind == Algorithm::kCentral) {
      engine = std::make_unique<CentralBarrier>(rank, size_, *senders_[rank]);
    } else {
      engine = std::make_unique<DisseminationBarrier>(rank, size_, *senders_[rank]);
    }
    receivers_.push_back(engine.get());
    return engine;
  }

  uint32_t size_;
  size_t room_;
  bool is_rdma_;
  uint32_t delivered_ = 0;
  SharedLines lines_;
  RdmaNetwork network_;
  std::mutex mu_;
  std::vector<std::deque<Sent>> queues_;
  std::vector<std::unique_ptr<MessageSender>> senders_;
  std::vector<std::unique_ptr<BarrierEngine>> engines_;
  std::vector<MessageBarrier*> receivers_;
};

}  // namespace hydrant::test
