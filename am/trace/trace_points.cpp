// Builds the records of calls, puts and gets, and Active Messages. in_call.cpp, send.cpp, deliver.cpp and
// extended/rma call these functions.
#include "am/trace/trace_points.hpp"

#include "am/trace/trace_mask.hpp"

#include <atomic>
#include <mutex>
#include <new>
#include <sched.h>

namespace hydrant {
namespace {

constexpr uint32_t kMarks = 127;

// A lock for a few instructions; a mutex would take as long as the event.
class SpinLock {
 public:
  void lock() noexcept {
    while (is_held_.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  void unlock() noexcept { is_held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> is_held_{false};
};
using SpinGuard = std::lock_guard<SpinLock>;

// Numbers that a lane's messages have got from their sender.
struct Departures {
  SpinLock lock;
  uint64_t next = 0;
  // Numbers of messages that were not sent after all, for the next ones: a gap would look like a message
  // that is still to come.
  static constexpr uint32_t kReturned = 8;
  uint32_t returned_count = 0;
  uint64_t returned[kReturned];
};

// Numbers of a lane's messages that have arrived. A thread that is preempted between number and message is
// overtaken by others, so numbers may be missing for a while.
struct Arrivals {
  SpinLock lock;
  uint64_t next = 0;
  static constexpr uint32_t kMissing = 32;
  uint32_t missing_count = 0;
  uint64_t missing[kMissing];  // oldest first

  void note_missing(uint64_t number) noexcept {
    if (missing_count == kMissing) forget(0);
    missing[missing_count++] = number;
  }
  void forget(uint32_t place) noexcept {
    --missing_count;
    for (uint32_t i = place; i < missing_count; ++i) missing[i] = missing[i + 1];
  }
};

// By lane and peer. Never freed: a thread may be inside a call at exit.
struct Numbers {
  Departures* sent = nullptr;
  Arrivals* received = nullptr;
  Rank ranks = 0;
};
constinit Numbers g_numbers;

size_t place_of(const TracedMessage& message) noexcept {
  return size_t{message.lane} * g_numbers.ranks + message.peer;
}

uint64_t take_number(const TracedMessage& message) noexcept {
  Departures& lane = g_numbers.sent[place_of(message)];
  const SpinGuard guard(lane.lock);
  return lane.returned_count != 0 ? lane.returned[--lane.returned_count] : lane.next++;
}

// Marks the frame of a call whose only event is the message that it sends.
constexpr char kMessage[] = "message";

TraceFrame* innermost(TraceThread* thread) noexcept {
  if (thread == nullptr || thread->depth == 0 || thread->depth > TraceThread::kFrames)
    return nullptr;
  return &thread->frames[thread->depth - 1];
}

// As letter_of_call(), which takes as long as an event.
char letter_of_frame(TraceThread& thread, const TraceFrame& frame) noexcept {
  if (thread.known_call != frame.name) {
    thread.known_letter = letter_of_call(frame.name);
    thread.known_call = frame.name;
  }
  return thread.known_letter;
}

constexpr uint64_t kPollsTogether = 1024;

void write_polls(TraceThread* thread) noexcept {
  if (thread->polls.number == 0) return;
  trace(thread, thread->polls);
  thread->polls.number = 0;
}

// A poll that has found nothing.
void add_poll(TraceThread* thread, const TraceFrame& frame) noexcept {
  TraceRecord& polls = thread->polls;
  if (polls.number == 0) polls = {.start = frame.start, .name = frame.name};
  polls.end = TraceClock::ticks();
  if (++polls.number == kPollsTogether) write_polls(thread);
}

void trace_message(TraceThread* thread, TraceKind kind, const TracedMessage& message,
                   uint64_t number, uint64_t start) noexcept {
  trace(thread, {.start = start,
                 .end = TraceClock::ticks(),
                 .bytes = message.bytes,
                 .number = number,
                 .peer = message.peer,
                 .handler = message.handler,
                 .kind = kind,
                 .category = message.category,
                 .lane = message.lane,
                 .arguments = message.arguments});
}

// The number of a received message: the oldest missing one with this mark, else the next one.
uint64_t number_received(const TracedMessage& message, uint32_t mark) noexcept {
  if (mark == 0) return UINT64_MAX;
  Arrivals& lane = g_numbers.received[place_of(message)];
  const SpinGuard guard(lane.lock);
  if (mark == TracedRun::kOwnMessage) return lane.next++;
  for (uint32_t i = 0; i < lane.missing_count; ++i) {
    const uint64_t number = lane.missing[i];
    if (number % kMarks + 1 != mark) continue;
    lane.forget(i);
    return number;
  }
  while (lane.next % kMarks + 1 != mark) lane.note_missing(lane.next++);
  return lane.next++;
}

}  // namespace

bool start_trace_points(Rank ranks) noexcept {
  const size_t count = size_t{ranks} * 2;
  g_numbers.sent = new (std::nothrow) Departures[count];
  g_numbers.received = new (std::nothrow) Arrivals[count];
  g_numbers.ranks = ranks;
  return g_numbers.sent != nullptr && g_numbers.received != nullptr;
}

void trace_enter(const char* call) noexcept {
  TraceThread* thread = current_trace_thread();
  if (thread == nullptr) return;
  if (thread->polls.number != 0 && thread->polls.name != call) write_polls(thread);
  if (++thread->depth > TraceThread::kFrames) return;
  thread->frames[thread->depth - 1] = {
      .start = TraceClock::ticks(), .name = call, .position = thread->ring.position()};
}

void trace_leave() noexcept {
  TraceThread* thread = current_trace_thread();
  if (thread == nullptr || thread->depth == 0) return;
  if (--thread->depth >= TraceThread::kFrames) return;
  const TraceFrame& frame = thread->frames[thread->depth];
  if (!is_tracing() || frame.path == kMessage) return;
  if (letter_of_frame(*thread, frame) == 'X') {
    if (frame.position == thread->ring.position()) return add_poll(thread, frame);
    write_polls(thread);
  }
  trace(thread, {.start = frame.start,
                 .end = TraceClock::ticks(),
                 .name = frame.name,
                 .detail = frame.path,
                 .bytes = frame.bytes,
                 .peer = frame.peer,
                 .kind = TraceKind::kCall});
}

void trace_pending_polls() noexcept {
  TraceThread* thread = is_tracing() ? current_trace_thread() : nullptr;
  if (thread != nullptr) write_polls(thread);
}

void trace_transfer(bool is_put, Rank peer, const char* path, size_t bytes) noexcept {
  TraceThread* thread = current_trace_thread();
  TraceFrame* frame = innermost(thread);
  if (frame != nullptr && frame->path == nullptr) {
    const char letter = letter_of_frame(*thread, *frame);
    if (letter == 'P' || letter == 'G') {
      frame->path = path;
      frame->bytes = bytes;
      frame->peer = peer;
      return;
    }
  }
  const uint64_t now = TraceClock::ticks();
  trace(thread, {.start = now,
                 .end = now,
                 .detail = path,
                 .bytes = bytes,
                 .peer = peer,
                 .kind = TraceKind::kTransfer,
                 .lane = static_cast<uint8_t>(is_put ? 0 : 1)});
}

TracedSend::TracedSend(const TracedMessage& message) noexcept
    : message_(message), start_(TraceClock::ticks()), number_(take_number(message)) {}

void TracedSend::sent() const noexcept {
  TraceThread* thread = current_trace_thread();
  TraceFrame* frame = innermost(thread);
  // The call is the message, unless it is one of the library's own in a put, say.
  if (frame != nullptr && frame->path == nullptr && letter_of_frame(*thread, *frame) == 'A')
    frame->path = kMessage;
  trace_message(thread, TraceKind::kSend, message_, number_, start_);
}

void TracedSend::failed() const noexcept {
  Departures& lane = g_numbers.sent[place_of(message_)];
  const SpinGuard guard(lane.lock);
  if (lane.next == number_ + 1)
    lane.next = number_;
  else if (lane.returned_count < Departures::kReturned)
    lane.returned[lane.returned_count++] = number_;
}

TracedRun::TracedRun(const TracedMessage& message, uint32_t mark) noexcept
    : message_(message), number_(number_received(message, mark)), start_(TraceClock::ticks()) {}

TracedRun::~TracedRun() {
  if (is_tracing())
    trace_message(current_trace_thread(), TraceKind::kRun, message_, number_, start_);
}

}  // namespace hydrant
