// A rank that has no memory for another peer: rank 1 gives up the right to lock any before it polls, and so
// before it answers a handshake. Rank 0 contacts it as the argument says: "message", "put", "get" or
// "barrier". Run by tests/verbs/full as an ordinary user, because root has no limit.
#include <gasnet.h>
#include <gasnetex.h>
#include <hydrant/rma.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/resource.h>

namespace {

constexpr gex_AM_Index_t kHandler = 220;
void on_message(gex_Token_t) {}

uint64_t word = 0;

int contact(gex_TM_t team, const char* what) {
  if (std::strcmp(what, "message") == 0) return gex_AM_RequestShort0(team, 1, kHandler, 0);
  // Rank 1 is never asked for this address.
  if (std::strcmp(what, "put") == 0)
    return gex_RMA_PutBlocking(team, 1, &word, &word, sizeof word, 0);
  if (std::strcmp(what, "get") == 0)
    return gex_RMA_GetBlocking(team, &word, 1, &word, sizeof word, 0);
  return gasnet_barrier(0, GASNET_BARRIERFLAG_ANONYMOUS);
}

}  // namespace

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_TM_t team;
  if (gex_Client_Init(&client, &endpoint, &team, "full_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  gex_AM_Entry_t entry = {kHandler,
                          reinterpret_cast<gex_AM_Fn_t>(on_message),
                          GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST,
                          0,
                          nullptr,
                          "message"};
  if (gex_EP_RegisterHandlers(endpoint, &entry, 1) != GASNET_OK || argc != 2) return 2;
  if (gex_TM_QueryRank(team) == 1) {
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0) return 2;
    for (;;) gasnet_AMPoll();
  }
  const int code = contact(team, argv[1]);
  std::printf("%s: code %d: %s\n", argv[1], code, hydrant_last_error_text());
  gasnet_exit(code != GASNET_OK ? 3 : 0);
}
