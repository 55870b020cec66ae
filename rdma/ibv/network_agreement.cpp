// Exchanges what networks the nodes of a job have, and chooses one. make_verbs_transport.cpp calls it before
// it opens the transport.
#include "rdma/ibv/network_agreement.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/config/job_knobs.hpp"
#include "rdma/ibv/device/fork_safety.hpp"
#include "rdma/ibv/device/node_networks.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/start_board.hpp"

#include <atomic>
#include <span>
#include <string>

namespace hydrant::ibv {
namespace {

constexpr const char* kNetworksKey = "networks";
constexpr uint64_t kBoardPauseNs = 100'000;

bool are_ports_named() noexcept { return knob_text(JobKnob::kIbvPorts)[0] != '\0'; }

Status read_networks(Bootstrap& bootstrap, Rank leader, uint64_t deadline_ns,
                     NodeNetworks* node) noexcept {
  size_t bytes = 0;
  const std::span<std::byte> room = std::as_writable_bytes(std::span(node, 1));
  const Status status = bootstrap.get(leader, kNetworksKey, room, &bytes, deadline_ns);
  if (status != Status::kOk)
    return add_context(status == Status::kNotReady ? Status::kBroken : status,
                       "the networks of the node of rank %u", leader);
  if (node->is_valid(bytes)) return Status::kOk;
  return fail(Status::kBroken,
              "the entry '%s' of rank %u in the job's store is invalid: start all ranks with the "
              "same version of the library",
              kNetworksKey, leader);
}

Status no_common_network(const JobTopology& topology, const NodeNetworks& here,
                         const NodeNetworks& there, Rank leader_there) noexcept {
  const bool is_pair_joined = CommonNetworks(here).keep(there);
  return fail(Status::kUnsupported,
              "no network is common to all %u nodes: %s; %s%s; see hydrant-info there, or name "
              "ports that reach each other (HYDRANT_IBV_PORTS)",
              topology.node_count, text_of(here, topology.leaders[topology.node]).c_str(),
              text_of(there, leader_there).c_str(),
              is_pair_joined ? "; and what both have a third node lacks" : "");
}

Status compare_nodes(Bootstrap& bootstrap, uint64_t deadline_ns,
                     std::optional<NetworkId>* result) noexcept {
  const JobTopology& topology = bootstrap.topology();
  const auto nodes = static_cast<uint32_t>(topology.leaders.size());
  NodeNetworks here;
  Status status = read_networks(bootstrap, topology.leaders[topology.node], deadline_ns, &here);
  if (status != Status::kOk) return status;
  // The attempt to open a port will say why there is none.
  if (here.are_ports_named != 0 || here.count == 0) return Status::kOk;
  CommonNetworks common(here);
  for (uint32_t i = 1; i < nodes; ++i) {
    const Rank leader = topology.leaders[(topology.node + i) % nodes];
    NodeNetworks there;
    status = read_networks(bootstrap, leader, deadline_ns, &there);
    if (status != Status::kOk) return status;
    if (there.are_ports_named != 0) continue;
    if (!common.keep(there)) return no_common_network(topology, here, there, leader);
    if (here.count == 1) return Status::kOk;
  }
  *result = common.best().network;
  return Status::kOk;
}

void answer(StartBoard& board, Status status, const std::optional<NetworkId>& common) noexcept {
  if (common.has_value()) board.network = *common;
  const StartBoard::State state = status != Status::kOk ? StartBoard::kFailed
                                  : common.has_value()  ? StartBoard::kOneNetwork
                                                        : StartBoard::kAnyPort;
  board.state.store(state, std::memory_order_release);
}

Status wait_for_answer(const StartBoard& board, Rank leader, uint64_t deadline_ns,
                       std::optional<NetworkId>* common) noexcept {
  uint32_t state = board.state.load(std::memory_order_acquire);
  while (state == StartBoard::kUndecided) {
    if (now_ns() >= deadline_ns)
      return fail(Status::kBroken,
                  "rank %u, the first of this node, has not told in time which network the job "
                  "uses: the launcher does not answer it, or it is stopped",
                  leader);
    uncancelled::sleep_ns(kBoardPauseNs);
    state = board.state.load(std::memory_order_acquire);
  }
  if (state == StartBoard::kFailed)
    return fail(Status::kUnsupported,
                "rank %u, the first of this node, has found no network for the job: its error says "
                "why",
                leader);
  if (state == StartBoard::kOneNetwork) *common = board.network;
  return Status::kOk;
}

}  // namespace

Status publish_networks(Bootstrap& bootstrap) noexcept {
  if (bootstrap.topology().node_rank != 0) return Status::kOk;
  NodeNetworks node;
  if (are_ports_named()) {
    node.are_ports_named = 1;
  } else {
    // Each device is tried with a queue pair.
    if (knob_number(JobKnob::kIbvForkSafe) != 0) protect_from_forks_silently();
    node.read_ports(chosen_port_settings());
  }
  return bootstrap.put(kNetworksKey, std::as_bytes(std::span(&node, 1)).first(node.bytes()));
}

Status agree_on_network(Bootstrap& bootstrap, std::byte* board, uint64_t deadline_ns,
                        std::optional<NetworkId>* common) noexcept {
  common->reset();
  const JobTopology& topology = bootstrap.topology();
  if (topology.node_count == 1) return Status::kOk;
  StartBoard* const shared = board != nullptr ? &StartBoard::at(board) : nullptr;
  const bool is_named = are_ports_named();
  if (shared != nullptr && topology.node_rank != 0)
    return is_named ? Status::kOk
                    : wait_for_answer(*shared, topology.node_ranks[0], deadline_ns, common);
  const bool are_leaders_known = topology.leaders.size() == topology.node_count;
  const Status status =
      is_named || !are_leaders_known ? Status::kOk : compare_nodes(bootstrap, deadline_ns, common);
  if (shared != nullptr) answer(*shared, status, *common);
  if (common->has_value() && topology.node_rank == 0)
    log_info("verbs: all nodes have this network: %s", text_of(**common).c_str());
  return status;
}

}  // namespace hydrant::ibv
