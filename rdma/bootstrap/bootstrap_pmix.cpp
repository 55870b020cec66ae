// Implements Bootstrap over PMIx: loads libpmix, reads the job's layout, and puts and gets entries.
// open_bootstrap.cpp opens it; bootstrap_pmix_exits.cpp carries exit notifications between nodes.
#include "rdma/bootstrap/bootstrap_pmix.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/bootstrap_pmi2_text.hpp"
#include "rdma/bootstrap/bootstrap_pmix_exits.hpp"
#include "rdma/bootstrap/bootstrap_singleton.hpp"
#include "rdma/bootstrap/timed_caller.hpp"

#include <pmix.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>

namespace hydrant {
namespace {

constexpr char kLibrary[] = "libpmix.so.2";
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kPatienceNs = 30 * kSecond;

struct Library {
  decltype(&PMIx_Init) init;
  decltype(&PMIx_Finalize) finalize;
  decltype(&PMIx_Put) put;
  decltype(&PMIx_Commit) commit;
  decltype(&PMIx_Fence) fence;
  decltype(&PMIx_Get) get;
  decltype(&PMIx_Error_string) error_string;
  PmixExits::Functions exits;
};

template <class Function>
bool find(void* library, const char* name, Function* function) noexcept {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

Status load(Library* library) noexcept {
  void* handle = uncancelled::call(dlopen, kLibrary,
                                   RTLD_NOW | RTLD_GLOBAL);  // global: its plugins need its symbols
  if (handle == nullptr) {
    return fail(Status::kUnsupported,
                "%s cannot be loaded (%s); on Debian: apt-get install libpmix2", kLibrary,
                dlerror());
  }
  const bool all =
      find(handle, "PMIx_Init", &library->init) &&
      find(handle, "PMIx_Finalize", &library->finalize) &&
      find(handle, "PMIx_Put", &library->put) && find(handle, "PMIx_Commit", &library->commit) &&
      find(handle, "PMIx_Fence", &library->fence) && find(handle, "PMIx_Get", &library->get) &&
      find(handle, "PMIx_Error_string", &library->error_string) &&
      find(handle, "PMIx_Publish_nb", &library->exits.publish) &&
      find(handle, "PMIx_Lookup_nb", &library->exits.lookup);
  if (!all) return fail(Status::kUnsupported, "%s lacks functions of PMIx", kLibrary);
  return Status::kOk;
}

// Frees a value that the library has allocated, for the types queried here. PMIx's own destructor is a macro
// over functions that differ between versions.
void free_value(pmix_value_t* value) noexcept {
  if (value == nullptr) return;
  if (value->type == PMIX_STRING) std::free(value->data.string);
  if (value->type == PMIX_BYTE_OBJECT) std::free(value->data.bo.bytes);
  std::free(value);
}

// The text of a value; null if it has another type.
const char* text_of(const pmix_value_t* value) noexcept {
  return value != nullptr && value->type == PMIX_STRING ? value->data.string : nullptr;
}

// Parses "0,2,3": numbers separated by single commas. False for any other text.
bool read_ranks(std::string_view text, std::vector<Rank>* ranks) {
  for (const char *at = text.data(), *const end = at + text.size();; ++at) {
    Rank rank = 0;
    const auto [stopped, error] = std::from_chars(at, end, rank);
    if (error != std::errc{}) return false;
    ranks->push_back(rank);
    at = stopped;
    if (at == end) return true;
    if (*at != ',') return false;
  }
}

class PmixBootstrap final : public Bootstrap {
 public:
  Status open(uint64_t deadline_ns) noexcept;

  const char* name() const noexcept override { return "pmix"; }
  const JobTopology& topology() const noexcept override { return topology_; }
  Status put(std::string_view key, std::span<const std::byte> entry) noexcept override;
  Status fence(uint64_t deadline_ns) noexcept override {
    return fence_and_poll(deadline_ns, nullptr);
  }
  Status fence_and_poll(uint64_t deadline_ns, PollFn poll) noexcept override;
  Status get(Rank rank, std::string_view key, std::span<std::byte> entry, size_t* bytes,
             uint64_t deadline_ns) noexcept override;
  int forwarded_exit_fd() const noexcept override { return exits_ != nullptr ? exits_->fd() : -1; }
  Event read_event() noexcept override;
  void forward_exit(int code, bool is_first, uint64_t deadline_ns) noexcept override;
  void leave(int code, ExitReason how, uint64_t deadline_ns) noexcept override;

 private:
  // The results of one call, which may outlast its deadline.
  struct Answer {
    ~Answer() { free_value(value); }
    pmix_status_t error = PMIX_SUCCESS;
    pmix_proc_t process{};
    pmix_value_t* value = nullptr;
    std::vector<uint32_t> nodes;
  };
  template <class Call>
  Status ask(const char* what, uint64_t deadline_ns, std::shared_ptr<Answer>* answer, Call call,
             PollFn poll = nullptr) noexcept;
  // Requests a value of `rank`; *answer holds it.
  Status get_value(pmix_rank_t rank, const char* key, uint64_t deadline_ns,
                   std::shared_ptr<Answer>* answer) noexcept;
  Status get_number(const char* key, uint64_t deadline_ns, uint32_t* number) noexcept;
  Status read_topology(uint64_t deadline_ns) noexcept;
  Status read_node_ranks(uint64_t deadline_ns) noexcept;
  Status read_nodes(uint64_t deadline_ns) noexcept;
  Status read_leaders(uint64_t deadline_ns) noexcept;
  Status open_exits(uint64_t deadline_ns) noexcept;

  Library library_{};
  pmix_proc_t self_{};
  JobTopology topology_;
  TimedCaller caller_;
  PmixExits* exits_ = nullptr;  // null on one node
};

template <class Call>
Status PmixBootstrap::ask(const char* what, uint64_t deadline_ns, std::shared_ptr<Answer>* answer,
                          Call call, PollFn poll) noexcept {
  answer->reset();
  auto made = std::make_shared<Answer>();
  if (!caller_.call([made, call] { made->error = call(*made); }, deadline_ns, poll)) {
    return fail(
        Status::kBroken,
        "%s did not end in time: the launcher (PMIx) does not answer, or not all "
        "of %u ranks arrived; the launcher does not say which are missing. Look at its output",
        what, topology_.size);
  }
  *answer = std::move(made);
  return Status::kOk;
}

Status PmixBootstrap::open(uint64_t deadline_ns) noexcept {
  Status status = load(&library_);
  if (status != Status::kOk) return status;
  if (!caller_.start("hydrant-pmix")) return fail(Status::kResource, "no thread for PMIx");
  std::shared_ptr<Answer> got;
  status = ask("PMIx_Init", deadline_ns, &got, [library = library_](Answer& answer) {
    return library.init(&answer.process, nullptr, 0);
  });
  if (got == nullptr) return status;
  if (got->error != PMIX_SUCCESS) {
    return fail(Status::kBroken, "PMIx_Init: %s", library_.error_string(got->error));
  }
  self_ = got->process;
  status = read_topology(deadline_ns);
  if (status == Status::kOk && topology_.node_count > 1) status = open_exits(deadline_ns);
  // A process must finalize after PMIx_Init, or the launcher takes its exit for a crash.
  if (status != Status::kOk) leave(1, ExitReason::kExit, deadline_ns);
  return status;
}

Status PmixBootstrap::get_value(pmix_rank_t rank, const char* key, uint64_t deadline_ns,
                                std::shared_ptr<Answer>* answer) noexcept {
  pmix_proc_t of = self_;
  of.rank = rank;
  const uint64_t now = now_ns();
  const uint64_t seconds =
      deadline_ns > now ? std::min<uint64_t>((deadline_ns - now) / kSecond, 3600) : 0;
  // The library's timeout is in whole seconds; it must expire before the wait for its thread does.
  const uint64_t slack = 2 * kSecond;
  return ask("PMIx_Get", deadline_ns > UINT64_MAX - slack ? deadline_ns : deadline_ns + slack,
             answer, [library = library_, of, name = std::string(key), seconds](Answer& got) {
               pmix_info_t limit{};
               std::strncpy(limit.key, PMIX_TIMEOUT, PMIX_MAX_KEYLEN);
               limit.value.type = PMIX_INT;
               limit.value.data.integer = static_cast<int>(seconds) + 1;
               return library.get(&of, name.c_str(), &limit, 1, &got.value);
             });
}

Status PmixBootstrap::get_number(const char* key, uint64_t deadline_ns, uint32_t* number) noexcept {
  std::shared_ptr<Answer> got;
  const Status status = get_value(PMIX_RANK_WILDCARD, key, deadline_ns, &got);
  if (got == nullptr) return status;
  if (got->error != PMIX_SUCCESS || got->value == nullptr || got->value->type != PMIX_UINT32) {
    return fail(Status::kBroken, "the launcher (PMIx) does not answer \"%s\": %s", key,
                library_.error_string(got->error));
  }
  *number = got->value->data.uint32;
  return Status::kOk;
}

Status PmixBootstrap::read_topology(uint64_t deadline_ns) noexcept {
  topology_.rank = self_.rank;
  Status status = get_number(PMIX_JOB_SIZE, deadline_ns, &topology_.size);
  if (status == Status::kOk) status = read_node_ranks(deadline_ns);
  if (status != Status::kOk) return status;
  // A job on one node needs no more.
  return topology_.node_ranks.size() == topology_.size ? Status::kOk : read_nodes(deadline_ns);
}

Status PmixBootstrap::read_node_ranks(uint64_t deadline_ns) noexcept {
  std::shared_ptr<Answer> got;
  const Status status = get_value(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS, deadline_ns, &got);
  if (status != Status::kOk) return status;
  const char* const list = got->error == PMIX_SUCCESS ? text_of(got->value) : nullptr;
  topology_.node_ranks.clear();
  if (list != nullptr && !read_ranks(list, &topology_.node_ranks)) {
    return fail(Status::kBroken,
                "the launcher (PMIx) lists the ranks of this node (" PMIX_LOCAL_PEERS
                ") as '%.200s', which is no list of numbers with commas between",
                list);
  }
  std::sort(topology_.node_ranks.begin(), topology_.node_ranks.end());
  const auto self =
      std::find(topology_.node_ranks.begin(), topology_.node_ranks.end(), topology_.rank);
  const bool is_twice =
      std::adjacent_find(topology_.node_ranks.begin(), topology_.node_ranks.end()) !=
      topology_.node_ranks.end();
  if (topology_.size == 0 || topology_.rank >= topology_.size ||
      self == topology_.node_ranks.end() || topology_.node_ranks.back() >= topology_.size ||
      is_twice) {
    return fail(
        Status::kBroken,
        "the launcher (PMIx) does not say which ranks share a node: rank %u of %u, %zu ranks here",
        topology_.rank, topology_.size, topology_.node_ranks.size());
  }
  topology_.node_rank = static_cast<uint32_t>(self - topology_.node_ranks.begin());
  return Status::kOk;
}

Status PmixBootstrap::read_nodes(uint64_t deadline_ns) noexcept {
  topology_.leaders.clear();
  Status status = get_number(PMIX_NUM_NODES, deadline_ns, &topology_.node_count);
  if (status != Status::kOk) return status;
  // The other nodes have at least one rank each.
  if (topology_.node_count < 2 ||
      topology_.node_count - 1 > topology_.size - topology_.node_ranks.size()) {
    return fail(Status::kBroken,
                "the launcher (PMIx) counts %u nodes, and on this one are %zu of %u ranks",
                topology_.node_count, topology_.node_ranks.size(), topology_.size);
  }
  std::shared_ptr<Answer> got;
  status = get_value(self_.rank, PMIX_NODEID, deadline_ns, &got);
  if (got == nullptr) return status;
  if (got->error != PMIX_SUCCESS || got->value == nullptr || got->value->type != PMIX_UINT32) {
    return fail(Status::kBroken, "the launcher (PMIx) does not number its nodes: %s",
                library_.error_string(got->error));
  }
  // Node numbers count within an allocation: those of a job may be 6 and 7. The remainder is a valid index,
  // and differs between nodes if their numbers are consecutive. read_leaders() computes a better one.
  topology_.node = got->value->data.uint32 % topology_.node_count;
  return read_leaders(deadline_ns);
}

// Reads the node of each rank. The launcher sends these to every process at its start, so that no other node
// is queried. Without them, or if they contradict the list of local ranks, the job runs without leaders.
Status PmixBootstrap::read_leaders(uint64_t deadline_ns) noexcept {
  std::shared_ptr<Answer> got;
  const Status status = ask(
      "PMIx_Get", deadline_ns, &got,
      [library = library_, self = self_, size = topology_.size](Answer& answer) {
        pmix_info_t limit{};
        std::strncpy(limit.key, PMIX_TIMEOUT, PMIX_MAX_KEYLEN);
        limit.value.type = PMIX_INT;
        limit.value.data.integer = 2;
        for (Rank rank = 0; rank < size; ++rank) {
          pmix_proc_t of = self;
          of.rank = rank;
          pmix_value_t* value = nullptr;
          const pmix_status_t error = library.get(&of, PMIX_NODEID, &limit, 1, &value);
          const bool good = error == PMIX_SUCCESS && value != nullptr && value->type == PMIX_UINT32;
          if (good) answer.nodes.push_back(value->data.uint32);
          free_value(value);
          if (!good) return error;
        }
        return static_cast<pmix_status_t>(PMIX_SUCCESS);
      });
  if (status != Status::kOk) return status;
  JobTopology complete = topology_;
  if (got->nodes.size() == topology_.size) fill_topology(got->nodes, &complete);
  if (got->nodes.size() != topology_.size || complete.node_ranks != topology_.node_ranks ||
      complete.node_count != topology_.node_count) {
    log_info("the launcher (PMIx) does not report which rank is on which node: %s",
             library_.error_string(got->error));
    return Status::kOk;
  }
  topology_ = complete;
  return Status::kOk;
}

Status PmixBootstrap::open_exits(uint64_t deadline_ns) noexcept {
  PmixExits& exits = PmixExits::of_process();
  Status status = exits.open(library_.exits, self_, topology_.size);
  if (status != Status::kOk) return status;
  exits_ = &exits;
  if (topology_.node_rank != 0) return Status::kOk;  // the node's first rank listens for all
  std::shared_ptr<Answer> got;
  status = ask("PMIx_Lookup", deadline_ns, &got, [&exits](Answer&) { return exits.listen(); });
  if (got == nullptr) return status;
  if (got->error != PMIX_SUCCESS) {
    log_info("exits on other nodes are reported only by the launcher: PMIx_Lookup: %s",
             library_.error_string(got->error));
  }
  return Status::kOk;
}

// Adds a prefix: keys that begin with "pmix" are reserved for the library.
std::string full_key(std::string_view key) { return "hydrant/" + std::string(key); }

Status PmixBootstrap::put(std::string_view key, std::span<const std::byte> entry) noexcept {
  Status status = check_key_value(key, entry.size());
  if (status != Status::kOk) return status;
  std::shared_ptr<Answer> got;
  status = ask("PMIx_Put", now_ns() + kPatienceNs, &got,
               [library = library_, name = full_key(key),
                bytes = std::vector<std::byte>(entry.begin(), entry.end())](Answer&) {
                 // The library copies the bytes, but takes a non-const pointer.
                 std::vector<std::byte> copy = bytes;
                 copy.push_back(std::byte{0});  // so that an empty entry is not of length 0
                 pmix_value_t value{};
                 value.type = PMIX_BYTE_OBJECT;
                 value.data.bo.bytes = reinterpret_cast<char*>(copy.data());
                 value.data.bo.size = copy.size();
                 return library.put(PMIX_GLOBAL, name.c_str(), &value);
               });
  if (got != nullptr && got->error != PMIX_SUCCESS) {
    status = fail(Status::kBroken, "PMIx_Put(\"%.*s\"): %s", static_cast<int>(key.size()),
                  key.data(), library_.error_string(got->error));
  }
  return status;
}

Status PmixBootstrap::fence_and_poll(uint64_t deadline_ns, PollFn poll) noexcept {
  std::shared_ptr<Answer> got;
  // Entries stay where they were put until a rank requests them, because PMIX_COLLECT_DATA is not set.
  const auto call = [library = library_](Answer&) {
    const pmix_status_t error = library.commit();
    return error == PMIX_SUCCESS ? library.fence(nullptr, 0, nullptr, 0) : error;
  };
  const Status status = ask("PMIx_Fence", deadline_ns, &got, call, poll);
  if (got == nullptr || got->error == PMIX_SUCCESS) return status;
  return fail(Status::kBroken, "PMIx_Fence: %s", library_.error_string(got->error));
}

Status PmixBootstrap::get(Rank rank, std::string_view key, std::span<std::byte> entry,
                          size_t* bytes, uint64_t deadline_ns) noexcept {
  Status status = check_key_value(key, 0);
  if (status != Status::kOk) return status;
  if (rank >= topology_.size) return fail(Status::kBadArg, "there is no rank %u", rank);
  std::shared_ptr<Answer> got;
  status = get_value(rank, full_key(key).c_str(), deadline_ns, &got);
  if (status != Status::kOk) return status;
  const pmix_value_t* value = got->value;
  if (got->error != PMIX_SUCCESS || value == nullptr || value->type != PMIX_BYTE_OBJECT ||
      value->data.bo.size == 0 || value->data.bo.bytes == nullptr) {
    return fail(Status::kNotReady, "no entry \"%.*s\" of rank %u: %s", static_cast<int>(key.size()),
                key.data(), rank, library_.error_string(got->error));
  }
  const std::span<const char> found(value->data.bo.bytes, value->data.bo.size - 1);
  return copy_value(std::as_bytes(found), entry, bytes);
}

Bootstrap::Event PmixBootstrap::read_event() noexcept {
  Event event;
  if (exits_ != nullptr && exits_->read(&event.rank, &event.code)) event.kind = Event::Kind::kExit;
  return event;
}

void PmixBootstrap::forward_exit(int code, bool is_first, uint64_t deadline_ns) noexcept {
  if (exits_ == nullptr) return;
  // Half of the time is left for PMIx_Finalize.
  const uint64_t now = now_ns();
  const uint64_t deadline = now + (std::max(deadline_ns, now) - now) / 2;
  if (is_first) caller_.call([exits = exits_, code] { exits->publish(code); }, deadline);
  exits_->settle(deadline);
}

// The launcher learns the code from the exit of this process; without this call it would count as a crash.
void PmixBootstrap::leave(int, ExitReason, uint64_t deadline_ns) noexcept {
  caller_.call([library = library_] { library.finalize(nullptr, 0); }, deadline_ns);
}

}  // namespace

Status open_pmix(uint64_t deadline_ns, std::unique_ptr<Bootstrap>* bootstrap) noexcept {
  auto made = std::make_unique<PmixBootstrap>();
  const Status status = made->open(deadline_ns);
  if (status == Status::kOk) *bootstrap = std::move(made);
  return status;
}

}  // namespace hydrant
