/* gasnet_errors.h - the status codes of every Hydrant library.
 *
 * GASNet's own codes keep GASNet's numbers (GASNet-1 specification, "Error codes"); Hydrant's own codes
 * start at 10100. docs/error_codes.md lists which functions return each code and how a caller can
 * react. Usable from C99 and C++; includes nothing. */
#ifndef GASNET_ERRORS_H
#define GASNET_ERRORS_H

#ifndef GASNET_ERR_NOT_INIT        /* GASNet's own headers define the same numbers */
#define GASNET_OK 0                /* success */
#define GASNET_ERR_NOT_INIT 10001  /* before init, after fini, or handle from before a fork */
#define GASNET_ERR_RESOURCE 10002  /* larger than the whole budget, or memory ran out */
#define GASNET_ERR_BAD_ARG 10003   /* an argument is outside its documented range */
#define GASNET_ERR_NOT_READY 10004 /* would have to wait: try again, poll, or take a fallback */
#define GASNET_ERR_BARRIER_MISMATCH 10005 /* barrier identifiers disagree between ranks */
#endif

#define HYDRANT_ERR_REFUSED 10100     /* this memory cannot be registered with this access right */
#define HYDRANT_ERR_BROKEN 10101      /* a registrar, device or peer has failed permanently */
#define HYDRANT_ERR_UNSUPPORTED 10102 /* not offered on this machine */

#endif
