// The rule of handler-safe locks that other calls check for debug clients.
#pragma once

namespace hydrant {

// Ends the job with a text if the calling thread holds a lock that it took in this handler, or outside all.
void check_no_locks(const char* doing) noexcept;
// What a call that tells other ranks something does where Job::careful is set: that check, for debug clients;
// and what has to be true before they are told.
void check_carefully(const char* doing) noexcept;

}  // namespace hydrant
