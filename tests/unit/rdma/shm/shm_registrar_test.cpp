// The shared-memory registrar: what it pins, exports and imports, in one process and in several.
#include "rdma/shm/shm_registrar.hpp"

#include <hydrant/alloc.h>

#include "rdma/transport/shared_files.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/child_server.hpp"
#include "tests/unit/rdma/shm/shared_memory.hpp"

#include <random>
#include <thread>
#include <vector>

namespace hydrant::testing {
namespace {

using shm::ShmBlob;
using shm::ShmKey;
using shm::ShmRegistrar;

constexpr Access kBoth = Access::kRemoteRead | Access::kRemoteWrite;
constexpr size_t kSharedBytes = 4 * kMiB;

char* allocate(size_t bytes = kSharedBytes) {
  return static_cast<char*>(hydrant_alloc_shared(kPage, bytes));
}

// Allocates memory and sends its blob first; then it obeys commands, a letter and an offset each:
//   r: sends the byte there;  w: writes '!' there;  b: sends the blob again;
//   f: frees it, trims, and sends the number of bytes that were returned;  q: exits.
void own_memory(MessageSocket& talk) {
  const auto registrar = make_shm_registrar();
  char* p = allocate();
  std::memset(p, 'o', kSharedBytes);
  talk.say(export_of(*registrar, p, kSharedBytes, kBoth));
  for (;;) {
    const std::string word = talk.hear();
    if (word.empty() || word[0] == 'q') return;
    char* const at = p + std::strtoull(word.c_str() + 1, nullptr, 10);
    switch (word[0]) {
      case 'r': talk.say(at, 1); break;
      case 'w':
        *at = '!';
        talk.say("done");
        break;
      case 'b': talk.say(export_of(*registrar, p, kSharedBytes, kBoth)); break;
      case 'f':
        hydrant_free(p);
        talk.say(std::to_string(hydrant_alloc_trim()));
        break;
      default: return;
    }
  }
}

ShmBlob decode(const std::string& blob) {
  ShmBlob decoded;
  EXPECT_EQ(
      shm::decode_shm_blob(reinterpret_cast<const std::byte*>(blob.data()), blob.size(), &decoded),
      Status::kOk);
  return decoded;
}

// ---- one process ----

TEST(ShmRegistrar, PinsSharedMemoryAndNoOther) {
  const auto registrar = make_shm_registrar();
  EXPECT_EQ(registrar->traits().key_bytes, sizeof(ShmKey));
  std::byte key[sizeof(ShmKey)];
  const auto pin = [&](uintptr_t addr, size_t len, Access access = kBoth) {
    return registrar->pin({addr, len}, access, key);
  };
  char* p = allocate();
  const auto addr = reinterpret_cast<uintptr_t>(p);
  EXPECT_EQ(pin(addr, kSharedBytes), Status::kOk);
  EXPECT_EQ(ShmKey::load(key).find(addr + 7, 1), reinterpret_cast<std::byte*>(p + 7));
  EXPECT_EQ(registrar->unpin({addr, kSharedBytes}, key), UnpinResult::kDone);
  EXPECT_EQ(pin(addr, kSharedBytes, Access::kAll), Status::kOk);
  EXPECT_EQ(pin(addr + 1, kPage), Status::kBadArg);
  EXPECT_EQ(pin(addr, kPage, static_cast<Access>(16)), Status::kBadArg);
  EXPECT_EQ(pin(addr, size_t{1} << 40), Status::kRefused) << "beyond its file";
  static std::byte other[2 * kPage];
  const uintptr_t own = (reinterpret_cast<uintptr_t>(other) + kPage - 1) & ~(kPage - 1);
  EXPECT_EQ(pin(own, kPage), Status::kRefused);
  EXPECT_NE(std::string(last_error_text()).find("hydrant_alloc_shared()"), std::string::npos);
  void* private_memory = hydrant_alloc(kSharedBytes);
  EXPECT_EQ(pin(reinterpret_cast<uintptr_t>(private_memory) & ~(kPage - 1), kPage),
            Status::kRefused);
  hydrant_free(private_memory);
  hydrant_free(p);
}

// As a segment, beside those of other processes in the file.
TEST(ShmRegistrar, PinsNoMoreOfAFileThanIsAnnounced) {
  const auto registrar = make_shm_registrar();
  const MemoryFile file(4 * kPage);
  void* const p = mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  ASSERT_NE(p, MAP_FAILED);
  const MemoryRange mine{reinterpret_cast<uintptr_t>(p) + kPage, 2 * kPage};
  ASSERT_EQ(announce_shared_file(mine, file.fd(), kPage), Status::kOk);
  std::byte key[sizeof(ShmKey)];
  EXPECT_EQ(registrar->pin({mine.addr, 3 * kPage}, kBoth, key), Status::kRefused);
  EXPECT_EQ(registrar->pin({mine.addr - kPage, kPage}, kBoth, key), Status::kRefused);
  const std::string blob =
      export_of(*registrar, reinterpret_cast<char*>(mine.addr + kPage), kPage, kBoth);
  EXPECT_EQ(decode(blob).offset, 2 * kPage);
  const Import import(*registrar, blob);
  ASSERT_EQ(import.status(), Status::kOk);
  *import.at(mine.addr + kPage) = 'p';
  EXPECT_EQ(static_cast<char*>(p)[2 * kPage], 'p');
  EXPECT_TRUE(forget_shared_file(mine));
  EXPECT_EQ(registrar->pin(mine, kBoth, key), Status::kRefused);
  munmap(p, 4 * kPage);
}

TEST(ShmRegistrar, ExportsOnlyOwnPins) {
  const auto registrar = make_shm_registrar();
  char* p = allocate();
  const std::string blob = export_of(*registrar, p, kSharedBytes, kBoth);
  const MemoryRange range{reinterpret_cast<uintptr_t>(p), kSharedBytes};
  std::byte key[sizeof(ShmKey)];
  ASSERT_EQ(registrar->pin(range, kBoth, key), Status::kOk);
  std::byte room[shm::kShmBlobBytes];
  size_t len = shm::kShmBlobBytes - 1;
  EXPECT_EQ(registrar->export_key(range, key, room, &len), Status::kBadArg);
  EXPECT_EQ(len, shm::kShmBlobBytes);
  EXPECT_EQ(registrar->export_key({range.addr, range.len + kPage}, key, room, &len),
            Status::kBadArg);
  const Import import(*registrar, blob);
  ASSERT_EQ(import.status(), Status::kOk);
  EXPECT_EQ(registrar->export_key(range, import.bytes(), room, &len), Status::kBadArg);
  EXPECT_EQ(registrar->unpin(range, import.bytes()), UnpinResult::kBroken);
  hydrant_free(p);
}

// Any blob: no crash, only existing memory is mapped, and no mapping is left.
TEST(ShmRegistrar, AnyBlobIsMappedOrRefused) {
  const auto registrar = make_shm_registrar();
  char* p = allocate();
  std::memset(p, 1, kSharedBytes);
  const std::string blob = export_of(*registrar, p + kPage, kSharedBytes / 2, kBoth);
  std::mt19937_64 random(11);
  int mapped = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bad = blob;
    for (int changes = static_cast<int>(random() % 3); changes >= 0; --changes) {
      const size_t at = random() % bad.size();
      bad[at] = static_cast<char>(random() % 4 == 0
                                      ? random()
                                      : static_cast<unsigned char>(bad[at]) ^ (1u << random() % 8));
    }
    if (random() % 8 == 0) bad.resize(random() % (bad.size() + 8));
    const Import import(*registrar, bad);
    if (import.status() != Status::kOk) continue;
    ++mapped;
    const ShmKey key = import.key();
    const auto* const first = reinterpret_cast<const volatile char*>(key.here);
    (void)first[0];
    (void)first[key.range.len - 1];
  }
  EXPECT_GT(mapped, 50);
  EXPECT_EQ(registrar->attachments().attachments, 0u);
  EXPECT_EQ(mapped_here(decode(blob).inode).times, 1) << "the arena's own";
  hydrant_free(p);
}

// ---- two processes ----

TEST(ShmRegistrar, WritesThroughTheMappingAreSeenByTheOwner) {
  OtherProcess owner(own_memory);
  const auto registrar = make_shm_registrar();
  const std::string blob = owner.talk().hear();
  const uintptr_t addr = decode(blob).range.addr;
  Import import(*registrar, blob);
  ASSERT_EQ(import.status(), Status::kOk) << last_error_text();
  EXPECT_EQ(import.at(addr, kSharedBytes + 1), nullptr);
  for (const size_t offset : {size_t{0}, size_t{4095}, kMiB + 3, kSharedBytes - 1}) {
    EXPECT_EQ(*import.at(addr + offset), 'o');
    *import.at(addr + offset) = 'p';
    EXPECT_EQ(owner.ask("r" + std::to_string(offset)), "p");
    owner.ask("w" + std::to_string(offset));
    EXPECT_EQ(*import.at(addr + offset), '!');
  }
  owner.talk().say("q");
  EXPECT_EQ(owner.end(), "");
  *import.at(addr) = 'x';
  EXPECT_EQ(*import.at(addr), 'x') << "good when its owner has left";
}

TEST(ShmRegistrar, KilledOwnerLeavesOnlyTheMapping) {
  OtherProcess owner(own_memory);
  const auto registrar = make_shm_registrar();
  const std::string blob = owner.talk().hear();
  const uintptr_t addr = decode(blob).range.addr;
  Import import(*registrar, blob);
  ASSERT_EQ(import.status(), Status::kOk);
  owner.kill();
  for (size_t offset = 0; offset < kSharedBytes; offset += kPage) {
    ASSERT_EQ(*import.at(addr + offset), 'o');
    *import.at(addr + offset) = 'x';
  }
  {
    const Import more(*registrar, blob);
    EXPECT_EQ(more.status(), Status::kOk) << "it is mapped here";
  }
  import.drop();
  EXPECT_EQ(mapped_here(decode(blob).inode).times, 0);
  EXPECT_EQ(registrar->attachments().attachments, 0u);
  const Import none(*registrar, blob);
  EXPECT_EQ(none.status(), Status::kBroken);
  EXPECT_NE(std::string(last_error_text()).find("is gone"), std::string::npos);
}

// The arena alone, without a cache to notify: the pages are freed, and both processes still see the same.
TEST(ShmRegistrar, BothSeeTheSameBytesAfterTheOwnerHasEmptiedThem) {
  OtherProcess owner(own_memory);
  const auto registrar = make_shm_registrar();
  const std::string blob = owner.talk().hear();
  const uintptr_t addr = decode(blob).range.addr;
  const Import import(*registrar, blob);
  ASSERT_EQ(import.status(), Status::kOk);
  EXPECT_GE(std::stoul("0" + owner.ask("f")), kSharedBytes);
  EXPECT_EQ(*import.at(addr), 0) << "as the owner would see it";
  *import.at(addr) = 'p';
  EXPECT_EQ(owner.ask("r0"), "p");
  owner.ask("w0");
  EXPECT_EQ(*import.at(addr), '!');
}

TEST(ShmRegistrar, ReadersGetReadOnlyMappings) {
  OtherProcess owner([](MessageSocket& talk) {
    const auto registrar = make_shm_registrar();
    char* p = allocate();
    *p = 'o';
    talk.say(export_of(*registrar, p, kSharedBytes, Access::kRemoteRead));
    (void)talk.hear();
  });
  const auto registrar = make_shm_registrar();
  const std::string blob = owner.talk().hear();
  const Import import(*registrar, blob);
  ASSERT_EQ(import.status(), Status::kOk);
  EXPECT_EQ(*import.at(decode(blob).range.addr), 'o');
  EXPECT_EQ(mapped_here(decode(blob).inode).rights, "r--s");
}

TEST(ShmRegistrar, SmallPiecesOfAnArenaShareAMapping) {
  OtherProcess owner([](MessageSocket& talk) {
    const auto registrar = make_shm_registrar();
    char* p = allocate();
    for (size_t i = 0; i < kSharedBytes / kPage; ++i) {
      p[i * kPage] = static_cast<char>(i);
      talk.say(export_of(*registrar, p + i * kPage, kPage, kBoth));
    }
    (void)talk.hear();
  });
  const auto registrar = make_shm_registrar();
  std::vector<std::unique_ptr<Import>> imports;
  for (size_t i = 0; i < kSharedBytes / kPage; ++i) {
    const std::string blob = owner.talk().hear();
    imports.push_back(std::make_unique<Import>(*registrar, blob));
    ASSERT_EQ(imports.back()->status(), Status::kOk);
    ASSERT_EQ(*imports.back()->at(decode(blob).range.addr), static_cast<char>(i));
  }
  EXPECT_EQ(registrar->attachments().opened, 1u);
  imports.clear();
  EXPECT_EQ(registrar->attachments().attachments, 0u);
}

// ---- forks ----

TEST(ShmRegistrar, ChildStartsEmpty) {
  const auto registrar = make_shm_registrar();
  char* p = allocate();
  *p = 'o';
  const MemoryRange range{reinterpret_cast<uintptr_t>(p), kSharedBytes};
  const std::string blob = export_of(*registrar, p, kSharedBytes, kBoth);
  Import import(*registrar, blob);
  ASSERT_EQ(import.status(), Status::kOk);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              registrar->forget_in_child();
              std::byte key[sizeof(ShmKey)];
              if (registrar->pin(range, kBoth, key) != Status::kRefused) return "pins the parent's";
              registrar->drop_import(import.bytes());
              if (registrar->attachments().keys != 0) return "keeps the parent's keys";
              // Its parent is a process like any other.
              const Import again(*registrar, blob);
              if (again.status() != Status::kOk) return last_error_text();
              *again.at(range.addr) = 'c';
              // The child's exports are of its own memory.
              char* own = allocate();
              *own = 'C';
              const std::string mine = export_of(*registrar, own, kSharedBytes, kBoth);
              if (decode(mine).process != static_cast<uint32_t>(getpid())) return "another's";
              const Import self(*registrar, mine);
              if (self.status() != Status::kOk) return last_error_text();
              return *self.at(reinterpret_cast<uintptr_t>(own)) == 'C' ? "" : "other bytes";
            }),
            "");
  EXPECT_EQ(*p, 'c');
  EXPECT_EQ(*import.at(range.addr), 'c');
  hydrant_free(p);
}

// ---- threads ----

TEST(ShmRegistrar, ThreadsPinExportImportAndWriteAtOnce) {
  constexpr int kThreads = 4;
  const auto registrar = make_shm_registrar();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        char* p = allocate(static_cast<size_t>(1 + round % 5) * kPage);
        p[0] = static_cast<char>(t);
        const Import import(*registrar, export_of(*registrar, p, kPage, kBoth));
        if (import.status() != Status::kOk) {
          ++wrong;
          continue;
        }
        char* const q = import.at(reinterpret_cast<uintptr_t>(p));
        if (*q != t) ++wrong;
        q[1] = static_cast<char>(round);
        if (p[1] != static_cast<char>(round)) ++wrong;
        hydrant_free(p);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(registrar->attachments().attachments, 0u);
}

}  // namespace
}  // namespace hydrant::testing
