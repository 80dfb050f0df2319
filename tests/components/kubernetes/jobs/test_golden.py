"""Each kind of job of each topology, against a file that people read.

``make golden`` writes the files anew; what has changed is then in the diff of the commit.
"""

import difflib
import os
import pathlib

import pytest
import yaml
from job_requests import every_request, job_request

from stagecraft.components.kubernetes.jobs.settings import CLUSTER_JOBS

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "golden" / "jobs"


class Plain(yaml.SafeDumper):
    """Says twice what is there twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@pytest.mark.parametrize(("kind", "topology"), every_request())
def test_a_job_is_its_golden_file(kind, topology):
    text = yaml.dump_all(
        CLUSTER_JOBS.get(kind).render(job_request(kind, topology)), Dumper=Plain, sort_keys=False
    )
    golden = FOLDER / f"{kind}-{topology}.yaml"
    if os.environ.get("STAGECRAFT_GOLDEN") == "write":
        golden.write_text(text)
    diff = difflib.unified_diff(
        golden.read_text().splitlines(), text.splitlines(), str(golden), "rendered", lineterm=""
    )
    assert not (lines := list(diff)), "\n".join([*lines, "If this is meant: make golden"])


def test_there_is_no_other_file():
    names = {f"{kind}-{topology}.yaml" for kind, topology in every_request()}
    names.add("vertex.yaml")  # tests/contrib/vertex/test_worker_pools.py
    assert {file.name for file in FOLDER.iterdir()} == names
