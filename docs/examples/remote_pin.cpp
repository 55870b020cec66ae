// Remote pins for the author of a network layer, with libfirehose alone: two processes with a registrar of
// their own, and a messenger over a socket pair. The initiator writes into the target's memory, which both
// processes map: that stands for RDMA. The target then frees that memory.
#include <hydrant/pin_cache.h>
#include <hydrant/remote_pin.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr std::size_t kBytes = 64 * 1024;
constexpr std::size_t kMaxMessage = 2048;
constexpr uint32_t kRanks = 2;

// Memory that both processes share, beside the messages.
struct Shared {
  std::atomic<unsigned> registered{0}, deregistered{0};  // by the target
  std::atomic<bool> ready{false}, free_it{false}, freed{false}, stop{false};
  alignas(4096) char buffer[kBytes];  // the target's memory
};
Shared* shared;

// ---- the registrar: what your device does -------------------------------------------------------------

struct Key {
  uint64_t rkey;  // the key for peers, in the form of your hardware
};

int register_memory(void*, uintptr_t, size_t, uint32_t, void* key) {
  const Key made = {7000 + ++shared->registered};
  std::memcpy(key, &made, sizeof made);
  return GASNET_OK;
}

int deregister_memory(void*, uintptr_t, size_t, const void*) {
  ++shared->deregistered;
  return HYDRANT_UNPIN_DONE;
}

// ---- the messenger: how your network sends ------------------------------------------------------------

// A process: its end of the socket pair and of the protocol.
struct Process {
  uint32_t rank = 0;
  int wire = -1;
  hydrant_domain_t domain = 0;
  hydrant_remote_t remote = 0;
};

// The first byte of a frame is the lane: the receiver of a request may send a reply, that of a reply sends
// nothing.
int send_message(void* user, uint32_t, uint32_t lane, void*, const void* message, size_t len) {
  std::array<char, 1 + kMaxMessage> frame;
  frame[0] = static_cast<char>(lane);
  std::memcpy(frame.data() + 1, message, len);
  const int wire = static_cast<const Process*>(user)->wire;
  if (send(wire, frame.data(), 1 + len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return GASNET_OK;
  return errno == EAGAIN ? GASNET_ERR_NOT_READY : HYDRANT_ERR_BROKEN;
}

// Your progress loop makes these two calls: one for messages that have arrived, one for deferred work.
void progress(const Process& process) {
  std::array<char, 1 + kMaxMessage> frame;
  for (;;) {
    const ssize_t received = recv(process.wire, frame.data(), frame.size(), MSG_DONTWAIT);
    if (received <= 1) break;
    // Nonnull if the message may be replied to. A network with tokens passes the token here.
    void* reply_to = frame[0] == HYDRANT_LANE_REQUEST ? frame.data() : nullptr;
    (void)hydrant_remote_deliver(process.remote, 1 - process.rank, frame.data() + 1,
                                 static_cast<size_t>(received) - 1, reply_to);
  }
  (void)hydrant_remote_poll(process.remote);
  sched_yield();
}

// ---- both processes -----------------------------------------------------------------------------------

bool start(Process* process) {
  hydrant_registrar_t registrar{};
  registrar.size = sizeof registrar;
  registrar.name = "imagined";
  registrar.key_bytes = sizeof(Key);
  registrar.pin = register_memory;
  registrar.unpin = deregister_memory;
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar = &registrar;
  options.budget_bytes = 16 * kBytes;
  // The target itself announces what it frees; with HYDRANT_WATCH_AUTO the kernel reports it to the library.
  options.watch = HYDRANT_WATCH_CLIENT;
  hydrant_messenger_t messenger{};
  messenger.size = sizeof messenger;
  messenger.user = process;
  messenger.max_message_bytes = kMaxMessage;
  messenger.send = send_message;
  hydrant_remote_options_t remote;
  hydrant_remote_options_init(&remote);
  remote.messenger = &messenger;
  remote.rank = process->rank;
  remote.ranks = kRanks;
  if (hydrant_domain_create(&options, &process->domain) == GASNET_OK) {
    remote.domain = process->domain;
    if (hydrant_remote_create(&remote, &process->remote) == GASNET_OK) return true;
  }
  std::fprintf(stderr, "not started: %s\n", hydrant_error_text());
  return false;
}

void stop(const Process& process) {
  (void)hydrant_remote_destroy(process.remote);
  (void)hydrant_domain_destroy(process.domain, HYDRANT_FINI_UNPIN);
}

// ---- the target ---------------------------------------------------------------------------------------

int serve(Process process) {
  if (!start(&process)) return 1;
  shared->ready = true;
  while (!shared->stop) {
    progress(process);
    if (!shared->free_it || shared->freed) continue;
    (void)hydrant_invalidate(process.domain, shared->buffer, kBytes);  // before the memory is freed
    // Waits until no peer can write to the memory: the recall must arrive, and operations must end.
    while (hydrant_remote_quiet(process.remote) == GASNET_ERR_NOT_READY) progress(process);
    std::memset(shared->buffer, '-', kBytes);  // the memory may be reused now
    shared->freed = true;
  }
  stop(process);
  return 0;
}

// ---- the initiator ------------------------------------------------------------------------------------

struct Outcome {
  hydrant_pin_t pin{};
  bool arrived = false;
};

void done(void* context, hydrant_pin_t pin, const hydrant_remote_outcome_t*) {
  *static_cast<Outcome*>(context) = {pin, true};
}

uint64_t messages(const Process& process) {
  hydrant_remote_stats_t stats{};
  stats.size = sizeof stats;
  (void)hydrant_remote_get_stats(process.remote, &stats);
  return stats.requests + stats.replies;
}

// Pins the target's memory. A result without a region has an error text; a layer would then send by messages.
hydrant_pin_t pin(const Process& process, std::size_t offset, std::size_t len) {
  Outcome outcome;
  hydrant_remote_call_t call{};
  call.done = done;
  call.context = &outcome;
  const auto addr = reinterpret_cast<uintptr_t>(shared->buffer + offset);
  const int status = hydrant_remote_pin(process.remote, 1 - process.rank, addr, len,
                                        HYDRANT_REMOTE_WRITE, &call, &outcome.pin);
  if (status == GASNET_OK && outcome.pin.region == nullptr) {
    while (!outcome.arrived) progress(process);  // a layer would do other things meanwhile
  }
  return outcome.pin;
}

void show(const Process& process) {
  hydrant_remote_stats_t stats{};
  stats.size = sizeof stats;
  if (hydrant_remote_get_stats(process.remote, &stats) != GASNET_OK) return;
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf(
      "in all: %llu hits, %llu move, %llu recalled, %llu messages sent; %llu firehoses now\n",
      number(stats.hits), number(stats.moves), number(stats.recalled),
      number(stats.requests + stats.replies), number(stats.firehoses));
}

int write_and_show(const Process& process) {
  hydrant_pin_t whole = pin(process, 0, kBytes);
  if (whole.region == nullptr) {
    std::fprintf(stderr, "not pinned: %s\n", hydrant_error_text());
    return 1;
  }
  Key key;
  std::memcpy(&key, whole.region->key, sizeof key);
  std::printf("miss: %llu message there and one back; the target registered, rkey %llu\n",
              static_cast<unsigned long long>(messages(process)),
              static_cast<unsigned long long>(key.rkey));
  std::memcpy(shared->buffer, "written", 8);  // stands for RDMA with that key
  (void)hydrant_remote_release(whole);

  for (std::size_t i = 0; i < 1000; ++i)
    (void)hydrant_remote_release(pin(process, i % 16 * 4096, 4096));
  std::printf("1000 pins inside of it: still %llu message, %u registration\n",
              static_cast<unsigned long long>(messages(process)), shared->registered.load());

  const hydrant_pin_t held = pin(process, 0, 4096);
  shared->free_it = true;
  // After the recall no new pin finds the firehose, but an operation under way may finish.
  const auto addr = reinterpret_cast<uintptr_t>(shared->buffer);
  hydrant_pin_t again{};
  do {
    progress(process);
    again = hydrant_try_remote_pin(process.remote, 1, addr + 8192, 4096, HYDRANT_REMOTE_WRITE);
    if (again.region != nullptr) (void)hydrant_remote_release(again);
  } while (again.region != nullptr);
  std::printf("recalled: a new pin is %s; freed there: %s, for one is held here\n",
              hydrant_status_name(hydrant_pin_status(again)), shared->freed ? "yes" : "not yet");
  std::memcpy(shared->buffer, "held", 5);  // the hold is still valid
  (void)hydrant_remote_release(held);
  while (!shared->freed) progress(process);
  std::printf("released here: freed there, after %u deregistration\n", shared->deregistered.load());
  show(process);
  return shared->deregistered == 1 && shared->buffer[0] == '-' ? 0 : 1;
}

}  // namespace

int main() {
  int wires[2];
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, wires) != 0) return 1;
  shared = new (memory) Shared;
  alarm(30);                    // ends the example if it hangs
  const pid_t target = fork();  // before the library is used: a child must not inherit an endpoint
  if (target < 0) return 1;
  if (target == 0) {
    alarm(30);
    _exit(serve({1, wires[1]}));
  }
  Process process{0, wires[0]};
  int result = 1;
  if (start(&process)) {
    while (!shared->ready && waitpid(target, nullptr, WNOHANG) == 0) sched_yield();
    result = write_and_show(process);
    shared->stop = true;
    stop(process);
  }
  int status = 0;
  if (waitpid(target, &status, 0) == target && status != 0) result = 1;
  return result;
}
