#!/usr/bin/python3
"""check_classes.py ROOT: limits on the classes of the sources.

Fails on a class, struct or union of FOLDERS that has more than 15 public methods, 40 methods or 20 data
members, unless tests/lint/large_classes.txt lists it with exactly its counts and a reason. A listed class
cannot grow; its line changes when the class shrinks and goes when the class is within the limits.

methods  every function that the class declares: overloads, overrides, static functions, templates, operators.
         Constructors, destructors, operator=, friends and deleted functions do not count.
data     every non-static data member, also of an anonymous union or struct inside.
records  a class whose data members are all public and whose only methods are comparisons has no limit of
         data members.

Nested and local classes count separately. Base classes and members that a macro declares do not count.
The script reads tokens without a compiler, so both branches of an #if count.
"""
import pathlib
import re
import sys

from sources import sources

FOLDERS = ("firehose", "rdma", "am", "extended", "bench", "tests")
LIMITS = {"public methods": 15, "methods": 40, "data members": 20}
TOKEN = re.compile(r"""(?P<skip>^[ \t]*\#(?:\\\n|/\*[\s\S]*?\*/|[^\n])*|//[^\n]*|/\*[\s\S]*?\*/)
    | R"(?P<mark>[^()\s]*)\([\s\S]*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'
    | [A-Za-z_]\w* | \d[\w'.]* | :: | -> | <=> | [<>=!]= | << | \S""", re.MULTILINE | re.VERBOSE)
# Words that, with an argument, belong to no declarator.
ANNOTATION = re.compile(r"(HYDRANT_\w+|alignas|decltype|explicit|noexcept|requires)$")
KEYWORDS = ("class", "struct", "union")
NO_MEMBERS = ("using", "typedef", "static_assert", "friend")
COMPARISONS = {f"operator{sign}" for sign in ("==", "!=", "<", ">", "<=", ">=", "<=>")}


class Tokens:
    """The words of a source without comments and directives; `partner` maps opening to closing brackets."""

    def __init__(self, text):
        self.words, self.lines, self.partner = [], [], {}
        opened, line, at = [], 1, 0
        for match in TOKEN.finditer(text):
            if match["skip"] is not None:
                continue
            word = match[0]
            line, at = line + text.count("\n", at, match.start()), match.start()
            if word in ("(", "[", "{"):
                opened.append(len(self.words))
            elif word in (")", "]", "}"):
                if not opened or self.words[opened[-1]] + word not in ("()", "[]", "{}"):
                    raise ValueError(f"{line}: unbalanced {word}")
                self.partner[opened.pop()] = len(self.words)
            self.words.append(word)
            self.lines.append(line)
        if opened:
            raise ValueError(f"{self.lines[opened[-1]]}: unbalanced {self.words[opened[-1]]}")
        self.words += [";", ";", ";"]

    def angle_end(self, i):
        """The > that closes the < at i; None: it is no bracket."""
        depth = 0
        while self.words[i] not in (";", ")", "]", "}"):
            depth += {"<": 1, ">": -1}.get(self.words[i], 0)
            if depth == 0:
                return i
            i = self.partner.get(i, i) + 1
        return None

    def definition(self, i):
        """(name, index of {) of the class or enum that the keyword at i defines; None: it defines none."""
        name = ""
        while True:
            i += 1
            word = self.words[i]
            if word == ":":
                while self.words[i] not in ("{", ";"):
                    i = i + 1 if i not in self.partner else self.partner[i] + 1
                word = self.words[i]
            if word == "{":
                return name, i
            if word == "[":
                i = self.partner[i]
            elif ANNOTATION.match(word):
                i = self.partner.get(i + 1, i)
            elif word == "<" and self.angle_end(i):
                i = self.angle_end(i)
            elif word == "::" or is_word(word) and (not name or name.endswith("::")):
                name += word if word not in (*KEYWORDS, "final") else ""
            elif word == "(" and name == "__attribute__":
                name, i = "", self.partner[i]
            elif is_word(word) and word != "final" and name.isupper():
                name = word  # behind a macro
            elif word != "final":
                return None

    def declaration(self, i, end):
        """(items, index behind it) of the declaration at i.

        A bracket is one item, without its contents; the name of an operator is one item. Template arguments,
        attributes and annotations are left out, and the body of a function.
        """
        items = []
        while i < end and self.words[i] != ";":
            word, last = self.words[i], self.partner.get(i, i)
            if word == "{" and is_body(items):
                return items, last + 1
            if word == "operator":
                last = i + 2 if self.words[i + 1] == "(" else i
                while self.words[last + 1] != "(":
                    last += 1
                items.append("".join(self.words[i:last + 1]))
            elif ANNOTATION.match(word) and self.words[i + 1] == "(":
                last = self.partner[i + 1]
            elif word == "<" and items and is_word(items[-1]) and self.angle_end(i):
                last = self.angle_end(i)
            elif (word, self.words[i + 1]) != ("[", "["):
                items.append(word)
            i = last + 1
        return items, i + 1


def is_word(item):
    return item[0].isalpha() or item[0] == "_"


def parameters(items):
    """The index of a function's parameters; None: data, also a pointer to a function or an array."""
    for i, item in enumerate(items):
        if item in ("=", "{", ":"):
            return None
        if item == "(":
            return None if items[i + 1:i + 2] in (["("], ["["]) else i
    return None


def is_body(items):
    """Whether a { behind these items begins a function's body, and is no initialiser."""
    at = parameters(items)
    return at is not None and "=" not in items and not (":" in items[at:] and is_word(items[-1]))


class Class:
    """A class with its methods and its data members, each with its access."""

    def __init__(self, tokens, keyword, name, brace, scope):
        self.name = "::".join([*scope, name or "(anonymous)"])
        self.own_name = name.split("::")[-1]
        self.line, self.end = tokens.lines[keyword], tokens.partner[brace]
        self.methods, self.data = [], []
        self.read(tokens, brace, "private" if tokens.words[keyword] == "class" else "public")

    def read(self, tokens, brace, access):
        i, end = brace + 1, tokens.partner[brace]
        while i < end:
            word = tokens.words[i]
            inner = tokens.definition(i) if word in (*KEYWORDS, "enum") else None
            if word in ("public", "protected", "private") and tokens.words[i + 1] == ":":
                access, i = word, i + 2
            elif word == "template" and tokens.words[i + 1] == "<":
                i = tokens.angle_end(i + 1) + 1
            elif inner:
                items, i = tokens.declaration(tokens.partner[inner[1]] + 1, end)
                if not items and word != "enum" and not inner[0]:
                    self.read(tokens, inner[1], access)
                self.add_data(items, access)
            else:
                items, i = tokens.declaration(i, end)
                self.add(items, access)

    def add(self, items, access):
        if not items or items[0] in (*NO_MEMBERS, "enum") or items[0] in KEYWORDS and len(items) == 2:
            return
        at = parameters(items)
        if at is None:
            self.add_data(items, access)
        elif (items[at - 1] not in (self.own_name, "operator=") and "~" not in items[:at]
              and items[-2:] != ["=", "delete"]):
            self.methods.append((access, items[at - 1]))

    def add_data(self, items, access):
        if items and "static" not in items:
            self.data += [access] * (1 + items.count(","))

    def counts(self):
        public = sum(access == "public" for access, _ in self.methods)
        return public, len(self.methods), len(self.data)

    def excess(self):
        """Texts of the limits that the class exceeds."""
        names = {name for _, name in self.methods}
        record = names <= COMPARISONS and set(self.data) <= {"public"}
        for (what, limit), count in zip(LIMITS.items(), self.counts()):
            if count > limit and not (record and what == "data members"):
                yield f"{count} {what}, more than {limit}"


def classes_of(text):
    tokens, found, around = Tokens(text), [], []
    for i, word in enumerate(tokens.words):
        inner = tokens.definition(i) if word in KEYWORDS and tokens.words[i - 1] != "enum" else None
        if inner:
            around = [one for one in around if one.end > i]
            scope = [around[-1].name] if around else []
            found.append(Class(tokens, i, *inner, scope))
            around.append(found[-1])
    return found


def read_list(path):
    """(file, class): (counts, reason) for each line that is no comment."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [(line.split(None, 3) + [""] * 4)[:4] for line in lines if line.strip() and line[0] != "#"]
    return {(file, name): (counts, reason) for file, name, counts, reason in rows}


def faults(name, large, listed):
    """Complaints on the classes of a file that exceed a limit."""
    for one in large:
        counts = "/".join(map(str, one.counts()))
        known, reason = listed.pop((name, one.name), (None, ""))
        if known is None:
            yield f"{name}:{one.line}: {one.name} has {', '.join(one.excess())}: split it by task"
        elif known != counts:
            yield (f"{name}:{one.line}: {one.name} has {counts} public methods, methods and data members, "
                   f"large_classes.txt says {known}: keep it from growing, or lower the counts of its line")
        elif not reason:
            yield f"{name}: {one.name} is in large_classes.txt without a reason"


def main():
    root = pathlib.Path(sys.argv[1])
    listed = read_list(root / "tests/lint/large_classes.txt")
    files = sources(root, {".h", ".hpp", ".cpp"}, FOLDERS)
    found, total = [], 0
    for path in files:
        name = str(path.relative_to(root))
        try:
            classes = classes_of(path.read_text(encoding="utf-8"))
        except ValueError as error:
            found.append(f"{name}:{error}")
            continue
        total += len(classes)
        found += faults(name, [one for one in classes if any(one.excess())], listed)
    found += [f"large_classes.txt: {name} of {file} is within the limits or does not exist: remove its line"
              for file, name in listed]
    print("\n".join([*found, f"{total} classes looked at"]))
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
