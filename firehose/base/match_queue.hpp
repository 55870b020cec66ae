// One list of those who wait for each other: postings that no arrival has matched yet, and arrivals that came
// before their posting. Whoever comes finds its oldest match on the other side and takes it out, or joins its
// own side. Elements are the caller's; nothing here locks, allocates, waits or calls the system.
//
//     head of posted | oldest ... newest posted | MIDDLE | newest ... oldest unexpected | head of unexpected
//
// Threads   any number, any call. An element belongs to the caller until post() or arrive() answers that it
//           waits, from then on to the queue, and from the answer that names it to whoever got that answer.
// Cost      three locked instructions for a posting and an arrival that meet at the middle; the walk looks at
//           everybody who waits on the other side. docs/decisions/0021-match-queue.md has figures.
// Source    MPICH, "Changes to CH3 and ADI3", Unified Posted and Unexpected Queue; taking out of the midst of
//           a list as in Michael, "High performance dynamic lock-free hash tables and list-based sets", 2002.
//
// Why it is right
//
// Shape     The three special places are permanent. The middle is one word, {newest posted, newest
//           unexpected, version}; both heads are the number 0, which no element has. Elements are numbers
//           into one array, so that a word has room for a version. Each element's link is {next older one,
//           taken, version}. Every change of the middle or of a link is one compare-and-swap that raises its
//           version, so a word that reads the same twice was the same all the time, and both directions of
//           the document's walk end in one word. "Immediately after the middle" is the far side for whoever
//           walks: a posting reads the unexpected half and writes the posted half, an arrival the other way
//           round.
// Insert    One compare-and-swap of the middle, from the value that the search began with.
// Delete    First the link's `taken` is set: this is the match, and only one thread can make it. Then the
//           word before it is changed to lead past it. A taken element's link does not change any more, so
//           nobody is inserted or let go behind an element that is on its way out.
// Walk      From the middle outwards. A step reads the element, then sees that the word that led there is
//           unchanged (and not taken): at that moment the element was in the list, or the walk starts again.
//           By induction no element is passed over that was there from beginning to end. Walkers take out
//           what they find taken. The last match of a walk is the oldest; none older can come, since all
//           insertions are at the middle.
// Crossing  A posting and an arrival of equal key that both find nobody change the same word from values that
//           both read before: the second one fails, searches again, and finds the first.
// Reuse     Whoever matched an element gives it back only when it is out of the list: its own change of the
//           word before it succeeded, or a later walk has come through without it. Others may still look at
//           it (so the array must stay readable as long as the queue is used), but what they read is
//           discarded: the word that led them there has changed. What they try to change has another version:
//           51 bits in a link and 40 in the middle, where one repeats after hours of nothing but insertions,
//           and would have to meet a thread that slept between two instructions for exactly as long.
// Progress  A call repeats itself only because another one inserted, matched or unlinked.
//
// tests/model/match_queue_model_test.cpp walks through all interleavings of small cases, and through those
// of a queue that lacks one of these rules each.
#pragma once

#include "firehose/base/status.hpp"

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace hydrant {

// Equal are two keys that agree in all bits that both look at.
struct MatchKey {
  uint64_t id = 0;
  uint64_t mask = ~uint64_t{0};

  bool matches(const MatchKey& other) const noexcept {
    return ((id ^ other.id) & mask & other.mask) == 0;
  }
};

// Base of what is queued. Written by its owner before it waits; read by walkers, who discard what is not
// consistent. A value-initialised one has never waited.
class MatchElement {
 public:
  MatchElement() noexcept = default;
  MatchElement(const MatchElement&) = delete;
  MatchElement& operator=(const MatchElement&) = delete;

 private:
  template <typename T, typename Pause>
  friend class MatchQueue;

  // Version << 13 | taken << 12 | number of the next older one. Never set back: versions go on.
  std::atomic<uint64_t> link_{0};
  std::atomic<uint64_t> id_{0};  // release, pairs with the acquire in a walk: order is said there
  std::atomic<uint64_t> mask_{0};
};

// Where others may come in between; a test's own pauses there make rare orders frequent.
struct NoPause {
  static void here() noexcept {}
};

template <typename T, typename Pause = NoPause>
class MatchQueue {
  static_assert(std::is_base_of_v<MatchElement, T>);

 public:
  static constexpr uint32_t kMaxElements = (1u << 12) - 1;

  MatchQueue() noexcept = default;
  MatchQueue(const MatchQueue&) = delete;
  MatchQueue& operator=(const MatchQueue&) = delete;

  // Elements of [elements, elements + count) can wait from now on; before any other call. kBadArg when there
  // are more than numbers for them. The array outlives the queue's last call.
  Status use(T* elements, uint32_t count) noexcept {
    if (count > kMaxElements) {
      return fail(
          Status::kBadArg,
          "match queue: %u elements, but a link has room for %u; split the keys among queues",
          count, kMaxElements);
    }
    elements_ = elements;
    return Status::kOk;
  }

  // The oldest arrival that matches, taken out; `element` was not used then. Or null, and `element` waits.
  T* post(T& element, const MatchKey& key) noexcept {
    return take_or_join(kPosted, kUnexpected, element, key);
  }
  // The mirror image: the oldest posting that matches, or null, and `element` waits as unexpected.
  T* arrive(T& element, const MatchKey& key) noexcept {
    return take_or_join(kUnexpected, kPosted, element, key);
  }

  // Takes out the oldest match of one side, or answers null; nobody joins. Mask 0: the oldest of all.
  T* take_posted(const MatchKey& key) noexcept { return take_now(kPosted, key); }
  T* take_unexpected(const MatchKey& key) noexcept { return take_now(kUnexpected, key); }

  // Calls visit(element) for those who wait, the newest first. Only while no other call runs.
  template <typename Visit>
  void visit_posted(Visit&& visit) const {
    visit_side(kPosted, visit);
  }
  template <typename Visit>
  void visit_unexpected(Visit&& visit) const {
    visit_side(kUnexpected, visit);
  }

 private:
  using Word = std::atomic<uint64_t>;
  static constexpr uint32_t kHead = 0;  // the dummy at either end
  static constexpr int kNumberBits = 12;
  static constexpr uint64_t kNumber = kMaxElements;
  static constexpr uint64_t kTaken = uint64_t{1} << kNumberBits;
  static constexpr uint64_t kLinkVersion = kTaken << 1;
  static constexpr uint64_t kMiddleVersion = uint64_t{1} << (2 * kNumberBits);
  // Where a side's number lies in the middle.
  enum Side : uint32_t { kPosted = 0, kUnexpected = kNumberBits };

  // The oldest match of a walk: its link, and the word that leads to it.
  struct Found {
    uint32_t number = kHead;
    uint64_t link = 0;
    Word* from = nullptr;
    uint64_t from_value = 0;
  };

  T& at(uint32_t number) const noexcept { return elements_[number - 1]; }
  uint32_t number_of(const T& element) const noexcept {
    return static_cast<uint32_t>(&element - elements_) + 1;
  }
  static uint32_t newest(uint64_t middle, Side side) noexcept {
    return static_cast<uint32_t>(middle >> side & kNumber);
  }
  static uint32_t older(uint64_t link) noexcept { return static_cast<uint32_t>(link & kNumber); }
  static uint64_t middle_to(uint64_t middle, Side side, uint32_t number) noexcept {
    return (middle & ~(kNumber << side)) + kMiddleVersion + (uint64_t{number} << side);
  }
  static uint64_t link_to(uint64_t link, uint32_t number) noexcept {
    return (link & ~(kTaken | kNumber)) + kLinkVersion + number;
  }
  // Acquire: a walk reads what the writers of these words wrote before. Release: the fields of an element
  // that joins, and everything its former owner did.
  static bool change(Word& word, uint64_t from, uint64_t to) noexcept {
    Pause::here();
    return word.compare_exchange_strong(from, to, std::memory_order_acq_rel,
                                        std::memory_order_relaxed);
  }
  uint64_t leading_to(const Word* from, uint64_t value, Side side, uint32_t number) const noexcept {
    return from == &middle_ ? middle_to(value, side, number) : link_to(value, number);
  }

  // One walk, for the oldest match of `key` (null: for nobody, only to take out the taken). False when
  // something changed under it. `middle` is what the walk began with, and its own changes.
  bool walk(Side side, const MatchKey* key, uint64_t& middle, Found& found) noexcept {
    middle = middle_.load(std::memory_order_acquire);
    Pause::here();
    found = Found();
    Word* from = &middle_;
    uint64_t from_value = middle;
    uint32_t number = newest(middle, side);
    while (number != kHead) {
      MatchElement& element = at(number);
      const uint64_t link = element.link_.load(std::memory_order_acquire);
      const MatchKey its_key = {element.id_.load(std::memory_order_acquire),
                                element.mask_.load(std::memory_order_acquire)};
      Pause::here();
      // After the three above: if one of them was written by a later life of this element, then this
      // load sees the change that ended the former one.
      if (from->load(std::memory_order_acquire) != from_value) return false;
      if ((link & kTaken) != 0) {
        const uint64_t past = leading_to(from, from_value, side, older(link));
        if (!change(*from, from_value, past)) return false;
        from_value = past;
        if (from == &middle_) middle = past;
        if (found.number != kHead && from == &link_of(found.number)) found.link = past;
      } else {
        if (key != nullptr && key->matches(its_key)) found = {number, link, from, from_value};
        from = &element.link_;
        from_value = link;
      }
      number = older(link);
    }
    return true;
  }
  Word& link_of(uint32_t number) const noexcept {
    return static_cast<MatchElement&>(at(number)).link_;
  }

  // The oldest match, out of the list; or null, and `middle` was its value while there was none.
  T* take(Side side, const MatchKey& key, uint64_t& middle) noexcept {
    for (;;) {
      Found found;
      if (!walk(side, &key, middle, found)) continue;
      if (found.number == kHead) return nullptr;
      if (!change(link_of(found.number), found.link, (found.link + kLinkVersion) | kTaken)) {
        continue;
      }
      const uint64_t past = leading_to(found.from, found.from_value, side, older(found.link));
      if (!change(*found.from, found.from_value, past)) see_it_out(side);
      return &at(found.number);
    }
  }
  T* take_now(Side side, const MatchKey& key) noexcept {
    uint64_t middle = 0;
    return take(side, key, middle);
  }
  // A walk that comes through has taken out everything that was taken before it began, or others have.
  void see_it_out(Side side) noexcept {
    uint64_t middle = 0;
    Found nobody;
    while (!walk(side, nullptr, middle, nobody)) {
    }
  }

  T* take_or_join(Side own, Side other, T& element, const MatchKey& key) noexcept {
    for (;;) {
      uint64_t middle = 0;
      if (T* match = take(other, key, middle)) return match;
      MatchElement& joins = element;
      joins.id_.store(key.id, std::memory_order_release);
      joins.mask_.store(key.mask, std::memory_order_release);
      const uint64_t before =
          joins.link_.load(std::memory_order_relaxed);  // only its owner writes now
      joins.link_.store(link_to(before, newest(middle, own)), std::memory_order_release);
      if (change(middle_, middle, middle_to(middle, own, number_of(element)))) return nullptr;
    }
  }

  template <typename Visit>
  void visit_side(Side side, Visit&& visit) const {
    uint32_t number = newest(middle_.load(std::memory_order_acquire), side);
    for (; number != kHead; number = older(link_of(number).load(std::memory_order_acquire))) {
      visit(at(number));
    }
  }

  T* elements_ = nullptr;  // constant since use()
  // Version << 24 | newest unexpected << 12 | newest posted. A line of its own: every call writes it.
  alignas(64) Word middle_{0};
};

}  // namespace hydrant
