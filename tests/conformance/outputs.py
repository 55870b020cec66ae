"""Judges the output of GASNet's test programs: complaints, skipped sections, and whether it is complete.

An exit status of 0 does not show that a program ran to its end: some of them exit with 0 when they have
nothing to do, and leave out sections that the job's layout or the library does not allow.
"""
import re
from typing import Callable, NamedTuple

COMPLAINT = re.compile(r"(?i:(?<!detected 0 )ERROR|fatal signal)|\bFAIL(?:ED)?\b")
# The words by which the programs say that they leave something out.
SKIP = re.compile(r"skip|omit|reduced to|scal(?:ing|ed) down|ignoring|limited to|unable to|unsupported|"
                  r"not supported|failed unexpectedly|no pthreads", re.IGNORECASE)
# Lines of the library, of its launcher and of a guest's kernel say nothing about a program's sections.
NOT_THE_PROGRAMS = re.compile(r"hydrant[\w-]*: |\[ *\d+\.\d+\] ")


def every(ranks):
    return range(ranks)


def first(_ranks):
    return range(1)


def even(ranks):
    return range(0, ranks, 2)


def ends_of_job(ranks):
    return {0, ranks - 1}


class End(NamedTuple):
    """The last line of some ranks. In the pattern {rank} and {ranks} stand for a rank and their number.
    Without {rank} it has to occur once per printer."""
    pattern: str
    printers: Callable = every
    because: str = ""  # why it is not a final "done" or "PASSED"

    def is_missing(self, ranks, text):
        counts = {}
        for rank in self.printers(ranks):
            pattern = self.pattern.replace("{ranks}", str(ranks)).replace("{rank}", str(rank))
            counts.setdefault(pattern, 0)
            counts[pattern] += 1
        return any(len(re.findall(pattern, text, re.MULTILINE)) < count for pattern, count in counts.items())


DONE = End(r"node {rank}/{ranks} done\.")
DONE_BY_FIRST = End(r"^done\.", first)
NONE = "it prints no final line; this is the last measurement"
ENDS = {
    **dict.fromkeys(
        ("testenv.c", "testbarrier.c", "testbarrierconf.c", "testcore3.c", "testcore4.c", "testcore5.c",
         "testam.c", "testlockcontend.c", "testimm.c", "testbarrierlate.c", "testmisc.c", "testgasnet.c",
         "testcxx.cc", "testlegacy.c", "testlegacycxx.cc", "testsplit.c", "testteam.c", "testteambcast.c",
         "testteambarrier.c", "testcoll.c", "testcollperf.c", "testsegment.c", "testvis.c", "testtmpair.c",
         "testcudauva.c", "testhip.c", "testze.c"),
        DONE),
    **dict.fromkeys(
        ("testhsl.c", "testalltoall.c", "testsmall.c", "testlarge.c", "testreadonly.c", "testprogthr.c",
         "testreduce.c", "testacc.c", "testtoken.c"), DONE_BY_FIRST),
    "testinternal.c": End(r"^G: messages, puts and gets of threads", first,
                          "it prints no final line; this is the last section of the library's"),
    "testratomic.c": End(r"^done\. \(detected 0 errors\)", first),
    **dict.fromkeys(("testtools.c", "testtoolscxx.cc"), End(r"^Done\.", first)),
    "testcore2.c": End(r"node {rank}/{ranks} done\. \(detected 0 errs\)"),
    "testslice.c": End(r"node {rank}/{ranks} testslice PASSED"),
    "testthreads.c": End(r"node {rank}/{ranks} Tests complete"),
    "testcontend.c": End(r"node {rank}/{ranks} Tests complete", first),
    "testhello.c": End(r"Hello from node {rank} of {ranks}", ends_of_job, "the only line it prints"),
    "testcore1.c": End(r"chksum_test\((\d+)\) passed \1/\1$", even, "each sender's number of correct sums"),
    "testval.c": End(r"F: +{rank} - .*PutNBIVal throughput", even, NONE),
    "testalign.c": End(r"C: Proc +{rank} - .* 4096 byte aligned .*GetNB throughput", even, NONE),
    "testrand.c": End(r"Proc +{rank} - .* us ave. per page", even, NONE),
    "testlogGP.c": End(r"Proc +{rank} - .*get: G   - GetNBI", even, NONE),
    "testqueue.c": End(r"gex_AM_RequestLong0 \(implicit handle for LC\)(?s:.*)^\d+( +\d+\.?\d*)+$", first,
                       NONE),
    "testnbr.c": End(r"DIM .* axis z .*AMLongAsync", first, NONE),
    "testfaddperf.c": End(r"P: +{rank} : .*DBL ADD throughput", first, NONE),
    "testvisperf.c": End(r"F: STRIDED GET CONTIGSZ = 4096(?s:.*)^.*32768:( +\d+\.\d+)+$", first, NONE),
    "testexit.c": End(r"^Running (exit|crash) test \d+: ", first,
                      "it is about exits in the middle; this line says which exit follows"),
}

# The last of a program's sections A, B, ... A program that has them names each in the lines it prints for it.
LAST_SECTION = {
    "testalign.c": "C", "testam.c": "K", "testcollperf.c": "I", "testcontend.c": "M", "testlarge.c": "E",
    "testfaddperf.c": "P", "testinternal.c": "G", "testlockcontend.c": "D", "testmisc.c": "N",
    "testsmall.c": "F", "testval.c": "F", "testvisperf.c": "F",
}


class Skip(NamedTuple):
    """A part that a program leaves out, and why that is accepted."""
    sources: tuple
    text: str
    because: str
    ranks: tuple = ()  # with these numbers of ranks only; (): with any
    unless: str = ""  # not accepted in a run with this variable
    given: tuple = ()  # accepted in runs with one of these variables only; (): in any


ACCEPTED_SKIPS = (
    Skip(("testbarrierconf.c",), "pair mismatch tests skipped (only 1 node)", "a pair is two ranks", (1,)),
    Skip(("testbarrierconf.c",), "multiway mismatch tests skipped (less than 3 nodes)",
         "they are about three ranks", (1, 2)),
    Skip(("testcoll.c", "testcollperf.c", "testteambarrier.c"),
         "thread count reduced to 1 (no multi-image support)",
         "GASNet 2025.8.0 has no collectives of threads, so that these programs do not ask for them"),
    Skip(("testsegment.c",), "skipping intra-nbrhd initiator role on this process",
         "GASNet cannot map such segments of neighbours; another row has neighbourhoods of one rank",
         unless="GASNET_SUPERNODE_MAXSIZE"),
    Skip(("testtoken.c",), "unable to test optional query support due to having only shared-memory peers",
         "the program asks for this over a network only; another row has neighbourhoods of one rank",
         unless="GASNET_SUPERNODE_MAXSIZE"),
    Skip(("testslice.c",), "Ignoring '-f' since there are no foreign segments",
         "over a network each rank is a neighbourhood; over shared memory the row has foreign segments",
         given=("HYDRANT_INJECT", "HYDRANT_TRANSPORT")),
    Skip(("testimm.c",), "omitted", "jobs of one node exchange messages with the ranks of that node"),
)


def is_accepted(line, source, ranks, environment):
    def holds(skip):
        return (source in skip.sources and skip.text in line and (not skip.ranks or ranks in skip.ranks) and
                skip.unless not in environment and
                (not skip.given or any(name in environment for name in skip.given)))

    return any(holds(skip) for skip in ACCEPTED_SKIPS)


def missing_sections(source, text):
    expected = [chr(letter) for letter in range(ord("A"), ord(LAST_SECTION.get(source, "@")) + 1)]
    return "".join(letter for letter in expected if not re.search(rf"(?:^|\s){letter}:\s", text))


def problem(source, ranks, text, environment):
    """Returns what is wrong with the output of a program that is to complain about nothing, or ""."""
    if COMPLAINT.search(text):
        return "ERROR"
    for line in text.splitlines():
        if (SKIP.search(line) and not NOT_THE_PROGRAMS.match(line) and
                not is_accepted(line, source, ranks, environment)):
            return f"skips: {line.strip()[:70]}"
    sections = missing_sections(source, text)
    if sections:
        return f"without section {sections}"
    return incomplete(source, ranks, text)


def incomplete(source, ranks, text):
    return "without its end" if ENDS[source].is_missing(ranks, text) else ""
