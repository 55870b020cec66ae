// Fuzz target: messages between ranks and their supervisor.
#include "rdma/bootstrap/wire.hpp"
#include "tests/fuzz/fuzz_target.hpp"

namespace hydrant::fuzz {
namespace {

using launch::kMagic;

// An accepted message consists of its head and a tail that fills the rest.
template <typename Head>
void check_parts(const GuardedCopy& message, const Head& head, std::span<const std::byte> tail) {
  HYDRANT_FUZZ_CHECK(head.magic == kMagic);
  HYDRANT_FUZZ_CHECK(std::memcmp(&head, message.data(), sizeof head) == 0);
  HYDRANT_FUZZ_CHECK(sizeof head + tail.size() == message.size());
  HYDRANT_FUZZ_CHECK(tail.empty() || tail.data() == message.data() + sizeof head);
  HYDRANT_FUZZ_CHECK(tail.size() <= Bootstrap::kMaxValueBytes);
}

// A rejected message leaves the result unchanged.
template <typename Head>
void check_untouched(const Head& head) {
  const Head fresh;
  HYDRANT_FUZZ_CHECK(std::memcmp(&head, &fresh, sizeof head) == 0);
}

void check_request(const GuardedCopy& message) {
  launch::Request request;
  std::span<const std::byte> tail;
  if (!launch::read_request(message.span(), &request, &tail)) return check_untouched(request);
  check_parts(message, request, tail);
  HYDRANT_FUZZ_CHECK(request.value_bytes == tail.size());
  const size_t key_bytes = strnlen(request.key, launch::kKeyRoom);
  HYDRANT_FUZZ_CHECK(key_bytes < launch::kKeyRoom);
  const bool has_key = key_bytes != 0;
  switch (request.kind) {
    case launch::RequestKind::kHello:
    case launch::RequestKind::kFence: HYDRANT_FUZZ_CHECK(!has_key && tail.empty()); break;
    case launch::RequestKind::kGet: HYDRANT_FUZZ_CHECK(has_key && tail.empty()); break;
    case launch::RequestKind::kPut: HYDRANT_FUZZ_CHECK(has_key); break;
    default: violated(__FILE__, __LINE__, "an unknown kind was accepted");
  }
  launch::Request again;
  if (has_key) HYDRANT_FUZZ_CHECK(launch::set_key({request.key, key_bytes}, &again));
}

void check_reply(const GuardedCopy& message) {
  launch::Reply reply;
  std::span<const std::byte> tail;
  if (!launch::read_reply(message.span(), &reply, &tail)) return check_untouched(reply);
  check_parts(message, reply, tail);
  HYDRANT_FUZZ_CHECK(reply.bytes == tail.size());
  HYDRANT_FUZZ_CHECK(
      std::strcmp(status_name(static_cast<Status>(reply.status)), "(unknown status)") != 0);
}

void check_word(const GuardedCopy& message) {
  launch::Event event;
  if (!launch::read_event(message.span(), &event)) return check_untouched(event);
  check_parts(message, event, {});
  HYDRANT_FUZZ_CHECK(event.kind >= launch::EventKind::kExit &&
                     event.kind <= launch::EventKind::kStartFailure);
}

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  if (size > hydrant::launch::kMaxMessage + 1) return 0;
  const GuardedCopy message({data, size});
  check_request(message);
  check_reply(message);
  check_word(message);
  return 0;
}
