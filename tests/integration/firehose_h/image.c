/* A client as a shared library, compiled once for pages and once for regions (IMAGE is its name). Its
 * names are hidden, so the two move callbacks are separate. */
#include <firehose.h>

#include "check.h"

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define PUBLIC __attribute__((visibility("default")))

PUBLIC void JOIN(IMAGE, _start)(void);
PUBLIC void JOIN(IMAGE, _use)(uintptr_t addr, size_t len);
PUBLIC void JOIN(IMAGE, _end)(void);
PUBLIC size_t JOIN(IMAGE, _pinned)(void);

static size_t pinned;

void client_poll(void) {}

int firehose_move_callback(gex_Rank_t node, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  size_t i;
  (void)node;
  for (i = 0; i < unpin_num; ++i) pinned -= unpin_list[i].len;
  for (i = 0; i < pin_num; ++i) {
    pinned += pin_list[i].len;
#ifdef FIREHOSE_CLIENT_T
    pin_list[i].client.registration = 1;
#endif
  }
  return 0;
}

void JOIN(IMAGE, _start)(void) {
#ifdef FIREHOSE_PAGE
  const size_t regions = 0;
  const size_t region_size = 0;
#else
  const size_t regions = 64;
  const size_t region_size = 65536;
#endif
  firehose_init(1 << 22, regions, region_size, NULL, 0,
                FIREHOSE_INIT_FLAG_LOCAL_ONLY | FIREHOSE_INIT_FLAG_UNPIN_ON_FINI, NULL);
}

void JOIN(IMAGE, _use)(uintptr_t addr, size_t len) {
  const firehose_request_t* request = firehose_local_pin(addr, len, NULL);
  CHECK(request->addr <= addr && request->addr + request->len >= addr + len);
  firehose_release(&request, 1);
}

void JOIN(IMAGE, _end)(void) { firehose_fini(); }

size_t JOIN(IMAGE, _pinned)(void) { return pinned; }
