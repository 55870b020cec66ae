/* Page mode with remote pins over messages of its own. */
#ifndef LINT_CLIENT_MESSAGES_H
#define LINT_CLIENT_MESSAGES_H

#include <stddef.h>
#include <stdint.h>

#define FIREHOSE_PAGE
typedef struct {
  char data[100];
} firehose_remotecallback_args_t;

extern int client_send(uint32_t node, void* reply_to, const void* message, size_t len);
#define FIREHOSE_SEND_REQUEST(node, message, len) client_send(node, 0, message, len)
#define FIREHOSE_SEND_REPLY(reply_to, node, message, len) client_send(node, reply_to, message, len)
#define FIREHOSE_NODES 2
#define FIREHOSE_MYNODE 0
#define FIREHOSE_MAX_MESSAGE 4096

#endif
