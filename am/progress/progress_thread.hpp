// The library thread that polls while client threads compute: HYDRANT_PROGRESS_THREAD.
#pragma once

namespace hydrant {

// Starts the thread for a wired job if the setting requests it. If the client has no threads (SEQ,
// PARSYNC), or pthread_create() fails, it logs a warning, and only the client's calls poll. The thread
// ends with the process; it is never joined.
void start_progress_thread() noexcept;

}  // namespace hydrant
