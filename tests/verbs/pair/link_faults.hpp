// Faults of the link to the other machine, by the kernel's queueing discipline netem: of what leaves by eth0.
#pragma once

#include <cstdint>
#include <string>

namespace hydrant::testing {

class LinkFaults {
 public:
  LinkFaults() = default;
  ~LinkFaults();
  LinkFaults(const LinkFaults&) = delete;
  LinkFaults& operator=(const LinkFaults&) = delete;

  // `what` as tc(8) has it: "loss 3%". In its place from now on.
  void set(const std::string& what);
  // Cuts the link for at least so long, while this process goes on; wait_for_cut() says for how long.
  void cut_for_ms(unsigned ms);
  // Until the cut is over: how long it may have been, in milliseconds.
  unsigned wait_for_cut();
  // Packets that netem has dropped.
  uint64_t dropped() const;
  void remove();

 private:
  bool is_set_ = false;
};

}  // namespace hydrant::testing
