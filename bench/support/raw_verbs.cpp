// Bare queue pairs over libibverbs for verbs_compare and verbs_sweep_bench.
#include "bench/support/raw_verbs.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace hydrant::bench {
namespace {

constexpr uint32_t kSequence = 0x123;
constexpr int kBatch = 16;
constexpr uint64_t kPatienceNs = 20'000'000'000;

}  // namespace

bool Patience::is_late() {
  const uint64_t now = now_ns();
  if (deadline_ns_ == 0) deadline_ns_ = now + kPatienceNs;
  return now >= deadline_ns_;
}

RawVerbs::RawVerbs(uint32_t peers, size_t bytes) : bytes_(bytes) {
  const char* wanted = std::getenv("HYDRANT_IBV_PORTS");
  if (ibv::open_port(wanted != nullptr ? wanted : "", &port_) != Status::kOk) {
    why_ = last_error_text();
    return;
  }
  is_open_ = true;
  links_.resize(peers);
  mapped_ = bytes + size_t{peers} * kDepth * kMessage;
  void* mapped = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapped == MAP_FAILED) {
    fail("cannot allocate memory", errno);
    return;
  }
  memory_ = static_cast<std::byte*>(mapped);
  registration_ =
      ibv_reg_mr(port_.device.pd, mapped, mapped_, IBV_ACCESS_LOCAL_WRITE | remote_access());
  if (registration_ == nullptr) {
    fail("cannot register memory", errno);
    return;
  }
  for (uint32_t peer = 0; peer < peers; ++peer) {
    if (!open_link(peer)) return;
  }
}

RawVerbs::~RawVerbs() {
  for (const Link& link : links_) {
    if (link.pair != nullptr) ibv_destroy_qp(link.pair);
    if (link.completions != nullptr) ibv_destroy_cq(link.completions);
  }
  if (registration_ != nullptr) ibv_dereg_mr(registration_);
  if (memory_ != nullptr) munmap(memory_, mapped_);
  if (is_open_) close_ibv_device(port_.device);
}

bool RawVerbs::fail(const char* what, int error) {
  if (why_.empty()) why_ = std::string(what) + ": " + errno_text(error);
  return false;
}

bool RawVerbs::give_up() {
  if (why_.empty())
    why_ = "no completion for " + std::to_string(kPatienceNs / 1'000'000'000) +
           " s: the peer has failed or does not run";
  return false;
}

bool RawVerbs::open_link(uint32_t peer) {
  Link& link = links_[peer];
  link.completions = ibv_create_cq(port_.device.context, 2 * kDepth, nullptr, nullptr, 0);
  if (link.completions == nullptr) return fail("cannot create a completion queue", errno);
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = link.completions;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = kDepth;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = kInline;
  link.pair = ibv_create_qp(port_.device.pd, &attributes);
  if (link.pair == nullptr) return fail("cannot create a queue pair", errno);
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  state.port_num = port_.number;
  state.qp_access_flags = remote_access();
  const int error = ibv_modify_qp(
      link.pair, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return fail("cannot initialise a queue pair", error);
  for (uint32_t i = 0; i < kDepth; ++i) {
    if (!post_receive(link, peer * kDepth + i)) return false;
  }
  return true;
}

RawVerbs::EndpointAddress RawVerbs::endpoint_address(uint32_t peer) const {
  return {.queue = links_[peer].pair->qp_num,
          .sequence = kSequence,
          .lid = port_.lid,
          .rkey = registration_->rkey,
          .memory = reinterpret_cast<uintptr_t>(memory_),
          .gid = port_.gid};
}

bool RawVerbs::connect(uint32_t peer, const EndpointAddress& address) {
  Link& link = links_[peer];
  link.there = address;
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_RTR;
  state.path_mtu = port_.mtu;
  state.dest_qp_num = address.queue;
  state.rq_psn = address.sequence;
  state.max_dest_rd_atomic = 16;
  state.min_rnr_timer = 12;
  state.ah_attr.dlid = static_cast<uint16_t>(address.lid);
  state.ah_attr.port_num = port_.number;
  if (port_.is_ethernet) {
    state.ah_attr.is_global = 1;
    state.ah_attr.grh.dgid = address.gid;
    state.ah_attr.grh.sgid_index = port_.gid_index;
    state.ah_attr.grh.hop_limit = 64;
  }
  int error = ibv_modify_qp(link.pair, &state,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) {
    state.qp_state = IBV_QPS_RTS;
    state.sq_psn = kSequence;
    state.timeout = 14;
    state.retry_cnt = 6;
    state.rnr_retry = 7;
    state.max_rd_atomic = 16;
    error = ibv_modify_qp(link.pair, &state,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  return error == 0 || fail("cannot connect a queue pair", error);
}

bool RawVerbs::post_receive(Link& link, uint64_t buffer) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(memory_ + bytes_ + buffer * kMessage), kMessage,
                registration_->lkey};
  ibv_recv_wr request{};
  request.wr_id = buffer << 1 | 1;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(link.pair, &request, &bad);
  return error == 0 || fail("cannot post a receive buffer", error);
}

bool RawVerbs::post(uint32_t peer, ibv_send_wr& request, bool is_signalled) {
  Link& link = links_[peer];
  if (is_signalled) {
    request.send_flags |= IBV_SEND_SIGNALED;
    ++link.signalled;
  }
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(link.pair, &request, &bad);
  return error == 0 || fail("cannot post a request", error);
}

bool RawVerbs::write(uint32_t peer, size_t here, size_t there, uint32_t bytes, bool is_signalled) {
  const EndpointAddress& address = links_[peer].there;
  return write_any(peer, memory_ + here, registration_->lkey, address.memory + there, address.rkey,
                   bytes, is_signalled);
}

bool RawVerbs::write_to(uint32_t peer, const std::byte* from, uint32_t lkey, uint64_t to,
                        uint32_t rkey, uint32_t bytes) {
  return write_any(peer, from, lkey, to, rkey, bytes, true);
}

bool RawVerbs::write_any(uint32_t peer, const std::byte* from, uint32_t lkey, uint64_t to,
                         uint32_t rkey, uint32_t bytes, bool is_signalled) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(from), bytes, lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = bytes <= kInline ? IBV_SEND_INLINE : 0;
  request.wr.rdma.remote_addr = to;
  request.wr.rdma.rkey = rkey;
  return post(peer, request, is_signalled);
}

bool RawVerbs::write_list(uint32_t peer, size_t here, size_t there, uint32_t bytes,
                          uint32_t count) {
  Link& link = links_[peer];
  ibv_sge piece{reinterpret_cast<uintptr_t>(memory_ + here), bytes, registration_->lkey};
  ibv_send_wr requests[kSignalInterval] = {};
  for (uint32_t i = 0; i < count; ++i) {
    requests[i].sg_list = &piece;
    requests[i].num_sge = 1;
    requests[i].opcode = IBV_WR_RDMA_WRITE;
    requests[i].send_flags = bytes <= kInline ? IBV_SEND_INLINE : 0;
    requests[i].wr.rdma.remote_addr = link.there.memory + there;
    requests[i].wr.rdma.rkey = link.there.rkey;
    requests[i].next = i + 1 < count ? &requests[i + 1] : nullptr;
  }
  requests[count - 1].send_flags |= IBV_SEND_SIGNALED;
  ++link.signalled;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(link.pair, requests, &bad);
  return error == 0 || fail("cannot post a list of requests", error);
}

bool RawVerbs::fetch_add(uint32_t peer, size_t here, size_t there) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(memory_ + here), sizeof(uint64_t), registration_->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  request.wr.atomic.remote_addr = links_[peer].there.memory + there;
  request.wr.atomic.rkey = links_[peer].there.rkey;
  request.wr.atomic.compare_add = 1;
  return post(peer, request, true);
}

bool RawVerbs::read(uint32_t peer, size_t here, size_t there, uint32_t bytes) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(memory_ + here), bytes, registration_->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.wr.rdma.remote_addr = links_[peer].there.memory + there;
  request.wr.rdma.rkey = links_[peer].there.rkey;
  return post(peer, request, true);
}

bool RawVerbs::send(uint32_t peer, uint32_t bytes, bool is_signalled) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(memory_), bytes, registration_->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  return post(peer, request, is_signalled);
}

bool RawVerbs::poll(uint32_t peer) {
  Link& link = links_[peer];
  ibv_wc completions[kBatch];
  const int count = ibv_poll_cq(link.completions, kBatch, completions);
  if (count < 0) return fail("cannot poll a completion queue", EIO);
  for (int i = 0; i < count; ++i) {
    if (completions[i].status != IBV_WC_SUCCESS) {
      if (why_.empty()) why_ = ibv_wc_status_str(completions[i].status);
      return false;
    }
    if ((completions[i].wr_id & 1) == 0) {
      ++link.completed;
    } else {
      ++link.received;
      if (!post_receive(link, completions[i].wr_id >> 1)) return false;
    }
  }
  return true;
}

}  // namespace hydrant::bench
