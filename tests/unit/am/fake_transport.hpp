// A fake transport that records messages, returns "not now" as often as a test wants, and may lack any
// ability of a transport. It delivers messages as a receiver would get them.
#pragma once

#include "am/handler/deliver.hpp"
#include "rdma/transport/transport.hpp"

#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <vector>

namespace hydrant::test {

struct SentMessage {
  Rank peer = 0;
  Lane lane = Lane::kRequest;
  uint32_t tag = 0;
  std::vector<std::byte> head;     // with the reserved length
  std::vector<std::byte> payload;  // contents of the cell
  bool has_cell = false;
};

class FakeTransport : public Transport,
                      public MessageChannel,
                      public MemoryAccess,
                      public Sleeping {
 public:
  static constexpr uint32_t kInline = 240;
  static constexpr uint32_t kInlineWithoutCells = kMaxHeadBytes + kMinPayloadBytes;
  static constexpr uint32_t kCell = 4096;

  // ---- settings of a test ----
  uint32_t refusals = 0;       // number of reserve() and take_cell() calls that return kNotReady
  uint32_t lets_through = 0;   // ... after this many successful ones
  uint32_t cell_refusals = 0;  // and this many more take_cell() calls
  bool has_cells = true;       // takes effect in Job::use()
  bool out_of_memory = false;  // reserve() and take_cell() return kResource
  bool can_write = false;      // write() reaches the peer's memory
  Status write_fails = Status::kOk;
  bool maps = false;       // mapped() returns the peer's own address
  uint32_t abilities = 0;  // capabilities()
  std::set<Rank> disconnected;
  std::deque<SentMessage> arriving;  // messages that poll() will deliver

  // ---- results ----
  std::vector<SentMessage> sent;
  uint32_t polls = 0;
  uint32_t reply_polls = 0;
  uint32_t cells_out = 0;
  uint32_t cells_dropped = 0;
  size_t written_bytes = 0;
  std::vector<void*> segments;  // local addresses of add_segment()

  const char* name() const noexcept override { return "fake"; }
  MessageChannel& messages(Rank) noexcept override { return *this; }
  uint32_t inline_bytes() const noexcept override {
    return has_cells ? kInline : kInlineWithoutCells;
  }
  uint32_t cell_bytes() const noexcept override { return has_cells ? kCell : 0; }

  Status reserve(Rank peer, Lane lane, uint32_t bytes, Outgoing* room) noexcept override {
    if (disconnected.count(peer) != 0) return fail(Status::kBroken, "rank %u is gone", peer);
    if (bytes > inline_bytes()) return fail(Status::kBadArg, "%u bytes", bytes);
    if (out_of_memory) return fail(Status::kResource, "no memory for a ring");
    if (lets_through > 0) {
      --lets_through;
    } else if (refusals > 0) {
      --refusals;
      return Status::kNotReady;
    }
    reserved_ = SentMessage();
    reserved_.peer = peer;
    reserved_.lane = lane;
    reserved_.head.resize(bytes);
    room->head = head_;
    return Status::kOk;
  }
  void commit(Outgoing&, uint32_t tag) noexcept override {
    reserved_.tag = tag;
    if (!reserved_.head.empty()) std::memcpy(reserved_.head.data(), head_, reserved_.head.size());
    sent.push_back(reserved_);
  }
  void commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                        uint32_t bytes) noexcept override {
    reserved_.has_cell = true;
    reserved_.payload.assign(cell.data, cell.data + bytes);
    --cells_out;
    delete[] cell.data;
    commit(room, tag);
  }
  Status take_cell(Rank, Lane, uint32_t bytes, Cell* cell) noexcept override {
    if (bytes > kCell) return fail(Status::kBadArg, "%u bytes", bytes);
    if (out_of_memory) return fail(Status::kResource, "no memory for a cell");
    uint32_t& left = refusals > 0 ? refusals : cell_refusals;
    if (lets_through > 0) {
      --lets_through;
    } else if (left > 0) {
      --left;
      return Status::kNotReady;
    }
    ++cells_out;
    *cell = {.data = new std::byte[kCell], .bytes = kCell, .index = 0};
    return Status::kOk;
  }
  void drop_cell(Rank, Lane, const Cell& cell) noexcept override {
    --cells_out;
    ++cells_dropped;
    delete[] cell.data;
  }

  MemoryAccess& memory() noexcept override { return *this; }
  Sleeping& sleeping() noexcept override { return *this; }
  Status add_segment(Rank, uintptr_t, size_t, void* local) noexcept override {
    segments.push_back(local);
    return Status::kOk;
  }
  uint32_t capabilities() const noexcept override { return abilities; }
  void* mapped(Rank, uintptr_t addr, size_t) const noexcept override {
    return maps ? reinterpret_cast<void*>(addr) : nullptr;
  }
  Status write(Rank, uintptr_t dest, const void* source, size_t bytes) noexcept override {
    if (write_fails != Status::kOk) return fail(write_fails, "the write failed");
    if (!can_write) return Status::kUnsupported;
    std::memcpy(reinterpret_cast<void*>(dest), source, bytes);
    written_bytes += bytes;
    return Status::kOk;
  }

  uint32_t poll(Receiver& receiver, uint32_t, bool replies_only) noexcept override {
    ++(replies_only ? reply_polls : polls);
    if (arriving.empty() || (replies_only && arriving.front().lane == Lane::kRequest)) return 0;
    const SentMessage message = arriving.front();
    arriving.pop_front();
    deliver(receiver, message);
    return 1;
  }
  void sleep(uint64_t, const WakeCondition&) noexcept override {}
  void disconnect(Rank peer) noexcept override { disconnected.insert(peer); }

  // Delivers head and payload in blocks of their exact sizes, so that AddressSanitizer detects reads
  // beyond their ends. Heads lie at 8 modulo 16, as transports place them.
  static void deliver(Receiver& receiver, const SentMessage& message, Rank from = 1) noexcept {
    const size_t head_bytes = message.head.size();
    std::unique_ptr<std::byte[]> head(new std::byte[head_bytes + 8]);
    if (head_bytes != 0) std::memcpy(head.get() + 8, message.head.data(), head_bytes);
    std::unique_ptr<std::byte[]> payload(new std::byte[message.payload.size()]);
    if (!message.payload.empty())
      std::memcpy(payload.get(), message.payload.data(), message.payload.size());
    receiver.deliver({.from = from,
                      .lane = message.lane,
                      .tag = message.tag,
                      .head = head.get() + 8,
                      .payload = message.has_cell ? payload.get() : nullptr,
                      .head_room = static_cast<uint32_t>(head_bytes),
                      .payload_room = static_cast<uint32_t>(message.payload.size())});
  }

 private:
  SentMessage reserved_;
  alignas(16) std::byte room_[8 + kInlineWithoutCells] = {};
  std::byte* head_ = room_ + 8;
};

}  // namespace hydrant::test
