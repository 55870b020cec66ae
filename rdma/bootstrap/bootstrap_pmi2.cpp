// Implements Bootstrap over PMI-2: loads libpmi2, reads the job's layout, and puts and gets entries in
// pieces. open_bootstrap.cpp opens it; bootstrap_pmi2_text.cpp encodes the pieces.
#include "rdma/bootstrap/bootstrap_pmi2.hpp"

#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/bootstrap_pmi2_text.hpp"
#include "rdma/bootstrap/bootstrap_singleton.hpp"
#include "rdma/bootstrap/timed_caller.hpp"

#include <array>
#include <cstring>
#include <dlfcn.h>
#include <string>

namespace hydrant {
namespace {

constexpr char kLibrary[] = "libpmi2.so.0";
constexpr int kSuccess = 0;
constexpr int kNoHint = -1;
constexpr size_t kValueRoom = 1024;
constexpr size_t kKeyRoom = 64;

// The functions of PMI-2 that this file calls, as its standard declares them.
struct Library {
  int (*init)(int* spawned, int* size, int* rank, int* application);
  int (*finalize)();
  int (*put)(const char* key, const char* value);
  int (*fence)();
  int (*get)(const char* job, int source, const char* key, char* value, int room, int* bytes);
  int (*job_attribute)(const char* name, char* value, int room, int* found);
};

template <class Function>
bool find(void* library, const char* name, Function* function) noexcept {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

Status load(Library* library) noexcept {
  void* handle = uncancelled::call(dlopen, kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return fail(Status::kUnsupported,
                "%s cannot be loaded (%s); on Debian: apt-get install libpmi2-0", kLibrary,
                dlerror());
  }
  const bool all = find(handle, "PMI2_Init", &library->init) &&
                   find(handle, "PMI2_Finalize", &library->finalize) &&
                   find(handle, "PMI2_KVS_Put", &library->put) &&
                   find(handle, "PMI2_KVS_Fence", &library->fence) &&
                   find(handle, "PMI2_KVS_Get", &library->get) &&
                   find(handle, "PMI2_Info_GetJobAttr", &library->job_attribute);
  if (!all) return fail(Status::kUnsupported, "%s lacks functions of PMI-2", kLibrary);
  return Status::kOk;
}

class Pmi2Bootstrap final : public Bootstrap {
 public:
  Status open(uint64_t deadline_ns) noexcept;

  const char* name() const noexcept override { return "pmi2"; }
  const JobTopology& topology() const noexcept override { return topology_; }
  Status put(std::string_view key, std::span<const std::byte> entry) noexcept override;
  Status fence(uint64_t deadline_ns) noexcept override {
    return fence_and_poll(deadline_ns, nullptr);
  }
  Status fence_and_poll(uint64_t deadline_ns, PollFn poll) noexcept override;
  Status get(Rank rank, std::string_view key, std::span<std::byte> entry, size_t* bytes,
             uint64_t deadline_ns) noexcept override;
  void leave(int code, ExitReason how, uint64_t deadline_ns) noexcept override;

 private:
  // The results of a call, owned by the call itself, which may outlast its deadline.
  struct Answer {
    int error = kSuccess;
    int numbers[4] = {};
    std::array<char, kValueRoom> value{};
  };
  // Runs call(answer) in the library's thread; *answer is null on failure. Errors: kBroken, naming `what`.
  template <class Call>
  Status ask(const char* what, uint64_t deadline_ns, std::shared_ptr<Answer>* answer, Call call,
             PollFn poll = nullptr) noexcept;
  Status get_piece(Rank rank, std::string_view key, uint32_t piece, uint64_t deadline_ns,
                   std::string* text) noexcept;

  Library library_{};
  JobTopology topology_;
  TimedCaller caller_;
};

constexpr uint64_t kPatienceNs = 30'000'000'000;

template <class Call>
Status Pmi2Bootstrap::ask(const char* what, uint64_t deadline_ns, std::shared_ptr<Answer>* answer,
                          Call call, PollFn poll) noexcept {
  answer->reset();
  auto made = std::make_shared<Answer>();
  if (!caller_.call([made, call] { made->error = call(*made); }, deadline_ns, poll)) {
    return fail(
        Status::kBroken,
        "%s did not end in time: the launcher (PMI-2) does not answer, or not all "
        "of %u ranks arrived; the launcher does not say which are missing. Look at its output",
        what, topology_.size);
  }
  *answer = std::move(made);
  return Status::kOk;
}

Status Pmi2Bootstrap::open(uint64_t deadline_ns) noexcept {
  Status status = load(&library_);
  if (status != Status::kOk) return status;
  if (!caller_.start("hydrant-pmi2")) return fail(Status::kResource, "no thread for PMI-2");
  std::shared_ptr<Answer> got;
  status = ask("PMI2_Init", deadline_ns, &got, [library = library_](Answer& answer) {
    int* numbers = answer.numbers;
    return library.init(&numbers[0], &numbers[1], &numbers[2], &numbers[3]);
  });
  if (got == nullptr) return status;
  const int size = got->numbers[1];
  const int rank = got->numbers[2];
  if (got->error != kSuccess || size < 1 || rank < 0 || rank >= size) {
    return fail(Status::kBroken, "PMI2_Init returned %d, rank %d of %d", got->error, rank, size);
  }
  topology_.size = static_cast<Rank>(size);
  topology_.rank = static_cast<Rank>(rank);
  status = ask("PMI2_Info_GetJobAttr", deadline_ns, &got, [library = library_](Answer& answer) {
    return library.job_attribute("PMI_process_mapping", answer.value.data(),
                                 static_cast<int>(answer.value.size()), &answer.numbers[0]);
  });
  if (got == nullptr) return status;
  if (got->error != kSuccess || got->numbers[0] == 0) {
    return fail(Status::kBroken,
                "the launcher (PMI-2) does not say which ranks share a node: error %d", got->error);
  }
  return read_process_mapping(
      std::string_view(got->value.data(), strnlen(got->value.data(), kValueRoom)), &topology_);
}

// "hydrant/<key>/<rank>/<piece>": at most 31 bytes of key and two numbers.
std::array<char, kKeyRoom> piece_name(Rank rank, std::string_view key, uint32_t piece) noexcept {
  std::array<char, kKeyRoom> name{};
  std::snprintf(name.data(), name.size(), "hydrant/%.*s/%u/%u", static_cast<int>(key.size()),
                key.data(), rank, piece);
  return name;
}

Status Pmi2Bootstrap::put(std::string_view key, std::span<const std::byte> entry) noexcept {
  Status status = check_key_value(key, entry.size());
  for (uint32_t piece = 0; status == Status::kOk && piece < pmi2_pieces(entry.size()); ++piece) {
    const std::string value = encode_pmi2_piece(entry, piece);
    std::shared_ptr<Answer> got;
    status = ask("PMI2_KVS_Put", now_ns() + kPatienceNs, &got,
                 [library = library_, name = piece_name(topology_.rank, key, piece),
                  value](Answer&) { return library.put(name.data(), value.c_str()); });
    if (got != nullptr && got->error != kSuccess) {
      status = fail(Status::kBroken, "PMI2_KVS_Put(\"%.*s\") returned %d",
                    static_cast<int>(key.size()), key.data(), got->error);
    }
  }
  return status;
}

// MPICH's server replies to a fence at once, and delays a get() of an unknown key until all ranks have
// arrived. Slurm's server waits in the fence itself. A get() of a key that no rank puts makes this a barrier
// with both.
Status Pmi2Bootstrap::fence_and_poll(uint64_t deadline_ns, PollFn poll) noexcept {
  std::shared_ptr<Answer> got;
  const auto call = [library = library_](Answer& answer) {
    const int error = library.fence();
    if (error != kSuccess) return error;
    library.get(nullptr, kNoHint, "hydrant/none", answer.value.data(),
                static_cast<int>(answer.value.size()), &answer.numbers[0]);
    return kSuccess;
  };
  const Status status = ask("PMI2_KVS_Fence", deadline_ns, &got, call, poll);
  if (got == nullptr || got->error == kSuccess) return status;
  return fail(Status::kBroken, "PMI2_KVS_Fence returned %d", got->error);
}

Status Pmi2Bootstrap::get_piece(Rank rank, std::string_view key, uint32_t piece,
                                uint64_t deadline_ns, std::string* text) noexcept {
  std::shared_ptr<Answer> got;
  const Status status =
      ask("PMI2_KVS_Get", deadline_ns, &got,
          [library = library_, name = piece_name(rank, key, piece)](Answer& answer) {
            return library.get(nullptr, kNoHint, name.data(), answer.value.data(),
                               static_cast<int>(answer.value.size()), &answer.numbers[0]);
          });
  if (got == nullptr) return status;
  if (got->error != kSuccess) {
    return fail(Status::kNotReady, "rank %u has put no entry \"%.*s\" before the last fence", rank,
                static_cast<int>(key.size()), key.data());
  }
  text->assign(got->value.data(), strnlen(got->value.data(), kValueRoom));
  return Status::kOk;
}

Status Pmi2Bootstrap::get(Rank rank, std::string_view key, std::span<std::byte> entry,
                          size_t* bytes, uint64_t deadline_ns) noexcept {
  Status status = check_key_value(key, 0);
  if (status != Status::kOk) return status;
  if (rank >= topology_.size) return fail(Status::kBadArg, "there is no rank %u", rank);
  Pmi2Entry whole;
  for (uint32_t piece = 0; !whole.is_whole(); ++piece) {
    std::string text;
    status = get_piece(rank, key, piece, deadline_ns, &text);
    if (status != Status::kOk) return status;
    if (!whole.add(text)) {
      return fail(Status::kBroken, "the entry \"%.*s\" of rank %u is not what was put",
                  static_cast<int>(key.size()), key.data(), rank);
    }
  }
  return copy_value(whole.bytes(), entry, bytes);
}

// The launcher learns the code from the exit of this process; without this call it would count as a crash.
void Pmi2Bootstrap::leave(int, ExitReason, uint64_t deadline_ns) noexcept {
  caller_.call([library = library_] { library.finalize(); }, deadline_ns);
}

}  // namespace

Status open_pmi2(uint64_t deadline_ns, std::unique_ptr<Bootstrap>* bootstrap) noexcept {
  auto made = std::make_unique<Pmi2Bootstrap>();
  const Status status = made->open(deadline_ns);
  if (status == Status::kOk) *bootstrap = std::move(made);
  return status;
}

}  // namespace hydrant
