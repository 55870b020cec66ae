// Messages of every kind from each endpoint to each one, whose handlers are the endpoint's own.
#include "tests/integration/endpoints/endpoints_job.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

struct Received {
  int pings = 0;
  int pongs = 0;
  int payloads = 0;
  int backs = 0;
};
// By endpoint: handlers of endpoint i are the instances with its index.
Received received[kEndpoints];
int shared_calls = 0;
constexpr size_t kMessageBytes = 3000;

gex_EP_Index_t endpoint_of(gex_Token_t token) {
  gex_Token_Info_t info;
  (void)gex_Token_Info(token, &info, GEX_TI_ALL);
  return gex_EP_QueryIndex(info.gex_ep);
}
void check_payload(const void* payload, size_t bytes, int32_t seed) {
  const auto* data = static_cast<const unsigned char*>(payload);
  for (size_t i = 0; i < bytes; ++i)
    check(data[i] == static_cast<unsigned char>(i + static_cast<size_t>(seed)), "a payload");
}

template <gex_EP_Index_t kIndex>
struct Handlers {
  static void ping(gex_Token_t token, int32_t to) {
    check(to == kIndex && endpoint_of(token) == kIndex, "a ping's endpoint", to);
    ++received[kIndex].pings;
    gex_AM_ReplyShort1(token, kPong, 0, to + 100);
  }
  static void pong(gex_Token_t token, int32_t sum) {
    check(sum >= 100 && endpoint_of(token) == kIndex, "a pong's endpoint", sum);
    ++received[kIndex].pongs;
  }
  static void payload(gex_Token_t token, void* data, size_t bytes, int32_t seed, int32_t low,
                      int32_t high) {
    check(endpoint_of(token) == kIndex, "a payload's endpoint");
    check_payload(data, bytes, seed);
    ++received[kIndex].payloads;
    auto* dest = reinterpret_cast<void*>(uint64_t{static_cast<uint32_t>(high)} << 32 |
                                         static_cast<uint32_t>(low));
    if (dest != nullptr)
      gex_AM_ReplyLong1(token, kBack, data, bytes, dest, GEX_EVENT_NOW, 0, seed);
    else
      gex_AM_ReplyMedium1(token, kBack, data, bytes, GEX_EVENT_NOW, 0, seed);
  }
  static void back(gex_Token_t token, void* data, size_t bytes, int32_t seed) {
    check(endpoint_of(token) == kIndex, "an answer's endpoint");
    check_payload(data, bytes, seed);
    ++received[kIndex].backs;
  }
  static void enter() {
    constexpr gex_Flags_t kBoth = GEX_FLAG_AM_MEDLONG;
    gex_AM_Entry_t rows[] = {{kPing, reinterpret_cast<gex_AM_Fn_t>(ping),
                              GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1, nullptr, "ping"},
                             {kPong, reinterpret_cast<gex_AM_Fn_t>(pong),
                              GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 1, nullptr, "pong"},
                             {kPayload, reinterpret_cast<gex_AM_Fn_t>(payload),
                              kBoth | GEX_FLAG_AM_REQUEST, 3, nullptr, "payload"},
                             {kBack, reinterpret_cast<gex_AM_Fn_t>(back), kBoth | GEX_FLAG_AM_REPLY,
                              1, nullptr, "back"}};
    check(gex_EP_RegisterHandlers(endpoints[kIndex], rows, 4) == GASNET_OK,
          "gex_EP_RegisterHandlers", kIndex);
  }
};
void on_shared(gex_Token_t token, int32_t to) {
  check(endpoint_of(token) == static_cast<gex_EP_Index_t>(to), "the endpoint of a shared handler");
  ++shared_calls;
}

}  // namespace

void enter_handlers() {
  Handlers<0>::enter();
  Handlers<1>::enter();
  Handlers<2>::enter();
  Handlers<3>::enter();
  Handlers<4>::enter();
  gex_AM_Entry_t shared = {kShared,
                           reinterpret_cast<gex_AM_Fn_t>(on_shared),
                           GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST,
                           1,
                           nullptr,
                           "shared"};
  check(gex_EP_RegisterHandlers(primordial, &shared, 1) == GASNET_OK, "gex_EP_RegisterHandlers");
}

void send_messages() {
  std::fill_n(received, kEndpoints, Received{});
  shared_calls = 0;
  const gex_Rank_t peer = (me + 1) % job_size;
  std::vector<unsigned char> data(kMessageBytes);
  barrier();
  int answers[kEndpoints] = {};
  for (gex_EP_Index_t from = 0; from < kEndpoints; ++from) {
    for (gex_EP_Index_t to = 0; to < kEndpoints; ++to) {
      const gex_TM_t pair = gex_TM_Pair(endpoints[from], to);
      const int32_t seed = from * 10 + to;
      for (size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<unsigned char>(i + static_cast<size_t>(seed));
      gex_AM_RequestShort1(pair, peer, kPing, 0, to);
      gex_AM_RequestShort1(pair, peer, kShared, 0, to);
      for (const size_t bytes : {size_t{10}, kMessageBytes})
        gex_AM_RequestMedium3(pair, peer, kPayload, data.data(), bytes, GEX_EVENT_NOW, 0, seed, 0,
                              0);
      const gex_AM_SrcDesc_t sd =
          gex_AM_PrepareRequestMedium(pair, peer, nullptr, 100, 100, nullptr, 0, 3);
      std::memcpy(gex_AM_SrcDescAddr(sd), data.data(), 100);
      gex_AM_CommitRequestMedium3(sd, kPayload, 100, seed, 0, 0);
      answers[from] += 3;
      if (!has_segment(to) || !has_segment(from)) continue;
      // A Long there, and one back to the endpoint that it came from.
      const size_t slot = slot_of(job_size, 0) + kLong;
      char* dest = reinterpret_cast<char*>(place_of(peer, to).addr) + slot;
      const uint64_t reply = place_of(me, from).addr + slot + kMessageBytes;
      gex_AM_RequestLong3(pair, peer, kPayload, data.data(), kMessageBytes, dest, GEX_EVENT_NOW, 0,
                          seed, static_cast<int32_t>(static_cast<uint32_t>(reply)),
                          static_cast<int32_t>(reply >> 32));
      GASNET_BLOCKUNTIL(received[from].backs == answers[from] + 1);
      ++answers[from];
    }
  }
  for (gex_EP_Index_t index = 0; index < kEndpoints; ++index)
    GASNET_BLOCKUNTIL(received[index].backs == answers[index] &&
                      received[index].pongs == kEndpoints);
  GASNET_BLOCKUNTIL(shared_calls == kEndpoints * kEndpoints);
  barrier();
  for (gex_EP_Index_t index = 0; index < kEndpoints; ++index) {
    check(received[index].pings == kEndpoints, "the number of pings", index);
    check(received[index].payloads >= 3 * kEndpoints, "the number of payloads", index);
  }
}
