/* Waits inside a handler for complete operations: they return, or end the job of a client with
 * GASNET_DEBUG. */
#include "client.h"

static gex_AM_Index_t on_wait_index;
static const char* which_wait;
static gasnett_atomic_t waited = gasnett_atomic_init(0);

static void on_wait(gex_Token_t token) {
  gex_Event_t none[2] = {GEX_EVENT_INVALID, GEX_EVENT_INVALID};
  (void)token;
  if (!strcmp(which_wait, "all")) gex_Event_WaitAll(none, 2, 0);
  if (!strcmp(which_wait, "some")) gex_Event_WaitSome(none, 2, 0);
  if (!strcmp(which_wait, "nbi")) gex_NBI_Wait(GEX_EC_ALL, 0);
  if (!strcmp(which_wait, "nbi-test")) CHECK(gex_NBI_Test(GEX_EC_ALL, 0) == GASNET_OK);
  if (!strcmp(which_wait, "syncnbi")) gasnet_wait_syncnbi_all();
  if (!strcmp(which_wait, "region")) {
    gex_NBI_BeginAccessRegion(0);
    CHECK(gex_NBI_EndAccessRegion(0) == GEX_EVENT_INVALID);
  }
  gasnett_atomic_increment(&waited, 0);
}

void test_handler_waits(const char* which) {
  gex_AM_Entry_t row = {
      0, (gex_AM_Fn_t)on_wait, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "wait"};
  CHECK(gex_EP_RegisterHandlers(endpoint, &row, 1) == GASNET_OK);
  on_wait_index = row.gex_index;
  which_wait = which;
  BARRIER();
  CHECK(gex_AM_RequestShort0(team, (me + 1) % size, on_wait_index, 0) == 0);
  GASNET_BLOCKUNTIL(gasnett_atomic_read(&waited, 0) == 1);
}
