/* gasnetex.h - the GASNet-EX API (specification 0.19), as far as this version implements it: the core
 * (jobs, endpoints, teams, segments, Active Messages, events, barriers, locks), put and get. README has
 * a table of what works.
 *
 * Define GASNET_SEQ, GASNET_PARSYNC or GASNET_PAR first (hydrant/gasnet/modes.h). Include this header
 * before gasnet_tools.h. C99 and C++.
 */
#ifndef _INCLUDED_GASNETEX_H
#define _INCLUDED_GASNETEX_H

/* Clients rely on getting these headers through this one. */
#include <gasnet_errors.h>
#include <hydrant/gasnet/am.h>
#include <hydrant/gasnet/am_calls.h>
#include <hydrant/gasnet/barrier.h>
#include <hydrant/gasnet/events.h>
#include <hydrant/gasnet/hsl.h>
#include <hydrant/gasnet/idents.h>
#include <hydrant/gasnet/modes.h>
#include <hydrant/gasnet/objects.h>
#include <hydrant/gasnet/rma.h>
#include <hydrant/gasnet/system.h>

#include <ctype.h>
#include <errno.h>
#include <gasnet_config.h>
#include <gasnet_fwd.h>
#include <gasnet_tools.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#endif
