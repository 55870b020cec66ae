#!/usr/bin/python3
"""tree_name.py: prints the commit of the working directory's tree, with a digest of what differs from it if anything
does.
"""
import hashlib
import subprocess


def tree_name():
    def git(*words):
        try:
            return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout
        except FileNotFoundError:
            return ""
    changes = git("diff", "HEAD")
    name = git("rev-parse", "--short=12", "HEAD").strip() or "unknown"
    return name + ("-" + hashlib.sha256(changes.encode()).hexdigest()[:8] if changes else "")


if __name__ == "__main__":
    print(tree_name())
