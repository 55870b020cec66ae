/* A client with a remote pin. Without REMOTE_ABORTS it must not compile, and the error must tell why. */
#ifdef REMOTE_ABORTS
#define FIREHOSE_REMOTE_ABORTS
#endif
#include <firehose.h>

#include "check.h"

int firehose_move_callback(gex_Rank_t node, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  (void)node, (void)unpin_list, (void)unpin_num, (void)pin_list, (void)pin_num;
  return 0;
}

static void done(void* context, const firehose_request_t* request, int all_local_hit) {
  (void)context, (void)request, (void)all_local_hit;
}

static void run(void) {
  firehose_init(1 << 20, 16, 1 << 16, NULL, 0, FIREHOSE_INIT_FLAG_LOCAL_ONLY, NULL);
  firehose_remote_pin(1, 4096, 1, FIREHOSE_FLAG_RETURN_IF_PINNED, NULL, NULL, done, NULL);
}

int main(void) {
  check_aborts(run, "this firehose has no remote pins");
  return 0;
}
