// Atomicity of word stores: while one rank writes one of two values into an aligned word in another
// rank's mapped segment, the other rank must read only these values.
#include "tests/integration/rma/client.hpp"
#include "tests/support/patience.hpp"

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>

namespace rma_client {
namespace {

constexpr double kLimit_s = 60;  // a longer run is an error
constexpr size_t kFarWord = 256;
constexpr size_t kDone = 512;   // the writer has written its last
constexpr size_t kSeen = 1024;  // the reader has seen both values

enum Form { kConstant, kLibrary, kValue, kLibraryValue, kImplicit, kForms };
constexpr const char* kFormNames[kForms] = {"a constant size", "a size at run time", "a value",
                                            "a value of a size at run time", "without event"};

template <typename Word>
void put_word(Form form, gex_Rank_t reader, std::byte* far, Word word) {
  // Volatile, so that the headers' other sizes cause no compiler warning.
  const volatile size_t bytes = sizeof word;
  switch (form) {
    case kConstant: gex_RMA_PutBlocking(team, reader, far, &word, sizeof word, 0); break;
    case kLibrary: gex_RMA_PutBlocking(team, reader, far, &word, bytes, 0); break;
    case kValue: gex_RMA_PutBlockingVal(team, reader, far, word, sizeof word, 0); break;
    case kLibraryValue: gex_RMA_PutBlockingVal(team, reader, far, word, bytes, 0); break;
    default: gex_RMA_PutNBI(team, reader, far, &word, bytes, GEX_EVENT_NOW, 0);
  }
}

template <typename Word>
void write_words(Form form, gex_Rank_t reader, double seconds) {
  std::byte* const base = area(reader, kSegment);
  const double start = now_s();
  // Until the reader has seen both values; it may not have run before.
  while (now_s() < start + seconds || gasnet_get_val(reader, base + kSeen, 1) == 0) {
    for (int i = 0; i < 500; ++i) {
      put_word<Word>(form, reader, base + kFarWord, 0);
      put_word<Word>(form, reader, base + kFarWord, std::numeric_limits<Word>::max());
    }
    if (now_s() > start + kLimit_s * hydrant::testing::patience())
      wrong("rank %u does not see both values", reader);
  }
  gex_NBI_Wait(GEX_EC_PUT, 0);
  gasnet_put_val(reader, base + kDone, 1, 1);
}

template <typename Word>
void read_words(Form form) {
  std::byte* const base = area(me, kSegment);
  const auto* const word = static_cast<const Word*>(static_cast<const void*>(base + kFarWord));
  const auto* const done = reinterpret_cast<const uint8_t*>(base + kDone);
  auto* const seen = reinterpret_cast<uint8_t*>(base + kSeen);
  constexpr Word kOnes = std::numeric_limits<Word>::max();
  bool zeros_seen = false;
  bool ones_seen = false;
  while (__atomic_load_n(done, __ATOMIC_ACQUIRE) == 0) {
    for (int i = 0; i < 1000; ++i) {
      const Word now = __atomic_load_n(word, __ATOMIC_RELAXED);
      if (now != 0 && now != kOnes)
        wrong("%s, %zu bytes: half a word is there: %llx", kFormNames[form], sizeof now,
              static_cast<unsigned long long>(now));
      // Ignore the initial contents.
      ones_seen |= now == kOnes;
      zeros_seen |= ones_seen && now == 0;
    }
    if (zeros_seen && ones_seen) __atomic_store_n(seen, uint8_t{1}, __ATOMIC_RELEASE);
    gasnet_AMPoll();
  }
}

template <typename Word>
void meet(Form form, double seconds) {
  for (const size_t at : {kFarWord, kDone, kSeen}) {
    for (size_t i = 0; i < 8; ++i) area(me, kSegment)[at + i] = std::byte{0};
  }
  barrier();
  if (me == 0) write_words<Word>(form, 1, seconds);
  if (me == 1) read_words<Word>(form);
  barrier();
}

uint64_t puts_by(hydrant_path_t path) {
  hydrant_path_counts_t counts;
  if (hydrant_query_path(1, path, &counts) != GASNET_OK) wrong("hydrant_query_path");
  return counts.put_ops;
}

}  // namespace

void words(double seconds) {
  if (size != 2) wrong("%u ranks", size);
  const double each = seconds / (3 * kForms);
  for (uint32_t i = 0; i < kForms; ++i) {
    const auto form = static_cast<Form>(i);
    const uint64_t mapped = puts_by(HYDRANT_PATH_MAPPED);
    meet<uint64_t>(form, each);
    meet<uint32_t>(form, each);
    meet<uint16_t>(form, each);
    if (me != 0) continue;
    // Inlined calls leave no count, so that both ways were taken by one of the runs.
    const bool is_inlined = getenv("HYDRANT_PATH") == nullptr && getenv("HYDRANT_STATS") == nullptr;
    const bool is_counted = puts_by(HYDRANT_PATH_MAPPED) > mapped + 1000;
    if (is_counted == is_inlined) wrong("puts of %s went the other way", kFormNames[i]);
  }
}

}  // namespace rma_client
