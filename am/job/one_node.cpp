// Refuses or restricts clients that were compiled for one node (GASNET_CONDUIT_SMP). Called by
// wire_up() (am/start_job.cpp).
#include "am/job/one_node.hpp"

#include "firehose/base/log.hpp"
#include "rdma/config/job_knobs.hpp"

#include <cstring>

namespace hydrant {
namespace {

#define HYDRANT_COMPILE_FOR_BOTH                                                                 \
  "compile it with pkg-config's gasnet-ibv-seq (-par, -parsync), include/ibv-conduit/*.mak, "    \
  "hydrant.pc or Hydrant::hydrant, without GASNET_CONDUIT_SMP: such a program runs on one node " \
  "and "                                                                                         \
  "on several"

}  // namespace

bool assumes_one_node(const hydrant_client_info& info) noexcept {
  return info.config != nullptr && std::strstr(info.config, HYDRANT_ONE_NODE_CONFIG) != nullptr;
}

Status keep_to_one_node(const JobTopology& topology, uint64_t* most) noexcept {
  if (topology.node_count > 1) {
    return fail(Status::kBadArg,
                "the job has %u nodes, and this program was compiled for one "
                "(GASNET_CONDUIT_SMP): " HYDRANT_COMPILE_FOR_BOTH,
                topology.node_count);
  }
  if (knob_choice(JobKnob::kTransport) == "ibv") {
    return fail(
        Status::kBadArg,
        "HYDRANT_TRANSPORT=ibv maps no memory of other ranks, and this program was compiled to "
        "count on that (GASNET_CONDUIT_SMP): " HYDRANT_COMPILE_FOR_BOTH);
  }
  const KnobValue limit = read_knob(JobKnob::kSupernodeMaxsize);
  if (limit.number != 0 && topology.rank == 0) {
    log_warning(
        "GASNET_SUPERNODE_MAXSIZE=%llu is ignored: this program was compiled for one node "
        "(GASNET_CONDUIT_SMP); to have it counted " HYDRANT_COMPILE_FOR_BOTH,
        static_cast<unsigned long long>(limit.number));
  }
  *most = 0;
  return Status::kOk;
}

}  // namespace hydrant
