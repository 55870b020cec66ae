// Sends and receives the Active Messages of collective operations. operation.cpp sends; the handlers put
// what arrives into the inboxes (inbox.cpp).
#include "extended/collective/operation/collective_messages.hpp"

#include "am/exit/exit.hpp"
#include "am/handler/token.hpp"
#include "am/job/job.hpp"
#include "am/message/send.hpp"
#include "extended/message/handlers.hpp"
#include "extended/message/send_failures.hpp"
#include "firehose/base/thread.hpp"

#include <cstring>
#include <new>

namespace hydrant {
namespace {

int32_t low(uint64_t word) noexcept { return static_cast<int32_t>(static_cast<uint32_t>(word)); }
int32_t high(uint64_t word) noexcept { return low(word >> 32); }
uint64_t word(int32_t low_half, int32_t high_half) noexcept {
  return uint64_t{static_cast<uint32_t>(high_half)} << 32 | static_cast<uint32_t>(low_half);
}

constinit SendFailures failures{on_peer_failed};

// False: the message has to be sent again later.
bool is_sent(Status status, Rank peer) noexcept {
  if (status != Status::kOk) [[unlikely]] {
    failures.note(peer, status, now_ns());
    return false;
  }
  failures.note_success();
  return true;
}

std::unique_ptr<Arrival> new_arrival(Arrival::Kind kind, gex_Token_t token, int32_t team_low,
                                     int32_t team_high, int32_t operation, int32_t tag,
                                     int32_t signature) noexcept {
  std::unique_ptr<Arrival> made(new (std::nothrow) Arrival);
  if (made == nullptr) fatal("no memory for a message of a collective of rank %u", token->from);
  made->kind = kind;
  made->key = {.team = word(team_low, team_high),
               .operation = static_cast<uint32_t>(operation),
               .tag = static_cast<uint32_t>(tag)};
  made->from = token->from;
  made->signature = static_cast<uint32_t>(signature);
  return made;
}

void on_data(gex_Token_t token, void* payload, size_t bytes, int32_t team_low, int32_t team_high,
             int32_t operation, int32_t tag, int32_t signature, int32_t offset) {
  auto arrival =
      new_arrival(Arrival::Kind::kData, token, team_low, team_high, operation, tag, signature);
  arrival->offset = static_cast<uint32_t>(offset);
  arrival->bytes = static_cast<uint32_t>(bytes);
  if (bytes != 0) {
    arrival->payload.reset(new (std::nothrow) std::byte[bytes]);
    if (arrival->payload == nullptr)
      fatal("no memory for %zu bytes of a collective of rank %u", bytes, token->from);
    std::memcpy(arrival->payload.get(), payload, bytes);
  }
  inboxes().put(std::move(arrival));
}

void on_announcement(gex_Token_t token, int32_t team_low, int32_t team_high, int32_t operation,
                     int32_t tag, int32_t signature, int32_t address_low, int32_t address_high) {
  auto arrival = new_arrival(Arrival::Kind::kAnnouncement, token, team_low, team_high, operation,
                             tag, signature);
  arrival->address = word(address_low, address_high);
  inboxes().put(std::move(arrival));
}

void on_read(gex_Token_t token, int32_t team_low, int32_t team_high, int32_t operation, int32_t tag,
             int32_t signature) {
  inboxes().put(
      new_arrival(Arrival::Kind::kRead, token, team_low, team_high, operation, tag, signature));
}

bool send_short(uint32_t handler, Rank peer, uint32_t nargs, const int32_t* args) noexcept {
  return is_sent(
      send({.peer = peer, .handler = handler, .nargs = nargs, .args = args, .immediate = true}),
      peer);
}

}  // namespace

Inboxes& inboxes() noexcept {
  // Lives as long as the process, because threads may be using it at process exit.
  alignas(Inboxes) static std::byte place[sizeof(Inboxes)];
  static Inboxes* const all = new (place) Inboxes;
  return *all;
}

bool send_data(const TransferKey& key, uint32_t signature, Rank peer, uint32_t offset,
               const std::byte* data, size_t bytes) noexcept {
  const int32_t args[] = {low(key.team), high(key.team), low(key.operation),
                          low(key.tag),  low(signature), low(offset)};
  return is_sent(send({.peer = peer,
                       .category = Category::kMedium,
                       .handler = kCollectiveDataHandler,
                       .nargs = std::size(args),
                       .args = args,
                       .source = data,
                       .bytes = bytes,
                       .immediate = true}),
                 peer);
}

bool send_announcement(const TransferKey& key, uint32_t signature, Rank peer,
                       const std::byte* address) noexcept {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const int32_t args[] = {low(key.team), high(key.team), low(key.operation),
                          low(key.tag),  low(signature), low(at),
                          high(at)};
  return send_short(kCollectiveAnnouncementHandler, peer, std::size(args), args);
}

bool send_read(const TransferKey& key, uint32_t signature, Rank peer) noexcept {
  const int32_t args[] = {low(key.team), high(key.team), low(key.operation), low(key.tag),
                          low(signature)};
  return send_short(kCollectiveReadHandler, peer, std::size(args), args);
}

void start_collective_messages() noexcept {
  HandlerTable& table = job().handlers;
  table.add_internal(kCollectiveDataHandler, reinterpret_cast<gex_AM_Fn_t>(on_data), 6,
                     GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, "collective data");
  table.add_internal(kCollectiveAnnouncementHandler, reinterpret_cast<gex_AM_Fn_t>(on_announcement),
                     7, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, "collective announcement");
  table.add_internal(kCollectiveReadHandler, reinterpret_cast<gex_AM_Fn_t>(on_read), 5,
                     GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, "collective read");
}

}  // namespace hydrant
