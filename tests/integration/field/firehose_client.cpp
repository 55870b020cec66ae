// A process that makes each call of libfirehose alone: pin_cache.h, remote_pin.h, monitor.h and firehose.h.
#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>
#include <hydrant/remote_pin.h>

#include "tests/integration/field/field.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// In firehose_calls.c: the calls of firehose.h at a page. What is wrong, or null.
extern "C" const char* field_firehoses(char* page);

namespace field {
namespace {

constexpr size_t kPage = 4096, kPages = 64;
alignas(kPage) char memory[kPages * kPage];
alignas(kPage) char peer_memory[kPages * kPage];
hydrant_domain_t domain = 0;
int file = -1;  // of a page
char* at(size_t page) { return memory + page * kPage; }

bool taken(hydrant_pin_t pin) {
  return pin.region != nullptr || refused(hydrant_pin_status(pin), nullptr);
}
#define TAKEN(pin)           \
  do {                       \
    if (!taken(pin)) return; \
  } while (0)

// ---- data ----

// A pin covers the memory that is at the address now, also where that was mapped after an earlier pin: the
// kernel writes it into a file through the pin.
void no_stale_pin(hydrant_domain_t of) {
  auto* const area = static_cast<char*>(
      mmap(nullptr, 8 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (area == MAP_FAILED) return;  // a shortage of this test's own
  const bool moves = std::strcmp(hydrant_registrar_name(of), "uring") == 0;
  for (int round = 0; round < 24; ++round) {
    char* const page = area + static_cast<size_t>(round % 8) * kPage;
    if (round >= 8 && mmap(page, kPage, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page)
      break;
    std::memset(page, round + 1, kPage);
    const hydrant_pin_t pin = hydrant_pin(of, page, kPage, HYDRANT_LOCAL_WRITE);
    if (!taken(pin)) break;
    if (moves) {
      char byte = 0;
      const int code = hydrant_uring_move(pin, page, kPage, file, 0, 1);
      if (code != GASNET_OK) (void)refused(code, nullptr);
      if (code == GASNET_OK && syscall(SYS_pread64, file, &byte, 1L, 0L) == 1 &&
          byte != static_cast<char>(round + 1))
        (void)wrong("stale data");
    }
    if (const int code = hydrant_release(pin)) (void)refused(code, nullptr);
  }
  munmap(area, 8 * kPage);
}
void moves() {
  const hydrant_pin_t pin = hydrant_pin(domain, at(1), kPage, HYDRANT_LOCAL_WRITE);
  TAKEN(pin);
  if (std::strcmp(hydrant_registrar_name(domain), "uring") == 0) {
    for (int i = 0; i < 12; ++i) {
      std::memset(at(1), i, kPage);
      if (const int code = hydrant_uring_move(pin, at(1), kPage, file, 0, 1)) {
        (void)refused(code, nullptr);
        continue;
      }
      std::memset(at(1), 99, kPage);
      if (const int code = hydrant_uring_move(pin, at(1), kPage, file, 0, 0))
        (void)refused(code, nullptr);
      else if (at(1)[kPage - 1] != i)
        (void)wrong("what was moved");
    }
  } else if (hydrant_uring_move(pin, at(1), kPage, file, 0, 1) != HYDRANT_ERR_UNSUPPORTED) {
    (void)wrong("a move over another registrar");
  }
  FIELD_DO(hydrant_release(pin));
}

// ---- pin_cache.h ----

void make_domain(const char* registrar) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar_name = registrar;
  options.budget_bytes = 16 * kPage;
  hydrant_domain_t own = 0;
  FIELD_DO(hydrant_domain_create(&options, &own));
  const hydrant_pin_t pin = hydrant_pin(own, at(40), 4 * kPage, HYDRANT_LOCAL_WRITE);
  (void)taken(pin);
  if (pin.region != nullptr && hydrant_release(pin) != GASNET_OK) (void)wrong("hydrant_release");
  no_stale_pin(own);
  FIELD_DO(hydrant_domain_destroy(own, HYDRANT_FINI_UNPIN));
}
void pins() {
  const hydrant_pin_t pin = hydrant_pin(domain, at(3), 2 * kPage, HYDRANT_LOCAL_WRITE);
  TAKEN(pin);
  hydrant_region_t part{};
  FIELD_IS(hydrant_pin_parts(pin, 0, &part) == 1 &&
           part.addr <= reinterpret_cast<uintptr_t>(at(3)));
  FIELD_IS(hydrant_pin_key_bytes(pin) == hydrant_key_bytes(domain));
  const hydrant_pin_t again = hydrant_try_pin(domain, at(3), kPage, HYDRANT_LOCAL_WRITE);
  if (again.region != nullptr) FIELD_DO(hydrant_release(again));
  const hydrant_pin_t first = hydrant_partial_pin(domain, at(2), 4 * kPage, HYDRANT_LOCAL_WRITE);
  if (first.region != nullptr) FIELD_DO(hydrant_release(first));
  FIELD_DO(hydrant_release(pin));
}
void waits() {
  const hydrant_pin_t pin = hydrant_pin_wait(domain, at(8), kPage, HYDRANT_LOCAL_WRITE, 100000000);
  TAKEN(pin);
  FIELD_DO(hydrant_release(pin));
}
void many() {
  const hydrant_range_t ranges[] = {{reinterpret_cast<uintptr_t>(at(10)), kPage},
                                    {reinterpret_cast<uintptr_t>(at(14)), kPage}};
  hydrant_pin_t of[2] = {};
  FIELD_DO(hydrant_pin_many(domain, ranges, 2, HYDRANT_LOCAL_WRITE, of));
  FIELD_DO(hydrant_release_many(of, 2));
}
hydrant_pin_t async_pin;
std::atomic<bool> async_done;
void asynchronously() {
  async_done = false;
  FIELD_DO(hydrant_pin_async(
      domain, at(18), kPage, HYDRANT_LOCAL_WRITE,
      [](void*, hydrant_pin_t pin) {
        async_pin = pin;
        async_done = true;
      },
      nullptr));
  while (!async_done) {
    const int code = hydrant_poll(domain);
    if (code < 0) return (void)refused(code, nullptr);
  }
  TAKEN(async_pin);
  FIELD_DO(hydrant_release(async_pin));
}
void invalidations() {
  const hydrant_pin_t pin = hydrant_pin(domain, at(20), kPage, HYDRANT_LOCAL_WRITE);
  TAKEN(pin);
  FIELD_DO(hydrant_invalidate(domain, at(20), kPage));
  FIELD_DO(hydrant_release(pin));
  FIELD_DO(hydrant_flush(domain));
}
void coverage() {
  uint32_t covered = 0;
  FIELD_DO(hydrant_coverage(domain, at(3), kPage, &covered));
  FIELD_IS(*hydrant_coverage_name(covered) != 0);
  FIELD_DO(hydrant_vouch(domain, at(50), kPage));
  FIELD_DO(hydrant_unvouch(domain, at(50), kPage));
}
void keys() {
  char key[64], blob[64];
  size_t len = sizeof blob;
  const hydrant_pin_t pin = hydrant_pin(domain, at(22), kPage, HYDRANT_LOCAL_WRITE);
  TAKEN(pin);
  FIELD_IS(hydrant_export_key(pin, blob, &len) == HYDRANT_ERR_UNSUPPORTED &&
           *hydrant_error_text() != 0);
  FIELD_IS(hydrant_import_key(domain, blob, 8, key) != GASNET_OK);
  FIELD_IS(hydrant_implicit_key(domain, HYDRANT_LOCAL_WRITE, key) != GASNET_OK);
  FIELD_DO(hydrant_release(pin));
}
void statistics() {
  hydrant_stats_t stats{};
  stats.size = sizeof stats;
  FIELD_DO(hydrant_get_stats(domain, &stats));
  FIELD_IS(stats.live_holds == 0);
  FIELD_IS(std::strcmp(hydrant_status_name(GASNET_OK), "GASNET_OK") == 0);
  hydrant_set_error_text("mine");
  FIELD_IS(std::strcmp(hydrant_error_text(), "mine") == 0);
}
int open_own(const char*, hydrant_registrar_t* registrar) {
  registrar->pin = [](void*, uintptr_t, size_t, uint32_t, void*) {
    return static_cast<int>(GASNET_OK);
  };
  registrar->unpin = [](void*, uintptr_t, size_t, const void*) {
    return static_cast<int>(HYDRANT_UNPIN_DONE);
  };
  return GASNET_OK;
}
void added_registrar() {
  const int code = hydrant_registrar_add("own", open_own);
  if (code != GASNET_OK && *hydrant_error_text() == 0) return (void)refused(code, "");
  make_domain("own");
}

// ---- remote_pin.h: two ends in this process ----

struct End {
  hydrant_domain_t domain;
  hydrant_remote_t end;
};
End ends[2];
int send_now(void* user, uint32_t, uint32_t lane, void*, const void* message, size_t len) {
  const auto from = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(user));
  char to_reply = 0;
  return hydrant_remote_deliver(ends[1 - from].end, from, message, len,
                                lane == HYDRANT_LANE_REQUEST ? &to_reply : nullptr);
}
int make_end(uint32_t rank) {
  hydrant_registrar_t registrar{};
  registrar.size = sizeof registrar;
  registrar.name = "remote";
  registrar.key_bytes = 8;
  registrar.pin = [](void*, uintptr_t addr, size_t, uint32_t, void* key) {
    std::memcpy(key, &addr, 8);
    return static_cast<int>(GASNET_OK);
  };
  registrar.unpin = [](void*, uintptr_t, size_t, const void*) {
    return static_cast<int>(HYDRANT_UNPIN_DONE);
  };
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar = &registrar;
  options.budget_bytes = kPages * kPage;
  if (const int code = hydrant_domain_create(&options, &ends[rank].domain)) return code;
  hydrant_messenger_t messenger{};
  messenger.size = sizeof messenger;
  messenger.user = reinterpret_cast<void*>(static_cast<uintptr_t>(rank));
  messenger.max_message_bytes = 4096;
  messenger.send = send_now;
  hydrant_remote_options_t remote;
  hydrant_remote_options_init(&remote);
  remote.domain = ends[rank].domain;
  remote.rank = rank, remote.ranks = 2;
  remote.messenger = &messenger;
  return hydrant_remote_create(&remote, &ends[rank].end);
}
hydrant_pin_t remote_pin;
int remote_status;
std::atomic<bool> remote_done;
void remote_calls(uintptr_t there) {
  hydrant_remote_call_t call{};
  call.done = [](void*, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
    remote_pin = pin;
    remote_status = outcome->status;
    remote_done = true;
  };
  FIELD_IS(hydrant_remote_max_args(ends[0].end) > 0);
  remote_done = false;
  hydrant_pin_t pin{};
  FIELD_DO(hydrant_remote_pin(ends[0].end, 1, there, kPage, HYDRANT_REMOTE_WRITE, &call, &pin));
  if (pin.region == nullptr) {
    for (int i = 0; i < 100000 && !remote_done; ++i) {
      for (const End& end : ends) {
        const int code = hydrant_remote_poll(end.end);
        if (code < 0) (void)refused(code, nullptr);
      }
    }
    FIELD_IS(remote_done);
    if (remote_status != GASNET_OK) return (void)refused(remote_status, nullptr);
    pin = remote_pin;
  }
  FIELD_IS(pin.region->addr <= there && there < pin.region->addr + pin.region->len);
  FIELD_DO(hydrant_remote_release(pin));
  for (hydrant_pin_t more :
       {hydrant_try_remote_pin(ends[0].end, 1, there, kPage, HYDRANT_REMOTE_WRITE),
        hydrant_partial_remote_pin(ends[0].end, 1, there, kPage, HYDRANT_REMOTE_WRITE)}) {
    if (more.region != nullptr) FIELD_DO(hydrant_remote_release(more));
  }
  FIELD_DO(hydrant_remote_prefetch(ends[0].end, 1, there + 8 * kPage, kPage, HYDRANT_REMOTE_WRITE));
  FIELD_DO(hydrant_remote_evict(ends[0].end, 1, there, kPage));
  FIELD_DO(hydrant_remote_await_room(ends[0].end, 1, there, kPage, HYDRANT_REMOTE_WRITE, 0));
  for (int i = 0; i < 100; ++i) {
    for (const End& end : ends) (void)hydrant_remote_poll(end.end);
  }
  const int quiet = hydrant_remote_quiet(ends[1].end);
  FIELD_IS(quiet == GASNET_OK || quiet == GASNET_ERR_NOT_READY);
  hydrant_remote_stats_t stats{};
  stats.size = sizeof stats;
  FIELD_DO(hydrant_remote_get_stats(ends[0].end, &stats));
  FIELD_DO(hydrant_remote_peer_gone(ends[0].end, 1));
}
void remote() {
  int code = make_end(0);
  if (code == GASNET_OK) code = make_end(1);
  if (code == GASNET_OK)
    remote_calls(reinterpret_cast<uintptr_t>(peer_memory));
  else
    (void)refused(code, nullptr);
  for (End& end : ends) {
    if (end.end != 0) (void)hydrant_remote_destroy(end.end);
    if (end.domain != 0) (void)hydrant_domain_destroy(end.domain, HYDRANT_FINI_UNPIN);
    end = End{};
  }
}

// ---- monitor.h ----

void monitor() {
  const hydrant_monitor_t* const m = hydrant_monitor(HYDRANT_MONITOR_VERSION);
  FIELD_IS(m != nullptr);
  const auto page = reinterpret_cast<uintptr_t>(at(60));
  if (const int code = m->start()) (void)refused(code, m->reason());
  const hydrant_monitor_client_t client{nullptr, [](void*, uintptr_t, size_t) {}, [](void*) {},
                                        [](void*, uintptr_t, size_t) { return 0; }};
  const int number = m->subscribe(&client);
  FIELD_IS(number >= 0);
  (void)m->set_end_free_hits(number, [](void*) {});
  (void)m->set_unmapped(number, [](void*, uintptr_t, size_t) {});
  (void)m->set_wanted(number, [](void*) {});
  (void)m->cover(page, kPage, 0);
  m->note_pinned(page, kPage);
  (void)m->pinned(page, kPage);
  (void)m->quiet(1000000000);
  (void)m->quiet_range(page, kPage, 1000000000);
  m->settle();
  m->sync();
  m->sync_range(page, kPage);
  m->invalidate(page, kPage);
  m->replaced(page, kPage);
  m->not_watched(page, kPage);
  m->files_changed();
  if (m->add_arena(page, kPage) == 0) m->drop_arena(page, kPage);
  if (m->add_kept_arena(page, kPage) == 0) m->drop_arena(page, kPage);
  m->unwatch_unused();
  m->unwatch_idle();
  (void)m->unwatch_range(page, kPage, 1000000000);
  m->unsubscribe(number);
}

// ---- firehose.h ----

void firehoses() {
  if (const char* const what = field_firehoses(at(30))) (void)wrong(what);
}

const Row kTable[] = {
    {"hydrant_pin hydrant_pin_status hydrant_pin_parts hydrant_pin_key_bytes hydrant_key_bytes "
     "hydrant_try_pin "
     "hydrant_partial_pin hydrant_release",
     pins},
    {"hydrant_uring_move hydrant_registrar_name", moves},
    {"hydrant_pin_wait", waits},
    {"hydrant_pin_many hydrant_release_many", many},
    {"hydrant_pin_async hydrant_poll", asynchronously},
    {"hydrant_invalidate hydrant_flush", invalidations},
    {"hydrant_coverage hydrant_coverage_name hydrant_vouch hydrant_unvouch", coverage},
    {"hydrant_export_key hydrant_import_key hydrant_implicit_key", keys},
    {"hydrant_get_stats hydrant_status_name hydrant_error_text hydrant_set_error_text", statistics},
    {"hydrant_domain_options_init hydrant_domain_options_init_sized hydrant_domain_create "
     "hydrant_domain_destroy",
     [] { make_domain("auto"); }},
    {"hydrant_domain_create", [] { make_domain("mlock"); }},
    {"hydrant_registrar_add", added_registrar},
    {"hydrant_pin", [] { no_stale_pin(domain); }},
    {"hydrant_remote_options_init hydrant_remote_options_init_sized hydrant_remote_create "
     "hydrant_remote_max_args "
     "hydrant_remote_pin hydrant_remote_deliver hydrant_remote_poll hydrant_remote_release "
     "hydrant_try_remote_pin "
     "hydrant_partial_remote_pin hydrant_remote_prefetch hydrant_remote_evict "
     "hydrant_remote_await_room "
     "hydrant_remote_quiet hydrant_remote_get_stats hydrant_remote_peer_gone "
     "hydrant_remote_destroy",
     remote},
    {"hydrant_monitor", monitor},
    {"firehose_init firehose_get_params firehose_get_handlertable firehose_local_pin "
     "firehose_try_local_pin "
     "firehose_partial_local_pin firehose_release firehose_local_invalidate firehose_poll "
     "firehose_fini",
     firehoses},
};

}  // namespace
}  // namespace field

int main(int argc, char** argv) {
  using namespace field;
  if (!begin(argc, argv, kTable, sizeof kTable / sizeof *kTable, 1, [] {})) return 0;
  file = memfd_create("field", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kPage) != 0) return 2;
  before_init();
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.budget_bytes = kPages * kPage;
  if (const int code = hydrant_domain_create(&options, &domain)) return init_failed(code);
  after_init(0);
  run_rows();
  return hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN) == GASNET_OK ? 0 : 4;
}
