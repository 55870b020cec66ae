// Sends and receives datagrams by an unreliable queue pair. Tour "first contact": a handshake leaves and
// arrives here.
#include "rdma/ibv/connection/datagram_queue.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <utility>

namespace hydrant::ibv {

namespace {

constexpr uint64_t kFirstPauseNs = 1'000'000'000;
constexpr uint64_t kLongestPauseNs = 8'000'000'000;

}  // namespace

Status DatagramQueue::open(const Port& port, ibv_comp_channel* channel, uint32_t rails) noexcept {
  port_ = &port;
  bytes_ = datagram_bytes(rails);
  if (const Status status =
          memory_.open(port.device.pd, size_t{kDatagramReceives + kDatagramSends} * bytes_,
                       IBV_ACCESS_LOCAL_WRITE, "handshakes");
      status != Status::kOk)
    return status;
  const Status status = create_datagram_pair(port, channel, &completions_, &pair_);
  return status == Status::kOk ? start() : status;
}

Status DatagramQueue::start() noexcept {
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  state.port_num = port_->number;
  state.pkey_index = port_->pkey_index;
  state.qkey = kKey;
  int error = uncancelled::call(ibv_modify_qp, pair_.get(), &state,
                                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  if (error == 0) {
    for (uint32_t i = 0; i < kDatagramReceives; ++i) {
      if (const Status status = post_receive(i); status != Status::kOk) return status;
    }
    state.qp_state = IBV_QPS_RTR;
    error = uncancelled::call(ibv_modify_qp, pair_.get(), &state, IBV_QP_STATE);
  }
  if (error == 0) {
    state.qp_state = IBV_QPS_RTS;
    error = uncancelled::call(ibv_modify_qp, pair_.get(), &state, IBV_QP_STATE | IBV_QP_SQ_PSN);
  }
  if (error == 0) return Status::kOk;
  return fail(Status::kResource, "%s port %u: cannot start the handshake queue pair: %s",
              port_->name, port_->number, errno_text(error));
}

void DatagramQueue::close() noexcept {
  pair_.reset();
  completions_.reset();
  memory_.close();
}

Status DatagramQueue::send(const Handshake& handshake, Destination& destination, uint32_t number,
                           const char* name) noexcept {
  if (sends_ == kDatagramSends || !is_running() || error_ != IBV_WC_SUCCESS)
    return Status::kNotReady;
  if (const Status status = addresses_.begin_send(destination, name); status != Status::kOk) {
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "%s; trying again", last_error_text());
    return status;
  }
  const uint32_t slot = next_send_ % kDatagramSends;
  const uint32_t index = kDatagramReceives + slot;
  std::byte* const buffer = memory_.data() + size_t{index} * bytes_;
  encode_handshake(handshake, buffer);
  ibv_sge piece{reinterpret_cast<uintptr_t>(buffer),
                static_cast<uint32_t>(handshake_bytes(handshake.endpoint.rail_count)),
                memory_.lkey()};
  ibv_send_wr request{};
  request.wr_id = request_id(index);
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud.ah = destination.handle.get();
  request.wr.ud.remote_qpn = number;
  request.wr.ud.remote_qkey = kKey;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(pair_.get(), &request, &bad); error != 0) {
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "%s: cannot send a handshake to %s: %s; trying again", port_->name, name,
                errno_text(error));
    addresses_.end_send(destination);
    return Status::kResource;
  }
  sent_to_[slot] = &destination;
  ++sends_;
  ++next_send_;
  return Status::kOk;
}

Status DatagramQueue::post_receive(uint32_t index) noexcept {
  ibv_sge piece{reinterpret_cast<uintptr_t>(memory_.data() + size_t{index} * bytes_), bytes_,
                memory_.lkey()};
  ibv_recv_wr request{};
  request.wr_id = request_id(index);
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(pair_.get(), &request, &bad);
  if (error == 0) return Status::kOk;
  return fail(Status::kResource, "%s: cannot post a buffer for handshakes: %s", port_->name,
              errno_text(error));
}

// Decodes a received datagram and posts its buffer again; for a send completion only frees its entry.
DatagramQueue::Kind DatagramQueue::take(const ibv_wc& completion, Handshake* handshake) noexcept {
  if (completion.wr_id >> 32 != life_) return Kind::kNothing;
  const auto index = static_cast<uint32_t>(completion.wr_id);
  if (index >= kDatagramReceives) {
    --sends_;
    addresses_.end_send(*std::exchange(sent_to_[index - kDatagramReceives], nullptr));
    if (completion.status != IBV_WC_SUCCESS) note_failed_send(completion.status);
    return Kind::kNothing;
  }
  if (completion.status == IBV_WC_WR_FLUSH_ERR) {
    // Posted again, the buffer would be flushed at once, for ever.
    if (error_ == IBV_WC_SUCCESS) error_ = completion.status;
    is_flushed_ = true;
    return Kind::kNothing;
  }
  Kind kind = Kind::kUnknown;
  if (completion.status != IBV_WC_SUCCESS) {
    (void)fail(Status::kBadArg, "it could not be received: %s",
               ibv_wc_status_str(completion.status));
  } else if (completion.byte_len >= kGrhBytes && completion.byte_len <= bytes_) {
    const std::byte* const datagram = memory_.data() + size_t{index} * bytes_ + kGrhBytes;
    if (decode_handshake({datagram, completion.byte_len - kGrhBytes}, handshake) == Status::kOk)
      kind = Kind::kHandshake;
  }
  if (post_receive(index) != Status::kOk) log_warning("%s", last_error_text());
  return kind;
}

// ---- errors ----

void DatagramQueue::note_failed_send(ibv_wc_status status) noexcept {
  if (error_ == IBV_WC_SUCCESS) error_ = status;
  if (status == IBV_WC_WR_FLUSH_ERR) return;  // because of an earlier one
  errors_.add();
  static RateLimit limit(RateLimit::kSecond);
  log_warning(limit, "%s port %u: a handshake could not be sent: %s; trying again", port_->name,
              port_->number, ibv_wc_status_str(status));
}

// Called after completions with errors, and after an event. A failed send leaves the queue pair in the state
// SQE, in which it receives and flushes what it should send; with some adapters it is the error state, in
// which everything is flushed. Some adapters flush nothing, and report that state by the event alone. An
// event may also be older than the last reset.
void DatagramQueue::mend() noexcept {
  if (has_event_.exchange(false, std::memory_order_relaxed) && read_state() == IBV_QPS_ERR) {
    if (error_ == IBV_WC_SUCCESS) error_ = IBV_WC_FATAL_ERR;
    is_flushed_ = true;
  }
  if (error_ == IBV_WC_SUCCESS) return;
  if (!is_flushed_ && sends_ != 0) return;  // the other sends are being flushed
  const ibv_wc_status error = std::exchange(error_, IBV_WC_SUCCESS);
  if (!std::exchange(is_flushed_, false) && resume()) return;
  errors_.add();
  const uint64_t now = options_.clock();
  if (now - last_reset_ns_ > kLongestPauseNs) pause_ns_ = 0;
  log_warning("%s port %u: the handshake queue pair has failed: %s; it is reset in %llu ms",
              port_->name, port_->number, ibv_wc_status_str(error), ull(schedule_reset(now)));
}

// Returns the milliseconds until the next reset.
uint64_t DatagramQueue::schedule_reset(uint64_t now) noexcept {
  const uint64_t due = std::max(now, last_reset_ns_ + pause_ns_);
  pause_ns_ = std::clamp(2 * pause_ns_, kFirstPauseNs, kLongestPauseNs);
  resets_ns_.store(due, std::memory_order_relaxed);
  return (due - now) / 1'000'000;
}

// The error state also if the adapter does not say.
ibv_qp_state DatagramQueue::read_state() const noexcept {
  (void)port_->descriptors.keep_ours(port_->device.context);
  ibv_qp_attr state{};
  ibv_qp_init_attr unused{};
  const int error = uncancelled::call(ibv_query_qp, pair_.get(), &state, IBV_QP_STATE, &unused);
  return error == 0 ? state.qp_state : IBV_QPS_ERR;
}

// Starts the sending half again after a failed send. False: the queue pair has to be reset.
bool DatagramQueue::resume() noexcept {
  const ibv_qp_state found = read_state();
  if (found != IBV_QPS_SQE) return found == IBV_QPS_RTS;
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_RTS;
  return uncancelled::call(ibv_modify_qp, pair_.get(), &state, IBV_QP_STATE) == 0;
}

// Resets the queue pair if it is time for that. True: it runs again.
bool DatagramQueue::restart() noexcept {
  const uint64_t now = options_.clock();
  if (now < resets_ns_.load(std::memory_order_relaxed)) return false;
  last_reset_ns_ = now;
  if (reset() == Status::kOk) {
    failed_resets_ = 0;
    resets_ns_.store(kRuns, std::memory_order_relaxed);
    return true;
  }
  if (++failed_resets_ < kMostFailedResets) {
    log_warning("%s; trying again in %llu ms", last_error_text(), ull(schedule_reset(now)));
    return false;
  }
  resets_ns_.store(kNever, std::memory_order_relaxed);
  log_warning("%s, %u times; ranks without a connection can no longer be reached",
              last_error_text(), kMostFailedResets);
  return false;
}

Status DatagramQueue::reset() noexcept {
  (void)port_->descriptors.keep_ours(port_->device.context);
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_RESET;
  if (const int error = uncancelled::call(ibv_modify_qp, pair_.get(), &state, IBV_QP_STATE);
      error != 0)
    return fail(Status::kResource, "%s port %u: cannot reset the handshake queue pair: %s",
                port_->name, port_->number, errno_text(error));
  // The queue pair is empty now. Its old completions would take the room of new ones.
  ibv_wc old[kBatch];
  for (uint32_t left = kDatagramReceives + kDatagramSends; left != 0;) {
    const int count = ibv_poll_cq(completions_.get(), kBatch, old);
    if (count <= 0) break;
    left -= std::min(left, static_cast<uint32_t>(count));
  }
  for (Destination*& destination : sent_to_) {
    if (destination != nullptr) addresses_.end_send(*std::exchange(destination, nullptr));
  }
  ++life_;
  sends_ = 0;
  return start();
}

}  // namespace hydrant::ibv
