/* gasnett_run_diagnostics(): all sections pass, chosen sections, and errors that they find. */
#include <hydrant/rma.h>

#include "client.h"

static int run(const char* sections, int iters, size_t offset) {
  const gex_Rank_t peer = (me + 1) % size;
  return gasnett_run_diagnostics(iters, 3, sections, team, segment[me] + offset, peer,
                                 segment[peer], 5);
}

void test_diagnostics(const char* which) {
  gex_AM_Entry_t* table = NULL;
  int count = 0;
  gasnett_diagnostic_gethandlers(&table, &count);
  CHECK(table != NULL && count == 4);
  if (!strcmp(which, "unregistered")) {
    BARRIER();
    CHECK(run("Cd", 1, 0) == 0);
  } else if (!strcmp(which, "refused")) {
    gex_System_SetVerboseErrors(0);
    CHECK(run("A", 0, 0) == 1);
    CHECK(run("xyz", 1, 0) == 1);
    CHECK(strstr(hydrant_last_error_text(), "sections are A to G") != NULL);
    CHECK(gasnett_run_diagnostics(1, 0, "A", team, segment[me], me, segment[me], 1) == 1);
    CHECK(strstr(hydrant_last_error_text(), "threads is below 1") != NULL);
    CHECK(gasnett_run_diagnostics(1, 1, "A", GEX_TM_INVALID, segment[me], 0, segment[0], 1) == 1);
    CHECK(gasnett_run_diagnostics(1, 1, "A", team, segment[me], size, segment[0], 1) == 1);
    CHECK(gasnett_run_diagnostics(1, 1, "A", team, NULL, 0, segment[0], 1) == 1);
    CHECK(gasnett_run_diagnostics(1, 1, "A", team, segment[me], 0, NULL, 1) == 1);
  } else {
    CHECK(gex_EP_RegisterHandlers(endpoint, table, (size_t)count) == GASNET_OK);
    BARRIER();
    if (!strcmp(which, "wrong")) {
      /* Another address than the one that the other ranks use: half of the increments are missing. */
      CHECK(run("E", 10, 65536) == 1);
    } else {
      CHECK(run(which, 200, 0) == 0);
    }
  }
  BARRIER();
}
