// Package g10 plans swaps for a program that is known at compile time, as G10
// does (Zhang et al., MICRO'23; repository platformxlab/G10, src/analysis.cc):
// to host memory and an SSD, over channels whose capacity is booked kernel by
// kernel. Plan is pure and needs no runtime; the policy around it runs the plan
// in unified, direct or the framework's memory.
//
// # The plan
//
//  1. Inactive periods: the kernels between two uses of a tensor. The last one of
//     a global wraps into the next iteration and is looped.
//  2. Estimate: all tensors at all kernels; then, tensor by tensor until every
//     kernel is below the line, locals are subtracted outside their lives, and
//     get a planned allocation and a planned free.
//  3. Until every kernel is below the line, or no period is left: take the period
//     with the largest size x time of the kernels over the size of the device. For
//     one that is not looped only the part between half written and half
//     read back counts. Equals: larger size x length, then in order. One that
//     spans one kernel, or covers none at or above the line, is dropped.
//  4. To the SSD if the period is longer than a round trip there and a margin; but
//     to the host if the SSD is booked out from its start to where its write would
//     end and the host has room; to the host if the period is long enough only for
//     that. What would not fit is dropped.
//  5. The write books its channel forward from the start of the period, the read
//     backward from its end. It is accepted if the read begins after the write
//     ended, and if memory is short somewhere in between; there the estimate
//     falls. Looped periods go by plain times, and take what the channels have
//     left.
//  6. A last pass, with Machine.LastPass alone: periods that were not taken leave
//     for the SSD by plain times, until the fullest kernel is low enough.
//  7. Reads move to earlier kernels while these have room below the line.
//  8. Hints, by kernel. What dies with the last kernel is freed before the first
//     of the next iteration.
//
// # What is ours
//
// The origin ranks all periods again after each choice. Estimates only fall
// while periods are chosen, so a benefit can only shrink, and a heap whose top
// is computed again before it is believed makes exactly the same choices. Times
// and bytes are integers. Where the origin's order is unspecified (hints of one
// kernel, equal periods) it is fixed here.
//
// Where its description leaves room, or seems to say something else, details were
// settled by what its simulator reports, never by a number fitted to it.
//
// By the traffic and the timelines of three plans (published-traffic.csv,
// kernel-timelines): benefits count kernels over the size of the device, while a
// period is dropped by the line; the kernel in which a write would end does not
// count when the SSD is asked whether it is booked out; reads come forward to
// kernels that have room for the first local tensor, whatever their own size
// (Machine.KeepFirst). The plan of BERT-256 then moves exactly the reported pages
// at the reported times, and they are on the device and the host when the timeline
// has them there, but for 810 pages at one kernel: reads that may begin no later
// than the same kernel come forward in the order in which they are used, in the
// origin in the one in which std::sort of libstdc++ leaves them (with that order all
// kernels agree). That a move must help is inferred from the timeline of
// Inception-1536, whose host never gets eight tensors that would be written only
// after the kernels that are short of memory. So is that reads from the SSD wait
// for a free link without booking it: with it the second iteration takes 0.9 %
// too long instead of 6.3 %; BERT-256 does not tell, its writes must book the
// link.
//
// By published times: that looped periods ask whether the SSD is booked out, up to
// and with the kernel in which a write would end, and take what the channels have
// left. Without that BERT from batch 640 on sends globals to the SSD that the origin
// must send to the host, and is up to 0.093 of the ideal too slow. That the last pass goes
// by plain times: with reads in the last kernel before a use Inception-1536 and
// ResNet-1280 without host memory are 0.020 and 0.044 too slow, not 0.025 too fast
// and 0.014 too slow.
//
// What is not understood: at the turn from the forward to the backward pass the
// origin moves a few tensors more. Of Inception-1536 its host gets tensors 226, 220
// and 1668 (written in kernels 110 to 277) and its SSD 1509, 1853 and 1656, with
// which the pages moved are exactly those reported; of ResNet-1280 its SSD gets
// tensor 832. An estimate that is higher by a quarter to a third of the first local
// while periods are chosen brings 226, 220 and 832, and none that is wrong, in all
// three plans; no ranking by a benefit that only falls brings all of the others
// without some that the origin does not take.
//
// # Where to start reading
//
//	machine.go   Machine: what the planner believes, with units
//	plan.go      Plan: the seven steps
//	periods.go   inactive periods and their ranking
//	estimate.go  the estimate
//	channel.go   the ledgers
//	policy.go    the policy and its options
package g10
