// Opens the transport of a node.
#include "rdma/shm/shm_transport.hpp"

#include "rdma/shm/memory/global_membarrier.hpp"

#include <algorithm>
#include <new>

namespace hydrant {

Status ShmTransport::open(shm::NodeMemory& memory, const JobTopology& topology, Threads threads,
                          std::unique_ptr<ShmTransport>* transport) noexcept {
  if (topology.node_ranks.size() != memory.node_size() ||
      topology.node_rank != memory.node_rank()) {
    return fail(
        Status::kBadArg,
        "the launcher reports rank %u of %zu on this node, and the node's memory rank %u of %u",
        topology.node_rank, topology.node_ranks.size(), memory.node_rank(), memory.node_size());
  }
  std::unique_ptr<ShmTransport> made(new (std::nothrow)
                                         ShmTransport(memory, threads == Threads::kMany));
  if (made == nullptr) return fail(Status::kResource, "no memory for a transport");
  const Status ready = made->init(topology, memory.node_rank());
  if (ready != Status::kOk) return ready;
  *transport = std::move(made);
  return Status::kOk;
}

Status ShmTransport::init(const JobTopology& topology, uint32_t self) noexcept {
  const auto& ranks = topology.node_ranks;
  shm::NodeIndex index{.size = static_cast<uint32_t>(ranks.size()),
                       .first = ranks.front(),
                       .span = ranks.back() - ranks.front() + 1};
  if (index.span != index.size) {
    table_.reset(new (std::nothrow) uint32_t[index.span]);
    if (table_ == nullptr) return fail(Status::kResource, "no memory for %u ranks", index.span);
    std::fill_n(table_.get(), index.span, UINT32_MAX);
    index.table = table_.get();
  }
  for (uint32_t i = 0; i < index.size; ++i) {
    if (table_ != nullptr) table_[ranks[i] - index.first] = i;
    if (i != self) connections_.connect(i);
  }
  const bool has_fence = shm::GlobalMembarrier::enable();
  sleeping_.init(index, has_fence);
  Status status = rings_.init(topology, index, has_fence);
  if (status == Status::kOk) status = memory_.init(index);
  return status;
}

}  // namespace hydrant
