// Takes a reliable queue pair through its states INIT, RTR and RTS. Tour "first contact": peer_factory.cpp
// starts the pair here, and peer_connector.cpp connects it.
#include "rdma/ibv/connection/ibv_queue_pair.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>

namespace hydrant::ibv {
namespace {

// 7 means: retry for ever. Credits ensure that the receiver always has a buffer.
constexpr uint8_t kReceiverRetries = 7;
constexpr uint8_t kReceiverTimer = 12;  // 0.64 ms
// RDMA reads and atomics under way at once; the adapter itself delays further ones.
constexpr uint32_t kReads = 16;

constexpr uint64_t kTimeoutUnitNs = 4096;
constexpr uint8_t kMaxTimeout = 31;

}  // namespace

uint32_t draw_sequence() noexcept { return static_cast<uint32_t>(now_ns() / 64) & 0xff'ffff; }

uint8_t reads_accepted(const Port& port) noexcept {
  return static_cast<uint8_t>(std::clamp(port.max_reads_in, 1u, kReads));
}

Status start_queue_pair(ibv_qp* queue, const Port& port) noexcept {
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  state.port_num = port.number;
  state.pkey_index = port.pkey_index;
  state.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (port.atomics != IBV_ATOMIC_NONE) state.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
  const int error =
      uncancelled::call(ibv_modify_qp, queue, &state,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error == 0) return Status::kOk;
  return fail(Status::kResource, "%s: cannot start a queue pair: %s", port.name, errno_text(error));
}

uint8_t timeout_for(uint64_t patience_ns, uint32_t retries) noexcept {
  uint8_t timeout = 1;  // 0 is for ever
  uint64_t gives_up_ns = (retries + 1) * (kTimeoutUnitNs << timeout);
  // Twice the time is nearer as soon as `patience_ns` is more than one and a half of it.
  for (; timeout < kMaxTimeout && gives_up_ns + gives_up_ns / 2 < patience_ns; ++timeout)
    gives_up_ns *= 2;
  return timeout;
}

Status connect_queue_pair(const QueuePairConnection& connection) noexcept {
  const Port& port = *connection.port;
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_RTR;
  state.path_mtu = std::min(port.mtu, static_cast<ibv_mtu>(connection.there.mtu));
  state.dest_qp_num = connection.number;
  state.rq_psn = connection.sequence;
  state.max_dest_rd_atomic = reads_accepted(port);
  state.min_rnr_timer = kReceiverTimer;
  state.ah_attr = address_of(port, connection.there);
  int error =
      uncancelled::call(ibv_modify_qp, connection.queue, &state,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) {
    state.qp_state = IBV_QPS_RTS;
    state.sq_psn = connection.own_sequence;
    state.timeout = timeout_for(connection.patience_ns, port.max_retries);
    state.retry_cnt = port.max_retries;
    state.rnr_retry = kReceiverRetries;
    state.max_rd_atomic = static_cast<uint8_t>(
        std::clamp(std::min<uint32_t>(port.max_reads_out, connection.there.reads_in), 1u, kReads));
    error = uncancelled::call(ibv_modify_qp, connection.queue, &state,
                              IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  if (error == 0) return Status::kOk;
  if (state.qp_state == IBV_QPS_RTR && is_silence(port, error))
    return fail(Status::kNotReady, "%s port %u cannot connect to %s now: %s (%s)", port.name,
                port.number, connection.peer, errno_text(error), silence_text(error));
  return fail(Status::kBroken,
              "%s port %u cannot connect to %s: %s (GID index %u; choose "
              "another with HYDRANT_IBV_PORTS)",
              port.name, port.number, connection.peer, errno_text(error), port.gid_index);
}

}  // namespace hydrant::ibv
