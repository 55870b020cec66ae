#include "tests/unit/rdma/pmix/fake_pmix.hpp"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hydrant::testing::fake_pmix {
namespace {

struct Word {
  std::string name_space;
  uint32_t rank = 0;
  int code = 0;
};

std::mutex mutex;
Board board = Board::kCarries;
uint32_t self = 0;
std::string key;
int published_code = -1;
int lookup_count = 0;
bool is_finalized = false;
pmix_lookup_cbfunc_t waiting = nullptr;
void* waiting_for = nullptr;
std::vector<std::thread> threads;
Get get_answer;
std::vector<char> put_bytes;

void answer(const Word& word, int times) {
  pmix_pdata_t data{};
  std::strncpy(data.proc.nspace, word.name_space.c_str(), PMIX_MAX_NSLEN);
  data.proc.rank = word.rank;
  std::strncpy(data.key, key.c_str(), PMIX_MAX_KEYLEN);
  data.value.type = PMIX_INT;
  data.value.data.integer = word.code;
  const pmix_lookup_cbfunc_t call = waiting;
  waiting = nullptr;
  threads.emplace_back([call, data, times, argument = waiting_for]() mutable {
    std::vector<pmix_pdata_t> all(static_cast<size_t>(times), data);
    call(PMIX_SUCCESS, all.data(), all.size(), argument);
  });
}

pmix_value_t* make_number(uint32_t number) {
  auto* value = static_cast<pmix_value_t*>(std::calloc(1, sizeof(pmix_value_t)));
  value->type = PMIX_UINT32;
  value->data.uint32 = number;
  return value;
}

}  // namespace

void start(uint32_t rank, Board which) {
  const std::lock_guard lock(mutex);
  self = rank;
  board = which;
  published_code = -1;
  lookup_count = 0;
  is_finalized = false;
  waiting = nullptr;
}

void publish(const char* name_space, uint32_t rank, int code, int times) {
  const std::lock_guard lock(mutex);
  if (waiting != nullptr) answer({name_space, rank, code}, times);
}

int published() {
  const std::lock_guard lock(mutex);
  return published_code;
}

int lookups() {
  const std::lock_guard lock(mutex);
  return lookup_count;
}

bool finalized() {
  const std::lock_guard lock(mutex);
  return is_finalized;
}

void answer_gets(Get get) {
  const std::lock_guard lock(mutex);
  get_answer = std::move(get);
}

std::vector<char> last_put() {
  const std::lock_guard lock(mutex);
  return put_bytes;
}

void answer_lookup(pmix_status_t status, std::span<pmix_pdata_t> data) {
  pmix_lookup_cbfunc_t call = nullptr;
  void* argument = nullptr;
  {
    const std::lock_guard lock(mutex);
    call = std::exchange(waiting, nullptr);
    argument = waiting_for;
  }
  if (call != nullptr) call(status, data.data(), data.size(), argument);
}

}  // namespace hydrant::testing::fake_pmix

using namespace hydrant::testing::fake_pmix;

extern "C" {

pmix_status_t PMIx_Init(pmix_proc_t* proc, pmix_info_t*, size_t) {
  *proc = {};
  std::strncpy(proc->nspace, kNamespace, PMIX_MAX_NSLEN);
  proc->rank = self;
  return PMIX_SUCCESS;
}

pmix_status_t PMIx_Finalize(const pmix_info_t*, size_t) {
  std::vector<std::thread> all;
  {
    const std::lock_guard lock(mutex);
    is_finalized = true;
    all.swap(threads);
  }
  for (std::thread& thread : all) thread.join();
  return PMIX_SUCCESS;
}

pmix_status_t PMIx_Put(pmix_scope_t, const char*, pmix_value_t* value) {
  const std::lock_guard lock(mutex);
  put_bytes.assign(value->data.bo.bytes, value->data.bo.bytes + value->data.bo.size);
  return PMIX_SUCCESS;
}
pmix_status_t PMIx_Commit(void) { return PMIX_SUCCESS; }
pmix_status_t PMIx_Fence(const pmix_proc_t*, size_t, const pmix_info_t*, size_t) {
  return PMIX_SUCCESS;
}

pmix_status_t PMIx_Get(const pmix_proc_t* of, const char* name, const pmix_info_t*, size_t,
                       pmix_value_t** value) {
  Get get;
  {
    const std::lock_guard lock(mutex);
    get = get_answer;
  }
  if (get) return get(of->rank, name, value);
  if (std::strcmp(name, PMIX_LOCAL_PEERS) == 0) {
    *value = make_number(0);
    (*value)->type = PMIX_STRING;
    (*value)->data.string = strdup(self % 2 == 0 ? "0,2" : "1,3");
  } else if (std::strcmp(name, PMIX_JOB_SIZE) == 0) {
    *value = make_number(4);
  } else if (std::strcmp(name, PMIX_NUM_NODES) == 0) {
    *value = make_number(2);
  } else if (std::strcmp(name, PMIX_NODEID) == 0 &&
             (of->rank == self || board != Board::kHidesNodes)) {
    *value = make_number(7 - of->rank % 2);
  } else {
    return PMIX_ERR_NOT_FOUND;
  }
  return PMIX_SUCCESS;
}

const char* PMIx_Error_string(pmix_status_t) { return "a fake's error"; }

pmix_status_t PMIx_Publish_nb(const pmix_info_t info[], size_t, pmix_op_cbfunc_t done,
                              void* argument) {
  const std::lock_guard lock(mutex);
  if (board == Board::kUnsupported) return PMIX_ERR_NOT_SUPPORTED;
  key = info[0].key;
  published_code = info[0].value.data.integer;
  if (board == Board::kSilent) return PMIX_SUCCESS;
  threads.emplace_back([done, argument] { done(PMIX_SUCCESS, argument); });
  if (waiting != nullptr) answer({kNamespace, self, published_code}, 1);
  return PMIX_SUCCESS;
}

pmix_status_t PMIx_Lookup_nb(char** keys, const pmix_info_t[], size_t, pmix_lookup_cbfunc_t found,
                             void* argument) {
  const std::lock_guard lock(mutex);
  ++lookup_count;
  if (board == Board::kUnsupported) return PMIX_ERR_NOT_SUPPORTED;
  key = keys[0];
  if ((board == Board::kTimesOutOnce && lookup_count == 1) ||
      (board == Board::kNeverWaits && lookup_count < 100)) {
    threads.emplace_back([found, argument] { found(PMIX_ERR_TIMEOUT, nullptr, 0, argument); });
    return PMIX_SUCCESS;
  }
  waiting = found;
  waiting_for = argument;
  return PMIX_SUCCESS;
}

}  // extern "C"
