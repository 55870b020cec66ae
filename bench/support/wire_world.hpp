// Simulated ranks in one process, each with its own clock, and the wires between them.
//
// One thread runs all ranks, a piece of work at a time. A rank's clock advances by the real time of its
// pieces and jumps to the arrival of the message that it waits for, so no rank sleeps or spins. Ranks that
// work at the same time do so on their own clocks, like separate machines, whatever the load of this one: of
// a long piece, the time in which the thread did not run is subtracted.
//
// A message arrives `delay` after it was sent. The bytes of a put arrive `delay` after it was posted. The
// target's adapter copies them, one put after the other from each initiator, and the initiator sees the
// completion `delay` later. The copy uses no rank's time. The wire is busy for as long as its rate requires,
// or for the copy's real time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

namespace hydrant::bench {

class RemoteCluster {
 public:
  // Callbacks of the ranks for arrivals, called in the rank's time.
  class Ranks {
   public:
    virtual ~Ranks() = default;
    virtual void on_message(uint32_t rank, uint32_t from, uint32_t kind, const std::byte* bytes,
                            size_t len) noexcept = 0;
    // Completion of a put, at the initiator.
    virtual void on_put_done(void* context) noexcept = 0;
    // Arrival of an announced put, at the target.
    virtual void on_put_landed(uint32_t rank, uint32_t from, void* context) noexcept = 0;
  };
  struct Put {
    std::byte* to;
    const std::byte* from;
    size_t len;
    void* context;
    bool announced;  // to the target instead of to the initiator
  };
  static constexpr uint64_t kNever = UINT64_MAX;
  static constexpr size_t kMaxMessage = 4096;

  RemoteCluster(Ranks& ranks, uint32_t count);
  RemoteCluster(const RemoteCluster&) = delete;
  RemoteCluster& operator=(const RemoteCluster&) = delete;

  void set_delay(uint64_t ns) { delay_ = ns; }
  // Bytes per ns; 0: the speed of the copy.
  void set_rate(double rate) { rate_ = rate; }
  uint64_t clock(uint32_t rank) const { return clocks_[rank]; }
  // Sets all clocks to the latest one. Requires: no message in flight.
  uint64_t align_clocks();
  // Advances the clock of a rank that waits for time to pass.
  void add(uint32_t rank, uint64_t ns) { clocks_[rank] += ns; }

  // enter() starts a piece of a rank's work, leave() ends it.
  void enter(uint32_t rank);
  void leave();
  uint32_t running() const { return running_; }

  // Called by the running rank.
  void send(uint32_t to, uint32_t kind, const void* bytes, size_t len);
  void post(uint32_t to, const Put& put);

  // Time of the next arrival; kNever if no message is in flight.
  uint64_t next_arrival() const { return events_.empty() ? kNever : events_.top().time; }
  // Delivers the next arrival; returns its rank.
  uint32_t step();

  uint64_t messages() const { return messages_; }
  uint64_t puts() const { return puts_; }

 private:
  enum class What : uint8_t { kMessage, kPutArrives, kPutDone, kPutLanded };
  struct Parcel {
    What what;
    uint32_t kind;
    uint32_t from, to;
    Put put;
    size_t len;
    std::byte bytes[kMaxMessage];
  };
  struct Event {
    uint64_t time, number;
    Parcel* parcel;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  // Time of the current piece so far.
  uint64_t spent();
  // Time since the last call in which the thread did not run.
  uint64_t take_stolen(uint64_t now);
  Parcel* take_parcel();
  void schedule(uint64_t time, Parcel* parcel);
  void carry(uint64_t time, Parcel* parcel);

  Ranks& ranks_;
  uint64_t delay_ = 0;
  double rate_ = 0.0;
  uint32_t running_ = 0;
  uint64_t mark_ = 0;
  uint64_t looked_at_ = 0, worked_at_ = 0;  // for take_stolen()
  uint64_t messages_ = 0, puts_ = 0, numbers_ = 0;
  std::vector<uint64_t> clocks_;
  std::vector<uint64_t> wire_free_;  // index from * ranks + to: end of the wire's last copy
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Parcel*> free_;
  std::vector<std::vector<Parcel>> parcels_;
};

}  // namespace hydrant::bench
