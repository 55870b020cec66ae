// The interface for one-sided operations between pinned memory, on the model of an adapter.
//
// Threads: any number in the multi-threaded mode of the transport. No call waits: one that cannot proceed
// returns kNotReady, and the caller polls.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/transport/completion.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace hydrant {

// The order of different puts to one peer. Each class promises less than the one before it.
enum class PutOrder : uint8_t {
  kOrdered,    // they take effect in the order in which they were started, each once
  kUnordered,  // in any order, and one that has not completed perhaps twice
  kRelaxed,  // the same, and completed ones are seen in any order until a later message is delivered
};

class PinnedOperations {
 public:
  // A registrar that pins memory for these operations; null on failure, with a text. There may be several:
  // the keys of each are valid in all operations. The transport must outlive them.
  virtual std::unique_ptr<Registrar> make_registrar() noexcept = 0;
  // Makes a registrar for memory whose readers wait for a message, a barrier or a completion and not for the
  // data itself: the network may write it in any order, if it may do so at all.
  virtual std::unique_ptr<Registrar> make_bulk_registrar() noexcept { return make_registrar(); }
  // An end of an operation: memory, and the key of the registration that it lies in.
  struct Pinned {
    uintptr_t addr = 0;
    const std::byte* key =
        nullptr;  // from a registrar of make_registrar(), which imports a peer's key
  };
  // Puts of up to this many bytes need no local key: the data has left its source when the call returns.
  virtual uint32_t keyless_bytes() const noexcept = 0;
  // Copies `bytes`, at least one, from `local` to `remote` in the memory of `peer`, or back. kOk: the
  // operation is under way, and `local` and `completion` belong to the network until it calls `completion`
  // with kOk, kRefused, kUnsupported or kBroken. The keys are read before the call returns.
  // Errors: kNotReady: too many operations are under way; poll. kRefused: a key does not, or no longer,
  // permit the access. kUnsupported: the memory is unmapped. kBroken: the peer is disconnected. kBadArg: no
  // key. kResource: first contact; this rank or the peer has no memory or no room for the connection now.
  virtual Status put(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                     Completion* completion) noexcept = 0;
  virtual Status get(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                     Completion* completion) noexcept = 0;
  // The order of puts that come to this rank and, unless the peer's network promises less, of its own. It is
  // constant.
  virtual PutOrder put_order() const noexcept { return PutOrder::kOrdered; }
  // Several operations with one peer, posted to the adapter together if it can. Returns the number, from the
  // front, that are under way. A call for the next operation alone returns the error.
  struct Operation {
    Pinned remote;
    Pinned local;
    size_t bytes = 0;
    Completion* completion = nullptr;
  };
  virtual size_t put_list(Rank peer, std::span<const Operation> list) noexcept;
  virtual size_t get_list(Rank peer, std::span<const Operation> list) noexcept;
  // An operation that repeats and whose work request is built beforehand; used by one thread at a time. It
  // may be deleted while it is under way, but not after the transport.
  class PersistentRequest {
   public:
    virtual ~PersistentRequest() = default;
    // Starts the operation with the current keys of its ends. Errors, completion: those of put() and get().
    virtual Status start(const std::byte* remote_key, const std::byte* local_key,
                         Completion* completion) noexcept = 0;
  };
  // Null if there is nothing to build beforehand, or no memory for it; then use put() and get().
  virtual std::unique_ptr<PersistentRequest> make_persistent_put(Rank /*peer*/,
                                                                 uintptr_t /*remote*/,
                                                                 uintptr_t /*local*/,
                                                                 size_t /*bytes*/) noexcept {
    return nullptr;
  }
  virtual std::unique_ptr<PersistentRequest> make_persistent_get(Rank /*peer*/,
                                                                 uintptr_t /*remote*/,
                                                                 uintptr_t /*local*/,
                                                                 size_t /*bytes*/) noexcept {
    return nullptr;
  }

  // Reads and changes a word in a peer's memory, atomically with respect to other operations through the same
  // adapter. It is not atomic with respect to put() or, without Transport::kAtomicWithProcessors, the peer's
  // processors: all concurrent writers of a word must use start_atomic().
  struct Atomic {
    enum class Kind : uint32_t {
      kFetchAdd,     // adds `operand`
      kCompareSwap,  // stores `operand` if the word is `expected`
    };
    Kind kind = Kind::kFetchAdd;
    uint64_t operand = 0;
    uint64_t expected = 0;
  };
  // Applies `what` to the 8 bytes at `remote`, a multiple of 8, in memory pinned with Access::kRemoteAtomic.
  // `peer` may be this rank: `remote` has an imported key then, too.
  // The 8 bytes at `local` hold the old value when `completion` is called with kOk. Reports like get().
  // Errors: those of get(); kUnsupported: without Transport::kAtomics; kBadArg: address not a multiple of 8,
  // no key.
  virtual Status start_atomic(Rank peer, const Pinned& remote, const Pinned& local,
                              const Atomic& what, Completion* completion) noexcept;

 protected:
  ~PinnedOperations() = default;
};

}  // namespace hydrant
