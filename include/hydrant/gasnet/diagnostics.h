/* hydrant/gasnet/diagnostics.h - a test of the library by itself, in any job: gasnett_run_diagnostics().
 *
 * Part of gasnet_tools.h in programs that include gasnetex.h first.
 * Source: GASNet 2025.8.0, gasnet_tools.h; its testinternal.c is the caller. The sections are Hydrant's.
 */
#ifndef HYDRANT_GASNET_DIAGNOSTICS_H
#define HYDRANT_GASNET_DIAGNOSTICS_H

#include <hydrant/gasnet/am.h>
#include <hydrant/gasnet/objects.h>

HYDRANT_GASNET_BEGIN

/* Runs the sections that `testsections` names by letters ("ACD", in either case; NULL or "" for all). Rank 0
 * prints each on standard output, and one warning for letters that no section has. Returns the number of
 * errors of this rank, which are printed on standard error:
 *   A  collectives: all ranks agree; gathers, reductions, barriers
 *   B  puts and gets, blocking, with events and without, contiguous and strided
 *   C  Mediums with replies
 *   D  Longs with replies
 *   E  remote atomics
 *   F  the tools' locks and atomics, by `threadcnt` threads
 *   G  messages, puts and gets by `threadcnt` threads
 * C, D and G's messages need the handlers below. F and G have one thread in programs of one thread.
 *
 * Collective over `team`, by one thread per rank. `iters` is the number of rounds of most sections. Each
 * rank has 65536 bytes at `myseg`, in its bound segment, which the call overwrites; `peerseg` is the `myseg`
 * of `peer`. Each rank is the peer of exactly one rank. `iters` and `seed`, which chooses random lengths and
 * values, are the same on all ranks.
 * Errors: 1 with a text, for wrong arguments: a count below 1, no known section, no such rank, null. Not
 * legal in handlers. */
int hydrant_run_diagnostics(int iters, int threadcnt, const char* testsections, gex_TM_t team,
                            void* myseg, gex_Rank_t peer, void* peerseg, unsigned int seed);
#define gasnett_run_diagnostics hydrant_run_diagnostics

/* The handlers that the sections use: to be registered before they run, at all ranks, with their indices (0:
 * chosen by the registration). The table belongs to the library. */
void hydrant_diagnostic_gethandlers(gex_AM_Entry_t** htable, int* htable_cnt);
#define gasnett_diagnostic_gethandlers hydrant_diagnostic_gethandlers

HYDRANT_GASNET_END
#endif
