// Whether the ranks of this node use one adapter, so that all RDMA writes to their memory come by it.
//
// Each rank notes the devices that it has opened in a word that the ranks of the node share, before the fence
// behind which they connect. So an answer after that fence is about all of them, whatever each has chosen,
// and stays. Ranks that share no memory go by what a process of this machine may choose; so do those that may
// meet processes of other jobs.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant::ibv {

class NodeAdapters {
 public:
  // Notes the devices of this rank's open ports.
  void note(const Ports& ports, const JobTopology& topology, const Options& options) noexcept;
  // After the fence. False also if it is not known.
  bool is_one() const noexcept;

 private:
  static constexpr uint64_t kSeveral = UINT64_MAX;

  uint64_t own_ = kSeveral;  // a number of this rank's device
  std::atomic<uint64_t>* shared_ =
      nullptr;           // that of all ranks of the node; 0: no rank has noted one
  bool is_one_ = false;  // where nothing is shared
};

}  // namespace hydrant::ibv
