// Attachments: the pieces of other processes' memory files that are mapped in this process.
//
// A key needs its range mapped, and a mapping costs several system calls and a page fault per page. map()
// therefore maps more than the range: a block of kAttachmentBytes of the file, or whole huge pages around a
// range that crosses the end of its block. Every key that lies in an attachment shares it. Up to kMaxIdle
// attachments without keys stay mapped; beyond that, half of them are unmapped in one batch. With the last
// key of a file all of its attachments are unmapped, so that this process does not keep the memory of an
// exited process alive.
//
// The contents of a blob are untrusted. The process must be the one that the blob means. Its descriptor must
// be a memory file with that inode that can never shrink. The range must lie in it. If the owner could
// shrink the file, an access here would end in SIGBUS. The mapping follows the file, not the process: it
// stays valid after the owner has exited.
//
// Threads: any; one mutex, held while files are opened and mapped, not while they are unmapped. The child of
// a fork does not inherit attachments.
#pragma once

#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/shm/memory/shm_key.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>

namespace hydrant::shm {

class AttachmentCache {
 public:
  static constexpr size_t kAttachmentBytes = size_t{16} << 20;
  static constexpr uint32_t kMaxAttachments = 4096;
  static constexpr uint32_t kMaxIdle = 64;

  struct AttachmentRef {
    uintptr_t addr = 0;
    uint32_t attachment = 0;
    uint64_t life = 0;
  };
  struct Counts {
    uint64_t keys = 0;
    uint64_t files = 0;
    uint64_t attachments = 0;
    uint64_t idle_attachments = 0;
    uint64_t mapped_bytes = 0;  // of address space
    uint64_t opened = 0;        // attachments ever made
  };

  AttachmentCache() noexcept = default;
  ~AttachmentCache();
  AttachmentCache(const AttachmentCache&) = delete;
  AttachmentCache& operator=(const AttachmentCache&) = delete;

  // Finds or maps the blob's range, readable, and writable if `writable`. *ref is unchanged on failure.
  // Errors: kRefused: the kernel forbids it; or the descriptor now refers to another file, or to one that may
  // shrink; or the range is not in the file. kBroken: the process does not exist. kNotReady: kMaxAttachments
  // are in use, or the kernel has no descriptor or address space now. kResource: no memory.
  // Cost: 0.2 us in an existing attachment; 30 us and the page faults in a new one.
  Status map(const ShmBlob& blob, bool writable, AttachmentRef* ref) noexcept;
  // Ends the use by one key. A reference that is not live (dropped, or of another life of the entry) has no
  // effect.
  void drop(const AttachmentRef& ref) noexcept;

  Counts counts() noexcept;

  // Async-signal-safe. References from before the fork are dead in the child.
  void forget_in_child() noexcept HYDRANT_NO_TSA;

 private:
  // Identifies a file while one of its attachments exists, and whether its attachments may be written.
  struct FileId {
    uint64_t device;
    uint64_t inode;
    bool writable;
    // NOLINTNEXTLINE(modernize-use-nullptr): it takes the comparison with 0 for one with null
    friend auto operator<=>(const FileId&, const FileId&) = default;
  };
  struct Attachment {
    FileId file;
    uint64_t offset;
    size_t len;  // 0: the entry is unused
    uintptr_t addr;
    uint32_t keys;
    uint64_t last_use;
    uint64_t life;
  };
  // The table has a fixed size, so that no change allocates. It is zero at first: its pages are allocated at
  // their first use.
  struct Table {
    Attachment attachments[kMaxAttachments];
    // The attachments in use, by file and offset.
    uint32_t order[kMaxAttachments];
    uint32_t in_order;
    // Entries that were in use before and are free now.
    uint32_t unused[kMaxAttachments];
    uint32_t n_unused;
    uint32_t ever_used;
    uint64_t clock;
    uint64_t keys;
    uint32_t idle;
    uint64_t opened;
  };
  struct Mapping {
    uintptr_t addr;
    size_t len;
  };
  // Mappings of closed attachments, to be unmapped without the mutex. Only idle attachments are closed.
  class Mappings {
   public:
    void add(Mapping mapping) noexcept { all_[n_++] = mapping; }
    const Mapping* begin() const noexcept { return all_; }
    const Mapping* end() const noexcept { return all_ + n_; }

   private:
    Mapping all_[kMaxIdle + 1];
    uint32_t n_ = 0;
  };

  bool has_table_locked() noexcept HYDRANT_REQUIRES(mu_);
  // The index in `order` of the first attachment of the file that begins at `offset` or later.
  static uint32_t place_in_order(const Table& table, const FileId& id, uint64_t offset) noexcept;
  // The index of an attachment that contains the range; UINT32_MAX if there is none.
  static uint32_t find(const Table& table, const FileId& id, const ShmBlob& blob) noexcept;
  Status attach_locked(const ShmBlob& blob, const FileId& id, Mappings* detached,
                       uint32_t* index) noexcept HYDRANT_REQUIRES(mu_);
  void detach_locked(uint32_t index, Mappings* detached) noexcept HYDRANT_REQUIRES(mu_);
  // Closes the attachments of a file that no key uses any more.
  void close_unused_file_locked(const FileId& id, Mappings* detached) noexcept
      HYDRANT_REQUIRES(mu_);
  // Closes the least recently used idle attachments until `kept` are left.
  void close_idle_locked(uint32_t kept, Mappings* detached) noexcept HYDRANT_REQUIRES(mu_);
  static void unmap(const Mapping& mapping) noexcept;

  Mutex mu_;
  // Null at first, and in the child of a fork: the parent's table may be in the middle of a change.
  Table* table_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  // Life of the latest attachment. It continues in the child of a fork, so that references of the parent
  // never match.
  uint64_t life_ HYDRANT_GUARDED_BY(mu_) = 0;
};

}  // namespace hydrant::shm
