/* Another library that defines GASNet's names, like GASNet's own firehose. Its functions behave
 * differently, so that a call into the wrong library is detected. */
#include <stddef.h>
#include <stdint.h>

int other_firehose_calls;

void firehose_init(uintptr_t, size_t, size_t, const void*, size_t, uint32_t, void*);
void firehose_fini(void);
const void* firehose_local_pin(uintptr_t, size_t, void*);
void firehose_release(const void**, int);

void firehose_init(uintptr_t memory, size_t regions, size_t region_size, const void* prepinned,
                   size_t n, uint32_t flags, void* info) {
  (void)memory, (void)regions, (void)region_size, (void)prepinned, (void)n, (void)flags, (void)info;
  ++other_firehose_calls;
}
void firehose_fini(void) { ++other_firehose_calls; }
const void* firehose_local_pin(uintptr_t addr, size_t len, void* req) {
  (void)addr, (void)len, (void)req;
  ++other_firehose_calls;
  return NULL;
}
void firehose_release(const void** reqs, int n) {
  (void)reqs, (void)n;
  ++other_firehose_calls;
}
