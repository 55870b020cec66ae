// The raw loops of verbs_compare over RawVerbs: the same work as the library's operations.
#include "bench/support/raw_loops.hpp"

#include <algorithm>

namespace hydrant::bench {
namespace {

constexpr uint32_t kWord = 8;
constexpr uint32_t kMessage = 32;
constexpr uint32_t kSignalInterval = RawVerbs::kSignalInterval;
// Most sends without an acknowledgement; the receiver acknowledges every kAcknowledged messages.
constexpr uint64_t kMaxSends = 96;
constexpr uint64_t kAcknowledged = 32;

}  // namespace

volatile uint64_t& RawLoops::word(size_t offset) const {
  return *static_cast<volatile uint64_t*>(static_cast<void*>(verbs_.memory() + offset));
}

// Posts the nth write. Every kSignalInterval-th is signalled, and awaited before the next signalled one.
bool RawLoops::small_write(uint32_t to, size_t there, uint64_t nth) {
  const bool is_signalled = nth % kSignalInterval == 0;
  if (is_signalled && !verbs_.wait_for_all(to)) return false;
  return verbs_.write(to, kSource, there, kWord, is_signalled);
}

bool RawLoops::blocking(bool is_put, uint64_t rounds) {
  if (!first_) return true;
  for (uint64_t i = 0; i < rounds; ++i) {
    const bool posted = is_put ? verbs_.write(peer_, kSource, kBlocks, kWord, true)
                               : verbs_.read(peer_, kBlocks, kBlocks, kWord);
    if (!posted || !verbs_.wait_for_all(peer_)) return false;
  }
  return true;
}

bool RawLoops::fetch_adds(uint64_t rounds) {
  if (!first_) return true;
  for (uint64_t i = 0; i < rounds; ++i) {
    if (!verbs_.fetch_add(peer_, kSource, kBlocks) || !verbs_.wait_for_all(peer_)) return false;
  }
  return true;
}

bool RawLoops::visible(uint64_t rounds) {
  for (uint64_t i = 0; i < rounds; ++i) {
    ++turns_;
    const auto has_come = [this] { return word(kFlag) == turns_; };
    if (!first_ && !verbs_.look_until(has_come)) return false;
    word(kSource) = turns_;
    if (!small_write(peer_, kFlag, turns_)) return false;
    if (first_ && !verbs_.look_until(has_come)) return false;
  }
  return verbs_.wait_for_all(peer_);
}

bool RawLoops::round_trip(uint64_t rounds) {
  for (uint64_t i = 0; i < rounds; ++i) {
    const uint64_t next = ++expected_;
    if (first_ && !verbs_.send(peer_, kMessage, i % kSignalInterval == 0)) return false;
    if (!verbs_.poll_until(peer_, [&] { return verbs_.received(peer_) >= next; })) return false;
    if (!first_ && !verbs_.send(peer_, kMessage, i % kSignalInterval == 0)) return false;
  }
  return verbs_.wait_for_all(peer_);
}

bool RawLoops::window(bool is_put, uint32_t block, uint32_t under_way, uint64_t count) {
  if (!first_) return true;
  for (uint64_t i = 0; i < count; ++i) {
    const auto has_room = [&] {
      return verbs_.signalled(peer_) - verbs_.completed(peer_) < under_way;
    };
    if (!verbs_.poll_until(peer_, has_room)) return false;
    const size_t at = kBlocks + (i % under_way) * block;
    if (!(is_put ? verbs_.write(peer_, at, at, block, true) : verbs_.read(peer_, at, at, block)))
      return false;
  }
  return verbs_.wait_for_all(peer_);
}

bool RawLoops::put_rate(uint64_t count) {
  if (!first_) return true;
  constexpr uint64_t kMaxSignalled = RawVerbs::kDepth / kSignalInterval / 2;
  for (uint64_t i = 0; i < count; ++i) {
    const bool is_signalled = i % kSignalInterval == kSignalInterval - 1 || i + 1 == count;
    if (!verbs_.write(peer_, kSource, kBlocks, kWord, is_signalled)) return false;
    const auto has_room = [&] {
      return verbs_.signalled(peer_) - verbs_.completed(peer_) <= kMaxSignalled;
    };
    if (is_signalled && !verbs_.poll_until(peer_, has_room)) return false;
  }
  return verbs_.wait_for_all(peer_);
}

bool RawLoops::put_lists(uint32_t together, uint64_t count) {
  if (!first_) return true;
  for (uint64_t i = 0; i < count; i += together) {
    if (!verbs_.write_list(peer_, kSource, kBlocks, kWord, together) || !verbs_.wait_for_all(peer_))
      return false;
  }
  return true;
}

bool RawLoops::flood(uint64_t count) {
  const uint64_t before = expected_;
  const uint64_t acknowledgements = count / kAcknowledged;
  expected_ += first_ ? acknowledgements : count;
  if (!first_) {
    // Some messages may have arrived already, even all of them, or some of the next flood.
    for (uint64_t acknowledged = 0;;) {
      const uint64_t taken = std::min(verbs_.received(peer_) - before, count);
      for (; acknowledged < taken / kAcknowledged; ++acknowledged) {
        if (!verbs_.send(peer_, kMessage, true)) return false;
      }
      if (taken == count) break;
      const auto has_more = [&] { return verbs_.received(peer_) - before > taken; };
      if (!verbs_.poll_until(peer_, has_more)) return false;
    }
    return verbs_.wait_for_all(peer_);
  }
  for (uint64_t i = 0; i < count; ++i) {
    const auto has_room = [&] {
      return i - (verbs_.received(peer_) - before) * kAcknowledged < kMaxSends;
    };
    if (!verbs_.poll_until(peer_, has_room)) return false;
    if (!verbs_.send(peer_, kMessage, i % kSignalInterval == kSignalInterval - 1 || i + 1 == count))
      return false;
  }
  const auto are_answered = [&] { return verbs_.received(peer_) - before >= acknowledgements; };
  return verbs_.poll_until(peer_, are_answered) && verbs_.wait_for_all(peer_);
}

// Dissemination: in round k each rank notifies the one 2^k ahead and waits for the one 2^k behind.
bool RawLoops::barriers(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    word(kSource) = ++generation_;
    uint32_t round = 0;
    for (uint32_t distance = 1; distance < ranks_; distance *= 2, ++round) {
      const size_t mailbox = kMailbox + round * 64;
      if (!small_write((rank_ + distance) % ranks_, mailbox, generation_)) return false;
      if (!verbs_.look_until([&] { return word(mailbox) >= generation_; })) return false;
    }
  }
  for (uint32_t distance = 1; distance < ranks_; distance *= 2) {
    if (!verbs_.wait_for_all((rank_ + distance) % ranks_)) return false;
  }
  return true;
}

}  // namespace hydrant::bench
