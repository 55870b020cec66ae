// Decides whether this job uses mailboxes. mailbox_team.cpp and algorithms.cpp ask.
#include "extended/collective/mailbox/mailbox_choice.hpp"

#include "am/job/job.hpp"
#include "rdma/config/job_knobs.hpp"

namespace hydrant {

bool can_write_mailboxes_of(Rank jobrank) noexcept {
  return (job().transport->peer_capabilities(jobrank) & Transport::kPinned) != 0;
}

bool wants_mailboxes() noexcept {
  if (job().pinned == nullptr || knob_choice(JobKnob::kCollNet) != "mailboxes") return false;
  // Any rank that shares no memory with this one stands for all.
  Rank far = 0;
  while (far < job().size() &&
         (far == job().rank() || job().memory->collective_blocks(far) != nullptr))
    ++far;
  return far < job().size() && can_write_mailboxes_of(far);
}

}  // namespace hydrant
