// Ways to put data over verbs into the segment of rank 1, which may have to be registered first;
// verbs_sweep_bench compares them. Rank 0 puts. Rank 1 replies to requests, which are Active Messages like
// the library's own. The including program defines the thread mode.
#pragma once

#include <hydrant/rma.h>

#include "bench/support/domain.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/put_strategy.hpp"
#include "bench/support/raw_verbs.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/binding/registrar_adapter.hpp"
#include "firehose/registrars/ibv/ibv_registrar.hpp"

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <sched.h>
#include <string>
#include <utility>
#include <vector>

namespace hydrant::bench {

inline constexpr uint32_t kSweepWindow = 8;
inline constexpr size_t kMaxSweepPut = 64 * kKiB;

// State of the job, on both ranks.
struct SweepJob {
  gex_TM_t team = GEX_TM_INVALID;
  gex_Rank_t rank = 0, peer = 1;
  std::byte* mine = nullptr;    // own segment: the sources (rank 0), the working set (rank 1)
  std::byte* theirs = nullptr;  // the peer's, as addressed there
  uint64_t budget_bytes = 0;
  RawVerbs* verbs = nullptr;
  ibv_mr* registration = nullptr;  // of the whole segment, in the domain of `verbs`
  uint32_t their_key = 0;
  bool is_crowded = false;  // both ranks share a processor: a waiting rank yields it
  bool has_failed = false;
  std::string why;

  void fail(const char* what, const char* text) {
    has_failed = true;
    if (why.empty()) why = std::string(what) + ": " + text;
  }
};

// Handlers, named after their messages. Arguments are slot, page, and those in the comments.
enum SweepHandler : gex_AM_Index_t {
  kSweepRequest = 220,  // page, bytes, keep the registration
  kSweepGrant,          // key, success
  kSweepFinished,       // keep the registration
  kSweepShort,          // page; the payload is the 8 bytes to store
  kSweepLanded,         // page, bytes; the data is in the slot's landing buffer
  kSweepCopied,         // no further arguments
  kSweepFirstFree
};

// ---- rank 1 -------------------------------------------------------------------------------------------

class SweepTarget {
 public:
  explicit SweepTarget(SweepJob& job) : job_(job) {
    std::unique_ptr<IbvRegistrar> registrar;
    if (IbvRegistrar::create(job.verbs->port().device.pd, &registrar) != Status::kOk) {
      job.fail("creating a registrar for rendezvous_keep", hydrant_error_text());
      return;
    }
    const hydrant_registrar_t functions = registrar_functions(std::move(registrar));
    hydrant_domain_options_t options = put_domain_options(job.budget_bytes);
    options.registrar_name = nullptr;
    options.registrar = &functions;
    cache_ = std::make_unique<Domain>(options);
  }

  void ask(gex_Token_t token, uint32_t slot, uint32_t page, uint32_t bytes, bool keeps) {
    std::byte* at = job_.mine + size_t{page} * page_bytes();
    uint32_t key = 0;
    const bool granted = keeps ? pin(slot, at, bytes, &key) : register_now(slot, at, bytes, &key);
    gex_AM_ReplyShort3(token, kSweepGrant, 0, static_cast<gex_AM_Arg_t>(slot),
                       static_cast<gex_AM_Arg_t>(key), granted ? 1 : 0);
  }
  void finished(uint32_t slot, bool keeps) {
    if (keeps) {
      (void)hydrant_release(pins_[slot]);
    } else if (ibv_dereg_mr(registered_[slot]) != 0) {
      job_.fail("ibv_dereg_mr", std::strerror(errno));
    }
  }
  void copy(gex_Token_t token, uint32_t slot, uint32_t page, const std::byte* data, size_t bytes) {
    std::memcpy(job_.mine + size_t{page} * page_bytes(), data, bytes);
    gex_AM_ReplyShort1(token, kSweepCopied, 0, static_cast<gex_AM_Arg_t>(slot));
  }
  // Total registrations of each way that registers.
  std::array<uint64_t, 3> registrations() const {
    hydrant_stats_t stats{};
    stats.size = sizeof stats;
    hydrant_get_stats(firehose().domain, &stats);
    return {stats.pins, bare_, cache_ != nullptr ? cache_->stats().pins : 0};
  }

 private:
  bool register_now(uint32_t slot, std::byte* at, size_t bytes, uint32_t* key) {
    const size_t page = page_bytes();
    registered_[slot] =
        ibv_reg_mr(job_.verbs->port().device.pd, at, (bytes + page - 1) / page * page,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (registered_[slot] == nullptr) {
      job_.fail("ibv_reg_mr", std::strerror(errno));
      return false;
    }
    ++bare_;
    *key = registered_[slot]->rkey;
    return true;
  }
  bool pin(uint32_t slot, std::byte* at, size_t bytes, uint32_t* key) {
    pins_[slot] = hydrant_pin(cache_->get(), at, bytes, HYDRANT_REMOTE_WRITE);
    if (pins_[slot].region == nullptr) {
      if (hydrant_pin_status(pins_[slot]) != GASNET_ERR_NOT_READY)
        job_.fail("hydrant_pin", hydrant_error_text());
      return false;
    }
    IbvKey whole;
    std::memcpy(&whole, pins_[slot].region->key, sizeof whole);
    *key = whole.rkey;
    return true;
  }

  SweepJob& job_;
  std::unique_ptr<Domain> cache_;
  uint64_t bare_ = 0;
  ibv_mr* registered_[kSweepWindow] = {};
  hydrant_pin_t pins_[kSweepWindow] = {};
};

// ---- rank 0 -------------------------------------------------------------------------------------------

// A way to put to pages of the working set, with one outstanding put per slot.
class SweepWay {
 public:
  explicit SweepWay(SweepJob& job) : job_(job) {}
  virtual ~SweepWay() = default;
  SweepWay(const SweepWay&) = delete;
  SweepWay& operator=(const SweepWay&) = delete;

  // Puts to all `pages`; returns when all are complete.
  void run(const std::vector<uint32_t>& pages, size_t bytes, uint32_t window) {
    bytes_ = bytes;
    free_.clear();
    begin();
    for (uint32_t slot = 0; slot < window; ++slot) free_.push_back(slot);
    size_t under_way = 0;
    for (size_t next = 0; (next < pages.size() || under_way != 0) && !job_.has_failed;) {
      while (!free_.empty() && next < pages.size() && !job_.has_failed) {
        const uint32_t slot = free_.back();
        free_.pop_back();
        ++under_way;
        start(slot, pages[next++]);
      }
      const size_t before = free_.size();
      if (before < window) progress();
      if (free_.size() == before && job_.is_crowded) sched_yield();
      under_way = window - free_.size();
    }
  }
  // Called by the message handlers.
  virtual void granted(uint32_t /*slot*/, uint32_t /*key*/, bool /*is_there*/) {}
  virtual void copied(uint32_t /*slot*/) {}
  // Totals: puts without a request, and puts that were copied because pinning failed.
  virtual uint64_t hits() const { return 0; }
  virtual uint64_t bounced() const { return bounced_; }

 protected:
  virtual void begin() {}
  virtual void start(uint32_t slot, uint32_t page) = 0;
  virtual void progress() = 0;
  void complete(uint32_t slot) { free_.push_back(slot); }
  const std::byte* source(uint32_t slot) const { return job_.mine + size_t{slot} * kMaxSweepPut; }
  std::byte* place(uint32_t page) const { return job_.theirs + size_t{page} * page_bytes(); }

  SweepJob& job_;
  size_t bytes_ = 0;
  uint64_t bounced_ = 0;

 private:
  std::vector<uint32_t> free_;
};

class SweepFirehose final : public SweepWay {
 public:
  using SweepWay::SweepWay;
  uint64_t hits() const override { return ops(HYDRANT_PATH_FIREHOSE); }
  uint64_t bounced() const override {
    return ops(HYDRANT_PATH_AM_MEDIUM) + ops(HYDRANT_PATH_AM_LONG);
  }

 private:
  static uint64_t ops(hydrant_path_t path) {
    hydrant_path_counts_t counts = {};
    hydrant_query_path(GEX_RANK_INVALID, path, &counts);
    return counts.put_ops;
  }
  void start(uint32_t slot, uint32_t page) override {
    if (bytes_ == 8) {
      gex_RMA_PutBlocking(job_.team, job_.peer, place(page), const_cast<std::byte*>(source(slot)),
                          bytes_, 0);
      return complete(slot);
    }
    events_[slot] = gex_RMA_PutNB(job_.team, job_.peer, place(page),
                                  const_cast<std::byte*>(source(slot)), bytes_, GEX_EVENT_DEFER, 0);
    is_busy_[slot] = true;
  }
  void progress() override {
    gasnet_AMPoll();  // tests of events do not poll
    (void)gex_Event_TestSome(events_, kSweepWindow, 0);
    for (uint32_t slot = 0; slot < kSweepWindow; ++slot) {
      if (!is_busy_[slot] || events_[slot] != GEX_EVENT_INVALID) continue;
      is_busy_[slot] = false;
      complete(slot);
    }
  }

  gex_Event_t events_[kSweepWindow] = {};
  bool is_busy_[kSweepWindow] = {};
};

// Base of the other ways: writes through the benchmark's queue pair, which complete in order.
class SweepRaw : public SweepWay {
 public:
  // Layout of the memory of `verbs`: source buffers, then landing buffers.
  static constexpr size_t kLanding = kSweepWindow * kMaxSweepPut;
  static constexpr size_t kBuffers = 2 * kLanding;

  using SweepWay::SweepWay;
  void copied(uint32_t slot) override {
    --waiting_;
    complete(slot);
  }

 protected:
  void begin() override { ended_ = job_.verbs->completed(job_.peer); }
  void write(uint32_t slot, const std::byte* to, uint32_t rkey) {
    const auto bytes = static_cast<uint32_t>(bytes_);
    if (!job_.verbs->write_to(job_.peer, source(slot), job_.registration->lkey,
                              reinterpret_cast<uintptr_t>(to), rkey, bytes))
      return job_.fail("writing", job_.verbs->why().c_str());
    posted_.push_back(slot);
  }
  void bounce(uint32_t slot, uint32_t page) {
    pages_[slot] = page;
    if (bytes_ == 8) {
      ++waiting_;
      gex_AM_RequestMedium2(job_.team, job_.peer, kSweepShort, const_cast<std::byte*>(source(slot)),
                            bytes_, GEX_EVENT_NOW, 0, static_cast<gex_AM_Arg_t>(slot),
                            static_cast<gex_AM_Arg_t>(page));
      return;
    }
    const size_t buffer = slot * kMaxSweepPut;
    const auto bytes = static_cast<uint32_t>(bytes_);
    std::memcpy(job_.verbs->memory() + buffer, source(slot), bytes_);
    is_bouncing_[slot] = true;
    if (!job_.verbs->write(job_.peer, buffer, kLanding + buffer, bytes, true))
      return job_.fail("writing", job_.verbs->why().c_str());
    posted_.push_back(slot);
  }
  void progress() override {
    if (!posted_.empty() && !job_.verbs->poll(job_.peer))
      return job_.fail("writing", job_.verbs->why().c_str());
    for (; ended_ < job_.verbs->completed(job_.peer); ++ended_) end_of_write();
    if (waiting_ != 0) gasnet_AMPoll();
  }
  virtual void written(uint32_t slot) { complete(slot); }

  uint64_t waiting_ = 0;  // replies awaited
  uint32_t pages_[kSweepWindow] = {};

 private:
  void end_of_write() {
    const uint32_t slot = posted_.front();
    posted_.pop_front();
    if (!is_bouncing_[slot]) return written(slot);
    is_bouncing_[slot] = false;
    ++waiting_;
    gex_AM_RequestShort3(job_.team, job_.peer, kSweepLanded, 0, static_cast<gex_AM_Arg_t>(slot),
                         static_cast<gex_AM_Arg_t>(pages_[slot]),
                         static_cast<gex_AM_Arg_t>(bytes_));
  }

  std::deque<uint32_t> posted_;
  bool is_bouncing_[kSweepWindow] = {};
  uint64_t ended_ = 0;  // completions of the shared queue pair that were handled
};

class SweepRendezvous final : public SweepRaw {
 public:
  SweepRendezvous(SweepJob& job, bool keeps) : SweepRaw(job), keeps_(keeps) {}
  void granted(uint32_t slot, uint32_t key, bool is_there) override {
    grants_.push_back({slot, key, is_there});
  }

 private:
  struct Grant {
    uint32_t slot, key;
    bool is_there;
  };
  void start(uint32_t slot, uint32_t page) override {
    pages_[slot] = page;
    ++waiting_;
    gex_AM_RequestShort4(job_.team, job_.peer, kSweepRequest, 0, static_cast<gex_AM_Arg_t>(slot),
                         static_cast<gex_AM_Arg_t>(page), static_cast<gex_AM_Arg_t>(bytes_),
                         keeps_ ? 1 : 0);
  }
  void progress() override {
    SweepRaw::progress();
    for (; !grants_.empty(); grants_.pop_front()) {
      const Grant& grant = grants_.front();
      --waiting_;
      if (grant.is_there) {
        write(grant.slot, place(pages_[grant.slot]), grant.key);
      } else {
        ++bounced_;
        bounce(grant.slot, pages_[grant.slot]);
      }
    }
  }
  void written(uint32_t slot) override {
    gex_AM_RequestShort2(job_.team, job_.peer, kSweepFinished, 0, static_cast<gex_AM_Arg_t>(slot),
                         keeps_ ? 1 : 0);
    complete(slot);
  }

  const bool keeps_;
  std::deque<Grant> grants_;
};

class SweepBounce final : public SweepRaw {
 public:
  using SweepRaw::SweepRaw;

 private:
  void start(uint32_t slot, uint32_t page) override { bounce(slot, page); }
};

class SweepPinEverything final : public SweepRaw {
 public:
  using SweepRaw::SweepRaw;

 private:
  void start(uint32_t slot, uint32_t page) override { write(slot, place(page), job_.their_key); }
};

}  // namespace hydrant::bench
