// A simulated network between this process and a transport that completes at once: delay, bandwidth, few
// credits, ranks out of order. It never loses or duplicates messages, and keeps the order within a pair and
// lane. It serves to measure and test on one machine how a path behaves on a network.
//
// Messages are written into memory of this class, kept until they are due, and then sent by the inner
// transport; cells belong to the inner transport throughout. The inner transport copies puts and gets when
// they arrive. The source of a put is read only then, so this detects a client that overwrites it before the
// completion. No memory of other ranks is mapped.
//
// With pins it behaves like an adapter that moves data between pinned memory only: PinnedOperations in place
// of put() and get(), with a registrar (injected_pins.hpp). This rank's keys are checked when an operation
// begins and when it arrives, the peer's key when it arrives: the inner transport reads the record of its
// registration. An operation that a key does not permit moves nothing. The check of the peer's key and the
// copy are two steps: an unpin of the peer in between is not detected.
//
// poll(), reserve() and put() make progress. A thread makes progress a little later for clients that call
// none of these, because a network also works while its client computes.
//
// Threads: any number, whatever the job's mode; the inner transport must be multi-threaded. No allocation
// after first contact. Cost: a lock and some 100 ns per call.
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/injected/injected_keys.hpp"
#include "rdma/injected/injected_link.hpp"
#include "rdma/injected/injected_pins.hpp"
#include "rdma/injected/injected_settings.hpp"
#include "rdma/injected/injected_stream.hpp"
#include "rdma/transport/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <pthread.h>

namespace hydrant {

class InjectedTransport final : public Transport,
                                private MessageChannel,
                                private MemoryAccess,
                                private Sleeping,
                                private PinnedOperations {
 public:
  struct Options {
    InjectedNetwork network;
    bool has_thread = true;
    uint64_t (*clock)() noexcept = now_ns;  // replaced by tests, without the thread
  };
  // Errors: kResource.
  static Status open(std::unique_ptr<Transport> inside, const JobTopology& topology,
                     const Options& options, std::unique_ptr<Transport>* transport) noexcept;
  ~InjectedTransport() override;

  const char* name() const noexcept override { return "injected"; }
  MessageChannel& messages(Rank) noexcept override { return *this; }
  MemoryAccess& memory() noexcept override { return *this; }
  uint32_t capabilities() const noexcept override {
    if (depth_ == 0) return 0;
    return (pins_ != nullptr ? kPinned : kOneSided) | kPutsBeforeMessages |
           (has_atomics_ ? uint32_t{kAtomics} : 0);
  }
  uint32_t depth() const noexcept override { return depth_; }
  Sleeping& sleeping() noexcept override { return *this; }
  PinnedOperations* pinned() noexcept override { return pins_ != nullptr ? this : nullptr; }

  // Completions count as messages.
  uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept override;
  void flush(uint64_t deadline_ns) noexcept override;
  void disconnect(Rank peer) noexcept override;

 private:
  static constexpr uint32_t kKeylessBytes = 64;

  // ---- MessageChannel ----
  uint32_t inline_bytes() const noexcept override { return pairs_[0].channel->inline_bytes(); }
  uint32_t cell_bytes() const noexcept override { return pairs_[0].channel->cell_bytes(); }

  Status reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept override;
  void commit(Outgoing& room, uint32_t tag) noexcept override;
  void commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                        uint32_t bytes) noexcept override;
  Status take_cell(Rank peer, Lane lane, uint32_t bytes, Cell* cell) noexcept override;
  void drop_cell(Rank peer, Lane lane, const Cell& cell) noexcept override;

  // ---- MemoryAccess ----
  // The inner transport uses the segment for copies; mapped() hides it.
  Status add_segment(Rank peer, uintptr_t peer_addr, size_t bytes, void* local) noexcept override {
    return there_.add_segment(peer, peer_addr, bytes, local);
  }
  // The data arrives at once, but the link is occupied as if it carried them, so that a message committed
  // later arrives later. Unsupported if only pinned memory is accessible.
  Status write(Rank peer, uintptr_t dest, const void* source, size_t bytes) noexcept override;
  // Errors of the inner transport are reported by the completion, except that kUnsupported is returned at
  // once if it can access only mapped memory of the peer.
  Status put(Rank peer, uintptr_t remote, const void* local, size_t bytes,
             Completion* completion) noexcept override;
  Status get(Rank peer, uintptr_t remote, void* local, size_t bytes,
             Completion* completion) noexcept override;
  Status put_pieces(Rank peer, std::span<const Piece> pieces) noexcept override;
  Status get_pieces(Rank peer, std::span<const Piece> pieces) noexcept override;

  // ---- Sleeping: in the inner transport, until something is due ----
  void sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept override;
  bool announce_sleep(Announcement* announcement) noexcept override;
  bool sleep_announced(const Announcement& announcement, uint64_t deadline_ns) noexcept override {
    return sleeping_there_.sleep_announced(announcement, deadline_ns);
  }
  void end_sleep() noexcept override;
  void wake_peer(Rank peer) noexcept override { sleeping_there_.wake_peer(peer); }
  void wake() noexcept override { sleeping_there_.wake(); }

  // ---- PinnedOperations: with pins ----
  std::unique_ptr<Registrar> make_registrar() noexcept override { return pins_->make_registrar(); }
  uint32_t keyless_bytes() const noexcept override { return kKeylessBytes; }
  // Errors of the call: kUnsupported as those of the inner transport's get(); kRefused for the local key.
  // Errors of the completion: kRefused for either key.
  Status put(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
             Completion* completion) noexcept override;
  Status get(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
             Completion* completion) noexcept override;
  // Atomic with each other, for all ranks that change a word, and with nothing else, like an adapter's: a
  // word is read, and stored some 100 ns later. Errors as get().
  Status start_atomic(Rank peer, const Pinned& remote, const Pinned& local, const Atomic& what,
                      Completion* completion) noexcept override;

  struct Pair {
    Rank peer = 0;
    MessageChannel* channel = nullptr;  // of the inner transport
    bool is_lost = false;
    bool is_reached = false;  // the inner transport can copy memory that it has not mapped
    InjectedStream streams[kLaneCount];
    InjectedLink out;
    InjectedLink back;
    uint64_t puts_begun = 0;
    uint64_t puts_done = 0;
    uint64_t last_put_ns = 0;  // when the latest put arrives
  };
  // Additional state of an operation between pinned memory.
  struct PinnedEnds {
    InjectedKey remote;
    InjectedKey local;
    bool is_atomic = false;
    Atomic what;              // of an atomic operation
    bool is_inlined = false;  // the source is `inlined`, and needs no key
    std::byte inlined[kKeylessBytes];
    PinnedEnds* next = nullptr;  // in the list of free ones
  };
  struct DelayedOperation {
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
  Status begin(Rank peer, const DelayedOperation& operation) noexcept;
  Status admit(Pair& pair, uint64_t now) noexcept HYDRANT_REQUIRES(mu_);
  void start(Pair& pair, const DelayedOperation& operation, uint64_t now) noexcept
      HYDRANT_REQUIRES(mu_);
  void expect(uint64_t due_ns) noexcept HYDRANT_REQUIRES(mu_);
  bool enter_sleep(uint64_t* due_ns) noexcept HYDRANT_EXCLUDES(mu_);

  // injected_pinned.cpp
  Status open_pins() noexcept HYDRANT_EXCLUDES(mu_);
  Status begin_pinned(Rank peer, DelayedOperation& operation, const Pinned& remote,
                      const Pinned& local, const Atomic* what = nullptr) noexcept;
  Status check_keys(const DelayedOperation& operation) noexcept HYDRANT_REQUIRES(mu_);
  void free_ends(PinnedEnds* ends) noexcept HYDRANT_REQUIRES(mu_);
  Status change_word(const DelayedOperation& operation) noexcept HYDRANT_REQUIRES(mu_);
  bool try_lock_adapter(Rank peer) noexcept HYDRANT_REQUIRES(mu_);
  std::atomic<uint32_t>& adapter_lock(Rank peer) const noexcept;

  // injected_progress.cpp
  void advance(uint64_t now) noexcept HYDRANT_REQUIRES(mu_);
  void advance_operations(uint64_t now) noexcept HYDRANT_REQUIRES(mu_);
  void advance_stream(Pair& pair, Lane lane, uint64_t now) noexcept HYDRANT_REQUIRES(mu_);
  Status forward_message(Pair& pair, Lane lane, uint32_t slot) noexcept HYDRANT_REQUIRES(mu_);
  void copy(DelayedOperation& operation) noexcept HYDRANT_REQUIRES(mu_);
  // Messages or puts of this rank have not arrived.
  bool is_sending() const noexcept HYDRANT_REQUIRES(mu_);
  void fail_pair(Pair& pair) noexcept HYDRANT_REQUIRES(mu_);
  void release_cell(Lane lane) noexcept HYDRANT_REQUIRES(mu_);
  uint32_t complete() noexcept HYDRANT_EXCLUDES(mu_);
  static void* run_thread(void* self) noexcept;
  void run_in_background() noexcept HYDRANT_EXCLUDES(mu_);

  const std::unique_ptr<Transport> inside_;
  // Parts of inside_.
  MemoryAccess& there_;
  Sleeping& sleeping_there_;
  const InjectedNetwork network_;
  uint64_t (*const clock_)() noexcept;
  const bool wants_thread_;
  uint32_t depth_ = 0;
  std::unique_ptr<Pair[]> pairs_;  // ascending ranks, this one included
  uint32_t ranks_ = 0;
  Rank self_ = 0;
  std::unique_ptr<InjectedPins> pins_;  // null: operations access any memory
  bool has_atomics_ = false;

  Mutex mu_;
  // Operations under way, in the order of their starts.
  std::unique_ptr<DelayedOperation[]> operations_ HYDRANT_GUARDED_BY(mu_);
  uint32_t operation_count_ HYDRANT_GUARDED_BY(mu_) = 0;
  // As many entries as operations_, if operations are between pinned memory; else null.
  std::unique_ptr<PinnedEnds[]> pinned_ends_ HYDRANT_GUARDED_BY(mu_);
  PinnedEnds* free_ends_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  uint32_t cells_out_[kLaneCount] HYDRANT_GUARDED_BY(mu_) = {};
  // The earliest due time, except of messages that the inner transport had no room for (is_blocked_).
  uint64_t next_due_ns_ HYDRANT_GUARDED_BY(mu_) = UINT64_MAX;
  bool is_blocked_ HYDRANT_GUARDED_BY(mu_) = false;
  uint32_t sleepers_ HYDRANT_GUARDED_BY(mu_) = 0;

  // The thread that delivers due messages: whether it has to end, and whether it sleeps.
  bool ends_ HYDRANT_GUARDED_BY(mu_) = false;
  bool rests_ HYDRANT_GUARDED_BY(mu_) = false;
  CondVar work_;
  pthread_t thread_ = {};
  bool has_thread_ = false;
};

}  // namespace hydrant
