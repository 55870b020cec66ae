// How the ranks of a node tell each other that the job ends where the launcher does not: a datagram socket
// per rank, in the abstract namespace, and a pidfd of every other rank. Each rank keeps about 60 bytes
// and one descriptor for each other rank of its node.
//
// Threads: read() and the descriptors belong to one thread; tell() may be called from any.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/abstract_socket.hpp"
#include "rdma/bootstrap.hpp"

#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <vector>

namespace hydrant {

class NodeWords {
 public:
  // Collective over the job: it holds two fences. Errors: kNotReady: somebody did not come; kResource.
  static Status open(Bootstrap& bootstrap, uint64_t deadline_ns,
                     std::unique_ptr<NodeWords>* words) noexcept;
  ~NodeWords();
  NodeWords(const NodeWords&) = delete;
  NodeWords& operator=(const NodeWords&) = delete;

  struct Peer {
    Rank rank = kNoRank;
    pid_t pid = 0;
    uint64_t start_time = 0;
    int pidfd = -1;     // -1 once it has ended
    bool left = false;  // it has said so
    RandomName name{};
  };
  std::vector<Peer>& peers() noexcept { return peers_; }  // the other ranks of the node, ascending

  // Readable when somebody has said something.
  int fd() const noexcept { return socket_; }
  // Takes one message that a rank of this node has sent; false if there is none. *rank ends the job, the
  // sender or a rank of another node.
  bool read(Rank* rank, int* code) noexcept;

  // True in one of the ranks that ask, the first: it speaks of the end of `peer`, the others are silent.
  bool claim(const Peer& peer) noexcept;

  // True in one of the ranks that leave, the first: it tells other nodes. Any thread, once.
  bool claim_exit() noexcept;

  // Tells all others of the node that `rank`, this one or one of another node, ends the job. Never waits: who
  // cannot take a message has ten of them already.
  void tell(Rank rank, int code) const noexcept;

 private:
  NodeWords() = default;
  Status bind_socket() noexcept;
  Status find_peer(Bootstrap& bootstrap, Rank rank, uint64_t deadline_ns) noexcept;

  int socket_ = -1;
  int claim_ = -1;  // a name that only one process can have
  int exit_claim_ = -1;
  Rank rank_ = kNoRank;
  RandomName name_{};
  std::vector<Peer> peers_;
};

}  // namespace hydrant
