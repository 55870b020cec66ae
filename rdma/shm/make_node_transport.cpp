// The node's shared memory, made by its first rank and handed to the others, the transport over it, and what
// HYDRANT_INJECT puts in between.
#include "firehose/base/thread.hpp"
#include "rdma/injected_transport.hpp"
#include "rdma/node_channel.hpp"
#include "rdma/send_only_transport.hpp"
#include "rdma/shm/shm_transport.hpp"

#include <new>
#include <unistd.h>
#include <utility>

namespace hydrant {
namespace {

constexpr uint64_t kWaitNs = 60'000'000'000;
// The first descriptor that the ranks of a node share.
constexpr uint32_t kNodeMemoryFd = 1;

Status share_memory(Bootstrap& bootstrap, int* fd) noexcept {
  int made = -1;
  Status status = Status::kOk;
  const JobPlace& place = bootstrap.place();
  if (place.node_rank == 0) {
    status = shm::NodeMemory::create(static_cast<uint32_t>(place.node_ranks.size()), &made);
  }
  if (status == Status::kOk)
    status = share_fd(bootstrap, kNodeMemoryFd, made, fd, now_ns() + kWaitNs);
  if (made >= 0) close(made);
  return status;
}

Status inject(const Injection& injection, const JobPlace& place,
              std::unique_ptr<Transport>* transport) noexcept {
  if (injection.has_network) {
    std::unique_ptr<Transport> inside = std::move(*transport);
    const Status status = InjectedTransport::open(std::move(inside), place,
                                                  {.network = injection.network}, transport);
    if (status != Status::kOk) return status;
  }
  if (injection.send_only) {
    std::unique_ptr<Transport> inside = std::move(*transport);
    transport->reset(new (std::nothrow) SendOnlyTransport(std::move(inside)));
    if (*transport == nullptr) return fail(Status::kResource, "no memory for a transport");
  }
  return Status::kOk;
}

}  // namespace

Status make_node_transport(Bootstrap& bootstrap, bool single_threaded,
                           std::unique_ptr<Transport>* transport) noexcept {
  transport->reset();
  Injection injection;
  if (const Status status = read_injection(&injection); status != Status::kOk) return status;
  const JobPlace& place = bootstrap.place();
  if (place.size == 1) return Status::kOk;
  int fd = -1;
  if (const Status status = share_memory(bootstrap, &fd); status != Status::kOk) return status;
  // Lives as long as the process, like the transport over it: threads may be inside when it ends.
  alignas(shm::NodeMemory) static std::byte place_of_memory[sizeof(shm::NodeMemory)];
  auto& memory = *new (place_of_memory) shm::NodeMemory;
  Status status = memory.attach(fd, place.node_rank);
  close(fd);
  std::unique_ptr<ShmTransport> made;
  if (status == Status::kOk) {
    // The injected network has a thread.
    const bool one = single_threaded && !injection.has_network;
    status = ShmTransport::open(
        memory, place, one ? ShmTransport::Threads::kOne : ShmTransport::Threads::kMany, &made);
  }
  if (status != Status::kOk) return status;
  *transport = std::move(made);
  return inject(injection, place, transport);
}

}  // namespace hydrant
