// Stores the cards of a job of one process in its own memory. bootstrap.cpp opens it when there is no
// launcher; the other bootstraps use its checks of keys and cards.
#include "rdma/bootstrap/bootstrap_singleton.hpp"

#include <algorithm>

namespace hydrant {

Status check_card(std::string_view key, size_t bytes) noexcept {
  if (key.empty() || key.size() > kMaxKeyBytes || key.find('\0') != key.npos) {
    return fail(Status::kBadArg, "a card's key has 1 to %zu bytes, not %zu", kMaxKeyBytes,
                key.size());
  }
  if (bytes > Bootstrap::kMaxCardBytes) {
    return fail(Status::kBadArg, "a card has at most %zu bytes, not %zu", Bootstrap::kMaxCardBytes,
                bytes);
  }
  return Status::kOk;
}

Status copy_card(std::span<const std::byte> from, std::span<std::byte> to, size_t* bytes) noexcept {
  if (from.size() > to.size()) {
    return fail(Status::kBadArg, "the card has %zu bytes, and there is room for %zu", from.size(),
                to.size());
  }
  std::copy(from.begin(), from.end(), to.begin());
  *bytes = from.size();
  return Status::kOk;
}

Status AloneBootstrap::put(std::string_view key, std::span<const std::byte> card) noexcept {
  const Status status = check_card(key, card.size());
  if (status != Status::kOk) return status;
  const auto same =
      std::find_if(cards_.begin(), cards_.end(), [&](const Card& one) { return one.key == key; });
  std::vector<std::byte> bytes(card.begin(), card.end());
  if (same != cards_.end()) {
    same->bytes = std::move(bytes);
  } else {
    cards_.push_back({std::string(key), std::move(bytes)});
  }
  return Status::kOk;
}

Status AloneBootstrap::get(Rank rank, std::string_view key, std::span<std::byte> card,
                           size_t* bytes, uint64_t) noexcept {
  const Status status = check_card(key, 0);
  if (status != Status::kOk) return status;
  if (rank != 0) return fail(Status::kBadArg, "there is no rank %u", rank);
  for (const Card& one : cards_) {
    if (one.key == key) return copy_card(one.bytes, card, bytes);
  }
  return fail(Status::kNotReady, "rank 0 has put no card \"%.*s\"", static_cast<int>(key.size()),
              key.data());
}

}  // namespace hydrant
