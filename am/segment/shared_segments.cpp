// Exports and maps created segments. Called by publish_segments() (segments.cpp); the keys are those of the
// node's registrar.
#include "am/segment/shared_segments.hpp"

#include "am/job/job.hpp"
#include "am/segment/neighbourhood.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/memory_range.hpp"
#include "firehose/base/registrar.hpp"
#include "rdma/transport/node_registrar.hpp"

#include <gasnet_config.h>
#include <memory>

namespace hydrant {
namespace {

constexpr size_t kMaxKeyBytes = 128;
constexpr Access kAccess = Access::kRemoteRead | Access::kRemoteWrite;

// Null: processes of this machine cannot open each other's files. Lives as long as the process, like the
// mappings.
Registrar* node_registrar() noexcept {
  static Registrar* const registrar = [] {
    std::unique_ptr<Registrar> made;
    if (make_node_registrar(&made) != Status::kOk || made->traits().key_bytes > kMaxKeyBytes ||
        made->traits().export_bytes > sizeof(SegmentKey::blob)) {
      log_info("created segments are not mapped by other ranks: %s", last_error_text());
      made.reset();
    }
    return made.release();
  }();
  return registrar;
}

MemoryRange whole_pages(uintptr_t addr, size_t bytes) noexcept {
  const uintptr_t start = addr & ~uintptr_t{GASNET_PAGESIZE - 1};
  const uintptr_t end = (addr + bytes + GASNET_PAGESIZE - 1) & ~uintptr_t{GASNET_PAGESIZE - 1};
  return {start, end - start};
}

bool maps_memory_of(Rank rank) noexcept {
  Transport* transport = job().transport.get();
  return transport != nullptr && rank != job().rank() && neighbourhood().contains(rank) &&
         (transport->peer_capabilities(rank) & Transport::kMapped) != 0;
}

}  // namespace

SegmentKey key_of_segment(uintptr_t addr, size_t bytes) noexcept {
  SegmentKey key;
  Registrar* registrar = neighbourhood().neighbours.size() > 1 ? node_registrar() : nullptr;
  if (registrar == nullptr) return key;
  alignas(16) std::byte pinned[kMaxKeyBytes];
  const MemoryRange range = whole_pages(addr, bytes);
  size_t length = key.blob.size();
  // A refusal is ordinary: private memory. The pin has no effect that would have to end.
  if (registrar->pin(range, kAccess, pinned) == Status::kOk &&
      registrar->export_key(range, pinned, key.blob.data(), &length) == Status::kOk)
    key.bytes = static_cast<uint32_t>(length);
  return key;
}

void map_segment(Rank owner, uintptr_t addr, size_t bytes, const SegmentKey& key) noexcept {
  if (key.bytes == 0 || key.bytes > key.blob.size() || !maps_memory_of(owner)) return;
  MemoryAccess& memory = *job().memory;
  if (memory.mapped(owner, addr, bytes) != nullptr) return;
  Registrar* registrar = node_registrar();
  if (registrar == nullptr) return;
  alignas(16) std::byte imported[kMaxKeyBytes];
  Status status = registrar->import_key(key.blob.data(), key.bytes, imported);
  if (status == Status::kOk) {
    std::byte* here = address_by_node_key(imported, addr, bytes);
    // The key is never dropped: the mapping stays.
    status = here != nullptr ? memory.add_segment(owner, addr, bytes, here)
                             : fail(Status::kBroken, "its key is for other memory");
  }
  if (status != Status::kOk)
    log_info("a segment of rank %u (%zu bytes) is not mapped here: %s", owner, bytes,
             last_error_text());
}

}  // namespace hydrant
