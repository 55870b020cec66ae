// Creates the domains and the endpoints of remote pins, and transports their messages as Active
// Messages. Called at job start (rma_pinned_target.cpp) and by polls; rma_pinned.cpp uses the result.
#include "extended/binding/firehose_binding.hpp"

#include "am/call/thread_state.hpp"
#include "am/exit/exit.hpp"
#include "am/handler/token.hpp"
#include "am/job/job.hpp"
#include "am/message/send.hpp"
#include "am/progress/waiting.hpp"
#include "extended/binding/registrar_adapter.hpp"
#include "extended/binding/segment_pins.hpp"
#include "extended/message/handlers.hpp"
#include "extended/message/send_failures.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/start_gate.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/remote/channel/remote_wire.hpp"
#include "rdma/config/job_knobs.hpp"
#include "rdma/transport/node_registrar.hpp"

#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

namespace hydrant {

constinit Firehose the_firehose;
constinit Firehose the_mappings;

namespace {

constinit Mutex mappings_mu;
constinit std::atomic<int> mappings_state{0};  // 1: created; -1: not available
constinit StartGate mappings_gate;             // written under mappings_mu

// ---- the messenger ----

// Messages that a peer may wait for and that no memory is left for.
constinit SendFailures pin_failures{on_peer_failed};

// Sends a message of remote pins. A request does not wait for room, because that would poll inside a
// poll; the endpoint retries it. A reply may wait, and polls only replies meanwhile. Without memory, which
// may come back, a move fails, and the endpoint retries the others, which the peer must get.
int send_message(void* user, uint32_t peer, uint32_t lane, void* reply_to, const void* message,
                 size_t len) {
  auto* token = static_cast<gex_Token_t>(reply_to);
  const bool is_reply = lane == HYDRANT_LANE_REPLY && token != nullptr && token->reply_state == 0;
  OutgoingMessage sending;
  sending.peer = peer;
  sending.lane = is_reply ? Lane::kReply : Lane::kRequest;
  const bool mapped = user == &the_mappings;
  sending.handler = is_reply ? (mapped ? kMappedPinReplyHandler : kRemotePinReplyHandler)
                             : (mapped ? kMappedPinHandler : kRemotePinHandler);
  sending.category = Category::kMedium;
  sending.source = message;
  sending.bytes = len;
  sending.immediate = !is_reply;
  if (is_reply) token->reply_state = hydrant_token::kReplied;
  const Status status = send(sending);
  if (status == Status::kOk) pin_failures.note_success();
  remote_wire::Move move{};
  if (status != Status::kResource || remote_wire::read_move(message, len, &move))
    return to_c(status);
  pin_failures.note(peer, status, now_ns());
  return GASNET_ERR_NOT_READY;
}

void deliver(const Firehose& to, gex_Token_t token, const void* message, size_t bytes,
             void* reply_to) noexcept {
  if (to.end == 0) {
    // The peer has pins, but this rank could not create them. Refuse, so that the peer's waiting
    // operations use messages.
    remote_wire::Message refusal;
    if (remote_wire::refuse_move(message, bytes, &refusal) &&
        send_message(const_cast<Firehose*>(&to), token->from, HYDRANT_LANE_REPLY, reply_to,
                     refusal.data(), refusal.size()) == GASNET_ERR_NOT_READY)
      fatal("the refusal of a remote pin of rank %u cannot be sent: %s", token->from,
            last_error_text());
    return;
  }
  const int code = hydrant_remote_deliver(to.end, token->from, message, bytes, reply_to);
  if (code != GASNET_OK) {
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "remote pins: %s", hydrant_error_text());
  }
}

void on_message(gex_Token_t token, void* message, size_t bytes) {
  vouch_own_segment();
  deliver(the_firehose, token, message, bytes, token);
}
void on_reply(gex_Token_t token, void* message, size_t bytes) {
  deliver(the_firehose, token, message, bytes, nullptr);
}
void on_mapped_message(gex_Token_t token, void* message, size_t bytes) {
  (void)make_mappings();
  deliver(the_mappings, token, message, bytes, token);
}
void on_mapped_reply(gex_Token_t token, void* message, size_t bytes) {
  deliver(the_mappings, token, message, bytes, nullptr);
}

uint32_t progress(void*) noexcept {
  const int did = hydrant_remote_poll(the_firehose.end);
  return static_cast<uint32_t>(did > 0 ? did : 0);
}

uint32_t map_progress(void*) noexcept {
  const int did = hydrant_remote_poll(the_mappings.end);
  return static_cast<uint32_t>(did > 0 ? did : 0);
}

Status make_domain(std::unique_ptr<Registrar> registrar, const char* name, uint32_t watch,
                   hydrant_domain_t* domain) noexcept {
  const hydrant_registrar_t functions = registrar_functions(std::move(registrar));
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.name = name;
  options.watch = watch;
  options.registrar = &functions;
  const int code = hydrant_domain_create(&options, domain);
  if (code == GASNET_OK) return Status::kOk;
  functions.destroy(functions.user);
  return fail(static_cast<Status>(code), "%s", hydrant_error_text());
}

Status make_end(Firehose& of, const hydrant_remote_options_t& wanted,
                hydrant_remote_t* end) noexcept {
  hydrant_messenger_t messenger{};
  messenger.size = sizeof messenger;
  messenger.user = &of;
  messenger.max_message_bytes = max_medium();
  messenger.send = send_message;
  hydrant_remote_options_t options = wanted;
  options.rank = job().rank();
  options.ranks = job().size();
  options.messenger = &messenger;
  const int code = hydrant_remote_create(&options, end);
  return code == GASNET_OK ? Status::kOk
                           : fail(static_cast<Status>(code), "%s", hydrant_error_text());
}

}  // namespace

void start_firehose(hydrant_remote_fn serve) noexcept {
  if (job().pinned == nullptr) return;
  std::unique_ptr<Registrar> registrar = job().pinned->make_bulk_registrar();
  hydrant_remote_options_t options;
  hydrant_remote_options_init(&options);
  options.remote = serve;
  // The callback of a miss only queues its piece.
  options.flags = HYDRANT_REMOTE_INLINE_DONE | HYDRANT_REMOTE_INLINE_REMOTE;
  hydrant_remote_t end = 0;
  Status status = Status::kUnsupported;
  if (registrar != nullptr)
    status =
        make_domain(std::move(registrar), "puts and gets", HYDRANT_WATCH_DEFAULT, &options.domain);
  if (status == Status::kOk) {
    status = make_end(the_firehose, options, &end);
    if (status != Status::kOk) (void)hydrant_domain_destroy(options.domain, HYDRANT_FINI_UNPIN);
  }
  if (status != Status::kOk) {
    log_warning("puts and gets use messages, because memory cannot be pinned: %s",
                last_error_text());
    return;
  }
  the_firehose = {options.domain, end, hydrant_remote_max_args(end),
                  hydrant_key_bytes(options.domain)};
  job().progress.add(progress, &the_firehose);  // null would mark a free row
  job().hooks.before_send = settle_exports;
  job().hooks.can_send = are_exports_quiet;
  job().careful = true;
}

bool have_mappings() noexcept { return mappings_state.load(std::memory_order_acquire) > 0; }

// Mappings need no settle_exports(): no memory is pinned, and an arena keeps every address at the same
// place of its file. Only memory that an arena returns to the kernel is recalled.
bool make_mappings() noexcept {
  const int state = mappings_state.load(std::memory_order_acquire);
  if (state != 0) return state > 0;
  if (!mappings_gate.is_open(false)) return false;
  const MutexLock lock(mappings_mu);
  if (mappings_state.load(std::memory_order_relaxed) != 0)
    return mappings_state.load(std::memory_order_relaxed) > 0;
  constexpr uint64_t kPlenty = uint64_t{1} << 40;
  std::unique_ptr<Registrar> registrar;
  hydrant_remote_options_t options;
  hydrant_remote_options_init(&options);
  options.budget_bytes = kPlenty;
  options.merge_bytes = options.stream_bytes = size_t{64} << 20;
  hydrant_remote_t end = 0;
  Status status = make_node_registrar(&registrar);
  if (status == Status::kOk)
    status = make_domain(std::move(registrar), "mappings", HYDRANT_WATCH_NONE, &options.domain);
  if (status == Status::kOk) {
    status = make_end(the_mappings, options, &end);
    if (status != Status::kOk) (void)hydrant_domain_destroy(options.domain, HYDRANT_FINI_UNPIN);
  }
  if (status != Status::kOk) {
    log_info("memory of other ranks is not mapped beyond their segments: %s", last_error_text());
  } else {
    the_mappings = {options.domain, end, hydrant_remote_max_args(end),
                    hydrant_key_bytes(options.domain)};
    job().progress.add(map_progress, &the_mappings);
  }
  // Without descriptors, memory or budget another call tries again.
  const bool is_short = status == Status::kResource || status == Status::kNotReady;
  if (is_short) mappings_gate.note_failure(EAGAIN);
  mappings_state.store(status == Status::kOk ? 1 : is_short ? 0 : -1, std::memory_order_release);
  return status == Status::kOk;
}

void add_firehose_handlers() noexcept {
  HandlerTable& table = job().handlers;
  table.add_internal(kRemotePinHandler, reinterpret_cast<gex_AM_Fn_t>(on_message), 0,
                     GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, "remote pin");
  table.add_internal(kRemotePinReplyHandler, reinterpret_cast<gex_AM_Fn_t>(on_reply), 0,
                     GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, "remote pin's reply");
  table.add_internal(kMappedPinHandler, reinterpret_cast<gex_AM_Fn_t>(on_mapped_message), 0,
                     GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, "mapping");
  table.add_internal(kMappedPinReplyHandler, reinterpret_cast<gex_AM_Fn_t>(on_mapped_reply), 0,
                     GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, "mapping's reply");
}

// In the child of a fork the endpoint no longer exists.
bool are_exports_quiet() noexcept {
  return !is_firehose_enabled() || hydrant_remote_quiet(the_firehose.end) != GASNET_ERR_NOT_READY;
}

bool are_exports_settled() noexcept {
  if (are_exports_quiet()) return true;
  (void)hydrant_remote_poll(the_firehose.end);
  return are_exports_quiet();
}

void settle_exports() noexcept {
  if (are_exports_quiet()) return;
  if (handler_depth != 0) {
    (void)hydrant_remote_poll(the_firehose.end);
    return;
  }
  Backoff backoff;
  const uint64_t warn_ns = knob_number(JobKnob::kJobWaitWarn);
  uint64_t warn_at = warn_ns != 0 ? now_ns() + warn_ns : UINT64_MAX;
  while (!are_exports_quiet()) {
    // Continuing would announce memory that a peer may still write to.
    if (has_exit_grace_expired()) exit_with_job();
    backoff.polled(poll_all());
    if (now_ns() < warn_at) continue;
    warn_at = now_ns() + warn_ns;
    hydrant_remote_stats_t stats{};
    stats.size = sizeof stats;
    (void)hydrant_remote_get_stats(the_firehose.end, &stats);
    log_warning(
        "still waiting for peers to release %llu bytes of memory that this process has freed; "
        "do they poll?",
        static_cast<unsigned long long>(stats.zombie_bytes));
  }
}

}  // namespace hydrant
