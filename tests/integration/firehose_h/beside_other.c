/* A client of firehose.h in a program that also links a library with the same function names. */
#include <firehose.h>

#include "check.h"

extern int other_firehose_calls;
/* In a file without firehose.h: these names call the other library's functions. */
extern void call_the_other(void);

static int moves;

int firehose_move_callback(gex_Rank_t node, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  (void)node, (void)unpin_list, (void)unpin_num, (void)pin_list, (void)pin_num;
  ++moves;
  return 0;
}

int main(void) {
  static char memory[65536];
  const firehose_request_t* request;
  firehose_init(1 << 20, 16, 1 << 16, NULL, 0, FIREHOSE_INIT_FLAG_LOCAL_ONLY, NULL);
  call_the_other();
  CHECK(other_firehose_calls == 4 && moves == 0);
  request = firehose_local_pin((uintptr_t)memory, sizeof memory / 2, NULL);
  CHECK(request != NULL && moves == 1);
  firehose_release(&request, 1);
  firehose_fini();
  CHECK(other_firehose_calls == 4);
  return 0;
}
