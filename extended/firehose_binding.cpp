#include "extended/firehose_binding.hpp"

#include "am/exit.hpp"
#include "am/job.hpp"
#include "am/send.hpp"
#include "am/thread_state.hpp"
#include "am/token.hpp"
#include "am/waiting.hpp"
#include "extended/handlers.hpp"
#include "extended/registrar_door.hpp"
#include "extended/rma_pinned.hpp"
#include "firehose/base/config.hpp"
#include "firehose/base/log.hpp"

#include <memory>

namespace hydrant {

constinit Firehose the_firehose;

namespace {

// ---- the messenger ----

// Requests never wait for room, which would poll inside a poll: the end keeps them. A reply takes replies
// meanwhile, like any other.
int send_message(void*, uint32_t peer, uint32_t lane, void* reply_to, const void* message,
                 size_t len) {
  auto* token = static_cast<gex_Token_t>(reply_to);
  const bool is_reply = lane == HYDRANT_LANE_REPLY && token != nullptr && !token->replied;
  Sending sending;
  sending.peer = peer;
  sending.lane = is_reply ? Lane::kReply : Lane::kRequest;
  sending.handler = is_reply ? kRemotePinReplyHandler : kRemotePinHandler;
  sending.category = Category::kMedium;
  sending.source = message;
  sending.bytes = len;
  sending.immediate = !is_reply;
  if (is_reply) token->replied = true;
  return to_c(send(sending));
}

void deliver(gex_Token_t token, const void* message, size_t bytes, void* reply_to) noexcept {
  if (!firehose_is_on()) return;  // the peer has pins, and this rank could not: it does not answer
  note_own_segment();
  const int code = hydrant_remote_deliver(the_firehose.end, token->from, message, bytes, reply_to);
  if (code != GASNET_OK) {
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "remote pins: %s", hydrant_error_text());
  }
}

void on_message(gex_Token_t token, void* message, size_t bytes) {
  deliver(token, message, bytes, token);
}
void on_reply(gex_Token_t token, void* message, size_t bytes) {
  deliver(token, message, bytes, nullptr);
}

uint32_t progress(void*) noexcept {
  const int did = hydrant_remote_poll(the_firehose.end);
  return static_cast<uint32_t>(did > 0 ? did : 0) + go_on_with_pinned();
}

Status make_domain(hydrant_domain_t* domain) noexcept {
  std::unique_ptr<Registrar> registrar = job().transport->make_registrar();
  if (registrar == nullptr) return fail(Status::kUnsupported, "%s", last_error_text());
  const hydrant_registrar_t functions = registrar_functions(std::move(registrar));
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.name = "puts and gets";
  options.registrar = &functions;
  const int code = hydrant_domain_create(&options, domain);
  if (code == GASNET_OK) return Status::kOk;
  functions.destroy(functions.user);
  return fail(static_cast<Status>(code), "%s", hydrant_error_text());
}

Status make_end(hydrant_domain_t domain, hydrant_remote_t* end) noexcept {
  hydrant_messenger_t messenger{};
  messenger.size = sizeof messenger;
  messenger.max_message_bytes = max_medium();
  messenger.send = send_message;
  hydrant_remote_options_t options;
  hydrant_remote_options_init(&options);
  options.domain = domain;
  options.rank = job().rank();
  options.ranks = job().size();
  options.messenger = &messenger;
  options.remote = serve_move;
  options.flags = HYDRANT_REMOTE_INLINE_REMOTE;
  const int code = hydrant_remote_create(&options, end);
  return code == GASNET_OK ? Status::kOk
                           : fail(static_cast<Status>(code), "%s", hydrant_error_text());
}

}  // namespace

void start_firehose() noexcept {
  const Transport* transport = job().transport.get();
  if (transport == nullptr || (transport->abilities() & Transport::kPinned) == 0) return;
  hydrant_domain_t domain = 0;
  hydrant_remote_t end = 0;
  Status status = make_domain(&domain);
  if (status == Status::kOk) {
    status = make_end(domain, &end);
    if (status != Status::kOk) (void)hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
  }
  if (status != Status::kOk) {
    log_warning("puts and gets go by messages, because no memory can be pinned: %s",
                last_error_text());
    return;
  }
  the_firehose.domain = domain;
  the_firehose.end = end;
  the_firehose.max_args = hydrant_remote_max_args(end);
  the_firehose.key_bytes = hydrant_key_bytes(domain);
  job().progress.add(progress, &the_firehose);  // (null stands for a free row)
  job().before_telling = settle_exports;
  job().careful = true;
}

void add_firehose_handlers() noexcept {
  HandlerTable& table = job().handlers;
  table.add_internal(kRemotePinHandler, reinterpret_cast<gex_AM_Fn_t>(on_message), 0,
                     GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, "remote pin");
  table.add_internal(kRemotePinReplyHandler, reinterpret_cast<gex_AM_Fn_t>(on_reply), 0,
                     GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, "remote pin's reply");
}

void settle_exports() noexcept {
  if (!firehose_is_on() || hydrant_remote_quiet(the_firehose.end) == GASNET_OK) return;
  if (handler_depth != 0) {
    (void)hydrant_remote_poll(the_firehose.end);
    return;
  }
  Waiter waiter;
  const uint64_t warn_ns = knob_number(Knob::kJobWaitWarn);
  uint64_t warn_at = warn_ns != 0 ? now_ns() + warn_ns : UINT64_MAX;
  while (hydrant_remote_quiet(the_firehose.end) != GASNET_OK) {
    if (is_over()) return;
    waiter.polled(poll_all());
    if (now_ns() < warn_at) continue;
    warn_at = now_ns() + warn_ns;
    hydrant_remote_stats_t stats{};
    stats.size = sizeof stats;
    (void)hydrant_remote_get_stats(the_firehose.end, &stats);
    log_warning(
        "still waiting for peers to give back %llu bytes that this process has released; "
        "do they poll?",
        static_cast<unsigned long long>(stats.zombie_bytes));
  }
}

}  // namespace hydrant
