"""A process of ``check_parity``: ``parity.worker``, which first gets the caller's objects.

python -m stagecraft.fitting.parity_worker GIVEN.pkl TASK.json EVENTS
"""

from __future__ import annotations

import pathlib
import sys

from stagecraft import given
from stagecraft.trainer_module.parity import worker

if __name__ == "__main__":
    given.unpack(pathlib.Path(sys.argv[1]).read_bytes())
    sys.exit(worker.main(*sys.argv[2:]))
