/* gasnet_errors.h - the one set of status codes of every Hydrant library.
 *
 * GASNet's own codes keep GASNet's numbers (GASNet-1 specification, "Error codes"); codes that GASNet
 * lacks start at 10100. docs/error_codes.md says who returns each and what the caller can do.
 * Usable from C99 and C++; includes nothing.
 */
#ifndef GASNET_ERRORS_H
#define GASNET_ERRORS_H

#ifndef GASNET_ERR_NOT_INIT /* GASNet's own headers define the same numbers */
#define GASNET_OK 0         /* done */
#define GASNET_ERR_NOT_INIT \
  10001 /* used before init, after fini, or with a handle from before a fork */
#define GASNET_ERR_RESOURCE \
  10002 /* cannot ever fit: larger than the whole budget, or memory ran out */
#define GASNET_ERR_BAD_ARG 10003 /* an argument is outside its documented range */
#define GASNET_ERR_NOT_READY \
  10004 /* not now: would have to wait; try again, poll, or take a fallback */
#define GASNET_ERR_BARRIER_MISMATCH 10005 /* barrier identifiers disagree between ranks */
#endif

#define HYDRANT_ERR_REFUSED 10100 /* this memory cannot be registered with this access right */
#define HYDRANT_ERR_BROKEN \
  10101 /* a registrar, device or peer that worked has failed for good; the text says how */
#define HYDRANT_ERR_UNSUPPORTED \
  10102 /* the operation, the kind of memory or the registrar is not offered on this machine */

#endif
