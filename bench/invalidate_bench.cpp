// Question: what does it cost to notify a pin cache that memory was released, layer by layer?
//
// Unit: nanoseconds per call (column Time: the median). All rows release, acquire or invalidate whole
// mappings of 64 KiB with resident pages. Each kind runs in its own process (this program started again):
//   ours_ns, ours_p99_ns   the call with the layer
//   bare_ns, bare_p99_ns   the same call without it, in turn with it; extra_ns = ours_ns - bare_ns
//   later_ns               hydrant_poll() after it, which deregisters the dropped regions (median)
//
// Rows  release/CALL/memory:KIND/layer:LAYER
//         CALL    munmap, madvise (MADV_DONTNEED)
//         KIND    never   never pinned; bare: a process without a cache
//                 cached  pinned but not held; bare: pinned by the bare registration, no cache
//                 held    pinned and held; bare: as for cached
//         LAYER   checked  the kernel alone: userfaultfd and the reader thread
//                 watched  with the hooks preloaded
//       acquire/mmap/layer:watched   of addresses that had been pinned: passes sync(). bare: no cache
//       explicit/invalidate/memory:KIND   hydrant_invalidate(), no monitor. KIND unknown: no region is pinned
//                 there. cached: it deregisters at once; bare is that system call alone
//       arena/free/bytes:N           hydrant_free() of a registered extent; bare: of an unregistered one. The
//                 goal is extra_ns <= 1000. arena_bench has other sizes and the savings
//       beside/CALL/layer:LAYER      of cached memory while another thread registers and unregisters 64 MiB
//                 repeatedly: ours in the same cache, bare with its own ring, where no lock of a cache is
//                 involved. alone_ns, alone_p99_ns: without that thread. registration_us: duration of one
//                 such registration.
//                 plain_ns, plain_p99_ns (munmap): beside that ring in a process without cache and reader, so
//                 how long the kernel makes a release wait. The rest is per call and about the reader thread,
//                 beside the same cache and beside the ring: ours_sleeps, bare_sleeps: how often it slept (1:
//                 only for the next report; waiting for a lock adds one); ours_run_ns, bare_run_ns: time on a
//                 processor; ours_ready_ns, bare_ready_ns: time in which it was runnable but did not run.
//
// hooks_bench has more calls on memory that was never pinned: mmap, and the malloc family.
//
// Not included: page faults, the registrations themselves, the start of the reader.
#include <hydrant/alloc.h>
#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>

#include "bench/support/bare_pins.hpp"
#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/limits.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/paired.hpp"
#include "bench/support/reader_thread.hpp"
#include "bench/support/repeated_registration.hpp"
#include "bench/support/serving_child.hpp"
#include "firehose/watch/hooks_abi.h"

#include <dlfcn.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr size_t kMapBytes = 64 * kKiB;
constexpr size_t kBigBytes = 64 * kMiB;
constexpr int kRounds = 10;
constexpr uint32_t kSamplesPerRound = 40;

enum class Call : uint32_t { kMunmap, kMadvise, kMmap, kInvalidate, kFree };
enum class State : uint32_t { kNever, kCached, kHeld };
enum class Beside : uint32_t { kNone, kBareRing, kSameCache };

struct Request {
  Call call = Call::kMunmap;
  State state = State::kNever;
  Beside beside = Beside::kNone;
  uint32_t reserved = 0;
  uint64_t bytes = kMapBytes;
};

struct Answer {
  char failure[200] = "";
  double registration_us = 0.0;
  double reader_sleeps = 0.0;  // these three per call
  double reader_run_ns = 0.0;
  double reader_ready_ns = 0.0;
  double ns[kSamplesPerRound] = {};
  double later_ns[kSamplesPerRound] = {};
};

// ---- the child ----

void* map_pages(size_t bytes, void* where = nullptr) {
  const int fixed = where == nullptr ? 0 : MAP_FIXED_NOREPLACE;
  void* p = mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  madvise(p, bytes, MADV_NOHUGEPAGE);
  std::memset(p, 1, bytes);
  return p;
}

hydrant_domain_options_t options_for(const std::string& kind) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar_name = "uring";
  options.budget_bytes = kBigBytes + 16 * kMiB;
  options.merge_bytes = 1;  // no merging: every pin has the row's size
  options.watch = kind == "client" ? HYDRANT_WATCH_CLIENT : HYDRANT_WATCH_AUTO;
  return options;
}

// Serves one kind: "bare" (no cache), "checked", "watched", "client" (no monitor), "arena".
class Subject {
 public:
  explicit Subject(const std::string& kind) {
    if (kind == "bare") {
      ring_.emplace();
    } else {
      domain_.emplace(options_for(kind));
      lacking_ = what_is_lacking(kind);
    }
  }

  void serve(const Request& request, Answer* answer) {
    failure_ = lacking_;
    const OnCore here(0);
    std::optional<RepeatedRegistration> other;
    if (failure_.empty() && request.beside != Beside::kNone) {
      if (!big_) big_.emplace(kBigBytes, PageKind::kSmall);
      other.emplace(*big_, request.beside == Beside::kSameCache ? domain_->get() : 0);
    }
    const ThreadCounts before = reader_.counts();
    for (uint32_t i = 0; i < kSamplesPerRound && failure_.empty(); ++i) {
      sample(request, &answer->ns[i], &answer->later_ns[i]);
    }
    const ThreadCounts after = reader_.counts();
    answer->reader_sleeps = static_cast<double>(after.sleeps - before.sleeps) / kSamplesPerRound;
    answer->reader_run_ns = static_cast<double>(after.run_ns - before.run_ns) / kSamplesPerRound;
    answer->reader_ready_ns =
        static_cast<double>(after.ready_ns - before.ready_ns) / kSamplesPerRound;
    if (other) {
      answer->registration_us = other->stop() * 1e-3;
      if (answer->registration_us < 0) failure_ = "the other thread failed to register";
    }
    failure_.copy(answer->failure, sizeof answer->failure - 1);
  }

 private:
  // Returns "" if this process has the layer of that kind, else the reason. Starts the reader, unbound.
  std::string what_is_lacking(const std::string& kind) const {
    if (kind == "client") return "";
    const bool arena = kind == "arena";
    void* p = arena ? hydrant_alloc(kMapBytes) : map_pages(kMapBytes);
    uint32_t coverage = HYDRANT_COVERAGE_NONE;
    hydrant_coverage(domain_->get(), p, kMapBytes, &coverage);
    arena ? hydrant_free(p) : static_cast<void>(munmap(p, kMapBytes));
    if (kind == hydrant_coverage_name(coverage)) return "";
    const auto* hooks = static_cast<const hydrant_hooks_t*>(dlsym(RTLD_DEFAULT, "hydrant_hooks_1"));
    std::string why = std::string("memory is \"") + hydrant_coverage_name(coverage) + "\" here";
    const hydrant_monitor_t* monitor = hydrant_monitor(HYDRANT_MONITOR_VERSION);
    if (*monitor->reason() != '\0') return why + ": " + monitor->reason();
    if (hooks == nullptr) return why + ": no hooks in the process";
    return why + "; families hooked: " + std::to_string(hooks->families) + " of " +
           std::to_string(HYDRANT_HOOKS_ALL);
  }

  void sample(const Request& request, double* ns, double* later_ns) {
    const size_t bytes = request.bytes;
    const bool arena = request.call == Call::kFree;
    void* p = arena ? hydrant_alloc(bytes) : map_pages(bytes);
    if (p == nullptr) return fail("mmap");
    if (arena) {
      std::memset(p, 1, bytes);
      forget(p, bytes);  // a registration from an earlier mapping may remain
    }
    const hydrant_pin_t held = prepare(request, p);
    if (!failure_.empty()) return;
    *ns = nanoseconds([&] { call(request.call, p, bytes); });
    if (domain_) {
      *later_ns = nanoseconds([&] { hydrant_poll(domain_->get()); });
      // Memory that an arena frees stays registered: the purpose of an arena.
      if (!arena && is_hit(p, bytes))
        return fail("the cache still has a region that it should have dropped");
    } else if (request.state != State::kNever) {
      ring_->unpin(0);  // no effect if the measured call has done it
    }
    if (held.region != nullptr && request.state == State::kHeld) hydrant_release(held);
    if (request.call == Call::kMunmap || arena) return;
    munmap(p, bytes);
  }

  void call(Call call, void* p, size_t bytes) {
    switch (call) {
      case Call::kMunmap: munmap(p, bytes); break;
      case Call::kMadvise: madvise(p, bytes, MADV_DONTNEED); break;
      case Call::kMmap:
        p = mmap(p, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p == MAP_FAILED) fail("mmap of the same addresses");
        break;
      case Call::kInvalidate:
        domain_ ? static_cast<void>(hydrant_invalidate(domain_->get(), p, bytes))
                : static_cast<void>(ring_->unpin(0));
        break;
      case Call::kFree: hydrant_free(p); break;
    }
  }

  // Brings the memory into the state that the request asks for.
  hydrant_pin_t prepare(const Request& request, void* p) {
    hydrant_pin_t pin{};
    if (request.state == State::kNever) return pin;
    if (!domain_) {
      if (!ring_->pin(0, p, request.bytes)) fail("the bare registration failed");
    } else {
      pin = hydrant_pin(domain_->get(), p, request.bytes, HYDRANT_LOCAL_WRITE);
      if (pin.region == nullptr) fail(hydrant_error_text());
      if (request.state == State::kCached) hydrant_release(pin);
      if (!is_hit(p, request.bytes)) fail("a pin was not cached");
    }
    if (request.call == Call::kMmap) {
      munmap(p, request.bytes);
      domain_ ? static_cast<void>(hydrant_poll(domain_->get()))
              : static_cast<void>(ring_->unpin(0));
    }
    return pin;
  }

  bool is_hit(void* p, size_t bytes) {
    const hydrant_pin_t pin = hydrant_try_pin(domain_->get(), p, bytes, HYDRANT_LOCAL_WRITE);
    return pin.region != nullptr && hydrant_release(pin) == GASNET_OK;
  }
  void forget(void* p, size_t bytes) {
    hydrant_invalidate(domain_->get(), p, bytes);
    hydrant_poll(domain_->get());
  }
  void fail(const char* what) {
    if (failure_.empty()) failure_ = what;
  }

  std::optional<Memory> big_;
  std::optional<Domain> domain_;
  std::optional<BareRing> ring_;
  ReaderThread reader_;
  std::string lacking_;
  std::string failure_;
};

int serve(const std::string& kind) {
  Subject subject(kind);
  Request request;
  while (read_all(STDIN_FILENO, &request, sizeof request)) {
    Answer answer;
    subject.serve(request, &answer);
    if (!write_all(STDOUT_FILENO, &answer, sizeof answer)) return 1;
  }
  return 0;
}

// ---- the parent ----

struct Side {
  std::string kind;  // kind of child; "": this side has no samples
  Request request;
};

struct Row {
  std::string name;
  Side ours;
  Side bare;
  Side alone;
  Side plain;
  uint64_t locked_bytes;
};

// The samples of one side in one repetition.
class Samples {
 public:
  explicit Samples(const Side& side) : side_(side) {
    if (!side.kind.empty()) {
      child_ = std::make_unique<ServingChild>(side.kind,
                                              side.kind == "watched" ? HYDRANT_HOOKS_LIBRARY : "");
    }
  }
  // The median of one round.
  double take(std::string* failure) {
    if (!child_) return 0.0;
    Answer answer;
    if (!child_->send(&side_.request, sizeof side_.request) ||
        !child_->receive(&answer, sizeof answer)) {
      *failure = "a child of kind " + side_.kind + " ended";
    } else if (answer.failure[0] != '\0') {
      *failure = side_.kind + ": " + answer.failure;
    }
    ns_.insert(ns_.end(), std::begin(answer.ns), std::end(answer.ns));
    later_ns_.insert(later_ns_.end(), std::begin(answer.later_ns), std::end(answer.later_ns));
    registration_us_.push_back(answer.registration_us);
    sleeps_.push_back(answer.reader_sleeps);
    run_ns_.push_back(answer.reader_run_ns);
    ready_ns_.push_back(answer.reader_ready_ns);
    return median({std::begin(answer.ns), std::end(answer.ns)});
  }
  void forget() {
    ns_.clear();
    later_ns_.clear();
    for (std::vector<double>* of_rounds : {&registration_us_, &sleeps_, &run_ns_, &ready_ns_}) {
      of_rounds->clear();
    }
  }
  void report(benchmark::State& state, const std::string& name) const {
    set_counter(state, (name + "_ns").c_str(), median(ns_));
    set_counter(state, (name + "_p99_ns").c_str(), quantile(ns_, 0.99));
  }
  void report_reader(benchmark::State& state, const std::string& name) const {
    set_counter(state, name + "_sleeps", median(sleeps_));
    set_counter(state, name + "_run_ns", median(run_ns_));
    set_counter(state, name + "_ready_ns", median(ready_ns_));
  }
  double median_ns() const { return median(ns_); }
  double later_ns() const { return median(later_ns_); }
  double registration_us() const { return median(registration_us_); }

 private:
  const Side& side_;
  std::unique_ptr<ServingChild> child_;
  std::vector<double> ns_;
  std::vector<double> later_ns_;
  std::vector<double> registration_us_;  // here and below: one value per round
  std::vector<double> sleeps_;
  std::vector<double> run_ns_;
  std::vector<double> ready_ns_;
};

void measure(benchmark::State& state, const Row& row) {
  Samples ours(row.ours);
  Samples bare(row.bare);
  Samples alone(row.alone);
  Samples plain(row.plain);
  std::string failure;
  for (Samples* side : {&ours, &bare, &alone, &plain}) {  // warms them up
    if (failure.empty()) side->take(&failure);
    side->forget();
  }
  size_t turn = 0;
  for (auto _ : state) {
    double ns = 0.0;
    if (failure.empty()) {
      alternate(
          turn++, [&] { ns = ours.take(&failure); }, [&] { bare.take(&failure); });
      alone.take(&failure);
      plain.take(&failure);
    }
    state.SetIterationTime(ns * 1e-9);
  }
  ours.report(state, "ours");
  if (!row.bare.kind.empty()) {
    bare.report(state, "bare");
    set_counter(state, "extra_ns", ours.median_ns() - bare.median_ns());
  }
  if (!row.alone.kind.empty()) {
    alone.report(state, "alone");
    ours.report_reader(state, "ours");
    bare.report_reader(state, "bare");
  }
  if (!row.plain.kind.empty()) plain.report(state, "plain");
  set_counter(state, "later_ns", ours.later_ns());
  set_counter(state, "registration_us", ours.registration_us());
  if (!failure.empty()) state.SkipWithError(failure.c_str());
}

Request request(Call call, State state, Beside beside = Beside::kNone, uint64_t bytes = kMapBytes) {
  return {call, state, beside, 0, bytes};
}

std::vector<Row> release_rows() {
  std::vector<Row> rows;
  for (const auto& [call_name, call] :
       {std::pair{"munmap", Call::kMunmap}, {"madvise", Call::kMadvise}}) {
    for (const auto& [state_name, state] :
         {std::pair{"never", State::kNever}, {"cached", State::kCached}, {"held", State::kHeld}}) {
      for (const char* layer : {"checked", "watched"}) {
        rows.push_back(
            {std::string("release/") + call_name + "/memory:" + state_name + "/layer:" + layer,
             {layer, request(call, state)},
             {"bare", request(call, state)},
             {},
             {},
             4 * kMapBytes});
      }
    }
  }
  return rows;
}

std::vector<Row> all_rows() {
  std::vector<Row> rows = release_rows();
  rows.push_back({"acquire/mmap/layer:watched",
                  {"watched", request(Call::kMmap, State::kCached)},
                  {"bare", request(Call::kMmap, State::kCached)},
                  {},
                  {},
                  4 * kMapBytes});
  const Request cached = request(Call::kInvalidate, State::kCached);
  const std::string invalidate = "explicit/invalidate/memory:";
  rows.push_back({invalidate + "unknown",
                  {"client", request(Call::kInvalidate, State::kNever)},
                  {},
                  {},
                  {},
                  4 * kMapBytes});
  rows.push_back(
      {invalidate + "cached", {"client", cached}, {"bare", cached}, {}, {}, 4 * kMapBytes});
  rows.push_back({invalidate + "held",
                  {"client", request(Call::kInvalidate, State::kHeld)},
                  {},
                  {},
                  {},
                  4 * kMapBytes});
  for (const uint64_t bytes : {kMapBytes, 2 * kMiB}) {
    rows.push_back({"arena/free/bytes:" + std::to_string(bytes),
                    {"arena", request(Call::kFree, State::kCached, Beside::kNone, bytes)},
                    {"arena", request(Call::kFree, State::kNever, Beside::kNone, bytes)},
                    {},
                    {},
                    4 * bytes});
  }
  const auto beside = [&](const char* call_name, Call call, const char* layer) {
    rows.push_back({std::string("beside/") + call_name + "/layer:" + layer,
                    {layer, request(call, State::kCached, Beside::kSameCache)},
                    {layer, request(call, State::kCached, Beside::kBareRing)},
                    {layer, request(call, State::kCached)},
                    call == Call::kMunmap
                        ? Side{"bare", request(call, State::kNever, Beside::kBareRing)}
                        : Side{},
                    kBigBytes + 4 * kMiB});
  };
  beside("munmap", Call::kMunmap, "checked");
  beside("munmap", Call::kMunmap, "watched");
  beside("invalidate", Call::kInvalidate, "client");
  beside("free", Call::kFree, "arena");
  return rows;
}

void add_all_rows() {
  for (const Row& row : all_rows()) {
    std::string refusal = uring_refusal();
    if (refusal.empty()) refusal = memlock_refusal(row.locked_bytes);
    const bool two_threads = row.ours.request.beside != Beside::kNone;
    if (refusal.empty() && two_threads && usable_cores().size() < 2) refusal = "needs two cores";
    benchmark::RegisterBenchmark(row.name.c_str(),
                                 [=](benchmark::State& state) {
                                   if (!refusal.empty())
                                     return state.SkipWithError(refusal.c_str());
                                   measure(state, row);
                                 })
        ->UseManualTime()
        ->Iterations(kRounds)
        ->Unit(benchmark::kNanosecond);
  }
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  if (argc > 1 && std::strncmp(argv[1], "--serve=", 8) == 0) {
    return hydrant::bench::serve(argv[1] + 8);
  }
  hydrant::bench::add_all_rows();
  return hydrant::bench::run_program(argc, argv, "0.01");
}
