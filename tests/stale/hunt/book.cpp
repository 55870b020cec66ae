// Records lives and pinned addresses of a hunt; workers write it, reports read it.
#include "tests/stale/hunt/book.hpp"

#include "tests/stale/hunt/random.hpp"

#include <cinttypes>
#include <cstdio>

namespace hydrant::stale {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

}  // namespace

Life Book::begin(Source source, uintptr_t addr, size_t len, uint32_t thread, uint64_t operation) {
  const Life life = next_.fetch_add(1, relaxed);
  LifeRow& row = lives_[life % kLives];
  row.life.store(0, relaxed);
  row.addr.store(addr, relaxed);
  row.len.store(len, relaxed);
  row.operation.store(operation, relaxed);
  row.thread_and_source.store(thread << 8 | static_cast<uint32_t>(source), relaxed);
  row.life.store(life, relaxed);
  return life;
}

std::string Book::describe(Life life) const {
  const LifeRow& row = lives_[life % kLives];
  if (life == 0 || row.life.load(relaxed) != life) return "whose record has been overwritten";
  const uint32_t who = row.thread_and_source.load(relaxed);
  char text[160];
  std::snprintf(text, sizeof text, "%s [%#" PRIxPTR ", +%zu) of thread %u, operation %" PRIu64,
                source_name(static_cast<Source>(who & 0xff)), row.addr.load(relaxed),
                row.len.load(relaxed), who >> 8, row.operation.load(relaxed));
  return text;
}

bool Book::note_pin(uintptr_t addr, Life life) {
  const uint64_t page = addr / kPageBytes;
  const uint64_t mask = (uint64_t{1} << kLifeBits) - 1;
  const uint64_t word = page << kLifeBits | (life & mask);
  std::atomic<uint64_t>& entry = pages_[mix(page) % kPages];
  if (entry.load(relaxed) == word) return false;
  const uint64_t before = entry.exchange(word, relaxed);
  return before != 0 && before >> kLifeBits == page && (before & mask) != (life & mask);
}

}  // namespace hydrant::stale
