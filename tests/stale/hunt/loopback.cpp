// Connects a queue pair to itself and moves bytes through it, for hunts over the registrar of
// libfirehose_ibv.
#include "tests/stale/hunt/loopback.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <unistd.h>

namespace hydrant::stale {
namespace {

constexpr auto kMaxWait = std::chrono::seconds(20);

bool report(const char* what, std::string* error) {
  *error = std::string(what) + ": " + std::strerror(errno);
  return false;
}

// The last GID that is set; with RoCE usually the interface's IPv4 address.
bool find_gid(ibv_context* context, const ibv_port_attr& port, ibv_gid* gid, uint8_t* index) {
  bool found = false;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid each{};
    if (ibv_query_gid(context, 1, i, &each) != 0 || each.global.interface_id == 0) continue;
    *gid = each;
    *index = static_cast<uint8_t>(i);
    found = true;
  }
  return found;
}

// All bytes, or false.
bool transfer_file(int file, char* bytes, size_t len, bool to_file) {
  while (len > 0) {
    const ssize_t n = to_file ? write(file, bytes, len) : read(file, bytes, len);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    len -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

std::unique_ptr<Loopback> Loopback::open(ibv_pd* pd, std::string* error) {
  std::unique_ptr<Loopback> made(new Loopback);
  made->buffer_ = std::make_unique<char[]>(kBufferBytes);
  made->registration_ =
      ibv_reg_mr(pd, made->buffer_.get(), kBufferBytes,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  made->queue_ = ibv_create_cq(pd->context, 4, nullptr, nullptr, 0);
  ibv_qp_init_attr wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = wanted.recv_cq = made->queue_;
  wanted.cap = {2, 1, 1, 1, 0};
  if (made->registration_ != nullptr && made->queue_ != nullptr)
    made->pair_ = ibv_create_qp(pd, &wanted);
  if (made->pair_ == nullptr) {
    report("no queue pair to move data with", error);
    return nullptr;
  }
  return made->connect(error) ? std::move(made) : nullptr;
}

Loopback::~Loopback() {
  if (pair_ != nullptr) ibv_destroy_qp(pair_);
  if (queue_ != nullptr) ibv_destroy_cq(queue_);
  if (registration_ != nullptr) ibv_dereg_mr(registration_);
}

bool Loopback::connect(std::string* error) {
  ibv_port_attr port{};
  ibv_qp_attr to{};
  if (ibv_query_port(pair_->context, 1, &port) != 0) return report("ibv_query_port", error);
  const bool is_global =
      find_gid(pair_->context, port, &to.ah_attr.grh.dgid, &to.ah_attr.grh.sgid_index);
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (ibv_modify_qp(pair_, &to,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
    return report("the queue pair cannot be initialised", error);
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = IBV_MTU_1024;
  to.dest_qp_num = pair_->qp_num;
  to.max_dest_rd_atomic = 1;
  to.min_rnr_timer = 12;
  to.ah_attr.dlid = port.lid;
  to.ah_attr.port_num = 1;
  to.ah_attr.is_global = is_global ? 1 : 0;
  to.ah_attr.grh.hop_limit = 64;
  if (ibv_modify_qp(pair_, &to,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    return report("the queue pair does not become ready to receive", error);
  to.qp_state = IBV_QPS_RTS;
  to.timeout = 17;
  to.retry_cnt = 7;
  to.rnr_retry = 7;
  to.max_rd_atomic = 1;
  if (ibv_modify_qp(pair_, &to,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0)
    return report("the queue pair does not become ready to send", error);
  return true;
}

// A write from the memory into the buffer, or a read from the buffer into the memory: both use the lkey of
// the memory.
bool Loopback::transfer(uintptr_t addr, size_t len, uint32_t lkey, bool to_buffer,
                        std::string* error) {
  ibv_sge piece = {addr, static_cast<uint32_t>(len), lkey};
  ibv_send_wr work{};
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = to_buffer ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(buffer_.get());
  work.wr.rdma.rkey = registration_->rkey;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(pair_, &work, &bad) != 0) return report("ibv_post_send", error);
  const auto deadline = std::chrono::steady_clock::now() + kMaxWait;
  ibv_wc done{};
  while (ibv_poll_cq(queue_, 1, &done) == 0) {
    if (std::chrono::steady_clock::now() < deadline) continue;
    *error = "no completion of an RDMA operation in 20 s";
    return false;
  }
  if (done.status == IBV_WC_SUCCESS) return true;
  *error = std::string("an RDMA operation failed: ") + ibv_wc_status_str(done.status);
  return false;
}

bool Loopback::move(uintptr_t addr, size_t len, uint32_t lkey, int file, bool to_file,
                    std::string* error) {
  const std::lock_guard lock(mutex_);
  for (size_t done = 0; done < len;) {
    const size_t part = std::min(len - done, kBufferBytes);
    if (to_file && !transfer(addr + done, part, lkey, true, error)) return false;
    if (!transfer_file(file, buffer_.get(), part, to_file)) return report("the file", error);
    if (!to_file && !transfer(addr + done, part, lkey, false, error)) return false;
    done += part;
  }
  return true;
}

}  // namespace hydrant::stale
