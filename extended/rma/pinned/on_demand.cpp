// Keys for on-demand paging of local memory. Called by rma_pinned.cpp after a pin has failed.
#include "extended/rma/pinned/on_demand.hpp"

#include "extended/binding/firehose_binding.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/start_gate.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/config/job_knobs.hpp"

#include <atomic>
#include <cerrno>

namespace hydrant {
namespace {

// Enough for one port of each of four rails.
constexpr size_t kMaxKeyBytes = 128;

struct Keys {
  Mutex mu;
  // By direction. 0: not requested yet, or short of something; 1: available; -1: not available. Stored with
  // release, under mu.
  std::atomic<int> state[2] = {};
  StartGate gate[2];
  alignas(16) std::byte key[2][kMaxKeyBytes] = {};
  std::atomic<uint64_t> ops{0};
  std::atomic<uint64_t> bytes{0};
};
constinit Keys keys;

// The access of a direction's key. Each direction has its own, because a writable key would fault on
// read-only memory that a put only reads.
uint32_t access_for(Direction direction) noexcept {
  return direction == Direction::kPut ? HYDRANT_LOCAL_READ : HYDRANT_LOCAL_WRITE;
}

int make_implicit_key(Direction direction) noexcept {
  const auto i = static_cast<size_t>(direction);
  const MutexLock lock(keys.mu);
  int state = keys.state[i].load(std::memory_order_relaxed);
  if (state != 0) return state;
  if (!keys.gate[i].is_open(false)) return -1;
  state = -1;
  int code = GASNET_OK;
  if (knob_choice(JobKnob::kIbvOdp) == "off" || firehose().key_bytes > kMaxKeyBytes) {
    // Disabled: use bounce buffers.
  } else if (code = hydrant_implicit_key(firehose().domain, access_for(direction), keys.key[i]);
             code != GASNET_OK) {
    log_info("local memory that cannot be pinned now goes through buffers: %s",
             hydrant_error_text());
    if (code == GASNET_ERR_NOT_READY || code == GASNET_ERR_RESOURCE) {
      keys.gate[i].note_failure(EAGAIN);
      return -1;
    }
  } else {
    state = 1;
    log_info("local memory of %s that cannot be pinned now goes by on-demand paging",
             direction == Direction::kPut ? "puts" : "gets");
  }
  keys.state[i].store(state, std::memory_order_release);
  return state;
}

}  // namespace

const std::byte* on_demand_key(int code, Direction direction, size_t bytes) noexcept {
  // For other codes the memory may be unmapped; the adapter's fault would then break the connection.
  if (code != GASNET_ERR_NOT_READY && code != GASNET_ERR_RESOURCE) return nullptr;
  const auto i = static_cast<size_t>(direction);
  int state = keys.state[i].load(std::memory_order_acquire);
  if (state == 0) state = make_implicit_key(direction);
  if (state < 0) return nullptr;
  keys.ops.fetch_add(1, std::memory_order_relaxed);
  keys.bytes.fetch_add(bytes, std::memory_order_relaxed);
  return keys.key[i];
}

OnDemandCounts on_demand_counts() noexcept {
  return {keys.ops.load(std::memory_order_relaxed), keys.bytes.load(std::memory_order_relaxed)};
}

void forget_on_demand_keys() noexcept {
  const MutexLock lock(keys.mu);
  for (auto& state : keys.state) state.store(0, std::memory_order_relaxed);
  for (StartGate& gate : keys.gate) gate.reset();
}

}  // namespace hydrant
