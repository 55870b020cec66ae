#!/usr/bin/python3
"""main_job_help.py SOURCE: bench/main_job.py where matplotlib is not installed: --help works, and a run ends
at once with the package's name."""
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
    script = os.path.join(sys.argv[1], "bench", "main_job.py")
    environment = os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    for arguments, status, text in ((["--help"], 0, "--quick"),
                                    ([], 2, "apt-get install python3-matplotlib")):
        run = subprocess.run([sys.executable, script, *arguments], cwd=folder, env=environment,
                             timeout=60 * over.PATIENCE, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        if run.returncode != status or text not in run.stdout:
            sys.exit(f"main_job.py {arguments}: status {run.returncode}, not {status}: {run.stdout}")
