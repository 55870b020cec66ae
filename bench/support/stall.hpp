// Benchmark rows for the question: do hits in one thread stall while another thread registers?
//
// A row is a pair of slices, measured in turn several times: the hitting thread *alone*, then *beside* a
// thread that repeatedly registers and unregisters 64 MiB. Every hit is timed end to end (the end of one is
// the start of the next), so that no waiting falls between two samples.
//
//   stall/hydrant              a domain over uring; the other thread pins and invalidates in the same domain
//   stall/hydrant-beside-bare  the control: the other thread makes the same calls on its own ring, so the
//                              effects are those of the machine and the kernel, not of the cache
//   stall/ucx                  a ucs_rcache whose mem_reg registers with io_uring; the other thread gets,
//                              invalidates and puts
//
// pause_us is the sleep of the other thread between two registrations. At 0 it nearly always retakes a lock
// that it holds across registrations before a waiting thread wakes up; at 1000 the waiting thread gets its
// turn.
//
// Column Time: mean nanoseconds per hit beside. Counters: share_alone, share_beside (percent of the time
// spent in hits over 20 us), share_grows (their difference, points), longest_alone_us, longest_beside_us,
// registrations. The label has both histograms: "bound in ns:hits", bounds doubling. Percentiles are not
// reported: a stall yields few, long samples in a closed loop, so no percentile moves.
#pragma once

namespace hydrant::bench {

void add_stall_rows();

}  // namespace hydrant::bench
