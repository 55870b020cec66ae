// Messages and one-sided operations between ranks by InfiniBand verbs: a reliable-connected queue pair per
// pair of ranks, connected on first contact; one shared receive queue, if the adapter has such queues; one
// completion queue for the first port, and one for each rail. docs/verbs.md explains connection, credits,
// order and failure.
//
// The transport owns its parts, and passes calls to them or hands them out: Messages sends, Receiving
// delivers, Operations moves pinned memory, Completions reads the completion queues, Handshakes connects,
// Disconnector ends connections.
//
// Threads: any number. Posting to a peer takes the lock of that peer. Reading a completion queue tries its
// lock and returns if another thread holds it. Cost: no system call but at first contact and in sleep().
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/ibv/device/thread_domains.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/transport_parts.hpp"
#include "rdma/ibv/waiting.hpp"
#include "rdma/ibv/wire/ibv_group_address.hpp"
#include "rdma/transport/network_transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace hydrant {

class IbvTransport final : public NetworkTransport {
 public:
  using Options = ibv::Options;
  // The endpoint address that open() puts into `bootstrap`; messages may be sent after the fence that
  // follows. The bootstrap must outlive the transport, which reads it at first contact, in one thread at a
  // time.
  static constexpr const char* kEndpointKey = ibv::ContactBook::kEndpointKey;

  // Errors: kUnsupported: no usable port, with the reason; kBadArg: options; kResource; those of put().
  static Status open(Bootstrap& bootstrap, const Options& options,
                     std::unique_ptr<IbvTransport>* transport) noexcept;
  // Registrars must be destroyed before. Operations and messages under way are abandoned; see flush().
  ~IbvTransport() override;

  const char* name() const noexcept override { return "ibv"; }
  MessageChannel& messages(Rank) noexcept override { return parts_.messages; }
  uint32_t capabilities() const noexcept override {
    return kPutsBeforeMessages | kPinned | (has_atomics_ ? uint32_t{kAtomics} : 0) |
           (are_with_processors_ ? uint32_t{kAtomicWithProcessors} : 0);
  }
  uint32_t depth() const noexcept override { return parts_.options.operations; }
  Sleeping& sleeping() noexcept override { return waiting_; }
  Notices& notices() noexcept override { return waiting_; }
  PinnedOperations* pinned() noexcept override { return &parts_.operations; }
  // The number of ports that long puts and gets use in parallel, and the number used with one peer: a lower
  // bound until the peer is connected.
  uint32_t rails() const noexcept { return parts_.rails.count() + 1; }
  uint32_t rails_with(Rank peer) const noexcept;

  // The result counts completed operations as well.
  uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept override;
  void flush(uint64_t deadline_ns) noexcept override;
  void set_peer_failed_callback(PeerFailedFn lost) noexcept override {
    parts_.disconnector.set_peer_failed_callback(lost);
  }
  void disconnect(Rank peer) noexcept override;

  // ---- groups that meet (connection/joined_groups.hpp) ----
  static constexpr size_t kMaxGroupAddressBytes = ibv::kMaxGroupAddressBytes;
  // Writes the address, *bytes long, by which a process of another group connects to this one; after the
  // fence. The application carries it. Any thread. Errors: kBadArg: no room; those of Bootstrap::get().
  Status group_address(std::span<std::byte> blob, size_t* bytes) noexcept {
    return parts_.handshakes.group_address(blob, bytes);
  }
  // Makes the processes of `endpoints`, which are group addresses, peers of this one: numbers[i] is the
  // number of the process of endpoints[i], and follows those of the own ranks. A process that was joined
  // before keeps its number. Both sides join: a process that is not joined here gets no reply to its
  // handshake, and repeats it for connect_ns. disconnect() ends a joined connection; the number is not used
  // again. Any thread. On failure no process is joined. Errors: kBadArg: an invalid address, or one of this
  // group; kBroken: other settings, as at first contact; kResource: more than Options::max_joined; those of
  // Bootstrap::get().
  Status join(std::span<const std::span<const std::byte>> endpoints,
              std::span<Rank> numbers) noexcept {
    return parts_.handshakes.join(endpoints, numbers);
  }

  // Counts events off the fast paths, for tests and statistics.
  struct Counts {
    uint64_t connected = 0;
    uint64_t handshakes = 0;  // sent
    uint64_t strangers = 0;   // datagrams that were ignored
    uint64_t early = 0;       // of them, handshakes of processes that are not joined here
    uint64_t ud_errors = 0;   // failed sends of handshakes, and failures of their queue pair
    uint64_t control = 0;     // messages that only report credits
    uint64_t probes = 0;      // empty writes to idle peers
    uint64_t stalls = 0;      // cells that waited for a receive slot
    uint64_t lost = 0;        // peers
    uint64_t sleeps = 0;
    uint64_t striped = 0;  // puts and gets that were cut over several rails
  };
  Counts counts() const noexcept;
  size_t list_counts(std::span<Count> rows) const noexcept override;
  const ibv::Port& port() const noexcept { return parts_.port; }

 private:
  static constexpr uint32_t kPollsBetweenHandshakes = 16;
  static constexpr uint32_t kPollsBetweenChecks = 256;
  static constexpr uint32_t kPollsBetweenEvents = 4096;

  IbvTransport(Bootstrap& bootstrap, const Options& options) noexcept
      : parts_(bootstrap, options) {}

  // ibv_transport_open.cpp
  const char* wanted_ports() const noexcept;
  Status open_parts(const ibv::PortList& failed) noexcept;
  Status open_ports(const ibv::PortList& failed) noexcept;
  Status open_queues() noexcept;
  Status measure_inline() noexcept;
  bool accepts_inline(uint32_t bytes) noexcept;
  void open_rails() noexcept;
  void log_ports(const ibv::PortList& failed) const noexcept;

  // ibv_transport_progress.cpp
  void poll_rarely(uint32_t polls) noexcept;
  uint32_t run_deferred() noexcept;
  bool advance(ibv::Peer& peer, uint32_t* ended) noexcept;
  bool is_quiet(ibv::Peer& peer) noexcept;

  ibv::TransportParts parts_;
  ibv::ThreadDomains thread_domains_;
  ibv::Waiting waiting_{parts_};
  bool has_atomics_ = false;  // every device has them: memory is registered with each device
  bool are_with_processors_ = false;  // ... and they are atomic with processors' instructions
  std::atomic<uint32_t> polls_{0};
};

}  // namespace hydrant
