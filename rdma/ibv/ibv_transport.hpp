// Messages and one-sided operations between ranks by InfiniBand verbs: a reliable-connected queue pair per
// talking pair, connected on demand; one shared receive queue; one completion queue. docs/verbs.md explains
// connection, credits, order and failure.
//
// A message and its payload inline are one SEND. A cell is an RDMA write into a landing cell that the peer
// has set apart for this rank, and a SEND behind it on the same queue pair. Pinned memory moves by RDMA
// write and read, on that queue pair too: puts are there before a message that is committed later.
//
// Receivers are never short of buffers: who sends has a credit for it (a count says so: receiver_not_ready
// in tests of the fake, the device's own counters in the guest). No queue can overflow: room in it is
// counted before anything is posted.
//
// Threads: any number; a lock per peer while something is posted to it, one that is only tried around the
// completion queue. Cost: no system call but at first contact and in sleep().
#pragma once

#include "firehose/base/thread.hpp"
#include "rdma/bootstrap.hpp"
#include "rdma/far_transport.hpp"
#include "rdma/ibv/ibv_group_card.hpp"
#include "rdma/ibv/ibv_peer.hpp"
#include "rdma/ibv/ibv_port_choice.hpp"
#include "rdma/ibv/ibv_wire.hpp"
#include "rdma/ibv/verbs_memory.hpp"
#include "rdma/ibv/verbs_objects.hpp"
#include "rdma/spin_flag.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace hydrant {

class IbvTransport final : public FarTransport {
 public:
  struct Options {
    const char* ports = nullptr;  // in its place; null: HYDRANT_IBV_PORTS
    bool single_threaded = false;
    uint32_t eager_bytes = 1000;  // head and inline payload of a message, at most
    uint32_t credits = 32;        // messages of one lane under way to one peer
    uint32_t cell_bytes = 16384;  // a multiple of 64
    uint32_t cells = 16;          // of one lane that are being filled or under way
    uint32_t landings = 4;        // cells of one lane under way to one peer
    uint32_t send_depth = 64;     // entries of a peer's send queue
    uint32_t inline_bytes = 256;  // sent by the processor, not fetched by the adapter, if it can
    uint32_t operations = 256;  // puts and gets under way that wait, or are longer than one message
    // Of a peer that has not answered greetings for so long a warning says so, and a joined one is given up.
    // A rank of the job may compute, or be stopped: it is asked on, and if it is gone the launcher says so;
    // unless:
    uint64_t connect_ns = 60'000'000'000;
    bool gives_silent_ranks_up = false;
    uint64_t probe_ns = 2'000'000'000;  // a peer to which nothing goes is asked so often; 0: never
    // An adapter that carries out nothing for so long hangs. 0: a minute, or longer than it may retry.
    uint64_t hang_ns = 0;
    uint64_t greeting_ns = 20'000'000;  // until the first greeting is repeated
    // 4.096 us << timeout until a packet is sent again. 0: HYDRANT_IBV_TIMEOUT, 14 (67 ms) by default.
    uint8_t timeout = 0;
    // Puts and gets from this length on are cut over the rails, 64 KiB at least. 0: HYDRANT_IBV_STRIPE_MIN.
    size_t stripe_bytes = 0;
    bool has_channel = true;  // sleep() may wait in the kernel; else it naps
    // Processes of other groups that can be joined in the transport's life: for each a place in tables, and
    // room for a peer in the shared receive queue.
    uint32_t most_joined = 0;
  };
  // Those above, as the knobs want them.
  static Options chosen_options() noexcept;
  // What a process takes of a port that it talks by.
  struct Needs {
    uint64_t bytes_at_start = 0;  // registered
    uint64_t bytes_per_peer = 0;  // registered, at first contact
    uint32_t most_peers = 0;      // that the port's queues have room for

    // How many peers can be talked to where `limit` bytes may be registered. A part is left to memory that
    // is put to and got from (kPartForPins).
    uint64_t peers_within(uint64_t limit) const noexcept;
    // What of `limit` is to be kept for so many peers.
    uint64_t kept_of(uint64_t limit, uint32_t peers) const noexcept;
    static constexpr uint64_t kPartForPins = 8;  // an eighth
  };
  // With `rails` ports in all, of which this is the first.
  static Needs needs_of(const Options& options, const ibv::Port& port, uint32_t rails = 1) noexcept;
  // The card that open() puts into `bootstrap`; ranks may talk after the fence that follows. The bootstrap
  // must outlive the transport, which asks it at first contact, under its own lock.
  static constexpr const char* kCardKey = "ibv";

  // Errors: kUnsupported: no usable port, with the reason; kBadArg: options; kResource; those of put().
  static Status open(Bootstrap& bootstrap, const Options& options,
                     std::unique_ptr<IbvTransport>* transport) noexcept;
  // Registrars first. What is under way is given up; see flush().
  ~IbvTransport() override;

  const char* name() const noexcept override { return "ibv"; }
  uint32_t inline_bytes() const noexcept override { return options_.eager_bytes; }
  uint32_t cell_bytes() const noexcept override { return options_.cell_bytes; }

  Status post(Rank peer, Lane lane, uint32_t tag, const void* head,
              uint32_t bytes) noexcept override;
  // Also kNotReady: the peer is not connected yet, or a cell or a put before it waits for room. kBroken also
  // when it has not answered for connect_ns.
  Status reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept override;
  void commit(Outgoing& room, uint32_t tag) noexcept override;
  void commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                        uint32_t bytes) noexcept override;
  Status take_cell(Rank peer, Lane lane, uint32_t bytes, Cell* cell) noexcept override;
  void drop_cell(Rank peer, Lane lane, const Cell& cell) noexcept override;

  std::byte* shared_block(Rank) const noexcept override { return nullptr; }
  Status add_segment(Rank, uintptr_t, size_t, void*) noexcept override { return Status::kOk; }
  void* mapped(Rank, uintptr_t, size_t) const noexcept override { return nullptr; }
  Status write(Rank peer, uintptr_t dest, const void* source, size_t bytes) noexcept override;

  uint32_t abilities() const noexcept override {
    return kPutsBeforeMessages | kPinned | (has_atomics_ ? uint32_t{kAtomics} : 0);
  }
  uint32_t rails() const noexcept override { return rail_count_ + 1; }
  uint32_t rails_with(Rank peer) const noexcept override;
  uint32_t depth() const noexcept override { return options_.operations; }
  std::unique_ptr<Registrar> make_registrar() noexcept override;
  uint32_t pinned_inline_bytes() const noexcept override { return options_.inline_bytes; }
  // A key that the peer's adapter refuses is kRefused, and the end of the connection: kBroken from then on.
  Status put_pinned(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                    Completion* completion) noexcept override;
  Status get_pinned(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                    Completion* completion) noexcept override;
  // As one list of work requests, of which the last is signalled, as far as there is room for them.
  size_t put_pinned_list(Rank peer, std::span<const PinnedOperation> list) noexcept override;
  size_t get_pinned_list(Rank peer, std::span<const PinnedOperation> list) noexcept override;
  // Of a peer that has been talked to, and what is one work request.
  std::unique_ptr<Prepared> prepare_put(Rank peer, uintptr_t remote, uintptr_t local,
                                        size_t bytes) noexcept override;
  std::unique_ptr<Prepared> prepare_get(Rank peer, uintptr_t remote, uintptr_t local,
                                        size_t bytes) noexcept override;

  // By the first port. kBroken also: the adapter has not taken it.
  Status start_atomic(Rank peer, const Pinned& remote, const Pinned& local, const Atomic& what,
                      Completion* completion) noexcept override;

  // Completions count as well.
  uint32_t poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept override;
  using Transport::sleep;
  void sleep(uint64_t deadline_ns, const SleepCheck& check) noexcept override;
  int word_fd() const noexcept override { return channel_ != nullptr ? channel_->fd : -1; }
  void take_word() noexcept override { (void)hear_channel(); }
  bool prepare_sleep() noexcept override;
  void rouse(Rank) noexcept override {}  // no rank shares memory with this one by this transport
  void wake() noexcept override;
  void flush(uint64_t deadline_ns) noexcept override;
  void tell_of_losses(Lost lost) noexcept override { lost_ = lost; }
  void bury(Rank peer) noexcept override;

  // ---- groups that meet (ibv_groups.cpp) ----
  static constexpr size_t kMostGroupCardBytes = ibv::kMostGroupCardBytes;
  // What a process of another group needs to connect to this one, *bytes long; after the fence. To be handed
  // on by a path of the application's own. Any thread. Errors: kBadArg: no room; those of Bootstrap::get().
  Status group_card(std::span<std::byte> blob, size_t* bytes) noexcept
      HYDRANT_EXCLUDES(contact_mu_);
  // numbers[i]: by which the process of cards[i] is a peer of this one from now on, behind the own ranks; who
  // has been joined before keeps the number. Both sides join: a greeting of a process that is not joined here
  // is not answered, and repeated for connect_ns. bury() leaves one; its number stays taken. Any thread. On
  // failure nobody is joined. Errors: kBadArg: no such card, or one of this group; kBroken: other settings,
  // as at first contact; kResource: more than Options::most_joined; those of Bootstrap::get().
  Status join(std::span<const std::span<const std::byte>> cards, std::span<Rank> numbers) noexcept
      HYDRANT_EXCLUDES(contact_mu_);

  // What the slow paths did, for tests and for people.
  struct Counts {
    uint64_t connected = 0;
    uint64_t greetings = 0;  // sent
    uint64_t strangers = 0;  // datagrams that were ignored
    uint64_t early = 0;      // of them, greetings of processes that are not joined here
    uint64_t control = 0;    // messages that only told of credits
    uint64_t probes = 0;     // writes of nothing, to hear whether the peer is there
    uint64_t stalls = 0;     // cells that had to wait for a landing cell
    uint64_t lost = 0;       // peers
    uint64_t sleeps = 0;
    uint64_t striped = 0;  // puts and gets that went by several rails
  };
  Counts counts() const noexcept;
  size_t list_counts(std::span<Count> rows) const noexcept override;
  const ibv::Port& port() const noexcept { return port_; }

 private:
  using Peer = ibv::Peer;
  // Messages that tell of credits only, under way to one peer; docs/verbs.md says why that is enough.
  static constexpr uint32_t kControlCredits = 8;
  static constexpr uint32_t kDatagrams = 128;
  static constexpr uint32_t kDatagramSends = 32;
  static constexpr uint32_t kGrhBytes = 40;  // what stands before a datagram in its buffer
  // Of a rank with so many rails: who greets it names no more.
  static constexpr uint32_t datagram_bytes(uint32_t rails) noexcept {
    return (kGrhBytes + static_cast<uint32_t>(ibv::greeting_bytes(rails)) + 63) / 64 * 64;
  }
  static constexpr uint32_t kGreetingKey = 0x48594452;  // what datagrams to a rank must bear
  static constexpr uint32_t kBatch = 16;
  // From one peer at a time, so that one cannot use up the budget of a poll alone.
  static constexpr uint32_t kVisitMost = 16;
  static constexpr uint32_t kPollsBetweenGreetings = 16;
  static constexpr uint32_t kPollsBetweenProbes = 256;  // ... and looks at the clock for them
  static constexpr uint32_t kPollsBetweenEvents = 4096;
  // Entries of the send queue that operations leave to messages: one with a cell takes two, and one is for
  // telling of credits.
  static constexpr uint32_t kKeptEntries = 3;

  // Locks where there may be more threads than one.
  class Guard {
   public:
    Guard(SpinFlag& flag, bool threaded) noexcept HYDRANT_NO_TSA : flag_(flag),
                                                                   threaded_(threaded) {
      if (threaded_) flag_.lock();
    }
    ~Guard() HYDRANT_NO_TSA {
      if (threaded_) flag_.unlock();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    SpinFlag& flag_;
    const bool threaded_;
  };
  // Operations that are over, to be told of when no lock is held.
  struct Finished {
    struct One {
      Completion* completion;
      Status status;
    };
    One ones[kBatch];
    uint32_t count = 0;
    bool is_full() const noexcept { return count == kBatch; }
    void add(Completion* completion, Status status) noexcept {
      ones[count++] = {completion, status};
    }
  };
  struct CellPool {
    SpinFlag lock;
    ibv::VerbsMemory memory;
    std::unique_ptr<uint16_t[]> free;
    uint32_t free_count = 0;
  };

  IbvTransport(Bootstrap& bootstrap, const Options& options) noexcept
      : bootstrap_(bootstrap), options_(options), threaded_(!options.single_threaded) {}

  // ibv_transport.cpp
  Status init() noexcept;
  Status check_options() noexcept;
  Status open_queues() noexcept;
  Status open_memory() noexcept;
  Status open_datagrams() noexcept;
  Status measure_inline() noexcept;
  uint32_t receives_per_peer() const noexcept {
    return kLaneCount * options_.credits + kControlCredits;
  }
  uint32_t completions_per_peer() const noexcept {
    return receives_per_peer() + options_.send_depth;
  }
  uint32_t message_bytes() const noexcept { return options_.eager_bytes + ibv::kHeaderBytes; }
  ibv::Geometry geometry() const noexcept;
  ibv::Card own_card(uint32_t rails) const noexcept;
  Peer* peer_of(Rank rank) const noexcept {
    return rank < places_ ? peers_[rank].load(std::memory_order_acquire) : nullptr;
  }

  // ibv_peers.cpp: a peer's objects
  Status check_settings(const ibv::PeerName& who, const ibv::Card& card) const noexcept;
  Status make_peer(Rank rank, Rank their_rank, const ibv::Card& card, Peer** made) noexcept
      HYDRANT_REQUIRES(contact_mu_);
  Status make_room_for_peer() noexcept HYDRANT_REQUIRES(contact_mu_);
  Status fill_peer(Peer& peer) noexcept;
  Status make_queue_pair(Peer& peer) noexcept;
  Status make_address(Peer& peer) noexcept;
  Status connect(Peer& peer, const ibv::Greeting& greeting) noexcept HYDRANT_REQUIRES(contact_mu_);
  void lose(Peer& peer, const char* reason) noexcept;
  bool tell_of_the_last(Peer& peer) noexcept;
  void lose_all(const char* reason) noexcept;
  Status why_lost(const Peer& peer) const noexcept;

  // ibv_greetings.cpp: who is connected how
  Status contact(Rank rank) noexcept HYDRANT_EXCLUDES(contact_mu_);
  Status read_card(Rank rank, ibv::Card* card) noexcept HYDRANT_REQUIRES(contact_mu_);
  bool greet(Peer& peer) noexcept HYDRANT_REQUIRES(contact_mu_);
  uint32_t shake_hands() noexcept HYDRANT_EXCLUDES(contact_mu_);
  void hear(const ibv_wc& completion) noexcept HYDRANT_REQUIRES(contact_mu_);
  void answer(const ibv::Greeting& greeting, Rank from) noexcept HYDRANT_REQUIRES(contact_mu_);
  Status post_datagram_receive(uint32_t index) noexcept HYDRANT_REQUIRES(contact_mu_);
  void repeat_greetings(uint64_t now) noexcept HYDRANT_REQUIRES(contact_mu_);
  void start_connecting(Peer& peer) noexcept HYDRANT_REQUIRES(contact_mu_);
  void now_open(Peer& peer) noexcept;
  static bool is_settled(const Peer& peer) noexcept;
  void read_events() noexcept;
  void read_events_of(const ibv::Port& port) noexcept;
  void bury_waiting() noexcept;

  // ibv_groups.cpp: processes of other groups
  Status learn_group() noexcept HYDRANT_REQUIRES(contact_mu_);
  Status admit(std::span<const std::byte> blob, uint32_t* count, Rank* number) noexcept
      HYDRANT_REQUIRES(contact_mu_);
  Rank number_of(uint64_t group, Rank rank, uint32_t count) const noexcept
      HYDRANT_REQUIRES(contact_mu_);
  Rank sender_of(const ibv::Greeting& greeting) noexcept HYDRANT_REQUIRES(contact_mu_);
  static ibv::PeerName name_of(Rank number, Rank their_rank, uint64_t group) noexcept;
  static ibv::PeerName name_of(const Peer& peer) noexcept {
    return name_of(peer.rank, peer.their_rank, peer.card.group);
  }

  // ibv_datapath.cpp: posting
  Status may_send(Peer& peer, Lane lane) noexcept;
  static Status hold_back(Peer& peer) noexcept;
  void finish_commit(Outgoing& room, uint32_t tag, const Cell* cell, uint32_t bytes) noexcept;
  std::byte* slot_of(const Peer& peer, uint32_t slot) const noexcept {
    return peer.buffers.data() + size_t{slot} * slot_bytes_;
  }
  static uint64_t used_in_queue(const Peer& peer) noexcept {
    return peer.posted - peer.over.load(std::memory_order_acquire);
  }
  uint32_t room_in_queue(const Peer& peer) const noexcept {
    return options_.send_depth - static_cast<uint32_t>(used_in_queue(peer));
  }
  uint32_t next_landing(const Peer& peer, Lane lane) const noexcept;
  bool has_landing(Peer& peer, Lane lane) noexcept;
  void write_header(Peer& peer, std::byte* message, uint32_t word, uint32_t head_bytes) noexcept;
  void send_message(Peer& peer, Lane lane, uint32_t slot, uint32_t word, uint32_t head_bytes,
                    const Cell* cell, uint32_t payload_bytes) noexcept;
  uint32_t prepare_message(Peer& peer, uint32_t slot, uint32_t word, uint32_t head_bytes) noexcept;
  bool prepare_cell(Peer& peer, Lane lane, uint32_t slot, const Cell& cell,
                    uint32_t payload_bytes) noexcept;
  bool send_control(Peer& peer) noexcept;
  static void hold_message(ibv::SendRecord& record, Lane lane, uint32_t slot,
                           const Cell* cell) noexcept;
  void give_message_back(Peer& peer, ibv::SendRecord& record) noexcept;
  // The record of the next entry of the send queue; `request` is to be posted as that entry. Entries that
  // nobody waits for are told of in passing, by the next one that is.
  ibv::SendRecord& next_record(Peer& peer, ibv_send_wr* request, bool signal) noexcept {
    ibv::SendRecord& record = peer.records[peer.posted & record_mask_];
    record.position = peer.posted;
    record.holds = ibv::SendRecord::Holds::kNothing;
    ++peer.posted;
    request->wr_id = reinterpret_cast<uintptr_t>(&record) | 1;
    if (signal || peer.posted - peer.signalled >= options_.send_depth / 4) {
      request->send_flags |= IBV_SEND_SIGNALED;
      peer.signalled = peer.posted;
    }
    return record;
  }
  // False: the adapter takes nothing any more, and all that was not taken is as if it had not been posted.
  bool hand_over(Peer& peer, ibv_send_wr* first, uint32_t count) noexcept {
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(peer.queue.get(), first, &bad);
    if (error == 0) [[likely]]
      return true;
    take_back(peer, bad != nullptr ? bad : first, count, error);
    return false;
  }
  void take_back(Peer& peer, const ibv_send_wr* bad, uint32_t count, int error) noexcept;
  void give_slot_back(Peer& peer, uint32_t slot) noexcept {
    peer.free_slots[peer.free_slot_count++] = static_cast<uint16_t>(slot);
  }
  static uint64_t untold(const Peer& peer, uint32_t counter) noexcept;
  bool credit_is_due(const Peer& peer) const noexcept;
  void send_tail(Peer& peer) noexcept;
  void probe() noexcept;
  void shut_if_still(Peer& peer) noexcept;

  // ibv_prepared.cpp
  class PreparedRequest;
  std::unique_ptr<Prepared> prepare(bool is_put, Rank rank, uintptr_t remote, uintptr_t local,
                                    size_t bytes) noexcept;

  // ibv_atomics.cpp
  Status check_atomic(const Pinned& remote, const Pinned& local) const noexcept;

  // ibv_operations.cpp
  template <bool kIsPut>
  void build(Peer& peer, Peer::Request& request, const PinnedOperation& operation) noexcept;
  template <bool kIsPut>
  size_t begin_list(Rank rank, std::span<const PinnedOperation> list) noexcept;
  template <bool kIsPut>
  Status begin(Rank rank, const Pinned& remote, const Pinned& local, size_t bytes,
               Completion* completion) noexcept;
  Status begin_otherwise(bool is_put, Rank rank, const Pinned& remote, const Pinned& local,
                         size_t bytes, Completion* completion) noexcept;
  bool takes_operation(const Peer& peer) const noexcept {
    return peer.state.load(std::memory_order_acquire) == Peer::State::kOpen &&
           peer.first_waiting == nullptr && used_in_queue(peer) < operation_room_;
  }
  Status why_no_operation(const Peer& peer) const noexcept;
  ibv::Operation* begin_waiting(Peer& peer, bool is_put, const Pinned& remote, const Pinned& local,
                                size_t bytes, Completion* completion) noexcept;
  bool post_pieces(Peer& peer, ibv::Operation& operation) noexcept;
  void advance_operations(Peer& peer) noexcept;
  bool give_up_waiting(Peer& peer, Finished* finished) noexcept;
  void finish_piece(ibv::Operation& operation, Status status, Finished* finished) noexcept;
  void end_operation(ibv::Operation& operation, Finished* finished) noexcept;
  uint32_t tell(Finished& finished) noexcept;

  // ibv_rails.cpp, ibv_rail_peers.cpp: the ports beside the first
  void open_rails() noexcept;
  void say_ports() const noexcept;
  Status open_rail(ibv::Rail& rail) noexcept;
  void close_rails() noexcept;
  void make_peer_rails(Peer& peer) noexcept HYDRANT_REQUIRES(contact_mu_);
  Status make_rail(Peer& peer, uint32_t index) noexcept HYDRANT_REQUIRES(contact_mu_);
  Status make_room_on_rail(ibv::Rail& rail) noexcept HYDRANT_REQUIRES(contact_mu_);
  void connect_rails(Peer& peer, const ibv::Greeting& greeting) noexcept
      HYDRANT_REQUIRES(contact_mu_);
  void learn_rails(Peer& peer, const ibv::Greeting& greeting) noexcept
      HYDRANT_REQUIRES(contact_mu_);
  void name_rails(const Peer& peer, ibv::Greeting* greeting) const noexcept
      HYDRANT_REQUIRES(contact_mu_);
  void shut_rails(Peer& peer) noexcept;
  static uint32_t rails_for(Peer& peer, bool is_put) noexcept;
  static bool rails_wait(const Peer& peer, uint32_t rails) noexcept;
  void add_shares(Peer& peer, ibv::Operation& operation, uint32_t rails, const Pinned& remote,
                  const Pinned& local, size_t bytes) noexcept;
  void advance_rails(Peer& peer) noexcept;
  bool advance_rail(Peer& peer, uint32_t index) noexcept;
  bool post_on_rail(Peer& peer, uint32_t index, ibv_send_wr* request, ibv::Share* over) noexcept;
  uint32_t drain_rails() noexcept;
  uint32_t finish_on_rail(const ibv_wc& completion) noexcept;
  void end_share(Peer& peer, const ibv::Share& share, Status status, Finished* finished) noexcept;
  uint32_t give_up_shares(Peer& peer) noexcept;

  // ibv_progress.cpp: what the completion queue says
  int drain(uint32_t* told) noexcept;
  uint32_t finish_send(const ibv_wc& completion) noexcept;
  uint32_t finish_sends(const ibv_wc& completion) noexcept;
  void retire(Peer& peer, ibv::SendRecord& record, Status status, Finished* finished) noexcept;
  void take_in(const ibv_wc& completion) noexcept;
  void hear_credits(Peer& peer, const ibv::Header& header) noexcept;
  bool makes_sense(const ibv::Header& header, uint32_t bytes) const noexcept;
  Peer* peer_of_queue(uint32_t number) const noexcept;
  void recycle(ibv::Received& first, uint32_t count, Peer* owner, uint32_t counter) noexcept;
  void recycle(ibv::Received& received) noexcept {
    received.work.next = nullptr;
    recycle(received, 1, received.peer, received.counter);
  }
  uint32_t keep_unposted(ibv_recv_wr* first) noexcept;
  void recycle_unposted() noexcept;
  void add_chore(Peer& peer) noexcept;
  uint32_t do_chores() noexcept;
  bool do_chore(Peer& peer) noexcept;

  // ibv_delivery.cpp
  uint32_t deliver(Receiver& receiver, uint32_t budget, bool replies_only, uint32_t polls) noexcept;
  uint32_t deliver_lane(Lane lane, Receiver& receiver, uint32_t budget) noexcept;
  uint32_t deliver_from(Peer& peer, Lane lane, Receiver& receiver, uint32_t budget) noexcept;
  void enqueue(Peer& peer, Lane lane, ibv::Received& received) noexcept;
  void make_ready(Peer& peer, Lane lane) noexcept;
  static bool take_arrivals(ibv::Arrivals& arrivals) noexcept;
  void keep_house(uint32_t polls) noexcept;
  bool any_arrival() const noexcept;

  // ibv_sleep.cpp
  void doze(uint64_t deadline_ns) noexcept;
  bool arm() noexcept;
  bool hear_channel() noexcept;
  void empty_wake_fd() noexcept;
  bool is_quiet(Peer& peer) noexcept;

  Bootstrap& bootstrap_;
  Options options_;
  const bool threaded_;
  Lost lost_ = nullptr;
  Rank self_ = 0;
  uint32_t ranks_ = 0;
  uint32_t places_ = 0;      // of peers: the ranks, and who can be joined
  uint32_t slot_bytes_ = 0;  // of a message
  uint32_t max_piece_ = 0;
  size_t max_at_once_ = 0;  // an operation of no more bytes is one work request, by the first port
  uint32_t record_mask_ = 0;     // of the position in a send queue: which record
  uint32_t operation_room_ = 0;  // entries of a send queue beyond which no operation is taken
  bool has_atomics_ = false;     // all devices have: memory is registered with each of them
  uint64_t nonce_ = 0;
  ibv::Port port_;    // the first
  ibv::Ports ports_;  // all, open

  ibv::Rail rails_[ibv::kMostRails - 1];
  uint32_t rail_count_ = 0;
  SpinFlag rails_lock_;  // taken by try_lock only: whoever has it takes their completions in
  std::unique_ptr<ibv::Share[]> shares_;       // for each operation one per rail
  std::atomic<uint32_t> shares_under_way_{0};  // of all peers: nobody sleeps meanwhile

  ibv::Channel channel_;
  ibv::CompletionQueue queue_;
  ibv::CompletionQueue datagram_completions_;
  ibv::SharedReceives receives_;
  ibv::VerbsMemory datagram_memory_;
  ibv::QueuePair datagrams_;
  CellPool cells_[kLaneCount];

  std::unique_ptr<std::atomic<Peer*>[]>
      peers_;  // by rank, then those joined; null: not talked to yet
  std::unique_ptr<std::atomic<bool>[]> buried_;
  std::atomic<bool> any_buried_{false};

  Mutex contact_mu_;
  Peer* first_peer_ HYDRANT_GUARDED_BY(contact_mu_) = nullptr;
  uint32_t peer_count_ HYDRANT_GUARDED_BY(contact_mu_) = 0;
  uint32_t completions_ HYDRANT_GUARDED_BY(contact_mu_) = 0;  // entries of the queue
  Peer* connecting_ HYDRANT_GUARDED_BY(contact_mu_) = nullptr;
  uint32_t datagram_sends_ HYDRANT_GUARDED_BY(contact_mu_) = 0;  // under way
  uint32_t next_datagram_ HYDRANT_GUARDED_BY(contact_mu_) = 0;
  uint64_t group_ HYDRANT_GUARDED_BY(contact_mu_) =
      0;  // what this job is called; 0: not asked for yet
  // By number, less the ranks; joined_count_ of them.
  std::unique_ptr<ibv::GroupCard[]> joined_ HYDRANT_GUARDED_BY(contact_mu_);
  std::atomic<uint32_t> joined_count_{0};
  std::atomic<uint32_t> connecting_count_{0};
  std::atomic<uint64_t> next_greeting_ns_{UINT64_MAX};

  // Taken by try_lock only: whoever has it takes completions in.
  alignas(64) SpinFlag drain_lock_;
  alignas(64) SpinFlag ready_lock_;
  Peer* first_ready_[kLaneCount] = {};
  Peer* last_ready_[kLaneCount] = {};
  std::atomic<uint32_t> ready_[kLaneCount] = {};  // peers in each list
  SpinFlag chore_lock_;
  std::atomic<Peer*> chores_{nullptr};
  SpinFlag operation_lock_;
  std::unique_ptr<ibv::Operation[]> operations_;
  ibv::Operation* free_operations_ = nullptr;
  // Buffers that could not be posted again yet.
  SpinFlag unposted_lock_;
  std::atomic<ibv::Received*> unposted_{nullptr};

  std::atomic<uint32_t> polls_{0};
  std::atomic<uint64_t> next_probe_ns_{0};

  Mutex sleep_mu_;  // for those who go to sleep and come back
  std::atomic<uint32_t> sleepers_{0};
  int wake_fd_ = -1;

  struct AtomicCounts {
    std::atomic<uint64_t> connected{0}, greetings{0}, strangers{0}, early{0}, control{0}, probes{0},
        stalls{0}, lost{0}, sleeps{0}, striped{0};
  };
  AtomicCounts counts_;
};

}  // namespace hydrant
