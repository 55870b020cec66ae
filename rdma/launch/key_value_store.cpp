// Stores the cards that ranks publish; bootstrap_server.cpp puts and finds them.
#include "rdma/launch/key_value_store.hpp"

namespace hydrant::launch {

Status CardStore::put(Rank rank, std::string_view key, std::span<const std::byte> card) noexcept {
  auto& cards = ranks_[rank];
  std::vector<std::byte> bytes(card.begin(), card.end());
  bytes.push_back(std::byte{0});
  for (Card& known : cards) {
    if (known.key != key) continue;
    known.bytes = std::move(bytes);
    return Status::kOk;
  }
  if (cards.size() == kMaxCardsPerRank) {
    return fail(Status::kResource,
                "rank %u has published %zu cards, which is the limit: cannot store another", rank,
                kMaxCardsPerRank);
  }
  cards.push_back({std::string(key), std::move(bytes)});
  return Status::kOk;
}

std::span<const std::byte> CardStore::find(Rank rank, std::string_view key) const noexcept {
  for (const Card& card : ranks_[rank]) {
    if (card.key == key) return std::span(card.bytes).first(card.bytes.size() - 1);
  }
  return {};
}

}  // namespace hydrant::launch
