// The entries of all ranks. Only the supervisor has them: ranks read an entry by a request.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::launch {

class KeyValueStore {
 public:
  // Bounds the memory that a faulty rank can use. Ranks have few entries, so a list per rank suffices; rank 0
  // may have up to 256 more for its environment.
  static constexpr size_t kMaxValuesPerRank = 384;

  explicit KeyValueStore(Rank size) : ranks_(size) {}

  // Stores an entry, in place of one with the same key. Errors: kResource (too many keys).
  Status put(Rank rank, std::string_view key, std::span<const std::byte> entry) noexcept;
  // The entry; null data if there is none. Valid until the next put.
  std::span<const std::byte> find(Rank rank, std::string_view key) const noexcept;

 private:
  struct KeyValue {
    std::string key;
    std::vector<std::byte>
        bytes;  // with one extra byte, so that an empty entry differs from a missing one
  };
  std::vector<std::vector<KeyValue>> ranks_;
};

}  // namespace hydrant::launch
