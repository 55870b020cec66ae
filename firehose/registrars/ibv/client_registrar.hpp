// A registrar of a client of libfirehose_ibv, with the dma-bufs that the client has registered by it.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/registrars/ibv/ibv_registrar.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace hydrant {

// Threads: all functions from any. Verbs are called without the mutex.
class ClientRegistrar {
 public:
  explicit ClientRegistrar(std::unique_ptr<IbvRegistrar> registrar) noexcept
      : registrar_(std::move(registrar)) {}
  // Leaves dma-bufs registered: the client may end them by ibv_dereg_mr().
  ~ClientRegistrar();
  ClientRegistrar(const ClientRegistrar&) = delete;
  ClientRegistrar& operator=(const ClientRegistrar&) = delete;

  IbvRegistrar& registrar() noexcept { return *registrar_; }

  // As IbvRegistrar::pin_dmabuf(); also kResource: no memory.
  Status register_dmabuf(int fd, uint64_t offset, MemoryRange range, Access access,
                         IbvKey* key) noexcept;
  // Errors: kBadArg: `key` is none of a dma-buf that is registered here, in this process; kBroken.
  Status deregister_dmabuf(const IbvKey& key) noexcept;

  // Drops what belongs to the parent. Makes async-signal-safe calls alone: entries are leaked.
  void forget_in_child() noexcept;

 private:
  struct Dmabuf {
    IbvKey key;
    MemoryRange range;
    Dmabuf* next = nullptr;
  };
  void add(Dmabuf* entry) noexcept;
  // Removes the entry of this key; null if there is none.
  Dmabuf* take(const IbvKey& key) noexcept;

  const std::unique_ptr<IbvRegistrar> registrar_;
  Mutex mu_;
  Dmabuf* dmabufs_ HYDRANT_GUARDED_BY(mu_) = nullptr;
};

}  // namespace hydrant
