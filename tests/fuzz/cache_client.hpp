// A client of pin_cache.h in which the input decides every step: several domains over faulty registrars, and
// requests of any kind, invalid ones included. Errors are valid answers; a violated guarantee aborts the
// process.
#pragma once

#include <hydrant/pin_cache.h>

#include "tests/fuzz/fuzz_registrar.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace hydrant::fuzz {

// A domain, with the facts that the checks need.
struct FuzzedDomain {
  FuzzedDomain(const testing::Arena& memory, uint32_t key_bytes)
      : registrar(memory, key_bytes), oldest(memory.pages()) {}

  hydrant_domain_t handle = 0;
  FuzzRegistrar registrar;
  // By page: the least serial that may still be hit. Only with one thread, in domains with watch = client.
  std::vector<uint64_t> oldest;
  bool has_oldest = false;
  bool page_mode = false;
  bool was_kept = false;  // destroyed with its registrations kept
  std::atomic<uint64_t> callbacks_due{0};
};

// State shared by the threads of a client.
struct CacheWorld {
  CacheWorld(Input& input, bool has_threads);
  ~CacheWorld();
  CacheWorld(const CacheWorld&) = delete;
  CacheWorld& operator=(const CacheWorld&) = delete;

  void create(Input& input, size_t i);
  // The client's own pins are released first; the cache must be empty afterwards.
  void destroy(size_t i, uint32_t flags);

  static constexpr size_t kPages = 64;
  static constexpr size_t kDomains = 3;
  testing::Arena arena{kPages};
  const bool has_threads;
  std::unique_ptr<FuzzedDomain> domains[kDomains];
  // Handles and pins of destroyed domains.
  std::vector<hydrant_domain_t> dead_handles{0};
  std::vector<hydrant_pin_t> dead_pins{hydrant_pin_t{}};
};

// A thread of a client.
class CacheClient {
 public:
  CacheClient(CacheWorld& world, Input input) : world_(world), input_(input) {}
  ~CacheClient();
  CacheClient(const CacheClient&) = delete;
  CacheClient& operator=(const CacheClient&) = delete;

  // Runs steps until the input is used up.
  void run();
  // Releases everything.
  void finish();

 private:
  struct Request {
    const void* addr;
    size_t len;
    uint32_t access;
    bool is_range;  // the range is mapped memory
    // The least serials at the start of the call: an invalidation inside it may follow the hold.
    std::vector<uint64_t> oldest = {};
    bool is_good() const { return is_range && (access & ~HYDRANT_ACCESS_ALL) == 0; }
  };
  struct Held {
    hydrant_pin_t pin;
    size_t domain;
  };
  // Context of a callback that may run later.
  struct Waiting {
    CacheClient* client;
    size_t domain;
    Request request;
    bool is_done = false;
  };

  void step();
  void pin_step(uint32_t kind);
  void pin_async();
  void pin_many();
  void release_one();
  void release_many();
  void wrong_release();
  void tell_of_memory(uint32_t kind);
  void use_keys();
  void look();
  void end_and_begin();
  void use_dead_handle();

  // A random request: mostly a range of the arena, sometimes an impossible one.
  Request request(size_t domain);
  size_t some_domain();
  void take(size_t domain, hydrant_pin_t pin, const Request& request);
  void note(const Held& held, int delta);
  void before_destroy(size_t domain);

  CacheWorld& world_;
  Input input_;
  std::vector<Held> held_;
  std::vector<std::unique_ptr<Waiting>> waiting_;
};

}  // namespace hydrant::fuzz
