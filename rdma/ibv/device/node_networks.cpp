// Lists the networks of a node, and finds those that nodes have in common. network_agreement.cpp calls it at
// the start of a job.
#include "rdma/ibv/device/node_networks.hpp"

#include "rdma/ibv/device/ibv_port_choice.hpp"

#include <algorithm>
#include <cstdio>
#include <sys/utsname.h>

namespace hydrant::ibv {
namespace {

// Error texts have room for so many networks of each of two nodes.
constexpr uint32_t kNetworksInText = 2;

bool is_better_port(const NodeNetwork& first, const NodeNetwork& second) noexcept {
  if (first.kind != second.kind) return first.kind < second.kind;
  return first.rate_mbps > second.rate_mbps;
}

}  // namespace

void NodeNetworks::read_ports(const PortSettings& settings) {
  utsname names{};
  if (uname(&names) == 0)
    std::snprintf(host, sizeof host, "%.*s", static_cast<int>(sizeof host - 1), names.nodename);
  for (const PortReport& report : list_ports(settings).all) {
    if (report.is_usable) add(rank_of(report.port, report.distance));
  }
}

void NodeNetworks::add(const PortRank& port) noexcept {
  NodeNetwork made;
  made.rate_mbps = port.rate_mbps;
  made.kind = port.kind;
  made.network = port.network;
  NodeNetwork* const end = all + count;
  NodeNetwork* const found = std::find_if(
      all, end, [&port](const NodeNetwork& one) { return one.network == port.network; });
  if (found != end) {
    if (is_better_port(made, *found)) *found = made;
  } else if (count < kMax) {
    all[count++] = made;
  }
}

const NodeNetwork* NodeNetworks::find(const NetworkId& network) const noexcept {
  const NodeNetwork* best = nullptr;
  for (const NodeNetwork* one = all; one != all + count; ++one) {
    if (is_part_of(one->network, network) && (best == nullptr || is_better_port(*one, *best)))
      best = one;
  }
  return best;
}

bool NodeNetworks::is_valid(size_t entry_bytes) const noexcept {
  return entry_bytes >= offsetof(NodeNetworks, all) && version == kVersion && count <= kMax &&
         entry_bytes == bytes() && host[sizeof host - 1] == '\0' &&
         std::all_of(all, all + count,
                     [](const NodeNetwork& one) { return one.kind <= PortKind::kSoftware; });
}

std::string text_of(const NodeNetworks& node, uint32_t leader) {
  std::string text = std::string(node.host) + " (rank " + std::to_string(leader) + ") has ";
  if (node.count == 0) return text + "no usable port";
  const uint32_t shown = std::min<uint32_t>(node.count, kNetworksInText);
  for (uint32_t i = 0; i < shown; ++i) {
    if (i != 0) text += i + 1 == node.count ? ", and " : ", ";
    text += text_of(node.all[i].network);
    if (node.all[i].rate_mbps != 0) text += ", " + rate_text(node.all[i].rate_mbps);
  }
  if (shown < node.count) text += ", and " + std::to_string(node.count - shown) + " more";
  return text;
}

CommonNetworks::CommonNetworks(const NodeNetworks& first) noexcept {
  for (uint32_t i = 0; i < first.count; ++i) {
    add(first.all[i].network);
    add(routed_network(first.all[i].network));
  }
  (void)keep(first);
}

// Adds the network as if its port were the best possible; keep() makes that worse.
void CommonNetworks::add(const NetworkId& network) noexcept {
  const bool is_there = std::any_of(
      all_, all_ + count_, [&network](const NodeNetwork& one) { return one.network == network; });
  if (is_there) return;
  NodeNetwork& made = all_[count_++];
  made.rate_mbps = UINT32_MAX;
  made.kind = PortKind::kInfiniBand;
  made.network = network;
}

bool CommonNetworks::keep(const NodeNetworks& node) noexcept {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    NodeNetwork one = all_[i];
    const NodeNetwork* const there = node.find(one.network);
    if (there == nullptr) continue;
    one.kind = std::max(one.kind, there->kind);
    one.rate_mbps = std::min(one.rate_mbps, there->rate_mbps);
    all_[kept++] = one;
  }
  count_ = kept;
  return kept != 0;
}

const NodeNetwork& CommonNetworks::best() const noexcept {
  return *std::min_element(all_, all_ + count_,
                           [](const NodeNetwork& first, const NodeNetwork& second) {
                             if (is_better_port(first, second)) return true;
                             if (is_better_port(second, first)) return false;
                             return first.network < second.network;
                           });
}

}  // namespace hydrant::ibv
