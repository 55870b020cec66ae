// A domain: one cache over one registrar. Region and page mode differ in their tables (pin_table.hpp) and
// in that page mode answers requests of several buckets with a span (domain_span.cpp).
//
// Where to read on: hits in hit_path.cpp and hold.hpp; misses in domain_acquire.cpp, what they register in
// domain_plan.cpp; budget, victims and deregistration in domain_budget.cpp; what the monitor says in
// domain_watch.cpp; release, invalidate and flush in domain_release.cpp; deferred pins in domain_async.cpp;
// what remote pins need in domain_exports.cpp (target) and domain_distant.cpp (initiator); life, threads and
// fork in domain.cpp. States and invariants: docs/pin_cache.md.
//
// Thread safety: every public method from any thread; mu_ is never held while the registrar, a callback or
// malloc is called, nor while anybody waits for somebody's hold.
#pragma once

#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>

#include "firehose/base/registrar.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/gone_log.hpp"
#include "firehose/page_table.hpp"
#include "firehose/range_set.hpp"
#include "firehose/region_info.hpp"
#include "firehose/region_table.hpp"
#include "firehose/slot_arena.hpp"
#include "firehose/span_table.hpp"
#include "firehose/stream_detector.hpp"
#include "firehose/thread_state.hpp"
#include "firehose/victim_policy.hpp"
#include "firehose/watch/mapping_query.hpp"

#include <atomic>
#include <memory>

namespace hydrant {

class UringRegistrar;

struct DomainConfig {
  char name[32] = "";
  uint32_t mode = HYDRANT_MODE_REGION;
  uint32_t watch = HYDRANT_WATCH_CLIENT;
  Access eager = Access::kLocalRead;
  uint64_t budget_bytes = 0;
  uint32_t max_regions = 0;
  size_t max_region_bytes = 0;
  size_t granule_bytes = 4096;  // page mode: the bucket
  size_t merge_bytes = 0;
  size_t stream_bytes =
      0;  // longest registration that a stream's misses lead to; 0: no longer ones
  size_t thread_table_bytes = 0;
  uint64_t wait_warn_ns = 0;
  UringRegistrar* uring = nullptr;  // the registrar, if it is this one
  bool distant = false;             // the memory is another process's: remote_peer.hpp
};

class Domain {
 public:
  // May this call register, and wait for a registration that another thread has under way?
  enum class Effort {
    kHitOnly,
    kRegister,
    kRegisterSparingly,  // as above; but nothing beside it once half of the budget is in use
  };

  Domain(const DomainConfig& config, std::unique_ptr<Registrar> registrar,
         std::unique_ptr<VictimPolicy> policy, uint64_t handle) noexcept;
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  // Slots of a domain with so many regions: blank and dead regions need some beside them.
  static constexpr uint32_t slots_for(uint32_t max_regions) noexcept {
    return max_regions + max_regions / 2 + 256;
  }

  // Reserves the tables. kResource when memory is refused.
  Status set_up() noexcept HYDRANT_EXCLUDES(mu_);
  // Has the monitor tell this domain what goes away. Requires: watch is auto, before it is published.
  Status start_watching() noexcept;
  void stop_watching() noexcept;
  // Adds a registration of the client's own. Requires: before the domain is published.
  Status add_prepinned(MemoryRange range, Access access, const void* key) noexcept;
  // Cancels deferred pins, unpins if asked, detaches all threads. Requires: registry_mutex() not held,
  // nobody else inside a call.
  void shut_down(bool unpin) noexcept;

  uint64_t handle() const noexcept { return handle_; }
  const DomainConfig& config() const noexcept { return config_; }
  Registrar& registrar() const noexcept { return *registrar_; }

  // One region that covers `range`; its hold is the caller's. *out is unchanged on failure.
  // The deadline (now_ns()) bounds the wait for another thread's registration of the same memory.
  Status pin(MemoryRange range, Access need, Effort effort, const RegionSlot** out,
             uint64_t deadline_ns = UINT64_MAX) noexcept;
  Status pin_until(MemoryRange range, Access need, uint64_t timeout_ns,
                   const RegionSlot** out) noexcept;
  Status pin_many(const hydrant_range_t* ranges, size_t n, Access need,
                  const RegionSlot** out) noexcept;
  Status pin_partial(MemoryRange range, Access need, const RegionSlot** out) noexcept;
  Status pin_async(MemoryRange range, Access need, hydrant_pinned_fn done, void* context) noexcept;

  // Whatever release cannot do by itself: other window, dead region, span. Requires: contains(slot).
  Status release(const RegionSlot* slot) noexcept;
  bool contains(const RegionSlot* slot) const noexcept { return arena_.contains(slot); }
  const SlotArena& arena() const noexcept { return arena_; }

  Status invalidate(MemoryRange range) noexcept;
  Status vouch(MemoryRange range, bool on) noexcept;
  // HYDRANT_COVERAGE_*: what a pin of this range would get now.
  Status coverage(MemoryRange range, uint32_t* out) noexcept;
  int poll() noexcept;
  void poll_briefly(uint64_t deadline_ns) noexcept;
  void flush() noexcept;

  // Parts of a pin: 1, or the buckets of a span. 0 if the slot is not live.
  size_t parts(const RegionSlot* slot, size_t i, hydrant_region_t* part) noexcept;
  // Key and range of a live, single region; false otherwise.
  bool describe(const RegionSlot* slot, MemoryRange* range, const std::byte** key) noexcept;
  void read_stats(hydrant_stats_t* stats) noexcept;

  // --- for peers (domain_exports.cpp) ---
  // What is known of a live pin, of one part or several, that is to be exported.
  struct Exported {
    MemoryRange range;
    const std::byte* key = nullptr;  // null where there is none, or several
    bool cached = false;             // somebody will say when it goes away
    bool checked = false;            // the kernel alone says it: settle_releases(true)
  };
  bool describe_export(const RegionSlot* slot, MemoryRange asked, Exported* out) noexcept;
  // Unpins those that nobody holds, if there is no room for `bytes`: they were released because of that.
  // (Among many that are held the policy would have to look for them.)
  void drop_idle(const RegionSlot* const* slots, size_t n, uint64_t bytes) noexcept;
  // Ranges of registered memory that went away.
  const GoneLog& gone() const noexcept { return gone_; }
  // Whatever was released before the call is in gone() afterwards; false if that takes too long. `checked`:
  // also where only the kernel says it, which costs a system call.
  bool settle_releases(bool checked) noexcept;
  // Pins that failed because what is registered is held.
  uint64_t starved() const noexcept { return starved_.load(std::memory_order_relaxed); }

  // --- threads and forks (domain.cpp) ---
  // The calling thread's state, in the window; null for a thread past its end or without memory.
  ThreadDomain* enter() noexcept;
  // What the calling thread was given before this call, its stack above all, is new memory to the cache
  // afterwards: threads that libc starts by itself pass no hook. No lock of ours is held, and the caller's
  // locks do not matter: the monitor's reader takes none of them.
  void begin_in_step() noexcept;
  // Folds a thread's holds and counters into the domain and forgets it. Under registry_mutex().
  void detach_thread(ThreadDomain& state) noexcept;
  // True unless this process is a child that was forked without our handlers having run.
  bool alive() const noexcept {
    return arena_.slots[kNoRegion].alive.load(std::memory_order_acquire) == kSlotAlive;
  }
  void lock_for_fork() noexcept HYDRANT_NO_TSA { mu_.lock(); }
  void unlock_after_fork() noexcept HYDRANT_NO_TSA { mu_.unlock(); }
  void reset_in_child() noexcept;

 private:
  // Budget taken for a registration, and the victims that pay for it.
  struct Reservation {
    uint64_t charge = 0;
    uint32_t regions = 0;
    uint64_t excess_charge = 0;  // freed beyond need; given back once the victims are unpinned
    uint32_t excess_regions = 0;
    uint64_t regrown_budget = 0;  // not 0: the budget in force has just become this much
    RegionQueue victims;
  };
  // One attempt to pin.
  struct Want {
    MemoryRange range;
    MemoryRange pages;  // range rounded out
    Access need;
    ThreadDomain* thread;
    Effort effort;
    Reservation* prepaid = nullptr;  // pin_many: reserved already
    uint64_t deadline_ns = UINT64_MAX;
    bool may_wait = true;       // for a registration that another thread has under way
    bool asynchronous = false;  // the registration may complete later: kNotReady meanwhile
    bool exact = false;         // do not extend: the extended range was refused
    bool plain = false;         // do not ask for eager rights: they were refused
    bool quiet = false;         // the monitor knew of no change under way since this call began
    bool must_ask = false;      // there is something that it may take, once the monitor was asked
    bool restless = false;      // it went on too long: what needs the check is not used
    bool waited_long = false;   // wait_for_pending_locked() has something to say
    bool saw_pending = false;   // that is what it would have had to wait for
    uint32_t no_budget = 0;     // times the registrar had no budget
    bool noted = false;         // the stream detector knows of this miss; what it said:
    StreamDetector::Advice advice{};
  };
  struct Plan {
    MemoryRange range;
    Access access;
    uint64_t charge = 0;
    RegionIndex region = kNoRegion;
    bool vouched = false;
    bool request_vouched = false;  // if no more were registered than was asked for
    bool stream = false;           // the range is longer because of a stream
    bool down = false;             // at its start
    bool huge_pages = false;   // the range was rounded out to huge pages, which cost nothing more
    bool evicted = false;      // others were evicted for it
    bool once = false;         // not to be cached
    uint64_t extra_bytes = 0;  // that the stream has added
    uint32_t cover = HYDRANT_COVER_NONE;  // what the monitor says of the range
    Reservation reservation;
  };
  enum class Step { kDone, kAgain, kRegister };
  struct DeferredPin;
  struct LateRegistration;

 public:
  // --- memory of another process (domain_distant.cpp) ---
  // A registration that somebody else makes: begun here, and ended with what he answers.
  class Distant {
   public:
    bool begun() const noexcept { return begun_; }
    // Not begun, because another one that covers it is under way.
    bool joins() const noexcept { return joins_; }
    MemoryRange least() const noexcept { return want_.pages; }   // is asked for
    MemoryRange wanted() const noexcept { return plan_.range; }  // would be welcome
    Access access() const noexcept { return plan_.access; }
    uint64_t charge() const noexcept { return plan_.charge; }
    bool evicted() const noexcept { return plan_.evicted; }  // others were given up for it

   private:
    friend class Domain;
    Want want_{};
    Plan plan_{};
    bool begun_ = false, joins_ = false;
  };
  // What the other side has granted; `range` contains least().
  struct Grant {
    MemoryRange range;
    uint64_t charge = 0;  // of the lease: at most pin.charge()
    const std::byte* key = nullptr;
    bool once = false;  // for this use alone: it is not cached
  };
  // kOk: *out is held. kNotReady: pin->begun(), and the caller asks the other side and calls end_distant()
  // once; or not, and pin->joins() tells why.
  Status begin_distant(MemoryRange range, Access need, Distant* pin,
                       const RegionSlot** out) noexcept;
  // `status` is the other side's answer. kOk: *out is held. kNotReady also where it was taken back meanwhile.
  Status end_distant(Distant& pin, Status status, const Grant& grant,
                     const RegionSlot** out) noexcept;
  // The budget in force, from now on. What is beyond it and not held goes at once.
  void set_lease(uint64_t bytes) noexcept;
  // Gives up regions that nobody holds, worth so much if there are as many.
  void give_up(uint64_t bytes) noexcept;
  // Is there a region that was taken back and is held, not there yet, or not given to unpin() yet? Looks at
  // all.
  bool is_ending() noexcept;

 private:
  // --- set_up() (domain.cpp) ---
  bool map_slots() noexcept;
  bool make_tables() noexcept;

  // --- lookup (domain_acquire.cpp) ---
  const RegionSlot* hold_without_lock(ThreadDomain& thread, const Want& want) noexcept;
  RegionIndex find_locked(MemoryRange range, Access need) HYDRANT_REQUIRES(mu_);
  void reopen_locked(RegionIndex region) HYDRANT_REQUIRES(mu_);
  void take_locked(ThreadDomain* thread, RegionIndex region) HYDRANT_REQUIRES(mu_);
  uint32_t drop_locked(ThreadDomain* thread, RegionIndex region) HYDRANT_REQUIRES(mu_);
  uint32_t holds_locked(RegionIndex region) const HYDRANT_REQUIRES(mu_);
  // The same of a region shut before the last fence. Fewer than none prove that a pin was released more often
  // than it was taken: that is remembered for the log, and the sum becomes 0.
  uint32_t settled_holds_locked(RegionIndex region) HYDRANT_REQUIRES(mu_);

  // --- misses (domain_acquire.cpp) ---
  Status check_range(MemoryRange range) const noexcept;
  Status fail_too_large(MemoryRange asked) const noexcept;
  Status acquire(Want& want, const RegionSlot** out) noexcept;
  Step look_locked(Want& want, Status* status, RegionIndex* held) HYDRANT_REQUIRES(mu_);
  bool known_refused_locked(MemoryRange range, Access access) const HYDRANT_REQUIRES(mu_);
  Step prepare(Want& want, Plan* plan, Status* status, RegionIndex* held) noexcept;
  Status claim_locked(Want& want, uint64_t kernel_pending, Plan* plan) HYDRANT_REQUIRES(mu_);
  Status pay_with_victims(Reservation* reservation) noexcept;
  void abandon_locked(const Want& want, const Plan& plan) HYDRANT_REQUIRES(mu_);
  Status run_registration(Want& want, const Plan& plan, bool* again, RegionIndex* held) noexcept;
  Status finish_registration(const Want& want, const Plan& plan, Status status, bool* again,
                             RegionIndex* held) noexcept;
  Status after_failure(Want& want, const Plan& plan, Status status, bool* again) noexcept;
  Status after_no_budget(Want& want, const Plan& plan, bool* again) noexcept;
  static void registered_later(void* context, Status status, const std::byte* key);
  void publish_locked(const Plan& plan, bool cacheable) HYDRANT_REQUIRES(mu_);
  bool bury_covered_locked(const Plan& plan) HYDRANT_REQUIRES(mu_);
  void wait_for_pending_locked(Want& want) HYDRANT_REQUIRES(mu_);
  RegionIndex pending_covering_locked(const Want& want) const HYDRANT_REQUIRES(mu_);
  Status pin_one(Want& want, const RegionSlot** out) noexcept;
  Want make_want(MemoryRange range, Access need, Effort effort,
                 ThreadDomain* thread) const noexcept;
  void count_outcome(ThreadDomain* thread, Status status) noexcept;

  // --- what a miss registers (domain_plan.cpp) ---
  void plan_locked(Want& want, Plan* plan) HYDRANT_REQUIRES(mu_);
  void extend_locked(Plan* plan) HYDRANT_REQUIRES(mu_);
  bool bridge_locked(Plan* plan) HYDRANT_REQUIRES(mu_);
  bool join_neighbour_locked(RegionIndex neighbour, size_t most, Plan* plan) HYDRANT_REQUIRES(mu_);
  bool follow_stream_locked(Want& want, Plan* plan) HYDRANT_REQUIRES(mu_);
  MemoryRange without_registered_locked(MemoryRange pages, MemoryRange range) HYDRANT_REQUIRES(mu_);
  void enter_extension_locked(const Plan& plan) HYDRANT_REQUIRES(mu_);
  void judge_extension_locked(RegionIndex region) HYDRANT_REQUIRES(mu_);
  void give_up_extension_locked(const Want& want, const Plan& plan, bool refused)
      HYDRANT_REQUIRES(mu_);
  void keep_to_mapping(const Want& want, Plan* plan) const noexcept;
  void widen_to_huge_pages(const Want& want, Plan* plan) const noexcept;
  static bool is_beyond_need(const Want& want, const Plan& plan) noexcept;
  void note_reached(RegionSlot& s, MemoryRange pages) const noexcept;
  void open_mappings() noexcept;

  bool invalidate_some(MemoryRange range, bool first) noexcept;

  // --- the monitor (domain_watch.cpp) ---
  bool look_checked(Want& want, const RegionSlot** out) noexcept;
  bool become_quiet(Want& want) noexcept;
  bool cover(const Want& want, Plan* plan) noexcept;
  bool may_be_cached(const Plan& plan) noexcept;
  void unlist_locked(RegionIndex region) HYDRANT_REQUIRES(mu_);
  void doom_locked(RegionIndex region) HYDRANT_REQUIRES(mu_);
  template <class Doomed>
  void doom_where(const Doomed& doomed) HYDRANT_REQUIRES(mu_);
  void forget(MemoryRange range) noexcept;
  void forget_vouched() noexcept;
  bool any_pinned(MemoryRange range) noexcept;
  bool note_gone_locked(MemoryRange range, bool found) HYDRANT_REQUIRES(mu_);

  // --- budget (domain_budget.cpp) ---
  // `asked` is for the text: the request, or the first of several.
  Status reserve_locked(MemoryRange asked, uint64_t charge, uint32_t regions, uint64_t pending,
                        Reservation* out) HYDRANT_REQUIRES(mu_);
  // Retires unheld regions worth at least the shortage, or none at all.
  bool evict_locked(uint64_t bytes, uint32_t regions, RegionQueue* victims) HYDRANT_REQUIRES(mu_);
  bool victims_may_suffice_locked(uint64_t bytes, uint32_t regions) HYDRANT_REQUIRES(mu_);
  size_t smallest_first_locked(RegionIndex* batch, size_t n, uint64_t bytes) HYDRANT_REQUIRES(mu_);
  void choose_victims_locked(uint64_t bytes, uint32_t regions, RegionQueue* chosen, uint64_t* got)
      HYDRANT_REQUIRES(mu_);
  void give_back_locked(Reservation* reservation) HYDRANT_REQUIRES(mu_);
  bool shut_locked(RegionIndex region) HYDRANT_REQUIRES(mu_);
  void fence_locked() HYDRANT_REQUIRES(mu_);
  void watch_more_locked() HYDRANT_REQUIRES(mu_);
  bool evictable_locked(RegionIndex region) const HYDRANT_REQUIRES(mu_);
  size_t keep_likely_victims_locked(RegionIndex* batch, size_t n) HYDRANT_REQUIRES(mu_);
  RegionIndex allocate_locked() HYDRANT_REQUIRES(mu_);
  void retire_locked(RegionIndex region, RegionQueue* retired) HYDRANT_REQUIRES(mu_);
  void kill_locked(RegionIndex region) HYDRANT_REQUIRES(mu_);
  // Retires what nobody holds of `list` after one fence; the rest becomes dead.
  void settle_locked(RegionQueue* list, RegionQueue* retired) HYDRANT_REQUIRES(mu_);
  void drain_dead_locked(size_t most, RegionQueue* retired) HYDRANT_REQUIRES(mu_);
  // The same if so many have died, or so much, that they are worth a fence: every miss asks.
  void drain_many_dead_locked(RegionQueue* retired) HYDRANT_REQUIRES(mu_);
  void quarantine_locked(RegionIndex region) HYDRANT_REQUIRES(mu_);
  // Unpins retired regions outside the lock. True if the kernel still charges some of it. Regions paid
  // for by a reservation leave their charge to it.
  bool unpin_retired(RegionQueue* retired, bool charge_is_reserved) noexcept HYDRANT_EXCLUDES(mu_);
  UnpinResult unpin_all_of(const RegionQueue& retired, uint64_t* calls,
                           uint64_t* failures) noexcept HYDRANT_NO_TSA;
  void shrink_budget_locked(uint64_t refused, uint64_t pending) HYDRANT_REQUIRES(mu_);
  void regrow_budget_locked(uint64_t now) HYDRANT_REQUIRES(mu_);

  // --- spans (domain_span.cpp) ---
  Status acquire_all(const Want& like, const MemoryRange* ranges, size_t n,
                     const RegionSlot** held) noexcept;
  Status reserve_missing(const MemoryRange* ranges, size_t n, const RegionSlot* const* held,
                         Reservation* reservation) noexcept;
  Status check_total(const MemoryRange* ranges, size_t n, Access need) noexcept;
  Status pin_span(const Want& want, const RegionSlot** out) noexcept;
  Status make_span(MemoryRange pages, const RegionSlot* const* held, size_t n,
                   const RegionSlot** out) noexcept;
  void free_spans() noexcept;
  Status release_span(const RegionSlot* slot, ThreadDomain* thread) noexcept;
  Status group_held(const hydrant_range_t* ranges, size_t n, const RegionSlot** held, size_t total,
                    ThreadDomain* thread, const RegionSlot** out) noexcept;
  size_t buckets_in(MemoryRange range) const noexcept;
  Status count_parts(const hydrant_range_t* ranges, size_t n, size_t* total) const noexcept;
  void drop_hold_of(ThreadDomain* thread, const RegionSlot* slot) noexcept;

  // --- deferred pins (domain_async.cpp) ---
  Status try_deferred(DeferredPin& pin, Effort effort, const RegionSlot** out) noexcept;
  Status start_late(DeferredPin& pin, const Want& want, const RegionSlot** out) noexcept;
  void forget(LateRegistration* late) noexcept;
  void forget_late(DeferredPin& pin) noexcept;
  static bool may_be_granted_less(const Want& want, const Plan& plan, Status status) noexcept;
  // With kHitOnly it registers nothing; at the deadline it leaves the rest.
  int run_deferred(Effort effort, uint64_t deadline_ns) noexcept;
  void deregister_some_dead() noexcept;
  void cancel_deferred() noexcept;

  std::byte* key_of(RegionIndex region) noexcept { return keys_.data() + region * key_stride_; }
  RegionSlot& slot(RegionIndex region) const noexcept { return arena_.slots[region]; }
  RegionIndex index_of(const RegionSlot* s) const noexcept {
    return static_cast<RegionIndex>(s - arena_.slots);
  }
  // The arena's slots from slot_count_ on are spans'.
  bool is_span(const RegionSlot* s) const noexcept { return s >= arena_.slots + slot_count_; }

  const DomainConfig config_;
  const uint64_t handle_;
  const hydrant_monitor_t* monitor_ =
      nullptr;  // set before the domain is published; null: not watched
  int subscription_ = -1;
  MappingQuery mappings_;  // opened before the domain is published, and in the child of a fork
  const std::unique_ptr<Registrar> registrar_;
  const std::unique_ptr<VictimPolicy> policy_ HYDRANT_GUARDED_BY(mu_);
  uint32_t slot_count_ = 0;
  size_t key_stride_ = 0;

  SlotArena arena_;
  // One per set of rights. A class has its bit in classes_ once its table may be read.
  std::unique_ptr<PinTable> tables_[16];
  std::atomic<uint32_t> classes_{0};

  // Level 2 (after registry_mutex()). Held for short and bounded work only.
  mutable Mutex mu_;
  CondVar registered_;  // some pending registration has ended
  ThreadDomain* threads_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  MappedArray<RegionInfo> infos_ HYDRANT_GUARDED_BY(mu_);
  SpanTable spans_ HYDRANT_GUARDED_BY(mu_);
  MappedArray<std::byte> keys_;  // a region's key changes only while the region is free or pending
  // Holds of threads that ended or have no state; same sum as the threads' counts. Written under mu_.
  MappedArray<HoldCount> shared_counts_;
  RegionIndex high_ HYDRANT_GUARDED_BY(mu_) = kNoRegion;  // highest slot ever used
  // Where the last search for unheld regions ended.
  RegionIndex look_from_ HYDRANT_GUARDED_BY(mu_) = kNoRegion;
  uint32_t epoch_ HYDRANT_GUARDED_BY(mu_) = 1;  // fences issued
  RegionQueue pending_ HYDRANT_GUARDED_BY(mu_), quarantine_ HYDRANT_GUARDED_BY(mu_);
  DeadRegions dead_ HYDRANT_GUARDED_BY(mu_);
  RefusalList refusals_ HYDRANT_GUARDED_BY(mu_);
  StreamDetector streams_ HYDRANT_GUARDED_BY(mu_);
  RangeSet vouched_ HYDRANT_GUARDED_BY(mu_);

  // What is or may soon be charged: open, dead, pending and reserved, and retired until unpinned.
  uint64_t charged_ HYDRANT_GUARDED_BY(mu_) = 0;
  uint32_t regions_ HYDRANT_GUARDED_BY(mu_) = 0;
  uint64_t budget_ HYDRANT_GUARDED_BY(mu_) = 0;  // in force: config's, or less after a refusal
  uint64_t shrunk_at_ns_ HYDRANT_GUARDED_BY(mu_) = 0;

  // Statistics; thread_totals_ adds up threads that ended.
  hydrant_stats_t totals_ HYDRANT_GUARDED_BY(mu_) = {};
  uint64_t pinned_bytes_ HYDRANT_GUARDED_BY(mu_) = 0;

  // Deferred pins, oldest first.
  Mutex deferred_mu_;  // level 3
  DeferredPin* deferred_ HYDRANT_GUARDED_BY(deferred_mu_) = nullptr;
  DeferredPin** deferred_tail_ HYDRANT_GUARDED_BY(deferred_mu_) = &deferred_;
  std::atomic<uint32_t> deferred_count_{0}, dead_count_{0};  // hints for poll()
  // Regions opened through their checked gate so far; 0: nobody need ask the monitor before looking.
  std::atomic<uint32_t> checked_regions_{0};
  std::atomic<uint32_t> async_running_{0};  // registrations the registrar will complete
  // For peers: ranges that went away (written under mu_), and pins that found no room.
  GoneLog gone_;
  std::atomic<uint64_t> starved_{0};
};

}  // namespace hydrant
