// Builds the endpoint address that the launcher distributes, and confirms it later. Tour "first contact": the
// peer reads it before its first handshake, and neither side connects once it has changed.
#include "rdma/ibv/connection/own_endpoint.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/connection/ibv_queue_pair.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <sys/random.h>
#include <unistd.h>

namespace hydrant::ibv {

namespace {

PortAddress address_of(const Port& port) noexcept {
  return {.gid = port.gid,
          .lid = port.lid,
          .mtu = static_cast<uint8_t>(port.mtu),
          .is_ethernet = port.is_ethernet,
          .needs_grh = port.needs_grh,
          .gid_version = port.gid_version,
          .reads_in = reads_accepted(port),
          .order = static_cast<uint8_t>(port.order)};
}

bool has_gid(const Port& port, uint32_t index) noexcept {
  ibv_gid_entry entry{};
  if (uncancelled::call(ibv_query_gid_ex, port.device.context, port.number, index, &entry, 0U) != 0)
    return false;
  const bool is_version_2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
  return std::memcmp(&entry.gid, &port.gid, sizeof entry.gid) == 0 &&
         (port.gid_version == 0 || is_version_2 == (port.gid_version == 2));
}

// True also if the table cannot be read.
bool has_pkey(const Port& port) noexcept {
  __be16 entry = 0;
  const int error = uncancelled::call(ibv_query_pkey, port.device.context, port.number,
                                      int{port.pkey_index}, &entry);
  return error != 0 || ntohs(entry) == port.pkey;
}

[[gnu::format(printf, 2, 3)]] Status has_lost(const Port& port, const char* format, ...) noexcept {
  char lost[80];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(lost, sizeof lost, format, arguments);
  va_end(arguments);
  return fail(
      Status::kResource,
      "%s port %u has lost %s since the job began: ranks that are connected stay so, and no "
      "others can be; undo the change, or start the job again",
      port.name, port.number, lost);
}

}  // namespace

void OwnEndpoint::open(Rank self, Rank ranks) noexcept {
  self_ = self;
  ranks_ = ranks;
  if (uncancelled::getrandom(&nonce_, sizeof nonce_, GRND_NONBLOCK) != sizeof nonce_)
    nonce_ = now_ns() ^ static_cast<uint64_t>(getpid()) << 40;
  nonce_ = std::max<uint64_t>(nonce_, 1);
}

ConnectionParameters OwnEndpoint::connection_parameters() const noexcept {
  return {options_.message_bytes(), options_.cell_bytes, static_cast<uint16_t>(options_.credits),
          static_cast<uint16_t>(options_.receive_slots)};
}

EndpointAddress OwnEndpoint::address(uint32_t rails) const noexcept {
  EndpointAddress endpoint;
  endpoint.address = {address_of(port_), nonce_, datagram_queue_};
  endpoint.connection_parameters = connection_parameters();
  endpoint.rail_count = rails;
  for (uint32_t i = 0; i < rails; ++i) endpoint.rails[i] = address_of(rails_[i].port);
  return endpoint;
}

Status confirm_address(const Port& port, const PortAddress* there, uint8_t* gid_index) noexcept {
  ibv_port_attr now{};
  const int error =
      uncancelled::call([&] { return ibv_query_port(port.device.context, port.number, &now); });
  if (error != 0 || now.state != IBV_PORT_ACTIVE) return Status::kOk;
  if (!port.is_ethernet && now.lid != port.lid)
    return has_lost(port, "LID %u (it has LID %u)", port.lid, now.lid);
  if (port.pkey != 0 && !has_pkey(port))
    return has_lost(port, "P_Key %#06x at index %u", port.pkey, port.pkey_index);
  constexpr ibv_gid kNone = {};
  if (!port.needs_grh && (there == nullptr || there->needs_grh == 0)) return Status::kOk;
  if (std::memcmp(&port.gid, &kNone, sizeof kNone) == 0 || has_gid(port, *gid_index))
    return Status::kOk;
  const auto count = static_cast<uint32_t>(std::max(now.gid_tbl_len, 0));
  for (uint32_t i = 0; i < std::min<uint32_t>(count, UINT8_MAX + 1); ++i) {
    if (!has_gid(port, i)) continue;
    *gid_index = static_cast<uint8_t>(i);
    return Status::kOk;
  }
  PortAddress shown = address_of(port);
  shown.is_ethernet = 1;  // the text is that of the GID
  return has_lost(port, "GID %s", text_of(shown).text);
}

}  // namespace hydrant::ibv
