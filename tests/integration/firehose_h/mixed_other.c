/* The other half, for regions with keys. Reading a key here would read memory without a key. */
#include <firehose.h>

void pin_with_other_shape(void);

void pin_with_other_shape(void) {
  static char memory[8192];
  firehose_request_t request;
  firehose_local_pin((uintptr_t)memory, 1, &request);
}
