/* Shared by the two files of gasnet_client: the C file starts firehose, the C++ file uses it. */
#ifndef TESTS_FIREHOSE_H_GASNET_CLIENT_H
#define TESTS_FIREHOSE_H_GASNET_CLIENT_H

#include <firehose.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CLIENT_PAGE = 4096, CLIENT_PAGES = 256, CLIENT_LARGEST = 4, CLIENT_QUOTA = 32 };

void client_start(size_t bytes, firehose_info_t* info);
void client_end(void);
typedef struct {
  unsigned pins, unpins, remote_callbacks;
} client_counts_t;
client_counts_t client_counts(void);

#ifdef __cplusplus
}
#endif
#endif
