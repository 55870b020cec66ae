// Names of barriers. Every rank passes a name, no name, or a mismatch. The result is the join in the
// three-level order anonymous < each name < mismatch. Joining is commutative, associative and
// idempotent, so engines may join in any order and count a rank twice.
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

// The name that a rank passes with gasnet_barrier_notify(id, flags).
constexpr BarrierName name_of(int id, int flags) noexcept {
  if ((flags & GASNET_BARRIERFLAG_MISMATCH) != 0) return {.state = NameState::kMismatch, .id = 0};
  if ((flags & GASNET_BARRIERFLAG_ANONYMOUS) != 0) return {};
  return {.state = NameState::kNamed, .id = static_cast<uint32_t>(id)};
}

// Encoding of a name in messages: two state bits and an id. The unused fourth state decodes as a mismatch.
constexpr uint32_t state_bits(BarrierName name) noexcept {
  return static_cast<uint32_t>(name.state);
}
constexpr BarrierName name_from(uint32_t bits, uint32_t id) noexcept {
  if ((bits & 2) != 0) return {.state = NameState::kMismatch, .id = 0};
  if ((bits & 1) != 0) return {.state = NameState::kNamed, .id = id};
  return {};
}

// Result of gasnet_barrier_wait(id, flags) if the join of all ranks is `all`: a name passed here must
// equal theirs, if they have one.
constexpr bool agrees(BarrierName all, int id, int flags) noexcept {
  const BarrierName joined = join(all, name_of(id, flags));
  return joined.state != NameState::kMismatch;
}

}  // namespace hydrant
