// A thread of the library that polls while the client's compute: HYDRANT_PROGRESS_THREAD.
#pragma once

namespace hydrant {

// Starts it, if that is wanted, for a job that is wired. Without threads in the client (SEQ, PARSYNC), or
// without one from the system, one line says so, and the client's calls poll as ever. It ends with the
// process: nobody waits for it.
void start_progress_thread() noexcept;

}  // namespace hydrant
