// Remote pins over the shared-memory registrar: two processes, each with a domain of its shared memory
// and an endpoint, messages over a socket. A put is a copy into the peer's memory. Memory that the peer
// frees meanwhile stays until the firehose is released.
#include <hydrant/alloc.h>
#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>
#include <hydrant/remote_pin.h>

#include "firehose/watch/mutant.hpp"
#include "rdma/shm/shm_registrar.hpp"
#include "rdma/transport/node_registrar.hpp"
#include "tests/support/child_server.hpp"
#include "tests/support/registrar_functions.hpp"
#include "tests/support/threads.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

using shm::ShmRegistrar;

constexpr size_t kBytes = size_t{8} << 20;
constexpr size_t kMessageBytes = 4096;

// The endpoint of one process; the other process has the other end of the socket.
class End {
 public:
  End(uint32_t rank, int socket) : rank_(rank), socket_(socket) {
    EXPECT_EQ(ShmRegistrar::create(&registrar_), Status::kOk);
    const hydrant_registrar_t functions = registrar_functions(*registrar_);
    hydrant_domain_options_t of_domain;
    hydrant_domain_options_init(&of_domain);
    of_domain.registrar = &functions;
    // Only the arena's own announcements determine what is cached.
    of_domain.watch = HYDRANT_WATCH_NONE;
    EXPECT_EQ(hydrant_domain_create(&of_domain, &domain_), GASNET_OK) << hydrant_error_text();
    hydrant_messenger_t messenger{};
    messenger.size = sizeof messenger;
    messenger.user = this;
    messenger.max_message_bytes = kMessageBytes;
    messenger.send = [](void* self, uint32_t, uint32_t lane, void*, const void* message,
                        size_t len) { return static_cast<End*>(self)->send(lane, message, len); };
    hydrant_remote_options_t options;
    hydrant_remote_options_init(&options);
    options.domain = domain_;
    options.rank = rank;
    options.ranks = 2;
    options.messenger = &messenger;
    EXPECT_EQ(hydrant_remote_create(&options, &end_), GASNET_OK) << hydrant_error_text();
  }
  ~End() {
    EXPECT_EQ(hydrant_remote_destroy(end_), GASNET_OK);
    EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
    EXPECT_EQ(registrar_->attachments().attachments, 0u) << "mappings are left";
    close(socket_);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void poll() {
    char message[kMessageBytes + 1];
    for (;;) {
      const ssize_t n = recv(socket_, message, sizeof message, MSG_DONTWAIT);
      if (n <= 0) break;
      void* const reply_to = message[0] == HYDRANT_LANE_REQUEST ? message : nullptr;
      EXPECT_EQ(hydrant_remote_deliver(end_, 1 - rank_, message + 1, static_cast<size_t>(n) - 1,
                                       reply_to),
                GASNET_OK)
          << hydrant_error_text();
    }
    EXPECT_GE(hydrant_remote_poll(end_), 0);
    (void)hydrant_poll(domain_);
  }
  bool poll_until(const std::function<bool()>& done) {
    return wait_until([&] {
      poll();
      return done();
    });
  }

  // Returns a firehose on the peer's memory; without one an expectation fails.
  hydrant_pin_t pin(uintptr_t addr, size_t len) {
    struct Waiting {
      bool done = false;
      int status = GASNET_OK;
      hydrant_pin_t pin{};
    } waiting;
    hydrant_remote_call_t call{};
    call.context = &waiting;
    call.done = [](void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t* outcome) {
      *static_cast<Waiting*>(context) = {true, outcome->status, pin};
    };
    const int status =
        hydrant_remote_pin(end_, 1 - rank_, addr, len, HYDRANT_REMOTE_WRITE, &call, &waiting.pin);
    EXPECT_EQ(status, GASNET_OK) << hydrant_error_text();
    if (status != GASNET_OK || waiting.pin.region != nullptr) return waiting.pin;
    EXPECT_TRUE(poll_until([&] { return waiting.done; }));
    EXPECT_EQ(waiting.status, GASNET_OK);
    return waiting.pin;
  }
  static char* mapped(const hydrant_pin_t& pin, uintptr_t addr, size_t len = 1) {
    if (pin.region == nullptr) return nullptr;
    return reinterpret_cast<char*>(
        address_by_node_key(static_cast<const std::byte*>(pin.region->key), addr, len));
  }

  hydrant_remote_t end() const { return end_; }
  hydrant_remote_stats_t stats() const {
    hydrant_remote_stats_t stats{};
    stats.size = sizeof stats;
    EXPECT_EQ(hydrant_remote_get_stats(end_, &stats), GASNET_OK);
    return stats;
  }
  ShmRegistrar& registrar() { return *registrar_; }

 private:
  int send(uint32_t lane, const void* message, size_t len) {
    char bytes[kMessageBytes + 1];
    bytes[0] = static_cast<char>(lane);
    std::memcpy(bytes + 1, message, len);
    if (::send(socket_, bytes, len + 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return GASNET_OK;
    return errno == EAGAIN || errno == ENOBUFS ? GASNET_ERR_NOT_READY : HYDRANT_ERR_BROKEN;
  }

  const uint32_t rank_;
  const int socket_;
  std::unique_ptr<ShmRegistrar> registrar_;
  hydrant_domain_t domain_ = 0;
  hydrant_remote_t end_ = 0;
};

uint64_t emptied_shared_bytes() {
  hydrant_alloc_stats_t stats{};
  stats.size = sizeof stats;
  hydrant_alloc_get_stats(&stats);
  return stats.shared.emptied_bytes;
}

// Executes commands, and polls: a letter and a number.
//   a: allocates, returns the address;  f: frees;  t: trims, returns the freed bytes of shared memory
//   r, w: returns the byte there, writes '!' there;  i: recalls it, as the arena does with too much memory
//   z: returns the number of exports of released memory;  e: of all exports;  q: ends
void serve(MessageSocket& talk, int socket) {
  End end(1, socket);
  char* p = nullptr;
  for (;;) {
    end.poll();
    if (!talk.has_message()) {
      usleep(50);
      continue;
    }
    const std::string word = talk.hear();
    if (word.empty() || word[0] == 'q') break;
    const uint64_t number = std::strtoull(word.c_str() + 1, nullptr, 10);
    std::string said = "done";
    switch (word[0]) {
      case 'a':
        p = static_cast<char*>(hydrant_alloc_shared(size_t{2} << 20, kBytes));
        said = std::to_string(reinterpret_cast<uintptr_t>(p));
        break;
      case 'f': hydrant_free(p); break;
      case 't': {
        const uint64_t before = emptied_shared_bytes();
        (void)hydrant_alloc_trim();
        said = std::to_string(emptied_shared_bytes() - before);
        break;
      }
      case 'r': said = std::string(p + number, 1); break;
      case 'w': p[number] = '!'; break;
      case 'i':
        hydrant_monitor(HYDRANT_MONITOR_VERSION)
            ->invalidate(reinterpret_cast<uintptr_t>(p), kBytes);
        break;
      case 'z': said = std::to_string(end.stats().zombies); break;
      case 'e': said = std::to_string(end.stats().exports); break;
      default: break;
    }
    talk.say(said);
  }
}

class ShmPins : public ::testing::Test {
 protected:
  void SetUp() override {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    peer_ = std::make_unique<OtherProcess>([&](MessageSocket& talk) {
      close(sockets[0]);
      serve(talk, sockets[1]);
    });
    close(sockets[1]);
    end_ = std::make_unique<End>(0, sockets[0]);
    addr_ = ask_number("a");
    ASSERT_NE(addr_, 0u);
  }
  void TearDown() override {
    end_.reset();
    peer_.reset();
  }
  uint64_t ask_number(const std::string& word) {
    const std::string said = peer_->ask(word);
    EXPECT_FALSE(said.empty()) << word;
    return std::strtoull(said.c_str(), nullptr, 10);
  }

  // The peer's memory is recalled and freed while a firehose is held: returns true if its contents survive.
  bool freed_memory_is_kept(hydrant_pin_t* pin) {
    *pin = end_->pin(addr_, kBytes);
    char* const here = End::mapped(*pin, addr_, kBytes);
    if (here == nullptr) return false;
    std::memset(here, 'p', kBytes);
    peer_->ask("f");
    peer_->ask("i");
    EXPECT_TRUE(end_->poll_until([&] { return end_->stats().recalled != 0; }));
    const bool nothing_went = ask_number("t") == 0;
    return nothing_went && here[0] == 'p' && here[kBytes - 1] == 'p';
  }

  std::unique_ptr<OtherProcess> peer_;
  std::unique_ptr<End> end_;
  uintptr_t addr_ = 0;
};

TEST_F(ShmPins, PutIsACopy) {
  const hydrant_pin_t pin = end_->pin(addr_ + 100, 5000);
  char* const here = End::mapped(pin, addr_ + 100, 5000);
  ASSERT_NE(here, nullptr);
  here[0] = 'p';
  here[4999] = 'q';
  EXPECT_EQ(peer_->ask("r100"), "p");
  EXPECT_EQ(peer_->ask("r5099"), "q");
  peer_->ask("w100");
  EXPECT_EQ(here[0], '!');
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
  const uint64_t sent = end_->stats().requests;
  const hydrant_pin_t again = end_->pin(addr_ + 100, 5000);
  EXPECT_EQ(End::mapped(again, addr_ + 100), here);
  EXPECT_EQ(end_->stats().requests, sent) << "a hit sends nothing";
  EXPECT_EQ(hydrant_release(again), GASNET_OK);
}

TEST_F(ShmPins, ManyFirehosesOfAnArenaAreOneMapping) {
  for (size_t at = 0; at < kBytes; at += 16 * 4096) {
    const hydrant_pin_t pin = end_->pin(addr_ + at, 4096);
    char* const here = End::mapped(pin, addr_ + at);
    ASSERT_NE(here, nullptr);
    *here = 'p';
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
  }
  EXPECT_LE(end_->registrar().attachments().attachments, 2u);
}

TEST_F(ShmPins, OtherMemoryIsRefused) {
  struct Waiting {
    bool done = false;
    int status = GASNET_OK;
  } waiting;
  hydrant_remote_call_t call{};
  call.context = &waiting;
  call.done = [](void* context, hydrant_pin_t, const hydrant_remote_outcome_t* outcome) {
    *static_cast<Waiting*>(context) = {true, outcome->status};
  };
  hydrant_pin_t pin{};
  // The same program at the same addresses: this variable also exists in the peer.
  ASSERT_EQ(hydrant_remote_pin(end_->end(), 1, reinterpret_cast<uintptr_t>(&mutant_info), 64,
                               HYDRANT_REMOTE_WRITE, &call, &pin),
            GASNET_OK);
  ASSERT_TRUE(end_->poll_until([&] { return waiting.done; }));
  EXPECT_EQ(waiting.status, HYDRANT_ERR_REFUSED);
}

// Freed without a recall: the peer's domain keeps it registered, and the arena keeps its pages.
TEST_F(ShmPins, FreedMemoryStaysVisibleAndIsReused) {
  const hydrant_pin_t pin = end_->pin(addr_, kBytes);
  char* const here = End::mapped(pin, addr_, kBytes);
  ASSERT_NE(here, nullptr);
  peer_->ask("f");
  std::memset(here, 'p', kBytes);
  EXPECT_EQ(ask_number("t"), 0u);
  EXPECT_EQ(here[kBytes / 2], 'p');
  ASSERT_EQ(ask_number("a"), addr_) << "the same memory for the next";
  for (const size_t at : {size_t{0}, kBytes / 2, kBytes - 1}) {
    EXPECT_EQ(peer_->ask("r" + std::to_string(at)), "p");
    peer_->ask("w" + std::to_string(at));
    EXPECT_EQ(here[at], '!');
    here[at] = 'q';
    EXPECT_EQ(peer_->ask("r" + std::to_string(at)), "q");
  }
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
}

TEST_F(ShmPins, RecalledMemoryIsFreedAfterTheRelease) {
  hydrant_pin_t pin{};
  ASSERT_TRUE(freed_memory_is_kept(&pin));
  EXPECT_EQ(ask_number("z"), 1u);
  char* const here = End::mapped(pin, addr_);
  // A late write is visible to the next owner of the memory.
  ASSERT_EQ(ask_number("a"), addr_);
  *here = 'l';
  EXPECT_EQ(peer_->ask("r0"), "l");
  peer_->ask("f");
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
  EXPECT_TRUE(end_->poll_until([&] { return ask_number("z") == 0; }));
  EXPECT_EQ(ask_number("t"), kBytes);
  EXPECT_EQ(end_->registrar().attachments().attachments, 0u);
}

TEST_F(ShmPins, KilledOwnerLeavesMappedMemory) {
  const hydrant_pin_t pin = end_->pin(addr_, kBytes);
  char* const here = End::mapped(pin, addr_, kBytes);
  ASSERT_NE(here, nullptr);
  peer_->kill();
  std::memset(here, 'p', kBytes);
  EXPECT_EQ(hydrant_remote_peer_gone(end_->end(), 1), GASNET_OK);
  EXPECT_EQ(here[kBytes - 1], 'p') << "held: it stays mapped";
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
  end_->poll();
  EXPECT_EQ(end_->registrar().attachments().attachments, 0u);
}

#if HYDRANT_MUTANTS
// Without the quarantine, the tests above must fail.
class ShmPinsMutant : public ShmPins {
 protected:
  void SetUp() override {
    set_mutant(Mutant::kNoQuarantine, 0);
    ShmPins::SetUp();
  }
  void TearDown() override {
    set_mutant(Mutant::kNone, 0);
    ShmPins::TearDown();
  }
};

TEST_F(ShmPinsMutant, WithoutQuarantineMappedMemoryIsFreed) {
  hydrant_pin_t pin{};
  EXPECT_FALSE(freed_memory_is_kept(&pin));
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
}
#endif

}  // namespace
}  // namespace hydrant::testing
