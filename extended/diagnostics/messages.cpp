// Sections C, D and G: Active Messages with random payloads. The peer's handler checks the payload and
// replies with it.
#include <gasnetex.h>

#include "extended/diagnostics/diagnostics.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace hydrant::diagnostics {
namespace {

// Results that the replies to a thread's requests have brought.
struct Answers {
  std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> wrong{0};  // requests that the peer found wrong
  std::atomic<uint32_t> sum{0};
};
Answers answers[kMaxThreads];

void reply_to_medium(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t thread,
                     gex_AM_Arg_t sum);
void take_medium(gex_Token_t, void* payload, size_t bytes, gex_AM_Arg_t thread,
                 gex_AM_Arg_t is_good);
void reply_to_long(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t thread,
                   gex_AM_Arg_t sum, gex_AM_Arg_t high, gex_AM_Arg_t low);
void take_long(gex_Token_t, void* payload, size_t bytes, gex_AM_Arg_t thread, gex_AM_Arg_t is_good);

// The registration writes the indices.
gex_AM_Entry_t table[] = {
    {0, reinterpret_cast<gex_AM_Fn_t>(reply_to_medium), GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_MEDIUM, 2,
     nullptr, "diagnostics Medium"},
    {0, reinterpret_cast<gex_AM_Fn_t>(take_medium), GEX_FLAG_AM_REPLY | GEX_FLAG_AM_MEDIUM, 2,
     nullptr, "diagnostics Medium's reply"},
    {0, reinterpret_cast<gex_AM_Fn_t>(reply_to_long), GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_LONG, 4,
     nullptr, "diagnostics Long"},
    {0, reinterpret_cast<gex_AM_Fn_t>(take_long), GEX_FLAG_AM_REPLY | GEX_FLAG_AM_LONG, 2, nullptr,
     "diagnostics Long's reply"}};

void note(void* payload, size_t bytes, gex_AM_Arg_t thread, gex_AM_Arg_t is_good) noexcept {
  Answers& mine = answers[static_cast<uint32_t>(thread) % kMaxThreads];
  if (is_good == 0) mine.wrong.fetch_add(1, std::memory_order_relaxed);
  mine.sum.store(sum_of(static_cast<const std::byte*>(payload), bytes), std::memory_order_relaxed);
  mine.count.fetch_add(1, std::memory_order_release);
}
gex_AM_Arg_t is_sum(void* payload, size_t bytes, gex_AM_Arg_t sum) noexcept {
  return sum_of(static_cast<const std::byte*>(payload), bytes) == static_cast<uint32_t>(sum) ? 1
                                                                                             : 0;
}

void reply_to_medium(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t thread,
                     gex_AM_Arg_t sum) {
  gex_AM_ReplyMedium2(token, table[1].gex_index, payload, bytes, GEX_EVENT_NOW, 0, thread,
                      is_sum(payload, bytes, sum));
}
void take_medium(gex_Token_t, void* payload, size_t bytes, gex_AM_Arg_t thread,
                 gex_AM_Arg_t is_good) {
  note(payload, bytes, thread, is_good);
}
// The last two arguments are the address of the reply's destination.
void reply_to_long(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t thread,
                   gex_AM_Arg_t sum, gex_AM_Arg_t high, gex_AM_Arg_t low) {
  const uint64_t dest = uint64_t{static_cast<uint32_t>(high)} << 32 | static_cast<uint32_t>(low);
  gex_AM_ReplyLong2(token, table[3].gex_index, payload, bytes, reinterpret_cast<void*>(dest),
                    GEX_EVENT_NOW, 0, thread, is_sum(payload, bytes, sum));
}
void take_long(gex_Token_t, void* payload, size_t bytes, gex_AM_Arg_t thread,
               gex_AM_Arg_t is_good) {
  note(payload, bytes, thread, is_good);
}

// Waits for the reply, and checks that the peer found the payload right and has sent it back.
void expect_reply(Run& run, const char* what, uint32_t thread, uint32_t begun, uint32_t sum,
                  size_t bytes) noexcept {
  Answers& mine = answers[thread];
  GASNET_BLOCKUNTIL(mine.count.load(std::memory_order_acquire) != begun);
  run.expect(mine.wrong.exchange(0, std::memory_order_relaxed) == 0,
             "rank %u got another payload of a %s of %zu bytes", run.peer, what, bytes);
  run.expect(mine.sum.load(std::memory_order_relaxed) == sum,
             "the reply to a %s of %zu bytes has another payload", what, bytes);
}

}  // namespace

gex_AM_Entry_t* handlers(int* count) noexcept {
  *count = static_cast<int>(std::size(table));
  return table;
}

bool has_handlers() noexcept {
  return std::all_of(std::begin(table), std::end(table),
                     [](const gex_AM_Entry_t& entry) { return entry.gex_index != 0; });
}

void exchange_mediums(Run& run, const Part& part, uint32_t rounds) noexcept {
  std::byte payload[8192];
  const auto most = static_cast<uint32_t>(std::min(sizeof payload, gex_AM_LUBRequestMedium()));
  Noise noise(run.seed + run.rank * kMaxThreads + part.thread);
  for (uint32_t round = 0; round < rounds; ++round) {
    const size_t bytes = noise.below(round % 8 == 0 ? most : 256);
    noise.fill(payload, bytes);
    const uint32_t sum = sum_of(payload, bytes);
    const uint32_t begun = answers[part.thread].count.load();
    gex_AM_RequestMedium2(run.team, run.peer, table[0].gex_index, payload, bytes, GEX_EVENT_NOW, 0,
                          static_cast<gex_AM_Arg_t>(part.thread), static_cast<gex_AM_Arg_t>(sum));
    expect_reply(run, "Medium", part.thread, begun, sum, bytes);
  }
}

void exchange_longs(Run& run, const Part& part, uint32_t rounds) noexcept {
  std::byte payload[8192];
  Noise noise(run.seed + run.rank * kMaxThreads + part.thread);
  std::byte* const landing = run.mine + kHalf + part.offset;
  const auto most = static_cast<uint32_t>(std::min(sizeof payload, part.bytes));
  for (uint32_t round = 0; round < rounds; ++round) {
    const size_t bytes = noise.below(round % 8 == 0 ? most : 256) + 1;
    noise.fill(payload, std::min<size_t>(bytes, most));
    const size_t sent = std::min<size_t>(bytes, most);
    const uint32_t sum = sum_of(payload, sent);
    const uint32_t begun = answers[part.thread].count.load();
    const auto dest = reinterpret_cast<uint64_t>(landing);
    gex_AM_RequestLong4(
        run.team, run.peer, table[2].gex_index, payload, sent, run.theirs + part.offset,
        GEX_EVENT_NOW, 0, static_cast<gex_AM_Arg_t>(part.thread), static_cast<gex_AM_Arg_t>(sum),
        static_cast<gex_AM_Arg_t>(dest >> 32), static_cast<gex_AM_Arg_t>(dest & 0xffffffff));
    expect_reply(run, "Long", part.thread, begun, sum, sent);
    run.expect(std::memcmp(landing, payload, sent) == 0,
               "the reply to a Long of %zu bytes did not write its destination", sent);
  }
}

}  // namespace hydrant::diagnostics
