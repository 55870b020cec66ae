// Ranks of one process, each with a clock of its own, and the wires between them.
//
// One thread runs all ranks, a piece at a time. A rank's clock advances by the real time that its pieces take
// and jumps to the arrival of what it waits for: nothing sleeps or spins. Ranks that work at the same time do
// so on their clocks as they would on machines of their own, whatever the cores of this one do meanwhile: a
// piece that is long is asked how much of it the thread did not run.
//
// A message arrives `delay` after it was sent. The bytes of a put arrive `delay` after it was posted and are
// copied by the adapter of the target, one put after the other from each initiator; the initiator hears of it
// `delay` later. The copy takes no rank's time; the wire is taken for as long as its rate says, or for the
// copy's real time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

namespace hydrant::bench {

class WireWorld {
 public:
  // What the ranks do with what arrives. Called in the rank's time.
  class Ranks {
   public:
    virtual ~Ranks() = default;
    virtual void on_message(uint32_t rank, uint32_t from, uint32_t kind, const std::byte* bytes,
                            size_t len) noexcept = 0;
    // At the initiator, of a put.
    virtual void on_put_done(void* context) noexcept = 0;
    // At the target, of a put that was to be announced there.
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
  static constexpr size_t kLongestMessage = 4096;

  WireWorld(Ranks& ranks, uint32_t count);
  WireWorld(const WireWorld&) = delete;
  WireWorld& operator=(const WireWorld&) = delete;

  void set_delay(uint64_t ns) { delay_ = ns; }
  // Bytes per ns; 0: as quickly as the copy.
  void set_rate(double rate) { rate_ = rate; }
  uint64_t clock(uint32_t rank) const { return clocks_[rank]; }
  // All clocks to the latest one; nothing is under way.
  uint64_t align_clocks();
  // A rank that waits for real time to pass.
  void add(uint32_t rank, uint64_t ns) { clocks_[rank] += ns; }

  // A piece of a rank's time.
  void enter(uint32_t rank);
  void leave();
  uint32_t running() const { return running_; }

  // By the rank that runs.
  void send(uint32_t to, uint32_t kind, const void* bytes, size_t len);
  void post(uint32_t to, const Put& put);

  // When the next thing arrives; kNever if nothing is under way.
  uint64_t next_arrival() const { return events_.empty() ? kNever : events_.top().time; }
  // Lets it arrive. Answers at which rank.
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
    std::byte bytes[kLongestMessage];
  };
  struct Event {
    uint64_t time, number;
    Parcel* parcel;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  // Of the piece that runs.
  uint64_t spent();
  // Of what passed since the last call the thread did not run for so long.
  uint64_t take_stolen(uint64_t now);
  Parcel* take_parcel();
  void schedule(uint64_t time, Parcel* parcel);
  void carry(uint64_t time, Parcel* parcel);

  Ranks& ranks_;
  uint64_t delay_ = 0;
  double rate_ = 0.0;
  uint32_t running_ = 0;
  uint64_t mark_ = 0;
  uint64_t looked_at_ = 0, worked_at_ = 0;  // of take_stolen()
  uint64_t messages_ = 0, puts_ = 0, numbers_ = 0;
  std::vector<uint64_t> clocks_;
  std::vector<uint64_t> wire_free_;  // from * ranks + to: when its last copy has ended
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Parcel*> free_;
  std::vector<std::vector<Parcel>> parcels_;
};

}  // namespace hydrant::bench
