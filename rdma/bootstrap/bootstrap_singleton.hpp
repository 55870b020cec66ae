// A job of one process, with nobody behind it.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <string>
#include <vector>

namespace hydrant {

class AloneBootstrap final : public Bootstrap {
 public:
  const char* name() const noexcept override { return "alone"; }
  const JobPlace& place() const noexcept override { return place_; }
  Status put(std::string_view key, std::span<const std::byte> card) noexcept override;
  Status fence(uint64_t) noexcept override { return Status::kOk; }
  Status get(Rank rank, std::string_view key, std::span<std::byte> card, size_t* bytes,
             uint64_t deadline_ns) noexcept override;
  void leave(int, Leaving, uint64_t) noexcept override {}

 private:
  struct Card {
    std::string key;
    std::vector<std::byte> bytes;
  };
  JobPlace place_;
  std::vector<Card> cards_;
};

// What put() and get() of every kind accept. Errors: kBadArg, with a text.
inline constexpr size_t kMaxKeyBytes = 31;
Status check_card(std::string_view key, size_t bytes) noexcept;
// Hands a card to the caller of get(). Errors: kBadArg: too little room.
Status copy_card(std::span<const std::byte> from, std::span<std::byte> to, size_t* bytes) noexcept;

}  // namespace hydrant
