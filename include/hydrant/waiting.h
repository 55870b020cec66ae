/* hydrant/waiting.h - Waiting for messages in a program's own loop: a call with a time limit, and
 * descriptors for poll(2), select(2) and epoll(7).
 *
 * A loop over a descriptor; the order of its steps loses no event:
 *
 *     hydrant_event_descriptor_open(&descriptor);
 *     while (!done) {
 *       gasnet_AMPoll();
 *       if (hydrant_event_descriptor_arm(descriptor) != GASNET_OK) continue;
 *       if (!done) poll(...);    (with POLLIN for the descriptor, beside the program's own)
 *     }
 *
 * The poll is needed in every round: gex_Event_Test() never polls.
 * Arm, then check the condition, then sleep. Events that came before the arming are found by the arming or
 * by the check, later ones make the descriptor readable.
 *
 * Include it after gasnetex.h or gasnet.h.
 * Errors: functions return GASNET_OK or a code of gasnet_errors.h, with a text in
 * hydrant_last_error_text() of hydrant/rma.h.
 * Threads: any, within the program's thread mode. Not legal in handlers.
 * Cost: none for programs that call none of these.
 */
#ifndef HYDRANT_WAITING_H
#define HYDRANT_WAITING_H

#include <gasnetex.h>

#include <stdint.h>

HYDRANT_GASNET_BEGIN

/* Polls until a message was handled, an operation has completed or another rank has woken this one, or
 * until `timeout_ns` nanoseconds have passed; 0 polls once. It spins, yields and sleeps as GASNET_BLOCKUNTIL
 * does, so gasnet_set_waitmode() applies. It may return GASNET_OK early: the caller checks its own
 * condition.
 * In programs with threads it also returns after another thread has handled a message, in a poll of the
 * network that began after the first call of this function.
 * Errors: GASNET_ERR_NOT_READY: the time has passed (no text); GASNET_ERR_NOT_INIT.
 * Source: Hydrant. */
int hydrant_wait_for_message(uint64_t timeout_ns);

/* Opens a descriptor that becomes readable when messages or completions are there to be polled, when
 * another thread of this process has handled some, and when the job ends. Each thread that waits opens its
 * own; at most HYDRANT_EVENT_DESCRIPTORS are open. The program only waits for it, and neither reads, writes
 * nor closes it.
 * The first call starts a thread of the library that sleeps for the program.
 * Errors: GASNET_ERR_NOT_INIT; GASNET_ERR_RESOURCE: no descriptor, thread or memory.
 * Source: Hydrant; the protocol is that of ucp_worker_arm() of UCX. */
#define HYDRANT_EVENT_DESCRIPTORS 64
int hydrant_event_descriptor_open(int* descriptor);

/* Makes the descriptor unreadable, and readable again at the next event. An event that is there now is
 * GASNET_ERR_NOT_READY (no text): poll, and arm again. It may be reported without an event, at intervals of
 * a quarter of the time since the last event, between 10 ms and 1 s: the library has work of its own to do
 * then, in the poll that follows. While a reduction or barrier is under way that words of an adapter
 * complete, the intervals are between 0.1 and 10 ms, and its begin counts as an event; they are as short
 * while the rest of an operation with GEX_FLAG_IMMEDIATE waits for room.
 * One thread at a time arms a descriptor and waits for it: arming takes from it what another thread may not
 * have seen.
 * Arming lasts until the descriptor becomes readable. An event that the program's poll handles in between
 * makes it readable or not.
 * Errors: GASNET_ERR_NOT_READY; GASNET_ERR_NOT_INIT; GASNET_ERR_BAD_ARG: not such a descriptor, another
 * thread has closed it meanwhile, or the program has closed it.
 * Cost: some microseconds: the library's thread is woken, and senders are told to wake this process. */
int hydrant_event_descriptor_arm(int descriptor);

/* Closes the descriptor. A thread that is arming it gets GASNET_ERR_BAD_ARG; one that waits for it in
 * poll(2) is not woken.
 * Errors: GASNET_ERR_NOT_INIT; GASNET_ERR_BAD_ARG: not such a descriptor. */
int hydrant_event_descriptor_close(int descriptor);

HYDRANT_GASNET_END
#endif
