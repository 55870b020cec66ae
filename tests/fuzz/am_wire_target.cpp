// Fuzz target: received Active Messages. A message that is_whole() accepts can be delivered, and its handler
// may read the whole payload.
#include <hydrant/gasnet/am_calls.h>

#include "am/handler/deliver.hpp"
#include "am/job/job.hpp"
#include "am/wire/message.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/unit/am/fake_transport.hpp"

#include <vector>

namespace hydrant::fuzz {
namespace {

constexpr gex_AM_Index_t kShort0 = 200, kShort2 = 201, kMedium1 = 202, kLong1 = 203;

unsigned calls = 0;
// Target of Longs.
std::byte segment[512];
// Prevents the compiler from removing the reads.
volatile unsigned sum_of_all = 0;

void read_all(const void* payload, size_t bytes, int32_t argument) {
  ++calls;
  unsigned sum = static_cast<unsigned>(argument);
  const auto* from = static_cast<const uint8_t*>(payload);
  for (size_t i = 0; i < bytes; ++i) sum += from[i];
  sum_of_all = sum;
}
void on_short0(gex_Token_t) { read_all(nullptr, 0, 0); }
void on_short2(gex_Token_t, int32_t a, int32_t b) { read_all(nullptr, 0, a ^ b); }
void on_medium1(gex_Token_t, void* payload, size_t bytes, int32_t a) {
  HYDRANT_FUZZ_CHECK(reinterpret_cast<uintptr_t>(payload) % 8 == 0);
  read_all(payload, bytes, a);
}
void on_long1(gex_Token_t, void* payload, size_t bytes, int32_t a) {
  HYDRANT_FUZZ_CHECK(payload == segment);
  read_all(payload, bytes, a);
}

// This process as rank 0 of a job of three.
bool start_job() {
  Job& the_job = job();
  hydrant_job_info.rank = 0;
  hydrant_job_info.size = 3;
  (void)the_job.use(std::make_unique<test::FakeTransport>());
  the_job.endpoint.client = &the_job.client;
  hydrant_world.ep = &the_job.endpoint;
  hydrant_world.size = 3;
  the_job.state = JobState::kWired;
  const auto row = [](gex_AM_Index_t index, auto* function, gex_Flags_t category, unsigned nargs) {
    return gex_AM_Entry_t{index,
                          reinterpret_cast<gex_AM_Fn_t>(function),
                          category | GEX_FLAG_AM_REQREP,
                          nargs,
                          nullptr,
                          "fuzzed"};
  };
  gex_AM_Entry_t rows[] = {
      row(kShort0, on_short0, GEX_FLAG_AM_SHORT, 0), row(kShort2, on_short2, GEX_FLAG_AM_SHORT, 2),
      row(kMedium1, on_medium1, GEX_FLAG_AM_MEDIUM, 1), row(kLong1, on_long1, GEX_FLAG_AM_LONG, 1)};
  return the_job.handlers.add(rows, std::size(rows)) == Status::kOk;
}

// The format's specification, written independently of is_whole().
bool should_be_whole(const Tag& tag, const Incoming& message) {
  const auto category = static_cast<uint32_t>(tag.category);
  if (tag.nargs > 16 || category > 2) return false;
  constexpr uint32_t kBefore[] = {0, 4, 12};
  const uint64_t head = kBefore[category] + 4 * tag.nargs;
  if (message.head_room < head) return false;
  if (category == 0 || (category == 2 && !tag.deposit)) return true;
  const uint32_t bytes = read_length(message.head, tag.category);
  if (message.payload != nullptr) return bytes <= message.payload_room;
  if (bytes == 0) return true;
  uint64_t begin = head;
  while (begin % 16 != 8) ++begin;
  return begin + bytes <= message.head_room;
}

Tag for_a_handler(Tag tag, bool other) {
  tag.handler = tag.category == Category::kShort    ? (other ? kShort2 : kShort0)
                : tag.category == Category::kMedium ? kMedium1
                                                    : kLong1;
  tag.nargs = tag.handler == kShort0 ? 0 : tag.handler == kShort2 ? 2 : 1;
  tag.deposit = tag.deposit && tag.category == Category::kLong;
  return tag;
}

void deliver(Tag tag, Incoming message) {
  message.tag = tag.pack();
  if (tag.category == Category::kLong) {
    // Sets a valid address: addresses are trusted, because the sender could write there anyway.
    if (read_length(message.head, Category::kLong) > sizeof segment) return;
    write_dest(const_cast<std::byte*>(message.head), reinterpret_cast<uintptr_t>(segment));
  }
  calls = 0;
  am_receiver().deliver(message);
  HYDRANT_FUZZ_CHECK(calls == 1);
}

// The same message from the third endpoint of its sender: an argument more, which names the endpoints.
void deliver_addressed(Tag tag, const Incoming& message) {
  const EndpointPair endpoints = {.to = 0, .from = 2};
  int32_t args[kMaxArgs + 1];
  std::memcpy(args, message.head + args_offset(tag.category), size_t{4} * tag.nargs);
  args[tag.nargs++] = endpoints.pack();
  if (!is_whole(tag, message, kMaxArgs + 1)) return;
  write_args(const_cast<std::byte*>(message.head), tag.category, tag.nargs, args);
  tag.nargs |= Tag::kAddressed;
  deliver(tag, message);
}

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant;
  using namespace hydrant::fuzz;
  static const bool started = start_job();
  HYDRANT_FUZZ_CHECK(started);
  if (size > 4096) return 0;
  Input input(data, size);
  const uint32_t bits = input.take<uint16_t>();
  const uint8_t shape = input.byte();
  const Tag tag = Tag::unpack(bits);
  HYDRANT_FUZZ_CHECK(tag.pack() == bits);
  // The transport's 8 bytes precede the head, so that the payload is aligned.
  const GuardedCopy cell(input.bytes(input.byte()), 16);
  std::vector<uint8_t> framed(8);
  const auto head = input.bytes(MessageChannel::kMaxHeadBytes + 240);
  framed.insert(framed.end(), head.begin(), head.end());
  const GuardedCopy frame(framed, 16);
  Incoming message;
  message.from = 1 + (shape & 1);
  message.lane = (shape & 2) != 0 ? Lane::kReply : Lane::kRequest;
  message.tag = bits;
  message.head = frame.data() + 8;
  message.head_room = static_cast<uint32_t>(head.size());
  if ((shape & 4) != 0) {
    message.payload = cell.data();
    message.payload_room = static_cast<uint32_t>(cell.size());
  }
  HYDRANT_FUZZ_CHECK(is_whole(tag, message) == should_be_whole(tag, message));
  if (tag.category > Category::kLong) return 0;
  const Tag served = for_a_handler(tag, (shape & 8) != 0);
  if (!is_whole(served, message)) return 0;
  if ((shape & 16) != 0)
    deliver_addressed(served, message);
  else
    deliver(served, message);
  return 0;
}
