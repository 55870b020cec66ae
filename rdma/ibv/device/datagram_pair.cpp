// Creates queue pairs of type UD. ibv_port.cpp tries one on each device that it opens, and datagram_queue.cpp
// creates the one that sends handshakes.
#include "rdma/ibv/device/datagram_pair.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>

namespace hydrant::ibv {

Status create_datagram_pair(const Port& port, ibv_comp_channel* channel,
                            CompletionQueue* completions, QueuePair* pair) noexcept {
  errno = 0;
  completions->reset(uncancelled::call(ibv_create_cq, port.device.context,
                                       int{kDatagramReceives + kDatagramSends}, nullptr, channel,
                                       port.completion_vector));
  if (*completions == nullptr)
    return fail(Status::kResource, "%s: cannot create the handshake completion queue: %s",
                port.name, errno_text(errno));
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = completions->get();
  attributes.qp_type = IBV_QPT_UD;
  attributes.cap.max_send_wr = kDatagramSends;
  attributes.cap.max_recv_wr = kDatagramReceives;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.sq_sig_all = 1;
  pair->reset(uncancelled::call(ibv_create_qp, port.device.pd, &attributes));
  if (*pair != nullptr) return Status::kOk;
  const int error = errno;
  // Drivers differ in the error by which they say that they lack the type.
  if (error == EOPNOTSUPP || error == ENOSYS || error == EINVAL)
    return fail(Status::kUnsupported,
                "%s cannot be used: it has no datagrams (queue pairs of type UD): %s; name another "
                "device in HYDRANT_IBV_PORTS",
                port.name, errno_text(error));
  return fail(Status::kResource, "%s: cannot create the handshake queue pair: %s", port.name,
              errno_text(error));
}

Status try_datagrams(const Port& port) noexcept {
  CompletionQueue completions;
  QueuePair pair;
  const Status status = create_datagram_pair(port, nullptr, &completions, &pair);
  return status == Status::kUnsupported ? status : Status::kOk;
}

}  // namespace hydrant::ibv
