// Which ranks of the job use mailboxes (mailbox_memory.hpp).
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

namespace hydrant {

// True if teams that span nodes use mailboxes in this job, where their members have some. The same on all
// ranks, whatever their adapters.
bool wants_mailboxes() noexcept;
// True if this rank writes into the memory of `jobrank`, and that rank into this one's.
bool can_write_mailboxes_of(Rank jobrank) noexcept;

}  // namespace hydrant
