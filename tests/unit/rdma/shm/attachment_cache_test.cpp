// Mappings of other processes' memory files: how many, what is refused, what is left.
#include "rdma/shm/attachment_cache.hpp"

#include "tests/support/child_process.hpp"
#include "tests/unit/rdma/shm/shared_memory.hpp"

#include <random>
#include <sys/prctl.h>
#include <thread>
#include <vector>

namespace hydrant::testing {
namespace {

using shm::ShmBlob;
using shm::ShmWindows;
using Place = ShmWindows::Place;

char* pointer(const Place& place) { return reinterpret_cast<char*>(place.addr); }

TEST(ShmWindows, MapsWhatTheFileHas) {
  const MemoryFile file(3 * kMiB);
  const char text[] = "as written by its owner";
  ASSERT_EQ(pwrite(file.fd(), text, sizeof text, kMiB), static_cast<ssize_t>(sizeof text));
  ShmWindows windows;
  Place place;
  ASSERT_EQ(windows.map(file.blob(kMiB, kPage), true, &place), Status::kOk) << last_error_text();
  EXPECT_STREQ(pointer(place), text);
  std::memcpy(pointer(place), "changed", 7);
  char seen[7] = {};
  ASSERT_EQ(pread(file.fd(), seen, 7, kMiB), 7);
  EXPECT_EQ(std::memcmp(seen, "changed", 7), 0);
  windows.drop(place);
  EXPECT_EQ(mapped_here(file.blob().inode).times, 0);
}

TEST(ShmWindows, ManySmallPiecesAreOneMapping) {
  const MemoryFile file(8 * kMiB);
  ShmWindows windows;
  std::vector<Place> places(1000);
  for (size_t i = 0; i < places.size(); ++i) {
    const uint64_t offset = i * 2 * kPage;
    ASSERT_EQ(windows.map(file.blob(offset, kPage), true, &places[i]), Status::kOk);
    EXPECT_EQ(places[i].addr, places[0].addr + offset);
  }
  EXPECT_EQ(windows.counts().opened, 1u);
  EXPECT_EQ(windows.counts().keys, places.size());
  EXPECT_EQ(windows.counts().mapped_bytes, 8 * kMiB) << "no more than the file has";
  for (const Place& place : places) windows.drop(place);
  EXPECT_EQ(windows.counts().windows, 0u);
}

TEST(ShmWindows, ARangeOverTheBordersOfBlocksHasOneOfItsOwn) {
  const MemoryFile file(64 * kMiB);
  ShmWindows windows;
  Place place;
  ASSERT_EQ(windows.map(file.blob(15 * kMiB, 34 * kMiB), true, &place), Status::kOk);
  pointer(place)[0] = 1;
  pointer(place)[34 * kMiB - 1] = 2;
  Place inside;
  ASSERT_EQ(windows.map(file.blob(47 * kMiB, kMiB), true, &inside), Status::kOk);
  EXPECT_EQ(inside.addr, place.addr + 32 * kMiB);
  EXPECT_EQ(windows.counts().windows, 1u);
  EXPECT_EQ(place.addr % (2 * kMiB), kMiB) << "as huge pages want it";
  windows.drop(inside);
  windows.drop(place);
}

TEST(ShmWindows, UnusedOnesStayWhileTheirFileIsInUseUpToABound) {
  constexpr uint64_t kBlocks = 3 * ShmWindows::kMostIdle;
  const MemoryFile file(kBlocks * ShmWindows::kWindowBytes);
  ShmWindows windows;
  std::vector<Place> places(kBlocks);
  for (uint64_t i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(windows.map(file.blob(i * ShmWindows::kWindowBytes, kPage), true, &places[i]),
              Status::kOk);
  }
  EXPECT_EQ(windows.counts().windows, kBlocks);
  for (uint64_t i = 1; i < kBlocks; ++i) {
    windows.drop(places[i]);
    EXPECT_LE(windows.counts().idle_windows, ShmWindows::kMostIdle);
  }
  // The one that was used last is still there.
  const uint64_t opened = windows.counts().opened;
  Place again;
  const uint64_t last = (kBlocks - 1) * ShmWindows::kWindowBytes;
  ASSERT_EQ(windows.map(file.blob(last, kPage), true, &again), Status::kOk);
  EXPECT_EQ(again.addr, places[kBlocks - 1].addr);
  EXPECT_EQ(windows.counts().opened, opened);
  windows.drop(again);
  windows.drop(places[0]);
  EXPECT_EQ(windows.counts().windows, 0u) << "with the last key of a file all of them go";
  EXPECT_EQ(windows.counts().files, 0u);
  EXPECT_EQ(mapped_here(file.blob().inode).times, 0);
}

TEST(ShmWindows, MoreThanTheMostAreRefusedUntilSomeAreDropped) {
  const MemoryFile file((ShmWindows::kMostWindows + 2) * ShmWindows::kWindowBytes);
  ShmWindows windows;
  std::vector<Place> places(ShmWindows::kMostWindows);
  uint64_t at = 0;
  for (Place& place : places) {
    ASSERT_EQ(windows.map(file.blob(at, kPage), true, &place), Status::kOk) << last_error_text();
    at += ShmWindows::kWindowBytes;
  }
  Place more;
  EXPECT_EQ(windows.map(file.blob(at, kPage), true, &more), Status::kNotReady);
  EXPECT_NE(std::string(last_error_text()).find("4096 mappings"), std::string::npos);
  windows.drop(places[7]);
  ASSERT_EQ(windows.map(file.blob(at, kPage), true, &places[7]), Status::kOk);
  for (const Place& place : places) windows.drop(place);
  EXPECT_EQ(windows.counts().windows, 0u);
}

TEST(ShmWindows, ReadersCannotWrite) {
  const MemoryFile file(kMiB);
  ShmWindows windows;
  Place reader;
  Place writer;
  ASSERT_EQ(windows.map(file.blob(), false, &reader), Status::kOk);
  EXPECT_EQ(mapped_here(file.blob().inode).rights, "r--s");
  ASSERT_EQ(windows.map(file.blob(), true, &writer), Status::kOk);
  EXPECT_NE(reader.addr, writer.addr);
  *pointer(writer) = 'w';
  EXPECT_EQ(*pointer(reader), 'w');
  windows.drop(writer);
  EXPECT_EQ(mapped_here(file.blob().inode).rights, "r--s");
  windows.drop(reader);
}

TEST(ShmWindows, WhatIsNotAsTheBlobSaysIsRefused) {
  const MemoryFile file(kMiB);
  const MemoryFile shrinkable(kMiB, 0);
  const MemoryFile sealed(kMiB, F_SEAL_SHRINK | F_SEAL_WRITE);
  const int huge = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
  ASSERT_EQ(ftruncate(huge, 2 * kMiB), 0);
  ASSERT_EQ(fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  std::FILE* disk = std::tmpfile();
  ASSERT_EQ(ftruncate(fileno(disk), kMiB), 0);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  ShmWindows windows;
  Place place;
  const auto expect = [&](const char* what, const ShmBlob& blob, Status status, const char* text) {
    EXPECT_EQ(windows.map(blob, true, &place), status) << what;
    EXPECT_NE(std::string(last_error_text()).find(text), std::string::npos)
        << what << ": " << last_error_text();
    EXPECT_EQ(place.addr, 0u) << what;
  };
  expect("beyond the end", file.blob(kMiB, kPage), Status::kRefused, "which has 1048576");
  expect("over the end", file.blob(kMiB - kPage, 2 * kPage), Status::kRefused, "which has");
  expect("may shrink", shrinkable.blob(), Status::kRefused, "F_SEAL_SHRINK");
  expect("not to be written", sealed.blob(), Status::kRefused, "sealed against writing");
  expect("on a disk", MemoryFile::blob_of(fileno(disk), 0, kPage), Status::kRefused,
         "F_SEAL_SHRINK");
  expect("huge pages", MemoryFile::blob_of(huge, 0, 2 * kMiB), Status::kRefused, "huge pages");
  expect("a pipe", MemoryFile::blob_of(pipe_ends[0], 0, kPage), Status::kRefused, "another file");
  ShmBlob wrong = file.blob();
  ++wrong.inode;
  expect("another file", wrong, Status::kRefused, "another file");
  wrong = file.blob();
  ++wrong.device;
  expect("another device", wrong, Status::kRefused, "another file");
  wrong = file.blob();
  ++wrong.start_time;
  expect("another process", wrong, Status::kBroken, "gone");
  wrong = file.blob();
  wrong.process = 0x7fffffff;
  expect("no process", wrong, Status::kBroken, "gone");
  wrong = file.blob();
  wrong.descriptor = 1'000'000;
  expect("no descriptor", wrong, Status::kRefused, "has closed the file");
  EXPECT_EQ(windows.map(sealed.blob(), false, &place), Status::kOk) << "to read it";
  windows.drop(place);
  EXPECT_EQ(windows.counts().windows, 0u);
  close(huge);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  std::fclose(disk);
}

TEST(ShmWindows, WhereTheKernelForbidsItTheTextSaysSo) {
  const MemoryFile file(kMiB);
  const ShmBlob blob = file.blob();
  const std::string said = run_in_child([&]() -> std::string {
    if (const std::string why = become_ordinary_user(1 << 20); !why.empty()) return "skip: " + why;
    ShmWindows windows;
    Place place;
    if (windows.map(blob, true, &place) != Status::kRefused) return "not refused";
    const std::string text = last_error_text();
    return text.find("the kernel forbids to open") != std::string::npos ? "" : text;
  });
  if (said.rfind("skip: ", 0) == 0) GTEST_SKIP() << said;
  EXPECT_EQ(said, "");
}

TEST(ShmWindows, NothingIsLeftOpen) {
  const auto descriptors = [] {
    const int next = dup(0);
    close(next);
    return next;
  };
  const MemoryFile file(kMiB);
  const int before = descriptors();
  ShmWindows windows;
  Place place;
  ASSERT_EQ(windows.map(file.blob(), true, &place), Status::kOk);
  EXPECT_EQ(descriptors(), before) << "a descriptor would keep the memory of the dead, too";
  ShmBlob wrong = file.blob(kMiB, kPage);
  Place none;
  EXPECT_EQ(windows.map(wrong, true, &none), Status::kRefused);
  EXPECT_EQ(descriptors(), before);
  windows.drop(place);
}

TEST(ShmWindows, PlacesOfAnotherLifeHaveNoEffect) {
  const MemoryFile file(kMiB);
  ShmWindows windows;
  Place old;
  ASSERT_EQ(windows.map(file.blob(), true, &old), Status::kOk);
  windows.drop(old);
  Place now;
  ASSERT_EQ(windows.map(file.blob(), true, &now), Status::kOk);
  windows.drop(old);
  windows.drop({now.addr, 4711, now.life});
  EXPECT_EQ(windows.counts().keys, 1u);
  *pointer(now) = 1;
  windows.drop(now);
  windows.drop(now);
  EXPECT_EQ(windows.counts().keys, 0u);
}

TEST(ShmWindows, AChildOfAForkHasNoneOfThem) {
  const MemoryFile file(kMiB);
  ShmWindows windows;
  Place place;
  ASSERT_EQ(windows.map(file.blob(), true, &place), Status::kOk);
  const ShmBlob blob = file.blob();
  EXPECT_EQ(run_in_child([&]() -> std::string {
              if (mapped_here(blob.inode).times != 0) return "inherited";
              windows.forget_in_child();
              if (windows.counts().windows != 0) return "believed to be mapped";
              windows.drop(place);
              if (windows.counts().keys != 0) return "counted";
              Place own;
              if (windows.map(blob, true, &own) != Status::kOk) return last_error_text();
              *pointer(own) = 'c';
              windows.drop(place);
              if (windows.counts().keys != 1) return "the parent's place is the child's";
              windows.drop(own);
              return mapped_here(blob.inode).times == 0 ? "" : "left behind";
            }),
            "");
  EXPECT_EQ(*pointer(place), 'c');
  windows.drop(place);
}

TEST(ShmWindows, ThreadsMapAndDropAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 3000;
  const MemoryFile files[] = {MemoryFile(40 * kMiB), MemoryFile(40 * kMiB)};
  ShmWindows windows;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<std::pair<Place, char*>> held;
      for (int round = 0; round < kRounds; ++round) {
        // Each thread has pages of its own.
        const uint64_t offset =
            (random() % 2500) * kThreads * kPage + static_cast<uint64_t>(t) * kPage;
        Place place;
        if (windows.map(files[random() % 2].blob(offset, kPage), true, &place) != Status::kOk) {
          ++wrong;
          continue;
        }
        *pointer(place) = static_cast<char>(t + 1);
        held.emplace_back(place, pointer(place));
        if (held.size() < 8) continue;
        for (const auto& [old, p] : held) {
          if (*p != t + 1) ++wrong;
          windows.drop(old);
        }
        held.clear();
      }
      for (const auto& [old, p] : held) windows.drop(old);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(windows.counts().keys, 0u);
  EXPECT_EQ(windows.counts().windows, 0u);
  for (const MemoryFile& file : files) EXPECT_EQ(mapped_here(file.blob().inode).times, 0);
}

}  // namespace
}  // namespace hydrant::testing
