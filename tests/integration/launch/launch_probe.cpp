// A rank that does what its arguments say, one after the other: "[RANKS:]VERB[=VALUE]", where RANKS is a
// rank or "a-b". Without the runtime above, this is all that a job needs.
#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap.hpp"
#include "rdma/node_channel.hpp"
#include "rdma/process_watch.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <malloc.h>
#include <map>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using hydrant::Bootstrap;
using hydrant::ExitWatch;
using hydrant::Rank;
using hydrant::Status;

uint64_t soon(double seconds = 60) {
  return hydrant::now_ns() + static_cast<uint64_t>(seconds * 1e9);
}

[[noreturn]] void give_up(const char* what) {
  std::printf("FAILED %s: %s\n", what, hydrant::last_error_text());
  std::fflush(stdout);
  _exit(99);
}

void require(Status status, const char* what) {
  if (status != Status::kOk) give_up(what);
}

// Ends the process when it is told to, as a runtime does. An exit with 0 leaves it time: it is probably about
// to leave as well.
class Listener final : public ExitWatch::Listener {
 public:
  void on_exit_requested(Rank rank, int code) noexcept override { end("exit", rank, code, code); }
  void on_death(Rank rank, int signal) noexcept override {
    end("death", rank, signal, 128 + signal);
  }
  void on_launcher_gone() noexcept override { end("launcher gone", 0, 0, 1); }

  Rank own = 0;
  bool deaf = false;  // says what it hears and goes on
  std::function<void(int)> leave;

 private:
  void end(const char* what, Rank rank, int number, int code) const {
    char line[128];
    const int bytes = std::snprintf(line, sizeof line, "rank %u hears %s of rank %u: %d\n", own,
                                    what, rank, number);
    [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, line, static_cast<size_t>(bytes));
    if (deaf || code == 0) return;
    leave(code);
    _exit(code);
  }
};

class Probe {
 public:
  explicit Probe(std::unique_ptr<Bootstrap> bootstrap) : bootstrap_(std::move(bootstrap)) {
    listener_.own = place().rank;
    listener_.leave = [this](int code) { leave(code); };
  }

  int run(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      std::string step = argv[i];
      if (!is_mine(&step)) continue;
      const size_t equals = step.find('=');
      const std::string verb = step.substr(0, equals);
      value_ = equals == step.npos ? "" : step.substr(equals + 1);
      const auto found = verbs_.find(verb);
      if (found == verbs_.end()) give_up(("no verb " + verb).c_str());
      found->second(*this);
    }
    leave(0);
    return 0;
  }

 private:
  const hydrant::JobPlace& place() const { return bootstrap_->place(); }
  int number() const { return std::atoi(value_.c_str()); }
  double seconds() const { return value_.empty() ? 60 : std::atof(value_.c_str()); }

  bool is_mine(std::string* step) const {
    const size_t colon = step->find(':');
    if (colon == step->npos) return true;
    unsigned first = 0;
    unsigned last = 0;
    const int got = std::sscanf(step->c_str(), "%u-%u", &first, &last);
    step->erase(0, colon + 1);
    return place().rank >= first && place().rank <= (got == 2 ? last : first);
  }

  // As a runtime leaves: its watch tells everybody, or the launcher alone.
  void leave(int code) {
    if (watch_ != nullptr) {
      watch_->leave(code, soon(10));
    } else {
      bootstrap_->leave(code, soon(10));
    }
  }

  void print_place() const {
    std::string ranks;
    for (const Rank rank : place().node_ranks) ranks += " " + std::to_string(rank);
    std::printf("rank %u of %u by %s, node %u of %u, node rank %u of%s, pid %d\n", place().rank,
                place().size, bootstrap_->name(), place().node, place().node_count,
                place().node_rank, ranks.c_str(), static_cast<int>(getpid()));
    std::fflush(stdout);
  }

  // Every rank puts cards of several sizes, and reads those of all others.
  void exchange_cards() {
    constexpr size_t kSizes[] = {0, 1, 599, 600, 601, Bootstrap::kMaxCardBytes};
    const auto fill = [](Rank rank, size_t bytes) {
      std::vector<std::byte> card(bytes);
      for (size_t i = 0; i < bytes; ++i) card[i] = static_cast<std::byte>(rank * 7 + i);
      return card;
    };
    for (const size_t bytes : kSizes) {
      require(bootstrap_->put("card" + std::to_string(bytes), fill(place().rank, bytes)), "put");
    }
    require(bootstrap_->fence(soon()), "fence");
    std::byte room[Bootstrap::kMaxCardBytes];
    for (Rank rank = 0; rank < place().size; ++rank) {
      for (const size_t bytes : kSizes) {
        size_t got = 0;
        require(bootstrap_->get(rank, "card" + std::to_string(bytes), room, &got, soon()), "get");
        if (got != bytes || std::memcmp(room, fill(rank, bytes).data(), bytes) != 0) {
          give_up("another card came back");
        }
      }
    }
  }

  // What the reading of every card costs in memory of this process.
  void measure_memory() {
    std::byte room[Bootstrap::kMaxCardBytes] = {};
    require(bootstrap_->put("memory", room), "put");
    require(bootstrap_->fence(soon()), "fence");
    size_t got = 0;
    require(bootstrap_->get(0, "memory", room, &got, soon()), "get");
    const size_t before = mallinfo2().uordblks;
    for (Rank rank = 0; rank < place().size; ++rank) {
      require(bootstrap_->get(rank, "memory", room, &got, soon()), "get");
    }
    const size_t after = mallinfo2().uordblks;
    std::printf("rank %u: %zu bytes more for %u cards\n", place().rank, after - before,
                place().size);
  }

  void share_memory() {
    constexpr size_t kBytes = 4096;
    constexpr char kText[] = "shared";
    int fd = -1;
    if (place().node_rank == 0) {
      fd = memfd_create("probe", MFD_CLOEXEC);
      if (ftruncate(fd, kBytes) != 0 || write(fd, kText, sizeof kText) != sizeof kText)
        give_up("memfd");
    }
    int received = -1;
    require(hydrant::share_fd(*bootstrap_, sequence_++, fd, &received, soon()), "share_fd");
    const void* mapped = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, received, 0);
    if (mapped == MAP_FAILED || std::strcmp(static_cast<const char*>(mapped), kText) != 0) {
      give_up("what was shared is not what came");
    }
    std::printf("rank %u reads it\n", place().rank);
  }

  void watch() { require(ExitWatch::start(*bootstrap_, listener_, soon(), &watch_), "watch"); }

  void fence_until() {
    const Status status = bootstrap_->fence(soon(seconds()));
    std::printf("rank %u fence: %s\n", place().rank,
                status == Status::kOk ? "done" : hydrant::last_error_text());
    std::fflush(stdout);
  }

  // A rank that comes late holds up all others.
  void check_barrier() {
    for (int round = 0; round < 5; ++round) {
      const bool late = static_cast<Rank>(round) % place().size == place().rank;
      if (late) sleep_for(0.1);
      const uint64_t came = hydrant::now_ns();
      const std::string key = "came" + std::to_string(round);
      require(bootstrap_->put(key, std::as_bytes(std::span(&came, 1))), "put");
      require(bootstrap_->fence(soon()), "fence");
      const uint64_t left = hydrant::now_ns();
      for (Rank rank = 0; rank < place().size; ++rank) {
        uint64_t other = 0;
        size_t bytes = 0;
        require(bootstrap_->get(rank, key, std::as_writable_bytes(std::span(&other, 1)), &bytes,
                                soon()),
                "get");
        if (other > left) give_up("a fence was left before all had come");
      }
      require(bootstrap_->fence(soon()), "fence");
    }
  }

  void get_until() {
    std::byte room[Bootstrap::kMaxCardBytes];
    size_t got = 0;
    const Status status = bootstrap_->get(place().size - 1, "nothing", room, &got, soon(seconds()));
    std::printf("rank %u get: %s\n", place().rank,
                status == Status::kOk ? "done" : hydrant::last_error_text());
    std::fflush(stdout);
  }

  [[noreturn]] void exit_by_leaving() {
    leave(number());
    std::exit(number());
  }

  static void sleep_for(double seconds) {
    const timespec time{
        static_cast<time_t>(seconds),
        static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
    timespec rest = time;
    while (nanosleep(&rest, &rest) != 0) {
    }
  }

  const std::map<std::string, std::function<void(Probe&)>> verbs_ = {
      {"place", [](Probe& p) { p.print_place(); }},
      {"cards", [](Probe& p) { p.exchange_cards(); }},
      {"memory", [](Probe& p) { p.measure_memory(); }},
      {"share", [](Probe& p) { p.share_memory(); }},
      {"watch", [](Probe& p) { p.watch(); }},
      {"lose", [](Probe& p) { p.watch_->lose(static_cast<Rank>(p.number()), 6); }},
      {"deaf", [](Probe& p) { p.listener_.deaf = true; }},
      {"fence", [](Probe& p) { p.fence_until(); }},
      {"barrier", [](Probe& p) { p.check_barrier(); }},
      {"get", [](Probe& p) { p.get_until(); }},
      {"leave", [](Probe& p) { p.exit_by_leaving(); }},
      {"say_leave", [](Probe& p) { p.leave(p.number()); }},
      {"_exit", [](Probe& p) { _exit(p.number()); }},
      {"kill", [](Probe& p) { std::raise(p.number()); }},
      {"ignore", [](Probe& p) { std::signal(p.number(), SIG_IGN); }},
      {"exit_on", [](Probe& p) { std::signal(p.number(), [](int) { _exit(5); }); }},
      {"sleep", [](Probe& p) { sleep_for(p.seconds()); }},
      {"abort", [](Probe&) { std::abort(); }},
      {"read",
       [](Probe& p) {
         std::printf("rank %u reads %s\n", p.place().rank,
                     std::getc(stdin) == EOF ? "the end" : "input");
       }},
      {"print",
       [](Probe& p) {
         std::printf("rank %u: %s\n", p.place().rank, p.value_.c_str());
         std::fflush(stdout);
       }},
      {"spin",
       [](Probe&) {
         for (volatile bool forever = true; forever;) {
         }
       }},
  };

  std::unique_ptr<Bootstrap> bootstrap_;
  Listener listener_;
  std::unique_ptr<ExitWatch> watch_;
  std::string value_;
  uint32_t sequence_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  // Before wire-up: what a program may do without joining.
  for (int i = 1; i < argc; ++i) {
    const std::string step = argv[i];
    const char* rank = std::getenv("HYDRANT_JOB_RANK");
    if (rank != nullptr && step == std::string("before@") + rank + "=exit") return 0;
    if (step.starts_with("before@")) argv[i] = const_cast<char*>("4294967295:none");
  }
  std::unique_ptr<Bootstrap> bootstrap;
  const Status status = hydrant::open_bootstrap(&argc, &argv, &bootstrap);
  if (status != Status::kOk) {
    std::fprintf(stderr, "launch_probe: %s\n", hydrant::last_error_text());
    return 98;
  }
  return Probe(std::move(bootstrap)).run(argc, argv);
}
