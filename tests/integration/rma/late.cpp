// Late calls: in destructors of thread-local objects and of pthread keys, after main(), and in a
// process without free memory.
#include "tests/integration/rma/client.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/resource.h>
#include <thread>

namespace rma_client {

namespace {

uint32_t calls = 0;

void put_and_get() {
  const gex_Rank_t peer = (me + 1) % size;
  for (const Area where : {kSegment, kHeap}) {
    uint64_t word = me + 1000;
    gex_Event_Wait(
        gex_RMA_PutNB(team, peer, area(peer, where), &word, sizeof word, GEX_EVENT_NOW, 0));
    word = 0;
    gasnet_get(&word, peer, area(peer, where), sizeof word);
    if (word != me + 1000) wrong("%llu came back", static_cast<unsigned long long>(word));
  }
  gasnet_put_nbi(peer, area(peer, kHeap), &calls, sizeof calls);
  gex_NBI_Wait(GEX_EC_ALL, 0);
  ++calls;
}

struct AtThreadEnd {
  ~AtThreadEnd() {
    if (used) put_and_get();
  }
  bool used = false;
};

// Constructed before the library's thread-local objects, so destroyed after them.
void be_a_thread(pthread_key_t first, pthread_key_t second) {
  static thread_local AtThreadEnd last;
  last.used = true;
  pthread_setspecific(first, &calls);
  pthread_setspecific(second, &calls);
  put_and_get();
}

void after_main() {
  put_and_get();
  if (calls != 1 + 3 * 4 + 1) wrong("%u calls", calls);
  barrier();
  if (me == 0) std::printf("all held\n");
  gasnet_exit(0);
}

}  // namespace

void late() {
  pthread_key_t keys[2];
  for (pthread_key_t& key : keys) {
    if (pthread_key_create(&key, [](void*) { put_and_get(); }) != 0) wrong("no key");
  }
  put_and_get();
  for (int i = 0; i < 3; ++i) std::thread(be_a_thread, keys[0], keys[1]).join();
  barrier();
  std::atexit(after_main);
  std::exit(0);
}

void starved() {
  // Makes the thread adopt its state.
  char byte = 0;
  gasnet_put((me + 1) % size, area((me + 1) % size, kHeap), &byte, 1);
  barrier();
  const rlimit nothing_more{1, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &nothing_more) != 0) wrong("setrlimit");
  const gex_Rank_t peer = (me + 1) % size;
  for (size_t bytes = 1; bytes <= kAreaBytes[kHeap]; bytes *= 4) {
    std::memset(own_segment(), static_cast<int>(bytes % 251), bytes);
    gex_Event_Wait(
        gex_RMA_PutNB(team, peer, area(peer, kHeap), own_segment(), bytes, GEX_EVENT_NOW, 0));
  }
}

}  // namespace rma_client
