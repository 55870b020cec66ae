// The send queue of a queue pair: which request has which position, how many positions are used, and which of
// them get a completion. The queue pairs of the first port and those of rails use the same class.
//
// Invariant: completed() <= signalled_ <= posted_, posted_ - completed() <= depth, and records_ holds a
// record for each position between them. A completion ends its own position and all before it.
//
// Threads: everything under the lock of the peer, except where a comment says otherwise.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/verbs_objects.hpp"
#include "rdma/ibv/queue/operation_pool.hpp"
#include "rdma/ibv/queue/stall_detector.hpp"
#include "rdma/transport/transport.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::ibv {

struct Peer;
class SendQueue;

// Entries of a send queue that operations leave free for messages: a message with a cell takes two, a report
// of credits takes one.
inline constexpr uint32_t kEntriesForMessages = 3;

// A request at a position of a send queue, and the resources that its completion releases.
struct SendRecord {
  static constexpr uint16_t kNone = UINT16_MAX;
  enum class Holds : uint8_t {
    kNothing,
    kMessage,    // a send slot, and maybe a cell
    kOperation,  // a whole put or get: `completion`, which may be null
    kPiece,      // a piece of `operation`
    kStripe,     // `stripe` ends here
  };

  SendQueue* queue = nullptr;
  uint64_t position = 0;
  union {
    Completion* completion = nullptr;
    PooledOperation* operation;
    Stripe* stripe;
  };
  uint16_t slot = kNone;
  uint16_t cell = kNone;  // of the lane below
  uint8_t lane = 0;
  Holds holds = Holds::kNothing;
};
static_assert(sizeof(SendRecord) == 32);

// A work request with its scatter-gather element. Prebuilt, because consecutive requests differ in few
// fields.
struct SendRequest {
  ibv_sge piece = {};
  ibv_send_wr work = {};
};

class SendQueue {
 public:
  SendQueue() = default;
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  // ---- setup ----
  struct Config {
    Peer* peer = nullptr;
    const Port* port = nullptr;  // outlives the queue
    ibv_cq* completions = nullptr;
    ibv_srq* receives = nullptr;  // the shared receive queue, if there is one
    uint32_t own_receives = 0;    // buffers of its own otherwise; 0: it receives no messages
    uint32_t depth = 0;
    uint32_t inline_bytes = 0;
  };
  // Creates the records and the queue pair, which can then be connected. Errors: kResource.
  Status open(const Config& config) noexcept;
  // Destroys the queue pair, which ends the adapter's work for it. Any thread, once.
  void close() noexcept { pair_.reset(); }
  bool is_open() const noexcept { return pair_ != nullptr; }
  // Moves the queue pair to the error state: all requests complete, failed. False: the adapter refuses that,
  // which is logged. Without the lock.
  bool shut(const char* peer_name) noexcept;

  ibv_qp* pair() const noexcept { return pair_.get(); }
  uint32_t number() const noexcept { return pair_->qp_num; }
  Peer* peer() const noexcept { return peer_; }
  const Port& port() const noexcept { return *port_; }
  uint32_t depth() const noexcept { return depth_; }

  // ---- posting ----
  uint64_t posted() const noexcept { return posted_; }
  uint64_t used() const noexcept {
    const uint64_t completed = completed_.load(std::memory_order_acquire);
    return posted_ - completed;
  }
  uint32_t room() const noexcept { return depth_ - static_cast<uint32_t>(used()); }

  // Adds `request` at the next position and returns its record. Not signalled; the caller sets `holds`.
  SendRecord& add(ibv_send_wr& request) noexcept {
    SendRecord& record = records_[posted_ & mask_];
    record.position = posted_;
    ++posted_;
    request.wr_id = reinterpret_cast<uintptr_t>(&record) | kSendTag;
    return record;
  }
  // The same for a request that holds nothing yet; signalled if `signal` is set, or if a quarter of the queue
  // before it is not signalled.
  SendRecord& add(ibv_send_wr& request, bool signal) noexcept {
    SendRecord& record = add(request);
    record.holds = SendRecord::Holds::kNothing;
    if (signal || posted_ - signalled_ >= depth_ / 4) set_signalled(request);
    return record;
  }
  // `request` is the one that was added last.
  void set_signalled(ibv_send_wr& request) noexcept {
    request.send_flags |= IBV_SEND_SIGNALED;
    signalled_ = posted_;
  }
  // The request that was added last is signalled already, by its flags.
  void note_signalled() noexcept { signalled_ = posted_; }
  bool is_last_signalled() const noexcept { return signalled_ == posted_; }

  // Posts the list of added requests. Returns 0, or the error with *bad, the first refused request.
  int post(ibv_send_wr* first, ibv_send_wr** bad) noexcept {
    const Posting posting = posting_.load(std::memory_order_relaxed);
    if (posting == Posting::kInline) [[likely]]
      return ibv_post_send(pair_.get(), first, bad);
    if (posting == Posting::kRefused) {
      *bad = first;
      return EIO;
    }
    return post_send(*port_, pair_.get(), first, bad);
  }
  // Removes the request that was added last, because the adapter refused it. All later ones are refused until
  // shut() has succeeded: they must not arrive without it.
  SendRecord& undo_unposted() noexcept {
    posting_.store(Posting::kRefused, std::memory_order_relaxed);
    SendRecord& record = records_[--posted_ & mask_];
    if (signalled_ > posted_) signalled_ = posted_;
    return record;
  }
  // The record of the next position; unchanged if undo_unposted() has just removed its request.
  const SendRecord& next_record() const noexcept { return records_[posted_ & mask_]; }

  // ---- completions ----
  static constexpr uint64_t kSendTag = 1;  // in wr_id; those of receive buffers are even
  static bool is_send(const ibv_wc& completion) noexcept {
    return (completion.wr_id & kSendTag) != 0;
  }
  static SendRecord& record_of(const ibv_wc& completion) noexcept {
    return *reinterpret_cast<SendRecord*>(completion.wr_id - kSendTag);
  }
  SendRecord& record_at(uint64_t position) noexcept { return records_[position & mask_]; }
  // Positions below completed() have ended. Only the thread that reads the completion queue calls complete();
  // it needs no lock if just one position ends.
  uint64_t completed() const noexcept { return completed_.load(std::memory_order_relaxed); }
  void complete(uint64_t end) noexcept { completed_.store(end, std::memory_order_release); }

  // ---- failure ----
  // Marks the queue as failed. True: this is the first failure.
  bool note_failed() noexcept {
    const bool is_first = !has_failed_;
    has_failed_ = true;
    return is_first;
  }
  bool has_failed() const noexcept { return has_failed_; }
  // Builds the reason for disconnecting the peer because of this queue. The text of the first call stays, for
  // the life of the queue.
  const char* describe_failure(const char* text) noexcept;
  // Checks for progress. True: more than `patience` checks in a row found none.
  bool is_stalled(uint64_t patience) noexcept {
    const uint64_t end = completed();
    return stall_.check(signalled_ > end, end) > patience;
  }

 private:
  enum class Posting : uint8_t { kInline, kByCall, kRefused };

  Peer* peer_ = nullptr;
  std::unique_ptr<SendRecord[]> records_;
  uint32_t mask_ = 0;  // position & mask_: index of its record
  uint32_t depth_ = 0;
  uint64_t posted_ = 0;  // positions, ever
  std::atomic<uint64_t> completed_{0};
  uint64_t signalled_ = 0;  // the position behind the last one that gets a completion
  const Port* port_ = nullptr;
  std::atomic<Posting> posting_{Posting::kInline};
  bool has_failed_ = false;
  StallDetector stall_;
  char failure_[160] = "";
  // Last, so that it is destroyed first: until then the adapter uses the members above.
  QueuePair pair_;
};

}  // namespace hydrant::ibv
