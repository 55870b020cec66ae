// The rows of the last knobs, which are about networks. job_knobs.cpp appends them to its table.
#pragma once

#include "rdma/config/job_knobs.hpp"

#include <array>

namespace hydrant {

inline constexpr std::array<KnobInfo, 10> kNetworkRows = {{
    {.index = static_cast<uint32_t>(JobKnob::kIbvOdp),
     .name = "HYDRANT_IBV_ODP",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "fallback",
     .effect =
         "Local memory of a put or get that cannot be pinned now, for instance because memlock "
         "is used up: fallback uses on-demand paging if all verbs adapters in use support it; "
         "off always copies through buffers.",
     .choices = "fallback|off"},
    {.index = static_cast<uint32_t>(JobKnob::kIbvRelaxedOrdering),
     .name = "HYDRANT_IBV_RELAXED_ORDERING",
     .type = KnobType::kBoolean,
     .default_text = "n",
     .effect = "y lets adapters write data of puts and gets in any order (docs/verbs.md)."},
    {.index = static_cast<uint32_t>(JobKnob::kAmEager),
     .name = "HYDRANT_AM_EAGER",
     .type = KnobType::kSize,
     .unit = "bytes",
     .default_text = "1000",
     .effect = "Longest message over verbs (arguments and payload) that is a single send, the same "
               "on all ranks; the payload of a longer one is first written into a buffer of the "
               "peer. Rounded up to a multiple of 8.",
     .min = 128,
     .max = 65528},
    {.index = static_cast<uint32_t>(JobKnob::kInject),
     .name = "HYDRANT_INJECT",
     .type = KnobType::kText,
     .unit = "",
     .default_text = "",
     .effect =
         "For measurements and tests, the same on all ranks: send_only hides all but messages "
         "of the transport; items simulate a network with delay, bandwidth, credits or pinned "
         "memory. A malformed text makes init fail.",
     .choices = "send_only|ITEM=VALUE,..."},
    {.index = static_cast<uint32_t>(JobKnob::kIbvPkey),
     .name = "HYDRANT_IBV_PKEY",
     .type = KnobType::kCount,
     .unit = "",
     .default_text = "0",
     .effect = "InfiniBand partition (P_Key, such as 0x8001) that verbs ports use, the same on all "
               "ranks; its highest bit does not count. 0: the first of which the port is a full "
               "member.",
     .max = 0xffff},
    {.index = static_cast<uint32_t>(JobKnob::kIbvServiceLevel),
     .name = "HYDRANT_IBV_SL",
     .type = KnobType::kCount,
     .unit = "",
     .default_text = "0",
     .effect = "Service level of verbs packets; over Ethernet the priority in VLAN tags.",
     .max = 15},
    {.index = static_cast<uint32_t>(JobKnob::kIbvTrafficClass),
     .name = "HYDRANT_IBV_TRAFFIC_CLASS",
     .type = KnobType::kCount,
     .unit = "",
     .default_text = "106",
     .effect =
         "Traffic class of verbs packets over Ethernet: four times the DSCP, plus the ECN bits. "
         "Switches for RoCE usually put 106 (DSCP 26) into their lossless class.",
     .max = 255},
    {.index = static_cast<uint32_t>(JobKnob::kIbvConnectThread),
     .name = "HYDRANT_IBV_CONNECT_THREAD",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "n",
     .effect =
         "y starts a library thread that connects ranks over verbs while this one computes; it "
         "runs no handlers, and works for clients of one thread, too (docs/verbs.md)."},
    {.index = static_cast<uint32_t>(JobKnob::kIbvForkSafe),
     .name = "HYDRANT_IBV_FORK_SAFE",
     .type = KnobType::kBoolean,
     .unit = "",
     .default_text = "y",
     .effect =
         "y makes forks safe over verbs where the kernel does not (before Linux 5.13), by "
         "ibv_fork_init(): ordinary memory is not cached there. n is for programs that do not "
         "fork (docs/verbs.md)."},
    {.index = static_cast<uint32_t>(JobKnob::kIbvOrder),
     .name = "HYDRANT_IBV_ORDER",
     .type = KnobType::kChoice,
     .unit = "",
     .default_text = "auto",
     .effect =
         "How verbs adapters order RDMA writes, the same on all ranks: ordered, unordered (as "
         "with adaptive routing) or relaxed (docs/verbs.md); auto is unordered for NVIDIA's "
         "adapters, ordered for others.",
     .choices = "auto|ordered|unordered|relaxed"},
}};

}  // namespace hydrant
