"""A user's small project, with a Kubeflow."""

import os

import kfp_server
import pytest
from tfx_project import LOCAL, NODES, OURS, PLAIN, SCHEMA, Project


@pytest.fixture
def project(tmp_path, monkeypatch, registry):
    for name in list(os.environ):
        if name.startswith(("KF_PIPELINES_", "STAGECRAFT_")) or name.endswith("_HOME"):
            monkeypatch.delenv(name)
    folder, home, present, temporary = (
        tmp_path / name for name in ("project", "home", "present", "temporary")
    )
    for path in (folder, home, present, temporary):
        path.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("PATH", os.environ["PATH"])  # the command changes it
    monkeypatch.setenv("PYTHONPATH", str(NODES))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.chdir(present)
    with kfp_server.serving() as server:
        project = Project(folder, home, present, server)
        (folder / "given.pbtxt").write_text(SCHEMA)
        project.file("ours.py", OURS)
        project.file("plain.py", PLAIN)
        project.file("local.py", LOCAL)
        yield project
    assert list(temporary.iterdir()) == []


@pytest.fixture
def set_context(project):
    """Makes a context the current one."""

    def set_context(**fields):
        from stagecraft.pipeline.kubeflow.client import contexts

        context = contexts.Context(**fields)
        contexts.save(contexts.Contexts(current="mine", contexts={"mine": context}))

    return set_context
