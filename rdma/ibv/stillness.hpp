// Whether an adapter still carries out what a queue pair was given. It gives up itself after its retries and
// says so; one that hangs, or whose link takes nothing and loses nothing either, says nothing at all.
#pragma once

#include <cstdint>

namespace hydrant::ibv {

// Counted in looks, not in time: a process that is stopped does not look.
class Stillness {
 public:
  // How many looks in a row have found something that will be told of, and nothing over since the last one.
  uint32_t looks(bool is_awaited, uint64_t over) noexcept {
    looks_ = is_awaited && over == over_ ? looks_ + 1 : 0;
    over_ = over;
    return looks_;
  }

 private:
  uint64_t over_ = 0;
  uint32_t looks_ = 0;
};

}  // namespace hydrant::ibv
