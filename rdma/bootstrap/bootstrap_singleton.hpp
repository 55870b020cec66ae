// A job of one process without a launcher.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <string>
#include <vector>

namespace hydrant {

class SingletonBootstrap final : public Bootstrap {
 public:
  const char* name() const noexcept override { return "alone"; }
  const JobTopology& topology() const noexcept override { return topology_; }
  Status put(std::string_view key, std::span<const std::byte> entry) noexcept override;
  Status fence(uint64_t) noexcept override { return Status::kOk; }
  Status get(Rank rank, std::string_view key, std::span<std::byte> entry, size_t* bytes,
             uint64_t deadline_ns) noexcept override;
  void leave(int, ExitReason, uint64_t) noexcept override {}

 private:
  struct KeyValue {
    std::string key;
    std::vector<std::byte> bytes;
  };
  JobTopology topology_;
  std::vector<KeyValue> entries_;
};

// Checks the arguments of put() and get(), for all implementations. Errors: kBadArg, with a text.
inline constexpr size_t kMaxKeyBytes = 31;
Status check_key_value(std::string_view key, size_t bytes) noexcept;
// Copies an entry to the caller of get(). Errors: kBadArg: too little room.
Status copy_value(std::span<const std::byte> from, std::span<std::byte> to, size_t* bytes) noexcept;

}  // namespace hydrant
