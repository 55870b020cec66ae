// Starts the job of this process.
#pragma once

#include <hydrant/gasnet/objects.h>
#include <hydrant/gasnet/system.h>

#include "firehose/base/status.hpp"

namespace hydrant {

// Connects the process: rank, size, transport, control thread. Errors: as open_bootstrap(); kBadArg for
// headers of another layout; kNotInit if called before.
Status start_job(int* argc, char*** argv, const hydrant_client_info& info) noexcept;
// Creates the client's objects. kResource if there is a client already.
Status make_client(const char* name, gex_Flags_t flags) noexcept;

}  // namespace hydrant
