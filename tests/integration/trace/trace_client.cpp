// Makes known numbers of calls for the trace. Ends with 0 and "all held", or with a line that begins with
// "WRONG". Arguments: the scenario, and how often.
#include <gasnet.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <gasnet_coll.h>
#include <gasnet_tools.h>
#include <iterator>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

namespace {

enum Handler : gex_AM_Index_t { kPing = 200, kPong, kData, kStore, kBegin };

constexpr size_t kLong = 4096;

gex_TM_t world;
gex_EP_t endpoint;
gex_Rank_t me;
gex_Rank_t job_size;
gex_Rank_t peer;
std::byte* mine;
std::byte* peers;
uint64_t pongs = 0;
uint64_t arrivals = 0;
uint64_t starts = 0;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "WRONG (rank %u): %s\n", me, what);
  gasnet_exit(3);
}
uint64_t seen(const uint64_t& counter) { return __atomic_load_n(&counter, __ATOMIC_RELAXED); }
void add(uint64_t& counter) { __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED); }
void barrier() { gex_Event_Wait(gex_Coll_BarrierNB(world, 0)); }

void ping(gex_Token_t token) { gex_AM_ReplyShort0(token, kPong, 0); }
void pong(gex_Token_t) { add(pongs); }
void data(gex_Token_t, void*, size_t, gex_AM_Arg_t) { add(arrivals); }
void store(gex_Token_t, void*, size_t) { add(arrivals); }
void begin(gex_Token_t) { add(starts); }

template <typename Function>
gex_AM_Entry_t entry(Handler index, Function* function, gex_Flags_t flags, unsigned nargs,
                     const char* name) {
  return {.gex_index = static_cast<gex_AM_Index_t>(index),
          .gex_fnptr = reinterpret_cast<gex_AM_Fn_t>(function),
          .gex_flags = flags,
          .gex_nargs = nargs,
          .gex_cdata = nullptr,
          .gex_name = name};
}

void start(int argc, char** argv) {
  gex_Client_t client;
  gex_Segment_t segment;
  check(gex_Client_Init(&client, &endpoint, &world, "trace", &argc, &argv, 0) == GASNET_OK, "init");
  me = gex_TM_QueryRank(world);
  job_size = gex_TM_QuerySize(world);
  peer = (me + 1) % job_size;
  gex_AM_Entry_t entries[] = {
      entry(kPing, ping, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 0, "ping"),
      entry(kPong, pong, GEX_FLAG_AM_REPLY | GEX_FLAG_AM_SHORT, 0, "pong"),
      entry(kData, data, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_MEDIUM, 1, nullptr),
      entry(kStore, store, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_LONG, 0, "store"),
      entry(kBegin, begin, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 0, "begin"),
  };
  check(gex_Segment_Attach(&segment, world, 1 << 20) == GASNET_OK, "attach");
  check(gex_EP_RegisterHandlers(endpoint, entries, std::size(entries)) == GASNET_OK, "handlers");
  mine = static_cast<std::byte*>(gex_Segment_QueryAddr(segment));
  void* address = nullptr;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(world, peer, &address, nullptr, nullptr, 0));
  peers = static_cast<std::byte*>(address);
  barrier();
}

void ping_pong(uint64_t times) {
  const uint64_t before = seen(pongs);
  for (uint64_t i = 0; i < times; ++i) gex_AM_RequestShort0(world, peer, kPing, 0);
  GASNET_BLOCKUNTIL(seen(pongs) == before + times);
}

// Rank 0 waits for the event of the barrier behind it: rank 1 begins that when rank 0 has answered its pings,
// which it does nowhere but in that wait. An event that is complete has no wait in the trace.
void ping_pong_and_barrier(uint64_t times) {
  if (me == 0) {
    ping_pong(times);
    gex_Event_t event = gex_Coll_BarrierNB(world, 0);
    gex_AM_RequestShort0(world, 1, kBegin, 0);
    gex_Event_Wait(event);
    return;
  }
  static uint64_t rounds = 0;
  ++rounds;
  while (me == 1 && seen(starts) < rounds) gasnet_AMPoll();
  ping_pong(times);
  barrier();
}

// Each kind of call `times` times; sizes that would be inlined among them.
void each_call(uint64_t times) {
  static std::byte buffer[kLong];
  uint64_t word = 7;
  for (uint64_t i = 0; i < times; ++i) {
    gex_RMA_PutBlocking(world, peer, peers, &word, sizeof word, 0);
    gex_RMA_PutBlocking(world, peer, peers + 64, buffer, 1000, 0);
    gex_RMA_GetBlocking(world, &word, peer, peers, sizeof word, 0);
    gex_RMA_PutNBI(world, peer, peers + 2000, buffer, kLong, GEX_EVENT_NOW, 0);
    gex_NBI_Wait(GEX_EC_ALL, 0);
    gex_RMA_PutBlocking(world, me, mine + 8192, &word, sizeof word, 0);
    check(word == 7, "a get after a put");
  }
  const uint64_t before =
      seen(arrivals);  // no message of the next rank has arrived before the barrier
  ping_pong_and_barrier(times);
  for (uint64_t i = 0; i < times; ++i) {
    gex_AM_RequestMedium1(world, peer, kData, buffer, 100, GEX_EVENT_NOW, 0, 1);
    gex_AM_RequestLong0(world, peer, kStore, buffer, kLong, peers + 16384, GEX_EVENT_NOW, 0);
    gex_AM_RequestShort0(world, me, kPing, 0);
  }
  GASNET_BLOCKUNTIL(seen(arrivals) == before + 2 * times);
  for (uint64_t i = 0; i < times; ++i) {
    barrier();
    uint64_t sum = 0;
    const uint64_t one = 1;
    gex_Event_Wait(gex_Coll_ReduceToAllNB(world, &sum, &one, GEX_DT_U64, sizeof sum, 1, GEX_OP_ADD,
                                          nullptr, nullptr, 0));
    check(sum == job_size, "a sum");
  }
  GASNETT_TRACE_PRINTF("text %d of %s", 1, "the client\n");
}

#ifdef GASNET_PAR
void many_threads(uint64_t times) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([=] {
      for (uint64_t n = 0; n < times; ++n) gex_AM_RequestShort0(world, peer, kPing, 0);
    });
  for (std::thread& thread : threads) thread.join();
  GASNET_BLOCKUNTIL(seen(pongs) == 4 * times);
}

// Threads that write to both files beyond the end of the job.
void never_quiet(uint64_t times) {
  static uint64_t rounds = 0;
  for (int i = 0; i < 4; ++i)
    std::thread([] {
      for (;;) {
        GASNETT_TRACE_PRINTF("from a thread that does not end");
        GASNETT_STATS_PRINTF("from a thread that does not end");
        GASNETT_TRACE_SETMASK("HI");
        GASNETT_STATS_DUMP(0);
        add(rounds);
      }
    }).detach();
  GASNET_BLOCKUNTIL(seen(rounds) >= times);
}
#endif

// Before and after a mask without messages.
void masks() {
  const char* all = GASNETT_TRACE_GETMASK();
  check(std::string(all).find('A') != std::string::npos, "the mask at the start");
  ping_pong(5);
  GASNETT_TRACE_SETMASK("^A");
  check(std::string(GASNETT_TRACE_GETMASK()) == "GPRSWBLXIOCDNHU", "a complement");
  ping_pong(7);
  GASNETT_TRACE_SETMASK("");
  GASNETT_TRACE_PRINTF("suppressed");
  check(!GASNETT_TRACE_ENABLED, "texts are masked");
  GASNETT_TRACE_PRINTF_FORCE("forced");
  GASNETT_TRACE_SETMASK(all);
  check(GASNETT_TRACE_ENABLED, "texts are traced");
  ping_pong(3);
}

void source_lines() {
  const char* file = nullptr;
  unsigned line = 0;
  GASNETT_TRACE_SETSOURCELINE("program.upc", 12);
  GASNETT_TRACE_PRINTF("at twelve");
  GASNETT_TRACE_FREEZESOURCELINE();
  GASNETT_TRACE_SETSOURCELINE("other.upc", 99);
  GASNETT_TRACE_UNFREEZESOURCELINE();
  GASNETT_TRACE_SETSOURCELINE(nullptr, 13);
  GASNETT_TRACE_GETSOURCELINE(&file, &line);
  check(std::strcmp(file, "program.upc") == 0 && line == 13, "the source line");
  GASNETT_TRACE_PRINTF("at thirteen");
}

void local() {
  check(GASNETT_TRACE_GET_TRACELOCAL() != 0, "local puts are traced");
  gex_RMA_PutBlocking(world, me, mine, "12345678", 8, 0);
  GASNETT_TRACE_SET_TRACELOCAL(0);
  check(GASNETT_TRACE_GET_TRACELOCAL() == 0, "local puts are not traced");
  for (int i = 0; i < 4; ++i) gex_RMA_PutBlocking(world, me, mine, "12345678", 8, 0);
}

void add_to_dump(void (*print)(const char* format, ...)) { print("from the callback"); }

void statistics() {
  check(GASNETT_STATS_INIT(add_to_dump) == 1, "statistics are on");
  check(std::string(GASNETT_STATS_GETMASK()).find('H') != std::string::npos, "their mask");
  ping_pong(4);
  GASNETT_STATS_PRINTF("number %d", 1);
  GASNETT_STATS_DUMP(1);
  ping_pong(6);
}

volatile sig_atomic_t own_signals = 0;

// Files cannot grow from now on, and the program has handlers of its own for what that raises.
void limited(uint64_t times) {
  for (const int number : {SIGXFSZ, SIGPIPE})
    std::signal(number, [](int) { own_signals = own_signals + 1; });
  const rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
  check(setrlimit(RLIMIT_FSIZE, &none) == 0, "a limit on files");
  ping_pong(times);
  check(own_signals == 0, "the library's writes are not the program's");
}

void held_messages(uint64_t times) {
  gasnet_hold_interrupts();
  for (uint64_t i = 0; i < times; ++i) gex_AM_RequestShort0(world, me, kPing, 0);
  gasnet_resume_interrupts();
  check(seen(pongs) == times, "messages to this rank");
}

}  // namespace

int main(int argc, char** argv) {
  start(argc, argv);
  const std::string what = argc > 1 ? argv[1] : "each";
  const uint64_t times = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 10;
  if (what == "each") each_call(times);
  if (what == "warm") {  // for docs/tracing.png
    each_call(100);
    barrier();
    each_call(times);
  }
#ifdef GASNET_PAR
  if (what == "threads") many_threads(times);
  if (what == "never_quiet") never_quiet(times);
#endif
  if (what == "masks") masks();
  if (what == "source") source_lines();
  if (what == "local") local();
  if (what == "statistics") statistics();
  if (what == "flood") ping_pong(times);
  if (what == "limited") limited(times);
  if (what == "held") held_messages(times);
  if (what == "abort" && me == 0) {
    gex_RMA_PutBlocking(world, job_size + 5, mine, "x", 1, 0);
  }
  barrier();
  if (me == 0) std::puts("all held");
  if (what == "exit" && me != 0) GASNET_BLOCKUNTIL(false);
  gasnet_exit(0);
}
