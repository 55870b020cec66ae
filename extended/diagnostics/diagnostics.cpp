// The C functions of diagnostics.h: checks the arguments, and runs the sections in order.
#include "extended/diagnostics/diagnostics.hpp"

#include <hydrant/gasnet/diagnostics.h>

#include "am/job/job.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <gasnet_coll.h>
#include <iterator>

namespace hydrant::diagnostics {
namespace {

// Writes a line at once, behind what the client has left in the stream.
[[gnu::format(printf, 2, 3)]] void say(FILE* stream, const char* format, ...) noexcept {
  char line[300];
  va_list arguments;
  va_start(arguments, format);
  const int bytes = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  (void)uncancelled::fflush(stream);
  (void)write_quietly(fileno(stream), line, static_cast<size_t>(bytes));
}

}  // namespace

bool Run::expect(bool is_good, const char* format, ...) noexcept {
  if (is_good) return true;
  errors.fetch_add(1, std::memory_order_relaxed);
  char text[200];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  say(stderr, "ERROR: diagnostics, rank %u: %s\n", rank, text);
  return false;
}

Part part_of(const Run&, uint32_t thread, uint32_t threads) noexcept {
  const size_t bytes = kHalf / threads / 64 * 64;
  return {.thread = thread, .offset = thread * bytes, .bytes = bytes};
}

void Noise::fill(std::byte* to, size_t bytes) noexcept {
  for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(engine_() >> 8 & 0xff);
}

uint32_t sum_of(const std::byte* from, size_t bytes) noexcept {
  uint32_t sum = static_cast<uint32_t>(bytes);
  for (size_t i = 0; i < bytes; ++i) sum = sum * 31 + static_cast<uint32_t>(from[i]);
  return sum;
}

namespace {

struct Section {
  char letter;
  const char* title;
  bool needs_handlers;
  void (*run)(Run& run);
};

constexpr Section kSections[] = {
    {'A', "collectives", false, check_collectives},
    {'B', "puts and gets", false,
     [](Run& run) { check_transfers(run, part_of(run, 0, 1), run.rounds); }},
    {'C', "Mediums with replies", true,
     [](Run& run) { exchange_mediums(run, part_of(run, 0, 1), run.rounds); }},
    {'D', "Longs with replies", true,
     [](Run& run) { exchange_longs(run, part_of(run, 0, 1), run.rounds); }},
    {'E', "remote atomics", false, check_atomics},
    {'F', "locks and atomics of the tools", false, check_locks},
    {'G', "messages, puts and gets of threads", true, check_threads},
};

bool is_letter_of(const Section& section, char c) noexcept {
  return std::toupper(static_cast<unsigned char>(c)) == section.letter;
}

bool is_chosen(const char* letters, const Section& section) noexcept {
  if (letters == nullptr || *letters == '\0') return true;
  return std::any_of(letters, letters + std::strlen(letters),
                     [&](char c) { return is_letter_of(section, c); });
}

bool is_any_chosen(const char* letters) noexcept {
  return std::any_of(std::begin(kSections), std::end(kSections),
                     [=](const Section& section) { return is_chosen(letters, section); });
}

// GASNet ignores letters of sections that it does not have.
void warn_of_unknown(const char* letters) noexcept {
  const auto is_unknown = [](char c) {
    return std::none_of(std::begin(kSections), std::end(kSections),
                        [=](const Section& section) { return is_letter_of(section, c); });
  };
  const char* const end = letters + std::strlen(letters);
  if (std::any_of(letters, end, is_unknown))
    log_warning(
        "gasnett_run_diagnostics: \"%.80s\" has other letters than those of sections, A to G",
        letters);
}

int run_sections(Run& run, const char* letters) noexcept {
  for (const Section& section : kSections) {
    if (!is_chosen(letters, section)) continue;
    gex_Event_Wait(gex_Coll_BarrierNB(run.team, 0));
    if (section.needs_handlers && !has_handlers()) {
      if (run.rank == 0)
        say(stdout, "%c: %s: skipped, because the handlers are not registered\n", section.letter,
            section.title);
      continue;
    }
    if (run.rank == 0) say(stdout, "%c: %s\n", section.letter, section.title);
    section.run(run);
  }
  gex_Event_Wait(gex_Coll_BarrierNB(run.team, 0));
  return run.errors.load();
}

const char* mistake_in(int iters, int threads, const char* letters, gex_TM_t team,
                       const void* myseg, gex_Rank_t peer, const void* peerseg) noexcept {
  if (!is_wired()) return "no client is initialised";
  if (team == GEX_TM_INVALID) return "there is no team";
  if (iters < 1) return "the number of iterations is below 1";
  if (threads < 1) return "the number of threads is below 1";
  if (!is_any_chosen(letters)) return "no section has any of the letters; sections are A to G";
  if (peer >= gex_TM_QuerySize(team)) return "the peer is no rank of the team";
  if (myseg == nullptr || peerseg == nullptr) return "the memory is null";
  return nullptr;
}

}  // namespace
}  // namespace hydrant::diagnostics

using namespace hydrant;
using namespace hydrant::diagnostics;

extern "C" {

int hydrant_run_diagnostics(int iters, int threadcnt, const char* testsections, gex_TM_t team,
                            void* myseg, gex_Rank_t peer, void* peerseg, unsigned int seed) {
  if (const char* mistake =
          mistake_in(iters, threadcnt, testsections, team, myseg, peer, peerseg)) {
    (void)report(fail(Status::kBadArg, "%s", mistake), "gasnett_run_diagnostics");
    return 1;
  }
  const CancellationDisabled guard;
  Run run;
  run.team = team;
  run.rank = gex_TM_QueryRank(team);
  run.ranks = gex_TM_QuerySize(team);
  run.peer = peer;
  run.mine = static_cast<std::byte*>(myseg);
  run.theirs = static_cast<std::byte*>(peerseg);
  run.rounds = static_cast<uint32_t>(iters);
  if (!job().single_threaded && threadcnt > 1)
    run.threads = std::min(static_cast<uint32_t>(threadcnt), kMaxThreads);
  run.seed = seed;
  if (run.rank == 0 && testsections != nullptr) warn_of_unknown(testsections);
  return run_sections(run, testsections);
}

void hydrant_diagnostic_gethandlers(gex_AM_Entry_t** htable, int* htable_cnt) {
  *htable = handlers(htable_cnt);
}

}  // extern "C"
