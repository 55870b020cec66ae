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

using shm::AttachmentCache;
using shm::ShmBlob;
using AttachmentRef = AttachmentCache::AttachmentRef;

char* pointer(const AttachmentRef& ref) { return reinterpret_cast<char*>(ref.addr); }

TEST(AttachmentCache, MapsTheFileContents) {
  const MemoryFile file(3 * kMiB);
  const char text[] = "as written by its owner";
  ASSERT_EQ(pwrite(file.fd(), text, sizeof text, kMiB), static_cast<ssize_t>(sizeof text));
  AttachmentCache attachments;
  AttachmentRef ref;
  ASSERT_EQ(attachments.map(file.blob(kMiB, kPage), true, &ref), Status::kOk) << last_error_text();
  EXPECT_STREQ(pointer(ref), text);
  std::memcpy(pointer(ref), "changed", 7);
  char seen[7] = {};
  ASSERT_EQ(pread(file.fd(), seen, 7, kMiB), 7);
  EXPECT_EQ(std::memcmp(seen, "changed", 7), 0);
  attachments.drop(ref);
  EXPECT_EQ(mapped_here(file.blob().inode).times, 0);
}

TEST(AttachmentCache, ManySmallPiecesAreOneMapping) {
  const MemoryFile file(8 * kMiB);
  AttachmentCache attachments;
  std::vector<AttachmentRef> refs(1000);
  for (size_t i = 0; i < refs.size(); ++i) {
    const uint64_t offset = i * 2 * kPage;
    ASSERT_EQ(attachments.map(file.blob(offset, kPage), true, &refs[i]), Status::kOk);
    EXPECT_EQ(refs[i].addr, refs[0].addr + offset);
  }
  EXPECT_EQ(attachments.counts().opened, 1u);
  EXPECT_EQ(attachments.counts().keys, refs.size());
  EXPECT_EQ(attachments.counts().mapped_bytes, 8 * kMiB) << "no more than the file has";
  for (const AttachmentRef& ref : refs) attachments.drop(ref);
  EXPECT_EQ(attachments.counts().attachments, 0u);
}

TEST(AttachmentCache, RangeAcrossBlocksHasItsOwnAttachment) {
  const MemoryFile file(64 * kMiB);
  AttachmentCache attachments;
  AttachmentRef ref;
  ASSERT_EQ(attachments.map(file.blob(15 * kMiB, 34 * kMiB), true, &ref), Status::kOk);
  pointer(ref)[0] = 1;
  pointer(ref)[34 * kMiB - 1] = 2;
  AttachmentRef inside;
  ASSERT_EQ(attachments.map(file.blob(47 * kMiB, kMiB), true, &inside), Status::kOk);
  EXPECT_EQ(inside.addr, ref.addr + 32 * kMiB);
  EXPECT_EQ(attachments.counts().attachments, 1u);
  EXPECT_EQ(ref.addr % (2 * kMiB), kMiB) << "as huge pages want it";
  attachments.drop(inside);
  attachments.drop(ref);
}

TEST(AttachmentCache, UnusedOnesStayWhileTheirFileIsInUseUpToABound) {
  constexpr uint64_t kBlocks = 3 * AttachmentCache::kMaxIdle;
  const MemoryFile file(kBlocks * AttachmentCache::kAttachmentBytes);
  AttachmentCache attachments;
  std::vector<AttachmentRef> refs(kBlocks);
  for (uint64_t i = 0; i < kBlocks; ++i) {
    ASSERT_EQ(
        attachments.map(file.blob(i * AttachmentCache::kAttachmentBytes, kPage), true, &refs[i]),
        Status::kOk);
  }
  EXPECT_EQ(attachments.counts().attachments, kBlocks);
  for (uint64_t i = 1; i < kBlocks; ++i) {
    attachments.drop(refs[i]);
    EXPECT_LE(attachments.counts().idle_attachments, AttachmentCache::kMaxIdle);
  }
  // The one that was used last is still there.
  const uint64_t opened = attachments.counts().opened;
  AttachmentRef again;
  const uint64_t last = (kBlocks - 1) * AttachmentCache::kAttachmentBytes;
  ASSERT_EQ(attachments.map(file.blob(last, kPage), true, &again), Status::kOk);
  EXPECT_EQ(again.addr, refs[kBlocks - 1].addr);
  EXPECT_EQ(attachments.counts().opened, opened);
  attachments.drop(again);
  attachments.drop(refs[0]);
  EXPECT_EQ(attachments.counts().attachments, 0u) << "with the last key of a file all of them go";
  EXPECT_EQ(attachments.counts().files, 0u);
  EXPECT_EQ(mapped_here(file.blob().inode).times, 0);
}

TEST(AttachmentCache, AttachmentsBeyondTheLimitAreRefused) {
  const MemoryFile file((AttachmentCache::kMaxAttachments + 2) * AttachmentCache::kAttachmentBytes);
  AttachmentCache attachments;
  std::vector<AttachmentRef> refs(AttachmentCache::kMaxAttachments);
  uint64_t at = 0;
  for (AttachmentRef& ref : refs) {
    ASSERT_EQ(attachments.map(file.blob(at, kPage), true, &ref), Status::kOk) << last_error_text();
    at += AttachmentCache::kAttachmentBytes;
  }
  AttachmentRef more;
  EXPECT_EQ(attachments.map(file.blob(at, kPage), true, &more), Status::kNotReady);
  EXPECT_NE(std::string(last_error_text()).find("4096 mappings"), std::string::npos);
  attachments.drop(refs[7]);
  ASSERT_EQ(attachments.map(file.blob(at, kPage), true, &refs[7]), Status::kOk);
  for (const AttachmentRef& ref : refs) attachments.drop(ref);
  EXPECT_EQ(attachments.counts().attachments, 0u);
}

TEST(AttachmentCache, ReadersCannotWrite) {
  const MemoryFile file(kMiB);
  AttachmentCache attachments;
  AttachmentRef reader;
  AttachmentRef writer;
  ASSERT_EQ(attachments.map(file.blob(), false, &reader), Status::kOk);
  EXPECT_EQ(mapped_here(file.blob().inode).rights, "r--s");
  ASSERT_EQ(attachments.map(file.blob(), true, &writer), Status::kOk);
  EXPECT_NE(reader.addr, writer.addr);
  *pointer(writer) = 'w';
  EXPECT_EQ(*pointer(reader), 'w');
  attachments.drop(writer);
  EXPECT_EQ(mapped_here(file.blob().inode).rights, "r--s");
  attachments.drop(reader);
}

TEST(AttachmentCache, MismatchWithTheKeyIsRejected) {
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
  AttachmentCache attachments;
  AttachmentRef ref;
  const auto expect = [&](const char* what, const ShmBlob& blob, Status status, const char* text) {
    EXPECT_EQ(attachments.map(blob, true, &ref), status) << what;
    EXPECT_NE(std::string(last_error_text()).find(text), std::string::npos)
        << what << ": " << last_error_text();
    EXPECT_EQ(ref.addr, 0u) << what;
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
  EXPECT_EQ(attachments.map(sealed.blob(), false, &ref), Status::kOk) << "to read it";
  attachments.drop(ref);
  EXPECT_EQ(attachments.counts().attachments, 0u);
  close(huge);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  std::fclose(disk);
}

TEST(AttachmentCache, ForbiddenByTheKernelIsReported) {
  const MemoryFile file(kMiB);
  const ShmBlob blob = file.blob();
  const std::string said = run_in_child([&]() -> std::string {
    if (const std::string why = become_ordinary_user(1 << 20); !why.empty()) return "skip: " + why;
    AttachmentCache attachments;
    AttachmentRef ref;
    if (attachments.map(blob, true, &ref) != Status::kRefused) return "not refused";
    const std::string text = last_error_text();
    return text.find("the kernel forbids to open") != std::string::npos ? "" : text;
  });
  if (said.rfind("skip: ", 0) == 0) GTEST_SKIP() << said;
  EXPECT_EQ(said, "");
}

TEST(AttachmentCache, NothingIsLeftOpen) {
  const auto descriptors = [] {
    const int next = dup(0);
    close(next);
    return next;
  };
  const MemoryFile file(kMiB);
  const int before = descriptors();
  AttachmentCache attachments;
  AttachmentRef ref;
  ASSERT_EQ(attachments.map(file.blob(), true, &ref), Status::kOk);
  EXPECT_EQ(descriptors(), before) << "a descriptor would keep the memory of the dead, too";
  ShmBlob wrong = file.blob(kMiB, kPage);
  AttachmentRef none;
  EXPECT_EQ(attachments.map(wrong, true, &none), Status::kRefused);
  EXPECT_EQ(descriptors(), before);
  attachments.drop(ref);
}

TEST(AttachmentCache, DropOfAStaleReferenceHasNoEffect) {
  const MemoryFile file(kMiB);
  AttachmentCache attachments;
  AttachmentRef old;
  ASSERT_EQ(attachments.map(file.blob(), true, &old), Status::kOk);
  attachments.drop(old);
  AttachmentRef now;
  ASSERT_EQ(attachments.map(file.blob(), true, &now), Status::kOk);
  attachments.drop(old);
  attachments.drop({now.addr, 4711, now.life});
  EXPECT_EQ(attachments.counts().keys, 1u);
  *pointer(now) = 1;
  attachments.drop(now);
  attachments.drop(now);
  EXPECT_EQ(attachments.counts().keys, 0u);
}

TEST(AttachmentCache, ChildHasNoAttachments) {
  const MemoryFile file(kMiB);
  AttachmentCache attachments;
  AttachmentRef ref;
  ASSERT_EQ(attachments.map(file.blob(), true, &ref), Status::kOk);
  const ShmBlob blob = file.blob();
  EXPECT_EQ(run_in_child([&]() -> std::string {
              if (mapped_here(blob.inode).times != 0) return "inherited";
              attachments.forget_in_child();
              if (attachments.counts().attachments != 0) return "believed to be mapped";
              attachments.drop(ref);
              if (attachments.counts().keys != 0) return "counted";
              AttachmentRef own;
              if (attachments.map(blob, true, &own) != Status::kOk) return last_error_text();
              *pointer(own) = 'c';
              attachments.drop(ref);
              if (attachments.counts().keys != 1) return "the parent's reference is the child's";
              attachments.drop(own);
              return mapped_here(blob.inode).times == 0 ? "" : "left behind";
            }),
            "");
  EXPECT_EQ(*pointer(ref), 'c');
  attachments.drop(ref);
}

TEST(AttachmentCache, ThreadsMapAndDropAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 3000;
  const MemoryFile files[] = {MemoryFile(40 * kMiB), MemoryFile(40 * kMiB)};
  AttachmentCache attachments;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<std::pair<AttachmentRef, char*>> held;
      for (int round = 0; round < kRounds; ++round) {
        // Each thread has pages of its own.
        const uint64_t offset =
            (random() % 2500) * kThreads * kPage + static_cast<uint64_t>(t) * kPage;
        AttachmentRef ref;
        if (attachments.map(files[random() % 2].blob(offset, kPage), true, &ref) != Status::kOk) {
          ++wrong;
          continue;
        }
        *pointer(ref) = static_cast<char>(t + 1);
        held.emplace_back(ref, pointer(ref));
        if (held.size() < 8) continue;
        for (const auto& [old, p] : held) {
          if (*p != t + 1) ++wrong;
          attachments.drop(old);
        }
        held.clear();
      }
      for (const auto& [old, p] : held) attachments.drop(old);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(attachments.counts().keys, 0u);
  EXPECT_EQ(attachments.counts().attachments, 0u);
  for (const MemoryFile& file : files) EXPECT_EQ(mapped_here(file.blob().inode).times, 0);
}

}  // namespace
}  // namespace hydrant::testing
