// Passes hydrant_prefetch() and hydrant_evict() on as hints to the remote pins. persistent.cpp and
// long_payload.cpp call it.
#include "am/job/job.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/paths/rma_mapped.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "extended/rma/pinned/rma_pinned_piece.hpp"

namespace hydrant {

namespace {

// The endpoint whose firehoses puts and gets with this peer use.
hydrant_remote_t end_for(Rank peer) noexcept {
  return paths(peer).pinned ? firehose().end : end_of_mappings(peer);
}

}  // namespace

Status prefetch(Rank peer, uintptr_t remote, size_t bytes) noexcept {
  const hydrant_remote_t end = end_for(peer);
  if (end == 0 || peer == job().rank()) return Status::kOk;
  const int code = hydrant_remote_prefetch(end, peer, remote, bytes, kPutAccess);
  // These codes are no errors for a hint.
  if (code == GASNET_ERR_NOT_READY || code == HYDRANT_ERR_REFUSED || code == GASNET_ERR_RESOURCE)
    return Status::kOk;
  return code == GASNET_OK ? Status::kOk
                           : fail(static_cast<Status>(code), "%s", hydrant_error_text());
}

Status evict(Rank peer, uintptr_t remote, size_t bytes) noexcept {
  const hydrant_remote_t end = paths(peer).pinned ? firehose().end : the_mappings.end;
  if (end != 0 && peer != job().rank()) (void)hydrant_remote_evict(end, peer, remote, bytes);
  return Status::kOk;
}

}  // namespace hydrant
