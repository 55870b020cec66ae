// Sets up a send queue, and shuts it down after a failure; posting and completion are inline in the header.
// Tours "an Active Message" and "a put" pass here where a request goes to the adapter.
#include "rdma/ibv/queue/send_queue.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"

#include <bit>
#include <cerrno>
#include <cstdio>
#include <new>

namespace hydrant::ibv {

Status SendQueue::open(const Config& config) noexcept {
  peer_ = config.peer;
  port_ = config.port;
  posting_ = config.port->posts_by_call ? Posting::kByCall : Posting::kInline;
  depth_ = config.depth;
  const uint32_t records = std::bit_ceil(depth_);
  mask_ = records - 1;
  records_.reset(new (std::nothrow) SendRecord[records]);
  if (records_ == nullptr)
    return fail(Status::kResource, "no memory for a send queue of %u", depth_);
  for (uint32_t i = 0; i < records; ++i) records_[i].queue = this;
  ibv_qp_init_attr attributes{};
  attributes.qp_context = config.peer;
  attributes.send_cq = attributes.recv_cq = config.completions;
  attributes.srq = config.receives;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = depth_;
  attributes.cap.max_send_sge = 1;
  if (config.receives == nullptr && config.own_receives != 0) {
    attributes.cap.max_recv_wr = config.own_receives;
    attributes.cap.max_recv_sge = 1;
  }
  attributes.cap.max_inline_data = config.inline_bytes;
  errno = 0;
  pair_.reset(uncancelled::call(ibv_create_qp, port_->device.pd, &attributes));
  if (pair_ != nullptr) return Status::kOk;
  return fail(Status::kResource,
              "%s: cannot create a queue pair: %s (it has %u in all; memlock: ulimit -l)",
              port_->name, errno_text(errno), port_->max_queue_pairs);
}

bool SendQueue::shut(const char* peer_name) noexcept {
  (void)port_->descriptors.keep_ours(port_->device.context);
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_ERR;
  const int error = uncancelled::call(ibv_modify_qp, pair_.get(), &state, IBV_QP_STATE);
  if (error == 0) {
    // The queue pair flushes requests that are posted from now on.
    posting_.store(Posting::kByCall, std::memory_order_relaxed);
    return true;
  }
  static RateLimit limit(RateLimit::kSecond);
  log_warning(limit, "%s port %u: cannot shut the queue pair to %s: %s", port_->name, port_->number,
              peer_name, errno_text(error));
  return false;
}

const char* SendQueue::describe_failure(const char* text) noexcept {
  if (failure_[0] == '\0')
    std::snprintf(failure_, sizeof failure_, "%s, on %s port %u", text, port_->name, port_->number);
  return failure_;
}

}  // namespace hydrant::ibv
