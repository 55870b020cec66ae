/* hello.c - the smallest job: every rank prints its number.
 *
 *   hydrant-run -n 4 ./hello          GASNET_PSHM_NODES=4 ./hello          mpirun -n 4 ./hello
 */
#define GASNET_SEQ 1
#include <gasnetex.h>

#include <stdio.h>

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_TM_t team;
  const int error = gex_Client_Init(&client, &endpoint, &team, "HELLO", &argc, &argv, 0);
  if (error != GASNET_OK) return 1; /* the call has printed the reason */

  printf("Hello from rank %u of %u\n", (unsigned)gex_TM_QueryRank(team),
         (unsigned)gex_TM_QuerySize(team));

  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
  gasnet_exit(0);
}
