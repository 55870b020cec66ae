// Implements the inboxes of collective operations. collective_messages.cpp puts messages in; operation.cpp
// takes them out.
#include "extended/collective/operation/inbox.hpp"

#include <utility>

namespace hydrant {

size_t Inboxes::list_of(const TransferKey& key) noexcept {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  return static_cast<size_t>(((key.team + key.operation) * kOdd) >> 58);
}

void Inboxes::put(std::unique_ptr<Arrival> arrival) noexcept {
  const size_t list = list_of(arrival->key);
  const MutexLock lock(mu_);
  Arrival* added = arrival.get();
  (last_[list] != nullptr ? last_[list]->next : lists_[list]) = std::move(arrival);
  last_[list] = added;
}

std::unique_ptr<Arrival>* Inboxes::find_locked(const TransferKey& key, Rank from,
                                               bool wants_read) noexcept {
  std::unique_ptr<Arrival>* link = &lists_[list_of(key)];
  for (; *link != nullptr; link = &(*link)->next) {
    const Arrival& each = **link;
    if (each.from == from && each.key == key && (each.kind == Arrival::Kind::kRead) == wants_read)
      return link;
  }
  return nullptr;
}

std::unique_ptr<Arrival> Inboxes::take(const TransferKey& key, Rank from,
                                       bool wants_read) noexcept {
  const MutexLock lock(mu_);
  std::unique_ptr<Arrival>* link = find_locked(key, from, wants_read);
  if (link == nullptr) return nullptr;
  std::unique_ptr<Arrival> taken = std::move(*link);
  *link = std::move(taken->next);
  const size_t list = list_of(key);
  if (last_[list] == taken.get()) {
    Arrival* last = lists_[list].get();
    while (last != nullptr && last->next != nullptr) last = last->next.get();
    last_[list] = last;
  }
  return taken;
}

bool Inboxes::has(const TransferKey& key, Rank from, bool wants_read) noexcept {
  const MutexLock lock(mu_);
  return find_locked(key, from, wants_read) != nullptr;
}

bool Inboxes::find_signature(uint64_t team, uint32_t operation, Rank from,
                             uint32_t* signature) noexcept {
  const MutexLock lock(mu_);
  const Arrival* each = lists_[list_of({.team = team, .operation = operation})].get();
  while (each != nullptr &&
         (each->from != from || each->key.team != team || each->key.operation != operation))
    each = each->next.get();
  if (each != nullptr) *signature = each->signature;
  return each != nullptr;
}

size_t Inboxes::count() noexcept {
  const MutexLock lock(mu_);
  size_t count = 0;
  for (const auto& list : lists_) {
    for (const Arrival* each = list.get(); each != nullptr; each = each->next.get()) ++count;
  }
  return count;
}

}  // namespace hydrant
