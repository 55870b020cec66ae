// Exchanges messages, puts and gets between two ranks, and checks their contents and order.
#include "tests/verbs/pair/pair_job.hpp"

#include "rdma/open_bootstrap.hpp"

#include <algorithm>
#include <cstdio>

namespace hydrant::testing {
namespace {

constexpr uint32_t kKeyTag = 1;
constexpr uint32_t kMessageTag = 2;
constexpr uint32_t kCellTag = 3;

// The start of each message.
struct Head {
  uint32_t index;
  uint32_t puts_seen;
};

struct KeyMessage {
  uint64_t address;
  uint64_t length;
  std::byte blob[64];
};

// Fills bytes with a pattern that depends on the sender, the operation and the position.
void fill(std::byte* bytes, size_t count, uint32_t seed) {
  uint32_t state = seed * 2654435761U + 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    bytes[i] = static_cast<std::byte>(state >> 24);
  }
}

bool is_filled(const std::byte* bytes, size_t count, uint32_t seed) {
  std::vector<std::byte> expected(count);
  fill(expected.data(), count, seed);
  return std::equal(expected.begin(), expected.end(), bytes);
}

uint32_t seed_of(Rank from, uint32_t what, uint32_t index) { return (index * 8 + what) * 2 + from; }
constexpr uint32_t kOfPut = 6;
constexpr uint32_t kOfShown = 7;

uint32_t tail_bytes(uint32_t index) { return index * 37 % 200; }
uint32_t cell_bytes(uint32_t index) { return index % 5 == 4 ? index * 4099 % 16384 + 1 : 0; }

}  // namespace

IbvTransport::Options PairJob::options() const {
  IbvTransport::Options made;
  made.single_threaded = true;
  made.probe_ns = 200'000'000;
  made.patience_ns = 1'900'000'000;
  return made;
}

void PairJob::SetUp() {
  ASSERT_EQ(open_bootstrap(nullptr, nullptr, &bootstrap), Status::kOk) << last_error_text();
  const JobTopology& place = bootstrap->topology();
  ASSERT_EQ(place.size, 2U) << "start it with mpirun -n 2 (tests/verbs/run_pair)";
  ASSERT_EQ(place.node_count, 2U);
  ASSERT_EQ(place.node_ranks, std::vector<Rank>{place.rank});
  process.open(*bootstrap, options());
  ASSERT_NE(process.transport, nullptr);
  process.inbox.then = [this](const Incoming& message) { take(message); };
  // Rank 1 waits in the kernel, rank 0 polls.
  process.sleeps = self() == 1;
  memory_ = std::make_unique<PinnedMemory>(
      *process.transport, Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead,
      kAllBytes);
  fill(memory_->data.get() + kShown, kPutBytes, seed_of(self(), kOfShown, 0));
}

void PairJob::TearDown() {
  memory_.reset();
  process.transport.reset();
  if (bootstrap != nullptr) bootstrap->leave(0, ExitReason::kExit, in_seconds(kLongSeconds));
}

void PairJob::complain(const char* what, uint64_t index) {
  if (wrong_.size() < 1000)
    wrong_ +=
        std::string(what) + " " + std::to_string(index) + " from " + std::to_string(other()) + "; ";
}

void PairJob::take(const Incoming& message) {
  if (message.from != other()) return complain("a message of another rank", message.from);
  if (message.tag == kKeyTag) {
    KeyMessage key;
    std::memcpy(&key, message.head, sizeof key);
    if (memory_->registrar->import_key(key.blob, key.length, their_key_.data()) != Status::kOk)
      complain("the key", 0);
    their_memory_ = key.address;
    return;
  }
  uint32_t& next = next_[static_cast<uint32_t>(message.lane)];
  take_message(message, next);
  ++next;
}

void PairJob::take_message(const Incoming& message, uint32_t index) {
  Head head;
  std::memcpy(&head, message.head, sizeof head);
  if (head.index != index) return complain("out of order: message", head.index);
  puts_told_ = std::max(puts_told_, head.puts_seen);
  const auto lane = static_cast<uint32_t>(message.lane);
  if (!is_filled(message.head + sizeof head, tail_bytes(index), seed_of(other(), lane, index)))
    complain("the head of message", index);
  const uint32_t bytes = cell_bytes(index);
  if (message.tag != (bytes != 0 ? kCellTag : kMessageTag)) complain("the tag of message", index);
  if (bytes != 0 && (message.payload == nullptr || message.payload_room < bytes ||
                     !is_filled(message.payload, bytes, seed_of(other(), 2 + lane, index))))
    complain("the payload of message", index);
  // A put was sent before this message: it must be there.
  if (message.lane == Lane::kReply || index % kPutEvery != 0) return;
  const std::byte* put = memory_->data.get() + kWindow + puts_seen_ % kSlots * kPutBytes;
  if (!is_filled(put, put_bytes_, seed_of(other(), kOfPut, puts_seen_)))
    complain("the put before message", index);
  ++puts_seen_;
}

Status PairJob::introduce() {
  KeyMessage key{};
  key.address = memory_->address();
  size_t length = sizeof key.blob;
  const Status status = memory_->registrar->export_key({memory_->address(), kAllBytes},
                                                       memory_->key.data(), key.blob, &length);
  if (status != Status::kOk) return status;
  key.length = length;
  return process.send(other(), Lane::kRequest, kKeyTag,
                      {reinterpret_cast<const char*>(&key), sizeof key});
}

Status PairJob::send_one(Lane lane, uint32_t index) {
  std::byte bytes[sizeof(Head) + 200];
  const Head head{index, puts_seen_};
  std::memcpy(bytes, &head, sizeof head);
  const auto number = static_cast<uint32_t>(lane);
  fill(bytes + sizeof head, tail_bytes(index), seed_of(self(), number, index));
  std::vector<std::byte> payload(cell_bytes(index));
  fill(payload.data(), payload.size(), seed_of(self(), 2 + number, index));
  return process.send(other(), lane, payload.empty() ? kMessageTag : kCellTag,
                      {reinterpret_cast<const char*>(bytes), sizeof head + tail_bytes(index)},
                      {reinterpret_cast<const char*>(payload.data()), payload.size()});
}

// Does a put that the next message's receiver checks, and a get of the peer's shown data. The source may
// change when the put is complete, and the peer's slot is reusable when the peer has checked it.
Status PairJob::move(uint32_t number) {
  const bool has_room = process.until(
      [&] { return number - puts_told_ < kSlots || process.transport->counts().lost != 0; });
  if (!has_room) return fail(Status::kNotReady, "the peer does not acknowledge puts");
  const size_t slot = number % kSlots * kPutBytes;
  fill(memory_->data.get() + kSource + slot, put_bytes_, seed_of(self(), kOfPut, number));
  std::memset(memory_->data.get() + kGot, 0, put_bytes_);
  Told put;
  Told get;
  const auto begin = [&](bool is_put, Told& told) {
    Status status = Status::kNotReady;
    (void)process.until([&] {
      status = is_put ? process.transport->pinned()->put(
                            other(), {their_memory_ + kWindow + slot, their_key_.data()},
                            memory_->local(kSource + slot), put_bytes_, &told)
                      : process.transport->pinned()->get(
                            other(), {their_memory_ + kShown, their_key_.data()},
                            memory_->local(kGot), put_bytes_, &told);
      return status != Status::kNotReady;
    });
    return status;
  };
  const Status put_status = begin(true, put);
  const Status get_status = put_status == Status::kOk ? begin(false, get) : put_status;
  // Waits for both operations in any case, because they are on this stack.
  const bool is_over = process.until([&] {
    return (put_status != Status::kOk || put.times != 0) &&
           (get_status != Status::kOk || get.times != 0);
  });
  if (!is_over) {
    std::printf("rank %u: a put or a get did not complete in time\n", self());
    std::abort();
  }
  if (put_status != Status::kOk) return put_status;
  if (get_status != Status::kOk) return get_status;
  if (put.status != Status::kOk) return put.status;
  if (get.status != Status::kOk) return get.status;
  if (!is_filled(memory_->data.get() + kGot, put_bytes_, seed_of(other(), kOfShown, 0)))
    complain("what was got, number", number);
  return Status::kOk;
}

Status PairJob::put_once(size_t bytes) {
  Told told;
  const Status status = process.transport->pinned()->put(
      other(), {their_memory_, their_key_.data()}, memory_->local(kSource), bytes, &told);
  if (status != Status::kOk) return status;
  if (!process.until([&] { return told.times != 0; })) std::abort();
  return told.status;
}

Status PairJob::exchange(uint32_t count, const std::function<void(uint32_t)>& before) {
  const auto is_lost = [&] { return process.transport->counts().lost != 0; };
  Status status = Status::kOk;
  if (their_memory_ == 0) {
    status = introduce();
    if (status != Status::kOk) return status;
    if (!process.until([&] { return their_memory_ != 0 || is_lost(); }))
      return fail(Status::kNotReady, "the peer has not sent its key");
  }
  for (const uint32_t end = sent_ + count; sent_ < end; ++sent_) {
    const uint32_t i = sent_;
    if (before) before(i);
    // Stays close to the received messages, so that messages continue until the last put is checked.
    (void)process.until(
        [&] { return (next_[0] + kAhead >= i && next_[1] + kAhead >= i) || is_lost(); });
    if (i % kPutEvery == 0) status = move(i / kPutEvery);
    for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
      if (status == Status::kOk) status = send_one(lane, i);
    }
    if (status != Status::kOk) return status;
  }
  const bool all_came =
      process.until([&] { return (next_[0] >= sent_ && next_[1] >= sent_) || is_lost(); });
  if (is_lost()) return fail(Status::kBroken, "rank %u was lost", other());
  if (!all_came)
    return fail(Status::kNotReady, "received only %u and %u messages", next_[0], next_[1]);
  process.transport->flush(in_seconds(kLongSeconds));
  return Status::kOk;
}

}  // namespace hydrant::testing
