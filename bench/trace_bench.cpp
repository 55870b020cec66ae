// Question: what does an event of a trace cost the thread that it happens in?
//
// Unit: ns per event. Rows: clock, one reading; event, a record with one reading; call, a public call with
// two; put, a call with a path; line, the text of a call, which the tracer's thread writes; flood, calls
// without a pause, so that the thread waits for its own lines and those of the tracer's thread.
//
//   trace_bench             one JSON object on standard output; medians of 9
//
// All rows but flood write 4096 events into a warm ring and leave the drain out.
#include "am/trace/trace_mask.hpp"
#include "am/trace/trace_points.hpp"
#include "am/trace/trace_text.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

using namespace hydrant;

constexpr int kRepetitions = 9;
constexpr uint32_t kBatch = 4096;
constexpr uint32_t kBatches = 20;
constexpr uint32_t kFlood = 500'000;

uint64_t line_bytes = 0;

class Sink final : public TraceSink {
 public:
  void take(const TraceRecord& record, const TraceThread& thread,
            const TraceClock& clock) noexcept override {
    ++taken;
    if (!formats) return;
    TraceLine line;
    format_trace(line, record, thread, clock, 0, letter_of(record), true, nullptr);
    line_bytes += line.bytes();
  }
  void flush() noexcept override {}

  bool formats = false;
  uint64_t taken = 0;
};
Sink g_sink;

template <typename Body>
double median_ns(uint32_t batches, uint32_t events, Body body) {
  std::vector<double> values;
  for (int r = 0; r < kRepetitions; ++r) {
    uint64_t ns = 0;
    for (uint32_t i = 0; i < batches; ++i) {
      (void)drain_traces();
      const uint64_t begin = now_ns();
      for (uint32_t n = 0; n < events; ++n) body(n);
      ns += now_ns() - begin;
    }
    values.push_back(static_cast<double>(ns) / batches / events);
  }
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main() {
  start_tracing(g_sink, {.tsc_is_steady = true});
  uint64_t sum = 0;
  const double clock = median_ns(kBatches, kBatch, [&](uint32_t) { sum += TraceClock::ticks(); });
  const double event = median_ns(kBatches, kBatch, [](uint32_t n) {
    const uint64_t now = TraceClock::ticks();
    trace({.start = now,
           .end = now,
           .detail = "mapped",
           .bytes = n,
           .peer = 1,
           .kind = TraceKind::kTransfer});
  });
  const double call = median_ns(kBatches, kBatch, [](uint32_t) {
    trace_enter("gex_Event_Wait");
    trace_leave();
  });
  const double put = median_ns(kBatches, kBatch, [](uint32_t n) {
    trace_enter("gex_RMA_PutBlocking");
    trace_transfer(true, 1, "mapped", n);
    trace_leave();
  });
  TraceThread* thread = current_trace_thread();
  const double line = median_ns(kBatches, kBatch, [&](uint32_t n) {
    TraceLine text;
    const uint64_t now = TraceClock::ticks();
    format_trace(text,
                 {.start = now,
                  .end = now + 500,
                  .name = "gex_RMA_PutBlocking",
                  .detail = "mapped",
                  .bytes = n,
                  .peer = 1},
                 *thread, trace_clock(), 0, 'P', true, nullptr);
    line_bytes += text.bytes();
  });
  g_sink.formats = true;
  const double flood = median_ns(1, kFlood, [](uint32_t n) {
    trace_enter("gex_RMA_PutBlocking");
    trace_transfer(true, 1, "mapped", n);
    trace_leave();
  });
  (void)stop_tracing();
  std::printf(
      "{\"clock\": %.1f, \"event\": %.1f, \"call\": %.1f, \"put\": %.1f, \"line\": %.1f, "
      "\"flood\": %.1f, \"dropped\": %llu, \"checksum\": %llu}\n",
      clock, event, call, put, line, flood, static_cast<unsigned long long>(dropped_traces()),
      static_cast<unsigned long long>((sum + line_bytes + g_sink.taken) & 1));
}
