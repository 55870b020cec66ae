// Steps of the random remote-pin clients (remote_client.hpp), and the checks after them.
#include "tests/fuzz/remote_client.hpp"

#include "firehose/remote/channel/remote_wire.hpp"

#include <sstream>

namespace hydrant::fuzz {

using testing::kPage;
using testing::RemoteMessage;
using testing::RemotePinCluster;

namespace {

constexpr size_t kMaxHeld = 48;
constexpr size_t kMaxRecorded = 16;

bool is_answer(int status) {
  switch (status) {
    case GASNET_OK:
    case GASNET_ERR_BAD_ARG:
    case GASNET_ERR_NOT_INIT:
    case GASNET_ERR_NOT_READY:
    case GASNET_ERR_RESOURCE:
    case HYDRANT_ERR_REFUSED:
    case HYDRANT_ERR_BROKEN:
    case HYDRANT_ERR_UNSUPPORTED: return true;
    default: return false;
  }
}

size_t answer_some(void*, uint32_t, const hydrant_region_t*, hydrant_range_t asked,
                   const void* args, size_t args_len, void* answer, size_t room) {
  unsigned sum = 0;
  const auto* bytes = static_cast<const uint8_t*>(args);
  for (size_t i = 0; i < args_len; ++i) sum += bytes[i];
  const size_t n = std::min<size_t>(room, (asked.len + sum) % 200);
  std::memset(answer, 0x33, n);
  return n;
}

// Ignores pins that a forged message caused: they are not errors of the cache.
std::string problems_of(const testing::RecordingRegistrar& registrar) {
  std::istringstream lines(registrar.problems());
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("requested to pin [") != 0) rest += line + "\n";
  }
  return rest;
}

}  // namespace

RemotePinCluster::Settings RemoteClients::settings(Input& input) {
  RemotePinCluster::Settings made;
  made.ranks = kRanks;
  made.pages = kPages;
  made.domain_mode = input.below(4) == 0 ? HYDRANT_MODE_PAGE : HYDRANT_MODE_REGION;
  made.domain_bytes = (8 + input.below(64)) * kPage;
  made.domain_merge_bytes = input.below(2) != 0 ? 1 : 0;
  made.max_message_bytes = input.below(2) != 0 ? HYDRANT_REMOTE_MIN_MESSAGE_BYTES : 4096;
  constexpr uint32_t kKeys[] = {8, 0, 24, 8};
  made.key_bytes = kKeys[input.below(4)];
  hydrant_remote_options_t& options = made.options;
  hydrant_remote_options_init(&options);
  options.budget_bytes = (4 + input.below(4)) * kPage;
  options.base_percent = input.below(2) != 0 ? 100 : 50;
  if (options.base_percent == 50) options.budget_bytes *= 2;
  options.max_firehoses = input.below(2) != 0 ? 0 : 1 + input.below(8);
  options.zombie_bytes = input.below(2) != 0 ? 0 : (1 + input.below(4)) * kPage;
  options.max_peer_regions = input.below(2) != 0 ? 0 : 1 + input.below(16);
  options.merge_bytes = input.below(2) != 0 ? 1 : 0;
  options.stream_bytes = input.below(2) != 0 ? 1 : 0;
  options.flags = input.below(4);
  if (input.below(4) != 0) options.remote = answer_some;
  // Sends may deliver at once, unless callbacks run inside the delivery: those may not send.
  made.inline_delivery = input.below(8) == 0 && options.flags == 0;
  return made;
}

RemoteClients::RemoteClients(Input& input)
    : input_(input), world_(settings(input)), lies_(input.below(2) != 0) {}

RemoteClients::~RemoteClients() { finish(); }

void RemoteClients::run() {
  while (!input_.empty()) step();
}

void RemoteClients::step() {
  switch (input_.below(20)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4: return pin();
    case 5: return look_up();
    case 6:
    case 7: return release();
    case 8:
    case 9:
    case 10:
    case 11: return deliver();
    case 12:
    case 13: return forge();
    case 14: return tell();
    case 15: return end_a_pair();
    case 16: return look();
    case 17: return wrong_calls();
    case 18: return (void)settle();
    default: HYDRANT_FUZZ_CHECK(hydrant_remote_poll(world_[input_.below(kRanks)].end) >= 0);
  }
}

std::pair<uint32_t, uint32_t> RemoteClients::pair() {
  const uint32_t from = input_.below(kRanks);
  return {from, (from + 1 + input_.below(kRanks - 1)) % kRanks};
}

RemoteClients::Range RemoteClients::range(uint32_t of) {
  const uint8_t shape = input_.byte();
  const size_t page = input_.below(kPages);
  const size_t most = (kPages - page) * kPage;
  const Range made{world_[of].arena.addr(page) + shape % 64,
                   std::min<size_t>(1 + input_.below(4 * kPage), most - shape % 64)};
  switch (shape) {
    case 255: return {made.addr, 0};
    case 254: return {made.addr, SIZE_MAX};
    case 253: return {UINTPTR_MAX, 1};
    case 252: return {0, size_t{1} << 50};
    case 251: return {UINTPTR_MAX - kPage, kPage};
    default: return made;
  }
}

bool RemoteClients::is_sound(uint32_t from, uint32_t to) const {
  return !has_forged_ && gone_.count({from, to}) == 0 && gone_.count({to, from}) == 0;
}

// A held pin's memory is registered at its owner under the pin's key.
void RemoteClients::check(const Held& held) const {
  if (!is_sound(held.from, held.to) || has_ended_) return;
  auto& world = const_cast<RemotePinCluster&>(world_);
  const testing::RecordingRegistrar& registrar = world[held.to].registrar;
  const hydrant_region_t region = *held.pin.region;
  if (registrar.table.key_bytes == 0) return;
  const uint64_t serial = registrar.serial_of(region.key);
  HYDRANT_FUZZ_CHECK(serial != 0);
  HYDRANT_FUZZ_CHECK(registrar.is_live_around(serial, region.addr, region.len, held.access));
}

void RemoteClients::take(const Asked& asked, hydrant_pin_t pin) {
  if (pin.region == nullptr) {
    HYDRANT_FUZZ_CHECK(is_answer(hydrant_pin_status(pin)));
    return;
  }
  HYDRANT_FUZZ_CHECK(pin.region->addr <= asked.range.addr);
  HYDRANT_FUZZ_CHECK(asked.range.addr + asked.range.len <= pin.region->addr + pin.region->len);
  held_.push_back({asked.from, asked.to, pin, asked.access});
  check(held_.back());
}

void RemoteClients::pin() {
  constexpr uint32_t kRights[] = {HYDRANT_REMOTE_READ, HYDRANT_REMOTE_WRITE, HYDRANT_REMOTE_WRITE,
                                  HYDRANT_REMOTE_READ | HYDRANT_REMOTE_WRITE};
  if (held_.size() >= kMaxHeld) release();
  const auto [from, to] = pair();
  const uint8_t shape = input_.byte();
  uint32_t access = kRights[shape % 4];
  if (shape >= 250) access = shape;
  asked_.push_back(std::make_unique<Asked>(Asked{this, from, to, range(to), access}));
  Asked* asked = asked_.back().get();
  hydrant_remote_call_t call{};
  call.done = [](void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
    auto& it = *static_cast<Asked*>(context);
    HYDRANT_FUZZ_CHECK(!it.is_done);
    it.is_done = true;
    HYDRANT_FUZZ_CHECK(is_answer(outcome->status));
    HYDRANT_FUZZ_CHECK((outcome->status == GASNET_OK) == (pin.region != nullptr));
    unsigned sum = 0;
    for (size_t i = 0; i < outcome->answer_len; ++i)
      sum += static_cast<const uint8_t*>(outcome->answer)[i];
    it.args[0] = static_cast<char>(sum);
    it.clients->take(it, pin);
  };
  call.context = asked;
  call.flags = input_.below(4) | ((shape & 0xf0) == 0xe0 ? 0x80u : 0);
  call.args = asked->args;
  call.args_len =
      input_.below(4) == 0 ? input_.below(2) * 100000 : input_.below(sizeof asked->args);
  hydrant_pin_t pin{};
  const int status = hydrant_remote_pin(world_[from].end, to, asked->range.addr, asked->range.len,
                                        access, &call, &pin);
  HYDRANT_FUZZ_CHECK(is_answer(status));
  if (status == GASNET_OK && pin.region == nullptr) return;
  HYDRANT_FUZZ_CHECK(!asked->is_done);
  if (pin.region != nullptr) take(*asked, pin);
  asked_.pop_back();
}

void RemoteClients::look_up() {
  const auto [from, to] = pair();
  const Range wanted = range(to);
  const uint8_t kind = input_.byte();
  const hydrant_remote_t end = world_[from].end;
  const Asked asked{this, from, to, wanted, HYDRANT_REMOTE_WRITE};
  if (kind % 4 == 0) {
    (void)take(asked,
               hydrant_try_remote_pin(end, to, wanted.addr, wanted.len, HYDRANT_REMOTE_WRITE));
  } else if (kind % 4 == 1) {
    const hydrant_pin_t pin =
        hydrant_partial_remote_pin(end, to, wanted.addr, wanted.len, HYDRANT_REMOTE_WRITE);
    if (pin.region == nullptr) return;
    held_.push_back({from, to, pin, HYDRANT_REMOTE_WRITE});
    check(held_.back());
  } else if (kind % 4 == 2) {
    HYDRANT_FUZZ_CHECK(
        is_answer(hydrant_remote_prefetch(end, to, wanted.addr, wanted.len, HYDRANT_REMOTE_READ)));
  } else {
    HYDRANT_FUZZ_CHECK(is_answer(hydrant_remote_evict(end, to, wanted.addr, wanted.len)));
  }
}

void RemoteClients::release() {
  if (held_.empty()) return;
  const size_t i = input_.below(static_cast<uint32_t>(held_.size()));
  const Held held = held_[i];
  held_[i] = held_.back();
  held_.pop_back();
  check(held);
  const int status =
      input_.below(2) != 0 ? hydrant_remote_release(held.pin) : hydrant_release(held.pin);
  HYDRANT_FUZZ_CHECK(status == GASNET_OK);
}

void RemoteClients::deliver() {
  const size_t pending = world_.pending();
  if (pending == 0) return;
  const size_t i = input_.byte() % pending;
  recorded_.push_back(world_.message(i));
  if (recorded_.size() > kMaxRecorded) recorded_.pop_front();
  world_.deliver(i);
}

// Injects a recorded message with changes, or random bytes. The receiver rejects it or acts on its contents;
// pins that it grants are released when the ends are destroyed.
void RemoteClients::forge() {
  if (!lies_) return deliver();
  RemoteMessage message{0, 1, input_.below(2), {}};
  const bool is_raw = recorded_.empty() || input_.below(8) == 0;
  if (is_raw) {
    const auto raw = input_.bytes(input_.byte());
    const remote_wire::Header header =
        remote_wire::header(static_cast<remote_wire::Type>(input_.below(9)), input_.below(4));
    const auto parts = std::as_bytes(std::span(&header, 1));
    message.bytes.assign(parts.begin(), parts.end());
    for (const uint8_t one : raw) message.bytes.push_back(static_cast<std::byte>(one));
  } else {
    message = recorded_[input_.byte() % recorded_.size()];
    constexpr uint64_t kOdd[] = {0, 1, UINT64_MAX, 0xffffffff, 0x80000000, 4096, UINT64_MAX - 4095};
    for (uint32_t n = input_.below(4); n > 0; --n) {
      const size_t at = input_.byte() % message.bytes.size();
      const uint8_t kind = input_.byte();
      if (kind < 64) {
        message.bytes[at] = static_cast<std::byte>(input_.byte());
      } else if (kind < 128) {
        message.bytes[at] ^= static_cast<std::byte>(1u << kind % 8);
      } else if (kind < 144) {
        message.bytes.resize(at + 1);
      } else if (kind < 160) {
        message.bytes.resize(message.bytes.size() + kind % 16);
      } else {
        // Replaces a field; fields begin at multiples of four.
        const uint64_t value = kOdd[kind % std::size(kOdd)];
        const size_t field = at / 4 * 4;
        std::memcpy(message.bytes.data() + field, &value,
                    std::min<size_t>(kind % 2 != 0 ? 4 : 8, message.bytes.size() - field));
      }
    }
  }
  if (input_.below(8) == 0) message.from = input_.below(8);
  if (input_.below(8) == 0) message.to = input_.below(kRanks);
  if (message.from == message.to && input_.below(2) != 0) return;
  has_forged_ = true;
  const GuardedCopy bytes(
      {static_cast<const uint8_t*>(static_cast<const void*>(message.bytes.data())),
       message.bytes.size()});
  RemotePinCluster::Rank& to = world_[message.to];
  const hydrant_remote_stats_t before = world_.stats(message.to);
  const int status =
      hydrant_remote_deliver(to.end, message.from, bytes.data(), bytes.size(),
                             message.lane == HYDRANT_LANE_REQUEST ? &world_ : nullptr);
  HYDRANT_FUZZ_CHECK(status == GASNET_OK || status == GASNET_ERR_BAD_ARG);
  if (status == GASNET_OK) return;
  HYDRANT_FUZZ_CHECK(hydrant_error_text()[0] != 0);
  const hydrant_remote_stats_t after = world_.stats(message.to);
  HYDRANT_FUZZ_CHECK(std::memcmp(&before, &after, sizeof before) == 0);
}

// Releases memory, or makes sends fail.
void RemoteClients::tell() {
  const uint32_t rank = input_.below(kRanks);
  const Range gone = range(rank);
  switch (input_.below(4)) {
    case 0: world_.refuse(rank, static_cast<int>(input_.below(4))); break;
    case 1: world_.refuse_each(static_cast<int>(input_.below(2) * (2 + input_.below(3)))); break;
    case 2: {
      const int status = hydrant_remote_quiet(world_[rank].end);
      HYDRANT_FUZZ_CHECK(status == GASNET_OK || status == GASNET_ERR_NOT_READY);
      break;
    }
    default: {
      const int status = hydrant_invalidate(world_[rank].domain,
                                            reinterpret_cast<const void*>(gone.addr), gone.len);
      HYDRANT_FUZZ_CHECK(is_answer(status));
      const testing::Arena& arena = world_[rank].arena;
      if (status != GASNET_OK || gone.len == 0 || !arena.contains(gone.addr, gone.len)) return;
      for (size_t page = arena.index(gone.addr); page <= arena.index(gone.addr + gone.len - 1);
           ++page)
        oldest_[rank][page] = world_[rank].registrar.next_serial();
    }
  }
}

void RemoteClients::end_a_pair() {
  if (!lies_ || input_.below(8) != 0) return;
  const auto [from, to] = pair();
  HYDRANT_FUZZ_CHECK(hydrant_remote_peer_gone(world_[from].end, to) == GASNET_OK);
  gone_.insert({from, to});
  hydrant_pin_t pin{};
  const int status = hydrant_remote_pin(world_[from].end, to, world_[to].arena.addr(0), kPage,
                                        HYDRANT_REMOTE_WRITE, nullptr, &pin);
  HYDRANT_FUZZ_CHECK(status == HYDRANT_ERR_BROKEN && pin.region == nullptr);
}

void RemoteClients::look() {
  for (const Held& held : held_) check(held);
}

// Runs until no work is left. False if it does not end: forged messages may keep ends busy.
bool RemoteClients::settle() {
  int quiet = 0;
  for (int round = 0; round < 2000 && quiet < 3; ++round) {
    int did = 0;
    for (; world_.pending() != 0 && did < 100; ++did) world_.deliver();
    for (uint32_t rank = 0; rank < kRanks; ++rank) did += hydrant_remote_poll(world_[rank].end);
    quiet = did == 0 && world_.pending() == 0 ? quiet + 1 : 0;
  }
  return quiet == 3;
}

// In the quiet state each firehose is known to its target, and each request has an answer.
void RemoteClients::check_quiet() {
  world_.refuse_each(0);
  for (uint32_t rank = 0; rank < kRanks; ++rank) world_.refuse(rank, 0);
  // Pins that were in progress are held now; releases them, too.
  for (int round = 0; round < 3; ++round) {
    HYDRANT_FUZZ_CHECK(settle());
    while (!held_.empty()) release();
  }
  for (const auto& asked : asked_) HYDRANT_FUZZ_CHECK(asked->is_done);
  uint64_t firehoses = 0, exports = 0;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const hydrant_remote_stats_t stats = world_.stats(rank);
    firehoses += stats.firehoses;
    exports += stats.exports;
  }
  HYDRANT_FUZZ_CHECK(firehoses <= exports);
  for (uint32_t to = 0; to < kRanks; ++to) {
    bool is_quiet = false;
    for (int round = 0; round < 10 && !is_quiet; ++round) {
      is_quiet = hydrant_remote_quiet(world_[to].end) == GASNET_OK;
      HYDRANT_FUZZ_CHECK(settle());
    }
    HYDRANT_FUZZ_CHECK(is_quiet);
    for (uint32_t from = 0; from < kRanks; ++from) {
      for (size_t page = 0; from != to && page < kPages; ++page) check_fresh(from, to, page);
    }
  }
}

// A usable pin of this page of a peer was registered after the page's last release.
void RemoteClients::check_fresh(uint32_t from, uint32_t to, size_t page) {
  const hydrant_pin_t pin = hydrant_try_remote_pin(
      world_[from].end, to, world_[to].arena.addr(page), kPage, HYDRANT_REMOTE_READ);
  if (pin.region == nullptr) return;
  const testing::RecordingRegistrar& registrar = world_[to].registrar;
  if (registrar.table.key_bytes != 0)
    HYDRANT_FUZZ_CHECK(registrar.serial_of(pin.region->key) >= oldest_[to][page]);
  HYDRANT_FUZZ_CHECK(hydrant_remote_release(pin) == GASNET_OK);
}

void RemoteClients::wrong_calls() {
  hydrant_remote_t end = world_[0].end;
  hydrant_pin_t pin{};
  const uintptr_t addr = world_[0].arena.addr(0);
  constexpr uint32_t kWrite = HYDRANT_REMOTE_WRITE;
  for (const uint32_t peer : {0u, kRanks, UINT32_MAX}) {
    HYDRANT_FUZZ_CHECK(hydrant_remote_pin(end, peer, addr, kPage, kWrite, nullptr, &pin) ==
                       GASNET_ERR_BAD_ARG);
    HYDRANT_FUZZ_CHECK(hydrant_remote_prefetch(end, peer, addr, kPage, kWrite) ==
                       GASNET_ERR_BAD_ARG);
    HYDRANT_FUZZ_CHECK(hydrant_remote_evict(end, peer, addr, kPage) == GASNET_ERR_BAD_ARG);
    HYDRANT_FUZZ_CHECK(hydrant_remote_peer_gone(end, peer) != GASNET_OK);
    HYDRANT_FUZZ_CHECK(hydrant_try_remote_pin(end, peer, addr, kPage, kWrite).region == nullptr);
  }
  HYDRANT_FUZZ_CHECK(hydrant_remote_deliver(end, 1, nullptr, 100, nullptr) == GASNET_ERR_BAD_ARG);
  end = input_.take<uint64_t>();
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    if (world_[rank].end == end) return;
  }
  HYDRANT_FUZZ_CHECK(hydrant_remote_pin(end, 1, addr, kPage, kWrite, nullptr, &pin) ==
                     GASNET_ERR_NOT_INIT);
  HYDRANT_FUZZ_CHECK(hydrant_remote_poll(end) == -GASNET_ERR_NOT_INIT);
  HYDRANT_FUZZ_CHECK(hydrant_remote_quiet(end) == GASNET_ERR_NOT_INIT);
  HYDRANT_FUZZ_CHECK(hydrant_remote_max_args(end) == 0);
  HYDRANT_FUZZ_CHECK(hydrant_remote_destroy(end) == GASNET_ERR_NOT_INIT);
}

void RemoteClients::finish() {
  if (has_ended_) return;
  if (!lies_) check_quiet();
  // Keeps some holds until the ends are destroyed.
  while (held_.size() > 2) release();
  has_ended_ = true;
  world_.rebuild();
  for (const auto& asked : asked_) HYDRANT_FUZZ_CHECK(asked->is_done);
  for (const Held& held : held_) (void)hydrant_remote_release(held.pin);
  held_.clear();
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    HYDRANT_FUZZ_CHECK(hydrant_flush(world_[rank].domain) == GASNET_OK);
    HYDRANT_FUZZ_CHECK_TEXT(problems_of(world_[rank].registrar));
    HYDRANT_FUZZ_CHECK(world_[rank].registrar.live() == 0);
  }
}

}  // namespace hydrant::fuzz
