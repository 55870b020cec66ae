/* hydrant/persistent.h - puts and gets that are carried out again and again: what can be found out once is
 * found out when the operation is made, and each start costs less than a call that begins anew.
 *
 *     hydrant_operation_t row;
 *     hydrant_put_init(right, remote_row, my_row, bytes, &row);
 *     for (...) {
 *       hydrant_start(row);
 *       ... the source may not change ...
 *       hydrant_wait(row);
 *     }
 *     hydrant_operation_free(&row);
 *
 * Between wait and start an operation holds nothing: no memory stays pinned for it, neither here nor there.
 * It asks for the firehose it will need when it is made, as a hint, and each start finds out anew what is
 * there.
 *
 * Include it after gasnetex.h or gasnet.h. Functions answer GASNET_OK or a code of gasnet_errors.h, with a
 * text in hydrant_last_error_text(); none ends the job unless HYDRANT_ON_FAULT=abort. Threads: any, an
 * operation by one thread at a time: whoever starts it waits for it. Not legal in handlers. Source: Hydrant.
 */
#ifndef HYDRANT_PERSISTENT_H
#define HYDRANT_PERSISTENT_H

#include <hydrant/rma.h>

HYDRANT_GASNET_BEGIN

typedef struct hydrant_operation_s* hydrant_operation_t;

/* Makes a put of [local, local+bytes) to [remote, remote+bytes) of `rank`, or a get the other way. Starts
 * nothing. Errors: GASNET_ERR_BAD_ARG: no such rank, null with a length, a range that wraps around, memory of
 * a device; GASNET_ERR_RESOURCE; GASNET_ERR_NOT_INIT. *operation is unchanged then. */
int hydrant_put_init(gex_Rank_t rank, void* remote, const void* local, size_t bytes,
                     hydrant_operation_t* operation);
int hydrant_get_init(gex_Rank_t rank, const void* remote, void* local, size_t bytes,
                     hydrant_operation_t* operation);

/* Starts it. The source of a put must not change until it is complete, as with GEX_EVENT_DEFER.
 * Errors: GASNET_ERR_BAD_ARG: it is under way; HYDRANT_ERR_BROKEN: the rank is gone. */
int hydrant_start(hydrant_operation_t operation);
/* Starts several; the first error is answered, and those behind it are not started. */
int hydrant_start_all(const hydrant_operation_t* operations, size_t count);
/* OK: it is complete, or was never started. GASNET_ERR_NOT_READY: not yet. Otherwise why it could not be
 * done. Polls. */
int hydrant_test(hydrant_operation_t operation);
/* Waits until it is complete. The same answers, but for NOT_READY. */
int hydrant_wait(hydrant_operation_t operation);

/* Ends it, after waiting for it if it is under way, and sets *operation to null; null is nothing. */
int hydrant_operation_free(hydrant_operation_t* operation);

HYDRANT_GASNET_END
#endif
