// Opens and closes the transport: options, ports, queues, then the parts.
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/config/job_knobs.hpp"
#include "rdma/ibv/connection/ibv_queue_pair.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <new>
#include <utility>

namespace hydrant {

namespace {

constexpr uint64_t kMinStallNs = 60'000'000'000;
// Completion queues start with room for this number of peers.
constexpr uint32_t kPeersAtFirst = 8;
constexpr size_t kMinStripe = 65536;  // long enough that no stripe is empty or sent without a key

}  // namespace

Status IbvTransport::open(Bootstrap& bootstrap, const Options& options,
                          std::unique_ptr<IbvTransport>* transport) noexcept {
  std::unique_ptr<IbvTransport> made(new (std::nothrow) IbvTransport(bootstrap, options));
  if (made == nullptr) return fail(Status::kResource, "no memory for a transport");
  if (const Status status = made->open_parts(); status != Status::kOk) return status;
  *transport = std::move(made);
  return Status::kOk;
}

Status IbvTransport::open_parts() noexcept {
  if (const Status status = ibv::check_options(options_); status != Status::kOk) return status;
  const JobTopology& topology = bootstrap_.topology();
  own_.open(topology.rank, topology.size);
  Status status = peers_.open(topology.size + options_.max_joined);
  if (status == Status::kOk)
    status = operation_pool_.open(options_.operations, !options_.single_threaded);
  if (status == Status::kOk) status = open_ports();
  if (status == Status::kOk) status = sleeper_.open(port_, options_.has_channel);
  if (status == Status::kOk) status = open_queues();
  if (status != Status::kOk) return status;

  const bool threaded = !options_.single_threaded;
  const uint32_t max_piece = std::max(port_.max_message_bytes, 1u);
  size_t max_at_once = max_piece;
  if (ports_.count > 1) open_rails();
  if (rails_.count() != 0) {
    striping_.open(options_.stripe_bytes);
    max_at_once = std::min<size_t>(max_piece, options_.stripe_bytes - 1);
  }
  deferred_.open(threaded);
  messages_.open(handshakes_);
  operations_.open(max_piece, max_at_once, has_atomics_, topology.rank, handshakes_);
  disconnector_.open(threaded);
  liveness_.open(options_);
  for (ibv::CellPool& pool : cells_) {
    status = pool.open(port_.device.pd, options_.cells, options_.cell_bytes, threaded);
    if (status != Status::kOk) return status;
  }
  if (status = handshakes_.open(sleeper_.channel()); status != Status::kOk) return status;

  log_ports();
  std::byte bytes[ibv::kMaxEndpointBytes];
  ibv::encode_endpoint(own_.address(), bytes);
  return bootstrap_.put(kEndpointKey, {bytes, ibv::endpoint_bytes(rails_.count())});
}

Status IbvTransport::open_ports() noexcept {
  if (options_.timeout == 0)
    options_.timeout = static_cast<uint8_t>(knob_number(JobKnob::kIbvTimeout));
  // An adapter may wait for four times the timeout before it sends a packet again.
  if (options_.stall_timeout_ns == 0)
    options_.stall_timeout_ns = std::max(
        kMinStallNs, uint64_t{4} * (ibv::kRetries + 1) * (uint64_t{4096} << options_.timeout));
  const char* wanted = options_.ports != nullptr ? options_.ports : knob_text(JobKnob::kIbvPorts);
  if (const Status status = ibv::open_ports(wanted, ibv::kMaxRails, &ports_); status != Status::kOk)
    return status;
  has_atomics_ = std::all_of(ports_.all, ports_.all + ports_.count,
                             [](const ibv::Port& port) { return port.atomics != IBV_ATOMIC_NONE; });
  are_with_processors_ = has_atomics_ && port_.atomics == IBV_ATOMIC_GLOB;
  const int events = port_.device.context->async_fd;
  if (fcntl(events, F_SETFL, fcntl(events, F_GETFL) | O_NONBLOCK) == 0) return Status::kOk;
  return fail(Status::kResource, "%s: its events cannot be read without waiting: %s", port_.name,
              errno_text(errno));
}

Status IbvTransport::open_queues() noexcept {
  const uint32_t others = std::max(peers_.places(), 2u) - 1;
  if (const Status status = completions_.open({.port = &port_,
                                               .channel = sleeper_.channel(),
                                               .entries_per_peer = options_.completions_per_peer(),
                                               .peers_at_first = std::min(others, kPeersAtFirst),
                                               .threaded = !options_.single_threaded});
      status != Status::kOk)
    return status;
  const uint32_t each = options_.receives_per_peer();
  const auto receives =
      static_cast<uint32_t>(std::min<uint64_t>(uint64_t{others} * each, port_.max_receives));
  if (receives < each)
    return fail(Status::kResource,
                "%s: a shared receive queue holds at most %u buffers, one peer needs %u: fewer "
                "credits (HYDRANT_IBV_CREDITS)",
                port_.name, port_.max_receives, each);
  if (const Status status = receiving_.open(options_, port_, receives); status != Status::kOk)
    return status;
  options_.send_depth = std::min(options_.send_depth, std::max(port_.max_sends, 1u));
  return measure_inline();
}

// Only the creation of a queue pair shows how many inline bytes a device accepts, so smaller sizes are tried
// until one succeeds.
Status IbvTransport::measure_inline() noexcept {
  int error = 0;
  for (uint32_t bytes = std::min(options_.inline_bytes, options_.message_bytes());;
       bytes = bytes > 32 ? bytes / 2 : 0) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions_.queue().get();
    attributes.srq = receiving_.queue();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_wr = options_.send_depth;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_inline_data = bytes;
    errno = 0;
    const ibv::QueuePair probe(uncancelled::call(ibv_create_qp, port_.device.pd, &attributes));
    if (probe != nullptr) {
      options_.inline_bytes = bytes;
      return Status::kOk;
    }
    error = errno;
    if (bytes == 0) break;
  }
  return fail(
      Status::kResource,
      "%s: cannot create a queue pair with %u sends: %s (memlock: ulimit -l; the device has "
      "%u queue pairs)",
      port_.name, options_.send_depth, errno_text(error), port_.max_queue_pairs);
}

void IbvTransport::open_rails() noexcept {
  if (options_.stripe_bytes == 0) options_.stripe_bytes = knob_number(JobKnob::kIbvStripeMin);
  options_.stripe_bytes = std::max(options_.stripe_bytes, kMinStripe);
  if (operation_pool_.open_stripes() != Status::kOk) {
    log_warning("verbs: no memory for stripes: only the first port is used");
    return;
  }
  const uint32_t others = std::max(peers_.places(), 2u) - 1;
  rails_.open({ports_.all + 1, ports_.count - 1}, options_.send_depth,
              std::min(others, kPeersAtFirst), !options_.single_threaded);
}

void IbvTransport::log_ports() const noexcept {
  if (!log_enabled(LogLevel::kInfo)) return;
  const ibv::EndpointAddress endpoint = own_.address();
  log_info("verbs: rank %u uses %s port %u at %s, GID index %u", own_.self(), port_.name,
           port_.number, text_of(endpoint.address).text, port_.gid_index);
  for (uint32_t i = 0; i < rails_.count(); ++i) {
    if (!rails_[i].completions.is_open()) continue;  // left out, and logged
    const ibv::Port& port = rails_[i].port;
    log_info("verbs: rank %u also uses %s port %u at %s, GID index %u, for puts and gets",
             own_.self(), port.name, port.number,
             ibv::text_of(
                 {.lid = port.lid, .is_ethernet = endpoint.rails[i].is_ethernet, .gid = port.gid})
                 .text,
             port.gid_index);
  }
}

IbvTransport::~IbvTransport() {
  (void)ports_.keep_descriptors();
  (void)sleeper_.has_channel();
  // Closing the queue pairs ends the adapter's accesses, before the memory that they go to is freed.
  peers_.for_each([](ibv::Peer& peer) {
    peer.send.close();
    peer.rails.reset();
  });
  handshakes_.close();
  receiving_.close();
  peers_.clear();
  completions_.close();
  sleeper_.close();
  for (ibv::CellPool& pool : cells_) pool.close();
  rails_.close();
  close_ports(ports_);
}

}  // namespace hydrant
