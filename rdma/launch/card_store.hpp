// The cards of all ranks, in the supervisor only: who reads one asks for it.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::launch {

class CardStore {
 public:
  // A rank has few cards: a list per rank is enough. Limits what a rank gone wild can take.
  static constexpr size_t kMaxCardsPerRank = 64;

  explicit CardStore(Rank size) : ranks_(size) {}

  // Replaces a card of the same key. Errors: kResource: too many keys.
  Status put(Rank rank, std::string_view key, std::span<const std::byte> card) noexcept;
  // Null data if there is none. Valid until the next put.
  std::span<const std::byte> find(Rank rank, std::string_view key) const noexcept;

 private:
  struct Card {
    std::string key;
    std::vector<std::byte> bytes;  // with one byte more, so that an empty card is not a missing one
  };
  std::vector<std::vector<Card>> ranks_;
};

}  // namespace hydrant::launch
