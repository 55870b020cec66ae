// Completion of the model's operations, and the model itself.
#include "tests/integration/rma/model_worker.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

namespace rma_client {

void Mailbox::post(gex_Event_t event, std::atomic<bool>* synced) {
  const std::lock_guard lock(mu_);
  letters_.push_back({event, synced});
}

bool Mailbox::serve() {
  Letter letter;
  {
    const std::lock_guard lock(mu_);
    if (letters_.empty()) return false;
    letter = letters_.back();
    letters_.pop_back();
  }
  gex_Event_Wait(letter.event);
  letter.synced->store(true, std::memory_order_release);
  return true;
}

void Worker::wait_by_other_thread(gex_Event_t event) {
  std::atomic<bool> synced{false};
  mailbox_.post(event, &synced);
  for (size_t looks = 0; !synced.load(std::memory_order_acquire); ++looks) {
    gasnet_AMPoll();
    // Other threads may have ended.
    if (looks > 50) mailbox_.serve();
  }
}

// ---- checks after completion ----

void Worker::finish_operations(std::vector<Operation>& operations) {
  for (Operation& operation : operations) {
    if (!operation.is_put) check_got(operation);
    operation.local.scribble();
  }
  operations.clear();
}
void Worker::finish_group(Group& group) { finish_operations(group.operations); }

// ---- one event ----

void Worker::complete_event(size_t index) {
  Group group = std::move(groups_[index]);
  groups_[index] = std::move(groups_.back());
  groups_.pop_back();
  switch (below(random_, 5)) {
    case 0: gex_Event_Wait(group.event); break;
    case 1: gasnet_wait_syncnb(group.event); break;
    case 2:
      while (gex_Event_Test(group.event) != GASNET_OK) gasnet_AMPoll();
      break;
    case 3:
      while (gasnet_try_syncnb(group.event) != GASNET_OK) {
      }
      break;
    default: wait_by_other_thread(group.event);
  }
  finish_group(group);
}

// ---- some events, in an array with holes ----

void Worker::complete_array() {
  std::shuffle(groups_.begin(), groups_.end(), random_);
  const size_t count = below(random_, groups_.size()) + 1;
  std::vector<gex_Event_t> events;
  std::vector<size_t> places;  // of group i
  for (size_t i = 0; i < count; ++i) {
    while (chance(5)) events.push_back(GEX_EVENT_INVALID);
    places.push_back(events.size());
    events.push_back(groups_[i].event);
  }
  const size_t way = below(random_, 6);
  int answer = GASNET_OK;
  switch (way) {
    case 0: gex_Event_WaitAll(events.data(), events.size(), 0); break;
    case 1: gasnet_wait_syncnb_all(events.data(), events.size()); break;
    case 2:
      while (gex_Event_TestAll(events.data(), events.size(), 0) != GASNET_OK) gasnet_AMPoll();
      break;
    case 3: gex_Event_WaitSome(events.data(), events.size(), 0); break;
    case 4: answer = gasnet_try_syncnb_some(events.data(), events.size()); break;
    default: answer = gex_Event_TestSome(events.data(), events.size(), 0);
  }
  std::vector<Group> left;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (i < count && events[places[i]] == GEX_EVENT_INVALID) {
      finish_group(groups_[i]);
    } else {
      left.push_back(std::move(groups_[i]));
    }
  }
  const size_t completed = groups_.size() - left.size();
  if (way < 3 && completed != count) wrong("%zu of %zu events are complete", completed, count);
  if (way == 3 && completed == 0) wrong("none of some is complete");
  if (way > 3 && (completed != 0) != (answer == GASNET_OK)) wrong("some: %d", answer);
  groups_ = std::move(left);
}

// ---- implicit operations ----

void Worker::complete_implicit() {
  const bool puts = chance(2);
  const gex_EC_t mask = puts ? GEX_EC_PUT : GEX_EC_GET;
  switch (below(random_, 6)) {
    case 0: gex_NBI_Wait(mask, 0); break;
    case 1:
      while (gex_NBI_Test(mask, 0) != GASNET_OK) gasnet_AMPoll();
      break;
    case 2:
      if (puts) gasnet_wait_syncnbi_puts();
      if (!puts) gasnet_wait_syncnbi_gets();
      break;
    case 3:
      while ((puts ? gasnet_try_syncnbi_puts() : gasnet_try_syncnbi_gets()) != GASNET_OK) {
      }
      break;
    case 4:
      gasnet_wait_syncnbi_all();
      finish_operations(implicit_puts_);
      finish_operations(implicit_gets_);
      break;
    default:
      while (gasnet_try_syncnbi_all() != GASNET_OK) {
      }
      finish_operations(implicit_puts_);
      finish_operations(implicit_gets_);
  }
  finish_operations(puts ? implicit_puts_ : implicit_gets_);
}

void Worker::complete_some() {
  if (chance(4) || groups_.empty()) {
    complete_implicit();
  } else if (chance(2)) {
    complete_event(below(random_, groups_.size()));
  } else {
    complete_array();
  }
}

void Worker::complete_all() {
  while (!groups_.empty()) complete_some();
  gex_NBI_Wait(GEX_EC_ALL, 0);
  finish_operations(implicit_puts_);
  finish_operations(implicit_gets_);
}

// ---- the model ----

Worker::Worker(uint64_t seed, uint64_t thread, uint64_t threads, Mailbox& mailbox)
    : random_(seed * 1000003 + me * 101 + thread),
      room_(own_segment() + thread * (kOwnSegmentBytes / threads), kOwnSegmentBytes / threads),
      mailbox_(mailbox) {
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    for (uint32_t which = 0; which < kAreas; ++which) {
      slices_.push_back(std::make_unique<Slice>(rank, static_cast<Area>(which),
                                                me * threads + thread, size * threads));
    }
  }
}

void Worker::step() {
  size_t under_way = 0;
  for (const Group& group : groups_) under_way += group.operations.size();
  if (under_way > 100 || implicit_puts_.size() > 60 || implicit_gets_.size() > 60) complete_some();
  if (implicit_puts_.size() > 80 || implicit_gets_.size() > 80) complete_implicit();
  switch (below(random_, 22)) {
    case 0:
    case 1: return put_blocking();
    case 2:
    case 3: return get_blocking();
    case 4:
    case 5: return put_with_event();
    case 6:
    case 7: return get_with_event();
    case 8:
    case 9: return put_implicit();
    case 10:
    case 11: return get_implicit();
    case 12:
    case 13: return values();
    case 14:
    case 15: return constant_sizes();
    case 16: return fill();
    case 17: return region();
    case 18: return many();
    case 19:
      if (chance(10)) from_ended_thread();
      return;
    case 20: mailbox_.serve(); return;
    default: complete_some();
  }
}

void Worker::compare(Slice& slice) {
  Operation all;
  all.slice = &slice;
  all.bytes = slice.holds.size();
  all.local = Local(Local::kHeapBlock, all.bytes, random_, room_);
  gasnet_get_bulk(all.local.data(), slice.rank, slice.at(0), all.bytes);
  check_got(all);
}

void Worker::finish() {
  complete_all();
  for (auto& slice : slices_) compare(*slice);
}

void model(uint64_t seed, uint64_t threads, uint64_t operations, double seconds) {
  for (uint32_t which = 0; which < kAreas; ++which) {
    std::byte* const first = area(me, static_cast<Area>(which));
    for (size_t i = 0; i < kAreaBytes[which]; ++i) first[i] = initial_byte(which, i);
  }
  if (me == 0) std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  barrier();
  Mailbox mailbox;
  std::atomic<uint64_t> running{threads};
  std::atomic<uint64_t> done{0};
  const double end = now_s() + seconds;
  std::vector<std::thread> workers;
  for (uint64_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      Worker worker(seed, thread, threads, mailbox);
      uint64_t steps = 0;
      while (steps < operations && now_s() < end) {
        worker.step();
        ++steps;
      }
      worker.finish();
      done += steps;
      --running;
    });
  }
  // Other ranks may need polls of this rank.
  while (running != 0) {
    gasnet_AMPoll();
    std::this_thread::yield();
  }
  for (std::thread& worker : workers) worker.join();
  barrier();
  std::printf("rank %u: %llu steps\n", me, static_cast<unsigned long long>(done.load()));
}

}  // namespace rma_client
