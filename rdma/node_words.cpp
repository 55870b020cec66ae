#include "rdma/node_words.hpp"

#include "firehose/base/errno_text.hpp"
#include "rdma/launch/wire.hpp"
#include "rdma/process_end.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr char kCardKey[] = "words";
constexpr uint32_t kMagic = 0x48594e57;

struct WordsCard {
  uint64_t start_time = 0;
  int32_t pid = 0;
  uint32_t zero = 0;
  RandomName name{};
  char padding[7] = {};
};
static_assert(sizeof(WordsCard) == 56);

struct Message {
  uint32_t magic = kMagic;
  Rank sender = 0;
  Rank rank = 0;  // whose exit it is: the sender's, or that of a rank of another node
  int32_t code = 0;
};

// What stands in an address in a rank's place.
constexpr uint32_t kDeathClaim = UINT32_MAX;
constexpr uint32_t kExitClaim = UINT32_MAX - 1;

bool claim_name(const RandomName& name, uint32_t number, int* held) noexcept {
  const AbstractAddress address = abstract_address(name, number);
  *held = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  return *held >= 0 && bind(*held, address.get(), address.bytes) == 0;
}

}  // namespace

NodeWords::~NodeWords() {
  if (socket_ >= 0) close(socket_);
  if (claim_ >= 0) close(claim_);
  if (exit_claim_ >= 0) close(exit_claim_);
  for (const Peer& peer : peers_) {
    if (peer.pidfd >= 0) close(peer.pidfd);
  }
}

Status NodeWords::bind_socket() noexcept {
  name_ = make_random_name();
  const AbstractAddress address = abstract_address(name_, rank_);
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (socket_ < 0 || setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(socket_, address.get(), address.bytes) != 0) {
    return fail(Status::kResource, "no socket for words between the ranks of this node: %s",
                errno_text(errno));
  }
  return Status::kOk;
}

Status NodeWords::find_peer(Bootstrap& bootstrap, Rank rank, uint64_t deadline_ns) noexcept {
  WordsCard card;
  size_t bytes = 0;
  const Status status = bootstrap.get(rank, kCardKey, std::as_writable_bytes(std::span(&card, 1)),
                                      &bytes, deadline_ns);
  if (status != Status::kOk) return add_context(status, "while rank %u was looked for", rank);
  Peer peer{.rank = rank, .pid = card.pid, .start_time = card.start_time, .name = card.name};
  peer.pidfd = open_pidfd(card.pid);
  // The same number may be another process: the rank has ended, or it counts processes in a container of
  // its own.
  const bool same = peer.pidfd >= 0 && process_start_time(card.pid) == card.start_time;
  if (!same) {
    if (peer.pidfd >= 0) close(peer.pidfd);
    return fail(Status::kBroken,
                "rank %u says it is process %d, which is not there; has it ended, or does it run "
                "in a container?",
                rank, card.pid);
  }
  peers_.push_back(peer);
  return Status::kOk;
}

Status NodeWords::open(Bootstrap& bootstrap, uint64_t deadline_ns,
                       std::unique_ptr<NodeWords>* words) noexcept {
  const JobPlace& place = bootstrap.place();
  std::unique_ptr<NodeWords> made(new NodeWords);
  made->rank_ = place.rank;
  Status status = made->bind_socket();
  if (status != Status::kOk) return status;
  const WordsCard card{.start_time = process_start_time(getpid()),
                       .pid = static_cast<int32_t>(getpid()),
                       .name = made->name_};
  status = bootstrap.put(kCardKey, launch::bytes_of(card));
  if (status == Status::kOk) status = bootstrap.fence(deadline_ns);
  made->peers_.reserve(place.node_ranks.size() - 1);
  for (const Rank rank : place.node_ranks) {
    if (status == Status::kOk && rank != place.rank) {
      status = made->find_peer(bootstrap, rank, deadline_ns);
    }
  }
  // Nobody ends before all others have found him.
  if (status == Status::kOk) status = bootstrap.fence(deadline_ns);
  if (status == Status::kOk) *words = std::move(made);
  return status;
}

bool NodeWords::claim(const Peer& peer) noexcept {
  return claim_name(peer.name, kDeathClaim, &claim_);
}

// The first rank's name is everybody's.
bool NodeWords::claim_exit() noexcept {
  const bool is_first = peers_.empty() || rank_ < peers_.front().rank;
  return claim_name(is_first ? name_ : peers_.front().name, kExitClaim, &exit_claim_);
}

bool NodeWords::read(Rank* rank, int* code) noexcept {
  for (;;) {
    Message message;
    iovec part{&message, sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))] = {};
    msghdr head{};
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    head.msg_control = control;
    head.msg_controllen = sizeof control;
    const ssize_t bytes = recvmsg(socket_, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return false;
    ucred sender{};
    const cmsghdr* about = CMSG_FIRSTHDR(&head);
    const bool credentials =
        about != nullptr && about->cmsg_level == SOL_SOCKET && about->cmsg_type == SCM_CREDENTIALS;
    if (credentials) std::memcpy(&sender, CMSG_DATA(about), sizeof sender);
    const auto peer = std::find_if(peers_.begin(), peers_.end(),
                                   [&](const Peer& one) { return one.rank == message.sender; });
    // The kernel says who sent it: nobody can end the job in the name of a rank.
    const bool good = bytes == sizeof message && message.magic == kMagic && credentials &&
                      peer != peers_.end() && sender.pid == peer->pid;
    if (!good) continue;
    *rank = message.rank;
    *code = message.code;
    return true;
  }
}

void NodeWords::tell(Rank rank, int code) const noexcept {
  const Message message{.sender = rank_, .rank = rank, .code = code};
  for (const Peer& peer : peers_) {
    const AbstractAddress address = abstract_address(peer.name, peer.rank);
    sendto(socket_, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL, address.get(),
           address.bytes);
  }
}

}  // namespace hydrant
