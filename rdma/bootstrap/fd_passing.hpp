// Passes a descriptor of the node's first rank to the other ranks of the node, to share memory without a
// name. It uses a unix socket in the abstract namespace with a random name, which the first rank puts in the
// bootstrap's store. The socket exists only during the call; nothing is left in any file system.
//
// The other ranks must be processes of the same user (SO_PEERCRED) that know the token in that entry.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>

namespace hydrant {

// Collective over the job: it holds a fence. A rank whose preparations have failed calls it too, with its
// error in `ready` and the text in last_error_text(). An error of the first rank makes all ranks of the node
// fail at once, with its status and text. An error of another rank affects that rank alone, and no rank waits
// for it.
// `sequence` is the same in all ranks and was never used before. `fd_of_leader` is used in the first rank of
// each node only, and stays its own. The other ranks receive their own descriptor of the same file,
// close-on-exec, in *received; the first rank receives a duplicate.
// Errors: `ready`; kNotReady: the deadline passed; the text names the missing ranks. kBroken: a peer is
// another process than expected, or has exited. kResource: no descriptors or sockets. *received is unchanged
// then.
Status share_fd(Bootstrap& bootstrap, uint32_t sequence, Status ready, int fd_of_leader,
                int* received, uint64_t deadline_ns) noexcept;

// Called in place of share_fd() by a rank whose settings have it share nothing with its node: it holds the
// fence. If the first rank of a node calls this one, the others that call share_fd() fail with kBadArg and
// `why`. Errors: kBadArg: the first rank calls share_fd(); those of the bootstrap.
Status share_no_fd(Bootstrap& bootstrap, uint32_t sequence, const char* why,
                   uint64_t deadline_ns) noexcept;

}  // namespace hydrant
