// Question: how should memory be made usable for a device when the working set exceeds the budget? Repeats
// the comparison of the firehose paper of 2003 (Bell and Bonachea, "A New DMA Registration Strategy for
// Pinning-Based High Performance Networks") with io_uring's real pins in place of a network adapter's.
//
// Unit: nanoseconds per use (column Time). A use takes a random range of 4 KiB to 1 MiB (whole pages, sizes
// uniform on a log scale, uniform place) of a working set of `set` percent of the budget, makes it usable,
// and releases it.
//
// Rows  PATTERN/STRATEGY/set:PERCENT
//       sweep           the random ranges
//       The others use pieces of such sizes, into which the working set is cut:
//       loop            one after the other, again and again
//       zipf            by Zipf's law, the k-th most used with a weight of k^-0.99
//       one_shot        every second use is one of the rest in turn, the others are random ones of the first
//                       half budget
//       phases          1024 random ones of 75 % of the budget, then of another such part of the set, of four
//
//       firehose        hydrant_pin + hydrant_release within the budget; copies on "not now"
//       firehose_reuse  the same with FIREHOSE_ADMISSION=reuse (else: every)
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
#include <cstdlib>
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
constexpr int kPatternPercents[] = {100, 150, 200, 400};

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

size_t random_length(std::mt19937_64& random, size_t largest) {
  const size_t page = page_bytes();
  std::uniform_real_distribution<double> exponent(0.0,
                                                  std::log2(static_cast<double>(largest / page)));
  const auto pages = static_cast<size_t>(std::exp2(exponent(random)) + 0.5);
  return std::clamp(pages * page, page, largest);
}

std::vector<Use> random_uses(size_t set_bytes, size_t count) {
  std::mt19937_64 random(11);
  std::vector<Use> uses;
  for (size_t i = 0; i < count; ++i) {
    const size_t len = random_length(random, std::min(kLargestUse, set_bytes));
    uses.push_back({random() % ((set_bytes - len) / page_bytes() + 1) * page_bytes(), len});
  }
  return uses;
}

// Uses of pieces of the set: choose(pieces, i, random) is the index of the i-th one's.
template <typename Choose>
std::vector<Use> uses_of_pieces(size_t set_bytes, size_t count, Choose choose) {
  std::mt19937_64 random(11);
  std::vector<Use> pieces;
  for (size_t offset = 0; offset < set_bytes; offset += pieces.back().len)
    pieces.push_back({offset, std::min(random_length(random, kLargestUse), set_bytes - offset)});
  std::vector<Use> uses;
  for (size_t i = 0; i < count; ++i) uses.push_back(pieces[choose(pieces, i, random)]);
  return uses;
}

// The number of pieces that begin before this offset.
size_t pieces_before(const std::vector<Use>& pieces, size_t offset) {
  const auto begins_before = [](const Use& piece, size_t end) { return piece.offset < end; };
  return static_cast<size_t>(std::lower_bound(pieces.begin(), pieces.end(), offset, begins_before) -
                             pieces.begin());
}

std::vector<Use> loop_uses(size_t set_bytes, size_t count) {
  return uses_of_pieces(set_bytes, count,
                        [](const auto& pieces, size_t i, auto&) { return i % pieces.size(); });
}

std::vector<Use> zipf_uses(size_t set_bytes, size_t count) {
  std::vector<double> sums;
  std::vector<size_t> order;
  return uses_of_pieces(set_bytes, count, [&](const auto& pieces, size_t, auto& random) {
    for (size_t k = sums.size(); k < pieces.size(); ++k) {
      sums.push_back((k == 0 ? 0.0 : sums.back()) + std::pow(static_cast<double>(k + 1), -0.99));
      order.push_back(k);
      std::swap(order.back(), order[random() % order.size()]);
    }
    const double at = std::uniform_real_distribution<double>(0.0, sums.back())(random);
    return order[static_cast<size_t>(std::upper_bound(sums.begin(), sums.end() - 1, at) -
                                     sums.begin())];
  });
}

std::vector<Use> one_shot_uses(size_t set_bytes, size_t count) {
  return uses_of_pieces(set_bytes, count, [](const auto& pieces, size_t i, auto& random) {
    const size_t hot = pieces_before(pieces, budget_bytes() / 2);
    return i % 2 == 0 ? random() % hot : hot + i / 2 % (pieces.size() - hot);
  });
}

std::vector<Use> phase_uses(size_t set_bytes, size_t count) {
  return uses_of_pieces(set_bytes, count, [=](const auto& pieces, size_t i, auto& random) {
    const size_t part = budget_bytes() / 4 * 3;
    const size_t offset = (set_bytes - part) / 3 * (i / 1024 % 4);
    const size_t first = pieces_before(pieces, offset);
    return first + random() % (pieces_before(pieces, offset + part) - first);
  });
}

struct Pattern {
  const char* name;
  std::vector<Use> (*uses)(size_t set_bytes, size_t count);
  int timed;  // uses; as many before the clock starts replace the regions of the first walk
};
constexpr Pattern kRandom{"sweep", random_uses, 2048};
constexpr Pattern kPatterns[] = {{"loop", loop_uses, 4096},
                                 {"zipf", zipf_uses, 4096},
                                 {"one_shot", one_shot_uses, 4096},
                                 {"phases", phase_uses, 4096}};

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

template <uint32_t mode, bool by_reuse = false>
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
    setenv("FIREHOSE_ADMISSION", by_reuse ? "reuse" : "every", 1);
    return options;
  }
  Domain domain_;
  Copy fallback_;
};

template <typename Kind>
void sweep(benchmark::State& state, const Pattern& pattern, int percent) {
  const OnCore here(0);
  const size_t set_bytes =
      (budget_bytes() / 100 * static_cast<size_t>(percent)) & ~(page_bytes() - 1);
  working_set();  // filled before the clock starts
  const std::vector<Use> uses =
      pattern.uses(set_bytes, 2 * static_cast<size_t>(pattern.timed) + 2048);
  Kind strategy(set_bytes);
  Sink sink;
  size_t next = 0;
  auto take = [&] { return uses[next++]; };
  bool good = strategy.failure().empty();
  for (int i = 0; i < pattern.timed; ++i) good &= strategy.with_range(take(), nullptr);
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
void add_row(const Pattern& pattern, const std::string& strategy, int percent, int locked_percent) {
  std::string refusal = uring_refusal();
  const uint64_t locked =
      budget_bytes() / 100 * static_cast<uint64_t>(locked_percent) + kLargestUse;
  if (refusal.empty() && budget_bytes() == 0) refusal = memlock_refusal(2 * kLargestUse);
  if (refusal.empty()) refusal = memlock_refusal(locked);
  const std::string name = pattern.name + ("/" + strategy) + "/set:" + std::to_string(percent);
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 if (!refusal.empty()) return state.SkipWithError(refusal.c_str());
                                 sweep<Kind>(state, pattern, percent);
                               })
      ->UseManualTime()
      ->Iterations(pattern.timed)
      ->Unit(benchmark::kNanosecond);
}

void add_all_rows() {
  benchmark::AddCustomContext("budget_kib", std::to_string(budget_bytes() / kKiB));
  for (const int percent : kSetPercents) {
    add_row<Firehose<HYDRANT_MODE_REGION>>(kRandom, "firehose", percent, 100);
    add_row<Firehose<HYDRANT_MODE_REGION, true>>(kRandom, "firehose_reuse", percent, 100);
    add_row<Firehose<HYDRANT_MODE_PAGE>>(kRandom, "firehose_page", percent, 100);
    add_row<Firehose<HYDRANT_MODE_PAGE, true>>(kRandom, "firehose_page_reuse", percent, 100);
    add_row<RegisterEveryTime>(kRandom, "register", percent, 0);
    add_row<Copy>(kRandom, "copy", percent, 0);
    add_row<PinEverything>(kRandom, "pin_everything", percent, percent);
  }
  for (const Pattern& pattern : kPatterns) {
    for (const int percent : kPatternPercents) {
      add_row<Firehose<HYDRANT_MODE_REGION>>(pattern, "firehose", percent, 100);
      add_row<Firehose<HYDRANT_MODE_REGION, true>>(pattern, "firehose_reuse", percent, 100);
      add_row<RegisterEveryTime>(pattern, "register", percent, 0);
    }
  }
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  hydrant::bench::add_all_rows();
  return hydrant::bench::run_program(argc, argv, "0.01");
}
