// Puts and gets through a transport whose one-sided operations complete later. They are posted from the
// caller's memory (direct), or through a library buffer (bounce), so that the caller's source is
// reusable at once.
#pragma once

#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/common/transfer.hpp"
#include "firehose/base/status.hpp"
#include "rdma/transport/transport.hpp"

namespace hydrant {

// Errors: as transfer(); kUnsupported: the transport cannot access this memory, and no piece is under way.
Status transfer_direct(RmaThread& thread, const Transfer& what,
                       CompletionCounter& counter) noexcept;
// In pieces of HYDRANT_BOUNCE_MAX bytes; polls until buffers are free. Also kUnsupported without a pool.
Status transfer_bounced(RmaThread& thread, const Transfer& what,
                        CompletionCounter& counter) noexcept;

// An atomic operation of the adapter (PinnedOperations::start_atomic()) on 8 bytes of a rank, which may be
// this one.
struct PostedAtomic {
  Rank peer = 0;
  PinnedOperations::Pinned word;
  PinnedOperations::Atomic what;
  void* result = nullptr;  // 8 bytes for the old value, or null
  bool immediate = false;
};
// Errors: kNotReady: immediate, and no room; kBroken: the peer has died or the job is ending; kResource.
Status post_atomic(RmaThread& thread, const PostedAtomic& atomic,
                   CompletionCounter& counter) noexcept;

}  // namespace hydrant
