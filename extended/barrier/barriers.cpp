// Chooses the job's barrier algorithm, creates the barriers, and connects their messages to Active
// Messages. Called at job start (start.cpp).
#include "extended/barrier/barriers.hpp"

#include "am/exit/exit.hpp"
#include "am/handler/token.hpp"
#include "am/job/job.hpp"
#include "am/message/send.hpp"
#include "extended/barrier/barrier_messages.hpp"
#include "extended/barrier/barrier_rdma.hpp"
#include "extended/barrier/barrier_rdma_memory.hpp"
#include "extended/message/handlers.hpp"
#include "extended/message/send_failures.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/config/job_knobs.hpp"

#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <unistd.h>

namespace hydrant {

constinit Barriers* the_barriers = nullptr;

namespace {

enum class Kind : uint32_t { kShm, kDissemination, kCentral, kRdma };
constexpr const char* kKindNames[] = {"SHM", "AMDISSEM", "AMCENTRAL", "RDMADISSEM"};
constexpr uint32_t kWhichBit = uint32_t{1} << 31;

// By index of the barrier; null if the engine needs no messages.
constinit MessageBarrier* receivers[2] = {};

// ---- messages ----

class MessageSender final : public BarrierMessageSender {
 public:
  explicit constexpr MessageSender(uint32_t which) noexcept : which_(which) {}
  bool send(Rank peer, const BarrierMessage& message) noexcept override {
    const int32_t args[2] = {static_cast<int32_t>(message.bits() | (which_ != 0 ? kWhichBit : 0)),
                             static_cast<int32_t>(message.name.id)};
    const OutgoingMessage sending = {
        .peer = peer,
        .handler = message.with_id ? kNamedBarrierHandler : kBarrierHandler,
        .nargs = message.with_id ? 2u : 1u,
        .args = args,
        .immediate = true};
    // A failure because the job is ending is harmless: on_peer_failed() ignores it.
    const Status status = hydrant::send(sending);
    if (status != Status::kOk) [[unlikely]] {
      failures_.note(peer, status, now_ns());
      return false;
    }
    failures_.note_success();
    return true;
  }

 private:
  uint32_t which_;
  SendFailures failures_{on_peer_failed};
};
constinit MessageSender senders[2] = {MessageSender(0), MessageSender(1)};

void receive(gex_Token_t token, int32_t first, uint32_t id) noexcept {
  const auto bits = static_cast<uint32_t>(first);
  MessageBarrier* receiver = receivers[(bits & kWhichBit) != 0 ? 1 : 0];
  if (receiver == nullptr) {
    fatal(
        "rank %u sends barrier messages, but this rank uses %s: set GASNET_BARRIER to the same "
        "value "
        "on all ranks",
        token->from, the_barriers->named.engine().name());
  }
  if (!receiver->receive(token->from, BarrierMessage::from(bits & ~kWhichBit, id))) {
    fatal("rank %u sent an unexpected message of the barrier %s (%#x)", token->from,
          receiver->name(), bits);
  }
}
void on_barrier(gex_Token_t token, int32_t bits) { receive(token, bits, 0); }
void on_named_barrier(gex_Token_t token, int32_t bits, int32_t id) {
  receive(token, bits, static_cast<uint32_t>(id));
}

// Null unless the algorithm is RDMADISSEM.
constinit BarrierRdmaMemory* rdma_memory = nullptr;

// ---- choice ----

bool is(std::string_view chosen, std::string_view name) noexcept { return chosen == name; }

Kind kind_called(std::string_view chosen) noexcept {
  if (is(chosen, "auto")) chosen = HYDRANT_BARRIER_DEFAULT;
  if (is(chosen, "AMCENTRAL")) return Kind::kCentral;
  if (is(chosen, "AMDISSEM") || is(chosen, "DISSEM")) return Kind::kDissemination;
  if (is(chosen, "RDMADISSEM")) return Kind::kRdma;
  return Kind::kShm;
}

// Returns an empty list if some rank shares no memory with this one.
std::vector<BarrierLines> lines_of_all(uint32_t which) {
  const Job& the_job = job();
  std::vector<BarrierLines> lines;
  if (the_job.transport == nullptr) return lines;
  for (Rank rank = 0; rank < the_job.size(); ++rank) {
    lines.push_back(barrier_lines(*the_job.memory, rank, which));
    if (lines.back().of_parity[0] == nullptr) return {};
  }
  return lines;
}

// The default for ranks that share no memory. Not RDMADISSEM over an injected network, because it pins
// memory, which tests of such networks measure.
Kind choose_kind() {
  const Kind wanted = kind_called(knob_choice(JobKnob::kBarrier));
  const bool is_shared = job().size() == 1 || !lines_of_all(0).empty();
  if (wanted != Kind::kRdma && (wanted != Kind::kShm || is_shared)) return wanted;
  const bool is_named = wanted == Kind::kRdma;
  if (!is_named && *knob_text(JobKnob::kInject) != '\0') return Kind::kDissemination;
  const std::string obstacle =
      is_shared ? "all ranks share memory"
                : BarrierRdmaMemory::obstacle(*job().bootstrap, job().transport.get());
  if (obstacle.empty()) return Kind::kRdma;
  log_info("barriers: AMDISSEM in place of RDMADISSEM: %s", obstacle.c_str());
  return Kind::kDissemination;
}

// The same on all ranks of the node, because it counts online processors, not allowed ones.
uint32_t radix_of_job() noexcept {
  const Rank size = job().size();
  const auto chosen = static_cast<uint32_t>(knob_number(JobKnob::kBarrierRadix));
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const bool crowded = processors > 0 && static_cast<long>(size) > processors;
  return limit_barrier_radix(size, chosen != 0 ? chosen : choose_barrier_radix(size, crowded));
}

std::unique_ptr<BarrierEngine> make_engine(Kind kind, uint32_t which) {
  const Job& the_job = job();
  const Rank rank = the_job.rank();
  const Rank size = the_job.size();
  if (kind == Kind::kShm) {
    return std::make_unique<ShmBarrier>(ShmBarrier::Config{.rank = rank,
                                                           .size = size,
                                                           .radix = radix_of_job(),
                                                           .lines = lines_of_all(which),
                                                           .sleeping = the_job.sleeping});
  }
  if (kind == Kind::kRdma) return std::make_unique<RdmaBarrier>(rdma_memory->config(which));
  std::unique_ptr<MessageBarrier> engine;
  if (kind == Kind::kDissemination) {
    engine = std::make_unique<DisseminationBarrier>(rank, size, senders[which]);
  } else {
    engine = std::make_unique<CentralBarrier>(rank, size, senders[which]);
  }
  receivers[which] = engine.get();
  return engine;
}

std::unique_ptr<TeamBarrier> make_team_barrier(Kind kind) {
  Job& the_job = job();
  if (kind == Kind::kShm && radix_of_job() >= the_job.size()) {
    return std::make_unique<CountedBarrier>(the_job.rank(), lines_of_all(1), the_job.sleeping,
                                            !the_job.single_threaded);
  }
  return std::make_unique<QueuedBarrier>(make_engine(kind, 1), the_job.progress);
}

// ---- agreement ----

// Settings that must be equal on all ranks; rank 0 publishes its own.
struct Choice {
  Kind kind = Kind::kShm;
  uint32_t radix = 0;
  uint32_t strict = 0;
  uint32_t nodes = 0;        // RDMADISSEM: number of nodes
  uint32_t collectives = 0;  // the choices of HYDRANT_COLL_*
  uint32_t hosts = 0;        // that the launcher reports
};
constexpr const char* kChoiceKey = "barrier";
constexpr uint64_t kChoiceWaitNs = 30'000'000'000;
constinit Choice my_choice;

}  // namespace

// Not performance-critical. Running out of memory in a constructor ends the process, as elsewhere
// during start-up.
Status start_barriers(uint32_t collective_choices) noexcept {
  Job& the_job = job();
  constexpr gex_Flags_t kShortRequest = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST;
  the_job.handlers.add_internal(kBarrierHandler, reinterpret_cast<gex_AM_Fn_t>(on_barrier), 1,
                                kShortRequest, "barrier");
  the_job.handlers.add_internal(kNamedBarrierHandler,
                                reinterpret_cast<gex_AM_Fn_t>(on_named_barrier), 2, kShortRequest,
                                "named barrier");
  const Kind kind = choose_kind();
  const bool strict = knob_number(JobKnob::kBarrierStrict) != 0;
  my_choice = {.kind = kind,
               .radix = kind == Kind::kShm ? radix_of_job() : 0,
               .strict = strict ? 1u : 0u,
               .nodes = kind == Kind::kRdma ? BarrierRdmaMemory::nodes(the_job.topology()) : 0,
               .collectives = collective_choices,
               .hosts = static_cast<uint32_t>(the_job.topology().leaders.size())};
  // Published before the first collective step, so that a rank with different settings detects it.
  if (the_job.rank() == 0 && the_job.size() > 1) {
    const Status put = the_job.bootstrap->put(kChoiceKey, std::as_bytes(std::span(&my_choice, 1)));
    if (put != Status::kOk) return put;
  }
  if (kind == Kind::kRdma) {
    rdma_memory = new (std::nothrow)
        BarrierRdmaMemory(*the_job.bootstrap, *the_job.transport, on_peer_failed);
    if (rdma_memory == nullptr) return fail(Status::kResource, "no memory for barriers");
    if (const Status made = rdma_memory->make(); made != Status::kOk) return made;
  }
  the_barriers = new (std::nothrow)
      Barriers{.named = NamedBarrier(make_engine(kind, 0), the_job.progress, strict),
               .team = make_team_barrier(kind)};
  if (the_barriers == nullptr) return fail(Status::kResource, "no memory for barriers");
  log_info("barriers: %s among %u ranks%s", the_barriers->named.engine().name(), the_job.size(),
           strict ? "" : ", not strict");
  return Status::kOk;
}

namespace {

// Ranks with different settings would wait for each other for ever.
Status agree_with_first() noexcept {
  const Job& the_job = job();
  if (the_job.rank() == 0) return Status::kOk;
  Choice theirs;
  size_t bytes = 0;
  const Status got =
      the_job.bootstrap->get(0, kChoiceKey, std::as_writable_bytes(std::span(&theirs, 1)), &bytes,
                             now_ns() + kChoiceWaitNs);
  if (got != Status::kOk)
    return add_context(
        got,
        "reading the barrier settings of rank 0 (HYDRANT_TRANSPORT has to be the same on all "
        "ranks)");
  if (bytes != sizeof theirs)
    return fail(Status::kBroken,
                "the entry '%s' of rank 0 in the job's store has an unexpected size of %zu bytes",
                kChoiceKey, bytes);
  if (std::memcmp(&theirs, &my_choice, sizeof theirs) == 0) return Status::kOk;
  if (theirs.collectives != my_choice.collectives)
    return fail(
        Status::kBadArg,
        "HYDRANT_COLL_NODE, _NET, _BROADCAST, _REDUCE_ALL or _GATHER_ALL of rank %u differs "
        "from that of rank 0: they have to be the same on all ranks",
        the_job.rank());
  if (theirs.hosts != my_choice.hosts)
    return fail(
        Status::kBadArg,
        "the launcher reports %u hosts to rank 0 and %u to rank %u: check its list of hosts",
        theirs.hosts, my_choice.hosts, the_job.rank());
  const char* const settings = theirs.strict != my_choice.strict ? "HYDRANT_BARRIER_STRICT has"
                               : theirs.kind != my_choice.kind
                                   ? "GASNET_BARRIER, HYDRANT_TRANSPORT and HYDRANT_IBV_ORDER have"
                               : theirs.radix != my_choice.radix ? "HYDRANT_BARRIER_RADIX has"
                                                                 : "HYDRANT_TRANSPORT has";
  return fail(Status::kBadArg,
              "the barrier of rank 0 is %s (radix %u, strict %u, %u nodes), and that of rank %u is "
              "%s (%u, %u, %u): %s to be the same on all ranks",
              theirs.kind <= Kind::kRdma ? kKindNames[static_cast<uint32_t>(theirs.kind)] : "?",
              theirs.radix, theirs.strict, theirs.nodes, the_job.rank(),
              kKindNames[static_cast<uint32_t>(my_choice.kind)], my_choice.radix, my_choice.strict,
              my_choice.nodes, settings);
}

}  // namespace

Status verify_barrier_settings() noexcept {
  const Status agreed = agree_with_first();
  return agreed == Status::kOk && rdma_memory != nullptr ? rdma_memory->connect() : agreed;
}

}  // namespace hydrant
