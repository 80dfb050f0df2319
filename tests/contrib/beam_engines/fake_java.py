"""Stands for ``java``: a job server in Python, with the options of Beam's.

The first argument is a folder for its process id. At SIGTERM, it ends with the code in FOLDER/code.
"""

import argparse
import os
import pathlib
import signal
import sys
import time

from apache_beam.runners.portability.local_job_service import LocalJobServicer

parser = argparse.ArgumentParser()
parser.add_argument("--job-port", type=int)
given, _ = parser.parse_known_args()
if "--flink-master" in sys.argv and sys.argv[sys.argv.index("--flink-master") + 1] == "[auto]":
    sys.exit("no such master")
code = pathlib.Path(sys.argv[1], "code")
if code.exists():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(int(code.read_text())))
pathlib.Path(sys.argv[1], "pid").write_text(str(os.getpid()))
LocalJobServicer().start_grpc_server(given.job_port)
print("started", flush=True)
while True:
    time.sleep(1)
