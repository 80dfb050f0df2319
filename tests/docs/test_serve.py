"""The page on serving: what it asks a server, a stand-in for TensorFlow Serving answers."""

import base64
import contextlib
import csv
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import requests
import tensorflow as tf
from google.protobuf import json_format
from reading import ROOT
from snippets import snippets
from tfx.components.infra_validator import request_builder
from tfx.components.util import examples_utils
from tfx.dsl.compiler.compiler import Compiler
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import example_gen_pb2, infra_validator_pb2, pusher_pb2
from tfx.types import Channel, standard_artifacts

from stagecraft.components import Pusher

PAGE = ROOT / "docs" / "how-to" / "serve.md"
SERVER = ROOT / "tests" / "fixtures" / "model_server.py"
FILES = {found.title: found.text for found in snippets(PAGE.read_text()) if found.title}


@contextlib.contextmanager
def serving(folder, name):
    """Ports for REST and gRPC of a process that knows nothing of Stagecraft."""
    server = subprocess.Popen(
        [sys.executable, SERVER, folder, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with server:
        yield server.stdout.readline().split()
        server.stdin.close()


@pytest.mark.full
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks with curl")
def test_a_server_answers_what_the_page_asks(reader):
    prices = reader.folder / "prices" / "runs" / "prices"
    with contextlib.ExitStack() as stack:
        ports = []

        def prepare(script):
            """Starts a server when the page needs one; its ports are free ones."""
            if any(word in script for word in ("8501", "ask.py", "ask_grpc.py")) and not ports:
                ports.extend(stack.enter_context(serving(prices / "serving", "prices")))
            for file in reader.folder.glob("ask*.py"):
                file.write_text(at(file.read_text(), ports))
            return at(script, ports)

        scripts = str(pathlib.Path(sys.executable).parent)  # of saved_model_cli
        reader.variables["PATH"] = os.pathsep.join([reader.variables["PATH"], scripts])
        reader.prepare = prepare
        reader.read(PAGE)

        rows = [
            {"area": 100.0, "rooms": 3, "town": "Bonn"},
            {"area": 60.0, "rooms": 1, "town": "Ulm"},
        ]
        by_columns = ask(ports[0], {"signature_name": "serving_columns", "instances": rows})
        serialized = [{"b64": base64.b64encode(example(row)).decode()} for row in rows]
        assert ask(ports[0], {"instances": serialized}) == by_columns

    with (reader.folder / "predictions.csv").open(newline="") as file:
        found = [*csv.DictReader(file)]
    columns = np.array([[row["price"], row["prediction"]] for row in found], float).T
    # What the model explains: the condition of the push.
    assert len(found) == 1000 and np.corrcoef(columns)[0, 1] ** 2 > 0.8
    check_requests_of_infra_validator(prices / "pipeline_root")


def at(text, ports):
    """Addresses of the page, with the ports of this server."""
    for port, own in zip(("8501", "8500"), ports, strict=False):
        text = text.replace(f"localhost:{port}", f"localhost:{own}")
    return text


def check_requests_of_infra_validator(root):
    """The model answers the requests that TFX makes from the page's settings."""
    examples, model = standard_artifacts.Examples(), standard_artifacts.Model()
    (folder,) = root.glob("ExampleGen/examples/*")
    examples.uri, examples.split_names = str(folder), '["eval"]'
    examples_utils.set_payload_format(examples, example_gen_pb2.FORMAT_TF_EXAMPLE)
    (folder,) = root.glob("Trainer/model/*")
    model.uri = str(folder)
    spec = infra_validator_pb2.RequestSpec()
    json_format.Parse(validator().exec_properties["request_spec"], spec)
    made = request_builder.build_requests("prices", model, examples, spec)
    assert len(made) == 3
    predict = tf.saved_model.load(str(folder / "Format-Serving")).signatures["serving_default"]
    for request in made:
        assert request.model_spec.signature_name == "serving_default"
        (given,) = request.inputs.values()
        assert predict(tf.constant(tf.make_ndarray(given)))["prediction"].shape == (1,)


def example(row):
    """A serialized tf.Example."""
    found = tf.train.Example()
    for name, value in row.items():
        feature = found.features.feature[name]
        if isinstance(value, str):
            feature.bytes_list.value.append(value.encode())
        elif isinstance(value, int):
            feature.int64_list.value.append(value)
        else:
            feature.float_list.value.append(value)
    return found.SerializeToString()


def ask(port, request):
    address = f"http://localhost:{port}/v1/models/prices:predict"
    answer = requests.post(address, json=request, timeout=30)
    assert answer.ok, answer.text
    return answer.json()["predictions"]


def validator():
    names = {}
    exec(FILES["prices/pipeline/infra_validation.py"], names)
    return names["infra_validator"](
        Channel(type=standard_artifacts.Model), Channel(type=standard_artifacts.Examples)
    )


def test_the_pusher_takes_both_blessings():
    checked = validator()
    filesystem = pusher_pb2.PushDestination.Filesystem(base_directory="serving")
    pusher = Pusher(
        model=Channel(type=standard_artifacts.Model),
        model_blessing=Channel(type=standard_artifacts.ModelBlessing),
        infra_blessing=checked.outputs["blessing"],
        push_destination=pusher_pb2.PushDestination(filesystem=filesystem),
    )
    compiled = Compiler().compile(Pipeline("prices", "root", components=[pusher, checked]))
    order = [node.pipeline_node.node_info.id for node in compiled.nodes]
    assert order == ["InfraValidator", "Pusher"]
