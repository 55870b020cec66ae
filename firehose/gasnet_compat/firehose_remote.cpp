// Implements the remote pins of firehose.h. A hit returns at once; a miss is an operation (CompatRemoteOp)
// that lives until its callback has run. firehose_remote_progress.cpp repeats declined requests.
#include "firehose/gasnet_compat/firehose_remote.hpp"

#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "firehose/gasnet_compat/firehose_state.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <sched.h>

namespace hydrant {

namespace {

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kNever = UINT64_MAX;
constexpr uint32_t kEnableRemoteCallback = 0x02;  // FIREHOSE_FLAG_ENABLE_REMOTE_CALLBACK
constexpr uint32_t kAllInHandlers = HYDRANT_FH_COMPLETION_IN_HANDLER | HYDRANT_FH_REMOTE_IN_HANDLER;

// If the client has no poll, other threads make the progress.
void pause_between_tries(bool polled) noexcept {
  if (polled) {
    sched_yield();
    return;
  }
  uncancelled::sleep_ns(50'000);
}

[[noreturn]] void give_up(const CompatRemoteOp& op, int status, const char* text) noexcept {
  const char* hint = "";
  if (status == HYDRANT_ERR_REFUSED)
    hint = ": that node's firehose_move_callback failed, or gave a key that FH_MAY_MERGE refuses";
  compat_fatal("firehose_remote_pin of [%#zx, +%zu) of node %u%s: %s",
               static_cast<size_t>(op.pin_request.addr), op.pin_request.len, op.pin_request.node,
               hint, text);
}

size_t message_bytes(const hydrant_fh& fh) noexcept {
  // No longer than moves of this client can be, so that each is written into little memory.
  constexpr size_t kRest = 512;
  const size_t wanted = kRest + fh.client.client_bytes + fh.client.args_bytes;
  return std::min(wanted, fh.client.max_message_bytes);
}

}  // namespace

CompatRemote::CompatRemote(hydrant_fh& fh, const CompatPeerLimits& limits) noexcept
    : fh_(fh),
      limits_(limits),
      patience_ns_(knob_number(Knob::kWaitWarn)),
      polls_on_arrival_((fh.client.remote_flags & kAllInHandlers) == kAllInHandlers) {
  hydrant_messenger_t messenger{};
  messenger.size = sizeof messenger;
  messenger.user = this;
  messenger.max_message_bytes = message_bytes(fh);
  messenger.send = send_thunk;
  const uint32_t peers = fh.client.nodes - 1;
  hydrant_remote_options_t options;
  hydrant_remote_options_init(&options);
  options.name = "firehose";
  options.domain = fh.domain;
  options.rank = fh.client.node;
  options.ranks = fh.client.nodes;
  options.messenger = &messenger;
  options.remote = remote_thunk;
  options.room = room_thunk;
  options.user = this;
  options.flags = HYDRANT_REMOTE_INLINE_DONE;  // done() knows where the client's callbacks may run
  if ((fh.client.remote_flags & HYDRANT_FH_REMOTE_IN_HANDLER) != 0)
    options.flags |= HYDRANT_REMOTE_INLINE_REMOTE;
  options.budget_bytes = limits.budget_bytes;
  options.base_percent = 100;  // a fixed split, as GASNet promises
  constexpr uint64_t kMaxFirehoses = uint64_t{1} << 20;
  if (limits.max_firehoses != 0) {
    options.max_peer_regions = static_cast<uint32_t>(std::min(limits.max_firehoses, kMaxFirehoses));
    options.max_firehoses =
        static_cast<uint32_t>(std::min(limits.max_firehoses * peers, 4 * kMaxFirehoses));
  }
  options.max_region_bytes = static_cast<size_t>(limits.pin_bytes);
  options.stream_bytes = 1;  // only what its calls name
  if (hydrant_remote_create(&options, &end_) != GASNET_OK)
    compat_fatal("firehose_init: %s", hydrant_error_text());
  if (hydrant_remote_max_args(end_) < fh.client.args_bytes) {
    compat_fatal(
        "firehose_init: firehose_remotecallback_args_t has %u bytes, but beside its own part a "
        "message has room for %zu",
        fh.client.args_bytes, hydrant_remote_max_args(end_));
  }
}

CompatRemote::~CompatRemote() {
  static_cast<void>(hydrant_remote_destroy(end_));  // completes operations under way: done_thunk()
  for (CompatRemoteOp** list : {&ops_, &done_}) {
    while (*list != nullptr) {
      CompatRemoteOp* op = *list;
      *list = op->next;
      ::operator delete(op, CompatRemoteOp::kAlign);
    }
  }
}

void CompatRemote::print_summary() noexcept {
  hydrant_remote_stats_t stats{};
  stats.size = sizeof stats;
  if (hydrant_remote_get_stats(end_, &stats) != GASNET_OK) return;
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  compat_print(
      "fini: remote: %llu hits, %llu moves, %llu joined, %llu evictions, %llu recalled, %llu "
      "firehoses "
      "now; for peers: %llu moves served, %llu declined, %llu firehoses of %llu bytes now",
      number(stats.hits), number(stats.moves), number(stats.joins), number(stats.evictions),
      number(stats.recalled), number(stats.firehoses), number(stats.served), number(stats.declined),
      number(stats.exports), number(stats.exported_bytes));
}

// ---- operations ---------------------------------------------------------------------------------------

CompatRemoteOp* CompatRemote::make_op(
    const hydrant_fh_remote_request_t& pin_request) const noexcept {
  void* memory = ::operator new(sizeof(CompatRemoteOp) + fh_.client.args_bytes,
                                CompatRemoteOp::kAlign, std::nothrow);
  if (memory == nullptr) compat_fatal("firehose_remote_pin: out of memory for a request");
  auto* op = new (memory) CompatRemoteOp;
  op->pin_request = pin_request;
  op->began_ns = now_ns();
  op->next_report_ns = patience_ns_ == 0 ? kNever : op->began_ns + patience_ns_;
  return op;
}

void CompatRemote::unlink(CompatRemoteOp* op) noexcept {
  (op->previous != nullptr ? op->previous->next : ops_) = op->next;
  if (op->next != nullptr) op->next->previous = op->previous;
}

void CompatRemote::drop_op(CompatRemoteOp* op) noexcept {
  {
    MutexLock lock(mu_);
    unlink(op);
  }
  ::operator delete(op, CompatRemoteOp::kAlign);
}

// Sets the state and publishes it for readers that scan all operations.
void CompatRemote::set_state(CompatRemoteOp* op, CompatRemoteOp::State state) noexcept {
  MutexLock lock(mu_);
  op->state = state;
}

hydrant_pin_t CompatRemote::look(const char* function, uint32_t node, uintptr_t addr, size_t len,
                                 hydrant_pin_t found) const noexcept {
  if (found.region != nullptr) [[likely]]
    return found;
  // A range that wraps around belongs to no node; a wrong node is the client's mistake.
  if (node == fh_.client.node) {
    compat_fatal(
        "%s of [%#zx, +%zu) of node %u: that is this node; firehose_local_pin is for its memory",
        function, static_cast<size_t>(addr), len, node);
  }
  if (node >= fh_.client.nodes) {
    compat_fatal(
        "%s of [%#zx, +%zu) of node %u: there is no such node; there are %u, this one is %u",
        function, static_cast<size_t>(addr), len, node, fh_.client.nodes, fh_.client.node);
  }
  return found;
}

hydrant_pin_t CompatRemote::hit(uint32_t node, uintptr_t addr, size_t len) noexcept {
  return hydrant_try_remote_pin(end_, node, addr, len, kCompatAccess);
}

hydrant_pin_t CompatRemote::try_pin(uint32_t node, uintptr_t addr, size_t len) noexcept {
  return look("firehose_try_remote_pin", node, addr, len,
              hydrant_try_remote_pin(end_, node, addr, len, kCompatAccess));
}

hydrant_pin_t CompatRemote::partial_pin(uint32_t node, uintptr_t addr, size_t len) noexcept {
  return look("firehose_partial_remote_pin", node, addr, len,
              hydrant_partial_remote_pin(end_, node, addr, len, kCompatAccess));
}

int CompatRemote::start(CompatRemoteOp* op, bool inside, hydrant_pin_t* pin) noexcept {
  hydrant_remote_call_t call{};
  call.done = done_thunk;
  call.context = op;
  // Arguments are made inside the client's call or never. An operation that joined another's move, and sends
  // its own only after that was declined, has none.
  const bool calls =
      (op->pin_request.flags & kEnableRemoteCallback) != 0 && (inside || op->args_made);
  call.make_args = calls ? make_args_thunk : no_args_thunk;
  if (calls) call.flags = HYDRANT_REMOTE_CALL;
  const hydrant_fh_remote_request_t pin_request =
      op->pin_request;  // the operation may end before this returns
  const int status = hydrant_remote_pin(end_, pin_request.node, pin_request.addr, pin_request.len,
                                        kCompatAccess, &call, pin);
  if (status != GASNET_OK && status != GASNET_ERR_NOT_READY)
    give_up(*op, status, hydrant_error_text());
  return status;
}

hydrant_pin_t CompatRemote::pin(const hydrant_fh_remote_request_t& pin_request) noexcept {
  hydrant_pin_t pin =
      look("firehose_remote_pin", pin_request.node, pin_request.addr, pin_request.len,
           hydrant_try_remote_pin(end_, pin_request.node, pin_request.addr, pin_request.len,
                                  kCompatAccess));
  if (pin.region != nullptr) return pin;
  if (pin_request.callback == nullptr ||
      ((pin_request.flags & kEnableRemoteCallback) != 0 && pin_request.args == nullptr)) {
    compat_fatal("firehose_remote_pin of [%#zx, +%zu) of node %u: there is no %s",
                 static_cast<size_t>(pin_request.addr), pin_request.len, pin_request.node,
                 pin_request.callback == nullptr ? "completion callback" : "remote_args_callback");
  }
  if (pin_request.len > limits_.pin_bytes) {
    compat_fatal(
        "firehose_remote_pin of [%#zx, +%zu) of node %u: more than max_RemotePinSize, %llu bytes",
        static_cast<size_t>(pin_request.addr), pin_request.len, pin_request.node,
        static_cast<unsigned long long>(limits_.pin_bytes));
  }
  progress();
  CompatRemoteOp* op = make_op(pin_request);
  op->of = this;
  {
    MutexLock lock(mu_);
    op->next = ops_;
    if (ops_ != nullptr) ops_->previous = op;
    ops_ = op;
  }
  const int status = start(op, true, &pin);
  if (status == GASNET_ERR_NOT_READY) return wait_to_start(op);
  if (pin.region != nullptr) drop_op(op);
  return pin;
}

// This node holds its whole share of the other one's memory, or too much is under way: both end without this
// thread, if the client keeps to its order of pins.
hydrant_pin_t CompatRemote::wait_to_start(CompatRemoteOp* op) noexcept {
  const hydrant_fh_remote_request_t pin_request = op->pin_request;
  const uint64_t began = op->began_ns;
  uint64_t next_report = patience_ns_ == 0 ? kNever : began + patience_ns_;
  for (;;) {
    set_state(op, CompatRemoteOp::State::kHeld);
    if (fh_.client.poll != nullptr) fh_.client.poll();
    static_cast<void>(hydrant_poll(fh_.domain));
    progress();
    hydrant_pin_t pin{};
    set_state(op, CompatRemoteOp::State::kAsked);
    if (start(op, true, &pin) == GASNET_OK) {
      if (pin.region != nullptr) drop_op(op);
      return pin;
    }
    pause_between_tries(fh_.client.poll != nullptr);
    const uint64_t now = now_ns();
    if (now < next_report) continue;
    hydrant_remote_stats_t stats{};
    stats.size = sizeof stats;
    static_cast<void>(hydrant_remote_get_stats(end_, &stats));
    log_warning(
        "firehose_remote_pin has waited %llu ms to ask node %u for [%#zx, +%zu) and goes on: what "
        "this node may have of it is held by requests that were not released; of all nodes it has "
        "%llu firehoses of %llu bytes",
        static_cast<unsigned long long>((now - began) / kMillisecond), pin_request.node,
        static_cast<size_t>(pin_request.addr), pin_request.len,
        static_cast<unsigned long long>(stats.firehoses),
        static_cast<unsigned long long>(stats.firehose_bytes));
    next_report = now + (now - began);  // ever more rarely
  }
}

size_t CompatRemote::make_args_thunk(void* context, void* args, size_t room) {
  auto* op = static_cast<CompatRemoteOp*>(context);
  const CompatRemote& self = *op->of;
  if (!op->args_made) {
    const CompatScope inside(CompatInside::kArgs);
    op->args_len = self.fh_.client.make_args(&op->pin_request, op->args());
    if (op->args_len > self.fh_.client.args_bytes || op->args_len > room) {
      compat_fatal(
          "firehose_remote_pin: the remote_args_callback wrote %zu bytes; there is room for %u",
          op->args_len, self.fh_.client.args_bytes);
    }
  }
  op->moved = op->args_made = true;
  std::memcpy(args, op->args(), op->args_len);
  return op->args_len;
}

size_t CompatRemote::no_args_thunk(void* context, void*, size_t) {
  static_cast<CompatRemoteOp*>(context)->moved = true;
  return 0;
}

void CompatRemote::done_thunk(void* context, hydrant_pin_t pin,
                              const hydrant_remote_outcome_t* outcome) {
  auto* op = static_cast<CompatRemoteOp*>(context);
  CompatRemote& self = *op->of;
  switch (outcome->status) {
    case GASNET_OK: return self.done(op, pin, outcome->called != 0);
    case GASNET_ERR_NOT_READY: return self.retry_later(op);
    case GASNET_ERR_NOT_INIT: return self.drop_op(op);  // firehose_fini
    default: give_up(*op, outcome->status, hydrant_error_text());
  }
}

void CompatRemote::done(CompatRemoteOp* op, hydrant_pin_t pin, bool called) noexcept {
  // An operation with arguments is complete when they have arrived.
  const bool wants_call = (op->pin_request.flags & kEnableRemoteCallback) != 0;
  const bool all_local_hit = wants_call ? !called : !op->moved;
  if ((fh_.client.remote_flags & HYDRANT_FH_COMPLETION_IN_HANDLER) != 0) {
    const hydrant_fh_remote_request_t pin_request = op->pin_request;
    drop_op(op);
    fh_.client.completed(&pin_request, pin, all_local_hit ? 1 : 0);
    return;
  }
  MutexLock lock(mu_);
  unlink(op);
  op->state = CompatRemoteOp::State::kDone;
  op->pin = pin;
  op->all_local_hit = all_local_hit;
  op->next = nullptr;
  *done_tail_ = op;
  done_tail_ = &op->next;
  any_done_.store(true, std::memory_order_relaxed);
}

// ---- messages -----------------------------------------------------------------------------------------

int CompatRemote::send_thunk(void* user, uint32_t peer, uint32_t lane, void* reply_to,
                             const void* message, size_t len) {
  return static_cast<CompatRemote*>(user)->fh_.client.send(peer, lane, reply_to, message, len);
}

void CompatRemote::deliver(uint32_t from, const void* message, size_t len,
                           void* reply_to) noexcept {
  const CompatScope inside(CompatInside::kHandler);
  if (hydrant_remote_deliver(end_, from, message, len, reply_to) == GASNET_ERR_BAD_ARG)
    compat_fatal("firehose: %s", hydrant_error_text());
}

size_t CompatRemote::remote_thunk(void* user, uint32_t from, const hydrant_region_t* pinned,
                                  hydrant_range_t, const void* args, size_t args_len, void*,
                                  size_t) {
  const hydrant_fh_client_t& client = static_cast<CompatRemote*>(user)->fh_.client;
  alignas(HYDRANT_FH_MAX_ALIGN) std::array<std::byte, size_t{2} * HYDRANT_FH_MAX_ALIGN> region{};
  std::memcpy(region.data(), &pinned->addr, sizeof pinned->addr);
  std::memcpy(region.data() + sizeof pinned->addr, &pinned->len, sizeof pinned->len);
  if (client.client_bytes != 0)
    std::memcpy(region.data() + client.client_offset, pinned->key, client.client_bytes);
  const CompatScope inside(CompatInside::kRemote);
  const int result = client.remote(from, region.data(), args, args_len);
  if (result != 0) compat_fatal("firehose_remote_callback returned %d for node %u", result, from);
  return 0;
}

}  // namespace hydrant
