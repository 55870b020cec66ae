// Rows for: does a thread that hits stand still while another thread registers?
//
// One row is one pair of slices, measured in turn several times: the hitting thread *alone*, then
// *beside* a thread that registers 64 MiB, drops it and registers it again. Every hit is timed, end to end
// (the end of one is the start of the next), so that no waiting falls between two samples.
//
//   stall/hydrant              a domain over uring; the other thread pins and invalidates in the same domain
//   stall/hydrant-beside-bare  the control: the other thread makes the same calls on a ring of its own,
//                              so what is seen is the machine's and the kernel's doing, not the cache's
//   stall/ucx                  a ucs_rcache whose mem_reg registers with io_uring; the other thread gets,
//                              invalidates and puts
//
// pause_us is how long the other thread sleeps between two registrations. At 0 a lock that is held across
// them is nearly always taken again before anyone who waits for it wakes up; at 1000 the others get a turn.
//
// Column Time: mean nanoseconds per hit beside. Counters: share_alone, share_beside (percent of the time
// that lies in hits over 20 us), share_grows (their difference, points), longest_alone_us,
// longest_beside_us, registrations. The label holds both histograms: "bound in ns:hits", bounds doubling.
// Percentiles are not reported: a closed loop makes few, long samples of a stall, and no percentile moves.
#pragma once

namespace hydrant::bench {

void add_stall_rows();

}  // namespace hydrant::bench
