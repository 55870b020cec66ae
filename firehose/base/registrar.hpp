// The registrar interface: how the pin cache has memory pinned. The cache owns it; networks and
// kernels implement it (firehose/registrars/, rdma/ibv/, or a client's own through
// include/hydrant/pin_cache.h). Read docs/pin_cache.md, "Writing a registrar", next.
//
// Contract of an implementation:
//  * every method may be called concurrently from any thread, unpin() also from one of the cache's own;
//    unmapped() also in a signal handler that has interrupted another method;
//  * the cache never holds one of its locks across a call;
//  * a method must not call the domain that it serves, and must return in bounded time;
//  * a failing call changes no state and records its text with hydrant::fail();
//  * the same pages may be pinned by several overlapping live registrations: each is undone on its own;
//  * unpin() may come when the memory was unmapped and other memory is at the address. It undoes the
//    registration of the key, and changes nothing at the address. A registrar that has no such call sets
//    RegistrarTraits::unpin_before_release.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace hydrant {

// The scope of the account that charge() counts against.
enum class ChargeScope : uint32_t {
  kNone,     // no limit
  kProcess,  // mlock, verbs: RLIMIT_MEMLOCK of this process
  kUser,     // io_uring: RLIMIT_MEMLOCK of this user, across processes
  kDevice,   // a table of the device
};

enum class AddressKind : uint32_t {
  kHost,
  kDevice,  // refused by every registrar so far, with a text
};

// Fixed facts about a registrar; constant for its life.
struct RegistrarTraits {
  const char* name = "";
  uint32_t key_bytes = 0;  // size of one key, at most 4096; 0 if pinning alone is enough
  // Bytes that the cache keeps with a registration in place of a key, without showing them: pin() writes
  // them, and unpin() gets them, as a key. Needs key_bytes == 0. Callers that keep none pass null to both.
  uint32_t note_bytes = 0;
  size_t granule_bytes = 4096;  // ranges passed to pin() are multiples of this; power of two
  size_t max_region_bytes = SIZE_MAX;
  uint64_t max_regions = UINT64_MAX;
  uint64_t max_charge_bytes = UINT64_MAX;  // total that the account allows, as probed at startup
  // The RLIMIT_MEMLOCK from which max_charge_bytes follows, if it does and the registrar can tell.
  std::optional<uint64_t> memlock_bytes = std::nullopt;
  ChargeScope charge_scope = ChargeScope::kNone;
  AddressKind address_kind = AddressKind::kHost;
  Access supported = Access::kAll;
  bool divisible = false;  // a pin may be undone in pieces of the granule (implies key_bytes == 0)
  // unmapped() does something. The cache then waits, with a bound, for reports of earlier memory at a range's
  // addresses before it calls pin().
  bool wants_unmap_reports = false;
  // unpin() also ends locks that the program took on the same pages after the pin. Pages that no request
  // named must not be pinned then: the program cannot know of them. The cache reads ahead only on request.
  bool shares_locks_with_program = false;
  // unpin_many() costs less than its unpins. The cache calls it then, although its result is one for all.
  bool unpins_in_batches = false;
  bool exports = false;       // export_key() and import_key() work
  uint32_t export_bytes = 0;  // largest blob of export_key(); at most 65536
  bool asynchronous = false;  // pin_async() may return kNotReady and complete later
  // unpin() changes the memory at the address (madvise() of it, say), so a registration may not outlive its
  // memory. The cache then keeps only memory that waits for unpin(): kept arenas (monitor.h), and what the
  // client announces by an invalidation, which returns kNotReady until all is undone. Other memory is pinned
  // for each use.
  bool unpin_before_release = false;
  // 0, or a power of two: the size of aligned blocks that charge() always counts whole. Pinning such a block
  // whole costs less than pinning a few of its parts.
  size_t block_bytes = 0;
  // Hints for policies, measured by the registrar or guessed; 0 = unknown.
  uint32_t pin_base_ns = 0;
  uint32_t pin_page_ns = 0;
  uint32_t unpin_base_ns = 0;
};

enum class UnpinResult : uint32_t {
  kDone,     // the charge is returned
  kPending,  // undone, but the kernel returns the charge later: see pending_charge()
  kBroken,   // could not be undone; the text says why; the charge is lost
};

class Registrar {
 public:
  // Completion of pin_async(). Runs on any thread, but never inside a pin_async() that returns a
  // status other than kNotReady. `key` is valid during the call.
  using PinDone = void (*)(void* context, Status status, const std::byte* key);

  virtual ~Registrar() = default;

  virtual const RegistrarTraits& traits() const noexcept = 0;

  // Pins `range` (a multiple of the granule) with `access` and writes traits().key_bytes to `key`.
  // Errors: kRefused - this memory can never have this right (read-only, a hole, a special mapping);
  //         kNotReady - no budget or slot now, may work after something is unpinned;
  //         kResource - larger than this registrar can ever take, or no memory for its tables;
  //         kBroken - the device or ring is unusable.
  virtual Status pin(MemoryRange range, Access access, std::byte* key) noexcept = 0;

  // Undoes one pin(), or a piece of it when traits().divisible.
  virtual UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept = 0;

  // Undoes n pins; override when a batch is cheaper, and set traits().unpins_in_batches. Returns the worst
  // result.
  virtual UnpinResult unpin_many(const MemoryRange* ranges, const std::byte* const* keys,
                                 size_t n) noexcept;

  // The memory of `range` was unmapped or moved, or other memory was mapped over it, as the kernel or a hook
  // reports. A pin of it is still undone by unpin(), which may find other memory at these addresses. May be
  // late: pins of the new memory may have begun. Must not allocate or free, nor wait for what may wait for
  // the release of memory, or for a thread that a signal handler can interrupt.
  virtual void unmapped(MemoryRange /*range*/) noexcept {}

  // Bytes the account is charged for pinning `range` now (whole huge pages, for instance).
  // Must not depend on what is already pinned. Called before each pin, and for requests that then need none,
  // so make it cheap.
  virtual uint64_t charge(MemoryRange range) const noexcept { return range.len; }

  // Bytes that are unpinned but still charged by the kernel. The cache counts them against its budget.
  virtual uint64_t pending_charge() noexcept { return 0; }

  // Bytes of memory that is still locked although it was unpinned, because the lock may be the program's. Any
  // thread.
  virtual uint64_t left_locked_bytes() const noexcept { return 0; }

  // Counts events after which live pins cannot be undone one by one: the program closed a descriptor of the
  // library. They stay pinned; the cache then releases everything that is not held. Any thread.
  virtual uint64_t losses() const noexcept { return 0; }

  // Starts a pin. kOk: done, `key` is written. kNotReady: `done` will be called exactly once.
  // Others as pin(). The default pins synchronously.
  virtual Status pin_async(MemoryRange range, Access access, std::byte* key, PinDone done,
                           void* context) noexcept;

  // Serialises a live key for another process into at most traits().export_bytes; *len is room in, size out.
  // `range` is the part that the other process may use: all of the pinned range, or granules of it.
  // kBadArg if the room is too small: *len is then a sufficient size.
  virtual Status export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                            size_t* len) noexcept;
  // Turns a peer's blob into a local key. All input is untrusted: malformed blobs are kBadArg.
  virtual Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept;
  // Releases a key that import_key() wrote, with any mapping that it made.
  virtual void drop_import(const std::byte* /*key*/) noexcept {}

  // Writes a key that is valid for any address (on-demand paging); kUnsupported if there is none.
  virtual Status implicit_key(Access access, std::byte* key) noexcept;

  // Registers device memory (of a GPU, say) that its driver exports as a dma-buf: `range.len` bytes from
  // `offset` of the buffer behind `fd`, which may be closed afterwards. Operations and peers then use the
  // addresses of `range`, which the caller chooses. All values are multiples of the granule. The key works
  // with unpin() and export_key() as one of pin(). The cache does not call this: the owner of the device
  // memory does, and must unpin before the memory is released.
  // Errors: kUnsupported - registrar, library, kernel or driver lack dma-bufs; the text says what is needed;
  //         kBadArg - invalid descriptor or offset; others as pin(). Nothing is charged to memlock.
  virtual Status pin_dmabuf(int fd, uint64_t offset, MemoryRange range, Access access,
                            std::byte* key) noexcept;

  // The child of a fork calls this once before anything else: close descriptors that would keep the
  // parent's pins alive. Earlier keys are invalid in the child. May only make async-signal-safe calls.
  virtual void forget_in_child() noexcept {}

  // A domain calls this when it starts to use the registrar, so that a client's registrar gets its end
  // callback. A registrar that was never adopted still belongs to the client.
  virtual void adopt() noexcept {}
};

}  // namespace hydrant
