// Fuzz target: cards that ranks of a job read at its start (segments, whereabouts, settings and shared states
// of barriers, the sockets between the ranks of a node), and the datagrams that come to these sockets.
#include "am/job/job.hpp"
#include "am/segment/neighbourhood.hpp"
#include "am/segment/segment_check.hpp"
#include "am/segment/segment_size.hpp"
#include "am/segment/segments.hpp"
#include "extended/barrier/barrier_rdma_memory.hpp"
#include "extended/barrier/barriers.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/exit/node_exit_channel.hpp"
#include "rdma/exit/process_exit.hpp"
#include "rdma/transport/guarded_memory.hpp"
#include "rdma/transport/shared_files.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/unit/extended/barrier/barrier_memory_transport.hpp"

#include <gasnet_config.h>
#include <optional>
#include <sys/socket.h>
#include <unistd.h>

namespace hydrant::fuzz {
namespace {

using testing::FakeBootstrap;
using Value = FakeBootstrap::Value;

constexpr size_t kSegmentBytes = 16 * GASNET_PAGESIZE;

FakeBootstrap* store = nullptr;
test::BarrierMemoryTransport* transport = nullptr;

// This process as rank 0 of a job of four, with barriers that wait for no other rank.
bool start() {
  // Warnings are results here.
  set_log_level(LogLevel::kError);
  Job& the_job = job();
  hydrant_job_info.rank = 0;
  hydrant_job_info.size = 1;
  the_job.endpoint.client = &the_job.client;
  hydrant_world.ep = &the_job.endpoint;
  auto alone = std::make_unique<FakeBootstrap>();
  store = alone.get();
  the_job.bootstrap = std::move(alone);
  if (choose_max_segment(1) != Status::kOk || start_barriers(0) != Status::kOk) return false;
  hydrant_job_info.size = 4;
  hydrant_world.size = 4;
  auto network = std::make_unique<test::BarrierMemoryTransport>();
  transport = network.get();
  (void)the_job.use(std::move(network));
  the_job.state = JobState::kWired;
  return true;
}

void reset_store(std::vector<Rank> node_ranks, uint32_t node_count) {
  store->entries.clear();
  store->fences = 0;
  store->max_fences = UINT64_MAX;
  store->stands = {};
  store->stands.size = 4;
  store->stands.node_count = node_count;
  store->stands.node_ranks = std::move(node_ranks);
  store->stands.leaders = {0, 1, 2, 3};
}

// A card of up to 639 bytes, which are zero beyond the input's end.
Value take_card(Input& input) {
  Value card(input.take<uint16_t>() % 640u);
  const std::span<const uint8_t> bytes = input.bytes(card.size());
  if (!bytes.empty()) std::memcpy(card.data(), bytes.data(), bytes.size());
  return card;
}
// The card that is stored, or nothing.
std::optional<Value> set_card(Input& input, Rank rank, const std::string& key) {
  if (input.byte() == 0) return std::nullopt;
  const Value card = take_card(input);
  store->set(rank, key, card);
  return card;
}

void check_refusal(Status status) {
  HYDRANT_FUZZ_CHECK(status != Status::kOk && last_error_text()[0] != '\0');
}

template <typename Part>
Part part_of(const Value& card, size_t at) {
  Part part;
  std::memcpy(&part, card.data() + at, sizeof part);
  return part;
}

// ---- segments ----

// A segment is none, or a range of addresses.
std::optional<SegmentAddress> expected_place(const std::optional<Value>& card) {
  if (!card.has_value() || card->size() != sizeof(SegmentAddress)) return std::nullopt;
  const SegmentAddress place{.addr = part_of<uint64_t>(*card, 0),
                             .size = part_of<uint64_t>(*card, 8)};
  if (place.size != 0 && !MemoryRange{place.addr, place.size}.valid()) return std::nullopt;
  return place;
}

void check_places(const std::vector<std::optional<Value>>& cards) {
  for (Rank rank = 1; rank < 4; ++rank) {
    const std::optional<SegmentAddress> expected = expected_place(cards[rank]);
    SegmentAddress place;
    const Status status = find_segment(rank, &place);
    HYDRANT_FUZZ_CHECK((status == Status::kOk) == expected.has_value());
    if (!expected.has_value()) {
      check_refusal(status);
      HYDRANT_FUZZ_CHECK(place.addr == 0 && place.size == 0);
      // No part of a refused card is kept.
      HYDRANT_FUZZ_CHECK(find_segment(rank, &place) == status && place.size == 0);
      continue;
    }
    HYDRANT_FUZZ_CHECK(place.addr == expected->addr && place.size == expected->size);
    HYDRANT_FUZZ_CHECK(mapped_address(rank, place) == nullptr);
    if (place.size == 0) continue;
    const MemoryRange whole{place.addr, place.size};
    for (const uintptr_t addr :
         {whole.addr, whole.last(), whole.addr - 1, whole.end(), uintptr_t{0}}) {
      for (const size_t bytes : {size_t{1}, size_t{4096}, whole.len, size_t{SIZE_MAX}}) {
        const MemoryRange target{addr, bytes};
        const bool is_inside = target.valid() && whole.covers(target);
        if (!target.valid()) continue;
        HYDRANT_FUZZ_CHECK((check_in_segment(rank, 0, addr, bytes) == Status::kOk) == is_inside);
        HYDRANT_FUZZ_CHECK(leaves_segment(rank, addr, bytes) ==
                           (!is_inside && whole.overlaps(target)));
        char text[kSegmentRelationText];
        (void)relate_to_segment(rank, addr, bytes, text, sizeof text);
        HYDRANT_FUZZ_CHECK(std::memchr(text, 0, sizeof text) != nullptr);
        HYDRANT_FUZZ_CHECK(!is_inside || text[0] == '\0');
      }
    }
  }
}

void forget_own_segment() {
  const auto addr = reinterpret_cast<uintptr_t>(job().segment.addr);
  (void)forget_shared_file({addr, kSegmentBytes});
  HYDRANT_FUZZ_CHECK(release_guarded(static_cast<std::byte*>(job().segment.addr)));
  job().endpoint.segment = nullptr;
  job().state = JobState::kWired;
}

// The number of the next attach, which its keys have.
uint32_t attaches = 0;
std::string key_of_attach(const char* name) {
  return std::string(name) + "." + std::to_string(attaches++);
}

// Rank 0 is alone on its node: it reads no card before it is asked for a segment.
void check_attach(Input& input) {
  reset_store({0}, 4);
  std::vector<std::optional<Value>> cards(1);
  const std::string key = key_of_attach("segment-place");
  for (Rank rank = 1; rank < 4; ++rank) cards.push_back(set_card(input, rank, key));
  HYDRANT_FUZZ_CHECK(attach_segments(kSegmentBytes, 0) == Status::kOk);
  check_places(cards);
  forget_own_segment();
}

// The wish of a neighbour. The store is gone after the first fence, before memory is shared with it.
void check_request(Input& input) {
  constexpr uint64_t kHeapOffset = 4096;
  reset_store({0, 1}, 3);
  const std::optional<Value> card = set_card(input, 1, key_of_attach("segment-wish"));
  store->max_fences = 1;
  const Status status = attach_segments(kSegmentBytes, kHeapOffset);
  check_refusal(status);
  if (!card.has_value()) {
    HYDRANT_FUZZ_CHECK(status == Status::kNotReady);
  } else if (card->size() == 16 && part_of<uint64_t>(*card, 8) != kHeapOffset) {
    HYDRANT_FUZZ_CHECK(status == Status::kBadArg);
  } else if (card->size() < 16) {
    HYDRANT_FUZZ_CHECK(status == Status::kBroken);
  } else if (card->size() == 16) {
    // A size that no slice of a file can have is refused before the file is made.
    const auto bytes = part_of<uint64_t>(*card, 0);
    const bool is_too_large = bytes > INT64_MAX - kSegmentBytes;
    const bool is_refused = bytes % GASNET_PAGESIZE != 0 || is_too_large;
    const std::string text = last_error_text();
    HYDRANT_FUZZ_CHECK(!is_refused || text.starts_with("rank 1 asks for a segment of " +
                                                       std::to_string(bytes) + " bytes"));
    HYDRANT_FUZZ_CHECK(bytes % GASNET_PAGESIZE != 0 || !is_too_large ||
                       status == Status::kResource);
  }
}

// ---- locations ----

// Three numbers: the first rank of the host, which is not above the card's own, a neighbourhood, and a count.
void check_locations(Input& input) {
  reset_store({0}, 4);
  for (Rank rank = 1; rank < 4; ++rank) {
    const std::optional<Value> card = set_card(input, rank, "whereabouts");
    const bool is_good = card.has_value() && card->size() == 12 && part_of<Rank>(*card, 0) <= rank;
    constexpr Rank kMark = 4711;
    RankLocation found{.host = kMark, .supernode = kMark, .host_ranks = kMark};
    const Status status = find_location(rank, &found);
    HYDRANT_FUZZ_CHECK((status == Status::kOk) == is_good);
    if (!is_good) check_refusal(status);
    HYDRANT_FUZZ_CHECK(found.host == (is_good ? part_of<Rank>(*card, 0) : kMark));
    HYDRANT_FUZZ_CHECK(found.supernode == (is_good ? part_of<Rank>(*card, 4) : kMark));
    HYDRANT_FUZZ_CHECK(found.host_ranks == (is_good ? part_of<uint32_t>(*card, 8) : kMark));
  }
}

// ---- settings of barriers ----

// This process as rank 1, which compares the settings of rank 0 with its own.
void check_choice(Input& input) {
  constexpr size_t kChoiceBytes = 24;
  reset_store({0}, 4);
  const std::optional<Value> card = set_card(input, 0, "barrier");
  hydrant_job_info.rank = 1;
  const Status status = verify_barrier_settings();
  hydrant_job_info.rank = 0;
  if (status == Status::kOk) {
    HYDRANT_FUZZ_CHECK(card.has_value() && card->size() == kChoiceBytes);
  } else {
    check_refusal(status);
  }
  if (card.has_value() && card->size() < kChoiceBytes)
    HYDRANT_FUZZ_CHECK(status == Status::kBroken);
}

// ---- shared states of barriers ----

// The answer of connect() to one card.
Status expected_status(const std::optional<Value>& card) {
  constexpr size_t kMaxBlob = 512;
  constexpr size_t kHead = 3 * sizeof(uint64_t);
  if (!card.has_value()) return Status::kNotReady;
  if (card->size() > kHead + kMaxBlob) return Status::kBadArg;
  if (card->size() != kHead + kMaxBlob) return Status::kBroken;
  const auto blob = part_of<uint32_t>(*card, 16);
  return blob > kMaxBlob ? Status::kBroken : blob == 0 ? Status::kBadArg : Status::kOk;
}

void check_target(BarrierRdmaMemory& rdma_memory, uint32_t round, const Value& card) {
  const auto blob_bytes = part_of<uint32_t>(card, 16);
  const Value& blob = transport->records.keys[round];
  HYDRANT_FUZZ_CHECK(blob.size() == blob_bytes &&
                     std::memcmp(blob.data(), card.data() + 24, blob.size()) == 0);
  for (uint32_t which = 0; which < BarrierRdmaMemory::kBarriers; ++which) {
    const uint32_t parity = which ^ round;
    HYDRANT_FUZZ_CHECK(rdma_memory.config(which).writer->post(parity, round, 7) == Status::kOk);
    const test::BarrierMemoryRecords::Word& word = transport->records.words.back();
    HYDRANT_FUZZ_CHECK(word.peer == 1u << round && word.key == round && word.word == 7);
    HYDRANT_FUZZ_CHECK(word.at == part_of<uint64_t>(card, 8 * which) +
                                      BarrierRdmaState::word_offset(parity, round));
  }
}

void check_boards(Input& input) {
  reset_store({0, 1, 2, 3}, 1);
  transport->records = {};
  // Four nodes: words go to the next one and to the one after that.
  const std::optional<Value> cards[] = {set_card(input, 1, "barrier-board"),
                                        set_card(input, 2, "barrier-board")};
  Status expected = Status::kOk;
  size_t imported = 0;
  for (const std::optional<Value>& card : cards) {
    if (expected == Status::kOk) expected = expected_status(card);
    if (expected == Status::kOk) ++imported;
  }
  {
    BarrierRdmaMemory rdma_memory(*store, *transport, [](Rank, const char*) noexcept {});
    HYDRANT_FUZZ_CHECK(rdma_memory.make() == Status::kOk);
    const Status status = rdma_memory.connect();
    HYDRANT_FUZZ_CHECK(status == expected && transport->records.keys.size() == imported);
    if (status != Status::kOk) check_refusal(status);
    for (uint32_t round = 0; status == Status::kOk && round < 2; ++round)
      check_target(rdma_memory, round, *cards[round]);
  }
  HYDRANT_FUZZ_CHECK(transport->records.pinned.empty() && transport->records.dropped == imported);
}

// ---- words between the ranks of a node ----

constexpr size_t kWordsCardBytes = 56;

// The card of a peer. With bit 1 it names this process: mutations never find one.
bool set_peer(Input& input, Rank rank) {
  const uint8_t bits = input.byte();
  if ((bits & 1) != 0) return false;
  Value card = take_card(input);
  if ((bits & 2) != 0) {
    const uint64_t start_time = process_start_time(getpid());
    const auto pid = static_cast<int32_t>(getpid());
    if (card.size() >= 8) std::memcpy(card.data(), &start_time, sizeof start_time);
    if (card.size() >= 12) std::memcpy(card.data() + 8, &pid, sizeof pid);
  }
  store->set(rank, "words", card);
  return card.size() == kWordsCardBytes && part_of<int32_t>(card, 8) == getpid() &&
         part_of<uint64_t>(card, 0) == process_start_time(getpid());
}

struct Datagram {
  uint32_t magic = 0;
  Rank sender = 0;
  Rank rank = 0;
  int32_t code = 0;
  uint32_t what = 0;
};
constexpr uint32_t kWordMagic = 0x48594e57;

// Sends a datagram to this rank's socket, whose name is on its card. True if it is a peer's message.
bool send_word(Input& input, const Value& own, Datagram* sent) {
  std::vector<uint8_t> bytes(input.byte() % 25u);
  const uint8_t bits = input.byte();
  const std::span<const uint8_t> given = input.bytes(bytes.size());
  std::copy(given.begin(), given.end(), bytes.begin());
  if ((bits & 1) != 0 && bytes.size() >= 4) std::memcpy(bytes.data(), &kWordMagic, 4);
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const AbstractAddress address = abstract_address(part_of<RandomName>(own, 16), 0);
  const ssize_t length = sendto(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                address.get(), address.bytes);
  close(fd);
  HYDRANT_FUZZ_CHECK(length == static_cast<ssize_t>(bytes.size()));
  if (bytes.size() != sizeof *sent) return false;
  std::memcpy(sent, bytes.data(), sizeof *sent);
  return sent->magic == kWordMagic && (sent->sender == 1 || sent->sender == 2) && sent->what <= 1;
}

void check_word(NodeExitChannel& words, const Datagram& sent, bool is_word) {
  Rank rank = kNoRank;
  int code = 0;
  const bool ends = is_word && sent.what == static_cast<uint32_t>(NoticeKind::kExit);
  HYDRANT_FUZZ_CHECK(words.read(&rank, &code) == ends);
  HYDRANT_FUZZ_CHECK(!ends || (rank == sent.rank && code == sent.code));
  for (NodeExitChannel::Peer& peer : words.peers()) {
    const bool is_said = is_word && !ends && peer.rank == sent.sender;
    HYDRANT_FUZZ_CHECK(peer.published_its_death == is_said);
    peer.published_its_death = false;
  }
}

void check_words(Input& input) {
  reset_store({0, 1, 2}, 2);
  const bool first = set_peer(input, 1);
  const bool second = set_peer(input, 2);
  std::unique_ptr<NodeExitChannel> words;
  const Status status = NodeExitChannel::open(*store, now_ns() + 1'000'000'000, &words);
  HYDRANT_FUZZ_CHECK((status == Status::kOk) == (first && second));
  HYDRANT_FUZZ_CHECK((status == Status::kOk) == (words != nullptr));
  if (words == nullptr) return check_refusal(status);
  HYDRANT_FUZZ_CHECK(words->peers().size() == 2);
  const Value own = store->entries.at({0, "words"});
  HYDRANT_FUZZ_CHECK(own.size() == kWordsCardBytes);
  for (uint32_t left = input.below(6); left > 0; --left) {
    Datagram sent;
    const bool is_word = send_word(input, own, &sent);
    check_word(*words, sent, is_word);
  }
  words->publish_exit(3, 7);  // to names without a socket
}

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  static const bool is_started = start();
  HYDRANT_FUZZ_CHECK(is_started);
  if (size > 4096) return 0;
  Input input(data, size);
  switch (input.byte() % 7) {
    case 0:
    case 2: check_attach(input); break;
    case 1: check_request(input); break;
    case 3: check_boards(input); break;
    case 5: check_locations(input); break;
    case 6: check_choice(input); break;
    default: check_words(input); break;
  }
  return 0;
}
