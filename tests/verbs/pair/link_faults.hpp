// Faults of the link to the other machine, by the kernel's queueing discipline netem on packets that leave by
// eth0.
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

  // Replaces the current fault by `what`, in the syntax of tc(8): "loss 3%".
  void set(const std::string& what);
  // Cuts the link from now on for at least this time; wait_for_cut() answers the actual time.
  void cut_for_ms(unsigned ms);
  // Waits until the cut is over; answers its longest possible duration in milliseconds.
  unsigned wait_for_cut();
  // Packets that netem has dropped.
  uint64_t dropped() const;
  void remove();

 private:
  bool is_set_ = false;
};

}  // namespace hydrant::testing
