// A thread of the model. It starts random operations on its own slices of all ranks' memory, completes them
// in any order by any suitable call, and knows the expected value of every byte.
#pragma once

#include "tests/integration/rma/model_memory.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace rma_client {

// Events that other threads of this process sync.
class Mailbox {
 public:
  void post(gex_Event_t event, std::atomic<bool>* synced);
  // Syncs one event, if there is one.
  bool serve();

 private:
  struct Letter {
    gex_Event_t event;
    std::atomic<bool>* synced;
  };
  std::mutex mu_;
  std::vector<Letter> letters_;
};

class Worker {
 public:
  Worker(uint64_t seed, uint64_t thread, uint64_t threads, Mailbox& mailbox);
  void step();
  // Completes all operations and compares all slices.
  void finish();

 private:
  // A put, get or fill that may be under way.
  struct Operation {
    bool is_put = false;
    Slice* slice = nullptr;
    size_t first = 0;  // in the slice
    size_t bytes = 0;
    Local local;
  };
  struct Group {
    gex_Event_t event = GEX_EVENT_INVALID;
    std::vector<Operation> operations;
  };

  // ---- model_start.cpp ----
  void put_blocking();
  void get_blocking();
  void put_with_event();
  void get_with_event();
  void put_implicit();
  void get_implicit();
  void values();
  void constant_sizes();
  void fill();
  void region();
  void many();
  void from_ended_thread();

  // Chooses an operation without conflicts with those under way. Allocates local memory only if `kind`
  // demands it.
  Operation choose(bool is_put, size_t most);
  bool conflicts(const Operation& wanted) const;
  void note_put(const Operation& put);
  void note_fill(const Operation& put, int value);
  void check_got(const Operation& get) const;
  Group start_put_with_event(Operation put);
  Group start_get_with_event(Operation get);
  void wait_for_leaf(gex_Event_t leaf);
  void hand_over(Group group);
  std::byte* address(const Operation& operation) const {
    return operation.slice->at(operation.first);
  }
  bool chance(size_t one_in) { return below(random_, one_in) == 0; }

  // ---- model_complete.cpp ----
  void complete_some();
  void complete_all();
  void complete_implicit();
  void complete_event(size_t index);
  void complete_array();
  void wait_by_other_thread(gex_Event_t event);
  void finish_group(Group& group);
  void finish_operations(std::vector<Operation>& operations);
  void compare(Slice& slice);

  Random random_;
  SegmentRoom room_;
  Mailbox& mailbox_;
  std::vector<std::unique_ptr<Slice>> slices_;
  std::vector<Group> groups_;  // with events
  std::vector<Operation> implicit_puts_;
  std::vector<Operation> implicit_gets_;
  bool in_region_ = false;
  std::vector<Operation> in_region_operations_;
};

}  // namespace rma_client
