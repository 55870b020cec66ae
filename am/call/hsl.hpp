// Checks of handler-safe locks that other calls make for debug clients.
#pragma once

namespace hydrant {

// Ends the job with a text if the calling thread holds a lock that it took at the current handler depth.
void check_no_locks(const char* doing) noexcept;
// Runs where Job::careful is set, before a call sends anything to other ranks: check_no_locks() for
// debug clients, and Job::Hooks::before_send.
void check_before_send(const char* doing) noexcept;

}  // namespace hydrant
