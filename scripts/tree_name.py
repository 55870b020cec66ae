#!/usr/bin/python3
"""tree_name.py: prints the commit of the working directory's tree, with a digest of what differs from it and of the
names of untracked files, if there are any. Without a repository of its own, as unpacked from an archive, the tree is
"archive" with a digest of its files.
"""
import hashlib
import os
import pathlib
import subprocess

# Folders that hold no sources: results of builds, and what Python keeps.
NO_SOURCES = {"build", ".git", "__pycache__"}


def digest_of_files():
    digest = hashlib.sha256()
    for folder, folders, names in os.walk("."):
        folders[:] = sorted(set(folders) - NO_SOURCES)
        for path in (pathlib.Path(folder, name) for name in sorted(names)):
            if path.is_file():
                digest.update(f"{path}\0".encode(errors="surrogateescape") + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:8]


def tree_name():
    def git(*words):
        try:
            return subprocess.run(["git", *words], capture_output=True, check=False).stdout
        except FileNotFoundError:
            return b""
    root = git("rev-parse", "--show-toplevel").rstrip(b"\n")
    name = git("rev-parse", "--short=12", "--verify", "HEAD").decode().strip()
    if not root or not name or not os.path.samefile(root, "."):
        return f"archive-{digest_of_files()}"
    # "diff-index", unlike "diff", does not follow the user's settings; it needs to be told which files were touched only.
    git("update-index", "-q", "--refresh")
    changes = git("diff-index", "--patch", "--no-ext-diff", "--no-textconv", "--full-index", "--binary", "HEAD")
    changes += git("ls-files", "--others", "--exclude-standard")
    return name + ("-" + hashlib.sha256(changes).hexdigest()[:8] if changes else "")


if __name__ == "__main__":
    print(tree_name())
