// Receives messages from the rings of a node: step 6 of "Tour: an Active Message". It checks everything that
// it reads from shared memory before use, and disconnects a peer whose memory is corrupt.
#include "firehose/base/log.hpp"
#include "firehose/base/machine/membarrier.hpp"
#include "rdma/shm/shm_transport.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace hydrant {
namespace shm {

inline uint32_t NodeRings::poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept {
  for (uint32_t word = 0; word < words_; ++word) {
    const auto& doorbells = self_.doorbells[word].of_lane;
    if (doorbells[0].load(std::memory_order_relaxed) != 0) [[unlikely]] {
      handle_doorbells(word, Lane::kRequest);
    }
    if (doorbells[1].load(std::memory_order_relaxed) != 0) [[unlikely]]
      handle_doorbells(word, Lane::kReply);
  }
  const uint32_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  if (polls % kPollsBetweenReviews == 0) [[unlikely]]
    review();
  if (replies_only) return poll_lane(Lane::kReply, receiver, budget);

  // Replies come first, because they free resources that requests wait for, but requests keep a quarter of
  // the budget. A budget below 4 goes to the requests in every fourth poll.
  const uint32_t for_requests = budget >= 4 ? budget / 4 : (polls % 4 == 0 ? budget : 0);
  uint32_t done = poll_lane(Lane::kReply, receiver, budget - for_requests);
  if (done < budget) done += poll_lane(Lane::kRequest, receiver, budget - done);
  return done;
}

}  // namespace shm

uint32_t ShmTransport::poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept {
  // Without launder() the compiler computes addresses from both objects, which costs a register.
  return std::launder(&rings_)->poll(receiver, budget, replies_only);
}

namespace shm {

// Visits the active rings round-robin, beginning after the ring that was served last.
uint32_t NodeRings::poll_lane(Lane lane, Receiver& receiver, uint32_t budget) noexcept {
  const auto index = static_cast<uint32_t>(lane);
  const uint32_t first = next_[index].load(std::memory_order_relaxed);
  if (words_ == 1) [[likely]] {
    // Bit 0 is `first`.
    uint64_t bits =
        std::rotr(active_[index][0].load(std::memory_order_acquire), static_cast<int>(first));
    uint32_t done = 0;
    for (; bits != 0; bits &= bits - 1) {
      const uint32_t from = (first + static_cast<uint32_t>(std::countr_zero(bits))) % 64;
      const uint32_t got = visit(from, lane, receiver, std::min(budget - done, kMaxPerVisit));
      done += got;
      if (done < budget) continue;
      if (got != 0) next_[index].store(from + 1 < ranks_ ? from + 1 : 0, std::memory_order_relaxed);
      return done;
    }
    return done;
  }
  const uint64_t before_first = (uint64_t{1} << (first % 64)) - 1;
  uint32_t done = 0;
  // Visits the first word twice if need be: its upper bits first, and its lower bits last.
  const uint32_t steps = words_ + (before_first != 0 ? 1 : 0);
  for (uint32_t step = 0; step < steps; ++step) {
    uint32_t word = first / 64 + step;
    if (word >= words_) word -= words_;
    uint64_t bits = active_[index][word].load(std::memory_order_acquire);
    if (bits == 0) continue;
    if (step == 0) bits &= ~before_first;
    if (step == words_) bits &= before_first;
    for (; bits != 0; bits &= bits - 1) {
      const uint32_t from = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      const uint32_t got = visit(from, lane, receiver, std::min(budget - done, kMaxPerVisit));
      done += got;
      if (done < budget) continue;
      if (got != 0) next_[index].store(from + 1 < ranks_ ? from + 1 : 0, std::memory_order_relaxed);
      return done;
    }
  }
  return done;
}

inline uint32_t NodeRings::visit(uint32_t from, Lane lane, Receiver& receiver,
                                 uint32_t budget) noexcept {
  InRing& ring = in(from, lane);
  // The ring is usually empty, so it is checked before it is entered. ThreadSanitizer reports this unlocked
  // read as a race if the ring wraps around meanwhile.
  if (!HYDRANT_TSAN && ring.peek() == 0) return 0;
  if (!ring.enter(threaded_)) return 0;
  partner_.store(from, std::memory_order_relaxed);
  const uint32_t done = drain(ring, from, lane, receiver, budget);
  ring.leave(threaded_);
  return done;
}

uint32_t NodeRings::drain(InRing& ring, uint32_t from, Lane lane, Receiver& receiver,
                          uint32_t budget) noexcept {
  Incoming message;
  message.from = node_ranks_[from];
  message.lane = lane;
  uint32_t done = 0;
  while (done < budget && !ring.lost.load(std::memory_order_relaxed)) {
    const uint64_t word = ring.peek();
    if (InRing::is_plain(word)) [[likely]] {
      message.tag = MessageWord::tag(word);
      message.head = ring.line() + sizeof(uint64_t);
      message.head_room = kLineBytes - static_cast<uint32_t>(sizeof(uint64_t));
      receiver.deliver(message);
      ring.take_plain();
      ++done;
      continue;
    }
    if (word == 0) break;
    if (!ring.is_sane(word)) [[unlikely]] {
      disconnect_corrupt(from, "a message's first word", word);
      break;
    }
    if ((word & MessageWord::kSkip) != 0) [[unlikely]] {
      ring.skip(MessageWord::lines(word));
      continue;
    }
    // Prefetches the later lines together if messages come in a flood, because the lines are still in the
    // writer's cache. It does not if this rank waited for the message: the writer is pushing the lines out of
    // its cache then, and a prefetch would delay them.
    if (done != 0) {
      for (uint32_t i = 1; i < MessageWord::lines(word); ++i)
        __builtin_prefetch(ring.line() + size_t{i} * kLineBytes);
    }
    deliver(ring, from, lane, word, receiver);
    ++done;
  }
  return done;
}

inline void NodeRings::deliver(InRing& ring, uint32_t from, Lane lane, uint64_t word,
                               Receiver& receiver) noexcept {
  const uint32_t lines = MessageWord::lines(word);
  Incoming message;
  message.from = node_ranks_[from];
  message.lane = lane;
  message.tag = MessageWord::tag(word);
  message.head = ring.line() + sizeof(uint64_t);
  message.head_room = lines * kLineBytes - static_cast<uint32_t>(sizeof(uint64_t));
  const uint32_t cell_plus_1 = MessageWord::cell_plus_1(word);
  if (cell_plus_1 == 0) {
    receiver.deliver(message);
    ring.take(lines);
    return;
  }
  const uint32_t cell = cell_plus_1 - 1;
  if (!is_cell_backed(ring, from, lane, cell)) return;
  message.payload = memory_.cell(from, lane, cell);
  message.payload_room = cell_bytes_of(cell);
  receiver.deliver(message);
  // Pairs with the acquire in SenderCells::collect(). A plain store without a wake-up: nothing waits for it.
  memory_.receipt(from, lane, cell)
      .receipt.store(CellReceipt::make(memory_.node_rank(), ring.position()),
                     std::memory_order_release);
  ring.take(lines);
}

// False: that rank cannot have sent this cell. A cell that its sender has not reserved is a hole in the file,
// and access to a hole can raise SIGBUS. This process therefore reserves each chunk as well when it first
// sees it.
inline bool NodeRings::is_cell_backed(InRing& ring, uint32_t from, Lane lane,
                                      uint32_t cell) noexcept {
  if (cell >= kCellCount) {
    disconnect_corrupt(from, "the number of a cell", cell);
    return false;
  }
  const uint32_t small_chunks = kSmallCells / kCellClasses[0].chunk;
  const uint32_t chunk = cell < kSmallCells
                             ? cell / kCellClasses[0].chunk
                             : small_chunks + (cell - kSmallCells) / kCellClasses[1].chunk;
  if ((ring.known_chunks >> chunk & 1) != 0) [[likely]]
    return true;
  if (memory_.reserve_cells(from, lane, cell, shm::NodeMemory::Owner::kTheirs) != Status::kOk) {
    disconnect_corrupt(from, "the number of a cell without memory", cell);
    return false;
  }
  ring.known_chunks |= 1u << chunk;
  return true;
}

void NodeRings::disconnect_corrupt(uint32_t from, const char* what, uint64_t value) noexcept {
  log_error(
      "rank %u has corrupted the memory that it shares with this rank (%s is %#llx): disconnecting "
      "it",
      node_ranks_[from], what, static_cast<unsigned long long>(value));
  disconnect_index(from);
}

}  // namespace shm
}  // namespace hydrant
