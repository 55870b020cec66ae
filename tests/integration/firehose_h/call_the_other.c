/* The part of beside_other that uses only the other library. */
#include <stddef.h>
#include <stdint.h>

void firehose_init(uintptr_t, size_t, size_t, const void*, size_t, uint32_t, void*);
void firehose_fini(void);
const void* firehose_local_pin(uintptr_t, size_t, void*);
void firehose_release(const void**, int);
void call_the_other(void);

void call_the_other(void) {
  const void* request;
  firehose_init(1, 2, 3, NULL, 0, 0, NULL);
  request = firehose_local_pin(4096, 1, NULL);
  firehose_release(&request, 1);
  firehose_fini();
}
