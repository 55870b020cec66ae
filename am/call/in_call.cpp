// Checks of calls for debug clients, and events of the trace. Called through InCall, at entry and exit of
// every public call, and by deliver.cpp when a handler returns.
#include "am/call/in_call.hpp"

#include <hydrant/gasnet/objects.h>

#include "am/call/thread_state.hpp"
#include "am/trace/trace_points.hpp"
#include "firehose/base/machine/small_file.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

namespace hydrant {
namespace {

bool checks_threads = false;  // not for clients of PAR
constinit thread_local pid_t own_number = 0;
pid_t only_thread = 0;  // the thread of a SEQ client; 0: any. Written before other threads call
std::atomic<pid_t> inside{0};
std::atomic<const char*> call_inside{nullptr};
uint32_t depth = 0;  // nested calls of the thread that is inside

pid_t this_number() noexcept {
  if (own_number == 0) own_number = gettid();
  return own_number;
}

// Formats "thread 1234 ('name')".
struct ThreadName {
  explicit ThreadName(pid_t number) noexcept {
    char path[48];
    (void)std::snprintf(path, sizeof path, "/proc/self/task/%d/comm", number);
    char name[20];
    const size_t bytes = read_small_file(path, name, sizeof name);
    if (bytes > 0 && name[bytes - 1] == '\n') name[bytes - 1] = '\0';
    (void)std::snprintf(text, sizeof text, name[0] != '\0' ? "thread %d ('%s')" : "thread %d",
                        number, name);
  }
  char text[64];
};

void check_thread(const char* call) noexcept {
  const pid_t me = this_number();
  pid_t other = 0;
  const bool is_first = inside.compare_exchange_strong(other, me, std::memory_order_acquire);
  if (only_thread != 0 && me != only_thread) {
    const char* its_call =
        other == only_thread ? call_inside.load(std::memory_order_relaxed) : nullptr;
    fatal(
        "%s is called by %s, while %s %s%s: a program compiled with GASNET_SEQ calls from one "
        "thread alone. Compile it with GASNET_PAR, or with GASNET_PARSYNC if its threads take "
        "turns",
        call, ThreadName(me).text, ThreadName(only_thread).text,
        its_call != nullptr ? "is inside " : "has started the job",
        its_call != nullptr ? its_call : "");
  }
  if (!is_first && other != me) {
    const char* its_call = call_inside.load(std::memory_order_relaxed);
    fatal(
        "%s is called by %s, while %s is inside %s: the threads of a program compiled with "
        "GASNET_PARSYNC take turns. Hold a lock around the calls, or compile it with GASNET_PAR",
        call, ThreadName(me).text, ThreadName(other).text,
        its_call != nullptr ? its_call : "another call");
  }
  if (is_first) call_inside.store(call, std::memory_order_relaxed);
  ++depth;
}

const char* prepare_call(const SourceDescriptor& prepared, bool is_reply) noexcept {
  if (is_reply) return prepared.is_long ? "gex_AM_PrepareReplyLong" : "gex_AM_PrepareReplyMedium";
  return prepared.is_long ? "gex_AM_PrepareRequestLong" : "gex_AM_PrepareRequestMedium";
}

// A reply may be sent while a request is prepared: its handler runs inside the calls that prepare and
// commit. The client of a job that is ending may do anything, in its SIGQUIT handler for example.
void check_prepared(const char* call, CallKind kind) noexcept {
  const ThreadState& thread = own_thread_state();
  const SourceDescriptor* reply = thread.prepared_reply.get();
  const bool has_reply = reply != nullptr && reply->in_use;
  if (!has_reply && (kind == CallKind::kReply || !thread.prepared_request.in_use)) return;
  if (job().ending.load(std::memory_order_relaxed)) return;
  const SourceDescriptor& prepared = has_reply ? *reply : thread.prepared_request;
  fatal(
      "%s is called between %s and its commit: the %s for rank %u is prepared; commit or cancel it "
      "first",
      call, prepare_call(prepared, has_reply), has_reply ? "reply" : "request", prepared.peer);
}

void check_handler(const char* call) noexcept {
  if (handler_depth == 0 || job().ending.load(std::memory_order_relaxed)) return;
  fatal(
      "%s in a handler, which may send one reply, or in the function of a reduction; neither may "
      "poll, wait or start other operations: make the call later, outside",
      call);
}

}  // namespace

void begin_call_checks(int thread_mode, bool debug) noexcept {
  constexpr int kSeq = 0;
  constexpr int kPar = 2;
  if (!debug) return;
  job().checks_calls = true;
  if (thread_mode == kPar) return;
  own_number = gettid();
  if (thread_mode == kSeq) only_thread = own_number;
  checks_threads = true;
}

void enter_checked(const char* call, CallKind kind) noexcept {
  if (is_tracing()) {
    trace_enter(call);
    if (!job().debug) return;
  }
  if (checks_threads) check_thread(call);
  if (kind == CallKind::kLocal) return;
  check_prepared(call, kind);
  if (kind == CallKind::kCommunicates) check_handler(call);
}

void leave_checked() noexcept {
  if (is_tracing()) trace_leave();
  if (!checks_threads || --depth != 0) return;
  call_inside.store(nullptr, std::memory_order_relaxed);
  inside.store(0, std::memory_order_release);
}

void check_reply_is_committed(uint32_t handler, const char* name) noexcept {
  const SourceDescriptor* reply = own_thread_state().prepared_reply.get();
  if (reply == nullptr || !reply->in_use || job().ending.load(std::memory_order_relaxed)) return;
  fatal(
      "handler %u (%s) returns between %s and its commit: commit or cancel the reply to rank %u "
      "first",
      handler, name != nullptr ? name : "no name", prepare_call(*reply, true), reply->peer);
}

}  // namespace hydrant

extern "C" void hydrant_check_call(const char* call) { const hydrant::InCall in_call(call); }
