// Wrong calls and dead peers: every case either ends the job with a text, or prints the result and
// continues.
#include "tests/integration/rma/client.hpp"
#include "tests/support/patience.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

namespace rma_client {
namespace {

constexpr size_t kRange = 3 * 65536;

// Memory of rank 1: partly mapped, unmapped, and read-only.
struct BadMemory {
  std::byte* ends;  // kRange bytes are mapped, the next kRange bytes are not
  std::byte* none;  // kRange unmapped bytes
  std::byte* read_only;
};
BadMemory bad;

void show_bad_memory() {
  if (me == size - 1) {
    const auto map = [](size_t bytes) {
      void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) wrong("mmap");
      std::memset(at, 1, bytes);
      return static_cast<std::byte*>(at);
    };
    bad = {.ends = map(2 * kRange), .none = nullptr, .read_only = map(kRange)};
    bad.none = bad.ends + kRange;
    if (mprotect(bad.none, kRange, PROT_NONE) != 0 ||
        mprotect(bad.read_only, kRange, PROT_READ) != 0)
      wrong("mprotect");
    std::memcpy(area(me, kHeap), &bad, sizeof bad);
  }
  barrier();
  gasnet_get(&bad, size - 1, area(size - 1, kHeap), sizeof bad);
  barrier();
}

// Accesses `far` of the last rank, which must fail, in the form `how`.
void touch(std::string_view how, bool is_put, std::byte* far, size_t bytes) {
  const gex_Rank_t peer = size - 1;
  std::byte* const near = own_segment();
  if (how == "blocking") {
    answered(is_put ? gex_RMA_PutBlocking(team, peer, far, near, bytes, 0)
                    : gex_RMA_GetBlocking(team, near, peer, far, bytes, 0));
  } else if (how == "nb") {
    gex_Event_Wait(is_put ? gex_RMA_PutNB(team, peer, far, near, bytes, GEX_EVENT_DEFER, 0)
                          : gex_RMA_GetNB(team, near, peer, far, bytes, 0));
    answered(0);
  } else if (how == "nbi") {
    if (is_put) (void)gex_RMA_PutNBI(team, peer, far, near, bytes, GEX_EVENT_DEFER, 0);
    if (!is_put) (void)gex_RMA_GetNBI(team, near, peer, far, bytes, 0);
    gex_NBI_Wait(GEX_EC_ALL, 0);
    answered(0);
  } else if (how == "region") {
    gasnet_begin_nbi_accessregion();
    if (is_put) gasnet_put_nbi_bulk(peer, far, near, bytes);
    if (!is_put) gasnet_get_nbi(near, peer, far, bytes);
    gex_Event_Wait(gasnet_end_nbi_accessregion());
    answered(0);
  } else if (how == "memset") {
    gasnet_memset(peer, far, 7, bytes);
    answered(0);
  } else if (how == "memset_nb") {
    gex_Event_Wait(gasnet_memset_nb(peer, far, 7, bytes));
    answered(0);
  } else {
    std::byte* const good = area(peer, kSegment);
    const hydrant_rma_op_t ops[] = {{peer, good, near, 100}, {peer, far, near, bytes}};
    gex_Event_t event = GEX_EVENT_INVALID;
    const bool waits = how == "many_event";
    if (!waits && how != "many") wrong("no form %s", std::string(how).c_str());
    const int code = is_put ? hydrant_put_many(team, ops, 2, bytes + 100, waits ? &event : nullptr)
                            : hydrant_get_many(team, ops, 2, bytes + 100, waits ? &event : nullptr);
    gex_Event_Wait(event);
    answered(code);
  }
}

// FORM-PLACE[-get][-large]
bool touch_bad_memory(std::string_view what) {
  const bool is_large = what.ends_with("-large");
  if (is_large) what.remove_suffix(6);
  const bool is_get = what.ends_with("-get");
  if (is_get) what.remove_suffix(4);
  const size_t cut = what.find('-');
  if (cut == what.npos) return false;
  const std::string_view place = what.substr(cut + 1);
  const size_t bytes = is_large ? kRange : 100;
  std::byte* far = nullptr;
  if (place == "none") far = bad.none;
  if (place == "ends") far = bad.none - bytes / 2;
  if (place == "read_only") far = bad.read_only;
  if (far == nullptr) return false;
  touch(what.substr(0, cut), !is_get, far, bytes);
  return true;
}

struct Case {
  const char* name;
  void (*act)();
};
char byte = 0;
std::byte* heap() { return area(size - 1, kHeap); }
std::byte* high() { return reinterpret_cast<std::byte*>(UINTPTR_MAX - 9); }

const Case kCases[] = {
    {"rank", [] { answered(gex_RMA_PutBlocking(team, size, heap(), &byte, 1, 0)); }},
    {"rank_get", [] { answered(gex_RMA_GetBlocking(team, &byte, 12345, heap(), 1, 0)); }},
    {"rank_value", [] { answered(gex_RMA_PutBlockingVal(team, size, heap(), 1, 1, 0)); }},
    {"rank_many",
     [] {
       const hydrant_rma_op_t op = {size, heap(), &byte, 1};
       answered(hydrant_put_many(team, &op, 1, 1, nullptr));
     }},
    {"rank_memset",
     [] {
       gasnet_memset(size, heap(), 1, 1);
       answered(0);
     }},
    {"null_remote", [] { answered(gex_RMA_PutBlocking(team, size - 1, nullptr, &byte, 1, 0)); }},
    {"null_local", [] { answered(gex_RMA_PutBlocking(team, size - 1, heap(), nullptr, 100, 0)); }},
    {"null_local_self",
     [] { answered(gex_RMA_PutBlocking(team, me, area(me, kHeap), nullptr, 100, 0)); }},
    {"wrong_total",
     [] {
       const hydrant_rma_op_t op = {size - 1, heap(), &byte, 1};
       answered(hydrant_put_many(team, &op, 1, 2, nullptr));
     }},
    {"value_bytes",
     [] {
       const volatile size_t too_many = 9;
       answered(gex_RMA_PutBlockingVal(team, size - 1, heap(), 1, too_many, 0));
     }},
    {"value_bytes_get",
     [] {
       const volatile size_t none = 0;
       answered(static_cast<int>(gex_RMA_GetBlockingVal(team, size - 1, heap(), none, 0)));
     }},
    {"null_list", [] { answered(hydrant_get_many(team, nullptr, 3, 3, nullptr)); }},
    {"null_counts", [] { answered(hydrant_query_path(me, HYDRANT_PATH_SELF, nullptr)); }},
    {"wrap_remote",
     [] { answered(gex_RMA_PutBlocking(team, size - 1, high(), own_segment(), 100, 0)); }},
    {"wrap_self", [] { answered(gex_RMA_PutBlocking(team, me, high(), own_segment(), 100, 0)); }},
    {"wrap_length",
     [] {
       // Volatile, because a compiler that knows the length refuses it.
       const volatile size_t too_much = SIZE_MAX - 5;
       answered(gex_RMA_GetBlocking(team, own_segment(), size - 1, heap(), too_much, 0));
     }},
    {"team", [] { answered(gex_RMA_PutBlocking(GEX_TM_INVALID, 0, heap(), &byte, 1, 0)); }},
    {"handler",
     [] {
       put_in_a_handler();
       answered(0);
     }},
    {"no_op", [] { gex_Event_Wait(GEX_EVENT_NO_OP); }},
    {"no_op_leaf", [] { (void)gex_Event_QueryLeaf(GEX_EVENT_NO_OP, GEX_EC_LC); }},
    {"second_sync",
     [] {
       // Long enough to be under way on return, if puts can be.
       const gex_Event_t event = gex_RMA_PutNB(team, size - 1, heap(), own_segment(),
                                               size_t{1} << 20, GEX_EVENT_DEFER, 0);
       if (event == GEX_EVENT_INVALID) wrong("there is no event to sync twice");
       gex_Event_Wait(event);
       (void)gex_Event_Test(event);
     }},
    {"nested",
     [] {
       gasnet_begin_nbi_accessregion();
       gasnet_begin_nbi_accessregion();
     }},
    {"sync_in_region",
     [] {
       gasnet_begin_nbi_accessregion();
       gasnet_wait_syncnbi_all();
     }},
    {"end_without_begin", [] { (void)gasnet_end_nbi_accessregion(); }},
};

}  // namespace

void answered(int code) {
  std::printf("answered %d: %s\n", code, hydrant_last_error_text());
  std::fflush(stdout);
}

void misuse(const char* what) {
  show_bad_memory();
  if (me == 0) {
    bool found = touch_bad_memory(what);
    for (const Case& one : kCases) {
      if (found || std::strcmp(one.name, what) != 0) continue;
      found = true;
      one.act();
    }
    if (!found) wrong("no case %s", what);
    // Later operations work.
    uint64_t word = 4711;
    gasnet_put(size - 1, area(size - 1, kHeap), &word, sizeof word);
    word = 0;
    gasnet_get(&word, size - 1, area(size - 1, kHeap), sizeof word);
    if (word != 4711) wrong("after %s, a put is lost", what);
  }
}

void stream() {
  std::printf("rank %u of %u by %d\n", me, size, static_cast<int>(getpid()));
  std::fflush(stdout);
  std::byte* const near = own_segment();
  constexpr size_t kSizes[] = {8, 3000, 65536, 700000, 4 << 20};
  // The script kills a rank much earlier; otherwise this loop ends by itself.
  const double end = now_s() + 60 * hydrant::testing::patience();
  for (uint32_t i = 0; now_s() < end; ++i) {
    const gex_Rank_t peer = (me + i) % size;
    const size_t bytes = kSizes[i / size % std::size(kSizes)];
    const Area which = i % 2 == 0 ? kSegment : kMapped;
    gasnet_put_nbi_bulk(peer, area(peer, which), near, bytes);
    gasnet_get_nbi(near + (4 << 20), peer, area(peer, which), bytes);
    gex_Event_Wait(gex_RMA_PutNB(team, peer, area(peer, which), near, bytes, GEX_EVENT_NOW, 0));
    if (i % 16 == 0) gex_NBI_Wait(GEX_EC_ALL, 0);
  }
  wrong("no rank was killed");
}

void silence() {
  if (me == size - 1) {
    usleep(static_cast<useconds_t>(1'000'000 * hydrant::testing::patience()));
  } else {
    uint64_t word = me + 1;
    gasnet_put(size - 1, area(size - 1, kHeap) + 8 * me, &word, sizeof word);
    gex_RMA_Value_t got = gasnet_get_val(size - 1, area(size - 1, kHeap) + 8 * me, 8);
    if (got != word) wrong("%llu came back", static_cast<unsigned long long>(got));
  }
}

}  // namespace rma_client
