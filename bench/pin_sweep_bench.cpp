// Question: how should memory be made usable for a device when the working set exceeds the budget? Repeats
// the comparison of the firehose paper of 2003 (Bell and Bonachea, "A New DMA Registration Strategy for
// Pinning-Based High Performance Networks") with io_uring's real pins in place of a network adapter's.
//
// Unit: nanoseconds per use (column Time). A use takes a random range of 4 KiB to 1 MiB (whole pages, sizes
// uniform on a log scale, uniform place) of a working set of `set` percent of the budget, makes it usable,
// and releases it.
//
// Rows  sweep/STRATEGY/set:PERCENT
//       firehose        hydrant_pin + hydrant_release within the budget; copies on "not now"
//       firehose_page   the same in page mode with buckets of 64 KiB, as in the paper
//       register        register and unregister for every use
//       copy            copy into a buffer that is pinned once
//       pin_everything  the whole working set pinned before the clock starts: the bound for the others, which
//                       exceeds the budget beyond 100 %
//
// Not included: moving the data, which costs every strategy the same. It is sampled: after each 32 timed uses
// an untimed use writes its range to a file in memory through the pinned pages (WRITE_FIXED), and the file is
// compared with the expected contents (`moved_kib`). The single pin of pin_everything is not included either.
// Before the clock starts the working set is walked once and then used at random for a while.
#include "bench/support/bare_pins.hpp"
#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/limits.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr size_t kLargestUse = 1 * kMiB;
constexpr size_t kBucketBytes = 64 * kKiB;
constexpr int kSetPercents[] = {10, 25, 50, 75, 90, 100, 125, 150, 200, 300, 400};
constexpr size_t kUsesPerMove = 32;
constexpr int kTimedUses = 2048;
// Random uses that replace the large regions of the first walk by the regions that random uses need.
constexpr int kWarmUpUses = 2048;

// 64 MiB, or as much as an ordinary user's limit allows.
size_t budget_bytes() {
  return static_cast<size_t>(std::min<uint64_t>(64 * kMiB, memlock_bytes() / 2)) &
         ~(kLargestUse - 1);
}

// Every 8 bytes of the working set depend on their offset, so that wrong pages are detected.
uint64_t word_at(size_t offset) { return (offset / 8 + 1) * 0x9e3779b97f4a7c15ULL; }

const Memory& working_set() {
  static const Memory memory(4 * std::max(budget_bytes(), kLargestUse), PageKind::kSmall);
  static const bool filled = [] {
    for (size_t i = 0; i < memory.bytes(); i += 8) {
      const uint64_t word = word_at(i);
      std::memcpy(memory.at(i), &word, 8);
    }
    return true;
  }();
  (void)filled;
  return memory;
}

// A file in memory to which pinned pages are written and from which they are read back.
class Sink {
 public:
  Sink() : file_(memfd_create("bench-sink", MFD_CLOEXEC)) {
    if (file_ < 0 || ftruncate(file_, kLargestUse) != 0) die("memfd_create");
    void* mapped = mmap(nullptr, kLargestUse, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapped == MAP_FAILED) die("mmap of a memfd");
    bytes_ = static_cast<std::byte*>(mapped);
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  ~Sink() {
    munmap(bytes_, kLargestUse);
    close(file_);
  }
  int file() const { return file_; }
  void clear(size_t len) { std::memset(bytes_, 0, len); }
  bool holds(size_t offset, size_t len) const {
    for (size_t i = 0; i < len; i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes_ + i, 8);
      if (word != word_at(offset + i)) return false;
    }
    return true;
  }

 private:
  int file_;
  std::byte* bytes_ = nullptr;
};

struct Use {
  size_t offset;  // in the working set
  size_t len;
};

std::vector<Use> random_uses(size_t set_bytes, size_t count) {
  std::mt19937_64 random(11);
  const size_t page = page_bytes();
  const size_t largest = std::min(kLargestUse, set_bytes);
  const double spread = std::log2(static_cast<double>(largest / page));
  std::uniform_real_distribution<double> exponent(0.0, spread);
  std::vector<Use> uses;
  for (size_t i = 0; i < count; ++i) {
    const auto pages = static_cast<size_t>(std::exp2(exponent(random)) + 0.5);
    const size_t len = std::clamp(pages * page, page, largest);
    uses.push_back({random() % ((set_bytes - len) / page + 1) * page, len});
  }
  return uses;
}

// A way to make a range usable. with_range() does so, moves the range to `sink` if given, and releases it.
// False if any step failed; failure() then has the cause.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual bool with_range(Use use, Sink* sink) = 0;
  const std::string& failure() const { return failure_; }
  // Registrations and copies so far.
  virtual uint64_t registrations() const { return registrations_; }
  uint64_t copies() const { return copies_; }

 protected:
  static std::byte* address(Use use) { return working_set().at(use.offset); }
  bool checked(bool good, const char* what, const char* why) {
    if (!good && failure_.empty()) failure_ = std::string(what) + ": " + why;
    return good;
  }
  bool checked(bool good, const char* what) { return checked(good, what, std::strerror(errno)); }

  uint64_t registrations_ = 0;
  uint64_t copies_ = 0;

 private:
  std::string failure_;
};

class RegisterEveryTime : public Strategy {
 public:
  explicit RegisterEveryTime(size_t) {
    checked(ring_.pin_patiently(0, working_set().data(), kLargestUse) && ring_.unpin(0),
            "register");
  }
  bool with_range(Use use, Sink* sink) override {
    ++registrations_;
    if (!checked(ring_.pin(0, address(use), use.len), "register")) return false;
    const bool moved = sink == nullptr || ring_.write_file(0, address(use), use.len, sink->file());
    return checked(ring_.unpin(0) && moved, "write or unregister");
  }

 private:
  BareRing ring_;
};

class Copy : public Strategy {
 public:
  explicit Copy(size_t) {
    checked(ring_.pin_patiently(0, buffer_.data(), buffer_.bytes()), "register the buffer");
  }
  bool with_range(Use use, Sink* sink) override {
    ++copies_;
    std::memcpy(buffer_.data(), address(use), use.len);
    benchmark::ClobberMemory();
    return sink == nullptr ||
           checked(ring_.write_file(0, buffer_.data(), use.len, sink->file()), "write");
  }

 private:
  Memory buffer_{kLargestUse, PageKind::kSmall};
  BareRing ring_;
};

class PinEverything : public Strategy {
 public:
  explicit PinEverything(size_t set_bytes) {
    registrations_ = 1;
    checked(ring_.pin_patiently(0, working_set().data(), set_bytes), "register everything");
  }
  bool with_range(Use use, Sink* sink) override {
    benchmark::DoNotOptimize(use);
    return sink == nullptr ||
           checked(ring_.write_file(0, address(use), use.len, sink->file()), "write");
  }

 private:
  BareRing ring_;
};

template <uint32_t mode>
class Firehose : public Strategy {
 public:
  explicit Firehose(size_t set_bytes) : domain_(options()), fallback_(set_bytes) {
    for (size_t offset = 0; offset < set_bytes; offset += kLargestUse) {
      with_range({offset, std::min(kLargestUse, set_bytes - offset)}, nullptr);
    }
  }
  uint64_t registrations() const override { return domain_.stats().pins; }

  bool with_range(Use use, Sink* sink) override {
    const hydrant_pin_t pin =
        hydrant_pin(domain_.get(), address(use), use.len, HYDRANT_LOCAL_WRITE);
    if (pin.region == nullptr) {
      ++copies_;
      return checked(hydrant_pin_status(pin) == GASNET_ERR_NOT_READY, "hydrant_pin",
                     hydrant_error_text()) &&
             checked(fallback_.with_range(use, sink), "fallback", fallback_.failure().c_str());
    }
    const bool moved = sink == nullptr || move(use, *sink);
    return checked(hydrant_release(pin) == GASNET_OK && moved, "move or release",
                   hydrant_error_text());
  }

 private:
  // A pin and a write for each piece with its own key.
  bool move(Use use, const Sink& sink) {
    const size_t end = use.offset + use.len;
    bool good = true;
    for (size_t at = use.offset; at < end;) {
      const size_t next =
          mode == HYDRANT_MODE_PAGE ? std::min(end, (at / kBucketBytes + 1) * kBucketBytes) : end;
      const std::byte* piece = working_set().at(at);
      const hydrant_pin_t pin = hydrant_pin(domain_.get(), piece, next - at, HYDRANT_LOCAL_WRITE);
      good &= pin.region != nullptr &&
              hydrant_uring_move(pin, piece, next - at, sink.file(), at - use.offset, 1) == 0;
      good &= hydrant_release(pin) == GASNET_OK;
      at = next;
    }
    return good;
  }
  static hydrant_domain_options_t options() {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.registrar_name = "uring";
    options.budget_bytes = budget_bytes();
    options.mode = mode;
    options.bucket_bytes = mode == HYDRANT_MODE_PAGE ? kBucketBytes : 0;
    return options;
  }
  Domain domain_;
  Copy fallback_;
};

template <typename Kind>
void sweep(benchmark::State& state, int percent) {
  const OnCore here(0);
  const size_t set_bytes =
      (budget_bytes() / 100 * static_cast<size_t>(percent)) & ~(page_bytes() - 1);
  working_set();  // filled before the clock starts
  const std::vector<Use> uses = random_uses(set_bytes, 4096);
  Kind strategy(set_bytes);
  Sink sink;
  size_t next = 0;
  auto take = [&] { return uses[next++ % uses.size()]; };
  bool good = strategy.failure().empty();
  for (int i = 0; i < kWarmUpUses; ++i) good &= strategy.with_range(take(), nullptr);
  const uint64_t registered = strategy.registrations();
  const uint64_t copied = strategy.copies();
  size_t moved_bytes = 0;
  double uses_done = 0.0;
  while (state.KeepRunningBatch(kUsesPerMove)) {
    // Runs to the end: all repetitions of a row must have the same number of iterations.
    if (!good) continue;
    const uint64_t start = now_ns();
    for (size_t i = 0; i < kUsesPerMove; ++i) good &= strategy.with_range(take(), nullptr);
    state.SetIterationTime(static_cast<double>(now_ns() - start) * 1e-9);
    const Use use = take();
    sink.clear(use.len);
    good = good && strategy.with_range(use, &sink) && sink.holds(use.offset, use.len);
    moved_bytes += use.len;
    uses_done += static_cast<double>(kUsesPerMove + 1);
  }
  set_counter(
      state, "registrations_per_use",
      static_cast<double>(strategy.registrations() - registered) / std::max(uses_done, 1.0));
  set_counter(state, "copies_per_use",
              static_cast<double>(strategy.copies() - copied) / std::max(uses_done, 1.0));
  set_counter(state, "moved_kib", static_cast<double>(moved_bytes / kKiB));
  if (good) return;
  state.SkipWithError(strategy.failure().empty() ? "the file's contents differ from the memory"
                                                 : strategy.failure().c_str());
}

// `locked_percent`: the most of the budget that the strategy locks, beside one largest use.
template <typename Kind>
void add_row(const std::string& strategy, int percent, int locked_percent) {
  std::string refusal = uring_refusal();
  const uint64_t locked =
      budget_bytes() / 100 * static_cast<uint64_t>(locked_percent) + kLargestUse;
  if (refusal.empty() && budget_bytes() == 0) refusal = memlock_refusal(2 * kLargestUse);
  if (refusal.empty()) refusal = memlock_refusal(locked);
  benchmark::RegisterBenchmark(("sweep/" + strategy + "/set:" + std::to_string(percent)).c_str(),
                               [=](benchmark::State& state) {
                                 if (!refusal.empty()) return state.SkipWithError(refusal.c_str());
                                 sweep<Kind>(state, percent);
                               })
      ->UseManualTime()
      ->Iterations(kTimedUses)
      ->Unit(benchmark::kNanosecond);
}

void add_all_rows() {
  benchmark::AddCustomContext("budget_kib", std::to_string(budget_bytes() / kKiB));
  for (const int percent : kSetPercents) {
    add_row<Firehose<HYDRANT_MODE_REGION>>("firehose", percent, 100);
    add_row<Firehose<HYDRANT_MODE_PAGE>>("firehose_page", percent, 100);
    add_row<RegisterEveryTime>("register", percent, 0);
    add_row<Copy>("copy", percent, 0);
    add_row<PinEverything>("pin_everything", percent, percent);
  }
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  hydrant::bench::add_all_rows();
  return hydrant::bench::run_program(argc, argv, "0.01");
}
