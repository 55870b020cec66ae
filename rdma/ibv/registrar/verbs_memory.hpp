// Memory that the transport itself sends from and receives into: whole pages, registered for its life.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/device/verbs_objects.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant::ibv {

class VerbsMemory {
 public:
  VerbsMemory() = default;
  ~VerbsMemory() { close(); }
  VerbsMemory(const VerbsMemory&) = delete;
  VerbsMemory& operator=(const VerbsMemory&) = delete;

  // Maps and registers `bytes` bytes, once. `access`: IBV_ACCESS_*; `what`: for the error text. Errors:
  // kResource, with the limit to raise.
  Status open(ibv_pd* pd, size_t bytes, int access, const char* what) noexcept;

  void close() noexcept;
  // The length that open() registers for `bytes`: whole pages.
  static size_t registered_bytes(size_t bytes) noexcept;

  std::byte* data() const noexcept { return data_; }
  uint32_t lkey() const noexcept { return registration_->lkey; }
  uint32_t rkey() const noexcept { return registration_->rkey; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Registration registration_;
};

}  // namespace hydrant::ibv
