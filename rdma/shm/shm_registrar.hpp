// The registrar of a node: other processes of the node can map memory that is pinned here, and imported keys
// are mapped here. A put to a peer's memory is then a copy.
//
// It accepts memory of this process that lies in a memory file (shared_files.hpp: shared arenas of
// libhydrant_alloc, segments) and refuses all other. A pin changes no pages and no kernel state. Its effect
// is that the cache counts the range as registered, so that the owner keeps it (see below), and that its key
// can be exported.
//
// Lifetime: a mapping follows the place in the file, not an allocation's life. An arena never changes the
// file offset of an address, so owner and peer see the same bytes, even after the memory was reallocated. An
// arena keeps its pages while a cache has the range registered, until the peer has released it
// (hydrant/alloc.h). Beyond a bound the arena has the firehoses recalled, and then releases the pages.
//
// An importer can access more of the file than the key's range: processes of one user trust each other.
//
// Threads: any. Fork: mappings are not inherited; keys from before are dead.
#pragma once

#include "firehose/base/registrar.hpp"
#include "rdma/shm/attachment_cache.hpp"
#include "rdma/shm/memory/shm_key.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::shm {

class ShmRegistrar final : public Registrar {
 public:
  // Errors: kUnsupported: /proc does not show the start time of this process; kResource. *out is unchanged
  // then.
  static Status create(std::unique_ptr<ShmRegistrar>* out) noexcept;

  const RegistrarTraits& traits() const noexcept override { return traits_; }

  // Errors: kBadArg; kRefused: the range is not entirely in one memory file that keeps its size, or it was
  // inherited from a parent.
  // Cost: two system calls, 1 us.
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override;

  Status export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                    size_t* len) noexcept override;
  // Maps the range: readable, and writable if the rights include writes or atomics. Errors: kBadArg
  // (malformed); those of AttachmentCache::map().
  Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept override;
  void drop_import(const std::byte* key) noexcept override;

  void forget_in_child() noexcept override;

  AttachmentCache::Counts attachments() noexcept { return attachments_.counts(); }

 private:
  ShmRegistrar() noexcept = default;

  RegistrarTraits traits_;
  AttachmentCache attachments_;
  // Pid of this process; 0 in the child of a fork until its first export. Each thread that finds 0 writes
  // both, and all write the same values: the start time before the pid (release). Readers load the pid first
  // (acquire).
  std::atomic<uint32_t> process_{0};
  std::atomic<uint64_t> start_time_{0};
};

}  // namespace hydrant::shm
