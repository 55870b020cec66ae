// Creates the shared receive queue, and keeps the buffers that the adapter refused until they are posted
// again.
#include "rdma/ibv/queue/receive_pool.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/queue/spin_guard.hpp"

#include <cerrno>

namespace hydrant::ibv {

Status ReceivePool::open(const Port& port, uint32_t capacity, bool threaded) noexcept {
  threaded_ = threaded;
  capacity_ = UINT32_MAX;
  device_ = port.name;
  if (port.max_receives == 0) return Status::kOk;
  const auto create = [&] {
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = capacity;
    attributes.attr.max_sge = 1;
    errno = 0;
    queue_.reset(uncancelled::call(ibv_create_srq, port.device.pd, &attributes));
    return queue_ != nullptr;
  };
  // Some drivers (bnxt_re) refuse the length that they report as the greatest.
  if (!create() && errno == EINVAL && capacity == port.max_receives && --capacity != 0)
    (void)create();
  // Some drivers report a limit and have no such queues.
  if (queue_ == nullptr && (errno == EOPNOTSUPP || errno == ENOSYS)) return Status::kOk;
  capacity_ = capacity;
  if (queue_ != nullptr) return Status::kOk;
  return fail(Status::kResource, "%s: cannot create a shared receive queue of %u buffers: %s",
              port.name, capacity, errno_text(errno));
}

[[gnu::noinline]] uint32_t ReceivePool::keep_unposted(ibv_recv_wr* first, int error) noexcept {
  static RateLimit limit(RateLimit::kSecond);
  log_warning(limit, "%s: cannot post receive buffers: %s; trying again", device_,
              errno_text(error));
  const SpinGuard guard(unposted_lock_, threaded_);
  uint32_t count = 0;
  for (ibv_recv_wr* work = first; work != nullptr; ++count) {
    ibv_recv_wr* const next = work->next;
    auto& buffer = *reinterpret_cast<ReceiveBuffer*>(work->wr_id);
    buffer.next = unposted_.load(std::memory_order_relaxed);
    unposted_.store(&buffer, std::memory_order_relaxed);
    work = next;
  }
  return count;
}

ReceiveBuffer* ReceivePool::take_unposted() noexcept {
  const SpinGuard guard(unposted_lock_, threaded_);
  return unposted_.exchange(nullptr, std::memory_order_relaxed);
}

}  // namespace hydrant::ibv
