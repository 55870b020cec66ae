#!/usr/bin/python3
"""main_job_help.py SOURCE: scripts of bench/ by hand. main_job.py where matplotlib is not installed: --help
works, and a run ends at once with the package's name. gasnet/crowded.py: --help, and words that are no
program."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration/launch"))
import over  # noqa: E402  (the path must be set first)

with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "matplotlib.py"), "w", encoding="utf-8") as file:
        file.write("raise ImportError('No module named matplotlib')\n")
    environment = os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    for name, arguments, status, text in (
            ("main_job.py", ["--help"], 0, "--quick"),
            ("main_job.py", [], 2, "apt-get install python3-matplotlib"),
            ("gasnet/crowded.py", ["--help"], 0, "numbers of ranks"),
            ("gasnet/crowded.py", ["hydrant"], 2, "'hydrant' is not NAME=PROGRAM"),
            ("gasnet/crowded.py", ["hydrant=/nonexistent 1"], 2, "no program '/nonexistent'")):
        script = os.path.join(sys.argv[1], "bench", name)
        run = subprocess.run([sys.executable, script, *arguments], cwd=folder, env=environment,
                             timeout=60 * over.PATIENCE, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        if run.returncode != status or text not in run.stdout:
            sys.exit(f"{name} {arguments}: status {run.returncode}, not {status}: {run.stdout}")
