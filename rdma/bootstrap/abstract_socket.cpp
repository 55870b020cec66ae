// Creates random names, and addresses of abstract unix sockets from them. fd_passing.cpp and
// node_exit_channel.cpp (rdma/exit) connect the ranks of a node by such sockets.
#include "rdma/bootstrap/abstract_socket.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cstdio>
#include <cstring>
#include <sys/random.h>
#include <unistd.h>

namespace hydrant {

RandomName make_random_name() noexcept {
  uint64_t bits[2] = {};
  if (uncancelled::getrandom(bits, sizeof bits, 0) != sizeof bits) {
    // Happens only before the machine has gathered entropy. The token is a second check: SO_PEERCRED is the
    // first.
    bits[0] = now_ns();
    bits[1] = static_cast<uint64_t>(getpid());
  }
  RandomName name{};
  std::snprintf(name.data(), name.size(), "%016llx%016llx",
                static_cast<unsigned long long>(bits[0]), static_cast<unsigned long long>(bits[1]));
  return name;
}

AbstractAddress abstract_address(const RandomName& name, uint32_t number) noexcept {
  AbstractAddress made;
  made.address.sun_family = AF_UNIX;
  const int text = std::snprintf(made.address.sun_path + 1, sizeof made.address.sun_path - 1,
                                 "hydrant-%.32s-%u", name.data(), number);
  made.bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(text));
  return made;
}

}  // namespace hydrant
