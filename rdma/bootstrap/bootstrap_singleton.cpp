// Stores the entries of a job of one process in its own memory. open_bootstrap.cpp opens it when there is no
// launcher; the other bootstraps use its checks of keys and entries.
#include "rdma/bootstrap/bootstrap_singleton.hpp"

#include <algorithm>

namespace hydrant {

Status check_key_value(std::string_view key, size_t bytes) noexcept {
  if (key.empty() || key.size() > kMaxKeyBytes || key.find('\0') != key.npos) {
    return fail(Status::kBadArg, "an entry's key has 1 to %zu bytes, not %zu", kMaxKeyBytes,
                key.size());
  }
  if (bytes > Bootstrap::kMaxValueBytes) {
    return fail(Status::kBadArg, "an entry has at most %zu bytes, not %zu",
                Bootstrap::kMaxValueBytes, bytes);
  }
  return Status::kOk;
}

Status copy_value(std::span<const std::byte> from, std::span<std::byte> to,
                  size_t* bytes) noexcept {
  if (from.size() > to.size()) {
    return fail(Status::kBadArg, "the entry has %zu bytes, and there is room for %zu", from.size(),
                to.size());
  }
  std::copy(from.begin(), from.end(), to.begin());
  *bytes = from.size();
  return Status::kOk;
}

Status SingletonBootstrap::put(std::string_view key, std::span<const std::byte> entry) noexcept {
  const Status status = check_key_value(key, entry.size());
  if (status != Status::kOk) return status;
  const auto same = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const KeyValue& one) { return one.key == key; });
  std::vector<std::byte> bytes(entry.begin(), entry.end());
  if (same != entries_.end()) {
    same->bytes = std::move(bytes);
  } else {
    entries_.push_back({std::string(key), std::move(bytes)});
  }
  return Status::kOk;
}

Status SingletonBootstrap::get(Rank rank, std::string_view key, std::span<std::byte> entry,
                               size_t* bytes, uint64_t) noexcept {
  const Status status = check_key_value(key, 0);
  if (status != Status::kOk) return status;
  if (rank != 0) return fail(Status::kBadArg, "there is no rank %u", rank);
  for (const KeyValue& one : entries_) {
    if (one.key == key) return copy_value(one.bytes, entry, bytes);
  }
  return fail(Status::kNotReady, "rank 0 has put no entry \"%.*s\"", static_cast<int>(key.size()),
              key.data());
}

}  // namespace hydrant
