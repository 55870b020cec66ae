// Unix sockets in the abstract namespace: they have a name, but no file, and disappear with the last process
// that holds them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <sys/socket.h>
#include <sys/un.h>

namespace hydrant {

// 128 random bits in hexadecimal, with a terminating zero.
using RandomName = std::array<char, 33>;
RandomName make_random_name() noexcept;

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t bytes = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }
};
// "\0hydrant-<name>-<number>".
AbstractAddress abstract_address(const RandomName& name, uint32_t number) noexcept;

}  // namespace hydrant
