// A memory file of another process, opened by its descriptor there.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/shm/shm_key.hpp"

#include <cstdint>

namespace hydrant::shm {

struct PeerFile {
  int descriptor = -1;  // the caller's to close; close-on-exec
  uint64_t bytes = 0;   // whole pages; it can grow at most
};

// Opens what the blob names, through /proc/PID/fd, when it is what the blob says and keeps its size. No
// pipe or device is ever opened: that might block, or do something.
// Errors: as AttachmentCache::map(); *file is unchanged then. Cost: some 15 us.
Status open_peer_file(const ShmBlob& blob, bool writable, PeerFile* file) noexcept;

}  // namespace hydrant::shm
