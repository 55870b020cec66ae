/* The calls of firehose.h, for firehose_client.cpp. Errors end the process, as that header says. */
#include <firehose.h>

#define PAGE ((size_t)4096)

int firehose_move_callback(FIREHOSE_NODE_T node, const firehose_region_t* unpin_list,
                           size_t unpin_num, firehose_region_t* pin_list, size_t pin_num) {
  size_t i;
  (void)node, (void)unpin_list, (void)unpin_num;
  for (i = 0; i < pin_num; ++i) pin_list[i].client.registration = 7;
  return 0;
}

const char* field_firehoses(char* page);
const char* field_firehoses(char* page) {
  const uintptr_t addr = (uintptr_t)page;
  const firehose_request_t* request;
  const firehose_request_t* more;
  firehose_request_t own;
  firehose_info_t info;
  uintptr_t all = 0, victims = 0;
  const char* wrong = NULL;
  firehose_init(16 * PAGE, 16, 4 * PAGE, NULL, 0,
                FIREHOSE_INIT_FLAG_LOCAL_ONLY | FIREHOSE_INIT_FLAG_UNPIN_ON_FINI |
                    FIREHOSE_INIT_FLAG_MAY_REINIT,
                &info);
  firehose_get_params(64 * PAGE, &all, &victims);
  if (firehose_get_handlertable() == NULL) wrong = "firehose_get_handlertable";
  request = firehose_local_pin(addr, PAGE, NULL);
  if (request->addr > addr || request->client.registration != 7) wrong = "firehose_local_pin";
  more = firehose_try_local_pin(addr, PAGE, &own);
  if (more != NULL) firehose_release(&more, 1);
  more = firehose_partial_local_pin(addr, PAGE, &own);
  if (more != NULL) firehose_release(&more, 1);
  firehose_release(&request, 1);
  firehose_local_invalidate(addr, PAGE);
  firehose_poll();
  firehose_fini();
  return wrong;
}
