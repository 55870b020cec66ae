// Stores the entries that ranks publish; bootstrap_server.cpp puts and finds them.
#include "rdma/launch/key_value_store.hpp"

namespace hydrant::launch {

Status KeyValueStore::put(Rank rank, std::string_view key,
                          std::span<const std::byte> entry) noexcept {
  auto& entries = ranks_[rank];
  std::vector<std::byte> bytes(entry.begin(), entry.end());
  bytes.push_back(std::byte{0});
  for (KeyValue& known : entries) {
    if (known.key != key) continue;
    known.bytes = std::move(bytes);
    return Status::kOk;
  }
  if (entries.size() == kMaxValuesPerRank) {
    return fail(Status::kResource,
                "rank %u has published %zu entries, which is the limit: cannot store another", rank,
                kMaxValuesPerRank);
  }
  entries.push_back({std::string(key), std::move(bytes)});
  return Status::kOk;
}

std::span<const std::byte> KeyValueStore::find(Rank rank, std::string_view key) const noexcept {
  for (const KeyValue& entry : ranks_[rank]) {
    if (entry.key == key) return std::span(entry.bytes).first(entry.bytes.size() - 1);
  }
  return {};
}

}  // namespace hydrant::launch
