// The registrar door: how the pin cache asks for memory to be pinned. The cache owns this interface;
// networks and kernels stand behind it (firehose/registrars/, rdma/ibv/, or a client's own through
// include/hydrant/pin_cache.h). Read docs/pin_cache.md, "Writing a registrar", next.
//
// Contract, for whoever implements it:
//  * every method may be called concurrently from any thread;
//  * the cache never holds one of its locks across a call;
//  * a method must not call back into the domain it serves, and must return in bounded time;
//  * a failing call changes nothing and leaves its text with hydrant::fail();
//  * the same pages may be pinned by several overlapping live registrations: each is undone on its own.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Who else spends from the account that charge() is paid from.
enum class ChargeScope : uint32_t {
  kNone,     // nothing is limited
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
  uint32_t key_bytes = 0;       // size of one key, at most 4096; 0 if pinning alone is enough
  size_t granule_bytes = 4096;  // ranges passed to pin() are multiples of this; power of two
  size_t max_region_bytes = SIZE_MAX;
  uint64_t max_regions = UINT64_MAX;
  uint64_t max_charge_bytes = UINT64_MAX;  // what the account allows in all, as probed at start
  ChargeScope charge_scope = ChargeScope::kNone;
  AddressKind address_kind = AddressKind::kHost;
  Access supported = Access::kAll;
  bool divisible = false;  // a pin may be undone in pieces of the granule (implies key_bytes == 0)
  bool exports = false;    // export_key() and import_key() work
  uint32_t export_bytes = 0;  // largest blob of export_key(); at most 65536
  bool asynchronous = false;  // pin_async() may answer kNotReady and complete later
  // Not 0, a power of two: blocks of this size, at multiples of it, that charge() counts whole although only
  // a part is asked for, are as well pinned whole: that costs less than a few of their parts.
  size_t block_bytes = 0;
  // Hints for policies, from the registrar's own measurement or a guess; 0 = unknown.
  uint32_t pin_base_ns = 0;
  uint32_t pin_page_ns = 0;
  uint32_t unpin_base_ns = 0;
};

enum class UnpinResult : uint32_t {
  kDone,     // the charge is back
  kPending,  // undone, but the kernel gives the charge back later: see pending_charge()
  kBroken,   // could not be undone; the text says why; the charge is lost
};

class Registrar {
 public:
  // Completion of pin_async(): runs on any thread, never inside pin_async() itself when that
  // answered anything but kNotReady. `key` is only read during the call.
  using PinDone = void (*)(void* context, Status status, const std::byte* key);

  virtual ~Registrar() = default;

  virtual const RegistrarTraits& traits() const noexcept = 0;

  // Pins `range` (a multiple of the granule) with `access` and writes traits().key_bytes to `key`.
  // Errors: kRefused - this memory can never have this right (read-only, a hole, a special mapping);
  //         kNotReady - no budget or slot now, may work after something is unpinned;
  //         kResource - larger than this registrar can ever take;
  //         kBroken - the device or ring is unusable.
  virtual Status pin(MemoryRange range, Access access, std::byte* key) noexcept = 0;

  // Undoes one pin(), or a piece of it when traits().divisible.
  virtual UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept = 0;

  // Undoes n pins; override when a batch is cheaper. Answers the worst result.
  virtual UnpinResult unpin_many(const MemoryRange* ranges, const std::byte* const* keys,
                                 size_t n) noexcept;

  // Bytes the account is charged for pinning `range` now (whole huge pages, for instance).
  // Must not depend on what is already pinned. Called before each pin, so make it cheap.
  virtual uint64_t charge(MemoryRange range) const noexcept { return range.len; }

  // Bytes unpinned but not yet given back by the kernel. The cache counts them against its budget.
  virtual uint64_t pending_charge() noexcept { return 0; }

  // Starts a pin. kOk: done, `key` is written. kNotReady: `done` will be called exactly once.
  // Others as pin(). The default pins synchronously.
  virtual Status pin_async(MemoryRange range, Access access, std::byte* key, PinDone done,
                           void* context) noexcept;

  // Turns a live key into at most traits().export_bytes for another process; *len is room in, size out.
  // kBadArg where the room is too small: *len is then a size that is enough.
  virtual Status export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                            size_t* len) noexcept;
  // Turns a peer's blob into a local key. All input is untrusted: malformed blobs are kBadArg.
  virtual Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept;
  // Ends the use of a key that import_key() wrote: what it may have mapped goes away.
  virtual void drop_import(const std::byte* /*key*/) noexcept {}

  // A key that is good for any address (on-demand paging); kUnsupported where there is none.
  virtual Status implicit_key(Access access, std::byte* key) noexcept;

  // Registers memory of a device (a GPU's, say) that its driver lends as a dma-buf: `range.len` bytes from
  // `offset` on of the buffer behind `fd`, which may be closed afterwards. Operations and peers then name it
  // by `range`, whose address is the caller's choice; all are multiples of the granule. The key is like one
  // of pin(): unpin(), export_key(). The cache does not call this: whoever has device
  // memory does, and says himself when it goes away.
  // Errors: kUnsupported - this registrar, library, kernel or driver has no dma-bufs, with what is needed;
  //         kBadArg - no such descriptor, a bad offset; others as pin(). Nothing is charged to memlock.
  virtual Status pin_dmabuf(int fd, uint64_t offset, MemoryRange range, Access access,
                            std::byte* key) noexcept;

  // The child of a fork calls this once before anything else: drop descriptors that would keep the
  // parent's pins alive. Keys from before are dead in the child. Must only make async-signal-safe calls.
  virtual void forget_in_child() noexcept {}

  // A domain lives on this from now on, so that a client behind it is told of its end. A registrar that was
  // never adopted belongs to its client as before.
  virtual void adopt() noexcept {}
};

}  // namespace hydrant
