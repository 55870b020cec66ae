// Supplies the defaults of MessageChannel, of one without cells. They are out of line, here and in the other
// parts: the compiler would test for an inline default at each call.
#include "rdma/transport/message_channel.hpp"

#include <cstring>

namespace hydrant {

Status MessageChannel::post(Rank peer, Lane lane, uint32_t tag, const void* head,
                            uint32_t bytes) noexcept {
  Outgoing room;
  const Status status = reserve(peer, lane, bytes, &room);
  if (status != Status::kOk) return status;
  // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): reserve() has made room
  if (bytes != 0) std::memcpy(room.head, head, bytes);
  commit(room, tag);
  return Status::kOk;
}

void MessageChannel::commit_with_cell(Outgoing&, uint32_t, const Cell&, uint32_t) noexcept {}

Status MessageChannel::take_cell(Rank, Lane, uint32_t, Cell*) noexcept {
  return Status::kUnsupported;
}

void MessageChannel::drop_cell(Rank, Lane, const Cell&) noexcept {}

}  // namespace hydrant
