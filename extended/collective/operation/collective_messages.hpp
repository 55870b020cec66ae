// Active Messages of collective operations. Senders never wait and run no handlers.
#pragma once

#include "extended/collective/operation/inbox.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// All messages that this rank has received and no operation has taken.
Inboxes& inboxes() noexcept;

// Registers the handlers. Called once, before the job is wired.
void start_collective_messages() noexcept;

// Send a message of a transfer to `peer`, a rank of the job. False: no room now.
bool send_data(const TransferKey& key, uint32_t signature, Rank peer, uint32_t offset,
               const std::byte* data, size_t bytes) noexcept;
bool send_announcement(const TransferKey& key, uint32_t signature, Rank peer,
                       const std::byte* address) noexcept;
bool send_read(const TransferKey& key, uint32_t signature, Rank peer) noexcept;

}  // namespace hydrant
