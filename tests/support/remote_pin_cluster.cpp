// Delivers remote-pin messages between the ends of one process in the order that a test chooses.
#include "tests/support/remote_pin_cluster.hpp"

#include <cstdlib>

namespace hydrant::testing {

RemotePinCluster::Rank::Rank(RemotePinCluster& of, uint32_t number, size_t pages,
                             uint32_t key_bytes)
    : world(&of), rank(number), arena(pages), registrar(arena, key_bytes) {}

RemotePinCluster::RemotePinCluster(const Settings& settings) : settings_(settings) {
  refuse_.assign(settings.ranks, 0);
  refuse_code_.assign(settings.ranks, 0);
  const uint32_t present = settings.present != 0 ? settings.present : settings.ranks;
  for (uint32_t i = 0; i < present; ++i) {
    ranks_.push_back(std::make_unique<Rank>(*this, i, settings.pages, settings.key_bytes));
    Rank& rank = *ranks_.back();
    hydrant_domain_options_t domain;
    hydrant_domain_options_init(&domain);
    domain.registrar = &rank.registrar.table;
    rank.registrar.table.flags = settings.registrar_flags;
    domain.watch = settings.domain_watch;
    domain.mode = settings.domain_mode;
    domain.merge_bytes = settings.domain_merge_bytes;
    domain.max_region_bytes = settings.domain_region_bytes;
    domain.budget_bytes = settings.domain_bytes != 0 ? settings.domain_bytes : 1024 * kMiB;
    if (hydrant_domain_create(&domain, &rank.domain) != GASNET_OK) std::abort();
  }
  make_ends();
}

void RemotePinCluster::make_ends() {
  for (auto& rank : ranks_) {
    hydrant_messenger_t messenger{};
    messenger.size = sizeof messenger;
    messenger.user = rank.get();
    messenger.max_message_bytes = settings_.max_message_bytes;
    messenger.send = send;
    hydrant_remote_options_t options = settings_.options;
    options.size = sizeof options;
    options.domain = rank->domain;
    options.rank = rank->rank;
    options.ranks = settings_.ranks;
    options.messenger = &messenger;
    if (settings_.room != nullptr) {
      options.user = rank.get();
      options.room = [](void* user, uint32_t peer) {
        const Rank& told = *static_cast<Rank*>(user);
        const Settings& of = told.world->settings_;
        of.room(of.options.user, told.rank, peer);
      };
    }
    if (hydrant_remote_create(&options, &rank->end) != GASNET_OK) std::abort();
  }
}

void RemotePinCluster::rebuild() {
  for (auto& rank : ranks_) hydrant_remote_destroy(rank->end);
  {
    const std::lock_guard lock(mu_);
    queue_.clear();
  }
  make_ends();
}

RemotePinCluster::~RemotePinCluster() {
  for (auto& rank : ranks_) hydrant_remote_destroy(rank->end);
  for (auto& rank : ranks_) hydrant_domain_destroy(rank->domain, HYDRANT_FINI_UNPIN);
}

int RemotePinCluster::send(void* user, uint32_t peer, uint32_t lane, void* /*reply_to*/,
                           const void* message, size_t len) {
  auto& rank = *static_cast<Rank*>(user);
  RemotePinCluster& world = *rank.world;
  if (world.before_reading) world.before_reading();
  const auto* bytes = static_cast<const std::byte*>(message);
  RemoteMessage copy{rank.rank, peer, lane, {bytes, bytes + len}};
  {
    std::lock_guard lock(world.mu_);
    ++world.sends_;
    if (world.refuse_[rank.rank] > 0) {
      --world.refuse_[rank.rank];
      return world.refuse_code_[rank.rank];
    }
    if (peer == world.deaf_) return GASNET_ERR_NOT_READY;
    if (world.refuse_at_ != 0 && --world.refuse_at_ == 0) return world.refuse_at_code_;
    if (world.refuse_each_ != 0 && world.sends_ % world.refuse_each_ == 0)
      return GASNET_ERR_NOT_READY;
    ++rank.sent[lane];
    if (!world.settings_.inline_delivery) {
      world.queue_.push_back(std::move(copy));
      return GASNET_OK;
    }
  }
  world.hand_over(copy);
  return GASNET_OK;
}

void RemotePinCluster::hand_over(const RemoteMessage& message) {
  Rank& to = *ranks_[message.to];
  // A non-null reply_to means that the request may be answered; any pointer will do.
  void* reply_to = message.lane == HYDRANT_LANE_REQUEST ? this : nullptr;
  const int code = hydrant_remote_deliver(to.end, message.from, message.bytes.data(),
                                          message.bytes.size(), reply_to);
  if (code != GASNET_OK && code != GASNET_ERR_BAD_ARG) std::abort();
}

size_t RemotePinCluster::pending() const {
  std::lock_guard lock(mu_);
  return queue_.size();
}

void RemotePinCluster::inject(RemoteMessage message) {
  const std::lock_guard lock(mu_);
  queue_.push_back(std::move(message));
}

void RemotePinCluster::deliver(size_t i) {
  RemoteMessage message;
  {
    std::lock_guard lock(mu_);
    message = std::move(queue_[i]);
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  hand_over(message);
}

void RemotePinCluster::poll_all() {
  for (auto& rank : ranks_) hydrant_remote_poll(rank->end);
}

void RemotePinCluster::settle() {
  for (int quiet = 0; quiet < 3;) {
    if (pending() != 0) {
      deliver();
      quiet = 0;
      continue;
    }
    int did = 0;
    for (auto& rank : ranks_) did += hydrant_remote_poll(rank->end);
    quiet = did == 0 && pending() == 0 ? quiet + 1 : 0;
  }
}

void RemotePinCluster::refuse(uint32_t rank, int n, int code) {
  std::lock_guard lock(mu_);
  refuse_[rank] = n;
  refuse_code_[rank] = code;
}

void RemotePinCluster::refuse_at(int n, int code) {
  const std::lock_guard lock(mu_);
  refuse_at_ = n;
  refuse_at_code_ = code;
}

hydrant_remote_stats_t RemotePinCluster::stats(uint32_t rank) const {
  hydrant_remote_stats_t stats{};
  stats.size = sizeof stats;
  hydrant_remote_get_stats(ranks_[rank]->end, &stats);
  return stats;
}

void remote_pin(RemotePinCluster& world, uint32_t from, uint32_t to, uintptr_t addr, size_t len,
                RemoteResult* result, uint32_t access, uint32_t flags, const void* args,
                size_t args_len) {
  hydrant_remote_call_t call{};
  call.done = [](void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
    auto& to_fill = *static_cast<RemoteResult*>(context);
    to_fill.done = true;
    to_fill.pin = pin;
    to_fill.status = outcome->status;
    to_fill.called = outcome->called;
    const auto* bytes = static_cast<const std::byte*>(outcome->answer);
    if (outcome->answer_len != 0) to_fill.answer.assign(bytes, bytes + outcome->answer_len);
  };
  call.context = result;
  call.flags = flags;
  call.args = args;
  call.args_len = args_len;
  hydrant_pin_t pin{};
  result->code = hydrant_remote_pin(world[from].end, to, addr, len, access, &call, &pin);
  if (pin.region != nullptr) {
    result->pin = pin;
    result->status = GASNET_OK;
    result->done = true;
  }
}

}  // namespace hydrant::testing
