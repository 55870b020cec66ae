// Clients of remote_pin.h, three ends in one process, in which the input decides every step: which message
// arrives next, pins and releases, sends without room, and forged messages, mutated from recorded ones.
#pragma once

#include "tests/fuzz/fuzz_target.hpp"
#include "tests/support/remote_pin_cluster.hpp"

#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace hydrant::fuzz {

class RemoteClients {
 public:
  explicit RemoteClients(Input& input);
  ~RemoteClients();
  RemoteClients(const RemoteClients&) = delete;
  RemoteClients& operator=(const RemoteClients&) = delete;

  void run();
  // Destroys all ends; no memory may stay pinned, and each request must have an answer.
  void finish();

 private:
  static constexpr uint32_t kRanks = 3;
  static constexpr size_t kPages = 64;

  struct Range {
    uintptr_t addr;
    size_t len;
  };
  struct Held {
    uint32_t from, to;
    hydrant_pin_t pin;
    uint32_t access;
  };
  // A request whose answer may come later.
  struct Asked {
    RemoteClients* clients;
    uint32_t from, to;
    Range range;
    uint32_t access;
    bool is_done = false;
    char args[64] = {};
  };

  static testing::RemotePinCluster::Settings settings(Input& input);
  void step();
  void pin();
  void look_up();
  void release();
  void deliver();
  void forge();
  void tell();
  void end_a_pair();
  void look();
  bool settle();
  void check_quiet();
  void check_fresh(uint32_t from, uint32_t to, size_t page);
  void wrong_calls();

  Range range(uint32_t of);
  std::pair<uint32_t, uint32_t> pair();
  void take(const Asked& asked, hydrant_pin_t pin);
  void check(const Held& held) const;
  // Neither end has received a forged message or a report that the other is dead.
  bool is_sound(uint32_t from, uint32_t to) const;

  Input& input_;
  testing::RemotePinCluster world_;
  const bool lies_;  // send forged messages, and report live ends as dead
  std::vector<Held> held_;
  std::vector<std::unique_ptr<Asked>> asked_;
  std::deque<testing::RemoteMessage> recorded_;
  uint64_t oldest_[kRanks][kPages] = {};  // the least serial that may be hit in the quiet state
  bool has_forged_ = false;
  std::set<std::pair<uint32_t, uint32_t>> gone_;
  bool has_ended_ = false;
};

}  // namespace hydrant::fuzz
