// Calls the functions of the caches. The monitor (monitor.hpp) decides what they forget.
#include "firehose/watch/monitor_clients.hpp"

#include "firehose/watch/pause.hpp"

namespace hydrant {

// seq_cst pairs with unsubscribe(): either this sees that the client is leaving, or unsubscribe() waits for
// the call.
template <class Call>
void MonitorClients::each(const Call& call) noexcept {
  const size_t places = places_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < places; ++i) {
    Client& client = clients_[i];
    if (client.state.load(std::memory_order_relaxed) != kUsed) continue;
    client.inside.fetch_add(1, std::memory_order_seq_cst);
    if (client.state.load(std::memory_order_seq_cst) == kUsed) call(client);
    client.inside.fetch_sub(1, std::memory_order_release);
  }
}

void MonitorClients::forget(MemoryRange range) noexcept {
  each([&](const Client& client) { client.is.forget(client.is.context, range.addr, range.len); });
}

void MonitorClients::forget_unmapped(MemoryRange range) noexcept {
  each([&](const Client& client) {
    const auto unmapped = client.unmapped.load(std::memory_order_acquire);
    const auto call = unmapped != nullptr ? unmapped : client.is.forget;
    call(client.is.context, range.addr, range.len);
  });
}

void MonitorClients::forget_vouched() noexcept {
  each([](const Client& client) { client.is.forget_vouched(client.is.context); });
}

bool MonitorClients::have_pinned(MemoryRange range) noexcept {
  if (!range.valid()) return false;
  bool found = false;
  each([&](const Client& client) {
    found = found || client.is.pinned(client.is.context, range.addr, range.len) != 0;
  });
  return found;
}

void MonitorClients::end_free_hits() noexcept {
  each([](const Client& client) {
    const auto end = client.end_free_hits.load(std::memory_order_acquire);
    if (end != nullptr) return end(client.is.context);
    client.is.forget(client.is.context, kAllMemory.addr, kAllMemory.len);
  });
}

int MonitorClients::subscribe(const hydrant_monitor_client_t& client) noexcept {
  for (size_t i = 0; i < kMax; ++i) {
    uint32_t free = kFree;
    if (!clients_[i].state.compare_exchange_strong(free, kBeingWritten, std::memory_order_acquire))
      continue;
    clients_[i].is = client;
    clients_[i].end_free_hits.store(nullptr, std::memory_order_relaxed);
    clients_[i].unmapped.store(nullptr, std::memory_order_relaxed);
    clients_[i].wanted.store(nullptr, std::memory_order_relaxed);
    size_t places = places_.load(std::memory_order_relaxed);
    while (places <= i &&
           !places_.compare_exchange_weak(places, i + 1, std::memory_order_relaxed)) {
    }
    clients_[i].state.store(kUsed, std::memory_order_seq_cst);
    return static_cast<int>(i);
  }
  return -1;
}

void MonitorClients::unsubscribe(int number) noexcept {
  if (number < 0 || number >= static_cast<int>(kMax)) return;
  Client& client = clients_[number];
  client.state.store(kLeaving, std::memory_order_seq_cst);
  // A client's functions do not wait; one that a handler has interrupted ends after the handler.
  Pause pause(UINT64_MAX);
  while (client.inside.load(std::memory_order_seq_cst) != 0) (void)pause.again();
  client.state.store(kFree, std::memory_order_release);
}

MonitorClients::Client* MonitorClients::find(int number) noexcept {
  if (number < 0 || number >= static_cast<int>(kMax)) return nullptr;
  Client& client = clients_[number];
  return client.state.load(std::memory_order_acquire) == kUsed ? &client : nullptr;
}

bool MonitorClients::set_end_free_hits(int number, void (*end)(void* context)) noexcept {
  Client* const client = find(number);
  if (client != nullptr) client->end_free_hits.store(end, std::memory_order_release);
  return client != nullptr;
}

bool MonitorClients::set_unmapped(int number, void (*unmapped)(void* context, uintptr_t addr,
                                                               size_t len)) noexcept {
  Client* const client = find(number);
  if (client != nullptr) client->unmapped.store(unmapped, std::memory_order_release);
  return client != nullptr;
}

bool MonitorClients::set_wanted(int number, void (*wanted)(void* context)) noexcept {
  Client* const client = find(number);
  if (client != nullptr) client->wanted.store(wanted, std::memory_order_release);
  return client != nullptr;
}

void MonitorClients::notify_wanted() noexcept {
  each([](const Client& client) {
    const auto wanted = client.wanted.load(std::memory_order_acquire);
    if (wanted != nullptr) wanted(client.is.context);
  });
}

void MonitorClients::reset_in_child() noexcept {
  for (Client& client : clients_) {
    client.inside.store(0, std::memory_order_relaxed);
    // The thread that was subscribing or unsubscribing it does not exist in the child.
    if (client.state.load(std::memory_order_relaxed) != kUsed)
      client.state.store(kFree, std::memory_order_relaxed);
  }
}

}  // namespace hydrant
