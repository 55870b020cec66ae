#!/usr/bin/python3
"""segments_test.py BUILD_FOLDER

Segments: operations beyond their ends never succeed, by any call and path; memory is allocated at the first
access, and errors name a shortage. Compares memory and counters, never times.
"""
import os
import pathlib
import re
import resource
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "launch"))
import over  # the path must be set first
from jobs import Build, Job  # the path must be set first

ROOT = sys.argv.pop()
MIB = 1 << 20
GIB = 1 << 30
SEGMENT = 20 * MIB
OPERATIONS = ["put", "get", "put-nb", "get-nb", "put-nbi", "get-nbi", "memset", "memset-nb", "memset-nbi",
              "put-many", "get-many", "persistent-put", "persistent-get", "long", "prepared", "reply"]
VALUES = ["put-value", "get-value", "get-value-nb"]  # of up to 8 bytes
BEYOND = r"bytes? (past the end|before the start)"
ENDS = {"end": "past the end", "start": "before the start"}


def ranks_of_a_node(size):
    """The most ranks of a node."""
    return -(-size // over.nodes(size))


class ClientBuild(Build):
    def __init__(self, mode):
        super().__init__(ROOT)
        self.probe = str(pathlib.Path(ROOT) / "tests/integration/am" / f"core_client_{mode}")


class Segments(unittest.TestCase):
    launcher = "hydrant-run" if Build(ROOT).has_hydrant_run() else "fork"

    def run_job(self, mode, size, *steps, launcher=None, before=None, **variables):
        """(exit code as a shell shows it, output, errors); checks that no process of the job is left."""
        job = Job(ClientBuild(mode), launcher or self.launcher, size, *map(str, steps), before=before,
                  **variables)
        code, output, errors = job.wait()
        self.assertEqual(job.wait_until_gone(), [])
        self.assertNotIn("FAILED", output + errors)
        return code, output, errors


    def attach_the_maximum(self, mode, size, before, **variables):
        """Attaches the maximum on all ranks, which is the same on each, and answers it."""
        code, output, errors = self.run_job(mode, size, "limits", before=before, **variables)
        self.assertEqual(code, 0, output + errors)
        limits = set(re.findall(r"local (\d+) global (\d+)", output))
        self.assertEqual(len(limits), 1, output)
        local, most = map(int, limits.pop())
        self.assertEqual(local, most)
        code, output, errors = self.run_job(mode, size, "lazy-segment", 0, before=before, **variables)
        self.assertEqual(code, 0, output + errors)
        self.assertEqual(output.count(" done\n"), size, output + errors)
        return most


class Overruns(Segments):
    def refused(self, mode, size, op, end, reach, inside, **variables):
        """An operation of rank 0 beyond an end of the last rank's segment ends the job with one line that
        names rank, address and segment."""
        steps = (op, end, reach, inside)
        with self.subTest(mode=mode, size=size, steps=steps, **variables):
            code, output, errors = self.run_job(mode, size, "overrun", *steps, **variables)
            self.assertNotEqual(code, 0, output + errors)
            self.assertNotIn("it passed", output)
            lines = [line for line in errors.splitlines() if re.search(BEYOND, line)]
            self.assertEqual(len(lines), 1, errors)
            owner = 0 if op == "reply" else size - 1
            self.assertRegex(lines[0], rf"0x[0-9a-f]+.*[rR]ank {owner}\b|[rR]ank {owner}\b.*0x[0-9a-f]+")
            self.assertRegex(lines[0], rf"{ENDS[end]} of (its|the) segment.*\[0x[0-9a-f]+, \+{SEGMENT}\)")
            return lines[0]

    def refused_by_check(self, *job):
        """The same by the check of programs with GASNET_DEBUG, before any guard is met."""
        line = self.refused(*job) or ""
        self.assertIn("With GASNET_DEBUG targets must lie in segments", line, job)
        return line

    def test_debug_checks_how_far_operations_reach(self):
        for op in ("put", "get", "long"):
            for end in ENDS:
                for reach in (1, 4096, 8 * MIB, GIB):
                    line = self.refused_by_check("seq_debug", 2, op, end, reach, 0)
                    self.assertIn(f" {reach} byte", line)

    def test_debug_checks_every_operation(self):
        for op in OPERATIONS + VALUES:
            self.refused_by_check("par_debug", 2, op, "end", 8, 0)
            if op not in VALUES:
                self.refused_by_check("par_debug", 2, op, "end", 4096, 8)
                self.refused_by_check("seq_debug", 2, op, "start", 4096, 8)
        # Also for this rank's own segment.
        for op in ("put", "get", "long"):
            for end in ENDS:
                self.refused_by_check("seq_debug", 1, op, end, 8 * MIB, 0)

    def outside(self, mode, op, **variables):
        """Status and errors of an operation on memory of the peer that is in no segment."""
        code, output, errors = self.run_job(mode, 2, "outside", op, **variables)
        self.assertEqual("it passed" in output, code == 0, output + errors)
        return code, errors

    def test_memory_outside_is_a_target_but_with_debug_and_segments(self):
        for op in ("put", "get", "put-nbi", "memset", "memset-nb", "put-many", "get-many", "persistent-put",
                   "long", "prepared"):
            with self.subTest(op=op):
                code, errors = self.outside("seq_debug", op)
                self.assertNotEqual(code, 0, errors)
                self.assertEqual(len(re.findall(r"of rank 1 are not in its segment.*HYDRANT_SEGMENT_CHECK=n",
                                                errors)), 1, errors)
                for mode, variables in (("seq_debug", {"HYDRANT_SEGMENT_CHECK": "n"}),
                                        ("seq_everything_debug", {}),
                                        ("seq", {"HYDRANT_SEGMENT_CHECK": "y"})):
                    self.assertEqual(self.outside(mode, op, **variables), (0, ""), mode)

    def test_debug_check_can_be_disabled(self):
        line = self.refused("seq_debug", 2, "put", "end", 4096, 0, HYDRANT_SEGMENT_CHECK="n")
        self.assertIn("cannot be reached", line)

    def test_operations_that_leave_a_segment_never_succeed(self):
        for op in ("put", "get", "long"):
            for end in ENDS:
                for reach in (1, 4096, 8 * MIB, 16 * MIB):
                    self.refused("seq", 2, op, end, reach, 8)

    def test_no_operation_overruns_a_segment(self):
        for op in OPERATIONS:
            for end in ENDS:
                self.refused("par", 2, op, end, 70000, 65536)
        for op in VALUES:
            for end in ENDS:
                self.refused("par", 2, op, end, 4, 4)
        for op in ("put", "get", "long", "memset", "put-many", "persistent-get"):
            for end in ENDS:
                self.refused("seq", 1, op, end, 16 * MIB, 8)

    def test_no_path_overruns_a_segment(self):
        paths = [{"HYDRANT_CMA": "n"}, {"TEST_NO_CMA": "1"}, {"HYDRANT_PATH": "cma"}, {"HYDRANT_PATH": "am"},
                 {"HYDRANT_PATH": "firehose"}, {"HYDRANT_INJECT": "send_only"},
                 {"HYDRANT_INJECT": "delay=5us"}, {"HYDRANT_INJECT": "delay=5us,pins"}]
        for index, path in enumerate(paths):
            for op in ("put", "get", "long", "put-many", "persistent-get"):
                self.refused("par", 2, op, list(ENDS)[index % 2], 100000, 8, **path)

    def test_operations_in_a_guard_fail(self):
        for op in ("put", "get", "long"):
            for end in ENDS:
                with self.subTest(op=op, end=end):
                    code, output, errors = self.run_job("seq", 2, "overrun", op, end, 8 * MIB, 0)
                    self.assertNotEqual(code, 0, output + errors)
                    self.assertNotIn("it passed", output)

    def test_pointer_overruns_are_explained(self):
        text = r"\*\*\* Rank 0 touched 0x[0-9a-f]+, 1 byte past the end of the segment of rank 0 \[0x"
        code, _, errors = self.run_job("seq", 2, "overrun-caught", "none")
        self.assertEqual(code, 139, errors)
        self.assertRegex(errors, text)
        # A handler that the client installed before the attach runs afterwards.
        for when in ("before", "info"):
            code, output, errors = self.run_job("seq", 2, "overrun-caught", when)
            self.assertEqual((code, output.count("the client's handler")), (55, 1), output + errors)
            self.assertRegex(errors, text)
        # A handler installed after the attach runs alone.
        code, output, errors = self.run_job("seq", 2, "overrun-caught", "after")
        self.assertEqual((code, output.count("the client's handler")), (55, 1), output + errors)
        # Faults elsewhere go to the client's handler without a message.
        code, output, errors = self.run_job("seq", 2, "overrun-caught", "elsewhere")
        self.assertEqual((code, output.count("the client's handler")), (55, 1), output + errors)
        self.assertNotIn("touched", errors)
        code, _, errors = self.run_job("seq", 2, "overrun-caught", "none", GASNET_NO_CATCH_SIGNAL="SEGV")
        self.assertEqual(code, 139, errors)
        self.assertNotIn("touched", errors)


class Laziness(Segments):
    def memory(self, bytes_, size=2, **variables):
        """Bytes of memory of all segments at first, and after two accesses to each."""
        code, output, errors = self.run_job("seq", size, "lazy-segment", bytes_, **variables)
        self.assertEqual(code, 0, output + errors)
        self.assertEqual(output.count(" done\n"), size, output + errors)
        first = [int(n) for n in re.findall(r": (\d+) bytes of \d+ at first", output)]
        last = [int(n) for n in re.findall(r": (\d+) bytes at last", output)]
        self.assertEqual((len(first), len(last)), (size, size), output)
        return max(first), max(last), errors

    # A first access may allocate a huge page if the system has them.
    def test_memory_is_allocated_at_first_access(self):
        for size in (1, 2, 3):
            first, last, _ = self.memory(0, size)
            self.assertEqual(first, 0)
            self.assertLessEqual(last, 3 * size * 2 * MIB)

    def test_memory_is_committed_on_request(self):
        first, last, _ = self.memory(48 * MIB, HYDRANT_SEGMENT_COMMIT="y")
        self.assertEqual((first, last), (96 * MIB, 96 * MIB))

    def test_streams_allocate_only_accessed_memory(self):
        segment = 32 * MIB
        for transport in ("delay=1us,pins", "delay=1us"):
            with self.subTest(transport=transport):
                code, output, errors = self.run_job("par", 2, "lazy-stream", segment,
                                                    HYDRANT_INJECT=transport)
                self.assertEqual(code, 0, output + errors)
                memory = max(int(n) for n in re.findall(r": (\d+) bytes at last", output))
                self.assertGreaterEqual(memory, segment // 4, output)
                self.assertLessEqual(memory, segment // 2 + 4 * MIB, output)

    def test_oversized_segments_cause_one_warning(self):
        tib = 1 << 40
        code, output, errors = self.run_job("seq", 2, "lazy-segment", tib, GASNET_MAX_SEGSIZE="1T")
        if code != 0 and "cannot be mapped" in errors:
            self.skipTest("this system does not promise 2 TiB of address space: " + errors)
        self.assertEqual(code, 0, output + errors)
        self.assertRegex(output, rf"rank 0: 0 bytes of {2 * tib} at first")
        if "are available now (limited by" not in errors:
            self.skipTest("there are 2 TiB of memory here")
        self.assertEqual(errors.count("are available now (limited by"), 1, errors)

    def test_errors_tell_how_to_raise_the_limit(self):
        code, _, errors = self.run_job("seq", 2, "lazy-segment", 1 << 43)
        self.assertEqual(code, 42)
        self.assertRegex(errors, r"exceeds the limit of \d+: 85 % of the .* that were available at start "
                                 r"\(limited by .*\), for 2 ranks of this host; "
                                 r"GASNET_MAX_SEGSIZE=SIZE allows more")
        code, _, errors = self.run_job("seq", 2, "lazy-segment", 1 << 43, GASNET_MAX_SEGSIZE="64M")
        self.assertRegex(errors, rf"exceeds the limit of {64 * MIB}: the limit is set by GASNET_MAX_SEGSIZE")

    def test_default_limit_is_equal_on_all_ranks(self):
        _, output, errors = self.run_job("seq", 3, "limits")
        limits = set(re.findall(r"local (\d+) global (\d+)", output))
        self.assertEqual(len(limits), 1, output + errors)
        self.assertEqual(len(set(limits.pop())), 1, output)


class FileSizes(Segments):
    """A limit on file sizes (ulimit -f), which batch systems set."""

    LIMIT = 100 * MIB

    def limit(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.LIMIT, self.LIMIT))

    def test_segments_beyond_the_limit_are_refused_at_attach(self):
        code, _, errors = self.run_job("seq", 2, "all-touched", self.LIMIT, before=self.limit)
        self.assertEqual(code, 42, errors)
        self.assertRegex(errors, rf"for the segments of this host is larger than the limit on file "
                                 rf"sizes, {self.LIMIT} bytes: ulimit -f unlimited; ask for less, or set "
                                 rf"GASNET_MAX_SEGSIZE")

    def test_maximum_can_be_attached(self):
        for size, asked in ((1, ""), (2, ""), (3, ""), (2, "1G"), (2, "16M")):
            with self.subTest(size=size, asked=asked):
                most = self.attach_the_maximum("seq", size, self.limit, GASNET_MAX_SEGSIZE=asked)
                self.assertLessEqual(most * ranks_of_a_node(size), self.LIMIT)
                self.assertGreater(most * size, self.LIMIT * 3 // 4 if asked != "16M" else 0)
                if asked == "16M":
                    self.assertEqual(most, 16 * MIB)


class AddressSpaces(Segments):
    """A limit on address space (ulimit -v)."""

    def setUp(self):
        _, _, errors = self.run_job("seq", 1, "limits", before=self.limit(3 * GIB))
        if "Sanitizer" in errors:
            self.skipTest("sanitizers need address space without a limit")

    def limit(self, bytes_):
        return lambda: resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))

    def test_maximum_can_be_attached(self):
        for mode, size, limit, asked in (("seq", 1, 3 * GIB, ""), ("seq", 2, 3 * GIB, ""),
                                         ("par", 4, 3 * GIB, ""), ("seq", 2, GIB, "1T"),
                                         ("seq", 2, 400 * MIB, "")):
            with self.subTest(mode=mode, size=size, limit=limit, asked=asked):
                most = self.attach_the_maximum(mode, size, self.limit(limit), GASNET_MAX_SEGSIZE=asked)
                self.assertLess(most * ranks_of_a_node(size), limit)
                self.assertGreaterEqual(most, 16 * MIB)

    @unittest.skipIf(over.OVER == "mixed", "a node maps no more than its own ranks' segments")
    def test_guards_leave_room_for_the_maximum(self):
        """From a limit that is too small to start on, each larger one is enough."""
        works = False
        for limit in range(16, 100, 6):
            with self.subTest(limit=limit):
                code, output, errors = self.run_job("seq", 2, "limits", before=self.limit(limit * MIB))
                most = int((re.findall(r"local (\d+)", output) or "0")[0])
                if not works and (code != 0 or most < MIB):
                    self.assertTrue(code == 0 or "ulimit -v" in errors, errors)
                    continue
                works = True
                self.assertGreaterEqual(self.attach_the_maximum("seq", 2, self.limit(limit * MIB)), MIB)
        self.assertTrue(works)

    def test_refusal_names_the_remedies(self):
        code, _, errors = self.run_job("seq", 2, "lazy-segment", 4 * GIB, before=self.limit(2 * GIB),
                                       GASNET_MAX_SEGSIZE="4G")
        self.assertEqual(code, 42, errors)
        self.assertRegex(errors, r"cannot be mapped: .*ulimit -v.*; ask for less, or set GASNET_MAX_SEGSIZE")


@unittest.skipIf(over.OVER == "mixed", "an attach may succeed on one node and fail on another")
class RefusedAttach(Segments):
    """An attach that one rank cannot carry out fails on all ranks at once, with each rank's own code, and the
    next one works. Ranks that waited for each other would answer GASNET_ERR_NOT_READY after a minute."""

    def refused(self, size, bytes_, codes, odd=0, lacks="nothing", **job):
        for launcher in {"fork", self.launcher}:
            with self.subTest(launcher=launcher, size=size, odd=odd, lacks=lacks):
                code, output, errors = self.run_job("seq", size, "attach-again", bytes_, odd, lacks,
                                                    launcher=launcher, **job)
                self.assertEqual(code, 0, output + errors)
                first = dict(re.findall(r"rank (\d+): GASNET_(\w+) at first", output))
                self.assertEqual([first.get(str(rank)) for rank in range(size)], codes, output + errors)
                self.assertEqual(output.count("GASNET_OK then\n"), size, output + errors)
                yield errors

    def test_file_beyond_the_limit_on_file_sizes(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (FileSizes.LIMIT, FileSizes.LIMIT))
        for size in (2, 3):
            for errors in self.refused(size, FileSizes.LIMIT, ["ERR_RESOURCE"] * size, before=limit):
                self.assertEqual(errors.count("is larger than the limit on file sizes"), size, errors)
                self.assertIn("rank 0 refuses: ", errors)

    def test_too_little_memory_to_commit(self):
        for errors in self.refused(2, 1 << 42, ["ERR_RESOURCE"] * 2, GASNET_MAX_SEGSIZE="4096GB/P",
                                   HYDRANT_SEGMENT_COMMIT="y"):
            self.assertRegex(errors, r"rank 0 refuses: .* need \d+ bytes, and \d+ are available")

    def test_no_descriptor(self):
        for odd in range(3):
            for errors in self.refused(3, MIB, ["ERR_RESOURCE"] * 3, odd, "descriptors"):
                self.assertIn("Too many open files", errors)

    def test_wrong_size_of_one_rank(self):
        for odd in range(2):
            codes = ["ERR_BAD_ARG" if rank == odd else "ERR_RESOURCE" for rank in range(2)]
            for errors in self.refused(2, MIB, codes, odd, "size"):
                self.assertIn(f"rank {odd} has no segment; see that rank's message", errors)


class Shortage(Segments):
    """Runs in a memory control group of its own."""

    LIMIT = 256 * MIB

    def setUp(self):
        self.group = None
        for folder, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                              ("/sys/fs/cgroup", "memory.max")):
            group = pathlib.Path(folder) / f"hydrant_test_{os.getpid()}"
            try:
                group.mkdir()
            except OSError:
                continue
            self.addCleanup(group.rmdir)
            try:
                (group / limit).write_text(str(self.LIMIT))
                if int((group / limit).read_text()) == self.LIMIT:
                    self.group = group
                    return
            except (OSError, ValueError):
                pass
        self.skipTest("no control group with a limit can be made here")

    def enter(self):
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def test_rank_killed_by_a_memory_limit_is_named_with_the_limit(self):
        for launcher in ("fork", self.launcher):
            with self.subTest(launcher=launcher):
                code, output, errors = self.run_job("seq", 2, "all-touched", 2 * self.LIMIT,
                                                    launcher=launcher, before=self.enter,
                                                    GASNET_MAX_SEGSIZE="1G")
                self.assertEqual(code, 137, output + errors)
                self.assertRegex(errors, r"1 GiB, and .* available now \(limited by the control group "
                                         r".*hydrant_test_")
                lines = [line for line in errors.splitlines() if "out of memory" in line]
                self.assertEqual(len(lines), 1, errors)
                self.assertRegex(lines[0], r"rank 1 \(pid \d+\) was killed by signal 9 .*control group "
                                           r".*hydrant_test_.*; in use now: .*, peak: .*, "
                                           r"limit: 256 MiB")

    def test_committed_segment_fails_at_attach(self):
        code, _, errors = self.run_job("seq", 2, "all-touched", 2 * self.LIMIT, before=self.enter,
                                       GASNET_MAX_SEGSIZE="1G", HYDRANT_SEGMENT_COMMIT="y")
        self.assertEqual(code, 42, errors)
        self.assertRegex(errors, r"need \d+ bytes, and \d+ are available \(limited by the control group "
                                 r".*hydrant_test_")


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    unittest.main()
