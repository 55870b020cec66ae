// Messages of collective operations that have arrived before the operation takes them. Handlers append;
// operations take. A message may arrive before this rank calls the operation, or has the team.
//
// Threads: any, under the Inboxes' mutex, which is never held while messages are sent.
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

// Identifies a transfer of an operation: the same at both ends.
struct TransferKey {
  uint64_t team = 0;
  uint32_t operation = 0;  // number within the team
  uint32_t tag = 0;        // of the step

  friend constexpr bool operator==(const TransferKey&, const TransferKey&) = default;
};

struct Arrival {
  enum class Kind : uint8_t {
    kData,          // `bytes` of payload, at `offset` of the transfer
    kAnnouncement,  // the sender's memory at `address` has the data
    kRead,          // the receiver has read the announced data
  };
  Kind kind = Kind::kData;
  TransferKey key;
  Rank from = 0;           // rank of the job
  uint32_t signature = 0;  // of the sender's call
  uint32_t offset = 0;
  uint32_t bytes = 0;
  uintptr_t address = 0;
  std::unique_ptr<std::byte[]> payload;
  std::unique_ptr<Arrival> next;
};

class Inboxes {
 public:
  // Appends the message to its team's inbox.
  void put(std::unique_ptr<Arrival> arrival) noexcept HYDRANT_EXCLUDES(mu_);
  // Takes the first message of the transfer from `from` of a kind that `wants_read` selects; null if there
  // is none.
  std::unique_ptr<Arrival> take(const TransferKey& key, Rank from, bool wants_read) noexcept
      HYDRANT_EXCLUDES(mu_);
  // True if take() would find a message.
  bool has(const TransferKey& key, Rank from, bool wants_read) noexcept HYDRANT_EXCLUDES(mu_);
  // True if a message of the operation from `from` waits, of any transfer; its signature.
  bool find_signature(uint64_t team, uint32_t operation, Rank from, uint32_t* signature) noexcept
      HYDRANT_EXCLUDES(mu_);
  // Number of messages that wait; for tests.
  size_t count() noexcept HYDRANT_EXCLUDES(mu_);

 private:
  static constexpr size_t kLists = 64;

  static size_t list_of(const TransferKey& key) noexcept;
  std::unique_ptr<Arrival>* find_locked(const TransferKey& key, Rank from, bool wants_read) noexcept
      HYDRANT_REQUIRES(mu_);

  Mutex mu_;
  std::unique_ptr<Arrival> lists_[kLists] HYDRANT_GUARDED_BY(mu_);
  Arrival* last_[kLists] HYDRANT_GUARDED_BY(mu_) = {};
};

}  // namespace hydrant
