// Puts over remote pins, as a network layer would use the library, with a messenger over the simulated wires.
#include <hydrant/remote_pin.h>

#include "bench/support/domain.hpp"
#include "bench/support/put_strategy.hpp"

#include <cstring>
#include <deque>

namespace hydrant::bench {
namespace {

class Firehose final : public PutStrategy {
 public:
  explicit Firehose(const PutSetting& setting) : PutStrategy(setting) {
    for (uint32_t rank = 0; rank < setting.ranks; ++rank) {
      ranks_.emplace_back(*this, rank, put_domain_options(setting.budget_bytes));
      create(ranks_.back());
    }
  }
  ~Firehose() override {
    for (const Rank& rank : ranks_) hydrant_remote_destroy(rank.end);
  }
  PutCounts counts() const override {
    PutCounts counts = base_counts();
    for (const Rank& rank : ranks_) {
      counts.registrations += rank.domain.stats().pins;
      hydrant_remote_stats_t stats{};
      stats.size = sizeof stats;
      hydrant_remote_get_stats(rank.end, &stats);
      counts.hits += stats.hits;
    }
    return counts;
  }

 private:
  struct Rank {
    Rank(Firehose& owner, uint32_t rank, const hydrant_domain_options_t& options)
        : self(&owner), number(rank), domain(options) {}
    Firehose* self;
    uint32_t number;
    Domain domain;
    hydrant_remote_t end = 0;
    size_t max_args = 0;
  };

  void create(Rank& rank) {
    hydrant_messenger_t messenger{};
    messenger.size = sizeof messenger;
    messenger.user = &rank;
    messenger.max_message_bytes = RemoteCluster::kMaxMessage;
    messenger.send = [](void* user, uint32_t peer, uint32_t lane, void*, const void* message,
                        size_t len) {
      static_cast<Rank*>(user)->self->world().send(peer, kOwnKinds + lane, message, len);
      return GASNET_OK;
    };
    hydrant_remote_options_t options;
    hydrant_remote_options_init(&options);
    options.domain = rank.domain.get();
    options.rank = rank.number;
    options.ranks = setting().job_ranks != 0 ? setting().job_ranks : setting().ranks;
    options.messenger = &messenger;
    options.budget_bytes = setting().budget_bytes;
    options.base_percent = setting().base_percent;
    options.flags = HYDRANT_REMOTE_INLINE_DONE | HYDRANT_REMOTE_INLINE_REMOTE;
    options.remote = [](void*, uint32_t, const hydrant_region_t*, hydrant_range_t asked,
                        const void* args, size_t args_len, void*, size_t) -> size_t {
      std::memcpy(reinterpret_cast<void*>(asked.addr), args, args_len);
      return 0;
    };
    if (hydrant_remote_create(&options, &rank.end) != GASNET_OK)
      return fail("hydrant_remote_create", hydrant_error_text());
    rank.max_args = hydrant_remote_max_args(rank.end);
  }

  void start(PutOp& op) noexcept override {
    const Rank& rank = ranks_[op.from];
    hydrant_remote_call_t call{};
    call.done = done;
    call.context = &op;
    if (op.len <= rank.max_args) {
      call.flags = HYDRANT_REMOTE_CALL;
      call.args = op.data;
      call.args_len = op.len;
    }
    const int code = hydrant_remote_pin(rank.end, op.to, reinterpret_cast<uintptr_t>(op.at), op.len,
                                        HYDRANT_REMOTE_WRITE, &call, &op.pin);
    if (code != GASNET_OK) return go_without(op, code);
    if (op.pin.region != nullptr) post(op);
  }
  static void done(void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
    auto& op = *static_cast<PutOp*>(context);
    auto& self = *running_;
    if (outcome->status != GASNET_OK) return self.go_without(op, outcome->status);
    op.pin = pin;
    if (outcome->called != 0) return self.on_put(op);
    self.post(op);
  }
  void go_without(PutOp& op, int status) noexcept {
    if (status != GASNET_ERR_NOT_READY) fail("hydrant_remote_pin", hydrant_error_text());
    bounce(op);
  }
  void on_put(PutOp& op) noexcept override {
    if (hydrant_remote_release(op.pin) != GASNET_OK)
      fail("hydrant_remote_release", hydrant_error_text());
    complete(op);
  }
  void on_own_message(uint32_t rank, uint32_t from, uint32_t kind, const std::byte* bytes,
                      size_t len) noexcept override {
    running_ = this;
    const uint32_t lane = kind - kOwnKinds;
    void* reply_to = lane == HYDRANT_LANE_REQUEST ? this : nullptr;
    if (hydrant_remote_deliver(ranks_[rank].end, from, bytes, len, reply_to) != GASNET_OK)
      fail("hydrant_remote_deliver", hydrant_error_text());
    hydrant_remote_poll(ranks_[rank].end);
  }
  void poll(uint32_t rank) noexcept override {
    running_ = this;
    hydrant_remote_poll(ranks_[rank].end);
  }

  static inline Firehose* running_ = nullptr;  // the instance whose message is being delivered
  std::deque<Rank> ranks_;
};

}  // namespace

std::unique_ptr<PutStrategy> make_firehose_strategy(const PutSetting& setting) {
  return std::make_unique<Firehose>(setting);
}

}  // namespace hydrant::bench
