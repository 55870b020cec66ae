// Exit notifications between the ranks of a node, for launchers that send none: a datagram socket per rank,
// in the abstract namespace, and a pidfd of every other rank. Each rank keeps about 60 bytes and one
// descriptor for each other rank of its node.
//
// The program may close any of the descriptors: repair() reopens them.
//
// Threads: read(), repair() and the descriptors belong to one thread; publish_exit() may be called from any.
#pragma once

#include "firehose/base/kept_descriptor.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/abstract_socket.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <vector>

namespace hydrant {

// The content of a notification: a rank ends the job, or its sender dies of a signal and has reported it to
// the user.
enum class NoticeKind : uint32_t { kExit, kDeathPublished };

class NodeExitChannel {
 public:
  // Collective over the job: it holds two fences. Errors: kNotReady: a rank did not arrive; kResource.
  static Status open(Bootstrap& bootstrap, uint64_t deadline_ns,
                     std::unique_ptr<NodeExitChannel>* channel) noexcept;
  ~NodeExitChannel() = default;
  NodeExitChannel(const NodeExitChannel&) = delete;
  NodeExitChannel& operator=(const NodeExitChannel&) = delete;

  struct Peer {
    Rank rank = kNoRank;
    pid_t pid = 0;
    uint64_t start_time = 0;
    KeptDescriptor pidfd = {};    // closed once the process has ended
    bool is_gone = false;         // repair() has found that the process has ended; no pidfd then
    bool is_end_handled = false;  // its end has been handled
    bool left = false;            // it has sent its exit
    bool published_its_death = false;
    RandomName name{};
  };
  std::vector<Peer>& peers() noexcept { return peers_; }  // the other ranks of the node, ascending

  // Readable when a notification has arrived.
  int fd() const noexcept { return again_.number() >= 0 ? again_.get() : socket_.get(); }
  // Reopens descriptors that the program has closed, and detects ranks that have ended meanwhile
  // (Peer::is_gone). Notifications to a closed socket are lost, ends of processes are not. True if a
  // descriptor was closed. Cost: two system calls per rank of the node.
  bool repair() noexcept;
  // True if notifications may have been lost: a rank whose exit did not arrive may have sent it.
  bool lost_notices() const noexcept { return lost_notices_; }
  // Reads one message of a rank of this node; false if there is none. *rank ends the job: the sender, or a
  // rank of another node.
  bool read(Rank* rank, int* code) noexcept;

  // True in the first rank that calls it for `peer`: that rank reports the end of `peer`, the others do not.
  bool claim(const Peer& peer) noexcept;

  // True in the first rank of the node that leaves: it notifies other nodes. Any thread, once.
  bool claim_exit() noexcept;

  // True in one of the ranks that call it, as long as that rank runs: it reports to the user that ranks
  // waited.
  bool claim_wait() noexcept;

  // Notifies all other ranks of the node that `rank`, this one or one of another node, ends the job. Never
  // waits: a rank whose socket is full has ten notifications already. Async-signal-safe.
  void publish_exit(Rank rank, int code, NoticeKind what = NoticeKind::kExit) const noexcept;

 private:
  NodeExitChannel() = default;
  const RandomName& common_name() const noexcept;
  Status bind_socket(KeptDescriptor* held) noexcept;
  static void watch_again(Peer& peer) noexcept;
  Status find_peer(Bootstrap& bootstrap, Rank rank, uint64_t deadline_ns) noexcept;

  KeptDescriptor socket_;  // constant once it is open: publish_exit() uses it
  KeptDescriptor again_;   // bound to the same name, once the program has closed socket_
  KeptDescriptor claim_;   // bound to a name that only one process can have
  KeptDescriptor exit_claim_;
  KeptDescriptor wait_claim_;
  bool lost_notices_ = false;
  int failures_ = 0;  // failed attempts of repair() to bind a socket
  Rank rank_ = kNoRank;
  RandomName name_{};
  std::vector<Peer> peers_;
};

}  // namespace hydrant
