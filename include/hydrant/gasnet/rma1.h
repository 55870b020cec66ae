/* hydrant/gasnet/rma1.h - GASNet-1's put and get: other names for the calls of rma.h, over all ranks of
 * the job.
 *
 * Puts take (dest, source), gets (dest, rank, source). The source of a put may be reused on return;
 * nonblocking _bulk puts allow it only after the operation. _nb calls return a handle; _nbi calls count
 * for gasnet_wait_syncnbi_*(). The try_ calls poll and then test; the _nopoll calls only test.
 */
#ifndef HYDRANT_GASNET_RMA1_H
#define HYDRANT_GASNET_RMA1_H

#include <hydrant/gasnet/rma.h>
#include <hydrant/gasnet/system.h>

HYDRANT_GASNET_BEGIN

typedef gex_Event_t gasnet_handle_t;
typedef gex_RMA_Value_t gasnet_register_value_t;
#define SIZEOF_GASNET_REGISTER_VALUE_T SIZEOF_GEX_RMA_VALUE_T
#define GASNET_INVALID_HANDLE GEX_EVENT_INVALID
/* A pending value; any thread may sync it once, by gasnet_wait_syncnb_valget(). */
typedef struct hydrant_valget* gasnet_valget_handle_t;

/* ---- put ---- */
static inline void gasnet_put(gasnet_node_t rank, void* dest, const void* source, size_t bytes) {
  (void)gex_RMA_PutBlocking(&hydrant_world, rank, dest, source, bytes, 0);
}
static inline gasnet_handle_t gasnet_put_nb(gasnet_node_t rank, void* dest, const void* source,
                                            size_t bytes) {
  return gex_RMA_PutNB(&hydrant_world, rank, dest, source, bytes, GEX_EVENT_NOW, 0);
}
static inline gasnet_handle_t gasnet_put_nb_bulk(gasnet_node_t rank, void* dest, const void* source,
                                                 size_t bytes) {
  return gex_RMA_PutNB(&hydrant_world, rank, dest, source, bytes, GEX_EVENT_DEFER, 0);
}
static inline void gasnet_put_nbi(gasnet_node_t rank, void* dest, const void* source,
                                  size_t bytes) {
  (void)gex_RMA_PutNBI(&hydrant_world, rank, dest, source, bytes, GEX_EVENT_NOW, 0);
}
static inline void gasnet_put_nbi_bulk(gasnet_node_t rank, void* dest, const void* source,
                                       size_t bytes) {
  (void)gex_RMA_PutNBI(&hydrant_world, rank, dest, source, bytes, GEX_EVENT_DEFER, 0);
}
#define gasnet_put_bulk gasnet_put

/* ---- get ---- */
static inline void gasnet_get(void* dest, gasnet_node_t rank, void* source, size_t bytes) {
  (void)gex_RMA_GetBlocking(&hydrant_world, dest, rank, source, bytes, 0);
}
static inline gasnet_handle_t gasnet_get_nb(void* dest, gasnet_node_t rank, void* source,
                                            size_t bytes) {
  return gex_RMA_GetNB(&hydrant_world, dest, rank, source, bytes, 0);
}
static inline void gasnet_get_nbi(void* dest, gasnet_node_t rank, void* source, size_t bytes) {
  (void)gex_RMA_GetNBI(&hydrant_world, dest, rank, source, bytes, 0);
}
#define gasnet_get_bulk gasnet_get
#define gasnet_get_nb_bulk gasnet_get_nb
#define gasnet_get_nbi_bulk gasnet_get_nbi

/* ---- values of 1 to 8 bytes ---- */
static inline void gasnet_put_val(gasnet_node_t rank, void* dest, gasnet_register_value_t value,
                                  size_t bytes) {
  (void)gex_RMA_PutBlockingVal(&hydrant_world, rank, dest, value, bytes, 0);
}
static inline gasnet_handle_t gasnet_put_nb_val(gasnet_node_t rank, void* dest,
                                                gasnet_register_value_t value, size_t bytes) {
  return gex_RMA_PutNBVal(&hydrant_world, rank, dest, value, bytes, 0);
}
static inline void gasnet_put_nbi_val(gasnet_node_t rank, void* dest, gasnet_register_value_t value,
                                      size_t bytes) {
  (void)gex_RMA_PutNBIVal(&hydrant_world, rank, dest, value, bytes, 0);
}
static inline gasnet_register_value_t gasnet_get_val(gasnet_node_t rank, void* source,
                                                     size_t bytes) {
  return gex_RMA_GetBlockingVal(&hydrant_world, rank, source, bytes, 0);
}
gasnet_valget_handle_t gasnet_get_nb_val(gasnet_node_t rank, void* source, size_t bytes);
gasnet_register_value_t gasnet_wait_syncnb_valget(gasnet_valget_handle_t handle);

/* ---- fill with one byte ---- */
void gasnet_memset(gasnet_node_t rank, void* dest, int value, size_t bytes);
gasnet_handle_t gasnet_memset_nb(gasnet_node_t rank, void* dest, int value, size_t bytes);
void gasnet_memset_nbi(gasnet_node_t rank, void* dest, int value, size_t bytes);

/* ---- syncing ---- */
uint32_t hydrant_am_poll(void);
static inline void gasnet_wait_syncnb(gasnet_handle_t handle) { gex_Event_Wait(handle); }
static inline void gasnet_wait_syncnb_some(gasnet_handle_t* handles, size_t count) {
  gex_Event_WaitSome(handles, count, 0);
}
static inline void gasnet_wait_syncnb_all(gasnet_handle_t* handles, size_t count) {
  gex_Event_WaitAll(handles, count, 0);
}
static inline int gasnet_try_syncnb_nopoll(gasnet_handle_t handle) {
  return gex_Event_Test(handle);
}
static inline int gasnet_try_syncnb_some_nopoll(gasnet_handle_t* handles, size_t count) {
  return gex_Event_TestSome(handles, count, 0);
}
static inline int gasnet_try_syncnb_all_nopoll(gasnet_handle_t* handles, size_t count) {
  return gex_Event_TestAll(handles, count, 0);
}
static inline int gasnet_try_syncnb(gasnet_handle_t handle) {
  if (handle == GEX_EVENT_INVALID) return GASNET_OK;
  (void)hydrant_am_poll();
  return gex_Event_Test(handle);
}
static inline int gasnet_try_syncnb_some(gasnet_handle_t* handles, size_t count) {
  (void)hydrant_am_poll();
  return gex_Event_TestSome(handles, count, 0);
}
static inline int gasnet_try_syncnb_all(gasnet_handle_t* handles, size_t count) {
  (void)hydrant_am_poll();
  return gex_Event_TestAll(handles, count, 0);
}
static inline void gasnet_wait_syncnbi_puts(void) { gex_NBI_Wait(GEX_EC_PUT, 0); }
static inline void gasnet_wait_syncnbi_gets(void) { gex_NBI_Wait(GEX_EC_GET, 0); }
static inline void gasnet_wait_syncnbi_all(void) { gex_NBI_Wait(GEX_EC_PUT | GEX_EC_GET, 0); }
static inline int gasnet_try_syncnbi_puts(void) {
  (void)hydrant_am_poll();
  return gex_NBI_Test(GEX_EC_PUT, 0);
}
static inline int gasnet_try_syncnbi_gets(void) {
  (void)hydrant_am_poll();
  return gex_NBI_Test(GEX_EC_GET, 0);
}
static inline int gasnet_try_syncnbi_all(void) {
  (void)hydrant_am_poll();
  return gex_NBI_Test(GEX_EC_PUT | GEX_EC_GET, 0);
}
static inline void gasnet_begin_nbi_accessregion(void) { gex_NBI_BeginAccessRegion(0); }
static inline gasnet_handle_t gasnet_end_nbi_accessregion(void) {
  return gex_NBI_EndAccessRegion(0);
}

HYDRANT_GASNET_END
#endif
