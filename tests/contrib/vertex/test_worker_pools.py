"""Worker pools for Vertex AI: as its own messages, and TFX's own Trainer, take them."""

import json

import golden
import pytest
import yaml

from stagecraft.common.errors import UserError
from stagecraft.contrib.vertex.worker_pools import worker_pool_specs
from stagecraft.pipeline.settings import load
from stagecraft.trainer_module.parallel import cluster

SERVER = (
    "parallel.strategy=parameter_server",
    "parallel.workers=2",
    "parallel.evaluator=true",
)
GPUS = ("kubeflow.steps.Trainer.gpus=2", "kubeflow.steps.Trainer.gpu_resource=NVIDIA_TESLA_T4")
ENV = "kubeflow.steps.Trainer.env={NCCL_DEBUG: WARN}"
IN_STEP = ("parallel.strategy=multi_worker_mirrored", "parallel.workers=4")
EVERYTHING = (*SERVER, *GPUS, ENV)
N1 = {"": "n1-standard-8"}
HOST = "cmle-training-workerpool{}-0123456789-{}:2222"


def pools(*overrides, machines=N1, **more):
    return worker_pool_specs(load("quickstart", overrides), machines, **more)


def test_pools_are_their_golden_file():
    made = pools(*EVERYTHING, machines=N1 | {"ps": "n1-highmem-4"}, image="registry/image:1")
    text = yaml.safe_dump({"worker_pool_specs": made}, sort_keys=False)
    golden.check("jobs/vertex.yaml", text)


@pytest.mark.parametrize(
    ("overrides", "counts"),
    [
        ((), [1]),
        (IN_STEP, [1, 3]),
        (("parallel.strategy=grid", "parallel.workers=2"), [1, 1]),
        (SERVER[:2], [1, 2, 1]),
        (SERVER, [1, 2, 1, 1]),
    ],
)
def test_a_pool_is_a_kind_of_process(overrides, counts):
    assert [pool["replica_count"] for pool in pools(*overrides)] == counts


def test_the_api_knows_every_field():
    from google.cloud.aiplatform_v1.types import WorkerPoolSpec
    from google.protobuf import json_format

    for pool in pools(*EVERYTHING):
        message = json_format.ParseDict(pool, WorkerPoolSpec.pb(WorkerPoolSpec()))
        again = json_format.MessageToDict(message, preserving_proto_field_name=True)
        assert again.pop("replica_count") == str(pool["replica_count"])  # an int64
        assert again == {key: value for key, value in pool.items() if key != "replica_count"}


@pytest.fixture
def custom_job(monkeypatch):
    """What TFX's Trainer makes of pools, without a connection."""
    from tfx.extensions.google_cloud_ai_platform.training_clients import VertexJobClient

    monkeypatch.setattr(VertexJobClient, "create_client", lambda self: None)

    def make(specs):
        args = {"job_spec": {"worker_pool_specs": specs}}
        client = VertexJobClient("europe-west4")
        job = client.create_training_job({}, {}, {"a": 1}, "an.Executor", args, "job", {})
        return job["job_spec"]["worker_pool_specs"]

    return make


def test_tfx_completes_them(custom_job):
    from google.cloud.aiplatform_v1.types import WorkerPoolSpec

    made = custom_job(pools(*EVERYTHING, image="registry/image:1"))
    for pool in made:
        container = pool["container_spec"]
        assert container["command"][:3] == ["python", "-m", "tfx.scripts.run_executor"]
        assert container["image_uri"] == "registry/image:1"
        WorkerPoolSpec(pool)  # as the client of the API takes it


def test_tfx_fills_an_empty_pool(custom_job):
    """Why an evaluator without workers and parameter servers is refused."""
    [pool] = custom_job([{}])
    assert "container_spec" in pool and "machine_spec" not in pool


def task(kind, index, jobs):
    """As Vertex AI sets it: more fields than TensorFlow's."""
    return json.dumps(
        {
            "cluster": jobs,
            "task": {"type": kind, "index": index},
            "job": '{"python_module":"","package_uris":[],"job_args":[]}',
            "environment": "cloud",
        }
    )


@pytest.mark.parametrize("with_evaluator", [False, True])
@pytest.mark.parametrize("overrides", [IN_STEP, SERVER])
def test_its_tf_config_is_the_topology(overrides, with_evaluator, monkeypatch):
    """Vertex AI's pages have the evaluator in the cluster in one place, and not in another."""
    from stagecraft.contrib.vertex.worker_pools import POOLS

    settings = load("quickstart", overrides)
    counts = [pool["replica_count"] for pool in worker_pool_specs(settings, N1)]
    jobs = {
        kind: [HOST.format(pool, index) for index in range(count)]
        for pool, (kind, count) in enumerate(zip(POOLS, counts, strict=False))
    }
    seen = {
        kind: addresses for kind, addresses in jobs.items() if kind != "evaluator" or with_evaluator
    }
    chiefs, places = 0, set()
    for kind, addresses in jobs.items():
        for index in range(len(addresses)):
            monkeypatch.setenv("TF_CONFIG", task(kind, index, seen))
            if cluster.is_evaluator(settings.parallel):
                assert kind == "evaluator"
                continue
            found = cluster.training(settings.parallel)
            assert found is not None and (found.role, found.index) == (kind, index)
            chiefs += found.is_chief
            places.add(found.worker)
    assert chiefs == 1
    assert places - {None} == set(range(sum(counts[:2])))


@pytest.mark.parametrize(
    ("overrides", "machines", "setting"),
    [
        ((), {}, "--machine-type"),
        (IN_STEP, {"chief": "n1-standard-8"}, "--machine-type"),
        (IN_STEP, N1 | {"ps": "n1-highmem-4"}, "--machine-type"),
        (("parallel.evaluator=true",), N1, "parallel.evaluator"),
        ((*IN_STEP, "parallel.evaluator=true"), N1, "parallel.evaluator"),
        (("parallel.launcher=local",), N1, "parallel.launcher"),
        (EVERYTHING, {"": "a2-highgpu-2g"}, "--machine-type"),
        (EVERYTHING, {"": "a2-highgpu-2g", "ps": "n1-highmem-4"}, "--machine-type"),
        (("kubeflow.steps.Trainer.gpus=1",), N1, "kubeflow.every_step.gpu_resource"),
        (
            ("kubeflow.steps.Trainer.shared_memory=1Gi",),
            N1,
            "kubeflow.steps.Trainer.shared_memory",
        ),
    ],
)
def test_unsupported_settings(overrides, machines, setting):
    with pytest.raises(UserError) as caught:
        pools(*overrides, machines=machines)
    assert caught.value.setting == setting
