// The registrar of a node: what is pinned can be mapped by the other processes of the node, and what is
// imported is mapped here. A put to a peer's memory is then a copy.
//
// It takes memory of this process that lies in a memory file (shared_files.hpp: shared arenas of
// libhydrant_alloc, segments) and refuses all other. A pin does nothing to the pages and costs nothing of
// the kernel: what it means is that the cache counts the range as registered, so that its owner keeps it
// (below), and that its key can be exported.
//
// Whose bytes: a mapping follows the place in the file, not an allocation's life. An arena gives an address
// the same place in its file for ever, so that owner and peer see the same bytes whoever the memory belongs
// to by now. While a cache has a range registered, and as long as a peer has not given it back, the arena
// keeps its pages (hydrant/alloc.h); beyond a bound it has the firehoses recalled, and then gives them up.
//
// Who imports sees more of the file than the key's range: processes of one user that trust each other.
//
// Threads: any. Fork: mappings are not inherited; keys from before are dead.
#pragma once

#include "firehose/base/registrar.hpp"
#include "rdma/shm/attachment_cache.hpp"
#include "rdma/shm/shm_key.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::shm {

class ShmRegistrar final : public Registrar {
 public:
  // Errors: kUnsupported: /proc does not say who this process is; kResource. *out is unchanged then.
  static Status create(std::unique_ptr<ShmRegistrar>* out) noexcept;

  const RegistrarTraits& traits() const noexcept override { return traits_; }

  // kRefused: not all of it is in one memory file that keeps its size, or it is a parent's.
  // Cost: two system calls, 1 us.
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override;

  Status export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                    size_t* len) noexcept override;
  // Maps it: readable, and writable for a right to write or for atomics. Errors: kBadArg (malformed);
  // AttachmentCache::map() has the others.
  Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept override;
  void drop_import(const std::byte* key) noexcept override;

  void forget_in_child() noexcept override;

  AttachmentCache::Counts attachments() noexcept { return attachments_.counts(); }

 private:
  ShmRegistrar() noexcept = default;

  RegistrarTraits traits_;
  AttachmentCache attachments_;
  // This process, 0 in the child of a fork until it exports. Written by whoever finds 0; all write the same,
  // the start first (release), and read the number first (acquire).
  std::atomic<uint32_t> process_{0};
  std::atomic<uint64_t> start_time_{0};
};

}  // namespace hydrant::shm
