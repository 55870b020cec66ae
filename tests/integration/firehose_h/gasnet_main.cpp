// A job whose ranks put words into each other's segments, like a pinning conduit: a remote pin, then a
// local pin, then the put. If the remote pin misses, the word travels with the move. Run by
// hydrant-run.
#include <cstdlib>
#include <deque>
#include <random>
#include <sched.h>
#include <vector>

#include "check.h"
#include "gasnet_client.h"

gex_TM_t client_team;

namespace {

uint32_t me;
uint32_t ranks;
uint64_t words_out[512];  // sources, one word per put
std::vector<uint64_t*> segments;

// A put, from its remote pin to its release.
struct Put {
  uint32_t to;
  uint64_t* at;
  uint64_t word;
  const firehose_request_t* remote;
};
std::deque<Put*> pinned;
unsigned in_flight;
unsigned hits;
unsigned moved;

size_t make_args(void* context, firehose_remotecallback_args_t* args) {
  const Put* put = static_cast<Put*>(context);
  args->at = put->at;
  args->word = put->word;
  return sizeof *args;
}

void completed(void* context, const firehose_request_t* request, int all_local_hit) {
  Put* put = static_cast<Put*>(context);
  CHECK(request->node == put->to && request->client.rkey / 1000000 == put->to);
  put->remote = request;
  if (all_local_hit != 0) {
    pinned.push_back(put);  // possibly in a handler, where pinning is forbidden
    return;
  }
  firehose_release(&put->remote, 1);  // the word has arrived
  delete put;
  --in_flight;
  ++moved;
}

void start_put(uint32_t to, size_t page, uint64_t word) {
  Put* put = new Put{to, segments[to] + page * (CLIENT_PAGE / 8) + me, word, nullptr};
  ++in_flight;
  const auto addr = reinterpret_cast<uintptr_t>(put->at);
  const uint32_t flags = FIREHOSE_FLAG_RETURN_IF_PINNED | FIREHOSE_FLAG_ENABLE_REMOTE_CALLBACK;
  put->remote = firehose_remote_pin(to, addr, 8, flags, nullptr, make_args, completed, put);
  if (put->remote == nullptr) return;
  ++hits;
  pinned.push_back(put);
}

// The remote pin comes first, then the pin of the source.
void finish_puts() {
  while (!pinned.empty()) {
    Put* put = pinned.front();
    pinned.pop_front();
    uint64_t* source = &words_out[put->word % 512];
    const firehose_request_t* both[2] = {
        put->remote, firehose_local_pin(reinterpret_cast<uintptr_t>(source), 8, nullptr)};
    *source = put->word;
    gex_RMA_PutBlocking(client_team, put->to, put->at, source, 8, 0);
    firehose_release(both, 2);
    delete put;
    --in_flight;
  }
}

void poll() {
  gasnet_AMPoll();
  firehose_poll();
  finish_puts();
}

// Other ranks may share this processor.
void poll_and_yield() {
  poll();
  sched_yield();
}

void barrier() {
  gex_Event_t event = gex_Coll_BarrierNB(client_team, 0);
  while (gex_Event_Test(event) != GASNET_OK) poll_and_yield();
}

void put_words(size_t steps) {
  std::mt19937 random(17 + me);
  // The last word that this rank has put to each page of another rank.
  std::vector<uint64_t> last(size_t{ranks} * CLIENT_PAGES, 0);
  const auto own = reinterpret_cast<uintptr_t>(segments[me]);
  for (size_t step = 1; step <= steps; ++step) {
    const auto to = static_cast<uint32_t>((me + 1 + random() % (ranks - 1)) % ranks);
    // Half of them near each other, so that some pins hit.
    const size_t page = random() % (random() % 2 == 0 ? 24 : size_t{CLIENT_PAGES});
    uint64_t& word = last[to * CLIENT_PAGES + page];
    // Two concurrent puts to one word are unordered.
    while (in_flight != 0 && (word != 0 || in_flight > 6)) poll_and_yield();
    word = step * 100 + me;
    start_put(to, page, word);
    if (random() % 4 == 0) poll();
    if (step % 50 == 0)
      firehose_local_invalidate(own + random() % CLIENT_PAGES * CLIENT_PAGE, 2 * CLIENT_PAGE);
  }
  while (in_flight != 0) poll_and_yield();
  barrier();
  for (uint32_t to = 0; to < ranks; ++to) {
    for (size_t page = 0; page < CLIENT_PAGES; ++page) {
      const uint64_t expected = last[to * CLIENT_PAGES + page];
      uint64_t found = 0;
      if (expected == 0) continue;
      gex_RMA_GetBlocking(client_team, &found, to, segments[to] + page * (CLIENT_PAGE / 8) + me, 8,
                          0);
      CHECK(found == expected);
    }
  }
}

void register_handlers(gex_EP_t endpoint) {
  FIREHOSE_HANDLERENTRY_T* table = firehose_get_handlertable();
  size_t n = 0;
  while (table[n].gex_fnptr != nullptr) ++n;
  CHECK(n == 2);
  CHECK(gex_EP_RegisterHandlers(endpoint, table, n) == GASNET_OK);
  CHECK(table[0].gex_index != 0 && table[1].gex_index != 0);
}

}  // namespace

int main(int argc, char** argv) {
  gex_Client_t client = nullptr;
  gex_EP_t endpoint = nullptr;
  gex_Segment_t segment = nullptr;
  CHECK(gex_Client_Init(&client, &endpoint, &client_team, "FIREHOSE", &argc, &argv, 0) ==
        GASNET_OK);
  me = gex_TM_QueryRank(client_team);
  ranks = gex_TM_QuerySize(client_team);
  CHECK(gex_Segment_Attach(&segment, client_team, size_t{CLIENT_PAGES} * CLIENT_PAGE) == GASNET_OK);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    void* theirs = nullptr;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(client_team, rank, &theirs, nullptr, nullptr, 0));
    segments.push_back(static_cast<uint64_t*>(theirs));
  }
  register_handlers(endpoint);
  firehose_info_t info;
  const size_t quotas = size_t{CLIENT_QUOTA} * (ranks - 1) * CLIENT_PAGE;
  client_start((4 * quotas + 2) / 3, &info);  // a quarter is MAXVICTIM
  CHECK(info.max_RemotePinSize == size_t{CLIENT_LARGEST} * CLIENT_PAGE);
  CHECK(info.max_RemoteRegions == CLIENT_QUOTA / CLIENT_LARGEST);
  barrier();
  put_words(3000);
  barrier();
  const client_counts_t counts = client_counts();
  std::printf(
      "rank %u: %u hits, %u words went with moves; as a target %u pins, %u unpins, %u calls\n", me,
      hits, moved, counts.pins, counts.unpins, counts.remote_callbacks);
  CHECK(hits != 0 && moved != 0 && counts.remote_callbacks != 0 && counts.unpins != 0);
  client_end();
  gex_Event_Wait(gex_Coll_BarrierNB(client_team, 0));
  gasnet_exit(0);
}
