/* hydrant/persistent.h - persistent puts and gets, for operations that are repeated. The library
 * prepares the operation once, so each start costs less than a new call.
 *
 *     hydrant_operation_t row;
 *     hydrant_put_init(tm, right, remote_row, my_row, bytes, &row);
 *     for (...) {
 *       hydrant_start(row);
 *       ... the source must not change ...
 *       hydrant_wait(row);
 *     }
 *     hydrant_operation_free(&row);
 *
 * Between wait and start an operation holds no resources: no memory stays pinned for it at either end.
 * When it is created it prefetches the firehose that it will need, as a hint. Each start looks the
 * firehose up again.
 *
 * Include it after gasnetex.h or gasnet.h.
 * Errors: functions return GASNET_OK or a code of gasnet_errors.h, with a text in
 * hydrant_last_error_text(). No function ends the job unless HYDRANT_ON_FAULT=abort.
 * Threads: any, but one thread at a time per operation; the thread that starts it also waits for it.
 * Not legal in handlers. Source: Hydrant.
 */
#ifndef HYDRANT_PERSISTENT_H
#define HYDRANT_PERSISTENT_H

#include <hydrant/rma.h>

HYDRANT_GASNET_BEGIN

typedef struct hydrant_operation_s* hydrant_operation_t;

/* Prepares a put of [local, local+bytes) to [remote, remote+bytes) of `rank` of `tm`, a team or a pair of
 * endpoints, or a get in the other direction. Starts no transfer. The team may be destroyed before the
 * operation is freed. *operation is unchanged on errors.
 * Errors: GASNET_ERR_BAD_ARG: no team, invalid rank, null with a length, a range that wraps around, device
 * memory; GASNET_ERR_RESOURCE; GASNET_ERR_NOT_INIT. */
int hydrant_put_init(gex_TM_t tm, gex_Rank_t rank, void* remote, const void* local, size_t bytes,
                     hydrant_operation_t* operation);
int hydrant_get_init(gex_TM_t tm, gex_Rank_t rank, const void* remote, void* local, size_t bytes,
                     hydrant_operation_t* operation);

/* The same for a strided transfer, as gex_VIS_StridedPutNB() and gex_VIS_StridedGetNB() describe it:
 * elements of `element` bytes, `count[i]` of them in dimension i of `levels`, whose strides are in bytes.
 * The arrays may be changed after the call. Each start is counted as one of gasnet_vis.h.
 * Errors: as above; GASNET_ERR_BAD_ARG also for null counts with levels, for null strides of a transfer that
 * has bytes, and for more bytes or longer strides than an address space has. */
int hydrant_put_strided_init(gex_TM_t tm, gex_Rank_t rank, void* remote,
                             const ptrdiff_t remote_strides[], const void* local,
                             const ptrdiff_t local_strides[], size_t element, const size_t count[],
                             size_t levels, hydrant_operation_t* operation);
int hydrant_get_strided_init(gex_TM_t tm, gex_Rank_t rank, const void* remote,
                             const ptrdiff_t remote_strides[], void* local,
                             const ptrdiff_t local_strides[], size_t element, const size_t count[],
                             size_t levels, hydrant_operation_t* operation);

/* Starts the operation. The source of a put must not change until it is complete, as with
 * GEX_EVENT_DEFER.
 * Errors: GASNET_ERR_BAD_ARG: already under way; HYDRANT_ERR_BROKEN: the rank is dead or unreachable. */
int hydrant_start(hydrant_operation_t operation);
/* Starts several operations in order; returns the first error, and does not start those after it. */
int hydrant_start_all(const hydrant_operation_t* operations, size_t count);
/* Polls. Returns GASNET_OK if the operation is complete or was never started, GASNET_ERR_NOT_READY if
 * it is under way, else the error with which it failed. */
int hydrant_test(hydrant_operation_t operation);
/* Waits until the operation is complete. Returns the same codes except GASNET_ERR_NOT_READY. */
int hydrant_wait(hydrant_operation_t operation);

/* Frees the operation, after waiting for it if it is under way, and sets *operation to null; null has
 * no effect. */
int hydrant_operation_free(hydrant_operation_t* operation);

HYDRANT_GASNET_END
#endif
