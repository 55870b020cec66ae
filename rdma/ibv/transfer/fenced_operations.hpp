// Puts that complete when every rank of the target's node sees their data, for memory that several adapters
// reach: those of a node's ranks, or a rank's rails.
//
// An adapter acknowledges a write that may still be on its way to memory. Whatever comes by the same adapter
// later comes behind it; a word or a message by another adapter may be seen before. So may what another one
// reads or writes in the same place. So each put is followed by a fence, when it has completed: an RDMA read
// of eight bytes by the same queue pair, which pushes the write to memory before it is answered. The client's
// completion is that of the fence. (Reads do not push writes of relaxed adapters.)
//
// Cost: a round trip, and a record, for each put. Nothing where it is not used.
//
// Threads: any.
#pragma once

#include "rdma/ibv/registrar/verbs_memory.hpp"
#include "rdma/ibv/transfer/operations.hpp"
#include "rdma/transport/spin_lock.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::ibv {

class FencedOperations final : public PinnedOperations {
 public:
  FencedOperations(Operations& operations, PeerTable& peers, const Poster& poster,
                   DeferredWork& deferred) noexcept
      : operations_(operations), peers_(peers), poster_(poster), deferred_(deferred) {}
  // Makes room for the puts under way that the options allow. Errors: kResource.
  Status open(const Port& port, const Options& options) noexcept;
  // Whether these operations are to be used.
  bool is_open() const noexcept { return puts_ != nullptr; }
  // The queue pairs must be destroyed before.
  void close() noexcept { landing_.close(); }
  // Posts as many of the waiting fences as there is room for. Under the lock of the peer.
  void advance(Peer& peer) noexcept;
  // Ends the waiting fences of a disconnected peer. Returns their number.
  uint32_t fail_waiting(Peer& peer) noexcept;

  std::unique_ptr<Registrar> make_registrar() noexcept override {
    return operations_.make_registrar();
  }
  std::unique_ptr<Registrar> make_bulk_registrar() noexcept override {
    return operations_.make_bulk_registrar();
  }
  uint32_t keyless_bytes() const noexcept override { return operations_.keyless_bytes(); }
  PutOrder put_order() const noexcept override { return operations_.put_order(); }
  Status put(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
             Completion* completion) noexcept override;
  Status get(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
             Completion* completion) noexcept override {
    return operations_.get(peer, remote, local, bytes, completion);
  }
  size_t get_list(Rank peer, std::span<const Operation> list) noexcept override {
    return operations_.get_list(peer, list);
  }
  std::unique_ptr<PersistentRequest> make_persistent_get(Rank peer, uintptr_t remote,
                                                         uintptr_t local,
                                                         size_t bytes) noexcept override {
    return operations_.make_persistent_get(peer, remote, local, bytes);
  }
  Status start_atomic(Rank peer, const Pinned& remote, const Pinned& local, const Atomic& what,
                      Completion* completion) noexcept override {
    return operations_.start_atomic(peer, remote, local, what, completion);
  }

 private:
  // A put and then its fence.
  struct Put : Fence {
    FencedOperations* owner = nullptr;
    Rank peer = 0;
    Completion* completion = nullptr;
  };

  static void after_write(Completion& completion, Status status) noexcept;
  static void after_fence(Completion& completion, Status status) noexcept;
  void start_fence(Put& put) noexcept;
  Put* take() noexcept;
  void give_back(Put& put) noexcept;

  Operations& operations_;
  PeerTable& peers_;
  Poster poster_;
  DeferredWork& deferred_;
  VerbsMemory landing_;  // fences read into it
  uint32_t room_ = 0;    // used entries of a send queue from which on no fence is posted
  bool threaded_ = true;
  std::unique_ptr<Put[]> puts_;
  SpinLock lock_;
  Fence* free_ = nullptr;  // of puts_; under lock_
};

}  // namespace hydrant::ibv
