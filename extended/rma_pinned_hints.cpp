#include "am/job.hpp"
#include "extended/firehose_binding.hpp"
#include "extended/rma_mapped.hpp"
#include "extended/rma_path.hpp"
#include "extended/rma_pinned.hpp"
#include "extended/rma_pinned_piece.hpp"

namespace hydrant {

namespace {

// Of the two kinds of firehoses the one that puts and gets with this peer go by.
hydrant_remote_t end_for(Rank peer) noexcept {
  return paths(peer).pinned ? firehose().end : end_of_mappings(peer);
}

}  // namespace

Status prefetch(Rank peer, uintptr_t remote, size_t bytes) noexcept {
  const hydrant_remote_t end = end_for(peer);
  if (end == 0 || peer == job().rank()) return Status::kOk;
  const int code = hydrant_remote_prefetch(end, peer, remote, bytes, kPutAccess);
  // That it cannot be had now, or ever, is no error of a hint.
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
