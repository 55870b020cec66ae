// Rank 1 learns that rank 0 is dead, as a network would report it. Then all ranks do for ever what the
// argument says: "poll", "compute" or "wait". Run by lost_jobs_test.py. With a second argument, "off",
// rank 1 turns its machine off instead: tests/verbs/pair/power_off.
#include <gasnet.h>
#include <gasnetex.h>

#include "am/exit/exit.hpp"

#include <cstring>
#include <fstream>

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_TM_t team;
  if (gex_Client_Init(&client, &endpoint, &team, "lost_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  const char* what = argc > 1 ? argv[1] : "";
  const bool is_off = argc > 2 && std::strcmp(argv[2], "off") == 0;
  if (is_off) {
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
    if (gasnet_barrier_wait(0, GASNET_BARRIERFLAG_ANONYMOUS) != GASNET_OK) return 2;
    // Waiting ranks must sleep.
    if (gasnet_set_waitmode(GASNET_WAIT_BLOCK) != GASNET_OK) return 2;
  }
  if (gex_TM_QueryRank(team) == 1) {
    if (is_off) {
      // At once: the machine reboots, and QEMU exits instead.
      std::ofstream("/proc/sysrq-trigger") << 'b' << std::flush;
    } else {
      hydrant::on_peer_failed(0, "a test says so");
    }
  }
  for (volatile bool never = false;;) {
    if (std::strcmp(what, "poll") == 0) gasnet_AMPoll();
    if (std::strcmp(what, "wait") == 0) GASNET_BLOCKUNTIL(never);
  }
}
