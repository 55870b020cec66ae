// A network between this process and a transport that completes at once: delay, bandwidth, few credits, ranks
// out of order; never loss or duplication, and never out of order within a pair and lane. For measuring and
// testing on one machine what a path does on a network.
//
// Messages are written into memory of this class, kept until they are due, and then sent by the transport
// inside (cells are its own all along). Puts and gets are copied by the transport inside when they arrive:
// the source of a put is read as late as that, so whoever writes to it before the completion is seen to.
// Nothing of another rank is mapped.
//
// With pins it behaves like an adapter that moves data between pinned memory only: put_pinned() and
// get_pinned() in place of put() and get(), and a registrar (injected_pins.hpp). This rank's keys are checked
// when an operation begins and when it arrives, the peer's when it arrives: its registration's record is
// read as the data would be, by the transport inside. What a key does not allow moves nothing. The peer's
// check and the copy are two steps: that the peer unpins in between is not found out.
//
// Things move in poll(), reserve() and put(), and, for those who call none of these, in a thread of its own a
// little later: a network carries on when its client computes.
//
// Threads: any number, whatever the job's mode; the transport inside must be one for many threads. No
// allocation after first contact. Cost: a lock and some 100 ns a call.
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/injected/injected_keys.hpp"
#include "rdma/injected/injected_link.hpp"
#include "rdma/injected/injected_pins.hpp"
#include "rdma/injected/injected_settings.hpp"
#include "rdma/injected/injected_stream.hpp"
#include "rdma/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <pthread.h>

namespace hydrant {

class InjectedTransport final : public Transport {
 public:
  struct Options {
    InjectedNetwork network;
    bool has_thread = true;
    uint64_t (*clock)() noexcept = now_ns;  // a test's, without the thread
  };
  // Errors: kResource.
  static Status open(std::unique_ptr<Transport> inside, const JobTopology& topology,
                     const Options& options, std::unique_ptr<Transport>* transport) noexcept;
  ~InjectedTransport() override;

  const char* name() const noexcept override { return "injected"; }
  uint32_t inline_bytes() const noexcept override { return inside_->inline_bytes(); }
  uint32_t cell_bytes() const noexcept override { return inside_->cell_bytes(); }

  Status reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept override;
  void commit(Outgoing& room, uint32_t tag) noexcept override;
  void commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                        uint32_t bytes) noexcept override;
  Status take_cell(Rank peer, Lane lane, uint32_t bytes, Cell* cell) noexcept override;
  void drop_cell(Rank peer, Lane lane, const Cell& cell) noexcept override;

  std::byte* shared_block(Rank) const noexcept override { return nullptr; }
  // For the copies; mapped() keeps it hidden.
  Status add_segment(Rank peer, uintptr_t peer_addr, size_t bytes, void* local) noexcept override {
    return inside_->add_segment(peer, peer_addr, bytes, local);
  }
  void* mapped(Rank, uintptr_t, size_t) const noexcept override { return nullptr; }
  // Is there at once; the wire is as busy as if it carried it, so a message committed later comes later. Not
  // where only pinned memory is reached.
  Status write(Rank peer, uintptr_t dest, const void* source, size_t bytes) noexcept override;

  uint32_t capabilities() const noexcept override {
    if (depth_ == 0) return 0;
    return (pins_ != nullptr ? kPinned : kOneSided) | kPutsBeforeMessages;
  }
  uint32_t depth() const noexcept override { return depth_; }
  // What the transport inside makes of the memory is told by the completion; but kUnsupported at once where
  // it reaches nothing of the peer beside what it has mapped.
  Status put(Rank peer, uintptr_t remote, const void* local, size_t bytes,
             Completion* completion) noexcept override;
  Status get(Rank peer, uintptr_t remote, void* local, size_t bytes,
             Completion* completion) noexcept override;
  Status put_pieces(Rank peer, std::span<const Piece> pieces) noexcept override;
  Status get_pieces(Rank peer, std::span<const Piece> pieces) noexcept override;

  std::unique_ptr<Registrar> make_registrar() noexcept override;
  uint32_t pinned_inline_bytes() const noexcept override {
    return pins_ != nullptr ? kPinnedInlineBytes : 0;
  }
  // Errors at once: kUnsupported as above; kRefused: by the local key. By the completion: kRefused by either.
  Status put_pinned(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                    Completion* completion) noexcept override;
  Status get_pinned(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                    Completion* completion) noexcept override;

  // Completions count as well.
  uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept override;
  using Transport::sleep;
  void sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept override;
  void wake_peer(Rank peer) noexcept override { inside_->wake_peer(peer); }
  void wake() noexcept override { inside_->wake(); }
  void flush(uint64_t deadline_ns) noexcept override;
  void disconnect(Rank peer) noexcept override;

 private:
  static constexpr uint32_t kPinnedInlineBytes = 64;

  struct Pair {
    Rank peer = 0;
    bool is_lost = false;
    bool is_reached = false;  // memory that the transport inside has not mapped, by some other way
    InjectedStream streams[kLaneCount];
    InjectedLink out;
    InjectedLink back;
    uint64_t puts_begun = 0;
    uint64_t puts_done = 0;
    uint64_t last_put_ns = 0;  // when the last one begun arrives
  };
  // What an operation between pinned memory has beside.
  struct PinnedEnds {
    InjectedKey remote;
    InjectedKey local;
    bool is_inlined = false;  // the source is `inlined`, and needs no key
    std::byte inlined[kPinnedInlineBytes];
    PinnedEnds* next = nullptr;  // of those that are free
  };
  struct Operation {
    Pair* pair = nullptr;
    bool is_put = false;
    bool is_copied = false;
    Status status = Status::kOk;
    uintptr_t remote = 0;
    void* local = nullptr;
    size_t bytes = 0;
    Completion* completion = nullptr;
    PinnedEnds* ends = nullptr;
    uint64_t copy_ns = 0;
    uint64_t done_ns = 0;
  };

  InjectedTransport(std::unique_ptr<Transport> inside, const Options& options) noexcept;
  Status init(const JobTopology& topology) noexcept;
  Pair* pair_with(Rank peer) const noexcept;

  // injected_transport.cpp
  Status reserve_locked(Pair& pair, Lane lane, uint32_t bytes, Outgoing* room) noexcept
      HYDRANT_REQUIRES(mu_);
  void finish_commit(Outgoing& room, uint32_t tag, const Cell* cell, uint32_t bytes) noexcept;
  Status reach(Pair& pair, uintptr_t remote, size_t bytes) noexcept HYDRANT_REQUIRES(mu_);
  Status begin(Rank peer, const Operation& operation) noexcept;
  Status admit(Pair& pair, uint64_t now) noexcept HYDRANT_REQUIRES(mu_);
  void start(Pair& pair, const Operation& operation, uint64_t now) noexcept HYDRANT_REQUIRES(mu_);
  void expect(uint64_t due_ns) noexcept HYDRANT_REQUIRES(mu_);

  // injected_pinned.cpp
  Status open_pins() noexcept HYDRANT_EXCLUDES(mu_);
  Status begin_pinned(Rank peer, Operation& operation, const Pinned& remote,
                      const Pinned& local) noexcept;
  Status check_keys(const Operation& operation) noexcept HYDRANT_REQUIRES(mu_);
  void free_ends(PinnedEnds* ends) noexcept HYDRANT_REQUIRES(mu_);

  // injected_progress.cpp
  void advance(uint64_t now) noexcept HYDRANT_REQUIRES(mu_);
  void advance_operations(uint64_t now) noexcept HYDRANT_REQUIRES(mu_);
  void advance_stream(Pair& pair, Lane lane, uint64_t now) noexcept HYDRANT_REQUIRES(mu_);
  Status forward_message(Pair& pair, Lane lane, uint32_t slot) noexcept HYDRANT_REQUIRES(mu_);
  void copy(Operation& operation) noexcept HYDRANT_REQUIRES(mu_);
  bool any_message() const noexcept HYDRANT_REQUIRES(mu_);
  void fail_pair(Pair& pair) noexcept HYDRANT_REQUIRES(mu_);
  void release_cell(Lane lane) noexcept HYDRANT_REQUIRES(mu_);
  uint32_t complete() noexcept HYDRANT_EXCLUDES(mu_);
  static void* run_thread(void* self) noexcept;
  void run_in_background() noexcept HYDRANT_EXCLUDES(mu_);

  const std::unique_ptr<Transport> inside_;
  const InjectedNetwork network_;
  uint64_t (*const clock_)() noexcept;
  const bool wants_thread_;
  uint32_t depth_ = 0;
  std::unique_ptr<Pair[]> pairs_;  // ascending ranks, this one included
  uint32_t ranks_ = 0;
  Rank self_ = 0;
  std::unique_ptr<InjectedPins> pins_;  // null: any memory

  Mutex mu_;
  // In the order in which they began.
  std::unique_ptr<Operation[]> operations_ HYDRANT_GUARDED_BY(mu_);
  uint32_t operation_count_ HYDRANT_GUARDED_BY(mu_) = 0;
  // As many as operations, where these are between pinned memory.
  std::unique_ptr<PinnedEnds[]> pinned_ends_ HYDRANT_GUARDED_BY(mu_);
  PinnedEnds* free_ends_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  uint32_t cells_out_[kLaneCount] HYDRANT_GUARDED_BY(mu_) = {};
  // Nothing is due before, but what the transport inside had no room for.
  uint64_t next_due_ns_ HYDRANT_GUARDED_BY(mu_) = UINT64_MAX;
  bool is_blocked_ HYDRANT_GUARDED_BY(mu_) = false;
  uint32_t sleepers_ HYDRANT_GUARDED_BY(mu_) = 0;

  // The thread.
  bool ends_ HYDRANT_GUARDED_BY(mu_) = false;
  bool rests_ HYDRANT_GUARDED_BY(mu_) = false;
  CondVar work_;
  pthread_t thread_ = {};
  bool has_thread_ = false;
};

}  // namespace hydrant
