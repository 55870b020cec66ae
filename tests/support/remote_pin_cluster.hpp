// Several ends of the remote-pin protocol in one process. The messenger queues messages until the test
// delivers them, in any order, so that a test chooses every interleaving. It never drops or duplicates
// messages.
//
// Threads: send from any; deliver from any, one at a time per world unless the test orders deliveries itself.
#pragma once

#include <hydrant/remote_pin.h>

#include "tests/support/recording_registrar.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace hydrant::testing {

struct RemoteMessage {
  uint32_t from, to;
  uint32_t lane;
  std::vector<std::byte> bytes;
  uint8_t type() const { return static_cast<uint8_t>(bytes.at(3)); }
};
// Types of messages.
inline constexpr uint8_t kMove = 1, kReply = 2, kRelease = 3, kRecall = 4;

class RemotePinCluster {
 public:
  struct Rank {
    Rank(RemotePinCluster& of, uint32_t number, size_t pages, uint32_t key_bytes);
    RemotePinCluster* world;
    uint32_t rank;
    Arena arena;
    RecordingRegistrar registrar;
    hydrant_domain_t domain = 0;
    hydrant_remote_t end = 0;
    uint64_t sent[2] = {0, 0};  // by lane
  };
  struct Settings {
    uint32_t ranks = 2;
    uint32_t present = 0;                // number of ranks that exist at first; 0: all
    size_t pages = 256;                  // pages of each rank's arena
    uint64_t domain_bytes = 0;           // budget; 0: plenty
    hydrant_remote_options_t options{};  // fields that are not 0 apply
    uint32_t domain_mode = HYDRANT_MODE_REGION;
    uint32_t domain_watch = HYDRANT_WATCH_CLIENT;
    uint64_t registrar_flags = 0;
    size_t domain_merge_bytes = 0;   // 0: the default
    size_t domain_region_bytes = 0;  // the largest; 0: the default
    size_t max_message_bytes = 4096;
    uint32_t key_bytes = 8;        // key size of the registrars: 8 or more, or 0
    bool inline_delivery = false;  // send() delivers before it returns
    // Replaces options.room; `rank` is the notified rank.
    void (*room)(void* options_user, uint32_t rank, uint32_t peer) = nullptr;
  };
  explicit RemotePinCluster(const Settings& settings);
  RemotePinCluster() : RemotePinCluster(Settings{}) {}
  ~RemotePinCluster();
  RemotePinCluster(const RemotePinCluster&) = delete;
  RemotePinCluster& operator=(const RemotePinCluster&) = delete;

  Rank& operator[](uint32_t rank) { return *ranks_[rank]; }
  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }

  // Number of messages in flight.
  size_t pending() const;
  const RemoteMessage& message(size_t i) const { return queue_[i]; }
  // Delivers message i; a reply to it is then in flight.
  void deliver(size_t i = 0);
  // Delivers and polls until no work is left.
  void settle();
  void poll_all();
  // Injects a message that no rank sent, or a duplicate.
  void inject(RemoteMessage message);
  // Destroys all ends, drops messages in flight, and creates new ends over the same domains.
  void rebuild();
  // The next n sends of this rank fail with `code`: no room now, or a broken peer.
  void refuse(uint32_t rank, int n, int code = GASNET_ERR_NOT_READY);
  // All sends to this rank find no room, until refuse_sends_to(size()).
  void refuse_sends_to(uint32_t rank) { deaf_ = rank; }
  // Makes the n-th send of any rank from now fail; 1 is the next.
  void refuse_at(int n, int code);
  // Makes every n-th send fail; 0: none.
  void refuse_each(int n) { refuse_each_ = n; }

  // Runs in each send before the message is read, in the sending thread.
  std::function<void()> before_reading;

  hydrant_remote_stats_t stats(uint32_t rank) const;

 private:
  static int send(void* user, uint32_t peer, uint32_t lane, void* reply_to, const void* message,
                  size_t len);
  void hand_over(const RemoteMessage& message);
  void make_ends();

  const Settings settings_;
  mutable std::mutex mu_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::deque<RemoteMessage> queue_;
  std::vector<int> refuse_, refuse_code_;
  int refuse_each_ = 0;
  uint32_t deaf_ = UINT32_MAX;
  int refuse_at_ = 0, refuse_at_code_ = 0;
  int sends_ = 0;
};

// The result of a request.
struct RemoteResult {
  int code = -1;  // of the call
  bool done = false;
  hydrant_pin_t pin{};
  int status = -1;
  int called = 0;
  std::vector<std::byte> answer;
  bool held() const { return pin.region != nullptr; }
};

// Registrations of exactly what is pinned: no merging, no streams.
inline RemotePinCluster::Settings exact(uint32_t ranks = 2) {
  RemotePinCluster::Settings settings;
  settings.ranks = ranks;
  settings.options.merge_bytes = 1;
  settings.options.stream_bytes = 1;
  return settings;
}

// Rank `from` requests memory of rank `to`; `result` must live until it is done.
void remote_pin(RemotePinCluster& world, uint32_t from, uint32_t to, uintptr_t addr, size_t len,
                RemoteResult* result, uint32_t access = HYDRANT_REMOTE_WRITE, uint32_t flags = 0,
                const void* args = nullptr, size_t args_len = 0);

}  // namespace hydrant::testing
