// Copies through mappings of other ranks' memory files, and requests for such mappings. Called by
// transfer() (rma_transfer.cpp); mappings are remote pins of the_mappings (firehose_binding.cpp).
#include "extended/rma/paths/rma_mapped.hpp"

#include "am/job/job.hpp"
#include "am/segment/neighbourhood.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/rma/common/copy.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "rdma/transport/node_registrar.hpp"

namespace hydrant {
namespace {

constexpr uint32_t kAccess = HYDRANT_REMOTE_READ | HYDRANT_REMOTE_WRITE;
// Below this size a copy by the kernel is cheap, and a mapping is not worth its request.
constexpr size_t kWorthMapping = 2048;
constexpr uint32_t kRequestAt = 4;

}  // namespace

bool copy_mapped(RmaThread& thread, const Transfer& what) noexcept {
  if (!have_mappings()) return false;
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
  return make_mappings() ? the_mappings.end : 0;
}

void note_unmapped(RmaThread& thread, Rank peer, uintptr_t remote, size_t bytes) noexcept {
  if (bytes < kWorthMapping || !paths(peer).maps_files) return;
  UnmappedUse& use = thread.unmapped_use(peer, remote);
  const uintptr_t block = remote >> UnmappedUse::kShift;
  if (use.block != block || use.peer != peer) use = {block, peer, 0};
  ++use.count;
  // Request at the 4th, 8th, 16th ... access, so that refused memory is not requested each time.
  if (use.count < kRequestAt || (use.count & (use.count - 1)) != 0) return;
  const hydrant_remote_t end = end_of_mappings(peer);
  if (end == 0) return;
  // The first request is for the whole block, because arenas grow by blocks; later ones are for the
  // accessed range.
  const uintptr_t start = block << UnmappedUse::kShift;
  constexpr size_t kBlock = size_t{1} << UnmappedUse::kShift;
  const bool whole = use.count == kRequestAt && remote - start + bytes <= kBlock;
  (void)hydrant_remote_prefetch(end, peer, whole ? start : remote, whole ? kBlock : bytes, kAccess);
}

}  // namespace hydrant
