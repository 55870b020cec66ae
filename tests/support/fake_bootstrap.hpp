// The store of a job, for tests in one process: this rank puts its own entries, the test those of other
// ranks.
#pragma once

#include "rdma/bootstrap/bootstrap_singleton.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hydrant::testing {

class FakeBootstrap final : public Bootstrap {
 public:
  using Value = std::vector<std::byte>;

  JobTopology stands;  // the result of topology()
  std::map<std::pair<Rank, std::string>, Value> entries;
  std::string refused;  // the key of an entry that is not accepted
  uint64_t fences = 0;  // so many, ...
  uint64_t max_fences = UINT64_MAX;
  uint64_t gets = 0;  // ... and so many calls of get()

  // Stores arbitrary bytes as an entry of `rank`.
  void set(Rank rank, std::string_view key, std::span<const std::byte> entry) {
    entries[{rank, std::string(key)}].assign(entry.begin(), entry.end());
  }

  const char* name() const noexcept override { return "store"; }
  const JobTopology& topology() const noexcept override { return stands; }
  Status put(std::string_view key, std::span<const std::byte> entry) noexcept override {
    if (const Status status = check_key_value(key, entry.size()); status != Status::kOk)
      return status;
    if (key == refused) return fail(Status::kResource, "the store is full");
    set(stands.rank, key, entry);
    return Status::kOk;
  }
  Status fence(uint64_t) noexcept override {
    if (fences == max_fences) return fail(Status::kBroken, "the store is gone");
    ++fences;
    return Status::kOk;
  }
  Status get(Rank rank, std::string_view key, std::span<std::byte> entry, size_t* bytes,
             uint64_t) noexcept override {
    ++gets;
    const auto found = entries.find({rank, std::string(key)});
    if (found == entries.end()) return fail(Status::kNotReady, "no such entry");
    return copy_value(found->second, entry, bytes);
  }
  void leave(int, ExitReason, uint64_t) noexcept override {}
};

}  // namespace hydrant::testing
