// Each public function of libfirehose is called by a thread with a request to cancel it pending. The
// call returns, the thread ends at the first cancellation point after it, and other threads go on. A
// function that is new has to be entered here, in one of the two lists.
#include <hydrant/firehose_shim.h>
#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>
#include <hydrant/remote_pin.h>

#include "tests/support/recording_registrar.hpp"
#include "tests/support/remote_pin_cluster.hpp"
#include "tests/unit/firehose/cancellation/cancelled_thread.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr uint32_t kShape = HYDRANT_FH_SHAPE(HYDRANT_MODE_REGION, 0);

// A domain that watches, two ranks with remote pins, and a firehose of firehose.h.
struct Scene {
  Scene() {
    create();
    client.size = sizeof client;
    client.shape = kShape;
    client.api_version = 0x101;
    client.mode = HYDRANT_MODE_REGION;
    client.region_bytes = 16;
    client.client_offset = 16;
    client.victim_ratio = 0.25;
    client.move = [](const void*, size_t, void*, size_t) { return 0; };
    client.nodes = 2;
    client.args_bytes = 8;
    client.max_message_bytes = 4096;
    client.send = [](uint32_t, uint32_t, void*, const void*, size_t) { return GASNET_OK; };
    client.completed = [](const hydrant_fh_remote_request_t*, hydrant_pin_t, int) {};
    client.make_args = [](const hydrant_fh_remote_request_t*, void*) { return size_t{0}; };
    client.remote = [](uint32_t, const void*, const void*, size_t) { return 0; };
  }
  ~Scene() {
    (void)hydrant_release(pin);
    if (domain != 0) hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
    if (fh != nullptr) hydrant_fh_fini(fh);
  }
  void create() {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.registrar = &registrar.table;
    options.budget_bytes = 64 * kPage;
    options.merge_bytes = 1;
    if (hydrant_domain_create(&options, &domain) != GASNET_OK) std::abort();
  }
  void* at(size_t page) const { return arena.page(page); }
  hydrant_pin_t take(size_t page) const {
    return hydrant_pin(domain, at(page), kPage, HYDRANT_LOCAL_WRITE);
  }
  void start_firehose() {
    fh = hydrant_fh_init(nullptr, &client, 256 * kPage, 64, 16 * kPage, nullptr, 0, 0x04, &limits);
  }

  Arena arena{128};
  RecordingRegistrar registrar{arena};
  hydrant_domain_t domain = 0;
  hydrant_pin_t pin{};
  RemotePinCluster world;
  hydrant_fh_client_t client{};
  hydrant_fh_limits_t limits{};
  hydrant_fh_t* fh = nullptr;
  void* memory = nullptr;
};

struct Call {
  const char* name;
  void (*make)(Scene&);                      // the call
  void (*prepare)(Scene&) = [](Scene&) {};   // in the observing thread
  void (*conclude)(Scene&) = [](Scene&) {};  // the same, afterwards
};

void hold_a_page(Scene& s) { s.pin = s.take(3); }
void start_a_firehose(Scene& s) { s.start_firehose(); }
void ask_a_peer(Scene& s) {
  static RemoteResult result;
  result = RemoteResult{};
  remote_pin(s.world, 0, 1, s.world[1].arena.addr(3), kPage, &result);
}
void get_a_peers_page(Scene& s) {
  ask_a_peer(s);
  s.world.settle();
}
uintptr_t there(Scene& s, size_t page) { return s.world[1].arena.addr(page); }
const hydrant_monitor_t& monitor() { return *hydrant_monitor(HYDRANT_MONITOR_VERSION); }
const hydrant_monitor_client_t& listener() {
  static const hydrant_monitor_client_t client{nullptr, [](void*, uintptr_t, size_t) {},
                                               [](void*) {},
                                               [](void*, uintptr_t, size_t) { return 0; }};
  return client;
}

const Call kCalls[] = {
    {"hydrant_pin", [](Scene& s) { s.pin = s.take(3); }},
    {"hydrant_pin", [](Scene& s) { (void)hydrant_release(s.take(3)); }, hold_a_page},
    {"hydrant_release", [](Scene& s) { (void)hydrant_release(std::exchange(s.pin, {})); },
     [](Scene& s) {
       hold_a_page(s);
       hydrant_invalidate(s.domain, s.at(3), kPage);
     }},
    {"hydrant_release_many",
     [](Scene& s) {
       (void)hydrant_release_many(&s.pin, 1);
       s.pin = {};
     },
     [](Scene& s) {
       hold_a_page(s);
       hydrant_invalidate(s.domain, s.at(3), kPage);
     }},
    {"hydrant_domain_create",
     [](Scene& s) {
       hydrant_domain_options_t options;
       hydrant_domain_options_init(&options);
       options.registrar = &s.registrar.table;
       hydrant_domain_t domain = 0;
       (void)hydrant_domain_create(&options, &domain);
       (void)hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
     }},
    {"hydrant_domain_destroy",
     [](Scene& s) { (void)hydrant_domain_destroy(std::exchange(s.domain, 0), HYDRANT_FINI_UNPIN); },
     hold_a_page,
     [](Scene& s) {
       s.pin = {};
       s.create();
     }},
    {"hydrant_try_pin",
     [](Scene& s) { s.pin = hydrant_try_pin(s.domain, s.at(3), kPage, HYDRANT_LOCAL_WRITE); }},
    {"hydrant_partial_pin",
     [](Scene& s) { s.pin = hydrant_partial_pin(s.domain, s.at(3), kPage, HYDRANT_LOCAL_WRITE); }},
    {"hydrant_pin_wait",
     [](Scene& s) {
       // Needs more than the budget that is not held, so it sleeps.
       const hydrant_pin_t none =
           hydrant_pin_wait(s.domain, s.at(8), 64 * kPage, HYDRANT_LOCAL_WRITE, 5'000'000);
       (void)hydrant_release(none);
     },
     hold_a_page},
    {"hydrant_pin_many",
     [](Scene& s) {
       const hydrant_range_t ranges[] = {{s.arena.addr(3), kPage}, {s.arena.addr(5), kPage}};
       hydrant_pin_t pins[2] = {};
       (void)hydrant_pin_many(s.domain, ranges, 2, HYDRANT_LOCAL_WRITE, pins);
       (void)hydrant_release_many(pins, 2);
     }},
    {"hydrant_pin_async",
     [](Scene& s) {
       (void)hydrant_pin_async(
           s.domain, s.at(3), kPage, HYDRANT_LOCAL_WRITE,
           [](void* context, hydrant_pin_t pin) {
             pthread_testcancel();  // a callback runs with cancellation off
             static_cast<Scene*>(context)->pin = pin;
           },
           &s);
     }},
    {"hydrant_poll", [](Scene& s) { (void)hydrant_poll(s.domain); },
     [](Scene& s) {
       hydrant_domain_destroy(s.domain, HYDRANT_FINI_UNPIN);
       s.registrar.offer_async();
       s.create();
       ASSERT_EQ(hydrant_pin_async(
                     s.domain, s.at(3), kPage, HYDRANT_LOCAL_WRITE,
                     [](void* context, hydrant_pin_t pin) {
                       pthread_testcancel();
                       static_cast<Scene*>(context)->pin = pin;
                     },
                     &s),
                 GASNET_OK);
       ASSERT_TRUE(s.registrar.complete_async(GASNET_OK));
     }},
    {"hydrant_pin_parts",
     [](Scene& s) {
       hydrant_region_t part{};
       (void)hydrant_pin_parts(s.pin, 0, &part);
     },
     hold_a_page},
    {"hydrant_invalidate", [](Scene& s) { (void)hydrant_invalidate(s.domain, s.at(3), kPage); },
     [](Scene& s) { (void)hydrant_release(s.take(3)); }},
    {"hydrant_coverage",
     [](Scene& s) {
       uint32_t coverage = 0;
       (void)hydrant_coverage(s.domain, s.at(3), kPage, &coverage);
     }},
    {"hydrant_vouch", [](Scene& s) { (void)hydrant_vouch(s.domain, s.at(3), kPage); }},
    {"hydrant_unvouch", [](Scene& s) { (void)hydrant_unvouch(s.domain, s.at(3), kPage); }},
    {"hydrant_flush", [](Scene& s) { (void)hydrant_flush(s.domain); },
     [](Scene& s) { (void)hydrant_release(s.take(3)); }},
    {"hydrant_export_key",
     [](Scene& s) {
       char blob[64];
       size_t len = sizeof blob;
       (void)hydrant_export_key(s.pin, blob, &len);
     },
     hold_a_page},
    {"hydrant_import_key",
     [](Scene& s) {
       char key[8];
       (void)hydrant_import_key(s.domain, "12345678", 8, key);
     }},
    {"hydrant_implicit_key",
     [](Scene& s) {
       char key[8];
       (void)hydrant_implicit_key(s.domain, HYDRANT_LOCAL_WRITE, key);
     }},
    {"hydrant_get_stats",
     [](Scene& s) {
       hydrant_stats_t stats{};
       stats.size = sizeof stats;
       (void)hydrant_get_stats(s.domain, &stats);
     }},
    {"hydrant_uring_move",
     [](Scene& s) { (void)hydrant_uring_move(s.pin, s.at(3), kPage, 0, 0, 1); }, hold_a_page},

    // Remote pins.
    {"hydrant_remote_create",
     [](Scene& s) {
       hydrant_messenger_t messenger{};
       messenger.size = sizeof messenger;
       messenger.max_message_bytes = 4096;
       messenger.send = [](void*, uint32_t, uint32_t, void*, const void*, size_t) {
         return GASNET_OK;
       };
       hydrant_remote_options_t options;
       hydrant_remote_options_init(&options);
       options.domain = s.domain;
       options.ranks = 2;
       options.messenger = &messenger;
       hydrant_remote_t end = 0;
       (void)hydrant_remote_create(&options, &end);
       (void)hydrant_remote_destroy(end);
     }},
    {"hydrant_remote_destroy",
     [](Scene& s) { (void)hydrant_remote_destroy(std::exchange(s.world[0].end, 0)); }, ask_a_peer,
     [](Scene& s) { s.world.rebuild(); }},
    {"hydrant_remote_pin",
     [](Scene& s) {
       static RemoteResult result;
       result = RemoteResult{};
       remote_pin(s.world, 0, 1, there(s, 3), kPage, &result);
     },
     [](Scene&) {}, [](Scene& s) { s.world.settle(); }},
    {"hydrant_remote_deliver",
     [](Scene& s) {
       const RemoteMessage message = s.world.message(0);
       (void)hydrant_remote_deliver(s.world[1].end, 0, message.bytes.data(), message.bytes.size(),
                                    &s);
     },
     ask_a_peer, [](Scene& s) { s.world.rebuild(); }},
    {"hydrant_remote_poll", [](Scene& s) { (void)hydrant_remote_poll(s.world[0].end); },
     [](Scene& s) {
       ask_a_peer(s);
       s.world.deliver();
       s.world.deliver();
     },
     [](Scene& s) { s.world.settle(); }},
    {"hydrant_remote_poll", [](Scene& s) { (void)hydrant_remote_poll(s.world[1].end); },
     [](Scene& s) {
       get_a_peers_page(s);
       hydrant_invalidate(s.world[1].domain, s.world[1].arena.page(3), kPage);
     },
     [](Scene& s) { s.world.settle(); }},
    {"hydrant_remote_peer_gone",
     [](Scene& s) { (void)hydrant_remote_peer_gone(s.world[0].end, 1); }, ask_a_peer,
     [](Scene& s) { s.world.rebuild(); }},
    {"hydrant_try_remote_pin",
     [](Scene& s) {
       (void)hydrant_remote_release(
           hydrant_try_remote_pin(s.world[0].end, 1, there(s, 9), kPage, HYDRANT_REMOTE_WRITE));
     },
     get_a_peers_page},
    {"hydrant_partial_remote_pin",
     [](Scene& s) {
       (void)hydrant_remote_release(
           hydrant_partial_remote_pin(s.world[0].end, 1, there(s, 3), kPage, HYDRANT_REMOTE_WRITE));
     },
     get_a_peers_page},
    {"hydrant_remote_release", [](Scene& s) { (void)hydrant_remote_release(s.pin); },
     [](Scene& s) {
       static RemoteResult result;
       result = RemoteResult{};
       remote_pin(s.world, 0, 1, there(s, 3), kPage, &result);
       s.world.settle();
       s.pin = result.pin;
     },
     [](Scene& s) { s.pin = {}; }},
    {"hydrant_remote_prefetch",
     [](Scene& s) {
       (void)hydrant_remote_prefetch(s.world[0].end, 1, there(s, 3), kPage, HYDRANT_REMOTE_WRITE);
     },
     [](Scene&) {}, [](Scene& s) { s.world.settle(); }},
    {"hydrant_remote_evict",
     [](Scene& s) { (void)hydrant_remote_evict(s.world[0].end, 1, there(s, 0), 64 * kPage); },
     get_a_peers_page, [](Scene& s) { s.world.settle(); }},
    {"hydrant_remote_await_room",
     [](Scene& s) {
       (void)hydrant_remote_await_room(s.world[0].end, 1, there(s, 3), kPage, HYDRANT_REMOTE_WRITE,
                                       0);
     },
     [](Scene&) {}, [](Scene& s) { s.world.settle(); }},
    {"hydrant_remote_quiet", [](Scene& s) { (void)hydrant_remote_quiet(s.world[1].end); },
     get_a_peers_page},
    {"hydrant_remote_get_stats",
     [](Scene& s) {
       hydrant_remote_stats_t stats{};
       stats.size = sizeof stats;
       (void)hydrant_remote_get_stats(s.world[0].end, &stats);
     },
     get_a_peers_page},

    // firehose.h.
    {"hydrant_fh_init", start_a_firehose},
    {"hydrant_fh_fini", [](Scene& s) { s.fh = hydrant_fh_fini(s.fh); }, start_a_firehose},
    {"hydrant_fh_get_params",
     [](Scene& s) {
       uintptr_t m = 0, victims = 0;
       hydrant_fh_get_params(s.fh, 0.25, 512 * kPage, &m, &victims);
     },
     start_a_firehose},
    {"hydrant_fh_local_pin",
     [](Scene& s) {
       hydrant_fh_release(hydrant_fh_local_pin(s.fh, kShape, s.arena.addr(3), kPage));
     },
     start_a_firehose},
    {"hydrant_fh_try_local_pin",
     [](Scene& s) { (void)hydrant_fh_try_local_pin(s.fh, kShape, s.arena.addr(3), kPage); },
     start_a_firehose},
    {"hydrant_fh_partial_local_pin",
     [](Scene& s) { (void)hydrant_fh_partial_local_pin(s.fh, kShape, s.arena.addr(3), kPage); },
     start_a_firehose},
    {"hydrant_fh_release", [](Scene& s) { hydrant_fh_release(std::exchange(s.pin, {})); },
     [](Scene& s) {
       s.start_firehose();
       s.pin = hydrant_fh_local_pin(s.fh, kShape, s.arena.addr(3), kPage);
       hydrant_fh_invalidate(s.fh, kShape, s.arena.addr(3), kPage);
     }},
    {"hydrant_fh_invalidate",
     [](Scene& s) { hydrant_fh_invalidate(s.fh, kShape, s.arena.addr(3), kPage); },
     start_a_firehose},
    {"hydrant_fh_poll", [](Scene& s) { hydrant_fh_poll(s.fh); }, start_a_firehose},
    {"hydrant_fh_try_remote_pin",
     [](Scene& s) { (void)hydrant_fh_try_remote_pin(s.fh, kShape, 1, s.arena.addr(3), kPage); },
     start_a_firehose},
    {"hydrant_fh_partial_remote_pin",
     [](Scene& s) { (void)hydrant_fh_partial_remote_pin(s.fh, kShape, 1, s.arena.addr(3), kPage); },
     start_a_firehose},
    {"hydrant_fh_remote_hit",
     [](Scene& s) { (void)hydrant_fh_remote_hit(s.fh, kShape, 1, s.arena.addr(3), kPage); },
     start_a_firehose},
    {"hydrant_fh_remote_pin",
     [](Scene& s) {
       hydrant_fh_remote_request_t pin_request{};
       pin_request.node = 1;
       pin_request.addr = s.arena.addr(3);
       pin_request.len = kPage;
       pin_request.callback = [] {};
       (void)hydrant_fh_remote_pin(s.fh, kShape, &pin_request);
     },
     start_a_firehose},
    {"hydrant_fh_deliver", [](Scene&) { hydrant_fh_deliver(nullptr, 1, "", 0, nullptr); }},

    // The monitor, for allocators, hooks and caches.
    {"hydrant_monitor", [](Scene&) { (void)monitor().start(); }},
    {"hydrant_monitor", [](Scene& s) { (void)monitor().cover(s.arena.addr(3), kPage, 0); }},
    {"hydrant_monitor", [](Scene& s) { monitor().invalidate(s.arena.addr(3), kPage); }},
    {"hydrant_monitor", [](Scene& s) { (void)monitor().pinned(s.arena.addr(3), kPage); }},
    {"hydrant_monitor", [](Scene& s) { monitor().replaced(s.arena.addr(3), kPage); }},
    {"hydrant_monitor", [](Scene&) { monitor().files_changed(); }},
    {"hydrant_monitor",
     [](Scene& s) {
       (void)monitor().add_arena(s.arena.addr(64), kPage);
       monitor().drop_arena(s.arena.addr(64), kPage);
     }},
    {"hydrant_monitor", [](Scene&) { monitor().unsubscribe(monitor().subscribe(&listener())); }},
};

// These functions neither lock, nor call the kernel, nor call the client.
const std::set<std::string> kNeedNothing = {
    "hydrant_coverage_name",   "hydrant_domain_options_init_sized",
    "hydrant_error_text",
    "hydrant_fh_no_remote",     // ends the process
    "hydrant_fh_request_free",  // malloc and free, which are no cancellation points
    "hydrant_fh_request_new",   // the same
    "hydrant_fh_unregistered",  // ends the process
    "hydrant_key_bytes",       "hydrant_pin_key_bytes",
    "hydrant_registrar_add",   "hydrant_registrar_name",
    "hydrant_remote_max_args", "hydrant_remote_options_init_sized",
    "hydrant_set_error_text",  "hydrant_status_name",
};

class EveryCall : public ::testing::TestWithParam<Call> {};

TEST_P(EveryCall, LeavesNothingBehindWhenItsThreadIsCancelled) {
  const Call& call = GetParam();
  Scene scene;
  ASSERT_NO_FATAL_FAILURE(call.prepare(scene));
  ASSERT_EQ(run_to_be_cancelled([&] { call.make(scene); }), "");
  ASSERT_NO_FATAL_FAILURE(call.conclude(scene));
  // Other threads continue, and nothing is left that only the cancelled thread could end.
  const hydrant_pin_t pin = hydrant_pin(scene.domain, scene.at(20), kPage, HYDRANT_LOCAL_WRITE);
  EXPECT_EQ(hydrant_pin_status(pin), GASNET_OK) << hydrant_error_text();
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
  EXPECT_EQ(hydrant_flush(scene.domain), GASNET_OK);
  EXPECT_EQ(scene.registrar.problems(), "");
}

std::string name_of(const ::testing::TestParamInfo<Call>& info) {
  return info.param.name + ("_" + std::to_string(info.index));
}
INSTANTIATE_TEST_SUITE_P(OfLibfirehose, EveryCall, ::testing::ValuesIn(kCalls), name_of);

TEST(EveryCalls, AreInOneOfTheTwoLists) {
  std::set<std::string> listed = kNeedNothing;
  for (const Call& call : kCalls) listed.insert(call.name);
  std::ifstream exports(HYDRANT_EXPORTS);
  std::string line;
  std::set<std::string> exported;
  while (std::getline(exports, line)) {
    if (!line.empty() && line[0] != '#') exported.insert(line);
  }
  ASSERT_FALSE(exported.empty()) << HYDRANT_EXPORTS;
  EXPECT_EQ(listed, exported);
}

}  // namespace
}  // namespace hydrant::testing
