// Rails: the ports of this process beside its first one. Long puts and gets use them as well; docs/verbs.md,
// "Rails".
//
// Invariant: rail i keeps its place whether it could be opened or not, because it is connected with the rail
// i of each peer. A rail that is not open is never used. Constant after open(), except the completion queues.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/queue/completion_queue.hpp"
#include "rdma/ibv/registrar/verbs_memory.hpp"

#include <cstdint>
#include <span>

namespace hydrant::ibv {

struct Rail {
  Port port;
  uint32_t depth = 0;  // of a peer's send queue
  GrowingCompletionQueue completions;
  // Eight bytes that the peers' fences read, and behind them eight that this rank's fences write.
  VerbsMemory fence;
};

class Rails {
 public:
  static constexpr uint32_t kMax = kMaxRails - 1;

  // Opens a rail for each of `ports`, with send queues of at most `send_depth` entries and a completion queue
  // for at most `peers` peers. Logs a rail that cannot be opened.
  void open(std::span<const Port> ports, uint32_t send_depth, uint32_t peers,
            bool threaded) noexcept;
  // The queue pairs on the rails must be destroyed before.
  void close() noexcept;
  uint32_t count() const noexcept { return count_; }
  Rail& operator[](uint32_t index) noexcept { return rails_[index]; }
  const Rail& operator[](uint32_t index) const noexcept { return rails_[index]; }

 private:
  Status open_one(Rail& rail, uint32_t send_depth, uint32_t peers, bool threaded) noexcept;

  Rail rails_[kMax];
  uint32_t count_ = 0;
};

}  // namespace hydrant::ibv
