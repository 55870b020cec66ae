// The mailboxes of several members in one process, and adapters between them that write when the test
// decides: whole lines or single bytes, in any order. A post may be refused.
#pragma once

#include "extended/collective/mailbox/mailbox_operations.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace hydrant::test {

class MailboxNetwork {
 public:
  // Memory of ranks 0 to `ranks`-1 for teams of up to so many; `room`: lines under way.
  MailboxNetwork(Rank ranks, size_t room, uint32_t seed) : room_(room), random_(seed) {
    const size_t lines = size_t{TeamMailboxes::edges_of(ranks)} * TeamMailboxes::kLines;
    for (Rank rank = 0; rank < ranks; ++rank)
      memory_.push_back(std::make_unique<MailboxLine[]>(lines));
    lines_ = lines;
  }

  MailboxLine* memory_of(Rank rank) { return memory_[rank].get(); }
  std::mt19937& random() { return random_; }
  bool is_idle() const { return writes_.empty() && messages_.empty(); }
  bool is_clear() const {
    for (const auto& lines : memory_) {
      for (size_t i = 0; i < lines_ * MailboxLine::kWords; ++i) {
        if (lines[i / MailboxLine::kWords].words[i % MailboxLine::kWords] != 0) return false;
      }
    }
    return true;
  }

  // Writes a line that is under way, or some of its bytes. False: there is none.
  bool deliver() {
    if (writes_.empty()) return false;
    const size_t chosen = random_() % writes_.size();
    Write& write = writes_[chosen];
    if (!write.is_begun) {
      for (const std::atomic<uint64_t>& word : write.line->words)
        EXPECT_EQ(word.load(), 0u) << "a line is written before it was read";
      write.is_begun = true;
    }
    size_t bytes = random_() % 3 == 0 ? write.missing.size() : 1 + random_() % 9;
    for (; bytes != 0 && !write.missing.empty(); --bytes) {
      const uint32_t byte = write.missing.back();
      write.missing.pop_back();
      auto* at = reinterpret_cast<uint8_t*>(write.line->words) + byte;
      __atomic_store_n(at, reinterpret_cast<const uint8_t*>(write.words.data())[byte],
                       __ATOMIC_RELEASE);
    }
    if (write.missing.empty()) writes_.erase(writes_.begin() + static_cast<ptrdiff_t>(chosen));
    return true;
  }

  // A member of a team whose member i is the rank ranks[i].
  class Member final : public MailboxMessages {
   public:
    Member(MailboxNetwork& network, const std::vector<Rank>& ranks, Rank rank, uint64_t edges,
           uint32_t node_bits = 0)
        : network_(network),
          ranks_(ranks),
          rank_(rank),
          operations({.rank = rank,
                      .size = static_cast<Rank>(ranks.size()),
                      .lines = network.memory_of(ranks[rank]),
                      .edges = edges,
                      .node_bits = node_bits,
                      .writer = this},
                     this) {}

    Status post(uint32_t edge, uint32_t line, const uint64_t* words,
                uint32_t count) noexcept override {
      if (network_.writes_.size() >= network_.room_) return Status::kNotReady;
      MailboxLine* lines = network_.memory_of(ranks_[peer_at(edge)]);
      Write write{.line = lines + TeamMailboxes::offset_of(edge, line) / sizeof(MailboxLine),
                  .words = {words, words + count},
                  .missing = {},
                  .is_begun = false};
      for (uint32_t byte = 0; byte < count * sizeof *words; ++byte) write.missing.push_back(byte);
      std::shuffle(write.missing.begin(), write.missing.end(), network_.random_);
      network_.writes_.push_back(std::move(write));
      return Status::kOk;
    }
    bool send(uint32_t edge, uint32_t operation, uint32_t signature, const std::byte* data,
              size_t bytes) noexcept override {
      EXPECT_FALSE(operations.mailboxes().has_mailboxes(edge));
      if (network_.random_() % 4 == 0) return false;
      auto& message = network_.messages_[{ranks_[peer_at(edge)], edge, operation}];
      message = {signature, {data, data + bytes}};
      return true;
    }
    bool receive(uint32_t edge, uint32_t operation, uint32_t signature, std::byte* data,
                 size_t bytes) noexcept override {
      const auto found = network_.messages_.find({ranks_[rank_], edge, operation});
      if (found == network_.messages_.end()) return false;
      EXPECT_EQ(found->second.first, signature);
      EXPECT_EQ(found->second.second.size(), bytes);
      std::copy(found->second.second.begin(), found->second.second.end(), data);
      network_.messages_.erase(found);
      return true;
    }
    bool has(uint32_t edge, uint32_t operation, uint32_t) noexcept override {
      return network_.messages_.contains({ranks_[rank_], edge, operation});
    }
    void refuse(uint32_t edge, uint32_t mine, uint32_t theirs) noexcept override {
      std::fprintf(stderr, "edge %u: %u is not %u\n", edge, mine, theirs);
      std::exit(3);
    }

   private:
    Rank peer_at(uint32_t edge) const {
      return TeamMailboxes::peer_at(rank_, static_cast<Rank>(ranks_.size()), edge);
    }
    MailboxNetwork& network_;
    const std::vector<Rank>& ranks_;
    const Rank rank_;

   public:
    MailboxOperations operations;
  };

 private:
  struct Write {
    MailboxLine* line;
    std::vector<uint64_t> words;
    std::vector<uint32_t> missing;  // bytes
    bool is_begun;
  };

  const size_t room_;
  std::mt19937 random_;
  size_t lines_ = 0;
  std::vector<std::unique_ptr<MailboxLine[]>> memory_;
  std::vector<Write> writes_;
  // By receiving rank, edge and operation; a signature and the data.
  std::map<std::tuple<Rank, uint32_t, uint32_t>, std::pair<uint32_t, std::vector<std::byte>>>
      messages_;
};

}  // namespace hydrant::test
