// Question: what does an ordinary user with 8 MiB of memlock (ulimit -l, the default of many systems) gain
// from a pin cache with a working set of 64 MiB? Everything has to succeed, and must not be slower than
// copying everything through buffers that are pinned once.
//
// Unit: nanoseconds of processor time per use (column Time: ours, transfer included). No operation here
// waits, so on an idle machine this equals elapsed time. A use makes a random range of the working set
// usable, moves it alternately into a pipe or out of it through the pinned pages (READ_FIXED, WRITE_FIXED),
// and releases it:
//   ours  queries a CopyPinTuner (base/machine/copy_pin_tuner.hpp), which learns by trials whether uses of
//         that length should call hydrant_pin or hydrant_try_pin, or use the pool at once. "Not now" leads to
//         a copy
//   pool  copies everything through the same pool (firehose/base/buffer_pool)
// They alternate in one process, over the same memory and with the same uses; every sample has different
// uses. The process is this program started again, with 8 MiB of memlock and no privileges, as a separate
// user. Nothing else is configured: the library chooses the budget, and the pool and the rings count against
// the same account, so the kernel may still refuse. The pins of the last kOutstanding uses are held, like
// those of transfers in flight. The measurement starts after the tuner has learnt: kLearningUses of each
// power of two of lengths.
//
// Rows  memlock/bytes:SIZE/access:HOW/pages:KIND
//         SIZE   of a use; mixed: 4 KiB to 1 MiB, uniform on a log scale
//         HOW    random: anywhere. hot: nine of ten uses in 4 MiB of the 64. sequential: one after another
//         KIND   small, or huge: the kernel charges whole huge pages of 2 MiB
// Counters: ours_gib_s, pool_gib_s, ratio = ours / pool; ours_usable_ns, pool_usable_ns, usable_ratio =
// pool / ours: without the transfer, which a network adapter does by itself. The kernel's transfer copies on
// the calling processor, whose cache holds the data that was just copied into the pool's buffer, so the
// transfer is cheaper for the pool. The goal is 1 for the first ratio, which the tuner optimises.
// copied_percent of the uses of ours, registrations_per_use, budget_kib at the end, kernel_said_no:
// registrations for which the kernel had no budget. Any failure makes the row an error that begins with
// "failed:".
//
// --quick: more and shorter samples, and fewer learning uses, for an emulated machine, whose clock includes
// other load of its host. --no-pins: ours copies everything, too, which shows the resolution of the ratios.
//
// Every use is checked outside the measured time: all bytes that arrived are compared.
#include <hydrant/pin_cache.h>

#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/limits.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/ordinary_user.hpp"
#include "bench/support/paired.hpp"
#include "bench/support/serving_child.hpp"
#include "firehose/base/buffer_pool/buffer_pool.hpp"
#include "firehose/base/machine/copy_pin_tuner.hpp"
#include "firehose/registrars/uring/uring_registrar.hpp"

#include <algorithm>
#include <cmath>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hydrant::bench {
namespace {

constexpr uint64_t kMemlockBytes = 8 * kMiB;
constexpr size_t kSetBytes = 64 * kMiB;
constexpr size_t kLargestUse = 1 * kMiB;
constexpr size_t kHotBytes = 4 * kMiB;
constexpr size_t kOutstanding = 8;
constexpr size_t kLearningUses = 500;
constexpr size_t kQuickLearning = 200;
constexpr int kRounds = 24;
constexpr int kQuickRounds = 128;
constexpr size_t kMovedPerSample = 8 * kMiB;
constexpr size_t kQuickSample = 256 * kKiB;

enum class How : uint32_t { kRandom, kHot, kSequential };

struct Request {
  uint32_t through_pool = 0;
  uint32_t no_pins = 0;
  uint32_t huge = 0;
  How how = How::kRandom;
  uint32_t sample = 0;
  uint64_t bytes = 0;  // length of a use; 0: mixed
  uint64_t sample_bytes = 0;
};

struct Answer {
  char failure[400] = "";
  double usable_ns = 0.0;  // making memory usable, and releasing it
  double move_ns = 0.0;
  double bytes = 0.0;
  double uses = 0.0;
  double copied = 0.0;
  double registrations = 0.0;
  double refused = 0.0;
  double budget_kib = 0.0;
};

// ---- the child ----

// Processor time of this thread.
double cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

// The cost of reading that clock twice: it is a system call.
double cost_of_a_look() {
  std::vector<double> looks;
  for (int i = 0; i < 1000; ++i) {
    const double start = cpu_ns();
    looks.push_back(cpu_ns() - start);
  }
  return median(looks);
}

struct Use {
  size_t offset;
  size_t len;
  bool outgoing;
};

// A pipe that holds the largest use. Data written through pinned pages comes out of it, and data put into it
// is read through pinned pages. No operation blocks, so the kernel moves the data in the caller.
class Wire {
 public:
  Wire() {
    if (pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0) die("pipe2");
    if (fcntl(ends_[1], F_SETPIPE_SZ, static_cast<int>(kLargestUse)) < 0)
      die("F_SETPIPE_SZ of 1 MiB");
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire() {
    close(ends_[0]);
    close(ends_[1]);
  }
  // The pinned side writes into the first end and reads from the second.
  int into() const { return ends_[1]; }
  int out_of() const { return ends_[0]; }
  bool put(const void* bytes, size_t len) const { return write_all(ends_[1], bytes, len); }
  bool get(void* bytes, size_t len) const { return read_all(ends_[0], bytes, len); }

 private:
  int ends_[2] = {-1, -1};
};

// The working set, and a copy of its expected contents.
class WorkingSet {
 public:
  explicit WorkingSet(bool huge)
      : memory_(kSetBytes, huge ? PageKind::kHuge : PageKind::kSmall),
        mirror_(kSetBytes, PageKind::kSmall),
        arrived_(kLargestUse, PageKind::kSmall) {
    for (size_t i = 0; i < kSetBytes; i += 8) {
      const uint64_t word = (i / 8 + 1) * 0x9e3779b97f4a7c15ULL;
      std::memcpy(mirror_.at(i), &word, 8);
    }
    std::memcpy(memory_.data(), mirror_.data(), kSetBytes);
  }
  std::byte* at(size_t offset) const { return memory_.at(offset); }
  int end_for(Use use) const { return use.outgoing ? wire_.into() : wire_.out_of(); }

  // Before an incoming transfer: fills the wire with data that differs from the memory.
  bool prepare(Use use) {
    if (use.outgoing) return true;
    ++serial_;
    for (size_t i = 0; i < use.len; i += page_bytes()) {
      std::memcpy(mirror_.at(use.offset + i), &serial_, 8);
    }
    return wire_.put(mirror_.at(use.offset), use.len);
  }
  // After a transfer: checks that every byte arrived.
  bool arrived(Use use) {
    const std::byte* there = at(use.offset);
    if (use.outgoing) {
      if (!wire_.get(arrived_.data(), use.len)) return false;
      there = arrived_.data();
    }
    return std::memcmp(there, mirror_.at(use.offset), use.len) == 0;
  }

 private:
  Memory memory_;
  Memory mirror_;
  Memory arrived_;
  Wire wire_;
  uint64_t serial_ = 0;
};

BufferPoolOptions pool_options() {
  BufferPoolOptions options;
  options.smallest_bytes = 64 * kKiB;
  options.largest_bytes = kLargestUse;
  options.counts = {4, 2, 1, 0, 1};  // 1.75 MiB
  return options;
}

hydrant_domain_options_t domain_options() {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar_name = "uring";
  return options;
}

// Moves ranges of the working set; false, and why(), if something failed.
class Mover {
 public:
  explicit Mover(bool huge) : set_(huge) {
    Status status = Status::kOk;
    registrar_ = make_uring_registrar(UringOptions{}, &status);
    // Some kernels return the charges of the previous row's processes with a delay.
    for (int tries = 0; status == Status::kOk && pool_ == nullptr && tries < 2000; ++tries) {
      if (tries != 0) usleep(1000);
      const Status made = BufferPool::create(*registrar_, pool_options(), &pool_);
      if (made != Status::kNotReady) status = made;
    }
    if (pool_ == nullptr) fail(last_error_text());
    domain_.emplace(domain_options());
  }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  ~Mover() {
    for (hydrant_pin_t& pin : held_) give_back(&pin);
  }

  void move(Use use, bool through_pool) {
    if (!set_.prepare(use)) fail("the wire did not take all bytes");
    const double start = cpu_ns();
    move_ns_ = 0.0;
    through_pool ? copy(use) : move_ours(use);
    total_.usable_ns += cpu_ns() - start - move_ns_ - 2 * look_ns_;
    total_.move_ns += move_ns_ - look_ns_;
    total_.bytes += static_cast<double>(use.len);
    total_.uses += 1.0;
    if (!set_.arrived(use)) fail("the received bytes differ from the sent ones");
  }
  // Totals of all uses so far.
  Answer total() const {
    Answer total = total_;
    const hydrant_stats_t stats = domain_->stats();
    total.registrations = static_cast<double>(stats.pins);
    total.refused = static_cast<double>(stats.pin_failures);
    total.budget_kib = static_cast<double>(stats.budget_bytes / kKiB);
    why_.copy(total.failure, sizeof total.failure - 1);
    return total;
  }

 private:
  void move_ours(Use use) {
    now_held_ = &held_[uses_++ % kOutstanding];
    give_back(now_held_);
    const CopyPinTuner::Turn turn = tuner_.choose(use.len);
    const uint64_t since = turn.timed ? now_ns() : 0;
    turn.way == CopyPinTuner::Way::kCopy ? copy(use) : move_pinned(use, turn.way);
    if (turn.timed) tuner_.note(turn, use.len, now_ns() - since);
  }
  void move_pinned(Use use, CopyPinTuner::Way way) {
    std::byte* addr = set_.at(use.offset);
    const uint32_t access = use.outgoing ? HYDRANT_LOCAL_READ : HYDRANT_LOCAL_WRITE;
    const auto take = way == CopyPinTuner::Way::kIfPinned ? &hydrant_try_pin : &hydrant_pin;
    const hydrant_pin_t pin = take(domain_->get(), addr, use.len, access);
    if (pin.region == nullptr) {
      if (hydrant_pin_status(pin) != GASNET_ERR_NOT_READY) return fail(hydrant_error_text());
      return copy(use);
    }
    *now_held_ = pin;
    const double start = cpu_ns();
    const int status =
        hydrant_uring_move(pin, addr, use.len, set_.end_for(use), 0, use.outgoing ? 1 : 0);
    move_ns_ = cpu_ns() - start;
    if (status != GASNET_OK) fail(hydrant_error_text());
  }
  void copy(Use use) {
    total_.copied += 1.0;
    PoolBuffer buffer;
    if (pool_->take(use.len, &buffer) != Status::kOk) return fail("the pool has no buffer");
    const MemoryRange range{reinterpret_cast<uintptr_t>(buffer.addr), use.len};
    if (use.outgoing) std::memcpy(buffer.addr, set_.at(use.offset), use.len);
    const double start = cpu_ns();
    const Status status = registrar_->move(buffer.key, range, set_.end_for(use), 0, use.outgoing);
    move_ns_ = cpu_ns() - start;
    if (status != Status::kOk) fail(last_error_text());
    if (!use.outgoing) std::memcpy(set_.at(use.offset), buffer.addr, use.len);
    if (pool_->release_buffer(buffer.addr) != Status::kOk) fail(last_error_text());
  }
  void give_back(hydrant_pin_t* pin) {
    if (pin->region != nullptr && hydrant_release(*pin) != GASNET_OK) fail(hydrant_error_text());
    *pin = {};
  }
  void fail(const char* what) {
    if (why_.empty()) why_ = std::string("failed: ") + what;
  }

  WorkingSet set_;
  std::unique_ptr<UringRegistrar> registrar_;
  std::unique_ptr<BufferPool> pool_;
  std::optional<Domain> domain_;
  hydrant_pin_t held_[kOutstanding] = {};  // pins of the last uses; null: that use was copied
  hydrant_pin_t* now_held_ = nullptr;
  uint64_t uses_ = 0;
  CopyPinTuner tuner_;
  Answer total_;
  double move_ns_ = 0.0;  // time of the last transfer
  const double look_ns_ = cost_of_a_look();
  std::string why_;
};

// The uses of a sample, the same for both sides.
std::vector<Use> uses_of(const Request& request) {
  std::mt19937_64 random(request.sample);
  const size_t page = page_bytes();
  std::uniform_real_distribution<double> exponent(
      0.0, std::log2(static_cast<double>(kLargestUse / page)));
  std::vector<Use> uses;
  size_t next = request.sample * request.sample_bytes % kSetBytes;
  for (size_t moved = 0; moved < request.sample_bytes; moved += uses.back().len) {
    const auto pages = static_cast<size_t>(std::exp2(exponent(random)) + 0.5);
    const size_t len = request.bytes != 0 ? request.bytes : pages * page;
    const bool hot = request.how == How::kHot && random() % 10 != 0;
    size_t offset = random() % (((hot ? kHotBytes : kSetBytes) - len) / page + 1) * page;
    if (request.how == How::kSequential) {
      offset = next + len > kSetBytes ? 0 : next;
      next = offset + len;
    }
    uses.push_back({offset, len, uses.size() % 2 == 0});
  }
  return uses;
}

void serve_one(const Request& request, std::unique_ptr<Mover>* mover, std::vector<Use>* uses,
               Answer* answer) {
  const OnCore here(0);
  if (*mover == nullptr) {
    *mover = std::make_unique<Mover>(request.huge != 0);
  }
  *uses = uses_of(request);
  const Answer before = (*mover)->total();
  for (const Use use : *uses) {
    if (before.failure[0] == '\0') (*mover)->move(use, request.through_pool + request.no_pins != 0);
  }
  *answer = (*mover)->total();
  answer->usable_ns -= before.usable_ns;
  answer->move_ns -= before.move_ns;
  answer->bytes -= before.bytes;
  answer->uses -= before.uses;
  answer->copied -= before.copied;
  answer->registrations -= before.registrations;
  answer->refused -= before.refused;
}

int serve() {
  const std::string refusal = become_ordinary_user(kMemlockBytes);
  std::unique_ptr<Mover> mover;
  std::vector<Use> uses;
  Request request;
  while (read_all(STDIN_FILENO, &request, sizeof request)) {
    Answer answer;
    if (refusal.empty()) {
      serve_one(request, &mover, &uses, &answer);
    } else {
      refusal.copy(answer.failure, sizeof answer.failure - 1);
    }
    if (!write_all(STDOUT_FILENO, &answer, sizeof answer)) return 1;
  }
  return 0;
}

// ---- the parent ----

// The results of one side in one repetition, by sample.
struct Sums {
  std::vector<double> gib_s;
  std::vector<double> usable_ns;  // per use
  std::vector<double> total_ns;   // per use
  double uses = 0.0, copied = 0.0, registrations = 0.0, refused = 0.0, budget_kib = 0.0;

  void add(const Answer& answer) {
    const double ns = std::max(answer.usable_ns + answer.move_ns, 1.0);
    gib_s.push_back(answer.bytes / static_cast<double>(kGiB) / (ns * 1e-9));
    usable_ns.push_back(answer.usable_ns / std::max(answer.uses, 1.0));
    total_ns.push_back(ns / std::max(answer.uses, 1.0));
    uses += answer.uses;
    copied += answer.copied;
    registrations += answer.registrations;
    refused += answer.refused;
    budget_kib = answer.budget_kib;
  }
};

// Each ratio covers two samples, one of each order, because the second of a pair finds warm caches.
double median_ratio(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> ratios;
  for (size_t i = 1; i < above.size(); i += 2) {
    ratios.push_back((above[i - 1] + above[i]) / std::max(below[i - 1] + below[i], 1e-9));
  }
  return median(ratios);
}

void report(benchmark::State& state, const Sums& ours, const Sums& pool) {
  const double uses = std::max(ours.uses, 1.0);
  set_counter(state, "ours_gib_s", median(ours.gib_s));
  set_counter(state, "pool_gib_s", median(pool.gib_s));
  set_counter(state, "ratio", median_ratio(pool.total_ns, ours.total_ns));
  set_counter(state, "ours_usable_ns", median(ours.usable_ns));
  set_counter(state, "pool_usable_ns", median(pool.usable_ns));
  set_counter(state, "usable_ratio", median_ratio(pool.usable_ns, ours.usable_ns));
  set_counter(state, "copied_percent", 100.0 * ours.copied / uses);
  set_counter(state, "registrations_per_use", ours.registrations / uses);
  set_counter(state, "kernel_said_no", ours.refused);
  set_counter(state, "budget_kib", ours.budget_kib);
}

Request g_like;  // template with the options' values

void measure(benchmark::State& state, Request request) {
  request.sample_bytes = g_like.sample_bytes;
  request.no_pins = g_like.no_pins;
  const ServingChild child("ordinary-user", "");
  std::string failure;
  const auto ask = [&](bool through_pool) {
    request.through_pool = through_pool ? 1 : 0;
    Answer answer;
    if (!child.send(&request, sizeof request) || !child.receive(&answer, sizeof answer)) {
      failure = "failed: a child ended";
    } else if (answer.failure[0] != '\0') {
      failure = answer.failure;
    }
    return answer;
  };
  ask(true);
  const bool quick = request.sample_bytes < kMovedPerSample;
  const size_t uses = (quick ? kQuickLearning : kLearningUses) * (request.bytes != 0 ? 1 : 9);
  for (double learnt = 0.0; learnt < static_cast<double>(uses);) {
    learnt += std::max(ask(false).uses, 1.0);
    ++request.sample;
  }
  Sums ours;
  Sums pool;
  size_t turn = 0;
  for (auto _ : state) {
    if (failure.empty()) {
      alternate(
          turn++, [&] { ours.add(ask(false)); }, [&] { pool.add(ask(true)); });
      ++request.sample;
    }
    state.SetIterationTime(ours.total_ns.empty() ? 0.0 : ours.total_ns.back() * 1e-9);
  }
  if (!failure.empty()) return state.SkipWithError(failure.c_str());
  report(state, ours, pool);
}

void add_row(const std::string& bytes_name, uint64_t bytes, const char* how_name, How how,
             bool huge) {
  const std::string name =
      "memlock/bytes:" + bytes_name + "/access:" + how_name + "/pages:" + (huge ? "huge" : "small");
  const std::string refusal = uring_refusal();
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 if (!refusal.empty()) return state.SkipWithError(refusal.c_str());
                                 measure(state, {0, 0, huge ? 1u : 0u, how, 0, bytes, 0});
                               })
      ->UseManualTime()
      ->Iterations(g_like.sample_bytes < kMovedPerSample ? kQuickRounds : kRounds)
      ->Unit(benchmark::kNanosecond);
}

void add_all_rows() {
  add_row("4096", 4 * kKiB, "random", How::kRandom, false);
  add_row("65536", 64 * kKiB, "random", How::kRandom, false);
  add_row("1048576", 1 * kMiB, "random", How::kRandom, false);
  add_row("mixed", 0, "random", How::kRandom, false);
  add_row("mixed", 0, "hot", How::kHot, false);
  add_row("mixed", 0, "sequential", How::kSequential, false);
  add_row("mixed", 0, "random", How::kRandom, true);
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  if (argc > 1 && std::strncmp(argv[1], "--serve=", 8) == 0) return hydrant::bench::serve();
  using namespace hydrant::bench;
  g_like.sample_bytes = kMovedPerSample;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      g_like.sample_bytes = kQuickSample;
    } else if (std::strcmp(argv[i], "--no-pins") == 0) {
      g_like.no_pins = 1;
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  add_all_rows();
  return run_program(argc, argv, "0.01");
}
