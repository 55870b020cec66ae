// What a barrier agrees on: every rank brings a name, no name, or a mismatch; what all bring together is the
// join of the three-level order anonymous < each name < mismatch. Joining is commutative, associative and
// idempotent, so engines may combine in any order, and count a rank twice.
//
// Source: GASNet-1 specification, "Barriers".
#pragma once

#include <hydrant/gasnet/barrier.h>

#include <cstdint>

namespace hydrant {

enum class NameState : uint32_t { kAnonymous = 0, kNamed = 1, kMismatch = 2 };

struct BarrierName {
  NameState state = NameState::kAnonymous;
  uint32_t id = 0;  // 0 unless named

  friend constexpr bool operator==(const BarrierName&, const BarrierName&) = default;
};

constexpr BarrierName join(BarrierName a, BarrierName b) noexcept {
  if (a == b || b.state == NameState::kAnonymous) return a;
  if (a.state == NameState::kAnonymous) return b;
  return {.state = NameState::kMismatch, .id = 0};
}

// What a rank brings with gasnet_barrier_notify(id, flags).
constexpr BarrierName name_of(int id, int flags) noexcept {
  if ((flags & GASNET_BARRIERFLAG_MISMATCH) != 0) return {.state = NameState::kMismatch, .id = 0};
  if ((flags & GASNET_BARRIERFLAG_ANONYMOUS) != 0) return {};
  return {.state = NameState::kNamed, .id = static_cast<uint32_t>(id)};
}

// Two bits beside an id: how a name travels. The fourth state does not exist; who reads it reads a mismatch.
constexpr uint32_t state_bits(BarrierName name) noexcept {
  return static_cast<uint32_t>(name.state);
}
constexpr BarrierName name_from(uint32_t bits, uint32_t id) noexcept {
  if ((bits & 2) != 0) return {.state = NameState::kMismatch, .id = 0};
  if ((bits & 1) != 0) return {.state = NameState::kNamed, .id = id};
  return {};
}

// What gasnet_barrier_wait(id, flags) answers where all ranks together brought `all`: a name given here has
// to be theirs, if they have one.
constexpr bool agrees(BarrierName all, int id, int flags) noexcept {
  const BarrierName joined = join(all, name_of(id, flags));
  return joined.state != NameState::kMismatch;
}

}  // namespace hydrant
