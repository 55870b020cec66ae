// Hands a descriptor of the node's first rank to the others of the node: the way by which memory without
// a name is shared. A unix socket in the abstract namespace, with a random name that travels in a record,
// is there for as long as the call; nothing is left in any file system.
//
// The others must be processes of the same user (SO_PEERCRED) that know the token on the record.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>

namespace hydrant {

// Collective over the job: it holds a fence, so a rank whose preparations have failed calls it, too, and
// says so by `ready`, with the text in last_error_text(). With an error of the first rank all of the node's
// ranks fail at once, with its status and text. An error of another rank is that rank's alone, and no rank
// waits for it. `sequence` is the same in all and was never used before; `fd_of_leader` counts in the first
// rank of each node only, and stays its own. The others get their own descriptor of the same file,
// close-on-exec, in *received; the first gets a duplicate.
// Errors: `ready`; kNotReady: the deadline came; the text names the ranks that are missing. kBroken: a peer
// is another process than expected, or is gone. kResource: no descriptors or sockets. *received is unchanged
// then.
Status share_fd(Bootstrap& bootstrap, uint32_t sequence, Status ready, int fd_of_leader,
                int* received, uint64_t deadline_ns) noexcept;

}  // namespace hydrant
