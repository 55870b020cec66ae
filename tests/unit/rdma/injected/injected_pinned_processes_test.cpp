// Keys of another process's memory on the injected network.
#include "tests/support/patience.hpp"
#include "tests/unit/rdma/injected/injected_pins_world.hpp"

#include <sys/wait.h>

namespace hydrant::testing {
namespace {

constexpr size_t kBytes = 1000;

struct Sent {
  uintptr_t addr = 0;
  Blob blob{};
};

template <class T>
bool say(int fd, const T& what) {
  return write(fd, &what, sizeof what) == ssize_t{sizeof what};
}
template <class T>
bool hear(int fd, T* what) {
  return read(fd, what, sizeof *what) == ssize_t{sizeof *what};
}

// Rank 1: pins, reports it, checks the data; unpins, reports it, checks that nothing arrived. 0 on success.
int own(int node, int in, int out) {
  hydrant_test_alarm(60);
  Pages elsewhere(100);  // at the address of the other process's pages
  NodeRank rank(node, 1, 2, ShmTransport::Threads::kMany);
  Adapter adapter;
  Pages memory(2);
  const Key first = pinned(*adapter.registrar, memory.range());
  char told = 0;
  if (!say(out, Sent{at(memory.data), exported(*adapter.registrar, memory.range(), first)}))
    return 1;
  if (!hear(in, &told)) return 2;
  if (memory.text(0, kBytes + 10) != "....." + std::string(kBytes, 'x') + ".....") return 3;
  std::memset(memory.data, '.', memory.bytes);
  if (adapter.registrar->unpin(memory.range(), first.data()) != UnpinResult::kDone) return 4;
  const Key second = pinned(*adapter.registrar, memory.range(), Access::kRemoteRead);
  if (!say(out, Sent{at(memory.data), exported(*adapter.registrar, memory.range(), second)}))
    return 5;
  if (!hear(in, &told)) return 6;
  return memory.is_untouched() ? 0 : 7;
}

TEST(InjectedPinnedProcesses, LiveKeysReachAnotherProcess) {
  NodeFile file(2);
  int to_child[2];
  int to_parent[2];
  ASSERT_EQ(pipe(to_child) | pipe(to_parent), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(to_child[1]);
    close(to_parent[0]);
    _exit(own(file.fd, to_child[0], to_parent[1]));
  }
  close(to_child[0]);
  close(to_parent[1]);

  NodeRank rank(file.fd, 0, 2, ShmTransport::Threads::kMany);
  JobTopology place;
  place.size = 2;
  place.node_ranks = {0, 1};
  std::unique_ptr<Transport> net;
  ASSERT_EQ(
      InjectedTransport::open(
          std::move(rank.transport), place,
          {.network = PinnedNode::with_pins({}), .has_thread = false, .clock = test_clock}, &net),
      Status::kOk);
  const std::unique_ptr<Registrar> here = net->pinned()->make_registrar();
  Pages mine(2);
  const Key local = pinned(*here, mine.range());
  Inbox inbox;
  // A put of x to byte 5, a get of the same to page 1; their results, at once or at completion.
  const auto go = [&](bool is_put, const Sent& there, const Key& key) {
    Told told;
    const PinnedOperations::Pinned remote{there.addr + 5, key.data()};
    const PinnedOperations::Pinned end{at(mine.data) + (is_put ? 0 : kPage), local.data()};
    const Status begun = is_put ? net->pinned()->put(1, remote, end, kBytes, &told)
                                : net->pinned()->get(1, remote, end, kBytes, &told);
    if (begun != Status::kOk) return begun;
    EXPECT_EQ(net->poll(inbox, 10, false), 1u);
    return told.status;
  };

  Sent first;
  Sent second;
  ASSERT_TRUE(hear(to_parent[0], &first));
  const Key old_key = imported(*here, first.blob);
  std::memset(mine.data, 'x', kBytes);
  EXPECT_EQ(go(true, first, old_key), Status::kOk) << last_error_text();
  EXPECT_EQ(go(false, first, old_key), Status::kOk);
  EXPECT_EQ(mine.text(kPage, kBytes), std::string(kBytes, 'x'));
  ASSERT_TRUE(say(to_child[1], 'x'));
  ASSERT_TRUE(hear(to_parent[0], &second));
  const Key new_key = imported(*here, second.blob);
  EXPECT_EQ(go(true, first, old_key), Status::kRefused);
  EXPECT_EQ(go(false, first, old_key), Status::kRefused);
  EXPECT_EQ(go(true, second, new_key), Status::kRefused) << "it may be read alone";
  EXPECT_EQ(go(false, second, new_key), Status::kOk);
  EXPECT_EQ(mine.text(kPage, kBytes), std::string(kBytes, '.'));
  ASSERT_TRUE(say(to_child[1], 'x'));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(go(false, second, new_key), Status::kBroken) << "the process has exited";
  close(to_child[1]);
  close(to_parent[0]);
}

}  // namespace
}  // namespace hydrant::testing
