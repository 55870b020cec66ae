#!/usr/bin/python3
"""names_test.py COMPILER INCLUDE LIST: every name of LIST is a macro in every mode."""
import pathlib
import re
import subprocess
import sys

MODES = {
    "alone": ([], ("always", "not lite")),
    "thread-safe": (["-DGASNETT_THREAD_SAFE"], ("always", "not lite")),
    "thread-safe, debug": (["-DGASNETT_THREAD_SAFE", "-DGASNET_DEBUG"], ("always", "not lite")),
    "single": (["-DGASNETT_THREAD_SINGLE"], ("always", "not lite")),
    "single, debug": (["-DGASNETT_THREAD_SINGLE", "-DGASNET_DEBUG"], ("always", "not lite")),
    "lite": (["-DGASNETT_LITE_MODE"], ("always",)),
    "after gasnetex.h": (["-D_INCLUDED_GASNETEX_H", "-DGASNET_PAR"],
                         ("always", "not lite", "with gasnetex.h")),
}


def read_sections(path):
    sections, names = {}, None
    for line in pathlib.Path(path).read_text().splitlines():
        heading = re.fullmatch(r"\[(.*)\]", line)
        if heading:
            names = sections.setdefault(heading[1], set())
        elif line and not line.startswith("#"):
            names.add(line)
    return sections


def defined(compiler, include, options):
    result = subprocess.run([compiler, "-x", "c", "-std=c99", "-E", "-dM", f"-I{include}", *options, "-"],
                            input="#include <gasnet_tools.h>\n", text=True, capture_output=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    return set(re.findall(r"^#define (\w+)", result.stdout, re.MULTILINE))


def main():
    compiler, include, list_file = sys.argv[1:]
    sections = read_sections(list_file)
    failed = False
    for mode, (options, wanted) in MODES.items():
        present = defined(compiler, include, options)
        names = set().union(*(sections[section] for section in wanted))
        missing = sorted(names - present)
        print(f"{mode}: {len(names)} names, missing: {' '.join(missing) or 'none'}")
        failed |= bool(missing) or len(names) < 20
    # Lite mode must lack this name, or the modes would not differ.
    failed |= "gasnett_mutex_lock" in defined(compiler, include, MODES["lite"][0])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
