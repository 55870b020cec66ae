#include "extended/rma_mapped.hpp"

#include "am/job.hpp"
#include "am/neighbourhood.hpp"
#include "extended/copy.hpp"
#include "extended/firehose_binding.hpp"
#include "extended/rma_path.hpp"
#include "extended/rma_thread.hpp"
#include "rdma/node_registrar.hpp"

namespace hydrant {
namespace {

constexpr uint32_t kAccess = HYDRANT_REMOTE_READ | HYDRANT_REMOTE_WRITE;
// Below this a copy by the kernel costs little more than asking does.
constexpr size_t kWorthMapping = 2048;
constexpr uint32_t kAskAt = 4;

}  // namespace

bool copy_by_mapping(RmaThread& thread, const Transfer& what) noexcept {
  if (!mappings_are_on(false)) return false;
  const uint32_t access = what.is_put() ? HYDRANT_REMOTE_WRITE : HYDRANT_REMOTE_READ;
  const hydrant_pin_t pin =
      hydrant_try_remote_pin(the_mappings.end, what.peer, what.remote, what.bytes, access);
  if (pin.region == nullptr) return false;
  std::byte* here =
      address_by_node_key(static_cast<const std::byte*>(pin.region->key), what.remote, what.bytes);
  if (here != nullptr) {
    if (what.is_put()) {
      copy_bytes(here, what.local, what.bytes);
    } else {
      copy_bytes(what.local, here, what.bytes);
    }
    thread.count(what.direction, what.peer, Path::kFirehose, what.bytes);
  }
  (void)hydrant_remote_release(pin);
  return here != nullptr;
}

hydrant_remote_t end_of_mappings(Rank peer) noexcept {
  if (!paths(peer).maps_files || !neighbourhood().contains(peer)) return 0;
  return mappings_are_on(true) ? the_mappings.end : 0;
}

void note_unmapped(RmaThread& thread, Rank peer, uintptr_t remote, size_t bytes) noexcept {
  if (bytes < kWorthMapping || !paths(peer).maps_files) return;
  UnmappedUse& use = thread.unmapped_use(peer, remote);
  const uintptr_t block = remote >> UnmappedUse::kShift;
  if (use.block != block || use.peer != peer) use = {block, peer, 0};
  ++use.count;
  // At 4, 8, 16 ...: what is answered with no is not asked for each time.
  if (use.count < kAskAt || (use.count & (use.count - 1)) != 0) return;
  const hydrant_remote_t end = end_of_mappings(peer);
  if (end == 0) return;
  // First for the block, which is how arenas grow; where that is no, for what is used.
  const uintptr_t start = block << UnmappedUse::kShift;
  constexpr size_t kBlock = size_t{1} << UnmappedUse::kShift;
  const bool whole = use.count == kAskAt && remote - start + bytes <= kBlock;
  (void)hydrant_remote_prefetch(end, peer, whole ? start : remote, whole ? kBlock : bytes, kAccess);
}

}  // namespace hydrant
