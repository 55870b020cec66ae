// The hunt for stale pins in UCX's registration cache (ucs_rcache of libucs, used like its transports use
// it), with UCX's own memory hooks and registrations by the same io_uring calls as this library's. The result
// does not cover UCX with a device that can fault, nor the kinds of memory that are left out.
//
// With --ours it hunts in this library's cache, while UCX's cache works in the same process on the same
// memory with all its hooks installed: neither may disturb the other.
//
// A separate program, because UCX installs its hooks when it is loaded. stale_hunt --peer runs it. Left out
// by default: files in memory (UCX does not claim to watch those), sources that belong to this library
// (owner, arena, vouched), and forks. The last line is that of stale_hunt. Exit status: 0 if the hunt ran,
// whatever it found in UCX's cache; 1 if --ours was not clean; 2 usage; 77 no io_uring or UCX.
#include "bench/support/hunt_report.hpp"
#include "bench/support/option_error.hpp"
#include "bench/support/ucx_rcache.hpp"
#include "firehose/registrars/uring/uring_registrar.hpp"
#include "tests/stale/hunt/hunt.hpp"
#include "tests/stale/hunt/hydrant_cache.hpp"

#include <CLI/CLI.hpp>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <ucm/api/ucm.h>

namespace hydrant::stale {
namespace {

constexpr size_t kKeyBytes = 16;
constexpr int kDirty = 1;
constexpr int kUsage = 2;
constexpr int kSkipped = 77;

struct Region {
  ucs_rcache_region_t super;  // must come first: UCX hands out pointers to it
  alignas(8) std::byte key[kKeyBytes];
};

class UcxCache final : public Cache {
 public:
  explicit UcxCache(std::unique_ptr<UringRegistrar> uring) : uring_(std::move(uring)) {
    static const ucs_rcache_ops_t ops = bench::ucx_operations(&UcxCache::reg, &UcxCache::dereg);
    ucs_rcache_params_t params =
        bench::ucx_params(sizeof(Region), &ops, this, bench::UcxLimits::kNone);
    params.ucm_events = UCM_EVENT_VM_UNMAPPED;
    if (ucs_rcache_create(&params, "hunt", nullptr, &cache_) != UCS_OK) cache_ = nullptr;
  }
  ~UcxCache() override {
    if (cache_ != nullptr) ucs_rcache_destroy(cache_);
  }
  bool works() const { return cache_ != nullptr; }

  const char* name() const override { return "ucx"; }
  bool wants_announcements() const override { return false; }
  Coverage coverage(Range) override { return Coverage::kWatched; }
  bool survives_bystanders() const override { return false; }
  bool survives_fork() const override { return false; }

  PinAnswer pin(How how, Range range, Hold* hold) override {
    if (how == How::kTry || how == How::kPartial)
      return PinAnswer::kNotNow;  // ucs_rcache has no such calls
    ucs_rcache_region_t* region = nullptr;
    const ucs_status_t status =
        bench::ucx_get(cache_, reinterpret_cast<void*>(range.addr), range.len, &region);
    if (status != UCS_OK) return PinAnswer::kNotNow;
    *hold = {region, 0, {region->super.start, region->super.end - region->super.start}};
    return PinAnswer::kHeld;
  }
  PinAnswer pin_many(const Range* ranges, size_t n, Hold* holds) override {
    for (size_t i = 0; i < n; ++i) {
      if (pin(How::kPin, ranges[i], &holds[i]) == PinAnswer::kHeld) continue;
      while (i-- > 0) release(holds[i]);
      return PinAnswer::kNotNow;
    }
    return PinAnswer::kHeld;
  }
  void release(const Hold& hold) override {
    ucs_rcache_region_put(cache_, const_cast<ucs_rcache_region_t*>(
                                      static_cast<const ucs_rcache_region_t*>(hold.object)));
  }
  bool move(const Hold& hold, Range bytes, int file, bool to_file, std::string* error) override {
    const auto* region = static_cast<const Region*>(hold.object);
    if (uring_->move(region->key, {bytes.addr, bytes.len}, file, 0, to_file) == Status::kOk) {
      return true;
    }
    *error = last_error_text();
    return false;
  }
  void announce(Range) override {}
  bool vouch(Range, bool) override { return false; }
  void poll() override {}
  void flush() override {}

 private:
  static MemoryRange range_of(const ucs_rcache_region_t* region) {
    return {region->super.start, region->super.end - region->super.start};
  }
  static ucs_status_t reg(void* self, ucs_rcache_t*, void*, ucs_rcache_region_t* region, uint16_t) {
    const Status status = static_cast<UcxCache*>(self)->uring_->pin(
        range_of(region), Access::kLocalWrite, reinterpret_cast<Region*>(region)->key);
    return status == Status::kOk ? UCS_OK : UCS_ERR_IO_ERROR;
  }
  static void dereg(void* self, ucs_rcache_t*, ucs_rcache_region_t* region) {
    (void)static_cast<UcxCache*>(self)->uring_->unpin(range_of(region),
                                                      reinterpret_cast<Region*>(region)->key);
  }

  std::unique_ptr<UringRegistrar> uring_;
  ucs_rcache_t* cache_ = nullptr;
};

// UCX 1.13 interposes mremap() with a function of four arguments and loses the fifth, the new address.
bool hint_is_honoured() {
  constexpr size_t kBytes = 8192;
  constexpr int kHow = MAP_PRIVATE | MAP_ANONYMOUS;
  void* from = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, kHow, -1, 0);
  void* to = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, kHow, -1, 0);
  void* moved = mremap(from, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
  if (moved == to) from = MAP_FAILED;
  for (void* mapped : {from, to, moved}) {
    if (mapped != MAP_FAILED) munmap(mapped, kBytes);
  }
  return moved == to;
}

// This library's cache, beside a UCX cache that pins the same memory each time.
class BesideUcx final : public Cache {
 public:
  BesideUcx(std::unique_ptr<Cache> ours, UcxCache* ucx) : ours_(std::move(ours)), ucx_(*ucx) {}

  const char* name() const override { return "hydrant beside ucx"; }
  bool wants_announcements() const override { return ours_->wants_announcements(); }
  Coverage coverage(Range range) override { return ours_->coverage(range); }
  bool survives_bystanders() const override { return ours_->survives_bystanders(); }
  bool survives_handlers() const override { return false; }  // UCX's own hooks would run in them
  bool survives_fork() const override { return false; }      // UCX's cache does not

  PinAnswer pin(How how, Range range, Hold* hold) override {
    Hold theirs{};
    if (ucx_.pin(How::kPin, range, &theirs) == PinAnswer::kHeld) ucx_.release(theirs);
    return ours_->pin(how, range, hold);
  }
  PinAnswer pin_many(const Range* ranges, size_t n, Hold* holds) override {
    return ours_->pin_many(ranges, n, holds);
  }
  void release(const Hold& hold) override { ours_->release(hold); }
  bool move(const Hold& hold, Range bytes, int file, bool to_file, std::string* error) override {
    return ours_->move(hold, bytes, file, to_file, error);
  }
  void announce(Range range) override { ours_->announce(range); }
  bool vouch(Range range, bool on) override { return ours_->vouch(range, on); }
  void poll() override { ours_->poll(); }
  void flush() override { ours_->flush(); }

 private:
  std::unique_ptr<Cache> ours_;
  UcxCache& ucx_;
};

int skip(const char* reason) {
  std::printf("skipped: %s\n", reason);
  return kSkipped;
}

int main_of(int argc, char** argv) {
  CLI::App app{"Hunts for stale pins in UCX's registration cache.", "stale_hunt_ucx"};
  HuntOptions options;
  options.seed = std::random_device{}() | 1;
  std::string sources = "-memfd,-vouched,-owner,-arena,-fork";
  bool ours = false;
  app.add_option("--seconds", options.seconds, "Length of the hunt in seconds");
  app.add_option("--operations", options.operations, "Number of operations");
  app.add_option("--threads", options.threads, "Number of threads")->check(CLI::Range(1, 64));
  app.add_option("--slots", options.slots, "Number of address slots for mappings")
      ->check(CLI::Range(1, 16384));
  app.add_option("--blocks", options.blocks, "Most blocks that a thread owns")
      ->check(CLI::Range(1, 4096));
  app.add_option("--seed", options.seed, "Seed of the random numbers");
  app.add_option("--sources", sources, "Kinds of memory, as for stale_hunt");
  app.add_flag("--ours", ours, "Hunt in this library's cache, beside UCX's in the same process");
  app.failure_message(bench::option_error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  std::string error;
  if (!parse_sources(sources, &options.sources, &error)) {
    std::fprintf(stderr, "--sources: %s\n", error.c_str());
    return kUsage;
  }
  if (options.seconds <= 0 && options.operations == 0) options.seconds = 10;
  auto status = Status::kOk;
  std::unique_ptr<UringRegistrar> uring = make_uring_registrar({}, &status);
  if (uring == nullptr || uring->traits().key_bytes > kKeyBytes) return skip(last_error_text());
  UcxCache cache(std::move(uring));
  if (!cache.works()) return skip("ucs_rcache_create failed");
  if (options.sources.has(Source::kOnto) && !hint_is_honoured()) {
    std::printf("skipped onto: with UCX's hooks mremap() ignores the new address\n");
    options.sources.drop(Source::kOnto);
  }
  std::unique_ptr<Cache> beside;
  if (ours) {
    std::unique_ptr<Cache> hydrant = make_hydrant_cache({}, &error);
    if (hydrant == nullptr) return skip(error.c_str());
    beside = std::make_unique<BesideUcx>(std::move(hydrant), &cache);
  }
  const HuntResult result = run_hunt(options, ours ? *beside : cache);
  std::printf("%sUCX %s, seed %" PRIu64 ", %u threads\n", ours ? "ours, beside " : "",
              HYDRANT_UCX_VERSION, options.seed, options.threads);
  print(result);
  print_last_line(stdout, result.counts, 0, 0);
  return ours && !result.clean() ? kDirty : 0;
}

}  // namespace
}  // namespace hydrant::stale

int main(int argc, char** argv) { return hydrant::stale::main_of(argc, argv); }
