/* A plugin with its own copy of libhydrant, which starts a job of one rank and never ends it. */
#include <gasnetex.h>

#include <string.h>

static gex_TM_t team;
static char* segment;

static int start(void) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t own;
  if (gex_Client_Init(&client, &endpoint, &team, "PLUGIN", NULL, NULL, 0) != GASNET_OK) return -1;
  if (gex_Segment_Attach(&own, team, (uintptr_t)1 << 20) != GASNET_OK) return -2;
  segment = (char*)gex_Segment_QueryAddr(own);
  return 0;
}

__attribute__((visibility("default"))) int plugin_use(const void* memory, size_t bytes) {
  if (segment == NULL && start() != 0) return -1;
  gex_RMA_PutBlocking(team, 0, segment, (void*)(uintptr_t)memory, bytes, 0);
  return memcmp(segment, memory, bytes) == 0 ? 0 : -3;
}
