#!/usr/bin/python3
"""Runs traced jobs and compares the files with the calls that trace_client made.

trace_jobs_test.py PATH_OF_TRACE_CLIENT_SEQ PATH_OF_TRACE_CLIENT_PAR
"""
import collections
import contextlib
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))
from client_jobs import over, run_job  # the path must be set first

CLIENTS = []
LINE = re.compile(r"(\d+)\((\d+)\) (\d+)\.(\d{9})> (?:\[(.*?):(\d+)\] )?\(([A-Z])\) (.*)")
NETWORK = "delay=5us,bandwidth=2G"
TIMES = 6


class Job:
    """A job's status, output, and what it wrote. `%` of a file's name is the rank."""

    def __init__(self, folder, client, ranks, *arguments, **extra):
        names = {"GASNET_TRACEFILE": f"{folder}/t-%", **extra}
        self.status, self.output = run_job(client, ranks, *arguments, **{k: v for k, v in names.items() if v})
        self.files = [str(path) for path in sorted(pathlib.Path(folder).glob("t-*"))]
        self.lines = {}
        self.malformed = []
        for path in self.files:
            for text in pathlib.Path(path).read_text().splitlines():
                match = LINE.fullmatch(text)
                if match:
                    self.lines.setdefault(int(match[1]), []).append(match)
                else:
                    self.malformed.append(text)

    def count(self, rank, pattern, letter=None):
        return sum(1 for line in self.lines.get(rank, ())
                   if re.match(pattern, line[8]) and letter in (None, line[7]))


@contextlib.contextmanager
def leaving_at_first_byte(reader):
    """Closes the pipe once something has been written to it."""
    def leave():
        select.select([reader], [], [], 60 * over.PATIENCE)
        os.close(reader)

    thread = threading.Thread(target=leave)
    thread.start()
    yield
    thread.join()


class TraceJobs(unittest.TestCase):
    STATISTICS_OF_TEXT = re.compile(r"statistics of rank \d of \d after \d+\.\d{6} s|events +count +bytes .*|"
                                    r"\(H\) text( +\d+){7}|\d> \(H\) from a thread that does not end")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_held(self, client, ranks, *arguments, **extra):
        for path in pathlib.Path(self.folder).iterdir():
            path.unlink()
        job = Job(self.folder, client, ranks, *arguments, **extra)
        self.assertEqual((job.status, "all held" in job.output), (0, True), job.output)
        self.assertNotIn("warning", job.output)
        self.assertEqual(job.malformed, [])
        return job

    def check_each_call(self, job, rank, ranks, paths):
        peer = (rank + 1) % ranks
        before = (rank - 1) % ranks
        expected = {
            rf"gex_RMA_PutBlocking: 8 bytes to rank {peer} by {paths}, \d+ ns": TIMES,
            rf"gex_RMA_PutBlocking: 1000 bytes to rank {peer} by {paths}, \d+ ns": TIMES,
            rf"gex_RMA_GetBlocking: 8 bytes from rank {peer} by {paths}, \d+ ns": TIMES,
            rf"gex_RMA_PutNBI: 4096 bytes to rank {peer} by {paths}, \d+ ns": TIMES,
            rf"gex_RMA_PutBlocking: 8 bytes to rank {rank} by self, \d+ ns": TIMES,
            r"gex_NBI_Wait, \d+ ns": TIMES,
            rf"send request \d+ to rank {peer}: Short, handler 200 \(ping\), 0 arguments, \d+ ns": TIMES,
            rf"run request \d+ from rank {before}: Short, handler 200 \(ping\), 0 arguments, \d+ ns": TIMES,
            rf"send reply \d+ to rank {before}: Short, handler 201 \(pong\)": TIMES,
            rf"run reply \d+ from rank {peer}: Short, handler 201 \(pong\)": TIMES,
            rf"send request \d+ to rank {peer}: Medium, handler 202, 1 arguments, 100 bytes": TIMES,
            rf"run request \d+ from rank {before}: Medium, handler 202, 1 arguments, 100 bytes": TIMES,
            rf"send request \d+ to rank {peer}: Long, handler 203 \(store\), 0 arguments, 4096 bytes": TIMES,
            rf"run request \d+ from rank {before}: Long, handler 203 \(store\), 0 arguments, 4096": TIMES,
            rf"send request \d+ to rank {rank}: Short, handler 200": TIMES,
            rf"run reply \d+ from rank {rank}: Short, handler 201": TIMES,
            r"gex_Coll_BarrierNB, \d+ ns": TIMES + 3,
            r"gex_Coll_ReduceToAllNB, \d+ ns": TIMES,
            r"text 1 of the client": 1,
            r"gex_AM_": 0,
            r"end of the trace": 1,
            r"trace of rank \d+ of \d+, process \d+ on .*, 0 is \d+\.\d{9} by CLOCK_REALTIME, mask \w+": 1,
        }
        self.assertEqual({pattern: job.count(rank, pattern) for pattern in expected}, expected)

    def test_each_call_is_in_the_trace(self):
        for client, ranks in ((CLIENTS[0], 2), (CLIENTS[1], 3)):
            with self.subTest(client=client):
                job = self.run_held(client, ranks, "each", str(TIMES))
                self.assertEqual(sorted(job.lines), list(range(ranks)))
                for rank in range(ranks):
                    self.check_each_call(job, rank, ranks, "[a-z_]+")

    @unittest.skipIf(over.OVER, "the network is what there is")
    def test_injected_networks(self):
        for inject, paths in ((NETWORK, "(direct|bounce)"),
                              (f"{NETWORK},pins", "(firehose|in_move|rendezvous)")):
            with self.subTest(inject=inject):
                job = self.run_held(CLIENTS[0], 2, "each", str(TIMES), HYDRANT_INJECT=inject)
                for rank in range(2):
                    self.check_each_call(job, rank, 2, paths)
                if "pins" in inject:
                    self.assertGreater(job.count(0, r"miss: \d+ bytes at 0x[0-9a-f]+, \d+ ns", "C"), 0)

    def test_letters_and_masks(self):
        letters = {"gex_RMA_Put": "P", "gex_RMA_Get": "G", "gex_NBI": "S", "gex_Event": "S",
                   "gex_Coll_Barrier": "B", "gex_Coll_Reduce": "W", "gex_Segment": "O",
                   "GASNET_BLOCKUNTIL": "X", "text": "H"}
        for mask, wanted in ((None, "GPRSWBLAXIOCDNHU"), ("PG", "PG"), ("^X", "GPRSWBLAIOCDNHU"),
                             ("ah", "AH")):
            with self.subTest(mask=mask):
                job = self.run_held(CLIENTS[0], 2, "each", "3", GASNET_TRACEMASK=mask)
                for line in job.lines[0]:
                    self.assertIn(line[7], wanted + "I")
                    for prefix, letter in letters.items():
                        if line[8].startswith(prefix):
                            self.assertEqual(line[7], letter)
                for prefix, letter in letters.items():
                    if prefix not in ("GASNET_BLOCKUNTIL", "gex_Segment"):
                        self.assertEqual(job.count(0, prefix) > 0, letter in wanted, prefix)
        job = Job(self.folder, CLIENTS[0], 2, "each", "1", GASNET_TRACEMASK="P!")
        self.assertIn("GASNET_TRACEMASK=P!: characters other than", job.output)

    def test_masks_at_run_time(self):
        job = self.run_held(CLIENTS[0], 2, "masks")
        for rank in range(2):
            self.assertEqual(job.count(rank, r"send request \d+ to rank \d+: Short, handler 200"), 5 + 3)
            self.assertEqual(job.count(rank, "suppressed"), 0)
            self.assertEqual(job.count(rank, "forced", "U"), 1)

    def test_nodes(self):
        for nodes, ranks in (("0", [0]), ("1-2", [1, 2]), ("*", [0, 1, 2]), ("2,5", [2])):
            with self.subTest(nodes=nodes):
                job = self.run_held(CLIENTS[1], 3, "each", "2", GASNET_TRACENODES=nodes)
                self.assertEqual(sorted(job.lines), ranks)
        for nodes, text in (("first", "invalid value"), ("1-0", "invalid value"), ("0,1x", "invalid value"),
                            ("7", "none of the ranks is in the list; the job has 2")):
            with self.subTest(nodes=nodes):
                job = Job(self.folder, CLIENTS[0], 2, "each", "1", GASNET_TRACENODES=nodes)
                self.assertEqual(job.output.count(f"GASNET_TRACENODES={nodes}: {text}"), 1, job.output)

    def test_local_puts_can_be_left_out(self):
        job = self.run_held(CLIENTS[0], 2, "local")
        self.assertEqual(job.count(0, r"gex_RMA_PutBlocking: 8 bytes to rank 0 by self"), 1)
        job = self.run_held(CLIENTS[0], 2, "each", "2", GASNET_TRACELOCAL="n")
        self.assertEqual(job.count(0, r".* by self"), 0)
        self.assertEqual(job.count(0, r"gex_RMA_PutBlocking: 8 bytes to rank 1"), 2)

    def test_source_lines(self):
        job = self.run_held(CLIENTS[1], 2, "source")
        places = {line[8]: (line[5], line[6]) for line in job.lines[0]}
        self.assertEqual(places["at twelve"], ("program.upc", "12"))
        self.assertEqual(places["at thirteen"], ("program.upc", "13"))

    def test_flushed_traces_and_messages_held_back(self):
        job = self.run_held(CLIENTS[0], 2, "held", "20", GASNET_TRACEFLUSH="1")
        for pattern in (r"send request \d+ to rank 0: Short", r"run request \d+ from rank 0: Short"):
            self.assertEqual(job.count(0, pattern, "A"), 20)

    def test_standard_streams_and_a_shared_file(self):
        for name in ("stdout", "stderr", "-", f"{self.folder}/t-shared"):
            with self.subTest(name=name):
                job = Job(self.folder, CLIENTS[0], 2, "each", "2", GASNET_TRACEFILE=name)
                if name.startswith("/"):
                    text = "".join(line[0] + "\n" for lines in job.lines.values() for line in lines)
                else:
                    text = job.output
                self.assertEqual(job.status, 0, job.output)
                for rank in range(2):
                    sent = rf"^{rank}\(1\) .*send request \d+ to rank {1 - rank}: Medium"
                    self.assertEqual(len(re.findall(sent, text, re.MULTILINE)), 2, name)

    def test_files_that_cannot_be_written(self):
        for name, text in (("/nonexistent/t-%", "TRACEFILE: cannot write /nonexistent/t-0: No such file"),
                           ("/dev/full", "TRACEFILE: cannot write /dev/full: No space left on device"),
                           ("/dev/full", "lines could not be written to /dev/full"),
                           ("x" * 5000, "TRACEFILE: the name has more than 4095 bytes")):
            with self.subTest(text=text):
                job = Job(self.folder, CLIENTS[1], 2, "each", "20", GASNET_TRACEFILE=name)
                self.assertEqual(job.status, 0, job.output)
                self.assertIn("all held", job.output)
                self.assertIn(text, job.output)
        job = Job(self.folder, CLIENTS[1], 2, "each", "20", GASNET_TRACEFILE=None,
                  GASNET_STATSFILE="/dev/full")
        self.assertIn("GASNET_STATSFILE: cannot write /dev/full: No space left on device", job.output)

    def run_refused(self, scenario, *texts, times=3000, **extra):
        """A job whose files take no more, or never did: it goes on, and each rank says each text once."""
        job = Job(self.folder, CLIENTS[0], 2, scenario, str(times), **extra)
        self.assertEqual((job.status, "all held" in job.output), (0, True), job.output)
        for text in texts:
            seen = [len(re.findall(text.replace("RANK", str(rank)), job.output)) for rank in range(2)]
            self.assertEqual(seen, [1, 1], (text, job.output))

    def test_a_file_beyond_the_limit_of_files(self):
        for flush, times in (("y", 300), (None, 20000)):
            with self.subTest(flush=flush):
                self.run_refused("limited", f"cannot write {self.folder}/t-RANK: File too large",
                                 f"lines could not be written to {self.folder}/t-RANK", times=times,
                                 GASNET_TRACEFLUSH=flush)
        self.run_refused("limited", "HYDRANT_STATS: cannot write .*/s-RANK: File too large", times=1,
                         GASNET_TRACEFILE=None, HYDRANT_STATS=f"table:{self.folder}/s-%r")

    def test_a_pipe_whose_reader_is_gone(self):
        for flush, times in (("y", 2000), (None, 20000)):
            with self.subTest(flush=flush), contextlib.ExitStack() as readers:
                for rank in range(2):
                    path = f"{self.folder}/pipe-{flush}-{rank}"
                    os.mkfifo(path)
                    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                    readers.enter_context(leaving_at_first_byte(reader))
                self.run_refused("flood", r"pipe-\w+-RANK: Broken pipe",
                                 r"lines could not be written to .*/pipe-\w+-RANK", times=times,
                                 GASNET_TRACEFILE=f"{self.folder}/pipe-{flush}-%", GASNET_TRACEFLUSH=flush)

    def test_a_pipe_without_a_reader(self):
        for rank in range(2):
            os.mkfifo(f"{self.folder}/pipe-{rank}")
        for flush in ("y", None):
            self.run_refused("flood", r"GASNET_TRACEFILE: the pipe .*/pipe-RANK has no reader",
                             r"lines could not be written to .*/pipe-RANK",
                             GASNET_TRACEFILE=f"{self.folder}/pipe-%", GASNET_TRACEFLUSH=flush)
        self.run_refused("flood", r"cannot write .*/pipe-RANK: the pipe has no reader", times=1,
                         GASNET_TRACEFILE=None, HYDRANT_STATS=f"json:{self.folder}/pipe-%r")

    def test_standard_error_that_nobody_reads(self):
        for extra in ({"GASNET_TRACEFILE": "-"}, {"HYDRANT_LOG": "debug", "HYDRANT_STATS": "table:-"}):
            no_reader = f"p={self.folder}/$HYDRANT_JOB_RANK; rm -f $p; mkfifo $p; exec 3<>$p 2>$p 3<&-;"
            status, output = run_job(CLIENTS[0], 2, "flood", "3000", by_rank=no_reader, **extra)
            self.assertEqual((status, output.count("all held")), (0, 1), output)

    def converted(self, job):
        result = subprocess.run([sys.executable, ROOT / "scripts" / "hydrant-trace", *job.files],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
        return json.loads(result.stdout)["traceEvents"], result.stderr

    def check_flows(self, events, messages):
        flows = collections.defaultdict(dict)
        for event in events:
            if event.get("cat") == "flow":
                self.assertNotIn(event["ph"], flows[event["id"]], event)
                flows[event["id"]][event["ph"]] = event
        for identity, ends in flows.items():
            self.assertEqual(sorted(ends), ["f", "s"], identity)
            self.assertLessEqual(ends["s"]["ts"], ends["f"]["ts"])
        self.assertEqual(len(flows), messages)
        return flows

    def test_messages_of_many_threads_find_their_handlers(self):
        job = self.run_held(CLIENTS[1], 2, "threads", "300")
        events, errors = self.converted(job)
        self.assertNotIn("lines are not", errors)
        users = [event for event in events if event.get("cat") == "messages"]
        # A request and a reply, each sent and run, of four threads on two ranks.
        self.assertEqual(len(users), 4 * 4 * 300 * 2)
        requests, runs = (sorted(event["args"]["message"] for event in users
                                 if event["name"].startswith(f"{verb} request")) for verb in ("send", "run"))
        self.assertEqual(requests, runs)
        self.assertEqual(len(set(requests)), 4 * 300 * 2)

    def test_json_shows_ranks_and_arrows(self):
        job = self.run_held(CLIENTS[0], 2, "each", str(TIMES))
        events, _ = self.converted(job)
        sent = sum(job.count(rank, r"send (request|reply) \d+") for rank in range(2))
        ended = sum(job.count(rank, r"run (request|reply) \d+") for rank in range(2))
        self.check_flows(events, min(sent, ended))
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual(sorted(names), [0, 1])
        self.assertTrue(names[1].startswith("rank 1"))
        spans = [event for event in events if event.get("ph") == "X"]
        self.assertGreater(len([event for event in spans if event.get("cat") == "barriers"]), 2 * TIMES)
        put = next(event for event in spans if event["name"].startswith("gex_RMA_PutBlocking by "))
        self.assertEqual(put["args"]["bytes"], 8)

    def test_statistics(self):
        job = self.run_held(CLIENTS[0], 2, "each", str(TIMES), GASNET_TRACEFILE=None,
                            GASNET_STATSFILE=f"{self.folder}/s-%")
        self.assertEqual(job.files, [])
        for rank in range(2):
            text = pathlib.Path(self.folder, f"s-{rank}").read_text()
            self.assertIn(f"statistics of rank {rank} of 2 after", text)
            rows = dict(re.findall(r"^\((.\) [\w, ]+?) {2,}(\d+ +\d+)", text, re.MULTILINE))
            self.assertEqual(rows["A) send request, Medium"].split(), [str(TIMES), str(100 * TIMES)])
            self.assertEqual(rows["A) run request, Long"].split(), [str(TIMES), str(4096 * TIMES)])
            self.assertEqual(rows["B) gex_Coll_BarrierNB"].split(), [str(TIMES + 3), "0"])
            self.assertEqual(rows["P) gex_RMA_PutBlocking by self"].split(), [str(TIMES), str(8 * TIMES)])
            self.assertRegex(text, rf"\n  self +{TIMES} +{8 * TIMES} +0 +0\n")
            self.assertIn("puts and gets, by rank and path", text)

    def test_dumps_of_statistics(self):
        self.run_held(CLIENTS[1], 2, "statistics", GASNET_STATSFILE=f"{self.folder}/s-%",
                      GASNET_STATSMASK="AH", GASNET_STATSNODES="*")
        text = pathlib.Path(self.folder, "s-1").read_text()
        self.assertEqual(text.count("statistics of rank 1 of 2"), 2)
        self.assertEqual(text.count("1> (H) from the callback\n"), 2)
        self.assertEqual(text.count("1> (H) number 1\n"), 1)
        self.assertEqual(re.findall(r"\(A\) send request, Short +(\d+)", text), ["4", "6"])
        self.assertNotIn("gex_Coll_Barrier", text)

    def test_threads_that_write_while_the_job_ends(self):
        for _ in range(20):
            job = Job(self.folder, CLIENTS[1], 1, "never_quiet", "40", GASNET_TRACEFLUSH="y",
                      GASNET_STATSFILE=f"{self.folder}/s-%", GASNET_STATSMASK="H")
            self.assertEqual((job.status, job.malformed), (0, []), job.output)
            if "has been writing events for a second" in job.output:
                continue  # the other threads have left no room for the end
            self.assertNotIn("warning", job.output)
            self.assertEqual(job.lines[0][-1][8], "end of the trace")
            self.assertEqual(job.count(0, "end of the trace"), 1)
            lines = pathlib.Path(self.folder, "s-0").read_text().splitlines()
            self.assertEqual([line for line in lines if not self.STATISTICS_OF_TEXT.fullmatch(line)], [])
            self.assertRegex(lines[-1], r"\(H\) text", "the last statistics are whole")

    def test_the_table_of_counters(self):
        self.run_held(CLIENTS[0], 2, "each", "3", GASNET_TRACEFILE=None,
                      HYDRANT_STATS=f"table:{self.folder}/%r")
        text = pathlib.Path(self.folder, "1").read_text()
        self.assertTrue(text.startswith("rank 1 of 2 over "), text)
        headings = re.findall(r"^\S.*?(?=  )", text, re.MULTILINE)
        self.assertLess(headings.index("puts and gets, by path"), headings.index("collectives, by algorithm"))

    def test_a_flood_loses_nothing(self):
        job = self.run_held(CLIENTS[0], 2, "flood", "30000", GASNET_TRACEMASK="A")
        for rank in range(2):
            for pattern in ("send request", "run request", "send reply", "run reply"):
                self.assertEqual(job.count(rank, pattern), 30000)

    def convert(self, *arguments, output=subprocess.PIPE):
        result = subprocess.run([sys.executable, ROOT / "scripts" / "hydrant-trace", *arguments],
                                stdout=output, stderr=subprocess.PIPE, text=True)
        return result.returncode, result.stderr

    def test_hydrant_trace_names_what_is_wrong(self):
        folder = pathlib.Path(self.folder)
        good, mixed, none = folder / "good", folder / "mixed", folder / "none"
        good.write_text("0(0) 1.000000001> (H) text\n")
        mixed.write_text("0(0) 1.000000001> (H) text\nnone\n0(0) 1.000000002> (H) text\n\n")
        none.write_text("none\n")
        self.assertEqual(self.convert(good), (0, ""))
        self.assertEqual(self.convert(good, mixed),
                         (0, f"hydrant-trace: 2 lines are not of a trace, the first is {mixed}:2\n"))
        self.assertEqual(self.convert(good, none),
                         (1, f"hydrant-trace: {none}: no line of a trace is in it\n"))
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.assertEqual(self.convert(good, output=full),
                             (1, "hydrant-trace: standard output: No space left on device\n"))
        self.assertEqual(self.convert(good, "-o", "/dev/full"),
                         (1, "hydrant-trace: /dev/full: No space left on device\n"))

    def test_an_aborted_job_leaves_its_events(self):
        job = Job(self.folder, CLIENTS[0], 2, "abort")
        self.assertNotEqual(job.status, 0)
        self.assertGreater(job.count(0, r"gex_Coll_BarrierNB"), 0)
        self.assertEqual(job.malformed, [])

    def test_ranks_that_are_ended_write_their_last_lines(self):
        job = self.run_held(CLIENTS[0], 2, "exit")
        for rank in range(2):
            self.assertEqual(job.count(rank, "end of the trace", "I"), 1)


if __name__ == "__main__":
    CLIENTS = sys.argv[-2:]
    del sys.argv[-2:]
    unittest.main()
