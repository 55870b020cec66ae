/* A simulated network: an arena of memory, and a count of registrations per page. It checks every
 * registration and deregistration that a client's move callback requests. */
#ifndef TESTS_FIREHOSE_H_NETWORK_H
#define TESTS_FIREHOSE_H_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { NETWORK_PAGE = 4096, NETWORK_PAGES = 4096 };

/* Maps the arena, once. Its address is a multiple of 64 KiB. */
uintptr_t network_start(void);
/* Address of page i of the arena. */
uintptr_t network_page(size_t i);

/* Makes the memory of [first, first+n) pages unregistrable. */
void network_forbid(size_t first, size_t n);
int network_forbidden(uintptr_t addr, size_t len);

/* End the program if the memory is outside the arena, or not registered. */
void network_pin(uintptr_t addr, size_t len);
void network_unpin(uintptr_t addr, size_t len);

typedef struct {
  size_t pins, unpins, bytes, max_bytes;
} network_counts_t;
network_counts_t network_counts(void);
/* True if each page of the range is registered at least once. */
int network_is_pinned(uintptr_t addr, size_t len);

#ifdef __cplusplus
}
#endif
#endif
