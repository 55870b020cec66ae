// The ranks of a remote hunt: writes through remote pins, replacements, deliveries, and the checks.
#include "tests/stale/remote/remote_hunt.hpp"

#include "tests/support/threads.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace hydrant::stale {

using testing::Threads;

namespace {

constexpr size_t kMax = 4;  // most pages of one request
constexpr size_t kInARow = 16;
constexpr uint32_t kKeepOneIn = 8;
constexpr std::chrono::seconds kPatience{30};
constexpr int kMaxRounds = 100000;

}  // namespace

RemoteStaleHunt::RemoteStaleHunt(const RemoteHuntOptions& options) : options_(options) {}

RemoteStaleHunt::~RemoteStaleHunt() {
  for (auto& rank : ranks_) hydrant_remote_destroy(rank->end);
  for (auto& rank : ranks_) {
    if (rank->domain != 0) hydrant_domain_destroy(rank->domain, HYDRANT_FINI_UNPIN);
  }
}

void RemoteStaleHunt::fail(const std::string& what) {
  const std::lock_guard lock(result_mu_);
  if (result_.violation.empty()) result_.violation = what;
  failed_.store(true);
}

bool RemoteStaleHunt::set_up() {
  for (uint32_t i = 0; i < options_.ranks; ++i) {
    auto rank = std::make_unique<Rank>();
    rank->hunt = this;
    rank->number = i;
    rank->memory = options_.real_pins ? make_ring_memory(options_.pages, &result_.skipped)
                                      : make_object_memory(options_.pages);
    if (rank->memory == nullptr) return false;
    rank->begun.reset(new std::atomic<uint64_t>[options_.pages]());
    rank->told.reset(new std::atomic<uint64_t>[options_.pages]());
    for (size_t op = 0; op < kOps; ++op) {
      rank->ops[op].hunt = this;
      rank->ops[op].from = i;
      rank->ops[op].cell = i * kOps + op;
    }
    hydrant_domain_options_t domain;
    hydrant_domain_options_init(&domain);
    domain.registrar = &rank->memory->table;
    domain.watch = options_.watch;
    domain.mode = HYDRANT_MODE_REGION;
    domain.budget_bytes = 2 * options_.pages * kPageBytes;
    domain.max_regions = 512;
    domain.merge_bytes = 8 * kPageBytes;
    if (hydrant_domain_create(&domain, &rank->domain) != GASNET_OK) {
      result_.skipped = hydrant_error_text();
      return false;
    }
    uint32_t coverage = HYDRANT_COVERAGE_NONE;
    const auto* first = reinterpret_cast<const void*>(rank->memory->addr(0));
    (void)hydrant_coverage(rank->domain, first, options_.pages * kPageBytes, &coverage);
    if (coverage == HYDRANT_COVERAGE_NONE) {
      result_.skipped = "memory is not watched here";
      return false;
    }
    ranks_.push_back(std::move(rank));
  }
  for (auto& rank : ranks_) {
    hydrant_messenger_t messenger{};
    messenger.size = sizeof messenger;
    messenger.user = rank.get();
    messenger.max_message_bytes = 1024;
    messenger.send = send;
    hydrant_remote_options_t options;
    hydrant_remote_options_init(&options);
    options.domain = rank->domain;
    options.rank = rank->number;
    options.ranks = options_.ranks;
    options.messenger = &messenger;
    options.budget_bytes = options_.budget_pages * kPageBytes;
    options.base_percent = options_.base_percent;
    options.max_peer_regions = options_.max_peer_regions;
    options.merge_bytes = 4 * kPageBytes;
    options.stream_bytes = 8 * kPageBytes;
    options.zombie_bytes = options.budget_bytes;
    if (rank->number % 2 == 1) options.flags = HYDRANT_REMOTE_INLINE_DONE;
    if (hydrant_remote_create(&options, &rank->end) != GASNET_OK) {
      fail(hydrant_error_text());
      return false;
    }
  }
  return true;
}

int RemoteStaleHunt::send(void* user, uint32_t peer, uint32_t lane, void*, const void* bytes,
                          size_t len) {
  const auto& rank = *static_cast<const Rank*>(user);
  if (!rank.hunt->ended_.load(std::memory_order_relaxed) &&
      mix(rank.hunt->sends_.fetch_add(1, std::memory_order_relaxed)) % 64 == 0)
    return GASNET_ERR_NOT_READY;
  const auto* first = static_cast<const std::byte*>(bytes);
  Message message{rank.number, lane, {first, first + len}};
  Rank& to = *rank.hunt->ranks_[peer];
  const std::lock_guard lock(to.inbox_mu);
  to.inbox.push_back(std::move(message));
  return GASNET_OK;
}

// Delivers a random message in flight, not the oldest.
bool RemoteStaleHunt::deliver_one(Rank* rank, Random* random) {
  Message message;
  {
    const std::lock_guard lock(rank->inbox_mu);
    if (rank->inbox.empty()) return false;
    const uint32_t i = random->below(rank->inbox.size());
    if (i != 0) reorderings_.fetch_add(1, std::memory_order_relaxed);
    message = std::move(rank->inbox[i]);
    rank->inbox[i] = std::move(rank->inbox.back());
    rank->inbox.pop_back();
  }
  void* reply_to = message.lane == HYDRANT_LANE_REQUEST ? this : nullptr;
  if (hydrant_remote_deliver(rank->end, message.from, message.bytes.data(), message.bytes.size(),
                             reply_to) != GASNET_OK) {
    fail(std::string("a message was rejected: ") + hydrant_error_text());
  }
  return true;
}

// ---- operations of a rank
// -----------------------------------------------------------------------------------

void RemoteStaleHunt::use(Op* op) {
  Rank& to = *ranks_[op->to];
  const uint32_t value = next_value_.fetch_add(1, std::memory_order_relaxed);
  bool visible = false;
  const std::string wrong =
      to.memory->write(op->pin.region->key, op->page, op->cell, value, &visible);
  if (!wrong.empty()) return fail(wrong);
  if (to.begun[op->page].load() != op->epoch)
    return;  // the page is being replaced: old and new memory are both valid
  checked_.fetch_add(1, std::memory_order_relaxed);
  if (!visible) fail("a write reached pages that were replaced before it began");
}

void RemoteStaleHunt::end(Op* op) {
  if (hydrant_remote_release(op->pin) != GASNET_OK)
    fail(std::string("a release failed: ") + hydrant_error_text());
  op->busy.store(false, std::memory_order_release);
}

void RemoteStaleHunt::done(void* context, hydrant_pin_t pin,
                           const hydrant_remote_outcome_t* outcome) {
  auto& op = *static_cast<Op*>(context);
  op.pin = pin;
  if (outcome->status != GASNET_OK) {
    if (outcome->status != GASNET_ERR_NOT_READY) op.hunt->fail("a move failed permanently");
    op.busy.store(false, std::memory_order_release);
    return;
  }
  op.hunt->use(&op);
  op.hunt->operations_.fetch_add(1, std::memory_order_relaxed);
  op.hunt->end(&op);
}

// Writes several times in a row to one place, as programs do: most of them hit.
void RemoteStaleHunt::write_somewhere(Rank* rank, Random* random) {
  const uint32_t peer = (rank->number + 1 + random->below(options_.ranks - 1)) % options_.ranks;
  const size_t pages = 1 + random->below(kMax);
  const bool anywhere = random->one_in(8);
  const size_t first = anywhere ? random->below(options_.pages - pages + 1)
                                : kMax * random->below(options_.pages / kMax / 2);
  for (size_t i = 0; i < kInARow && !failed_.load(std::memory_order_relaxed); ++i) {
    Op* op = std::find_if(rank->ops, rank->ops + kOps,
                          [](const Op& one) { return !one.busy.load(std::memory_order_acquire); });
    if (op == rank->ops + kOps) return make_progress(random);
    op->busy.store(true, std::memory_order_relaxed);
    op->to = peer;
    op->page = first + random->below(pages);
    if (!write(rank, op, first, pages)) return;
    if (i == 0 && random->one_in(kKeepOneIn)) {
      rank->held.push_back(op);
    } else {
      end(op);
    }
  }
}

// True if it hit; the pin is then still held.
bool RemoteStaleHunt::write(Rank* rank, Op* op, size_t first, size_t pages) {
  const Rank& to = *ranks_[op->to];
  op->epoch = to.told[op->page].load();
  hydrant_remote_call_t call{};
  call.done = done;
  call.context = op;
  hydrant_pin_t pin{};
  const int code = hydrant_remote_pin(rank->end, op->to, to.memory->addr(first), pages * kPageBytes,
                                      HYDRANT_REMOTE_WRITE, &call, &pin);
  if (code == GASNET_OK && pin.region == nullptr) return false;  // done() completes it
  if (code != GASNET_OK) {
    if (code != GASNET_ERR_NOT_READY) fail(hydrant_error_text());
    op->busy.store(false, std::memory_order_release);
    return false;
  }
  op->pin = pin;
  use(op);
  operations_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Delivers and polls for all ranks: other ranks' threads may not run for some time.
void RemoteStaleHunt::make_progress(Random* random) {
  for (auto& rank : ranks_) {
    (void)deliver_one(rank.get(), random);
    hydrant_remote_poll(rank->end);
  }
}

void RemoteStaleHunt::replace_some(Rank* rank, Random* random) {
  const size_t pages = 1 + random->below(kMax);
  const size_t first = random->below(options_.pages - pages + 1);
  for (size_t i = first; i < first + pages; ++i) rank->begun[i].fetch_add(1);
  const uint64_t serial = rank->memory->replace(first, pages);
  if (options_.watch == HYDRANT_WATCH_CLIENT) {
    hydrant_invalidate(rank->domain, reinterpret_cast<const void*>(rank->memory->addr(first)),
                       pages * kPageBytes);
  }
  const auto deadline = std::chrono::steady_clock::now() + testing::patiently(kPatience);
  replacements_.fetch_add(1, std::memory_order_relaxed);
  bool waited = false;
  while (hydrant_remote_quiet(rank->end) != GASNET_OK) {
    if (!waited) opportunities_.fetch_add(1, std::memory_order_relaxed);
    waited = true;
    make_progress(random);
    if (failed_.load(std::memory_order_relaxed)) return;
    if (std::chrono::steady_clock::now() > deadline)
      return fail("hydrant_remote_quiet() did not become true in time");
  }
  rank->memory->condemn(first, pages, serial);
  for (size_t i = first; i < first + pages; ++i) rank->told[i].store(rank->begun[i].load());
}

void RemoteStaleHunt::work(Rank* rank) {
  Random random(options_.seed * 1000 + rank->number);
  for (uint64_t turn = 0; !is_over(); ++turn) {
    write_somewhere(rank, &random);
    const bool replaces = random.one_in(options_.replace_one_in);
    // Releases holds before waiting: other ranks may wait for them.
    while (!rank->held.empty() && (replaces || random.one_in(4))) {
      use(rank->held.back());
      end(rank->held.back());
      rank->held.pop_back();
    }
    if (replaces) replace_some(rank, &random);
    if (turn % 4 == 0) (void)deliver_one(rank, &random);
    if (turn % 8 == 0) hydrant_remote_poll(rank->end);
  }
  for (Op* op : rank->held) end(op);
  rank->held.clear();
}

void RemoteStaleHunt::help(uint32_t number) {
  Random random(options_.seed * 1000 + 500 + number);
  while (!ended_.load(std::memory_order_relaxed)) {
    Rank* rank = ranks_[random.below(ranks_.size())].get();
    const bool any = deliver_one(rank, &random);
    const bool did = random.one_in(4) && hydrant_remote_poll(rank->end) > 0;
    if (!any && !did) std::this_thread::yield();
  }
}

// ---- end of the hunt
// --------------------------------------------------------------------------------------------

void RemoteStaleHunt::come_to_rest() {
  Random random(options_.seed);
  for (int pass = 0; pass < 2; ++pass) {
    int idle = 0;
    for (int round = 0; idle < 10; ++round) {
      if (round == kMaxRounds) return fail("the hunt does not come to rest");
      bool any = false;
      for (auto& rank : ranks_) {
        while (deliver_one(rank.get(), &random)) any = true;
        any = hydrant_remote_poll(rank->end) > 0 || any;
      }
      idle = any ? 0 : idle + 1;
      if (!any) std::this_thread::sleep_for(std::chrono::microseconds(30));
    }
    if (pass != 0) break;
    for (auto& rank : ranks_) {
      for (const Op& op : rank->ops) {
        if (op.busy.load()) fail("a request was never answered");
      }
      if (hydrant_remote_quiet(rank->end) != GASNET_OK) fail("a recall was never acknowledged");
      for (auto& peer : ranks_) hydrant_remote_evict(rank->end, peer->number, 0, SIZE_MAX);
    }
  }
  for (auto& rank : ranks_) {
    hydrant_remote_stats_t stats{};
    stats.size = sizeof stats;
    hydrant_remote_get_stats(rank->end, &stats);
    result_.hits += stats.hits;
    result_.moves += stats.moves;
    result_.recalls += stats.recalls;
    if (stats.exports != 0 || stats.exported_bytes != 0 || stats.firehose_bytes != 0)
      fail("exports or firehoses are left without a user");
    hydrant_flush(rank->domain);
    if (rank->memory->live() != 0) fail("memory is pinned without a user");
    if (!rank->memory->problem().empty()) fail(rank->memory->problem());
  }
}

RemoteHuntResult RemoteStaleHunt::run() {
  if (!set_up()) return result_;
  {
    Threads helpers;
    {
      Threads workers;
      for (auto& rank : ranks_) workers.start([this, &rank] { work(rank.get()); });
      for (uint32_t i = 0; i < options_.helpers; ++i) helpers.start([this, i] { help(i); });
    }
    ended_.store(true);
  }
  if (!failed_.load()) come_to_rest();
  result_.operations = operations_.load();
  result_.replacements = replacements_.load();
  result_.opportunities = opportunities_.load();
  result_.checked = checked_.load();
  result_.reorderings = reorderings_.load();
  return result_;
}

}  // namespace hydrant::stale
