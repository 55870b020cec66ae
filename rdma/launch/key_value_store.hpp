// The cards of all ranks. Only the supervisor has them: ranks read a card by a request.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::launch {

class CardStore {
 public:
  // Bounds the memory that a faulty rank can use. Ranks have few cards, so a list per rank suffices; rank 0
  // may have up to 256 more for its environment.
  static constexpr size_t kMaxCardsPerRank = 384;

  explicit CardStore(Rank size) : ranks_(size) {}

  // Stores a card, in place of one with the same key. Errors: kResource (too many keys).
  Status put(Rank rank, std::string_view key, std::span<const std::byte> card) noexcept;
  // The card; null data if there is none. Valid until the next put.
  std::span<const std::byte> find(Rank rank, std::string_view key) const noexcept;

 private:
  struct Card {
    std::string key;
    std::vector<std::byte>
        bytes;  // with one extra byte, so that an empty card differs from a missing one
  };
  std::vector<std::vector<Card>> ranks_;
};

}  // namespace hydrant::launch
