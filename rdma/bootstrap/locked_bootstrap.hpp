// A bootstrap that any thread may call at any time: each call holds the mutex that all other users of the
// inner bootstrap hold as well.
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

namespace hydrant {

class LockedBootstrap final : public Bootstrap {
 public:
  // Both arguments must outlive the object.
  LockedBootstrap(Bootstrap& inside, Mutex& mu) noexcept : inside_(inside), mu_(mu) {}

  const char* name() const noexcept override { return inside_.name(); }
  const JobTopology& topology() const noexcept override { return inside_.topology(); }
  Status put(std::string_view key, std::span<const std::byte> entry) noexcept override {
    const MutexLock lock(mu_);
    return inside_.put(key, entry);
  }
  Status fence(uint64_t deadline_ns) noexcept override {
    const MutexLock lock(mu_);
    return inside_.fence(deadline_ns);
  }
  Status get(Rank rank, std::string_view key, std::span<std::byte> entry, size_t* bytes,
             uint64_t deadline_ns) noexcept override {
    const MutexLock lock(mu_);
    return inside_.get(rank, key, entry, bytes, deadline_ns);
  }
  int event_fd() const noexcept override { return inside_.event_fd(); }
  // Takes no lock: a rank leaves without waiting for other threads.
  void leave(int code, ExitReason how, uint64_t deadline_ns) noexcept override {
    inside_.leave(code, how, deadline_ns);
  }

 private:
  Bootstrap& inside_;
  Mutex& mu_;
};

}  // namespace hydrant
