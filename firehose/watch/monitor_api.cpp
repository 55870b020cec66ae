// Exports the monitor to other libraries through the table of include/hydrant/monitor.h.
#include "firehose/base/cancellation.hpp"
#include "firehose/base/machine/stay_loaded.hpp"
#include "firehose/watch/fork_handlers.hpp"
#include "firehose/watch/monitor.hpp"

#include <dlfcn.h>
#include <pthread.h>

namespace hydrant {
namespace {

void invalidate(uintptr_t addr, size_t len) {
  const CancellationDisabled guard;
  Monitor::own().announced_releases().invalidate({addr, len});
}
int pinned(uintptr_t addr, size_t len) {
  const CancellationDisabled guard;
  return Monitor::own().clients().have_pinned({addr, len}) ? 1 : 0;
}
int add_arena(uintptr_t addr, size_t len) {
  return Monitor::own().arenas().add({addr, len}, false) ? 0 : -1;
}
int add_kept_arena(uintptr_t addr, size_t len) {
  return Monitor::own().arenas().add({addr, len}, true) ? 0 : -1;
}
void drop_arena(uintptr_t addr, size_t len) {
  const CancellationDisabled guard;
  Monitor::own().announced_releases().drop_arena({addr, len});
}
void settle() { Monitor::own().waits().settle(); }
void sync_all() { Monitor::own().waits().sync(); }
void files_changed() {
  const CancellationDisabled guard;
  Monitor::own().clients().forget_vouched();
}
int subscribe(const hydrant_monitor_client_t* client) {
  const CancellationDisabled guard;
  return Monitor::own().clients().subscribe(*client);
}
void unsubscribe(int number) {
  const CancellationDisabled guard;
  Monitor::own().clients().unsubscribe(number);
}
uint32_t cover(uintptr_t addr, size_t len, uint32_t flags) {
  const CancellationDisabled guard;
  return Monitor::own().cover({addr, len}, flags);
}
void note_pinned(uintptr_t addr, size_t len) { Monitor::own().pinned_blocks().note({addr, len}); }
int quiet(uint64_t timeout_ns) {
  return Monitor::own().waits().quiet(MonitorClients::kAllMemory, timeout_ns) ? 0 : -1;
}
int start() {
  const CancellationDisabled guard;
  return Monitor::own().start(true) ? 0 : -1;
}
const char* reason() { return Monitor::own().reason(); }
void replaced(uintptr_t addr, size_t len) {
  const CancellationDisabled guard;
  Monitor::own().announced_releases().replaced({addr, len});
}
void unwatch_unused() {
  const CancellationDisabled guard;
  Monitor::own().unwatcher().unwatch_unused();
}
int unwatch_range(uintptr_t addr, size_t len, uint64_t timeout_ns) {
  const CancellationDisabled guard;
  return Monitor::own().unwatcher().unwatch_range({addr, len}, timeout_ns) ? 0 : -1;
}
void unwatch_idle() {
  const CancellationDisabled guard;
  Monitor::own().unwatcher().unwatch_idle();
}
void not_watched(uintptr_t addr, size_t len) {
  const CancellationDisabled guard;
  Monitor::own().announced_releases().not_watched({addr, len});
}
int quiet_range(uintptr_t addr, size_t len, uint64_t timeout_ns) {
  return Monitor::own().waits().quiet({addr, len}, timeout_ns) ? 0 : -1;
}
void sync_range(uintptr_t addr, size_t len) { Monitor::own().waits().sync({addr, len}); }
int set_unmapped(int number, void (*unmapped)(void*, uintptr_t, size_t)) {
  return Monitor::own().clients().set_unmapped(number, unmapped) ? 0 : -1;
}
int set_wanted(int number, void (*wanted)(void*)) {
  return Monitor::own().clients().set_wanted(number, wanted) ? 0 : -1;
}
int set_end_free_hits(int number, void (*end_free_hits)(void*)) {
  return Monitor::own().clients().set_end_free_hits(number, end_free_hits) ? 0 : -1;
}
void stack_ends(uintptr_t descriptor) {
  const CancellationDisabled guard;
  Monitor::own().stack_ends(descriptor);
}

// Never destroyed: the reader and other threads go on while main()'s thread runs the destructors.
union Lasting {
  constexpr Lasting() noexcept : monitor() {}
  ~Lasting() {}  // NOLINT(modernize-use-equals-default): a default one would be deleted
  Monitor monitor;
};
constinit Lasting g_lasting;
Monitor& g_monitor = g_lasting.monitor;
hydrant_monitor_t g_interface = {sizeof(hydrant_monitor_t),
                                 HYDRANT_MONITOR_VERSION,
                                 0,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 &invalidate,
                                 &pinned,
                                 &add_arena,
                                 &drop_arena,
                                 &settle,
                                 &sync_all,
                                 &files_changed,
                                 &subscribe,
                                 &unsubscribe,
                                 &cover,
                                 &note_pinned,
                                 &quiet,
                                 &start,
                                 &reason,
                                 &replaced,
                                 &unwatch_unused,
                                 nullptr,
                                 nullptr,
                                 &set_end_free_hits,
                                 &quiet_range,
                                 &sync_range,
                                 &set_unmapped,
                                 &add_kept_arena,
                                 &unwatch_range,
                                 &unwatch_idle,
                                 &not_watched,
                                 &set_wanted,
                                 &stack_ends};

pthread_once_t g_once = PTHREAD_ONCE_INIT;

void complete_interface() {
  install_fork_handlers();
  g_monitor.show_counters(&g_interface);
}

}  // namespace

Monitor& Monitor::own() noexcept { return g_monitor; }

void Monitor::show_blocks() noexcept { g_interface.blocks = pinned_blocks_.words(); }

const hydrant_monitor_t* find_monitor() noexcept {
  using Find = const hydrant_monitor_t* (*)(uint32_t);
  const auto find = reinterpret_cast<Find>(dlsym(RTLD_DEFAULT, "hydrant_monitor"));
  const hydrant_monitor_t* found = find != nullptr ? find(HYDRANT_MONITOR_VERSION) : nullptr;
  return found != nullptr ? found : hydrant_monitor(HYDRANT_MONITOR_VERSION);
}

}  // namespace hydrant

extern "C" const hydrant_monitor_t* hydrant_monitor(uint32_t version) {
  if (version != HYDRANT_MONITOR_VERSION) return nullptr;
  hydrant::stay_loaded();  // allocators and hooks keep the pointer
  pthread_once(&hydrant::g_once, &hydrant::complete_interface);
  return &hydrant::g_interface;
}
