// A libpmix.so.2 for one process: a rank of a job on two nodes, with a board where events are published. The
// test acts as the launcher and the other ranks; PMIx's replies come in a thread of its own.
#pragma once

#include <pmix.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace hydrant::testing::fake_pmix {

enum class Board : uint32_t {
  kCarries,
  kUnsupported,
  kSilent,
  kTimesOutOnce,
  kNeverWaits,
  kHidesNodes
};

// Rank `rank` of four; 0 and 2 are on a node, 1 and 3 on another. The launcher numbers these nodes 7 and 6;
// with kHidesNodes it reports a rank's node to that rank alone. Before PMIx_Init.
void start(uint32_t rank, Board board);
// Another rank publishes that it exits; `times` can repeat the reply, as no launcher should.
void publish(const char* name_space, uint32_t rank, int code, int times);
// The code that this process has published; -1 before.
int published();
int lookups();
bool finalized();
constexpr char kNamespace[] = "job-1";

// Replies to PMIx_Get() for `rank` in place of the job of four, and runs in the calling thread. Empty: that
// job again. A value and its contents are allocated by malloc().
using Get = std::function<pmix_status_t(uint32_t rank, const char* key, pmix_value_t** value)>;
void answer_gets(Get get);
// The bytes of the last PMIx_Put().
std::vector<char> last_put();
// Completes the waiting lookup, if there is one, in the calling thread.
void answer_lookup(pmix_status_t status, std::span<pmix_pdata_t> data);

}  // namespace hydrant::testing::fake_pmix
