// Replays a trace page by page and finds releases that no invalidation followed.
#include "tests/stale/trace/verdict.hpp"

#include "tests/stale/trace/call_watch.hpp"

#include <cinttypes>
#include <cstdio>
#include <unordered_map>
#include <unordered_set>

namespace hydrant::stale {
namespace {

constexpr size_t kPageShift = 12;
constexpr size_t kMaxTexts = 20;
constexpr size_t kNever = SIZE_MAX;

struct Page {
  size_t pinned = kNever;    // index of the record of the pin
  size_t released = kNever;  // index of the call that requires an invalidation
};

class Judge {
 public:
  explicit Judge(const TraceLog& log) : log_(log) {}

  TraceVerdict run() {
    for (size_t i = 0; i < log_.size() && log_.at(i).event.load() != Event::kEnd; ++i) take(i);
    for (const auto& [number, page] : pages_) {
      if (page.released != kNever) accuse(number, page, kNever);
    }
    verdict_.explained = verdict_.calls_on_kept - guilty_.size();
    return verdict_;
  }

 private:
  void take(size_t i) {
    const TraceRecord& record = log_.at(i);
    switch (record.event.load(std::memory_order_acquire)) {
      case Event::kNone: ++verdict_.incomplete; return;
      case Event::kEnd: return;
      case Event::kPinned:
        ++verdict_.pins;
        return for_each_page(record.range, [&](uintptr_t number) { pin(number, i); });
      case Event::kForgotten: ++verdict_.invalidations; return forget(record.range);
      case Event::kUnchanged:
        return for_each_known(record.range, [](Page& page) { page.released = kNever; });
      case Event::kMaybe: ++verdict_.undecided; return forget(record.range);
      case Event::kCall: return release(record, i);
    }
  }

  template <class Visit>
  static void for_each_page(Range range, const Visit& visit) {
    for (uintptr_t n = range.addr >> kPageShift; n <= (range.end() - 1) >> kPageShift; ++n)
      visit(n);
  }
  // Ranges may be far larger than all pinned memory.
  template <class Visit>
  void for_each_known(Range range, const Visit& visit) {
    const uintptr_t first = range.addr >> kPageShift;
    const uintptr_t last = (range.end() - 1) >> kPageShift;
    if (last - first < pages_.size()) {
      for (uintptr_t n = first; n <= last; ++n) {
        const auto found = pages_.find(n);
        if (found != pages_.end()) visit(found->second);
      }
      return;
    }
    for (auto& [number, page] : pages_) {
      if (number >= first && number <= last) visit(page);
    }
  }

  void pin(uintptr_t number, size_t i) {
    Page& page = pages_[number];
    if (page.released != kNever) accuse(number, page, i);
    page = {i, kNever};
  }
  void forget(Range range) {
    for_each_known(range, [](Page& page) { page = {}; });
  }
  void release(const TraceRecord& record, size_t i) {
    ++verdict_.calls;
    bool kept = false;
    for_each_known(record.range, [&](Page& page) {
      if (page.pinned == kNever) return;
      kept = true;
      if (page.released == kNever) page.released = i;
    });
    if (kept) ++verdict_.calls_on_kept;
  }

  void accuse(uintptr_t number, const Page& page, size_t again) {
    if (!guilty_.insert(page.released).second || guilty_.size() > kMaxTexts) return;
    const TraceRecord& call = log_.at(page.released);
    char text[240];
    std::snprintf(
        text, sizeof text,
        "%s [%#" PRIxPTR ", +%zu) of thread %d (record %zu): page %#" PRIxPTR
        ", pinned before (record %zu), %s",
        call_name(call.call), call.range.addr, call.range.len, call.thread, page.released,
        number << kPageShift, page.pinned,
        again == kNever ? "was never invalidated" : "was pinned again and not invalidated");
    verdict_.unexplained.push_back(text);
  }

  const TraceLog& log_;
  TraceVerdict verdict_;
  std::unordered_map<uintptr_t, Page> pages_;
  std::unordered_set<size_t> guilty_;  // indices of calls
};

}  // namespace

TraceVerdict judge(const TraceLog& log) { return Judge(log).run(); }

}  // namespace hydrant::stale
