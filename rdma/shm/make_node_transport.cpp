// Opens the transport of a node: its first rank creates the shared memory and passes it to the others.
// make_transport.cpp calls it.
#include "rdma/shm/make_node_transport.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/fd_passing.hpp"
#include "rdma/shm/shm_transport.hpp"

#include <new>
#include <utility>

namespace hydrant {
namespace {

constexpr uint64_t kWaitNs = 60'000'000'000;
// The id of the first descriptor that the ranks of a node share.
constexpr uint32_t kNodeMemoryFd = 1;

Status share_memory(Bootstrap& bootstrap, int* fd) noexcept {
  int made = -1;
  Status status = Status::kOk;
  const JobTopology& topology = bootstrap.topology();
  if (topology.node_rank == 0) {
    status = shm::NodeMemory::create(static_cast<uint32_t>(topology.node_ranks.size()), &made);
  }
  status = share_fd(bootstrap, kNodeMemoryFd, status, made, fd, now_ns() + kWaitNs);
  if (made >= 0) uncancelled::close(made);
  return status;
}

}  // namespace

Status share_no_memory(Bootstrap& bootstrap) noexcept {
  const Status status =
      share_no_fd(bootstrap, kNodeMemoryFd,
                  "HYDRANT_TRANSPORT has to be the same on all ranks, and it is ibv there, auto or "
                  "shm here",
                  now_ns() + kWaitNs);
  return status != Status::kBadArg
             ? status
             : add_context(status,
                           "HYDRANT_TRANSPORT has to be the same on all ranks, and it is auto or "
                           "shm there, ibv here");
}

Status make_node_transport(Bootstrap& bootstrap, bool single_threaded,
                           std::unique_ptr<Transport>* transport) noexcept {
  const JobTopology& topology = bootstrap.topology();
  int fd = -1;
  if (const Status status = share_memory(bootstrap, &fd); status != Status::kOk) return status;
  // The memory is never destroyed, like the transport over it: threads may still use it when the process
  // exits.
  alignas(shm::NodeMemory) static std::byte place_of_memory[sizeof(shm::NodeMemory)];
  auto& memory = *new (place_of_memory) shm::NodeMemory;
  Status status = memory.attach(fd, topology.node_rank);
  uncancelled::close(fd);
  std::unique_ptr<ShmTransport> made;
  if (status == Status::kOk) {
    status = ShmTransport::open(
        memory, topology,
        single_threaded ? ShmTransport::Threads::kOne : ShmTransport::Threads::kMany, &made);
  }
  if (status == Status::kOk) *transport = std::move(made);
  return status;
}

}  // namespace hydrant
