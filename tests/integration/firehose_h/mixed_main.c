/* Half of a client whose two files use different firehose_fwd.h: this file is for pages. */
#include <firehose.h>

#include "check.h"

extern void pin_with_other_shape(void);

void client_poll(void) {}

int firehose_move_callback(gex_Rank_t node, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  (void)node, (void)unpin_list, (void)unpin_num, (void)pin_list, (void)pin_num;
  return 0;
}

static void run(void) {
  firehose_init(1 << 20, 0, 0, NULL, 0, FIREHOSE_INIT_FLAG_LOCAL_ONLY, NULL);
  pin_with_other_shape();
}

int main(void) {
  hydrant_test_alarm(120);
  check_aborts(run, "compiled with another firehose_fwd.h");
  return 0;
}
