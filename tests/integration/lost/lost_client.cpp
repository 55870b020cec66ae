// Rank 1 is told that rank 0 is gone, as a network would tell it. Then all ranks do for ever what the
// argument says: "poll", "compute" or "wait". lost_jobs_test.py runs it.
#include <gasnet.h>
#include <gasnetex.h>

#include "am/exit.hpp"

#include <cstring>

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_TM_t team;
  if (gex_Client_Init(&client, &endpoint, &team, "lost_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  const char* what = argc > 1 ? argv[1] : "";
  if (gex_TM_QueryRank(team) == 1) hydrant::peer_is_lost(0, "a test says that rank 0 is gone");
  for (volatile bool never = false;;) {
    if (std::strcmp(what, "poll") == 0) gasnet_AMPoll();
    if (std::strcmp(what, "wait") == 0) GASNET_BLOCKUNTIL(never);
  }
}
