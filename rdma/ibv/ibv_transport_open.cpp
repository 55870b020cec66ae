// Opens and closes the transport: options, ports, queues, then the parts. Where HYDRANT_IBV_PORTS names no
// port and set-up with the best one fails, the next one is tried.
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/config/job_knobs.hpp"
#include "rdma/ibv/device/fork_safety.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <new>
#include <utility>

namespace hydrant {

namespace {

constexpr uint64_t kMinStallNs = 60'000'000'000;
// Exact enough for adapters that take 48, 96 or 101 bytes.
constexpr uint32_t kInlineStep = 4;
constexpr size_t kMinStripe = 65536;  // long enough that no stripe is empty or sent without a key

// The settings point to both arguments.
ibv::PortSettings port_settings(const ibv::Options& options, const ibv::PortList& failed) noexcept {
  ibv::PortSettings settings = ibv::chosen_port_settings();
  settings.failed = &failed;
  if (options.node.network.has_value()) settings.network = &*options.node.network;
  return settings;
}

// A rank of another node if there are several, because those of this node may have shared memory.
Rank far_rank(const JobTopology& job) noexcept {
  Rank far = 0;
  for (const Rank near : job.node_ranks) far += near == far ? 1 : 0;  // they are in order
  if (far < job.size) return far;
  return job.size > 1 ? (job.rank == 0 ? 1 : 0) : kNoRank;
}

}  // namespace

Status IbvTransport::open(Bootstrap& bootstrap, const Options& options,
                          std::unique_ptr<IbvTransport>* transport) noexcept {
  if (knob_number(JobKnob::kIbvForkSafe) != 0) ibv::protect_from_forks();
  ibv::PortList failed;
  Status first = Status::kOk;  // the failure with the best port
  char reason[512] = "";
  for (;;) {
    std::unique_ptr<IbvTransport> made(new (std::nothrow) IbvTransport(bootstrap, options));
    if (made == nullptr) return fail(Status::kResource, "no memory for a transport");
    const Status status = made->open_parts(failed);
    const ibv::TransportParts& parts = made->parts_;
    if (status == Status::kOk) {
      if (first != Status::kOk)
        log_warning("verbs: %s port %u is used instead of a better one, because: %s",
                    parts.port.name, parts.port.number, reason);
      std::byte bytes[ibv::kMaxEndpointBytes];
      ibv::encode_endpoint(parts.own.address(), bytes);
      const Status stored =
          bootstrap.put(kEndpointKey, {bytes, ibv::endpoint_bytes(parts.rails.count())});
      if (stored == Status::kOk) *transport = std::move(made);
      return stored;
    }
    if (first == Status::kOk) {
      first = status;
      std::snprintf(reason, sizeof reason, "%s", last_error_text());
    }
    const bool has_port = parts.ports.count != 0;
    if (!has_port || made->wanted_ports()[0] != '\0' || !failed.add(parts.port))
      return fail(first, "%s", reason);
  }
}

const char* IbvTransport::wanted_ports() const noexcept {
  return parts_.options.ports != nullptr ? parts_.options.ports : knob_text(JobKnob::kIbvPorts);
}

Status IbvTransport::open_parts(const ibv::PortList& failed) noexcept {
  if (const Status status = ibv::check_options(parts_.options); status != Status::kOk)
    return status;
  if (parts_.options.handshakes.has_thread) parts_.options.single_threaded = false;
  const JobTopology& topology = parts_.bootstrap.topology();
  parts_.own.open(topology.rank, topology.size);
  Status status = parts_.peers.open(topology.size + parts_.options.max_joined);
  if (status == Status::kOk)
    status = parts_.operation_pool.open(parts_.options.operations, !parts_.options.single_threaded);
  if (status == Status::kOk) status = open_ports(failed);
  if (status == Status::kOk) status = parts_.sleeper.open(parts_.port, parts_.options.has_channel);
  if (status == Status::kOk) status = open_queues();
  if (status != Status::kOk) return status;

  const bool threaded = !parts_.options.single_threaded;
  const uint32_t max_piece = std::max(parts_.port.max_message_bytes, 1u);
  size_t max_at_once = max_piece;
  if (parts_.ports.count > 1) open_rails();
  if (parts_.rails.count() != 0) {
    parts_.striping.open(parts_.options.stripe_bytes);
    max_at_once = std::min<size_t>(max_piece, parts_.options.stripe_bytes - 1);
  }
  parts_.deferred.open(threaded);
  parts_.messages.open(parts_.handshakes);
  parts_.operations.open(max_piece, max_at_once, has_atomics_, topology.rank, parts_.handshakes);
  parts_.fences.open(max_at_once);
  parts_.disconnector.open(threaded, topology.size, far_rank(topology));
  // A launcher that sends events reports the deaths of this job's ranks. It knows no joined process.
  const bool are_ranks_watched = parts_.bootstrap.event_fd() >= 0;
  parts_.liveness.open(parts_.options, are_ranks_watched ? topology.size : 0);
  for (ibv::CellPool& pool : parts_.cells) {
    status =
        pool.open(parts_.port.device.pd, parts_.options.cells, parts_.options.cell_bytes, threaded);
    if (status != Status::kOk) return status;
  }
  const bool has_thread = parts_.options.handshakes.has_thread;
  if (has_thread) status = parts_.connection_thread.open(parts_.port);
  if (status == Status::kOk)
    status = parts_.handshakes.open(has_thread ? parts_.connection_thread.channel()
                                               : parts_.sleeper.channel());
  if (status != Status::kOk) return status;
  parts_.node_adapters.note(parts_.ports, topology, parts_.options);
  if (has_thread) parts_.connection_thread.start();
  log_ports(failed);
  return Status::kOk;
}

Status IbvTransport::open_ports(const ibv::PortList& failed) noexcept {
  if (parts_.options.patience_ns == 0)
    parts_.options.patience_ns = knob_number(JobKnob::kIbvPatience);
  // An adapter may wait for four times its timeout before it sends a packet again, and the timeout may be
  // longer by a third than what was asked for.
  if (parts_.options.stall_timeout_ns == 0)
    parts_.options.stall_timeout_ns = std::max(kMinStallNs, 6 * parts_.options.patience_ns);
  const ibv::PortSettings settings = port_settings(parts_.options, failed);
  std::vector<ibv::PassedBy> passed_by;
  if (const Status status =
          ibv::open_ports(wanted_ports(), ibv::kMaxRails, &parts_.ports, settings, &passed_by);
      status != Status::kOk)
    return status;
  for (const auto& [item, reason] : passed_by) {
    // "*" at the end of the list stands for whatever there may be.
    if (item != "*")
      log_warning("'%s' of HYDRANT_IBV_PORTS adds no port: %s", item.c_str(), reason.c_str());
  }
  // A vector has one processor for its interrupts: ranks of a node use different ones.
  for (uint32_t i = 0; i < parts_.ports.count; ++i) {
    ibv::Port& port = parts_.ports.all[i];
    const auto vectors = static_cast<uint32_t>(std::max(port.device.context->num_comp_vectors, 1));
    port.completion_vector = static_cast<int>(parts_.bootstrap.topology().node_rank % vectors);
    const int events = port.device.context->async_fd;
    if (fcntl(events, F_SETFL, fcntl(events, F_GETFL) | O_NONBLOCK) != 0)
      return fail(Status::kResource, "%s: its events cannot be read without waiting: %s", port.name,
                  errno_text(errno));
  }
  if (parts_.options.single_threaded) thread_domains_.open(&parts_.ports);
  has_atomics_ = std::all_of(parts_.ports.all, parts_.ports.all + parts_.ports.count,
                             [](const ibv::Port& port) { return port.atomics != IBV_ATOMIC_NONE; });
  are_with_processors_ = has_atomics_ && parts_.port.atomics == IBV_ATOMIC_GLOB;
  return Status::kOk;
}

Status IbvTransport::open_queues() noexcept {
  const uint32_t places = std::max(parts_.peers.places(), 2u);
  const uint32_t others = places - 1;
  // A rank may connect to itself, too.
  if (const Status status =
          parts_.completions.open({.port = &parts_.port,
                                   .channel = parts_.sleeper.channel(),
                                   .entries_per_peer = parts_.options.completions_per_peer(),
                                   .peers = places,
                                   .threaded = !parts_.options.single_threaded});
      status != Status::kOk)
    return status;
  const uint32_t each = parts_.options.receives_per_peer();
  const uint32_t most = parts_.port.max_receives;
  const auto receives = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{others} * each, most));
  if (most != 0 && most < each)
    return fail(Status::kResource,
                "%s: a shared receive queue holds at most %u buffers, one peer needs %u: fewer "
                "credits (HYDRANT_IBV_CREDITS)",
                parts_.port.name, most, each);
  if (const Status status = parts_.receiving.open(parts_.options, parts_.port, receives);
      status != Status::kOk)
    return status;
  if (parts_.receiving.queue() == nullptr && each > parts_.port.max_sends)
    return fail(Status::kResource,
                "%s: a queue pair holds at most %u receive buffers, one peer needs %u: fewer "
                "credits (HYDRANT_IBV_CREDITS)",
                parts_.port.name, parts_.port.max_sends, each);
  parts_.options.send_depth =
      std::min(parts_.options.send_depth, std::max(parts_.port.max_sends, 1u));
  return measure_inline();
}

// Only the creation of a queue pair shows how many inline bytes a device accepts: what is wanted, or else the
// most in steps of kInlineStep.
Status IbvTransport::measure_inline() noexcept {
  const uint32_t wanted = std::min(parts_.options.inline_bytes, parts_.options.message_bytes());
  parts_.options.inline_bytes = wanted;
  if (accepts_inline(wanted)) return Status::kOk;
  if (!accepts_inline(0))
    return fail(Status::kResource,
                "%s: cannot create a queue pair with %u sends: %s (memlock: ulimit -l; the device "
                "has %u queue pairs)",
                parts_.port.name, parts_.options.send_depth, errno_text(errno),
                parts_.port.max_queue_pairs);
  uint32_t accepted = 0;
  uint32_t refused = (wanted + kInlineStep - 1) / kInlineStep;
  while (refused - accepted > 1) {
    const uint32_t between = accepted + (refused - accepted) / 2;
    (accepts_inline(between * kInlineStep) ? accepted : refused) = between;
  }
  parts_.options.inline_bytes = accepted * kInlineStep;
  return Status::kOk;
}

// False: errno says why.
bool IbvTransport::accepts_inline(uint32_t bytes) noexcept {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = parts_.completions.queue().get();
  attributes.srq = parts_.receiving.queue();
  if (attributes.srq == nullptr) {
    attributes.cap.max_recv_wr = parts_.options.receives_per_peer();
    attributes.cap.max_recv_sge = 1;
  }
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = parts_.options.send_depth;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_inline_data = bytes;
  errno = 0;
  const ibv::QueuePair probe(uncancelled::call(ibv_create_qp, parts_.port.device.pd, &attributes));
  // Some drivers (hns) refuse nothing, and report a queue pair for fewer bytes.
  return probe != nullptr && attributes.cap.max_inline_data >= bytes;
}

void IbvTransport::open_rails() noexcept {
  if (parts_.options.stripe_bytes == 0)
    parts_.options.stripe_bytes = knob_number(JobKnob::kIbvStripeMin);
  parts_.options.stripe_bytes = std::max(parts_.options.stripe_bytes, kMinStripe);
  if (parts_.operation_pool.open_stripes() != Status::kOk) {
    log_warning("verbs: no memory for stripes: only the first port is used");
    return;
  }
  const uint32_t others = std::max(parts_.peers.places(), 2u) - 1;
  parts_.rails.open({parts_.ports.all + 1, parts_.ports.count - 1}, parts_.options.send_depth,
                    others, !parts_.options.single_threaded);
}

void IbvTransport::log_ports(const ibv::PortList& failed) const noexcept {
  if (!log_enabled(LogLevel::kInfo)) return;
  const ibv::EndpointAddress endpoint = parts_.own.address();
  log_info("verbs: rank %u uses %s port %u at %s, GID index %u", parts_.own.self(),
           parts_.port.name, parts_.port.number, text_of(endpoint.address).text,
           parts_.port.gid_index);
  for (uint32_t i = 0; i < parts_.rails.count(); ++i) {
    if (!parts_.rails[i].completions.is_open()) continue;  // left out, and logged
    const ibv::Port& port = parts_.rails[i].port;
    log_info("verbs: rank %u also uses %s port %u at %s, GID index %u, for puts and gets",
             parts_.own.self(), port.name, port.number, text_of(endpoint.rails[i]).text,
             port.gid_index);
  }
  const ibv::PortSettings settings = port_settings(parts_.options, failed);
  ibv::log_unused_ports(wanted_ports(), ibv::kMaxRails, settings);
}

IbvTransport::~IbvTransport() {
  parts_.connection_thread.stop();
  (void)parts_.ports.keep_descriptors();
  (void)parts_.sleeper.has_channel();
  // Closing the queue pairs ends the adapter's accesses, before the memory that they go to is freed.
  parts_.peers.for_each([](ibv::Peer& peer) {
    peer.send.close();
    peer.rails.reset();
  });
  parts_.handshakes.close();
  parts_.connection_thread.close();
  parts_.receiving.close();
  parts_.peers.clear();
  parts_.completions.close();
  parts_.sleeper.close();
  for (ibv::CellPool& pool : parts_.cells) pool.close();
  parts_.fences.close();
  parts_.rails.close();
  thread_domains_.close(&parts_.ports);
  close_ports(parts_.ports);
}

}  // namespace hydrant
