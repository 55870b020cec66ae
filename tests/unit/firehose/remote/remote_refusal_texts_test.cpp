// Each error text of a remote pin names the rank and range, the limit or cause, and the remedy.
#include "tests/support/remote_pin_cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace hydrant::testing {
namespace {

using ::testing::HasSubstr;

// A cluster, and the text of the last failure, whichever call returned it.
struct RemoteScene {
  RemotePinCluster::Settings settings;
  std::unique_ptr<RemotePinCluster> world;
  std::string request;
  std::string text;

  RemoteScene() {
    settings.ranks = 3;
    settings.options.merge_bytes = 1;
    settings.options.stream_bytes = 1;
    settings.options.base_percent = 100;
    settings.options.flags = HYDRANT_REMOTE_INLINE_DONE;
  }
  void begin() { world = std::make_unique<RemotePinCluster>(settings); }
  void name(size_t page, size_t pages) {
    char range[64];
    std::snprintf(range, sizeof range, "[%#zx, +%zu)",
                  static_cast<size_t>((*world)[1].arena.addr(page)), pages * kPage);
    request = range;
  }
  // Rank 0 pins memory of `to` and waits for the reply.
  int ask(size_t page, size_t pages, uint32_t to = 1, uint32_t access = HYDRANT_REMOTE_WRITE) {
    struct Answer {
      RemoteScene* scene;
      int status;
    } answer{this, -1};
    hydrant_remote_call_t call{};
    call.context = &answer;
    call.done = [](void* context, hydrant_pin_t, const hydrant_remote_outcome_t* outcome) {
      auto* said = static_cast<Answer*>(context);
      said->status = outcome->status;
      said->scene->text = hydrant_error_text();
    };
    name(page, pages);
    hydrant_pin_t pin{};
    const int code = hydrant_remote_pin((*world)[0].end, to, (*world)[1].arena.addr(page),
                                        pages * kPage, access, &call, &pin);
    if (code != GASNET_OK) {
      text = hydrant_error_text();
      return code;
    }
    world->settle();
    return pin.region != nullptr ? GASNET_OK : answer.status;
  }
};

struct RemoteRow {
  const char* cause;
  int (*provoke)(RemoteScene&);
  int code;
  std::vector<const char*> words;
  bool names_range = true;
};

const RemoteRow kRemoteRows[] = {
    {"MoreThanThePeerEverGrants",
     [](RemoteScene& s) {
       s.settings.options.budget_bytes = 8 * kPage;
       s.begin();
       return s.ask(0, 5);
     },
     GASNET_ERR_RESOURCE,
     {"rank 1 cannot pin", "16384 bytes", "in pieces", "FIREHOSE_REMOTE_BUDGET"}},
    {"LargerThanThePeersRegions",
     [](RemoteScene& s) {
       s.settings.domain_region_bytes = 4 * kPage;
       s.begin();
       return s.ask(0, 5);
     },
     GASNET_ERR_RESOURCE,
     {"rank 1 cannot pin", "16384 bytes", "in pieces", "FIREHOSE_MAX_REGION_SIZE"}},
    {"NotNowAtThePeer",
     [](RemoteScene& s) {
       s.begin();
       (*s.world)[1].registrar.allow_bytes(0);
       return s.ask(0, 2);
     },
     GASNET_ERR_NOT_READY,
     {"rank 1 cannot pin", "now", "in use", "release", "FIREHOSE_REMOTE_BUDGET",
      "FIREHOSE_BUDGET"}},
    {"RefusedAtThePeer",
     [](RemoteScene& s) {
       s.begin();
       (*s.world)[1].registrar.refuse((*s.world)[1].arena.addr(0), kPage,
                                      RecordingRegistrar::kAnyAccess);
       return s.ask(0, 1);
     },
     HYDRANT_ERR_REFUSED,
     {"rank 1 cannot pin", "cannot be registered", "send messages"}},
    {"LeaseInUse",
     [](RemoteScene& s) {
       s.settings.options.budget_bytes = 8 * kPage;
       s.begin();
       RemotePinCluster& world = *s.world;
       RemoteResult held;
       RemoteResult idle;
       remote_pin(world, 0, 1, world[1].arena.addr(0), 3 * kPage, &held);
       world.settle();
       EXPECT_TRUE(held.held());
       remote_pin(world, 0, 1, world[1].arena.addr(10), kPage, &idle);
       world.settle();
       EXPECT_TRUE(idle.held());
       EXPECT_EQ(hydrant_remote_release(idle.pin), GASNET_OK);
       const int code = s.ask(20, 2);
       EXPECT_EQ(hydrant_remote_release(held.pin), GASNET_OK);
       return code;
     },
     GASNET_ERR_NOT_READY,
     {"8192 bytes", "lease of 16384 bytes", "12288 bytes in 1 region are held",
      "4096 bytes in 1 region are idle", "release pins", "FIREHOSE_REMOTE_BUDGET"}},
    {"TooManyRequests",
     [](RemoteScene& s) {
       s.begin();
       RemotePinCluster& world = *s.world;
       std::vector<RemoteResult> under_way(64);
       for (size_t i = 0; i < under_way.size(); ++i)
         remote_pin(world, 0, 1, world[1].arena.addr(2 * i), kPage, &under_way[i]);
       const int code = s.ask(200, 1);
       world.settle();
       for (const RemoteResult& result : under_way) {
         if (!result.held()) continue;
         EXPECT_EQ(hydrant_remote_release(result.pin), GASNET_OK);
       }
       return code;
     },
     GASNET_ERR_NOT_READY,
     {"rank 1 cannot be asked", "now", "64 requests", "hydrant_remote_poll()"}},
    {"PeerIsGone",
     [](RemoteScene& s) {
       s.begin();
       EXPECT_EQ(hydrant_remote_peer_gone((*s.world)[0].end, 1), GASNET_OK);
       return s.ask(0, 1);
     },
     HYDRANT_ERR_BROKEN,
     {"rank 1 is gone"},
     false},
    {"ThisRank",
     [](RemoteScene& s) {
       s.begin();
       return s.ask(0, 1, 0);
     },
     GASNET_ERR_BAD_ARG,
     {"rank 0 of 3", "this process itself"},
     false},
    {"NoSuchRank",
     [](RemoteScene& s) {
       s.begin();
       return s.ask(0, 1, 7);
     },
     GASNET_ERR_BAD_ARG,
     {"no rank 7", "0 to 2"},
     false},
    {"RightOfNoUse",
     [](RemoteScene& s) {
       s.begin();
       return s.ask(0, 1, 1, HYDRANT_LOCAL_WRITE);
     },
     GASNET_ERR_BAD_ARG,
     {"of no use", "ask for HYDRANT_REMOTE_READ"},
     false},
    {"UnknownRight",
     [](RemoteScene& s) {
       s.begin();
       return s.ask(0, 1, 1, 0x100);
     },
     GASNET_ERR_BAD_ARG,
     {"access 0x100", "HYDRANT_ACCESS_ALL", "pass"},
     false},
    {"NoEnd",
     [](RemoteScene& s) {
       s.begin();
       hydrant_pin_t pin{};
       const int code = hydrant_remote_pin(0, 1, 0x1000, 1, HYDRANT_REMOTE_READ, nullptr, &pin);
       s.text = hydrant_error_text();
       return code;
     },
     GASNET_ERR_NOT_INIT,
     {"no live end of remote pins", "none was created"},
     false},
};

class RemoteRefusalTexts : public ::testing::TestWithParam<RemoteRow> {};

TEST_P(RemoteRefusalTexts, NamesTheRequestTheLimitAndTheRemedy) {
  const RemoteRow& row = GetParam();
  RemoteScene scene;
  EXPECT_EQ(row.provoke(scene), row.code) << scene.text;
  for (const char* word : row.words) EXPECT_THAT(scene.text, HasSubstr(word));
  if (!row.names_range) return;
  EXPECT_THAT(scene.text, HasSubstr(scene.request));
}

INSTANTIATE_TEST_SUITE_P(Causes, RemoteRefusalTexts, ::testing::ValuesIn(kRemoteRows),
                         [](const auto& row) { return row.param.cause; });

}  // namespace
}  // namespace hydrant::testing
