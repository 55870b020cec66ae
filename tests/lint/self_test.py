#!/usr/bin/python3
"""self_test.py CMAKE CC CXX: each check of this folder accepts a clean tree and finds a seeded break."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CMAKE, CC, CXX = "cmake", "cc", "c++"

CLEAN_TREE = {
    ".clang-format": (ROOT / ".clang-format").read_text(),
    "include/gasnet_errors.h": "#define GASNET_OK 0 /* done */\n",
    "include/hydrant/face.h": "#include <gasnet_errors.h>\n#include <stddef.h>\n",
    "firehose/base/floor.hpp": "#pragma once\n#include <gasnet_errors.h>\n",
    "firehose/base/config/knobs.cpp": '// Lists knobs.\nconst char* kName = "FIREHOSE_BUDGET";\n',
    "firehose/cache.cpp": '// Caches.\n#include "firehose/base/floor.hpp"\n',
    "firehose/registrars/ring.cpp": "// Pins.\n#include <liburing.h>\n",
    "rdma/transport.hpp": "#pragma once\n",
    "rdma/ibv/device.cpp": '// Opens.\n#include <infiniband/verbs.h>\n#include "rdma/transport.hpp"\n',
    "am/wire.hpp": '#pragma once\n#include "firehose/base/floor.hpp"\n',
    "extended/binding.cpp": '// Binds.\n#include <gasnet.h>\n#include "am/wire.hpp"\n',
    "docs/env_vars.md": "| `FIREHOSE_BUDGET` | bytes |\n",
    "docs/error_codes.md": "## `GASNET_OK`\n",
}


class Tree(unittest.TestCase):
    """A temporary source tree, and how to run a check on it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hydrant-lint-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in CLEAN_TREE.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run_command(self, *command):
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr

    def run_check(self, script, *arguments):
        return self.run_command(sys.executable, "-B", HERE / script, *arguments)

    def assert_finds(self, outcome, text):
        status, output = outcome
        self.assertNotIn(status, (0, 77), output)
        self.assertIn(text, " ".join(output.split()))

    def assert_clean(self, outcome):
        status, output = outcome
        self.assertEqual(status, 0, output)


class Layers(Tree):
    LAYERS = ["include -", "firehose/base include", "firehose include firehose/base",
              "firehose/registrars include", "rdma include", "rdma/ibv include rdma",
              "am include firehose/base", "extended include am"]

    def check(self, layers=None):
        self.write("layers.txt", "# a list\n" + "\n".join(layers or self.LAYERS) + "\n")
        return self.run_command(CMAKE, f"-DROOT={self.root}", f"-DLAYERS={self.root}/layers.txt", "-P",
                                HERE / "check_layering.cmake")

    def assert_break(self, name, line, text):
        self.write(name, line + "\n")
        self.assert_finds(self.check(), text)

    def test_clean_tree_passes(self):
        self.assert_clean(self.check())

    def test_empty_tree_fails(self):
        outcome = self.run_command(CMAKE, "-DROOT=/nonexistent", "-P", HERE / "check_layering.cmake")
        self.assert_finds(outcome, "no sources")

    def test_permission_that_points_down(self):
        swapped = [*self.LAYERS[:-2], self.LAYERS[-1], self.LAYERS[-2]]
        self.assert_finds(self.check(swapped), "extended may include am, which does not stand above it")

    def test_cache_including_network(self):
        self.assert_break("firehose/a.cpp", '#include "rdma/transport.hpp"', "may not include rdma")

    def test_network_including_cache(self):
        self.assert_break("rdma/a.cpp", '#include "firehose/pin.hpp"', "may not include firehose")

    def test_floor_including_cache(self):
        self.assert_break("firehose/base/a.cpp", '#include "firehose/pin.hpp"', "may not include")

    def test_disguised_path(self):
        self.assert_break("rdma/a.cpp", '#include "rdma/../firehose/pin.hpp"', "from the repository")

    def test_relative_path(self):
        self.assert_break("am/a.cpp", '#include "../rdma/transport.hpp"', "from the repository")

    def test_path_beside_the_file(self):
        self.assert_break("am/a.cpp", '#include "wire.hpp"', "not a path from the repository root")

    def test_included_source_file(self):
        self.assert_break("am/a.cpp", '# include "am/b.cpp"', "includes a source file")

    def test_verbs_outside_their_folder(self):
        self.assert_break("am/a.cpp", "#include <infiniband/verbs.h>", "does not belong here")

    def test_rings_outside_the_registrars(self):
        self.assert_break("firehose/a.cpp", "#include <liburing.h>", "does not belong here")

    def test_runtime_in_the_cache(self):
        self.assert_break("firehose/a.cpp", "#include <gasnetex.h>", "does not belong here")

    def test_angled_project_include(self):
        self.assert_break("firehose/a.cpp", "#include <firehose/base/floor.hpp>", "quote project includes")

    def test_quoted_public_include(self):
        self.assert_break("include/a.h", '#include "gasnet_errors.h"', "include with <...>")


class Alone(Tree):
    """check_alone.py: what one commit and the files that git does not know have changed."""

    def setUp(self):
        super().setUp()
        self.git("init", "-q", "-b", "main")
        self.commit("first")

    def git(self, *arguments):
        status, output = self.run_command("git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b",
                                          *arguments)
        self.assertEqual(status, 0, output)

    def commit(self, subject):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)

    def check(self, *options):
        return self.run_check("check_alone.py", self.root, "--cxx", CXX, *options)

    def test_what_has_not_changed_is_left(self):
        self.write("am/old.cpp", "Missing old;\n")
        self.commit("old")
        self.commit("nothing")
        self.assert_clean(self.check("--base", "HEAD~1"))
        self.assert_finds(self.check("--base", "HEAD~2"), "am/old.cpp does not compile by itself")

    def test_sources_in_and_out_of_commits(self):
        self.write("am/a.cpp", "Missing a;\n")
        self.assert_finds(self.check(), "am/a.cpp does not compile by itself")
        self.git("add", "-A")
        self.assert_finds(self.check(), "am/a.cpp does not compile by itself")
        self.commit("a")
        self.assert_finds(self.check("--base", "HEAD~1"), "am/a.cpp does not compile by itself")

    def test_source_beside_a_changed_header(self):
        self.write("am/a.hpp", "struct A {};\n")
        self.write("am/a.cpp", '#include "am/a.hpp"\nA a;\n')
        self.commit("a")
        self.assert_clean(self.check())
        self.write("am/a.hpp", "struct B {};\n")
        self.assert_finds(self.check(), "am/a.cpp does not compile by itself")

    def test_rest_of_many_is_named(self):
        for i in range(3):
            self.write(f"am/a{i}.cpp", "int a;\n")
        status, output = self.check("--most", "2")
        self.assertEqual((status, output.count("left to ./test --alone: am/a")), (0, 1), output)

    def test_tree_without_history_is_skipped(self):
        (self.root / ".git").rename(self.root / "gone")
        status, output = self.check()
        self.assertEqual(status, 77, output)
        self.assertIn("no history", output)
        self.assertEqual(self.check("--base", "HEAD~1")[0], 2)


class Files(Tree):
    def assert_break(self, text, complaint, name="firehose/a.cpp"):
        self.write(name, text)
        self.assert_finds(self.run_check("check_files.py", self.root), complaint)

    def test_clean_tree_passes(self):
        self.assert_clean(self.run_check("check_files.py", self.root))

    def test_long_file(self):
        for name, most in (("tests/a.py", 1000), ("firehose/a.cpp", 500), ("bench/a.cpp", 500)):
            self.write(name, "\n" * most)
            self.assert_clean(self.run_check("check_files.py", self.root))
            self.assert_break("\n" * (most + 1), f"{name}: {most + 1} lines, more than {most}", name)
            (self.root / name).unlink()

    def test_wide_line(self):
        self.assert_break("/" * 111 + "\n", "111 columns")

    def test_trailing_blank(self):
        self.assert_break("int a; \n", "blanks")


class Classes(Tree):
    """Counts of methods and data members, and the list of classes beyond the limits."""

    def check(self, members, listed="", head="class A"):
        self.write("firehose/a.hpp", f"#pragma once\nnamespace hydrant {{\n{head} {{\n{members}\n}};\n}}\n")
        self.write("tests/lint/large_classes.txt", "# comment\n" + listed)
        return self.run_check("check_classes.py", self.root)

    def methods(self, count):
        return "".join(f"  int f{i}(int) const {{ return a < b; }}\n" for i in range(count))

    def data(self, count):
        return "".join(f"  int d{i}_ = {i};\n" for i in range(count))

    def test_clean_tree_passes(self):
        self.assert_clean(self.run_check("check_classes.py", self.root))

    def test_limits(self):
        public = "public:\n" + self.methods(15)
        self.assert_clean(self.check(self.data(20) + self.methods(25) + public))
        self.assert_finds(self.check(public + "int g();\n"),
                          "firehose/a.hpp:3: A has 16 public methods, more than 15: split")
        self.assert_finds(self.check(self.methods(41)), "A has 41 methods, more than 40")
        self.assert_finds(self.check(self.data(21)), "A has 21 data members, more than 20")

    def test_heads_of_classes(self):
        for head in ("class A", "class HYDRANT_API A final", "class VISIBLE A", "class A : B",
                     "class __attribute__((packed)) A", "class [[nodiscard]] A"):
            self.assert_finds(self.check(self.data(21), head=head), "A has 21 data members")

    def test_methods_that_count(self):
        fifteen = "public:\n" + self.methods(15)
        for method in ("void f(int) override;", "static int g();",
                       "bool operator()(int) const { return true; }",
                       "bool operator<(A) const;", "operator bool() const;", "virtual int g() = 0;",
                       "template <class T, int kN = 2> T g(T&&) { return {}; }", "int A_();",
                       "[[nodiscard]] std::pair<int, int> g() HYDRANT_EXCLUDES(mu_);",
                       "auto g() -> decltype(1) { return 1; }"):
            self.assert_finds(self.check(fifteen + method + self.data(3)), "A has 16 public methods")
        for member in ("A();", "explicit A(int) : f_(1), g_{2}, B<int>{3} { if (f()) {} }", "~A();",
                       "virtual ~A() {}", "A& operator=(const A&) = delete;", "void g(int) = delete;",
                       "A& operator=(A&&) noexcept { return *this; }", "int (*g_)(int) = nullptr;",
                       "friend bool operator==(A, A) { return true; }", "friend class B;", "class B;",
                       "using F = int (*)(int);", "static_assert(sizeof(int) == 4);", "int g_ = f(1);",
                       "private: int g();", "protected: int g() { return 1; }", "// int g();",
                       "#define F int g();", 'const char* g_ = "int g();";', "enum class E : int { kA };"):
            self.assert_clean(self.check(fifteen + member + "\n"))

    def test_data_that_counts(self):
        for member, count in (("int a, b = 1;", 2), ("void (*f)(int, int);", 1),
                              ("unsigned a : 3, b : 4;", 2),
                              ("std::array<int, 3> a{}, b;", 2), ("int a[3] = {1, 2, 3};", 1),
                              ("alignas(64) T a HYDRANT_GUARDED_BY(mu_) = f(1, 2);", 1),
                              ("std::function<int(int)> a = [](int) { return 1; };", 1),
                              ("union { int a; struct { int b, c; }; };", 3), ("struct { int a, b; } c;", 1),
                              ("struct stat a{};", 1), ("enum { kA, kB } a;", 1), ("bool a = b < c;", 1),
                              ("A<(1 > 0), int> a = A<(1 > 0), int>{};", 1), ("int a = size_t{1} << 2;", 1)):
            self.assert_clean(self.check(self.data(20 - count) + member))
            self.assert_finds(self.check(self.data(21 - count) + member), "A has 21 data members")
        for member in ("static int a;", "static constexpr int kA = 1, kB = 2;", "enum E { kA };",
                       "friend B;"):
            self.assert_clean(self.check(self.data(20) + member))

    def test_records(self):
        record = self.data(30)
        compares = "bool operator==(const A&) const = default;\n"
        self.assert_clean(self.check(record + compares + "A() = default;\n", head="struct A"))
        self.assert_finds(self.check(record, head="class A"), "A has 30 data members")
        self.assert_finds(self.check(record + "private:\nint a;\n", head="struct A"), "A has 31 data members")
        self.assert_finds(self.check(record + "int f();\n", head="struct A"), "A has 30 data members")

    def test_classes_anywhere(self):
        big = f"{{ {self.data(21)} }};\n"
        for around, name in (("class A { class B %s };", "A::B"), ("void f() { class B %s }", "B"),
                             ("template <class T> class A<T*> final : C, D<T> %s", "A"),
                             ("class A { void f() { class B %s } };", "A::B"), ("class A::B %s", "A::B"),
                             ('class [[gnu::packed]] HYDRANT_CAPABILITY("mutex") A %s', "A")):
            self.write("firehose/b.cpp", around % big + "\n")
            self.assert_finds(self.run_check("check_classes.py", self.root), f"{name} has 21 data members")

    def test_folders(self):
        for folder in ("rdma", "am/job", "extended", "bench/support", "tests/unit"):
            path = self.write(f"{folder}/b.hpp", f"class B {{ {self.data(21)} }};\n")
            self.assert_finds(self.run_check("check_classes.py", self.root), f"{folder}/b.hpp:1: B has 21")
            path.unlink()

    def test_list(self):
        members = self.methods(3) + self.data(21)
        line = "firehose/a.hpp A 0/3/21"
        self.assert_clean(self.check(members, f"{line} the reason\n"))
        self.assert_finds(self.check(members, line), "A is in large_classes.txt without a reason")
        changed = "A has 0/3/21 public methods, methods and data members, large_classes.txt says"
        for counts in ("0/3/22", "0/4/21", "1/3/21", "0/3/20", "0/2/21"):
            outcome = self.check(members, f"firehose/a.hpp A {counts} the reason\n")
            self.assert_finds(outcome, f"{changed} {counts}")
        self.assert_finds(self.check(self.data(20), "firehose/a.hpp A 0/0/20 the reason\n"),
                          "A of firehose/a.hpp is within the limits or does not exist")
        for gone in ("firehose/a.hpp B", "firehose/gone.hpp A"):
            outcome = self.check(members, f"{line} the reason\n{gone} 0/3/21 the reason\n")
            self.assert_finds(outcome, "does not exist: remove its line")

    def test_files_that_cannot_be_read(self):
        self.assert_finds(self.check("int f() {"), "firehose/a.hpp:2: unbalanced {")
        self.assert_finds(self.check("int f(}"), "firehose/a.hpp:4: unbalanced }")
        self.assertEqual(self.run_check("check_classes.py", self.root / "none")[0], 1)


class Format(Tree):
    def test_badly_formatted_file(self):
        self.write("firehose/a.cpp", "int  a ;\n")
        status, output = self.run_check("check_format.py", self.root)
        if status == 77:
            self.skipTest(output)
        self.assert_finds((status, output), "firehose/a.cpp")


class Style(Tree):
    def check(self):
        return self.run_check("check_style.py", self.root)

    def lines(self, count, word="work"):
        return "".join(f"  {word}({i});\n" for i in range(count))

    def test_clean_tree_passes(self):
        self.assert_clean(self.check())

    def test_eight_lines_twice(self):
        self.write("am/a.cpp", "void a() {\n" + self.lines(8) + "}\n")
        self.write("am/b.cpp", "void b() {\n  // the same\n\n" + self.lines(8) + "}\n")
        self.assert_finds(self.check(), "am/a.cpp:2, am/b.cpp:4: the same 8 lines")

    def test_eight_lines_twice_in_one_file(self):
        self.write("am/a.cpp", self.lines(8) + "x();\n" + self.lines(8))
        self.assert_finds(self.check(), "am/a.cpp:1, am/a.cpp:10: the same 8 lines")

    def test_six_lines_in_three_places(self):
        for name in "ab":
            self.write(f"am/{name}.cpp", self.lines(6) + f"{name}();\n")
        self.assert_clean(self.check())
        self.write("rdma/c.hpp", self.lines(6) + "c();\n")
        self.assert_finds(self.check(), "the same 6 lines")

    def test_declarations_that_override_are_no_copies(self):
        for name in "ab":
            self.write(f"am/{name}.hpp", "".join(f"  int f{i}() override;\n" for i in range(9)))
        self.assert_clean(self.check())

    def test_many_small_files(self):
        for i in range(20):
            self.write(f"rdma/long{i}.cpp", self.lines(30, f"work{i}"))
        for i in range(2):
            self.write(f"rdma/short{i}.cpp", f"int short{i};\n")
        self.write("rdma/ibv/device.cpp", self.lines(40, "open"))
        self.assert_clean(self.check())
        self.write("rdma/short2.cpp", "int short2;\n")
        self.assert_finds(self.check(), "rdma: 3 of 24 sources have less than 30 lines")

    def test_globals_without_a_reason_or_a_variable(self):
        header = "#pragma once\nextern constinit std::atomic<int> a_count;\n"
        self.write("am/a.hpp", header + "extern thread_local int b [[gnu::hot]];\nextern int c[kMost];\n")
        for variable in ("a_count", "b", "c"):
            self.assert_finds(self.check(), f"am/a.hpp: {variable} is a global variable")
        self.write("am/a.hpp", header)
        self.write("tests/lint/globals.txt", "am/a.hpp a_count\n")
        self.assert_finds(self.check(), "without a reason")
        self.write("tests/lint/globals.txt", "# why\nam/a.hpp a_count counted by all\n")
        self.assert_clean(self.check())
        self.write("tests/lint/globals.txt", "am/a.hpp a_count by all\nam/a.hpp gone by all\n")
        self.assert_finds(self.check(), "gone is not declared in am/a.hpp")

    def test_inline_globals_without_a_reason(self):
        header = "#pragma once\ninline constexpr int kSize[] = {1};\ninline int f(int a) { return a; }\n"
        self.write("am/a.hpp", header)
        self.assert_clean(self.check())
        header += "inline std::atomic<int> d{0};\ninline constinit int e[kMost + 1]{};\n"
        self.write("am/a.hpp", header + "inline const int* const g[1] = {&d};\ninline int h;\n")
        for variable in "degh":
            self.assert_finds(self.check(), f"am/a.hpp: {variable} is a global variable")

    def test_calls_outside_their_place(self):
        call = "// why\nint f(int fd) { return ftruncate(fd, 1); }\n"
        self.write("firehose/base/machine/memory_file.hpp", "#pragma once\ninline " + call)
        self.write("firehose/watch/hooks/files.cpp", call)
        self.assert_clean(self.check())
        self.write("am/a.cpp", call)
        self.assert_finds(self.check(), "am/a.cpp: ftruncate outside firehose/base/machine/memory_file.hpp")

    def test_types_that_one_source_needs(self):
        self.write("am/a.hpp", "struct Lonely {\n  int a;\n};\nint use(int);\n")
        self.assert_finds(self.check(), "am/a.hpp: Lonely is used only by its declaration")
        self.write("am/a.cpp", "Lonely one;\n")
        self.assert_finds(self.check(), "Lonely is used only by am/a.cpp")
        for user in ("am/b.cpp", "tests/b.cpp", "am/b.hpp"):
            path = self.write(user, "// why\nLonely two;\n")
            self.assert_clean(self.check())
            path.unlink()
        self.write("am/a.hpp", "struct Lonely {\n  int a;\n};\nint use(Lonely);\n")
        self.assert_clean(self.check())

    def test_an_empty_tree(self):
        self.assertEqual(self.run_check("check_style.py", self.root / "none")[0], 1)


class Language(Tree):
    """Unclear words and openings in comments and string literals of the listed paths."""

    def check(self, name="am/a.cpp", text="", listed=("am",)):
        self.write(name, text)
        listing = self.write("clean.txt", "# comment\n" + "".join(path + "\n" for path in listed))
        return self.run_check("check_language.py", self.root, listing)

    def test_plain_texts_pass(self):
        self.assert_clean(self.check(text="// The sender waits; one of its peers answers.\n"
                                          "// Nothing\nint whom = 1'000;  // see above\n"
                                          'const char* text = "the peer is gone";\n'))

    def test_each_word(self):
        words = ("who", "Whoever", "whom", "nobody", "somebody", "anybody", "told of", "tells of",
                 "word of", "in vain", "be had", "what it is about")
        for word in words:
            for text in (f"// the peer {word} it\n", f"int a;  // {word}\n", f"/* a\n * {word} */\n",
                         f'f("a \\" {word}");\n', f'f(R"(a " {word})");\n'):
                self.assert_finds(self.check(text=text), f'"{word}"')
        self.assert_clean(self.check(text="// Adds.\nint nobody = whom + whole;\n"))

    def test_words_across_lines(self):
        for text in ("// It waits in\n// vain.\n", "/* The peer is told\n * of it. */\n",
                     "int a;  // in\n// vain\n"):
            self.assert_finds(self.check(text=text), "am/a.cpp:1: ")
        self.assert_clean(self.check(text="// Adds.\nint a;  // in\nint b;  // vain\n"))
        self.assert_clean(self.check(text="// Waits in\n\n// vain\n"))

    def test_comments_behind_code(self):
        for word in ("what", "those", "nor", "None", "whatever", "Whichever", "any bytes as", "Any range of"):
            for name, mark in (("am/a.cpp", "//"), ("am/a.py", "#"), ("am/a.cmake", "#")):
                text = f"a = 1;  {mark} first\nb = 1;  {mark} {word} it keeps\n"
                self.assert_finds(self.check(name, text), f'opens with "{word}"')
                self.write(name, "// Adds.\n" if mark == "//" else "")
        self.assert_clean(self.check(text="// Adds.\nint a;  // of a buffer\nint b;  // one for each rank\n"))

    def test_each_opening(self):
        for word in ("What", "Those", "One", "Nothing", "Where", "Of"):
            self.assert_finds(self.check(text=f"int a;\n// {word} is kept.\n"), f'opens with "{word}"')
            self.assert_finds(self.check(text=f"/* {word} is kept. */\n"), f'opens with "{word}"')
            self.assert_clean(self.check(text=f"// The cache keeps it.\n// {word} is kept.\n"))
            self.assert_clean(self.check(text=f'// Calls.\nf("{word} is kept");\n'))
        self.assert_clean(self.check(text="// Often, Offset, Whatever\n"))

    def test_other_languages(self):
        for name, text in (("am/a.py", '"""What it is."""\n'), ("am/a.py", "a = 1  # One more\n"),
                           ("am/CMakeLists.txt", "# Where it is\n"), ("am/a.pc.in", "# Of it\n"),
                           ("am/run", "#!/bin/sh\n# Nothing\n"), ("am/a.map", "/* Those */\n")):
            self.assert_finds(self.check(name, text), f"{name}:")
            self.write(name, "")
        for name, text in (("am/a.py", 'a = "nobody"\n'), ("am/run", '#!/bin/sh\necho "nobody"\n')):
            self.assert_finds(self.check(name, text), '"nobody"')
            self.write(name, "")
        self.assert_clean(self.check("am/run", '#!/bin/sh\necho "$who ${who}"\n'))

    def test_only_listed_paths_count(self):
        self.assert_clean(self.check("rdma/a.cpp", "// nobody\n"))
        self.assert_finds(self.check("am/b/c.cpp", "// nobody\n"), "am/b/c.cpp:1")
        self.assert_clean(self.check("am/b/c.cpp", "// nobody\n", ("am", "! am/b/c.cpp")))
        self.assert_clean(self.check("am/b/c.cpp", "// nobody\n", ("am", "! am/b")))
        self.assert_finds(self.check("am/b/c.cpp", "// nobody\n", ("am/b/c.cpp",)), "am/b/c.cpp:1")

    def test_sources_begin_with_a_comment(self):
        for folder in ("firehose", "rdma/ibv", "am", "extended"):
            for text in ("", "int a;\n", "\n// Late.\n", "//\n// Empty.\n"):
                self.assert_finds(self.check(f"{folder}/a.cpp", text, ("docs",)),
                                  f"{folder}/a.cpp:1: the file begins without a comment")
            self.write(f"{folder}/a.cpp", "// Adds.\nint a;\n")
        self.write("tests/a.cpp", "int a;\n")
        self.assert_clean(self.check("rdma/a.hpp", "int a;\n"))

    def test_paths_that_are_gone(self):
        self.assert_finds(self.check(listed=("am", "gone")), "clean.txt: gone does not exist")
        self.assert_finds(self.check(listed=()), "0 files looked at")


class Documented(Tree):
    def test_clean_tree_passes(self):
        for kind in ("knobs", "errors"):
            self.assert_clean(self.run_check("check_documented.py", kind, self.root))

    def test_undocumented_knob(self):
        self.write("firehose/base/config/knobs.cpp", 'const char* k = "FIREHOSE_NEW";\n')
        outcome = self.run_check("check_documented.py", "knobs", self.root)
        self.assert_finds(outcome, "FIREHOSE_NEW: in the knob tables, but not")
        self.assert_finds(outcome, "FIREHOSE_BUDGET: in docs/env_vars.md, but not")

    def test_undocumented_error(self):
        self.write("include/gasnet_errors.h", "#define HYDRANT_ERR_NEW 1 /* */\n")
        self.assert_finds(self.run_check("check_documented.py", "errors", self.root), "HYDRANT_ERR_NEW")


class GasnetEnvironment(Tree):
    """Each variable of the list has an effect that is documented, or is ignored by name and documented so."""

    def check(self, names="GASNET_A\nGASNET_B\nGASNET_C_D\n", ignored="GASNET_B GASNET_C_",
              effective="GASNET_A", documented="`GASNET_B` `GASNET_C_`..."):
        self.write("tests/lint/gasnet_environment.txt", "# GASNet's\n" + names)
        self.write("rdma/config/ignored_names.cpp",
                   "".join(f'{{"{name}", kReason}},\n' for name in ignored.split()))
        self.write("docs/env_vars.md", f"| variable |\n|---|\n| {effective} | |\n\n"
                   f"## GASNet's variables without effect\n\n| {documented} | |\n\n## More\n")
        self.write("docs/tools.md", "| `GASNET_TOOL` | |\n")
        return self.run_check("check_gasnet_environment.py", self.root)

    def test_clean_tree_passes(self):
        self.assert_clean(self.check())

    def test_name_that_is_neither(self):
        self.assert_finds(self.check(effective="GASNET_X"), "GASNET_A is neither in a table")

    def test_name_that_is_both(self):
        self.assert_finds(self.check(effective="GASNET_A GASNET_B"),
                          "GASNET_B is documented as effective, and")

    def test_ignored_name_that_gasnet_does_not_document(self):
        self.assert_finds(self.check(names="GASNET_A\nGASNET_B\n"),
                          "GASNET_C_ of rdma/config/ignored_names.cpp is no")

    def test_ignored_name_that_the_page_lacks(self):
        self.assert_finds(self.check(documented="`GASNET_B`"),
                          "GASNET_C_ is in rdma/config/ignored_names.cpp or in")


class DocumentedFiles(Tree):
    """Pages name files that exist."""

    def check(self, name="docs/page.md", text=""):
        self.write("bench/hit_bench.cpp", "int main() {}\n")
        self.write("docs/env_vars.md",
                   "## All, [by](page.md) `NAME`\n`firehose/base/config/knobs.cpp` has them\n")
        self.write("docs/error_codes.md", "`include/gasnet_errors.h`\n")
        self.write(name, text)
        return self.run_check("check_documented.py", "files", self.root)

    def test_clean_tree_passes(self):
        text = ("`firehose/` `am/wire.hpp` `firehose/*.cpp` `bench/hit_bench` `and/or` `build/x` "
                "[knobs](env_vars.md#all-by-name) [b](#b)\n# B\n[out](https://a.b/c)\n")
        self.assert_clean(self.check(text=text))

    def test_files_and_folders_that_are_gone(self):
        for gone in ("firehose/gone.cpp", "am/gone/", "extended/gone*.cpp", "bench/gone_bench"):
            self.assert_finds(self.check(text=f"See `{gone}`.\n"), f"docs/page.md: names {gone}, which")

    def test_pages_anywhere(self):
        for name in ("README.md", "docs/decisions/0001.md", "am/README.md"):
            self.assert_finds(self.check(name, "`am/gone.cpp`\n"), f"{name}: names am/gone.cpp")

    def test_steps_of_tours(self):
        self.write("docs/page.md", "`am/`\n")
        self.write("firehose/cache/pins.cpp", "void pin(int) {}\n")
        self.write("am/pins.cpp", "void unpin() {}\n")
        page = "docs/architecture.md"
        text = "`Cache::pin()` (`cache/pins.cpp`), `am/pins.cpp`, `unpin()`; `pin(1)`\n"
        self.assert_clean(self.check(page, text))
        for gone, fault in (("`cache/pin.cpp`", "cache/pin.cpp, which does not exist"),
                            ("`Cache::pins()` and", "pins(), which is not in any source"),
                            ("`unpin()` (`cache/pins.cpp`, x)", "unpin(), which is not in cache/pins.cpp"),
                            ("`am/pins.cpp`, `pin()`", "pin(), which is not in am/pins.cpp")):
            self.assert_finds(self.check(page, f"`am/` {gone}\n"), f"{page}: names {fault}")

    def test_links_that_lead_nowhere(self):
        self.assert_finds(self.check(text="[a](gone.md#b) `am/`\n"), "a link to gone.md, which")
        for link in ("env_vars.md#gone", "#gone"):
            self.assert_finds(self.check(text=f"# A\n[a]({link}) `am/`\n"),
                              f"docs/page.md: a link to {link}, but there is no such heading")

    def test_links_of_an_installation(self):
        self.write("doc/docs/a.md", "[b](../README.md#b) `am/gone.cpp`\n")
        self.write("doc/README.md", "# B\n[a](docs/a.md)\n")
        self.assert_clean(self.run_check("check_documented.py", "links", self.root / "doc"))
        self.write("doc/docs/coverage/c.md", "[tests](../../tests/README.md)\n")
        self.assert_finds(self.run_check("check_documented.py", "links", self.root / "doc"),
                          "docs/coverage/c.md: a link to ../../tests/README.md, which does not")

    def test_a_page_that_names_nothing(self):
        self.assert_finds(self.check(text="All is well.\n"), "docs/page.md: does not name the files")

    def test_a_tree_without_pages(self):
        for page in ("docs/env_vars.md", "docs/error_codes.md"):
            (self.root / page).unlink()
        outcome = self.run_check("check_documented.py", "files", self.root)
        self.assertEqual(outcome[0], 1, outcome[1])


class Headers(Tree):
    def check(self, kind):
        return self.run_check("check_headers.py", kind, self.root, "--cc", CC, "--cxx", CXX)

    def test_clean_tree_passes(self):
        self.assert_clean(self.check("public"))
        self.assert_clean(self.check("unowned"))

    def test_header_without_a_source_that_needs_another(self):
        self.write("firehose/a.hpp", "#pragma once\ninline std::size_t size() { return 1; }\n")
        self.assert_finds(self.check("unowned"), "firehose/a.hpp")

    def test_source_that_includes_its_header_late(self):
        self.write("firehose/a.hpp", "#pragma once\n")
        self.write("firehose/a.cpp", '#include <vector>\n\n#include "firehose/a.hpp"\n')
        self.assert_finds(self.check("unowned"), "firehose/a.cpp: has to include a.hpp")

    def test_headers_with_sources_are_left_to_the_compiler(self):
        self.write("firehose/a.hpp", "#pragma once\ninline std::size_t size() { return 1; }\n")
        self.write("firehose/a.cpp", '#include "firehose/a.hpp"\n')
        self.assert_clean(self.check("unowned"))

    def test_public_header_without_guard(self):
        self.write("include/a.h", "struct a { int b; };\n")
        self.assert_finds(self.check("public"), "-std=c99")

    def test_public_header_beyond_c99(self):
        self.write("include/a.h", "typedef struct { struct { int b; }; } a_t;\n")
        self.assert_finds(self.check("public"), "-std=c99")

    def test_public_header_in_one_thread_mode(self):
        modes = "#ifndef M\n#define M\n#if !defined GASNET_{0}\n#error a mode\n#endif\n#endif\n"
        self.write("include/hydrant/gasnet/modes.h", "#ifndef N\n#define N\n#endif\n")
        self.write("include/a.h", "#include <hydrant/gasnet/modes.h>\n" + modes.format("PAR"))
        self.assert_finds(self.check("public"), "a mode")

    def test_public_header_that_is_no_cxx(self):
        self.write("include/a.h", "#ifndef A\n#define A\nextern int class;\n#endif\n")
        self.assert_finds(self.check("public"), "-std=c++17")


class ApiTable(Tree):
    """scripts/api_table.py, which compares the table in docs/api_status.md with the headers."""

    HEADERS = ("gasnet", "gasnet_coll", "gasnet_vis", "gasnet_ratomic", "gasnet_mk", "gasnet_tools")
    LATER = "extern long gex_EP_Later() __attribute__((__error__(\"later\")));\n"

    def setUp(self):
        super().setUp()
        for header in self.HEADERS:
            self.write(f"include/{header}.h", "")
        self.header("int gex_EP_Create(int a);\n#define gex_EP_Short(x) 1\nint hydrant_a(void);\n")
        self.write("docs/api_status.md",
                   "a\n<!-- scripts/api_table.py writes this table from the headers -->\n"
                   "<!-- end of the table -->\nb\n")
        self.assert_clean(self.check("--write"))

    def header(self, text):
        self.write("include/gasnetex.h", text + self.LATER)

    def check(self, *options):
        script = ROOT / "scripts/api_table.py"
        return self.run_command(sys.executable, "-B", script, self.root, "--cc", CC, *options)

    def test_table_as_written(self):
        self.assert_clean(self.check())
        text = (self.root / "docs/api_status.md").read_text()
        self.assertIn("| Endpoints | `gex_EP_` `Create` `Short` | `gex_EP_` `Later` |\n", text)
        self.assertTrue(text.startswith("a\n") and text.endswith("-->\nb\n"))

    def test_name_that_came(self):
        self.header("int gex_EP_Create(int a);\n#define gex_EP_Short(x) 1\nint gex_EP_New(void);\n")
        self.assert_finds(self.check(), "differs from the headers")

    def test_name_without_a_row(self):
        self.header("int gex_Other(int a);\n")
        self.assert_finds(self.check(), "no row for gex_Other")


class GasnetNames(Tree):
    """The headers declare the listed names, and a test names each call."""

    def check(self, calls="gex_A_Do\ngex_A_Go[M]\n", constants="GEX_A\n", types="gex_A_t\n",
              test="int b(void) { return gex_A_Do(GEX_A) + gex_A_Go1(); }\n"):
        for header in ApiTable.HEADERS:
            self.write(f"include/{header}.h", "")
        self.write("include/gasnetex.h", "#define GEX_A 1\ntypedef int gex_A_t;\nint gex_A_Do(int a);\n"
                   "int gex_A_Go1(void);\nint gex_A_Go2(void);\n")
        self.write("tests/unit/a_test.c", test)
        self.write("tests/lint/gasnet_names.txt",
                   f"# names\n[calls]\n{calls}\n[constants]\n{constants}\n[types]\n{types}")
        return self.run_check("check_gasnet_names.py", self.root, "--cc", CC)

    def test_clean_tree_passes(self):
        self.assert_clean(self.check())

    def test_names_that_no_header_declares(self):
        self.assert_finds(self.check(calls="gex_A_Do\ngex_A_Go[M]\ngex_A_New\n"), "gex_A_New: in tests/lint")
        self.assert_finds(self.check(constants="GEX_A\nGEX_B\n"), "GEX_B: in tests/lint")

    def test_names_that_are_not_listed(self):
        self.assert_finds(self.check(calls="gex_A_Do\n"), "gex_A_Go[M]: declared, but not in")
        self.assert_finds(self.check(types=""), "gex_A_t: declared, but not in")

    def test_call_that_no_test_makes(self):
        self.assert_finds(self.check(test="int b;\n"), "gex_A_Go[M]: no source below tests/ calls it")
        self.assert_clean(self.check(test="#define GO(n) gex_A_Go##n()\nint b = gex_A_Do(1);\n"))


class Upcalls(Tree):
    """check_upcalls.py over object files of am and rdma."""

    def compile(self, source, text):
        self.write(source, text)
        folder, name = source.split("/", 1)
        output = self.root / f"build/{folder}/CMakeFiles/{folder}.dir/{name}.o"
        output.parent.mkdir(parents=True, exist_ok=True)
        self.assert_clean(self.run_command(CXX, "-c", self.root / source, "-o", output))

    def check(self, layers="am include\nrdma include\n", upcalls=""):
        self.write("tests/lint/layers.txt", layers)
        self.write("tests/lint/upcalls.txt", "# comment\n" + upcalls)
        self.compile("am/job.cpp", "void start(); void begin() { start(); }\n")
        self.compile("rdma/start.cpp", "void start() {}\n")
        return self.run_check("check_upcalls.py", self.root, self.root / "build")

    def test_calls_of_a_lower_folder(self):
        self.assert_clean(self.check(layers="am include rdma\nrdma include\n"))

    def test_permission_without_a_use(self):
        outcome = self.check(layers="rdma include\nam include rdma\nextended include rdma\n")
        self.assert_finds(outcome, "layers.txt: extended uses nothing of rdma")

    def test_permission_that_an_include_uses(self):
        self.write("extended/a.hpp", '#include "rdma/transport.hpp"\n')
        self.assert_clean(self.check(layers="rdma include\nam include rdma\nextended include rdma\n"))

    def test_upcall(self):
        outcome = self.check()
        self.assert_finds(outcome, "am may not use rdma:")
        self.assert_finds(outcome, "am/job.cpp uses start() of rdma/start.cpp")

    def test_listed_upcall(self):
        self.assert_clean(self.check(upcalls="am rdma the reason\n"))
        self.assert_finds(self.check(upcalls="am rdma\n"), "am rdma has no reason")
        unused = "am rdma the reason\nrdma am another\n"
        self.assert_finds(self.check(upcalls=unused), "upcalls.txt: rdma does not use am")


    def unite(self, *sources):
        """An object file of several sources."""
        unity = self.root / "build/am/CMakeFiles/am.dir/Unity/unity_0_cxx.cxx"
        unity.parent.mkdir(parents=True)
        unity.write_text("".join(f'#include "{self.root / source}"\n' for source in sources))
        self.assert_clean(self.run_command(CXX, "-c", unity, "-o", f"{unity}.o"))

    def test_upcall_of_united_sources(self):
        self.write("am/other.cpp", "void other() {}\n")
        self.write("am/first.cpp", "void start(); void first() { start(); }\n")
        self.unite("am/first.cpp", "am/other.cpp")
        self.assert_finds(self.check(), "am/first.cpp uses start() of rdma/start.cpp")

    def test_united_folders(self):
        self.write("am/first.cpp", "void first() {}\n")
        self.write("rdma/second.cpp", "void second() {}\n")
        self.unite("am/first.cpp", "rdma/second.cpp")
        self.assert_finds(self.check(), "has sources of several folders")


class Library(Tree):
    def build(self, text, *options):
        source = self.write("lib.cpp", text)
        library = self.root / "liblib.so"
        outcome = self.run_command(CXX, "-shared", "-fPIC", *options, source, "-o", library)
        self.assert_clean(outcome)
        return library

    def archive(self, text, name="lib.a"):
        source = self.write("lib.cpp", text)
        self.assert_clean(self.run_command(CXX, "-c", source, "-o", self.root / "lib.o"))
        archive = self.root / name
        self.assert_clean(self.run_command("ar", "rc", archive, self.root / "lib.o"))
        return archive

    def exports(self, text, listed):
        library = self.build(text, "-nostartfiles")
        listing = self.write("list.txt", "# comment\n" + "".join(name + "\n" for name in listed))
        return self.run_check("check_library.py", "exports", library, listing)

    def test_exports(self):
        ours = 'extern "C" int hydrant_a() { return 1; }\n'
        self.assert_clean(self.exports(ours, ["hydrant_a"]))
        self.assert_finds(self.exports(ours, []), "hydrant_a: exported, but not in the list")
        self.assert_finds(self.exports(ours, ["hydrant_a", "hydrant_b"]), "but not exported")
        names = "gex_a gasnet_b hydrant_c".split()
        functions = "".join(f'extern "C" int {name}() {{ return 1; }}\n' for name in names)
        self.assert_clean(self.exports(functions, names))
        foreign = self.exports('extern "C" int other() { return 1; }\n', ["other"])
        self.assert_finds(foreign, "without the project's prefix")

    def test_archive(self):
        ours = ("namespace hydrant { int a() { return 1; } struct B { B(); int c; }; B::B() {} "
                "struct C { virtual void c(); }; struct D { virtual void d(); }; void C::c() {} "
                "void D::d() {} struct E : C, D { void d() override; }; void E::d() {} }\n")
        self.assert_clean(self.run_check("check_library.py", "archive", self.archive(ours)))
        for foreign in ('extern "C" int init() { return 1; }\n', "namespace other { int a; }\n"):
            outcome = self.run_check("check_library.py", "archive", self.archive(foreign))
            self.assert_finds(outcome, "may clash")

    def test_apart(self):
        user = "namespace hydrant { int use() { return a(); } }\n"
        strong = self.archive("namespace hydrant { int a() { return 1; } }\n", "strong.a")
        inline = self.archive("namespace hydrant { inline int a() { return 2; } }\n" + user, "inline.a")
        self.assert_clean(self.run_check("check_library.py", "apart", strong, strong))
        self.assert_clean(self.run_check("check_library.py", "apart", inline, inline))
        for pair in ((strong, inline), (inline, strong)):
            outcome = self.run_check("check_library.py", "apart", *pair)
            self.assert_finds(outcome, "_ZN7hydrant1aEv: inline in one")

    def test_thread_local_storage(self):
        text = "__attribute__((tls_model(\"initial-exec\"))) thread_local char a[{}];\n"
        text += "char* address() {{ return a; }}\n"
        self.assert_clean(self.run_check("check_library.py", "tls", self.build(text.format(64))))
        outcome = self.run_check("check_library.py", "tls", self.build(text.format(72)))
        self.assert_finds(outcome, "72 bytes of thread-local storage, at most 64")
        library = self.root / "liblib.so"
        self.assert_clean(self.run_check("check_library.py", "tls", library, "72"))
        self.assert_finds(self.run_check("check_library.py", "tls", library, "71"), "at most 71")

    def test_cancellation_points(self):
        text = "#include <unistd.h>\nnamespace hydrant { void a(); void a() { (void)pause(); } }\n"
        archive = self.archive(text, "sleeps.a")
        outcome = self.run_check("check_library.py", "cancellation", self.root, archive)
        self.assert_finds(outcome, "lib.cpp calls pause, which can end")
        (self.root / "rdma/ibv").mkdir(parents=True, exist_ok=True)
        (self.root / "rdma/ibv/pd.cpp").write_text(
            "pd = uncancelled::call(ibv_alloc_pd, context);"
            " a = uncancelled::call([&] { return ibv_reg_mr(pd); });"
            "\n// ibv_reg_mr()\nibv_poll_cq(); b = ibv_reg_mr(pd);\n")
        outcome = self.run_check("check_library.py", "cancellation", self.root, archive)
        self.assert_finds(outcome, "rdma/ibv/pd.cpp:3: ibv_reg_mr() may be a cancellation point")
        self.assertEqual(outcome[1].count("pd.cpp"), 1)

    def test_writes(self):
        text = "#include <cstdio>\nnamespace hydrant { void a(); void a() { std::puts(\"text\"); } }\n"
        archive = self.archive(text, "prints.a")
        listed = self.write("writes.txt", "lib  to a socket of its own\n")
        self.assert_clean(self.run_check("check_library.py", "writes", listed, archive))
        others = self.write("writes.txt", "other  to memory\n")
        outcome = self.run_check("check_library.py", "writes", others, archive)
        self.assert_finds(outcome, "lib.cpp calls puts, which may raise SIGPIPE")
        self.assert_finds(outcome, "other: in the list, but calls no function that writes")

    def test_allocations(self):
        text = "#include <new>\nnamespace hydrant {{ int* a(); int* a() {{ return new {}int; }} }}\n"
        archive = self.archive(text.format("(std::nothrow) "), "nothrow.a")
        self.assert_clean(self.run_check("check_library.py", "allocations", archive))
        archive = self.archive(text.format(""), "throws.a")
        outcome = self.run_check("check_library.py", "allocations", archive)
        self.assert_finds(outcome, "calls _Znwm, which throws")
        text = "#include <vector>\nusing V = std::vector<int>;\n"
        text += "void a(V& b); void a(V& b) { b.reserve(7); }\n"
        outcome = self.run_check("check_library.py", "allocations", self.archive(text, "vector.a"))
        self.assert_finds(outcome, "__throw_length_error")

    def test_listed_allocations(self):
        text = "#include <new>\nint* a(); int* a() { return new int; }\n"
        archive = self.archive(text, "throws.a")
        listed = self.write("throwing.txt", "# comment\nlib  at its start\n")
        self.assert_clean(self.run_check("check_library.py", "allocations", archive, listed))
        unexplained = self.write("throwing.txt", "lib\n")
        outcome = self.run_check("check_library.py", "allocations", archive, unexplained)
        self.assert_finds(outcome, "lib: the list does not say when")
        others = self.write("throwing.txt", "lib  at its start\nother  at its start\n")
        outcome = self.run_check("check_library.py", "allocations", archive, others)
        self.assert_finds(outcome, "other: in the list, but calls no function that throws")

    def test_needed_libraries(self):
        text = "#include <cstdio>\nint a() { return std::puts(\"\"); }\n"
        self.assert_clean(self.run_check("check_library.py", "needed", self.build(text)))
        more = self.build(text, "-Wl,--no-as-needed", "-lresolv")
        self.assert_finds(self.run_check("check_library.py", "needed", more), "needs libresolv")

    def hooks(self, text, names, *options):
        library = self.build(text, "-nostdlib", *options)
        script = self.write("hooks.map", "/* a; */ { global: " + names + " local: *; };\n")
        return self.run_check("check_library.py", "hooks", library, script)

    def test_hooks(self):
        text = 'extern "C" int mmap() { return 1; }\n'
        self.assert_clean(self.hooks(text, "mmap;"))
        self.assert_finds(self.hooks(text, "mmap; brk;"), "brk: in the list, but not exported")
        self.assert_finds(self.hooks(text, ""), "mmap: exported, but not in the list")
        more = ("-Wl,--no-as-needed", "-lresolv")
        self.assert_finds(self.hooks(text, "mmap;", *more), "needs [libresolv.so.2]")
        text += 'extern thread_local int a; thread_local int a; extern "C" int brk() { return ++a; }\n'
        self.assert_finds(self.hooks(text, "mmap; brk; a;", "-lc"), "calls __tls_get_addr")

    def test_libc_calls(self):
        library = self.build('extern "C" int mremap() { return 1; }\n', "-Wl,--no-as-needed", "-lc")
        check = ("check_library.py", "libc_calls", library)
        outcome = self.run_check(*check, self.write("libc_calls.txt", "[^m].*  some\n"))
        self.assert_finds(outcome, "munmap@GLIBC_2.2.5: neither hooked nor in the list")
        self.assertNotIn("mremap", outcome[1])
        self.assert_clean(self.run_check(*check, self.write("libc_calls.txt", ".*  each\n")))


class Summary(Tree):
    """scripts/test_summary.py, which writes the summary of ./test."""

    def summarise(self, *cases, log=""):
        self.write("report/dev.xml", f"<testsuite>{''.join(cases)}</testsuite>")
        self.write("logs/dev.test.log", log)
        script = ROOT / "scripts/test_summary.py"
        return self.run_command(sys.executable, "-B", script, self.root / "report", self.root / "logs")

    def case(self, status, output="", skipped=None):
        mark = "" if skipped is None else f'<skipped message="{skipped}"/>'
        return (f'<testcase name="a" status="{status}">{mark}'
                f"<system-out>{output}</system-out></testcase>")

    def test_all_passed(self):
        status, output = self.summarise(self.case("run"), self.case("run"))
        self.assertEqual((status, output.splitlines()[-1]), (0, "2 passed, 0 failed, 0 skipped"))

    def test_failure_is_shown_with_its_end(self):
        log = "1/1 Test #1: a .....***Timeout  2.00 sec"
        outcome = self.summarise(self.case("run"), self.case("fail", "words"), log=log)
        self.assert_finds(outcome, "FAILED dev: a words (Timeout)")
        self.assert_finds(outcome, "1 passed, 1 failed, 0 skipped")

    def test_skip_is_shown_with_its_reason(self):
        reason = "a.cpp:1: Skipped\nno device\n\n[  SKIPPED ] A.B (0 ms)"
        skip = self.case("notrun", reason, "SKIP_REGULAR_EXPRESSION_MATCHED")
        status, output = self.summarise(self.case("run"), skip)
        lines = ["SKIPPED dev: a: no device", "1 passed, 0 failed, 1 skipped"]
        self.assertEqual((status, output.splitlines()[-2:]), (0, lines))

    def test_reason_of_a_case_of_unittest_is_shown(self):
        output = "test_a (__main__.A.test_a) ... skipped 'no device'\n\n-----\nRan 1 test\n\nOK (skipped=1)\n"
        skip = self.case("notrun", output, "SKIP_REGULAR_EXPRESSION_MATCHED")
        self.assertIn("SKIPPED dev: a: no device\n", self.summarise(self.case("run"), skip)[1])

    def test_skip_without_a_reason_fails(self):
        silent = "a.cpp:1: Skipped\n\n[  SKIPPED ] A.B (0 ms)"
        outcome = self.summarise(self.case("run"), self.case("notrun", silent, "SKIP_RETURN_CODE=77"))
        self.assert_finds(outcome, "skipped without a reason")

    def test_program_that_is_missing_fails(self):
        outcome = self.summarise(self.case("run"), self.case("notrun", "", "Unable to find executable"))
        self.assert_finds(outcome, "did not run: Unable to find executable")

    def test_preset_that_does_not_build_fails(self):
        self.write("report/tsan.broken", "it does not build\n")
        self.assert_finds(self.summarise(self.case("run")), "FAILED tsan: (all) it does not build")

    def test_nothing_ran_fails(self):
        self.assert_finds(self.summarise(), "No test ran.")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        CMAKE, CC, CXX = sys.argv[-3:]
        del sys.argv[-3:]
    unittest.main()
