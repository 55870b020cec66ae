// What is set up once and torn down. Peers: ibv_peers.cpp; their connection: ibv_greetings.cpp; posting:
// ibv_datapath.cpp, ibv_operations.cpp; completions: ibv_progress.cpp; delivery: ibv_delivery.cpp; ports
// beside the first: ibv_rails.cpp, ibv_rail_peers.cpp; processes of other groups: ibv_groups.cpp.
#include "rdma/ibv/ibv_transport.hpp"

#include "firehose/base/config.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/machine_limits.hpp"
#include "rdma/ibv/ibv_queue_pair.hpp"
#include "rdma/ibv/ibv_registrar.hpp"
#include "rdma/ibv/rail_registrar.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <new>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>
#include <utility>

namespace hydrant {

using ibv::Peer;

namespace {

constexpr uint32_t kLineBytes = 64;

// Of a message, in whole lines.
uint32_t slot_bytes(const IbvTransport::Options& options) noexcept {
  return (options.eager_bytes + ibv::kHeaderBytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}
// So many peers before the completion queue is enlarged for the first time.
constexpr uint64_t kLeastHangNs = 60'000'000'000;
constexpr uint32_t kPeersAtFirst = 8;
constexpr uint32_t kMostJoined = 65536;

}  // namespace

Status IbvTransport::open(Bootstrap& bootstrap, const Options& options,
                          std::unique_ptr<IbvTransport>* transport) noexcept {
  std::unique_ptr<IbvTransport> made(new (std::nothrow) IbvTransport(bootstrap, options));
  if (made == nullptr) return fail(Status::kResource, "no memory for a transport");
  if (const Status status = made->init(); status != Status::kOk) return status;
  *transport = std::move(made);
  return Status::kOk;
}

IbvTransport::Options IbvTransport::chosen_options() noexcept {
  Options options;
  options.eager_bytes = static_cast<uint32_t>((knob_number(Knob::kAmEager) + 7) / 8 * 8);
  options.credits = static_cast<uint32_t>(knob_number(Knob::kIbvCredits));
  // Both lanes find room before they are short of credits.
  options.send_depth = std::max(options.send_depth, 2 * options.credits);
  return options;
}

Status IbvTransport::check_options() noexcept {
  const Options& o = options_;
  if (o.timeout > 31)
    return fail(Status::kBadArg, "a timeout of %u: 1 to 31, or 0 for HYDRANT_IBV_TIMEOUT",
                o.timeout);
  if (o.eager_bytes < kMaxHeadBytes || o.eager_bytes > UINT16_MAX || o.eager_bytes % 8 != 0)
    return fail(Status::kBadArg, "messages of %u bytes: between %u and %u, a multiple of 8",
                o.eager_bytes, kMaxHeadBytes, UINT16_MAX - 7);
  if (o.cell_bytes == 0 || o.cell_bytes % kLineBytes != 0)
    return fail(Status::kBadArg, "cells of %u bytes: a multiple of %u", o.cell_bytes, kLineBytes);
  // Half of the credits come back at once, and control messages need room beside messages and cells.
  if (o.credits < 4 || o.credits > 4096 || o.landings < 2 || o.landings > 256 || o.cells == 0 ||
      o.cells > 4096 || o.send_depth < 16 || o.send_depth > 16384 || o.operations == 0)
    return fail(Status::kBadArg,
                "%u credits (4 to 4096), %u landing cells (2 to 256), %u cells (1 to 4096), a send "
                "queue of %u (16 to 16384), %u operations (1 or more)",
                o.credits, o.landings, o.cells, o.send_depth, o.operations);
  if (o.most_joined > kMostJoined)
    return fail(Status::kBadArg, "room for %u processes of other groups: %u are the most",
                o.most_joined, kMostJoined);
  return Status::kOk;
}

Status IbvTransport::init() noexcept {
  if (const Status status = check_options(); status != Status::kOk) return status;
  const JobPlace& place = bootstrap_.place();
  self_ = place.rank;
  ranks_ = place.size;
  places_ = ranks_ + options_.most_joined;
  slot_bytes_ = slot_bytes(options_);
  if (getrandom(&nonce_, sizeof nonce_, GRND_NONBLOCK) != sizeof nonce_)
    nonce_ = now_ns() ^ static_cast<uint64_t>(getpid()) << 40;
  nonce_ = std::max<uint64_t>(nonce_, 1);
  peers_.reset(new (std::nothrow) std::atomic<Peer*>[places_] {});
  buried_.reset(new (std::nothrow) std::atomic<bool>[places_] {});
  operations_.reset(new (std::nothrow) ibv::Operation[options_.operations]);
  {
    const MutexLock lock(contact_mu_);
    joined_.reset(new (std::nothrow) ibv::GroupCard[options_.most_joined]);
    if (joined_ == nullptr) peers_.reset();
  }
  if (peers_ == nullptr || buried_ == nullptr || operations_ == nullptr)
    return fail(Status::kResource, "no memory for a transport between %u ranks", places_);
  for (uint32_t i = 0; i < options_.operations; ++i) {
    operations_[i].next = free_operations_;
    free_operations_ = &operations_[i];
  }
  if (options_.timeout == 0)
    options_.timeout = static_cast<uint8_t>(knob_number(Knob::kIbvTimeout));
  // An adapter may take four times what is asked for before it sends a packet again.
  if (options_.hang_ns == 0)
    options_.hang_ns = std::max(
        kLeastHangNs, uint64_t{4} * (ibv::kRetries + 1) * (uint64_t{4096} << options_.timeout));
  const char* ports = options_.ports != nullptr ? options_.ports : knob_text(Knob::kIbvPorts);
  if (const Status status = ibv::open_ports(ports, ibv::kMostRails, &ports_); status != Status::kOk)
    return status;
  port_ = ports_.all[0];
  has_atomics_ = std::all_of(ports_.all, ports_.all + ports_.count,
                             [](const ibv::Port& port) { return port.atomics != IBV_ATOMIC_NONE; });
  next_probe_ns_.store(options_.probe_ns != 0 ? now_ns() + options_.probe_ns : UINT64_MAX,
                       std::memory_order_relaxed);
  max_at_once_ = max_piece_ = std::max(port_.max_message_bytes, 1u);
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0)
    return fail(Status::kResource, "no descriptor to wake sleepers by: %s", errno_text(errno));
  Status status = open_queues();
  if (status == Status::kOk && ports_.count > 1) open_rails();
  if (status == Status::kOk) status = open_memory();
  if (status == Status::kOk) status = open_datagrams();
  if (status != Status::kOk) return status;

  say_ports();
  std::byte bytes[ibv::kMostCardBytes];
  ibv::encode_card(own_card(rail_count_), bytes);
  return bootstrap_.put(kCardKey, {bytes, ibv::card_bytes(rail_count_)});
}

// With so many of the rails.
ibv::Card IbvTransport::own_card(uint32_t rails) const noexcept {
  ibv::Card card;
  card.address.nonce = nonce_;
  card.address.datagram_queue = datagrams_->qp_num;
  card.address.lid = port_.lid;
  card.address.mtu = static_cast<uint8_t>(port_.mtu);
  card.address.is_ethernet = port_.is_ethernet ? 1 : 0;
  card.address.gid = port_.gid;
  card.geometry = geometry();
  card.rail_count = rails;
  for (uint32_t i = 0; i < rails; ++i) {
    const ibv::Port& port = rails_[i].port;
    card.rails[i] = {port.gid, port.lid, static_cast<uint8_t>(port.mtu),
                     static_cast<uint8_t>(port.is_ethernet ? 1 : 0)};
  }
  return card;
}

ibv::Geometry IbvTransport::geometry() const noexcept {
  return {message_bytes(), options_.cell_bytes, static_cast<uint16_t>(options_.credits),
          static_cast<uint16_t>(options_.landings)};
}

IbvTransport::Needs IbvTransport::needs_of(const Options& options, const ibv::Port& port,
                                           uint32_t rails) noexcept {
  const uint64_t receives = uint64_t{kLaneCount} * options.credits + kControlCredits;
  const uint64_t slots = options.send_depth + kLaneCount + 1;
  const uint64_t completions = receives + options.send_depth;
  Needs needs;
  const auto pages = [](uint64_t bytes) { return ibv::VerbsMemory::registered_bytes(bytes); };
  needs.bytes_at_start = kLaneCount * pages(uint64_t{options.cells} * options.cell_bytes) +
                         pages(uint64_t{kDatagrams + kDatagramSends} * datagram_bytes(rails - 1)) +
                         (rails - 1) * pages(1);
  needs.bytes_per_peer = pages((slots + receives) * slot_bytes(options)) +
                         pages(uint64_t{kLaneCount} * options.landings * options.cell_bytes);
  needs.most_peers = static_cast<uint32_t>(
      std::min({port.max_receives / receives, port.max_completions / completions,
                uint64_t{std::max(port.max_queue_pairs, 1u) - 1}}));
  return needs;
}

uint64_t IbvTransport::Needs::peers_within(uint64_t limit) const noexcept {
  const uint64_t room = limit - limit / kPartForPins;
  return room < bytes_at_start ? 0 : (room - bytes_at_start) / bytes_per_peer;
}

uint64_t IbvTransport::Needs::kept_of(uint64_t limit, uint32_t peers) const noexcept {
  const uint64_t wanted = bytes_at_start + uint64_t{std::min(peers, most_peers)} * bytes_per_peer;
  return std::min(wanted, limit - limit / kPartForPins);
}

Status IbvTransport::open_queues() noexcept {
  ibv_context* context = port_.device.context;
  if (options_.has_channel) {
    channel_.reset(ibv_create_comp_channel(context));
    if (channel_ == nullptr ||
        fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0)
      return fail(Status::kResource, "%s gives no completion channel: %s", port_.name,
                  errno_text(errno));
  }
  if (fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK) != 0)
    return fail(Status::kResource, "%s: its events cannot be read without waiting: %s", port_.name,
                errno_text(errno));
  const uint32_t others = std::max(places_, 2u) - 1;
  const uint64_t wanted = std::min<uint64_t>(
      uint64_t{std::min(others, kPeersAtFirst)} * completions_per_peer(), port_.max_completions);
  if (wanted < completions_per_peer())
    return fail(Status::kResource,
                "%s: a completion queue holds at most %u entries, one peer needs %u: fewer credits "
                "(HYDRANT_IBV_CREDITS), or a shorter send queue",
                port_.name, port_.max_completions, completions_per_peer());
  errno = 0;
  queue_.reset(ibv_create_cq(context, static_cast<int>(wanted), this, channel_.get(), 0));
  if (queue_ == nullptr)
    return fail(Status::kResource, "%s gives no completion queue of %u entries: %s", port_.name,
                static_cast<uint32_t>(wanted), errno_text(errno));
  {
    const MutexLock lock(contact_mu_);
    completions_ = static_cast<uint32_t>(wanted);
  }
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{others} * receives_per_peer(), port_.max_receives));
  attributes.attr.max_sge = 1;
  if (attributes.attr.max_wr < receives_per_peer())
    return fail(Status::kResource,
                "%s: a shared receive queue holds at most %u buffers, one peer needs %u: fewer "
                "credits (HYDRANT_IBV_CREDITS)",
                port_.name, port_.max_receives, receives_per_peer());
  port_.max_receives = attributes.attr.max_wr;
  receives_.reset(ibv_create_srq(port_.device.pd, &attributes));
  if (receives_ == nullptr)
    return fail(Status::kResource, "%s gives no shared receive queue of %u buffers: %s", port_.name,
                port_.max_receives, errno_text(errno));
  return measure_inline();
}

// What the device takes inline is told only by making a queue pair.
Status IbvTransport::measure_inline() noexcept {
  options_.send_depth = std::min(options_.send_depth, std::max(port_.max_sends, 1u));
  record_mask_ = std::bit_ceil(options_.send_depth) - 1;
  operation_room_ = std::max(options_.send_depth, kKeptEntries) - kKeptEntries;
  int error = 0;
  for (uint32_t bytes = std::min(options_.inline_bytes, message_bytes());;
       bytes = bytes > 32 ? bytes / 2 : 0) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = queue_.get();
    attributes.srq = receives_.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_wr = options_.send_depth;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_inline_data = bytes;
    errno = 0;
    const ibv::QueuePair probe(ibv_create_qp(port_.device.pd, &attributes));
    if (probe != nullptr) {
      options_.inline_bytes = bytes;
      return Status::kOk;
    }
    error = errno;
    if (bytes == 0) break;
  }
  return fail(Status::kResource,
              "%s gives no queue pair with %u sends: %s (memlock? ulimit -l; or others use all %u)",
              port_.name, options_.send_depth, errno_text(error), port_.max_queue_pairs);
}

Status IbvTransport::open_memory() noexcept {
  for (CellPool& pool : cells_) {
    if (const Status status =
            pool.memory.open(port_.device.pd, size_t{options_.cells} * options_.cell_bytes,
                             IBV_ACCESS_LOCAL_WRITE, "cells");
        status != Status::kOk)
      return status;
    pool.free.reset(new (std::nothrow) uint16_t[options_.cells]);
    if (pool.free == nullptr) return fail(Status::kResource, "no memory for cells");
    for (uint32_t i = options_.cells; i-- != 0;)
      pool.free[pool.free_count++] = static_cast<uint16_t>(i);
  }
  return datagram_memory_.open(port_.device.pd,
                               size_t{kDatagrams + kDatagramSends} * datagram_bytes(rail_count_),
                               IBV_ACCESS_LOCAL_WRITE, "greetings");
}

Status IbvTransport::open_datagrams() noexcept {
  datagram_completions_.reset(
      ibv_create_cq(port_.device.context, kDatagrams + kDatagramSends, this, channel_.get(), 0));
  if (datagram_completions_ == nullptr)
    return fail(Status::kResource, "%s gives no completion queue for greetings: %s", port_.name,
                errno_text(errno));
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = datagram_completions_.get();
  attributes.qp_type = IBV_QPT_UD;
  attributes.cap.max_send_wr = kDatagramSends;
  attributes.cap.max_recv_wr = kDatagrams;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.sq_sig_all = 1;
  datagrams_.reset(ibv_create_qp(port_.device.pd, &attributes));
  if (datagrams_ == nullptr)
    return fail(Status::kResource, "%s gives no queue pair for greetings: %s", port_.name,
                errno_text(errno));
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  state.port_num = port_.number;
  state.qkey = kGreetingKey;
  int error = ibv_modify_qp(datagrams_.get(), &state,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  if (error == 0) {
    const MutexLock lock(contact_mu_);
    for (uint32_t i = 0; i < kDatagrams; ++i) {
      if (const Status status = post_datagram_receive(i); status != Status::kOk) return status;
    }
    state.qp_state = IBV_QPS_RTR;
    error = ibv_modify_qp(datagrams_.get(), &state, IBV_QP_STATE);
  }
  if (error == 0) {
    state.qp_state = IBV_QPS_RTS;
    error = ibv_modify_qp(datagrams_.get(), &state, IBV_QP_STATE | IBV_QP_SQ_PSN);
  }
  if (error == 0) return Status::kOk;
  return fail(Status::kResource, "%s port %u: the queue pair for greetings does not start: %s",
              port_.name, port_.number, errno_text(error));
}

IbvTransport::~IbvTransport() {
  // First what the adapter does, then the memory that it does it to.
  const MutexLock lock(contact_mu_);
  for (Peer* peer = first_peer_; peer != nullptr; peer = peer->next) {
    peer->queue.reset();
    peer->rails.reset();
  }
  datagrams_.reset();
  receives_.reset();
  while (first_peer_ != nullptr) {
    const std::unique_ptr<Peer> gone(std::exchange(first_peer_, first_peer_->next));
  }
  datagram_completions_.reset();
  queue_.reset();
  channel_.reset();
  datagram_memory_.close();
  for (CellPool& pool : cells_) pool.memory.close();
  close_rails();
  close_ports(ports_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

// Peers may be met when what is pinned for puts and gets is as much as it may be.
std::unique_ptr<Registrar> IbvTransport::make_registrar() noexcept {
  const MachineLimits machine = read_machine_limits();
  const Needs needs = needs_of(options_, port_, rail_count_ + 1);
  const uint64_t kept =
      machine.memlock_lifted ? 0 : needs.kept_of(machine.memlock_bytes, places_ - 1);
  if (rail_count_ != 0) {
    ibv_pd* domains[ibv::kMostRails] = {};
    for (uint32_t i = 0; i <= rail_count_; ++i) domains[i] = ports_.all[i].device.pd;
    std::unique_ptr<Registrar> made;
    if (RailRegistrar::create({domains, rail_count_ + 1}, &made, kept) != Status::kOk)
      return nullptr;
    return made;
  }
  std::unique_ptr<IbvRegistrar> made;
  if (IbvRegistrar::create(port_.device.pd, &made) != Status::kOk) return nullptr;
  made->keep_back(kept);
  return made;
}

Status IbvTransport::write(Rank, uintptr_t, const void*, size_t) noexcept {
  return fail_plainly(Status::kUnsupported, "verbs reach pinned memory only");
}

IbvTransport::Counts IbvTransport::counts() const noexcept {
  Counts now;
  now.connected = counts_.connected.load(std::memory_order_relaxed);
  now.greetings = counts_.greetings.load(std::memory_order_relaxed);
  now.strangers = counts_.strangers.load(std::memory_order_relaxed);
  now.early = counts_.early.load(std::memory_order_relaxed);
  now.control = counts_.control.load(std::memory_order_relaxed);
  now.probes = counts_.probes.load(std::memory_order_relaxed);
  now.stalls = counts_.stalls.load(std::memory_order_relaxed);
  now.lost = counts_.lost.load(std::memory_order_relaxed);
  now.sleeps = counts_.sleeps.load(std::memory_order_relaxed);
  now.striped = counts_.striped.load(std::memory_order_relaxed);
  return now;
}

size_t IbvTransport::list_counts(std::span<Count> rows) const noexcept {
  const Counts now = counts();
  const Count all[] = {
      {"connected", now.connected}, {"greetings", now.greetings}, {"strangers", now.strangers},
      {"early", now.early},         {"control", now.control},     {"probes", now.probes},
      {"stalls", now.stalls},       {"lost", now.lost},           {"sleeps", now.sleeps},
      {"striped", now.striped},
  };
  std::copy_n(all, std::min(rows.size(), std::size(all)), rows.begin());
  return std::size(all);
}

// ---- cells ----

Status IbvTransport::take_cell(Rank, Lane lane, uint32_t bytes, Cell* cell) noexcept {
  if (bytes > options_.cell_bytes) [[unlikely]]
    return fail(Status::kBadArg, "a cell of %u bytes; the largest has %u", bytes,
                options_.cell_bytes);
  CellPool& pool = cells_[static_cast<uint32_t>(lane)];
  const Guard guard(pool.lock, threaded_);
  if (pool.free_count == 0) return Status::kNotReady;
  const uint32_t index = pool.free[--pool.free_count];
  *cell = {pool.memory.data() + size_t{index} * options_.cell_bytes, options_.cell_bytes, index};
  return Status::kOk;
}

void IbvTransport::drop_cell(Rank, Lane lane, const Cell& cell) noexcept {
  CellPool& pool = cells_[static_cast<uint32_t>(lane)];
  const Guard guard(pool.lock, threaded_);
  pool.free[pool.free_count++] = static_cast<uint16_t>(cell.index);
}

}  // namespace hydrant
