// Sends and receives datagrams by an unreliable queue pair. Tour "first contact": a handshake leaves and
// arrives here.
#include "rdma/ibv/connection/datagram_queue.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>
#include <utility>

namespace hydrant::ibv {

Status DatagramQueue::open(const Port& port, ibv_comp_channel* channel, uint32_t rails) noexcept {
  port_ = &port;
  bytes_ = datagram_bytes(rails);
  if (const Status status =
          memory_.open(port.device.pd, size_t{kDatagramReceives + kDatagramSends} * bytes_,
                       IBV_ACCESS_LOCAL_WRITE, "handshakes");
      status != Status::kOk)
    return status;
  errno = 0;
  completions_.reset(uncancelled::call(ibv_create_cq, port.device.context,
                                       int{kDatagramReceives + kDatagramSends}, nullptr, channel,
                                       0));
  if (completions_ == nullptr)
    return fail(Status::kResource, "%s: cannot create the handshake completion queue: %s",
                port.name, errno_text(errno));
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = completions_.get();
  attributes.qp_type = IBV_QPT_UD;
  attributes.cap.max_send_wr = kDatagramSends;
  attributes.cap.max_recv_wr = kDatagramReceives;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.sq_sig_all = 1;
  pair_.reset(uncancelled::call(ibv_create_qp, port.device.pd, &attributes));
  if (pair_ == nullptr)
    return fail(Status::kResource, "%s: cannot create the handshake queue pair: %s", port.name,
                errno_text(errno));
  return start();
}

Status DatagramQueue::start() noexcept {
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  state.port_num = port_->number;
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
  for (AddressHandle& address : addresses_) address.reset();
  completions_.reset();
  memory_.close();
}

bool DatagramQueue::send(const Handshake& handshake, ibv_ah* address, uint32_t number,
                         const char* name) noexcept {
  if (sends_ == kDatagramSends) return false;
  std::byte* const buffer =
      memory_.data() + size_t{kDatagramReceives + next_send_ % kDatagramSends} * bytes_;
  encode_handshake(handshake, buffer);
  ibv_sge piece{reinterpret_cast<uintptr_t>(buffer),
                static_cast<uint32_t>(handshake_bytes(handshake.endpoint.rail_count)),
                memory_.lkey()};
  ibv_send_wr request{};
  request.wr_id = kDatagramReceives;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud.ah = address;
  request.wr.ud.remote_qpn = number;
  request.wr.ud.remote_qkey = kKey;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(pair_.get(), &request, &bad); error != 0) {
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "%s: cannot send a handshake to %s: %s; trying again", port_->name, name,
                errno_text(error));
    return false;
  }
  ++sends_;
  ++next_send_;
  return true;
}

bool DatagramQueue::send(const Handshake& handshake, AddressHandle address, uint32_t number,
                         const char* name) noexcept {
  AddressHandle& place = addresses_[next_send_ % kDatagramSends];
  if (!send(handshake, address.get(), number, name)) return false;
  place = std::move(address);
  return true;
}

Status DatagramQueue::post_receive(uint32_t index) noexcept {
  ibv_sge piece{reinterpret_cast<uintptr_t>(memory_.data() + size_t{index} * bytes_), bytes_,
                memory_.lkey()};
  ibv_recv_wr request{};
  request.wr_id = index;
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
  if (completion.wr_id >= kDatagramReceives) {
    --sends_;
    return Kind::kSent;
  }
  const auto index = static_cast<uint32_t>(completion.wr_id);
  Kind kind = Kind::kUnknown;
  if (completion.status == IBV_WC_SUCCESS && completion.byte_len >= kGrhBytes &&
      completion.byte_len <= bytes_) {
    const std::byte* const datagram = memory_.data() + size_t{index} * bytes_ + kGrhBytes;
    if (decode_handshake({datagram, completion.byte_len - kGrhBytes}, handshake) == Status::kOk)
      kind = Kind::kHandshake;
  }
  if (post_receive(index) != Status::kOk) log_warning("%s", last_error_text());
  return kind;
}

}  // namespace hydrant::ibv
