// How the ranks of a node tell each other that the job ends where the launcher does not: a datagram socket
// per rank, in the abstract namespace, and a pidfd of every other rank. Each rank keeps about 60 bytes
// and one descriptor for each other rank of its node.
//
// The program may close any of the descriptors: repair() opens them again.
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

// What a notice says: that a rank ends the job, or that its sender dies of a signal and has told the user.
enum class NoticeKind : uint32_t { kExit, kDeathPublished };

class NodeExitChannel {
 public:
  // Collective over the job: it holds two fences. Errors: kNotReady: somebody did not come; kResource.
  static Status open(Bootstrap& bootstrap, uint64_t deadline_ns,
                     std::unique_ptr<NodeExitChannel>* channel) noexcept;
  ~NodeExitChannel() = default;
  NodeExitChannel(const NodeExitChannel&) = delete;
  NodeExitChannel& operator=(const NodeExitChannel&) = delete;

  struct Peer {
    Rank rank = kNoRank;
    pid_t pid = 0;
    uint64_t start_time = 0;
    KeptDescriptor pidfd = {};  // none once it has ended
    bool is_gone = false;       // repair() has found out; pidfd may say nothing
    bool is_told = false;       // its end
    bool left = false;          // it has said so
    bool published_its_death = false;
    RandomName name{};
  };
  std::vector<Peer>& peers() noexcept { return peers_; }  // the other ranks of the node, ascending

  // Readable when somebody has said something.
  int fd() const noexcept { return again_.number() >= 0 ? again_.get() : socket_.get(); }
  // Opens again what the program has closed, and finds out which rank has ended meanwhile (Peer::is_gone).
  // Words that came to a closed socket are lost, ends of processes are not. True if something was closed.
  // Cost: two system calls per rank of the node.
  bool repair() noexcept;
  // Whether notices may have been lost: a rank that did not say that it leaves may have said so.
  bool lost_notices() const noexcept { return lost_notices_; }
  // Takes one message that a rank of this node has sent; false if there is none. *rank ends the job, the
  // sender or a rank of another node.
  bool read(Rank* rank, int* code) noexcept;

  // True in one of the ranks that ask, the first: it speaks of the end of `peer`, the others are silent.
  bool claim(const Peer& peer) noexcept;

  // True in one of the ranks that leave, the first: it tells other nodes. Any thread, once.
  bool claim_exit() noexcept;

  // True in one of the ranks that ask while others that asked are there: it tells the user that ranks waited.
  bool claim_wait() noexcept;

  // Tells all others of the node that `rank`, this one or one of another node, ends the job. Never waits: who
  // cannot take a message has ten of them already. In signal handlers, too.
  void publish_exit(Rank rank, int code, NoticeKind what = NoticeKind::kExit) const noexcept;

 private:
  NodeExitChannel() = default;
  const RandomName& common_name() const noexcept;
  Status bind_socket(KeptDescriptor* held) noexcept;
  static void watch_again(Peer& peer) noexcept;
  Status find_peer(Bootstrap& bootstrap, Rank rank, uint64_t deadline_ns) noexcept;

  KeptDescriptor socket_;  // never changed once it is open: publish_exit() uses it
  KeptDescriptor again_;   // bound to the same name, once the program has closed socket_
  KeptDescriptor claim_;   // a name that only one process can have
  KeptDescriptor exit_claim_;
  KeptDescriptor wait_claim_;
  bool lost_notices_ = false;
  int failures_ = 0;  // of repair() to have a socket again
  Rank rank_ = kNoRank;
  RandomName name_{};
  std::vector<Peer> peers_;
};

}  // namespace hydrant
