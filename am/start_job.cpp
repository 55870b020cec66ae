// Starts the job: bootstrap, exit handling, segment limits, transport and extended/, in that order
// (wire_up()). Called by gex_Client_Init() and gasnet_init().
#include "am/start_job.hpp"

#include <hydrant/gasnet/timers.h>

#include "am/call/in_call.hpp"
#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "am/job/job_environment.hpp"
#include "am/job/one_node.hpp"
#include "am/job/shared_environment.hpp"
#include "am/job/start_extended.hpp"
#include "am/progress/progress_thread.hpp"
#include "am/progress/waiting.hpp"
#include "am/segment/neighbourhood.hpp"
#include "am/segment/segment_check.hpp"
#include "am/segment/segment_size.hpp"
#include "am/segment/segments.hpp"
#include "am/tools/debugger.hpp"
#include "am/trace/job_trace.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/config/job_rank.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/machine/stay_loaded.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/config/job_knobs.hpp"
#include "rdma/make_transport.hpp"
#include "rdma/open_bootstrap.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

namespace hydrant {
namespace {

constexpr uint64_t kWireUpNs = 60'000'000'000;
constexpr const char* kModeNames[] = {"SEQ", "PARSYNC", "PAR"};

Status check_layout(const hydrant_client_info& info) noexcept {
  if (info.layout == HYDRANT_GASNET_LAYOUT && info.thread_mode <= 2) return Status::kOk;
  return fail(Status::kBadArg,
              "this program was compiled with headers of layout %u, and the library has %u: "
              "compile it again "
              "with the library's own gasnetex.h",
              info.layout, HYDRANT_GASNET_LAYOUT);
}

Status wire_up(int* argc, char*** argv, bool one_node) noexcept {
  Job& the_job = job();
  if (const Status status = open_bootstrap(argc, argv, &the_job.bootstrap); status != Status::kOk)
    return status;
  const JobTopology& topology = the_job.topology();
  hydrant_job_info.rank = topology.rank;
  hydrant_job_info.size = topology.size;
  note_rank_of_job(topology.rank);
  register_job_with_tools();
  prepare_debugging();
  start_job_trace();
  if (const Status status = start_exit_watch(); status != Status::kOk) return status;
  const auto ranks_here = static_cast<uint32_t>(topology.node_ranks.size());
  Status status = choose_max_segment(ranks_here);
  Injection injection;
  if (status == Status::kOk) {
    status = read_injection(&injection);
    // Neighbours map each other's segments, so hidden memory or HYDRANT_TRANSPORT=ibv means no neighbours.
    const bool is_hidden = injection.hides_memory() || knob_choice(JobKnob::kTransport) == "ibv";
    uint64_t most = is_hidden ? 1 : knob_number(JobKnob::kSupernodeMaxsize);
    if (status == Status::kOk && one_node) status = keep_to_one_node(topology, &most);
    if (status == Status::kOk)
      status = find_neighbourhood(*the_job.bootstrap, static_cast<uint32_t>(most));
  }
  if (status == Status::kOk && topology.rank == 0 && topology.size > 1)
    status = shared_environment().publish(*the_job.bootstrap);
  if (status == Status::kOk) {
    std::unique_ptr<Transport> transport;
    status = make_transport(*the_job.bootstrap, the_job.bootstrap_mu, the_job.single_threaded,
                            injection, &transport);
    if (status == Status::kOk) status = the_job.use(std::move(transport));
  }
  if (the_job.transport != nullptr) the_job.transport->set_peer_failed_callback(on_peer_failed);
  the_job.transport_to_wake.store(the_job.transport.get(), std::memory_order_release);
  choose_wait_mode(ranks_here);
  if (status == Status::kOk) status = start_extended();
  if (status == Status::kOk) status = publish_max_segment();
  // The fence prevents sends to a rank whose memory or handlers are not ready.
  if (status == Status::kOk) status = the_job.bootstrap->fence(now_ns() + kWireUpNs);
  if (status == Status::kOk) open_job_trace();
  if (status == Status::kOk && topology.rank != 0) {
    const MutexLock lock(the_job.bootstrap_mu);
    shared_environment().adopt(*the_job.bootstrap);
  }
  if (status == Status::kOk) status = verify_extended_settings();
  return status;
}

}  // namespace

Status start_job(int* argc, char*** argv, const hydrant_client_info& info) noexcept {
  Job& the_job = job();
  if (is_wired())
    return fail(Status::kNotInit,
                "the job was started before; call gex_Client_Init() or gasnet_init() once");
  if (const Status status = check_layout(info); status != Status::kOk) return status;
  stay_loaded();
  the_job.single_threaded = info.thread_mode != 2;
  the_job.guards_handlers = info.thread_mode != 0;
  the_job.segment_mode = info.segment_mode;
  the_job.debug = the_job.careful = info.debug != 0;
  choose_segment_check();
  // Tick conversion needs 10 ms between two clock reads. Reading ticks here hides that wait in the
  // start-up; otherwise it would delay the first timed operation of a rank, and all ranks waiting for
  // it.
  (void)hydrant_tools_ticks_now_slowly();
  // Line buffering: output of several ranks mixes by whole lines, even through a pipe.
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  if (const Status status = wire_up(argc, argv, assumes_one_node(info)); status != Status::kOk)
    return status;
  (void)hydrant_tools_ticks_to_ns(0);
  begin_call_checks(static_cast<int>(info.thread_mode), the_job.debug);
  the_job.state.store(JobState::kWired, std::memory_order_release);
  print_environment(max_local_segment());
  print_launch_hint(*the_job.bootstrap);
  log_info("rank %u of %u by %s, %s, transport %s", the_job.rank(), the_job.size(),
           the_job.bootstrap->name(), kModeNames[info.thread_mode],
           the_job.transport != nullptr ? the_job.transport->name() : "none");
  // All ranks have started, so a rank that stays frozen for minutes causes no start-up timeout.
  freeze_if_set("GASNET_FREEZE");
  return Status::kOk;
}

Status make_client(const char* name, gex_Flags_t flags) noexcept {
  Job& the_job = job();
  if (the_job.client.name != nullptr) {
    return fail(Status::kResource, "the process has a client already ('%s'); the limit is one",
                the_job.client.name);
  }
  the_job.client_name = std::make_unique<std::string>(name != nullptr ? name : "");
  the_job.client = {.flags = flags, .name = the_job.client_name->c_str(), .cdata = nullptr};
  the_job.endpoint = {
      .client = &the_job.client, .segment = nullptr, .flags = 0, .index = 0, .cdata = nullptr};
  hydrant_world = {.ep = &the_job.endpoint,
                   .rank = the_job.rank(),
                   .size = the_job.size(),
                   .flags = 0,
                   .cdata = nullptr,
                   .jobranks = nullptr,
                   .first = 0,
                   .stride = 1};
  return Status::kOk;
}

}  // namespace hydrant

using namespace hydrant;

extern "C" int hydrant_client_init(gex_Client_t* client_p, gex_EP_t* ep_p, gex_TM_t* tm_p,
                                   const char* name, int* argc, char*** argv, gex_Flags_t flags,
                                   const hydrant_client_info* info) {
  const CancellationDisabled guard;
  Job& the_job = job();
  Status status = Status::kOk;
  if (!is_wired()) status = start_job(argc, argv, *info);
  if (status == Status::kOk) status = make_client(name, flags);
  if (status != Status::kOk) return report(status, "gex_Client_Init", true);
  start_progress_thread();
  if (client_p != nullptr) *client_p = &the_job.client;
  if (ep_p != nullptr) *ep_p = &the_job.endpoint;
  if (tm_p != nullptr) *tm_p = &hydrant_world;
  return GASNET_OK;
}
