// Chooses the job's transports by HYDRANT_TRANSPORT and the placement of its ranks, and opens them. wire_up()
// (am/start_job.cpp) calls it; two transports become one in composite_transport.cpp.
#include "rdma/make_transport.hpp"

#include "rdma/bootstrap/locked_bootstrap.hpp"
#include "rdma/composite_transport.hpp"
#include "rdma/config/job_knobs.hpp"
#include "rdma/ibv/make_verbs_transport.hpp"
#include "rdma/shm/make_node_transport.hpp"

#include <climits>
#include <new>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace hydrant {
namespace {

constexpr uint64_t kWaitNs = 60'000'000'000;

// `near` is null if the ranks of this node share no memory.
Status make_far_transport(Bootstrap& bootstrap, Mutex& bootstrap_mu, bool single_threaded,
                          Transport* near, std::unique_ptr<NetworkTransport>* far) noexcept {
  // Never destroyed, like the transport over it: threads may still use it when the process exits.
  alignas(LockedBootstrap) static std::byte place_of_guarded[sizeof(LockedBootstrap)];
  auto& guarded = *new (place_of_guarded) LockedBootstrap(bootstrap, bootstrap_mu);
  const JobTopology& topology = bootstrap.topology();
  std::byte* const board =
      near != nullptr ? near->memory().start_block(topology.node_ranks[0]) : nullptr;
  const Status status = make_verbs_transport(guarded, single_threaded, board, far);
  if (status == Status::kOk) return status;
  char host[HOST_NAME_MAX + 1] = "?";
  (void)gethostname(host, sizeof host - 1);
  if (status != Status::kUnsupported)
    return add_context(status, "rank %u on %s", topology.rank, host);
  const std::string why = last_error_text();
  if (topology.node_count == 1)
    return fail(status,
                "rank %u on %s is to use verbs within the node (HYDRANT_TRANSPORT=ibv; left out, "
                "the %u ranks share memory): %s",
                topology.rank, host, topology.size, why.c_str());
  return fail(status,
              "rank %u on %s reaches ranks on other nodes (%u ranks, %u nodes) by verbs: %s",
              topology.rank, host, topology.size, topology.node_count, why.c_str());
}

}  // namespace

Status make_transport(Bootstrap& bootstrap, Mutex& bootstrap_mu, bool single_threaded,
                      const Injection& injection, std::unique_ptr<Transport>* transport) noexcept {
  transport->reset();
  const JobTopology& topology = bootstrap.topology();
  if (topology.size == 1) return Status::kOk;
  const std::string_view choice = knob_choice(JobKnob::kTransport);
  const bool is_one_node = topology.node_ranks.size() == topology.size;
  if (!is_one_node && choice == "shm") {
    return fail(
        Status::kUnsupported,
        "HYDRANT_TRANSPORT=shm reaches the %zu ranks of this node, and the job has %u on %u "
        "nodes; leave it out, or set it to auto or ibv",
        topology.node_ranks.size(), topology.size, topology.node_count);
  }
  const bool wants_far = !is_one_node || choice == "ibv";
  if (wants_far && injection.has_network) {
    return fail(Status::kBadArg,
                "HYDRANT_INJECT puts a network over shared memory, and these ranks use verbs; "
                "leave it out, or run on one node without HYDRANT_TRANSPORT=ibv");
  }
  Status status = is_one_node ? Status::kOk : publish_verbs_networks(bootstrap);
  if (status != Status::kOk) return status;
  std::unique_ptr<Transport> near;
  if (choice != "ibv" && topology.node_ranks.size() > 1) {
    // The injected network has a thread of its own, so it needs the multi-threaded mode.
    status = make_node_transport(bootstrap, single_threaded && !injection.has_network, &near);
  } else if (topology.node_ranks.size() > 1) {
    status = share_no_memory(bootstrap);
  } else {
    // The fence by which the ranks of another node share memory is collective over the job: this rank joins
    // it. The networks that were published can be read after it.
    status = bootstrap.fence(now_ns() + kWaitNs);
  }
  std::unique_ptr<NetworkTransport> far;
  if (status == Status::kOk && wants_far)
    status = make_far_transport(bootstrap, bootstrap_mu, single_threaded, near.get(), &far);
  if (status != Status::kOk) return status;
  if (near != nullptr && far != nullptr) {
    status = CompositeTransport::open(std::move(near), std::move(far), topology, transport);
  } else if (far != nullptr) {
    *transport = std::move(far);
  } else {
    *transport = std::move(near);
  }
  return status == Status::kOk ? inject(injection, bootstrap, transport) : status;
}

}  // namespace hydrant
