// Allocates the segments of a node: one memory file with a slice for each rank. Each rank of the node
// maps every slice, between guard areas of its own (rdma/transport/guarded_memory.hpp).
//
// The file is reserved, not committed: any rank's first access to a page allocates it. With
// HYDRANT_SEGMENT_COMMIT=y all pages are allocated at once.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hydrant {

struct SegmentSlice {
  Rank rank = 0;
  uint64_t start = 0;         // offset in the file; whole huge pages
  uint64_t size = 0;          // bytes; 0: the rank requested an invalid size
  std::byte* here = nullptr;  // address in this process; null for size 0
};

// Lays out one slice per rank of `ranks`, in file order, with the given sizes, which other ranks have sent.
// Errors, with *slices unchanged: kBroken: a size is not a multiple of GASNET_PAGESIZE; kResource: no file is
// as large as all of them.
Status lay_out_slices(const std::vector<Rank>& ranks, const std::vector<uint64_t>& sizes,
                      std::vector<SegmentSlice>* slices) noexcept;

// Creates the file, which the caller closes. Warns if the slices exceed the memory available now; with
// HYDRANT_SEGMENT_COMMIT=y that is an error. Errors: kResource, with needed and available bytes.
Status make_segment_file(const std::vector<SegmentSlice>& slices, int* fd) noexcept;

// Maps all slices and sets `here`; with HYDRANT_SEGMENT_COMMIT=y it first commits this rank's slice.
// After an error no slice is mapped. Errors: kResource.
Status map_slices(int fd, Rank own, std::vector<SegmentSlice>* slices) noexcept;
// Unmaps those that are mapped.
void unmap_slices(std::vector<SegmentSlice>* slices) noexcept;

}  // namespace hydrant
