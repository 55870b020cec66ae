// Notes the device that this rank has opened among those of its node's other ranks.
#include "rdma/ibv/connection/node_adapters.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

namespace hydrant::ibv {

namespace {

// Ranks that share memory have one kernel, which gives each device a name of its own.
uint64_t number_of(const Port& port) noexcept {
  return std::hash<std::string_view>{}(port.name) | 1;
}

}  // namespace

void NodeAdapters::note(const Ports& ports, const JobTopology& topology,
                        const Options& options) noexcept {
  const bool is_one = std::all_of(ports.all, ports.all + ports.count, [&](const Port& port) {
    return port.device.context == ports.all[0].device.context;
  });
  const bool may_meet_others = options.max_joined != 0;
  const bool is_alone = topology.node_ranks.size() == 1 && !may_meet_others;
  is_one_ = is_one && (is_alone || ports.adapters == 1);
  if (is_one) own_ = number_of(ports.all[0]);
  if (options.node.adapter == nullptr) return;
  // A rank that may meet others goes by the machine, but notes its device for the ranks that do not.
  std::atomic<uint64_t>& noted = *options.node.adapter;
  uint64_t others = 0;
  if (!noted.compare_exchange_strong(others, own_) && others != own_) noted.store(kSeveral);
  if (!may_meet_others) shared_ = &noted;
}

bool NodeAdapters::is_one() const noexcept {
  if (shared_ == nullptr) return is_one_;
  return own_ != kSeveral && shared_->load() == own_;
}

}  // namespace hydrant::ibv
