// Registers a client's dma-bufs and keeps a list of them, so that a key of anything else is not deregistered.
// ibv_interface.cpp calls it.
#include "firehose/registrars/ibv/client_registrar.hpp"

#include <cstddef>
#include <new>

namespace hydrant {

ClientRegistrar::~ClientRegistrar() {
  while (dmabufs_ != nullptr) delete std::exchange(dmabufs_, dmabufs_->next);
}

void ClientRegistrar::add(Dmabuf* entry) noexcept {
  const MutexLock lock(mu_);
  entry->next = dmabufs_;
  dmabufs_ = entry;
}

ClientRegistrar::Dmabuf* ClientRegistrar::take(const IbvKey& key) noexcept {
  const MutexLock lock(mu_);
  for (Dmabuf** at = &dmabufs_; *at != nullptr; at = &(*at)->next) {
    Dmabuf* const entry = *at;
    // The address may be that of an earlier registration: its keys differ.
    if (entry->key.mr != key.mr || entry->key.lkey != key.lkey || entry->key.rkey != key.rkey)
      continue;
    *at = entry->next;
    return entry;
  }
  return nullptr;
}

Status ClientRegistrar::register_dmabuf(int fd, uint64_t offset, MemoryRange range, Access access,
                                        IbvKey* key) noexcept {
  auto* const entry = new (std::nothrow) Dmabuf;
  if (entry == nullptr) {
    return fail(Status::kResource,
                "a dma-buf cannot be registered: the system has no memory: free some, or raise "
                "ulimit -v");
  }
  const Status status =
      registrar_->pin_dmabuf(fd, offset, range, access, reinterpret_cast<std::byte*>(&entry->key));
  if (status != Status::kOk) {
    delete entry;
    return status;
  }
  entry->range = range;
  *key = entry->key;
  add(entry);
  return Status::kOk;
}

Status ClientRegistrar::deregister_dmabuf(const IbvKey& key) noexcept {
  Dmabuf* const entry = take(key);
  if (entry == nullptr) {
    return fail(
        Status::kBadArg,
        "a dma-buf cannot be deregistered: the key is none of a dma-buf that this registrar "
        "has registered in this process, or it was deregistered already");
  }
  if (registrar_->unpin(entry->range, reinterpret_cast<const std::byte*>(&entry->key)) ==
      UnpinResult::kDone) {
    delete entry;
    return Status::kOk;
  }
  add(entry);
  return Status::kBroken;
}

void ClientRegistrar::forget_in_child() noexcept {
  mu_.reset_in_child();
  {
    const MutexLock lock(mu_);  // for the thread-safety annotations
    dmabufs_ = nullptr;
  }
  registrar_->forget_in_child();
}

}  // namespace hydrant
