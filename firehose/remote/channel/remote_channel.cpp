// Sends the messages of one end through the client's messenger, and explains ranks that are no peers. Both
// sides call it.
#include "firehose/remote/channel/remote_channel.hpp"

#include "firehose/base/registrar.hpp"

#include <cstring>
#include <new>

namespace hydrant {

using namespace remote_wire;

bool Message::reserve(size_t room) noexcept {
  if (room <= room_) return true;
  auto* fresh = static_cast<std::byte*>(::operator new(room, std::nothrow));
  if (fresh == nullptr) return false;
  std::memcpy(fresh, bytes_, size_);
  if (bytes_ != inline_) ::operator delete(bytes_);
  bytes_ = fresh;
  room_ = room;
  return true;
}

Status RemoteChannel::check_messenger() noexcept {
  const RegistrarTraits& traits = domain_.registrar().traits();
  const size_t key = traits.exports ? traits.export_bytes : traits.key_bytes;
  const size_t longest = config_.messenger.max_message_bytes;
  if (longest < kOverhead + key) {
    return fail(Status::kBadArg,
                "a messenger of %zu bytes is too short for keys of %zu bytes: raise "
                "messenger->max_message_bytes to %zu",
                longest, key, kOverhead + key);
  }
  max_args_ = longest - kOverhead - key;
  return Status::kOk;
}

Status fail_no_tables(const RemoteConfig& config) noexcept {
  return fail(Status::kResource,
              "no address space for the tables of %u peers and %u firehoses: raise ulimit -v, or "
              "lower max_firehoses or FIREHOSE_REMOTE_MAX",
              config.ranks, config.max_firehoses);
}

Status RemoteChannel::no_peer(uint32_t rank, const char* if_self) const noexcept {
  if (rank == config_.rank) {
    return fail(Status::kBadArg, "rank %u of %u is this process itself%s", rank, config_.ranks,
                if_self);
  }
  return fail(Status::kBadArg, "there is no rank %u: the %u ranks are 0 to %u (this one is %u)",
              rank, config_.ranks, config_.ranks - 1, config_.rank);
}

Status RemoteChannel::send(uint32_t peer, uint32_t lane, void* reply_to,
                           const Message& message) noexcept {
  const int code = config_.messenger.send(config_.messenger.user, peer, lane, reply_to,
                                          message.data(), message.size());
  if (code == GASNET_OK) {
    auto& sent = lane == HYDRANT_LANE_REPLY ? replies_ : requests_;
    sent.fetch_add(1, std::memory_order_relaxed);
    return Status::kOk;
  }
  if (code == GASNET_ERR_NOT_READY) return Status::kNotReady;
  return fail(code == GASNET_ERR_RESOURCE ? Status::kResource : Status::kBroken,
              "the messenger cannot reach rank %u: %s", peer,
              status_name(static_cast<Status>(code)));
}

}  // namespace hydrant
