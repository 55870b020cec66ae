// Creates and finds endpoints. Called by gex_EP_Create() (calls_segment.cpp), by the delivery of messages
// between endpoints (deliver.cpp), and by the calls that take a pair of endpoints.
#include "am/job/endpoints.hpp"

#include "am/job/job.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <new>

namespace hydrant {
namespace {

struct Endpoint : hydrant_endpoint {
  gex_EP_Capabilities_t capabilities = 0;
  HandlerTable handlers;  // of the client
};

// All but the primordial one. An entry is written once, before `count` (release).
struct Table {
  Mutex mu;
  std::atomic<uint32_t> count{1};
  std::atomic<Endpoint*> created[GASNET_MAXEPS - 1] = {};
};
constinit Table g_table;

}  // namespace

Status create_endpoint(gex_EP_Capabilities_t capabilities, gex_Flags_t flags,
                       gex_EP_t* made) noexcept {
  if (capabilities == 0 || (capabilities & ~gex_EP_Capabilities_t{GEX_EP_CAPABILITY_ALL}) != 0)
    return fail(Status::kBadArg, "the capabilities %#x are none, or contain an unknown one",
                static_cast<unsigned>(capabilities));
  if ((flags & ~gex_Flags_t{GEX_FLAG_HINT_ACCEL_ALL}) != 0)
    return fail(Status::kBadArg, "the flags %#x are not among GEX_FLAG_HINT_ACCEL_*",
                static_cast<unsigned>(flags));
  const MutexLock lock(g_table.mu);
  const uint32_t index = g_table.count.load(std::memory_order_relaxed);
  if (index == GASNET_MAXEPS)
    return fail(Status::kResource, "the limit of %d endpoints (GASNET_MAXEPS) is reached",
                GASNET_MAXEPS);
  auto* endpoint = new (std::nothrow) Endpoint;
  if (endpoint == nullptr) return fail(Status::kResource, "no memory for an endpoint");
  endpoint->client = &job().client;
  endpoint->segment = GEX_SEGMENT_INVALID;
  endpoint->flags = flags;
  endpoint->index = static_cast<gex_EP_Index_t>(index);
  endpoint->cdata = nullptr;
  endpoint->capabilities = capabilities;
  g_table.created[index - 1].store(endpoint, std::memory_order_release);
  g_table.count.store(index + 1, std::memory_order_release);
  *made = endpoint;
  return Status::kOk;
}

uint32_t endpoint_count() noexcept { return g_table.count.load(std::memory_order_acquire); }

hydrant_endpoint* find_endpoint(uint32_t index) noexcept {
  if (index == 0) return &job().endpoint;
  if (index >= endpoint_count()) return nullptr;
  return g_table.created[index - 1].load(std::memory_order_relaxed);
}

bool is_endpoint(const hydrant_endpoint* endpoint) noexcept {
  const uint32_t count = endpoint_count();
  for (uint32_t index = 0; index < count; ++index) {
    if (find_endpoint(index) == endpoint) return true;
  }
  return false;
}

HandlerTable& handlers_of(hydrant_endpoint& endpoint) noexcept {
  return endpoint.index == 0 ? job().handlers : static_cast<Endpoint&>(endpoint).handlers;
}

MemoryRange bound_memory(uint32_t index) noexcept {
  hydrant_endpoint* endpoint = find_endpoint(index);
  if (endpoint == nullptr) return {};
  // Another thread may be binding or destroying.
  const hydrant_segment* bound =
      std::atomic_ref<gex_Segment_t>(endpoint->segment).load(std::memory_order_acquire);
  if (bound == nullptr) return {};
  return {reinterpret_cast<uintptr_t>(bound->addr), bound->size};
}

bool is_in_bound_memory(uintptr_t addr, size_t bytes) noexcept {
  const uint32_t count = endpoint_count();
  for (uint32_t index = 0; index < count; ++index) {
    const MemoryRange memory = bound_memory(index);
    const uintptr_t offset = addr - memory.addr;
    if (offset < memory.len && bytes <= memory.len - offset) return true;
  }
  return false;
}

bool has_capabilities(const hydrant_endpoint& endpoint, gex_EP_Capabilities_t wanted) noexcept {
  return endpoint.index == 0 ||
         (static_cast<const Endpoint&>(endpoint).capabilities & wanted) == wanted;
}

}  // namespace hydrant
