"""Finds the files that the checks of this folder read."""
import pathlib

FOLDERS = ("include", "firehose", "rdma", "am", "extended", "bench", "tests", "docs/examples")
CODE = {".h", ".hpp", ".c", ".cpp"}
SCRIPTS = {".py", ".sh", ".cmake"}


def sources(root, suffixes, folders=FOLDERS):
    """Files below the folders of `root` with one of the suffixes, sorted."""
    root = pathlib.Path(root)
    found = [path for folder in folders for path in (root / folder).rglob("*")]
    return sorted(path for path in found if path.suffix in suffixes and path.is_file())
