// Starts, feeds and ends the trace and the statistics of a rank. The tracer passes it the records of all
// threads; start_job() and leave_once() start and end it; GASNETT_TRACE_* and GASNETT_STATS_* reach it by
// kToolsTrace.
#include "am/trace/job_trace.hpp"

#include <hydrant/gasnet/tracing.h>

#include "am/job/job.hpp"
#include "am/job/job_environment.hpp"
#include "am/job/start_extended.hpp"
#include "am/tools/clock.hpp"
#include "am/tools/rank_list.hpp"
#include "am/tools/trace_hooks.hpp"
#include "am/trace/trace_file.hpp"
#include "am/trace/trace_mask.hpp"
#include "am/trace/trace_points.hpp"
#include "am/trace/trace_statistics.hpp"
#include "am/trace/trace_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/config/job_knobs.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kEndNs = 1'000'000'000;

// Texts of masks that a client has been given, which keeps them to restore a mask later.
class MaskTexts {
 public:
  const char* text_of(TraceMask mask) noexcept {
    char text[sizeof kTraceLetters];
    mask.format(text);
    const MutexLock lock(mu_);
    for (const auto& known : texts_) {
      if (std::strcmp(known.data(), text) == 0) return known.data();
    }
    auto& place = texts_[next_++ % texts_.size()];
    std::memcpy(place.data(), text, sizeof text);
    return place.data();
  }

 private:
  Mutex mu_;
  size_t next_ HYDRANT_GUARDED_BY(mu_) = 0;
  std::array<std::array<char, sizeof kTraceLetters>, 64> texts_ HYDRANT_GUARDED_BY(mu_) = {};
};

// An output: the trace or the statistics.
struct Output {
  bool is_wanted = false;
  std::atomic<TraceMask> mask{TraceMask()};
  TraceFile file;
};

class JobTrace final : public TraceSink {
 public:
  void take(const TraceRecord& record, const TraceThread& thread,
            const TraceClock& clock) noexcept override;
  void flush() noexcept override {
    if (trace.is_wanted) trace.file.flush();
  }
  void write_statistics() noexcept;

  Output trace;
  Output statistics;
  TraceStatistics events;
  std::atomic<bool> is_local_traced{true};
  std::atomic<hydrant_tools_stats_callback_t> at_dump{nullptr};
  std::atomic<bool> is_ending{false};
  std::atomic<bool> has_ended{false};
  MaskTexts mask_texts;
};

// Never destroyed: threads may trace at process exit.
union Holder {
  constexpr Holder() noexcept : nothing(0) {}
  // NOLINTNEXTLINE(modernize-use-equals-default): a union with such a member has no default one
  ~Holder() {}
  int nothing;
  JobTrace job_trace;
};
constinit Holder g_holder;
constinit JobTrace* g_trace = nullptr;  // null: neither output is wanted on this rank

const char* handler_name(const TraceRecord& record) noexcept {
  if (record.kind != TraceKind::kSend && record.kind != TraceKind::kRun) return nullptr;
  // Handlers have names of their own on each rank, and usually the same.
  return job().handlers.at(record.handler).gex_name;
}

void JobTrace::take(const TraceRecord& record, const TraceThread& thread,
                    const TraceClock& clock) noexcept {
  const char letter = letter_of(record);
  const TraceMask mask = trace.mask.load(std::memory_order_relaxed);
  const bool is_own_memory = (letter == 'P' || letter == 'G') && record.peer == job().rank();
  if (trace.is_wanted && mask.has(letter) &&
      (!is_own_memory || is_local_traced.load(std::memory_order_relaxed))) {
    TraceLine line;
    format_trace(line, record, thread, clock, job().rank(), letter, mask.has('N'),
                 handler_name(record));
    trace.file.append(line.text(), line.bytes());
  }
  if (statistics.is_wanted && statistics.mask.load(std::memory_order_relaxed).has(letter))
    events.add(record, letter, clock);
}

void JobTrace::write_statistics() noexcept {
  const uint64_t ns = trace_clock().ns_of(TraceClock::ticks());
  TraceFile& file = statistics.file;
  file.print("statistics of rank %u of %u after %llu.%06llu s", job().rank(), job().size(),
             static_cast<unsigned long long>(ns / 1'000'000'000),
             static_cast<unsigned long long>(ns % 1'000'000'000 / 1000));
  events.write(file);
  list_counters(
      [](void* user, const char* line) noexcept {
        static_cast<TraceFile*>(user)->append(line, std::strlen(line));
      },
      &file);
  file.flush();
}

[[gnu::format(printf, 2, 3)]] void print_information(TraceFile& file, const char* format,
                                                     ...) noexcept {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  TraceLine line;
  const uint64_t ns = trace_clock().ns_of(TraceClock::ticks());
  line.add_number(job().rank());
  line.add("(0) ");
  line.add_number(ns / 1'000'000'000);
  line.add(".");
  line.add_padded(ns % 1'000'000'000, 9);
  line.add("> (I) ");
  line.add_on_one_line(text);
  file.append(line.text(), line.bytes());
}

// The first rank in the list; the number of ranks if it has none of them.
Rank first_rank(const char* list) noexcept {
  Rank first = 0;
  while (first < job().size() && !rank_list_contains(list, static_cast<int>(first))) ++first;
  return first;
}

// Whether this rank writes that file. Rank 0 warns of lists that are malformed or name no rank of the job.
bool is_wanted(JobKnob file, JobKnob nodes) noexcept {
  if (*knob_text(file) == '\0') return false;
  const char* list = knob_text(nodes);
  const char* name = knob_info(nodes).name;
  if (job().rank() == 0 && !is_rank_list(list)) {
    log_warning("%s=%s: invalid value; ranks and ranges with commas between, such as 0,2-4, or *",
                name, list);
  } else if (job().rank() == 0 && first_rank(list) == job().size()) {
    log_warning("%s=%s: none of the ranks is in the list; the job has %u", name, list,
                job().size());
  }
  return rank_list_contains(list, static_cast<int>(job().rank()));
}

void read_mask(JobKnob knob, Output& output) noexcept {
  const char* text = knob_text(knob);
  if (*text == '\0') return;
  TraceMask mask;
  if (!mask.parse(text) && job().rank() == 0)
    log_warning("%s=%s: characters other than ^ in front and the letters %s are ignored",
                knob_info(knob).name, text, kTraceLetters);
  output.mask.store(mask, std::memory_order_relaxed);
}

// Ranks that share a file append to it; the first that writes it empties it.
bool is_first_writer(JobKnob nodes) noexcept {
  return first_rank(knob_text(nodes)) == job().rank();
}

void open_output(Output& output, JobKnob file, JobKnob nodes) noexcept {
  if (!output.is_wanted) return;
  const char* pattern = knob_text(file);
  const bool is_own = std::strchr(pattern, '%') != nullptr;
  output.is_wanted = output.file.open(knob_info(file).name, pattern, job().rank(),
                                      is_own || is_first_writer(nodes));
}

// ---- the client's calls ----

bool is_on(const Output& output, char letter) noexcept {
  return is_tracing() && output.is_wanted &&
         output.mask.load(std::memory_order_relaxed).has(letter);
}
const char* mask_text(const Output& output) noexcept {
  if (!is_tracing() || !output.is_wanted) return "";
  return g_trace->mask_texts.text_of(output.mask.load(std::memory_order_relaxed));
}
void set_mask(Output& output, const char* text) noexcept {
  struct Change {
    Output& output;
    TraceMask mask;
  } change = {output, TraceMask()};
  (void)change.mask.parse(text != nullptr ? text : "");
  // The events so far are under the old mask.
  (void)drain_traces(
      [](void* user) noexcept {
        const auto& wanted = *static_cast<Change*>(user);
        wanted.output.mask.store(wanted.mask, std::memory_order_relaxed);
      },
      &change);
}

// NOLINTNEXTLINE(readability-non-const-parameter): the record owns the text
void print_text(char letter, char* text) noexcept {
  if (text == nullptr) return;
  const uint64_t now = TraceClock::ticks();
  trace({.start = now, .end = now, .detail = text, .kind = TraceKind::kText, .letter = letter});
}

void set_source_line(const char* file, unsigned line) noexcept {
  TraceThread* thread = is_tracing() ? current_trace_thread() : nullptr;
  if (thread == nullptr || thread->frozen_source_line != 0) return;
  if (file != nullptr) thread->source_file = file;
  thread->source_line = line;
  if (g_trace->trace.mask.load(std::memory_order_relaxed).has('N'))
    trace({.name = thread->source_file, .number = line, .kind = TraceKind::kSourceLine});
}
void source_line(const char** file, unsigned* line) noexcept {
  const TraceThread* thread = is_tracing() ? current_trace_thread() : nullptr;
  if (thread == nullptr || thread->source_file == nullptr) return;
  *file = thread->source_file;
  *line = thread->source_line;
}
void freeze_source_line(int by) noexcept {
  TraceThread* thread = is_tracing() ? current_trace_thread() : nullptr;
  if (thread == nullptr || (by < 0 && thread->frozen_source_line == 0)) return;
  thread->frozen_source_line += static_cast<uint32_t>(by);
}

void print_statistics(char letter, char* text) noexcept {
  if (text == nullptr) return;
  struct Print {
    char letter;
    const char* text;
  } print = {letter, text};
  (void)drain_traces(
      [](void* user) noexcept {
        const auto& what = *static_cast<Print*>(user);
        TraceLine line;
        line.add_number(job().rank());
        line.add("> (");
        line.add({&what.letter, 1});
        line.add(") ");
        line.add_on_one_line(what.text);
        g_trace->statistics.file.append(line.text(), line.bytes());
        g_trace->statistics.file.flush();
      },
      &print);
  std::free(text);
}

// Lets the client add lines to the statistics that are about to be written.
void call_at_dump() noexcept {
  const hydrant_tools_stats_callback_t callback = g_trace->at_dump.load(std::memory_order_acquire);
  if (callback != nullptr) callback(hydrant_tools_stats_printf);
}
void dump_statistics(bool reset) noexcept {
  if (!is_tracing() || !g_trace->statistics.is_wanted) return;
  call_at_dump();
  (void)drain_traces(
      [](void* user) noexcept {
        g_trace->write_statistics();
        if (*static_cast<bool*>(user)) g_trace->events.clear();
      },
      &reset);
}

// Writes the statistics and the last lines, and closes both files.
void write_end(void*) noexcept {
  if (g_trace->statistics.is_wanted) g_trace->write_statistics();
  TraceFile& file = g_trace->trace.file;
  if (const uint64_t dropped = dropped_traces(); dropped != 0) {
    log_warning("trace: %llu events were dropped, for lack of memory or in signal handlers",
                static_cast<unsigned long long>(dropped));
    if (g_trace->trace.is_wanted)
      print_information(file, "%llu events were dropped", static_cast<unsigned long long>(dropped));
  }
  if (g_trace->trace.is_wanted) print_information(file, "end of the trace");
  file.close();
  g_trace->statistics.file.close();
}

constexpr ToolsTrace kToolsTrace = {
    .is_traced = [](char letter) noexcept { return is_on(g_trace->trace, letter); },
    .print = print_text,
    .mask = []() noexcept { return mask_text(g_trace->trace); },
    .set_mask = [](const char* mask) noexcept { set_mask(g_trace->trace, mask); },
    .is_local_traced = []() noexcept { return is_tracing() && g_trace->is_local_traced.load(); },
    .trace_local =
        [](bool wanted) noexcept {
          (void)drain_traces(
              [](void* user) noexcept {
                g_trace->is_local_traced.store(*static_cast<bool*>(user));
              },
              &wanted);
        },
    .set_source_line = set_source_line,
    .source_line = source_line,
    .freeze_source_line = freeze_source_line,
    .is_counted = [](char letter) noexcept { return is_on(g_trace->statistics, letter); },
    .print_statistics = print_statistics,
    .statistics_mask = []() noexcept { return mask_text(g_trace->statistics); },
    .set_statistics_mask = [](const char* mask) noexcept { set_mask(g_trace->statistics, mask); },
    .dump_statistics = dump_statistics,
    .at_dump =
        [](hydrant_tools_stats_callback_t callback) noexcept {
          g_trace->at_dump.store(callback, std::memory_order_release);
        },
};

}  // namespace

void start_job_trace() noexcept {
  const bool traces = is_wanted(JobKnob::kTraceFile, JobKnob::kTraceNodes);
  const bool counts = is_wanted(JobKnob::kStatsFile, JobKnob::kStatsNodes);
  if (!traces && !counts) return;
  if (!start_trace_points(job().size())) {
    log_warning(
        "GASNET_TRACEFILE, GASNET_STATSFILE: no memory for counters of messages with %u "
        "ranks; nothing is written",
        job().size());
    return;
  }
  g_trace = new (&g_holder.job_trace) JobTrace;
  g_trace->trace.is_wanted = traces;
  g_trace->statistics.is_wanted = counts;
  if (traces) g_trace->trace.file.expect();
  if (counts) g_trace->statistics.file.expect();
  read_mask(JobKnob::kTraceMask, g_trace->trace);
  read_mask(JobKnob::kStatsMask, g_trace->statistics);
  g_trace->is_local_traced.store(knob_number(JobKnob::kTraceLocal) != 0);
  // Public calls report to InCall, and no call takes a way around it.
  job().checks_calls = true;
  job().careful = true;
  start_tracing(*g_trace, {.tsc_is_steady = tsc_is_steady(),
                           .is_flushed = traces && knob_number(JobKnob::kTraceFlush) != 0});
  register_trace_with_tools(&kToolsTrace);
}

void open_job_trace() noexcept {
  if (g_trace == nullptr) return;
  (void)drain_traces([](void*) noexcept {
    open_output(g_trace->trace, JobKnob::kTraceFile, JobKnob::kTraceNodes);
    open_output(g_trace->statistics, JobKnob::kStatsFile, JobKnob::kStatsNodes);
    if (!g_trace->trace.is_wanted) return;
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    char mask[sizeof kTraceLetters];
    const uint64_t begin = trace_clock().realtime_of_start_ns();
    print_information(g_trace->trace.file,
                      "trace of rank %u of %u, process %d on %s, 0 is %llu.%09llu by "
                      "CLOCK_REALTIME, mask %s",
                      job().rank(), job().size(), static_cast<int>(getpid()), host,
                      static_cast<unsigned long long>(begin / 1'000'000'000),
                      static_cast<unsigned long long>(begin % 1'000'000'000),
                      g_trace->trace.mask.load(std::memory_order_relaxed).format(mask));
  });
  // Neither file can be written: what was shut for the trace stays shut, and costs no more.
  if (!g_trace->trace.is_wanted && !g_trace->statistics.is_wanted) {
    register_trace_with_tools(nullptr);
    (void)stop_tracing();
    job().checks_calls = job().debug;
  }
}

void end_job_trace() noexcept {
  if (g_trace == nullptr) return;
  if (g_trace->is_ending.exchange(true)) {
    // The process must not end before the other thread has written.
    const uint64_t deadline = now_ns() + kEndNs;
    while (!g_trace->has_ended.load(std::memory_order_acquire) && now_ns() < deadline)
      uncancelled::sleep_ns(100'000);
    return;
  }
  if (!is_tracing()) return g_trace->has_ended.store(true, std::memory_order_release);
  trace_pending_polls();
  if (g_trace->statistics.is_wanted) call_at_dump();
  // The last lines are written where no other thread can be writing.
  if (!stop_tracing(write_end))
    log_warning("trace: another thread has been writing events for a second; some are missing");
  job().checks_calls = job().debug;
  g_trace->has_ended.store(true, std::memory_order_release);
}

}  // namespace hydrant
