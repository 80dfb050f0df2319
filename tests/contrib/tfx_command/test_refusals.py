"""What goes wrong with ``--engine=kubeflow``: one sentence, exit code 1, nothing left behind."""

import kfp_server
import pytest
from tfx_project import HEAD, OURS, PLAIN

CREATE = ("pipeline", "create", "--pipeline-path")
NAMED = "--pipeline-name=tiny"


def uploads(project):
    return [request.path for request in project.server.requests if "upload" in request.path]


def create(project, file="ours.py"):
    done = project.kubeflow(*CREATE, project.folder / file)
    assert done.exit_code == 0, done.output


def test_create_twice(project):
    create(project)
    for file in ("ours.py", "plain.py"):
        refused = project.refused(*CREATE, project.folder / file)
        assert refused == 'Pipeline "tiny" already exists.'
    assert len(uploads(project)) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("pipeline", "update", "--pipeline-path", "{ours}"),
        ("pipeline", "delete", NAMED),
        ("run", "create", NAMED),
        ("run", "list", NAMED),
    ],
)
def test_a_pipeline_that_is_not_there(project, words):
    words = [word.format(ours=project.folder / "ours.py") for word in words]
    assert project.refused(*words) == 'Pipeline "tiny" does not exist.'


@pytest.mark.parametrize("verb", ["terminate", "delete", "status"])
def test_a_run_that_is_not_there(project, verb):
    named = (NAMED,) if verb == "status" else ()
    assert project.refused("run", verb, "--run-id=gone", *named).startswith("gone: no run")


def test_a_run_that_is_over_is_not_stopped(project):
    create(project)
    project.kubeflow("run", "create", NAMED)
    project.server.run().end()
    done = project.kubeflow("run", "terminate", f"--run-id={project.server.run().id}")
    assert "SUCCEEDED" in done.stdout.splitlines()[-1]


def test_a_pipeline_without_runs(project):
    create(project)
    assert "No runs found." in project.kubeflow("run", "list", NAMED).stdout


def test_no_change_is_told(project):
    create(project)
    done = project.kubeflow("pipeline", "update", "--pipeline-path", project.folder / "plain.py")
    assert done.exit_code == 0
    done = project.kubeflow("pipeline", "update", "--pipeline-path", project.folder / "plain.py")
    assert "no version" in done.stdout


@pytest.mark.parametrize("verb", ["create", "update"])
def test_a_wrong_path(project, verb):
    project.server.fail(None, ".", status=500, times=None)  # which is not asked
    missing = project.folder / "missing.py"
    refused = project.refused("pipeline", verb, "--pipeline-path", missing)
    assert refused == f"Invalid pipeline path: {missing}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Cannot find KubeflowV2DagRunner.run() in "),
        (OURS + OURS, "The file runs several pipelines"),
        (PLAIN + "    run()\n", "The file runs several pipelines"),
        (PLAIN.replace('"mine:1"', "None"), "default_image of KubeflowV2DagRunnerConfig: "),
        (PLAIN.replace("mine:1", "tensorflow/tfx:1.14.0"), "default_image of "),
        (PLAIN.replace('"mine:1"', '{"Make": "mine:1"}'), "default_image of "),
        (
            PLAIN.replace('"mine:1"', '{"default_image_path": "mine:1", "Nobody": "other:1"}'),
            "kubeflow.steps: Nobody: no such component",
        ),
        (OURS.replace("minio://", "elsewhere/"), "defaultPipelineRoot: "),
        ("raise SystemExit('of its own')", "of its own"),
    ],
)
def test_files_that_cannot_be_uploaded(project, text: str, message: str) -> None:
    file = project.file("other.py", text)
    assert message in project.refused(*CREATE, file)
    assert uploads(project) == []


def test_the_file_s_own_exceptions_are_its_own(project):
    done = project.kubeflow(*CREATE, project.file("other.py", OURS + "1 / 0"))
    assert isinstance(done.exception, ZeroDivisionError)
    assert uploads(project) == [] and list(project.present.iterdir()) == []
    create(project)


@pytest.mark.parametrize("image", ["mine/tfx:1", "my-tensorflow/tfx", "tensorflow/tfx-mine:1"])
def test_images_of_like_names(project, image):
    project.file("other.py", PLAIN.replace("mine:1", image))
    create(project, "other.py")


def test_images_by_component(project):
    images = '{"default_image_path": "mine:1", "Copy": "other:1"}'
    project.file("other.py", PLAIN.replace('"mine:1"', images))
    create(project, "other.py")
    [version] = project.server.versions.values()
    spec = version.spec.get("pipeline_spec", version.spec)
    executors = spec["deploymentSpec"]["executors"].values()
    assert sorted(executor["container"]["image"] for executor in executors) == [
        "mine:1",
        "mine:1",
        "other:1",
    ]


@pytest.mark.parametrize("file", ["ours.py", "plain.py"])
def test_an_image_is_built(project, monkeypatch, file):
    from tfx.tools.cli.container_builder import builder

    built = []

    def build(target_image, base_image):
        built.append(target_image)
        return "mine@sha256:1"

    monkeypatch.setattr(builder, "build", build)
    words = (*CREATE, project.folder / file, "--build-image")
    assert "Dockerfile" in project.refused(*words)
    done = project.kubeflow(*words, "--build-base-image=stagecraft:latest")
    assert done.exit_code == 0, done.output
    assert 'New container image "mine@sha256:1" was built.' in done.stdout
    [version] = project.server.versions.values()
    assert "mine@sha256:1" in str(version.spec) and "mine:1" not in str(version.spec)
    project.refused(*words, "--build-base-image=stagecraft:latest")  # it is there
    assert built == ["mine:1"]


@pytest.mark.parametrize(
    ("argument", "value"), [("nothing=1", "nothing"), ("times=often", "times=often")]
)
def test_runtime_parameters(project, argument, value):
    create(project)
    refused = project.refused("run", "create", NAMED, f"--runtime-parameter={argument}")
    assert refused.startswith(f"--runtime-parameter: {value} ") and "contexts" not in refused
    assert not project.server.runs


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "--token-file"),
        (403, "do not permit this request"),
        (500, "The server failed"),
    ],
)
@pytest.mark.parametrize(
    "words", [("pipeline", "list"), ("run", "create", NAMED), (*CREATE, "{ours}")]
)
def test_the_server_refuses(project, words, status, message):
    project.server.fail(None, ".", status=status, times=None)
    words = [word.format(ours=project.folder / "ours.py") for word in words]
    refused = project.refused(*words)
    assert refused.startswith(f"{project.server.url}: {status}") and message in refused
    # The advice is to give --token-file, which this command has not.
    assert ("STAGECRAFT_KUBEFLOW_TOKEN" in refused) is (status == 401)


def test_nobody_answers(project):
    with kfp_server.serving() as gone:
        url = gone.url
    project.server.url = url
    assert project.refused("pipeline", "list").startswith(f"{url}: ")


def test_no_address(project):
    done = project.tfx("pipeline", "schema", "--engine=kubeflow", NAMED)
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    message = str(done.exception.code)
    assert "--endpoint" in message and "KF_PIPELINES_ENDPOINT" in message


def test_the_token_of_the_environment(project, monkeypatch):
    project.server.require(token="a-secret")
    assert "401" in project.refused("pipeline", "list")
    monkeypatch.setenv("STAGECRAFT_KUBEFLOW_TOKEN", "a-secret")
    assert project.kubeflow("pipeline", "list").exit_code == 0


def test_several_users(project):
    with kfp_server.serving(multi_user=True) as project.server:
        file = project.folder / "ours.py"
        assert "--namespace" in project.refused(*CREATE, file)
        for words in ((*CREATE, file), ("run", "create", NAMED)):
            done = project.kubeflow(*words, "--namespace=team")
            assert done.exit_code == 0, done.output
        assert project.server.run().namespace == "team"
        assert "PENDING" in project.kubeflow("run", "list", NAMED, "--namespace=team").stdout
        refused = project.refused("pipeline", "list", "--namespace=others")
        assert "403" in refused and "in namespace others" in refused


def test_a_pipeline_of_all_users_is_not_ours(project):
    with kfp_server.serving(multi_user=True) as project.server:
        create_words = (*CREATE, project.folder / "ours.py", "--namespace=team")
        assert project.kubeflow(*create_words).exit_code == 0
        [pipeline] = project.server.pipelines.values()
        pipeline.namespace = ""
        refused = project.refused("pipeline", "delete", NAMED, "--namespace=team")
        assert refused == 'Pipeline "tiny" does not exist.'
        assert project.kubeflow("run", "create", NAMED, "--namespace=team").exit_code == 0
        assert project.kubeflow(*create_words).exit_code == 0
        assert len(project.server.pipelines) == 2


def test_a_schema_before_any(project, folder_store, set_context):
    set_context(endpoint=project.server.url)
    words = ("pipeline", "schema", "--engine=kubeflow", NAMED)

    def refused():
        done = project.tfx(*words)
        assert (done.exit_code, type(done.exception)) == (1, SystemExit), done.output
        assert list(project.present.iterdir()) == []
        return str(done.output.strip().splitlines()[-1])

    assert refused() == 'Pipeline "tiny" does not exist.'
    create(project)
    yet = "tiny: no run has written a schema"
    assert refused().startswith(yet)
    project.kubeflow("run", "create", NAMED)
    assert refused().startswith(yet)
    plain = (HEAD + OURS).replace("nodes = [", "nodes = [make]\n    _ = [")
    (project.folder / "other.py").write_text(plain)
    done = project.kubeflow("pipeline", "update", "--pipeline-path", project.folder / "other.py")
    assert done.exit_code == 0, done.output
    assert "schema" in refused()
