// A memory file of another process, opened by its descriptor there.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/shm/memory/shm_key.hpp"

#include <cstdint>

namespace hydrant::shm {

struct PeerFile {
  int descriptor = -1;  // the caller's to close; close-on-exec
  uint64_t bytes = 0;   // whole pages; the file can grow but not shrink
};

// Opens the file that the blob names, through /proc/PID/fd, if device and inode match and the file keeps its
// size. No pipe or device is opened: that might block, or have side effects.
// Errors: as AttachmentCache::map(); *file is unchanged then. Cost: some 15 us.
Status open_peer_file(const ShmBlob& blob, bool writable, PeerFile* file) noexcept;

}  // namespace hydrant::shm
