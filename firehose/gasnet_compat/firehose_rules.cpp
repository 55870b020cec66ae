// Records which callbacks of the client a thread is inside. In debug builds it also aborts on calls that
// GASNet forbids there, and on a second release of a request. The functions of firehose.h call it first.
#include "firehose/gasnet_compat/firehose_rules.hpp"

#include "firehose/gasnet_compat/firehose_registrar.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace hydrant {
namespace {

// A bit for each.
thread_local constinit uint8_t t_inside = 0;
static_assert(static_cast<uint32_t>(CompatInside::kCount) <= 8);

uint8_t bit_of(CompatInside where) noexcept {
  return static_cast<uint8_t>(1u << static_cast<uint32_t>(where));
}

}  // namespace

CompatScope::CompatScope(CompatInside where) noexcept : before_(t_inside) {
  t_inside |= bit_of(where);
}
CompatScope::~CompatScope() { t_inside = before_; }

bool is_in_callback(CompatInside where) noexcept { return (t_inside & bit_of(where)) != 0; }

#if HYDRANT_DEBUG

void check_call_rules(CompatCall call, const char* function) noexcept {
  if (is_in_callback(CompatInside::kMove)) {
    compat_fatal(
        "%s: called inside firehose_move_callback or FH_MAY_MERGE, which must not call firehose: "
        "they run in the middle of a pin, a release or a message",
        function);
  }
  if (call == CompatCall::kReleases) return;
  if (is_in_callback(CompatInside::kHandler)) {
    compat_fatal(
        "%s: called while this thread serves a message of firehose's, in a callback that runs in "
        "an AM handler; only firehose_release may be called there",
        function);
  }
  if (call == CompatCall::kLooks) return;
  if (is_in_callback(CompatInside::kArgs)) {
    compat_fatal(
        "%s: called inside a remote_args_callback, whose remote pin is half made and waits for it; "
        "only firehose_release and the try and partial pins may be called there",
        function);
  }
  if (is_in_callback(CompatInside::kRemote)) {
    compat_fatal(
        "%s: called inside firehose_remote_callback, while another node waits for its end; only "
        "firehose_release and the try and partial pins may be called there",
        function);
  }
}

namespace {

// The header before each request.
struct alignas(16) RequestHead {
  std::atomic<uint64_t> state;
};
constexpr uint64_t kLive = 0x6c69766572657175, kDropped = 0x64726f7072657175;
// The requests that were dropped last; without a lock, so that a fork does not matter.
constexpr size_t kKept = 256;
std::array<std::atomic<void*>, kKept> g_dropped{};
std::atomic<size_t> g_next{0};

}  // namespace

void* make_request(size_t bytes) noexcept {
  void* memory = std::malloc(sizeof(RequestHead) + bytes);
  if (memory == nullptr) return nullptr;
  auto* head = new (memory) RequestHead{kLive};
  return head + 1;
}

void drop_request(void* request) noexcept {
  RequestHead* head = static_cast<RequestHead*>(request) - 1;
  // Relaxed, and acquire and release below: only the head is touched here, and then freed.
  if (head->state.exchange(kDropped, std::memory_order_relaxed) != kLive) {
    compat_fatal(
        "firehose_release: this request was released before: its storage was the library's, and "
        "ended with that");
  }
  const size_t index = g_next.fetch_add(1, std::memory_order_relaxed) % kKept;
  std::free(g_dropped[index].exchange(head, std::memory_order_acq_rel));
}

#else

void check_call_rules(CompatCall, const char*) noexcept {}
void* make_request(size_t bytes) noexcept { return std::malloc(bytes); }
void drop_request(void* request) noexcept { std::free(request); }

#endif

}  // namespace hydrant
