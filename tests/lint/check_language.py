#!/usr/bin/python3
"""check_language.py ROOT [LIST]: flags unclear English in comments and string literals.

words     pronouns in place of a component's name, and phrases that hide the main clause, also across the
          lines of a comment
openings  comments, and each comment behind code, that start with a word of OPENINGS, which leads to a
          fragment or an inverted sentence
sources   each .cpp of COMMENTED begins with a comment: what the file does, and where it stands in a tour of
          docs/architecture.md or which sources call it

Words and openings are checked only in the paths of LIST (default: clean_language.txt beside this script): a
folder with everything below it, or a file. A line that starts with ! excludes a path. The check fails on a
listed path that does not exist. This file and the self-test are always excluded: they quote the words.
"""
import ast
import io
import pathlib
import re
import sys
import tokenize

HERE = pathlib.Path(__file__).resolve().parent
# Names of shell variables, $who, are code.
WORDS = re.compile(r"(?<!\$)(?<!\$\{)\b(who|whoever|whom|nobody|somebody|anybody|told of|tells of|word of|"
                   r"in vain|be had|what it is (?:to|about))\b", re.IGNORECASE)
# In small letters too where no comment behind a declaration needs the word.
OPENINGS = re.compile(r"((?i:What|Those|Nor|None|Whatever|Whichever|Any \w+ (?:as|of|from))|"
                      r"One|Nothing|Where|Of)\b")
COMMENTED = ("firehose", "rdma", "am", "extended")
QUOTING = ("tests/lint/check_language.py", "tests/lint/self_test.py")
C_SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".map"}
HASH_SUFFIXES = {".cmake", ".sh", ".mak", ".pc"}
C_TOKEN = re.compile(r'(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)|R"(?P<mark>[^()\s]*)\((?P<raw>.*?)\)(?P=mark)"'
                     r'|"(?P<text>(?:[^"\\\n]|\\.)*)"' r"|'(?:[^'\\\n]|\\.)+'", re.DOTALL)
DIGIT_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")


def comment_kind(code_before):
    return "trailing" if code_before.strip() else "comment"


def c_parts(text):
    """(line, kind, text) of each comment and literal.

    kind is "comment", "trailing" (a comment behind code) or "text".
    """
    text = DIGIT_SEPARATOR.sub("_", text)
    for match in C_TOKEN.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["line"] is not None:
            before = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
            yield line, comment_kind(before), match["line"][2:].strip()
        elif match["block"] is not None:
            for number, part in enumerate(match["block"][2:-2].split("\n")):
                yield line + number, "comment", part.strip().lstrip("*").strip()
        elif match["text"] is not None or match["raw"] is not None:
            yield line, "text", match["text"] if match["text"] is not None else match["raw"]


def python_parts(text):
    docstrings = {node.body[0].value.lineno for node in ast.walk(ast.parse(text))
                  if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
                  and ast.get_docstring(node) is not None}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            yield line, comment_kind(token.line[:token.start[1]]), token.string[1:].strip()
        elif token.type == tokenize.STRING:
            kind = "comment" if line in docstrings else "text"
            for number, part in enumerate(token.string.strip("rbfRBF\"'").split("\n")):
                yield line + number, kind, part.strip()


def hash_parts(text):
    for line, code in enumerate(text.split("\n"), 1):
        match = re.match(r"\s*#(?!!)(.*)|(?:[^#\"']|\"[^\"]*\"|'[^']*')*\s#\s(.*)", code)
        if match:
            kind = "trailing" if match[1] is None else "comment"
            yield line, kind, (match[1] if match[1] is not None else match[2]).strip()
        else:
            for literal in re.findall(r"\"((?:[^\"\\]|\\.)*)\"", code):
                yield line, "text", literal


def parser_of(path, text):
    if path.suffix in C_SUFFIXES:
        return c_parts
    if path.suffix == ".py" or text.startswith(("#!/usr/bin/python3", "#!/usr/bin/env python3")):
        return python_parts
    name = path.name[:-3] if path.name.endswith(".in") else path.name
    if name == "CMakeLists.txt" or pathlib.Path(name).suffix in HASH_SUFFIXES or text.startswith("#!"):
        return hash_parts
    return None


def faults(name, parts):
    last_comment, last_text = -1, ""
    for line, kind, text in parts:
        for word in WORDS.findall(text):
            yield f"{name}:{line}: \"{word}\": name the component, or rephrase"
        if kind == "text":
            continue
        is_continued = kind == "comment" and line == last_comment + 1
        if is_continued:
            for match in WORDS.finditer(f"{last_text} {text}"):
                if match.start() < len(last_text) < match.end():
                    yield f"{name}:{line - 1}: \"{match[1]}\": name the component, or rephrase"
        elif match := OPENINGS.match(text):
            yield f"{name}:{line}: the comment opens with \"{match[1]}\": put the subject first"
        last_comment, last_text = line, text


def bare_sources(root):
    for folder in COMMENTED:
        for path in sorted((root / folder).rglob("*.cpp")):
            if not re.match(r"// \S", path.read_text(encoding="utf-8")):
                yield (f"{path.relative_to(root)}:1: the file begins without a comment: say what it does and "
                       "where it stands")


def listed_files(root, lines):
    """(files to check, listed paths that do not exist)"""
    paths = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    missing = [path for path in paths if not (root / path.lstrip("! ")).exists()]
    excluded = [root / path.lstrip("! ") for path in paths if path.startswith("!")]
    excluded += [root / path for path in QUOTING]
    found = set()
    for path in paths:
        if not path.startswith("!"):
            found |= {root / path} if (root / path).is_file() else set((root / path).rglob("*"))
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts
                  and not any(path == out or out in path.parents for out in excluded)), missing


def main():
    root = pathlib.Path(sys.argv[1])
    listing = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "clean_language.txt"
    files, missing = listed_files(root, listing.read_text().splitlines())
    found = [f"{listing.name}: {path} does not exist" for path in missing]
    found += bare_sources(root)
    count = 0
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        parser = parser_of(path, text)
        if parser is not None:
            count += 1
            found += faults(path.relative_to(root), parser(text))
    print("\n".join([*found, f"{count} files looked at"]))
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main())
