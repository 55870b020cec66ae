// The rule of handler-safe locks that other calls check for debug clients.
#pragma once

namespace hydrant {

// Ends the job with a text if the calling thread holds a lock that it took in this handler, or outside all.
void check_no_locks(const char* doing) noexcept;

}  // namespace hydrant
