import kfp_server
import pytest
import two_steps


@pytest.fixture
def create_run():
    """``create_run(server, …)``: a run of a tiny pipeline; the status and the answer."""

    def create(server, spec=None, **more):
        given = {
            "display_name": "r",
            "pipeline_spec": spec or two_steps.pipeline(),
            "runtime_config": {"parameters": {"word": "a"}},
            **more,
        }
        return kfp_server.ask(server, "POST", "runs", given)

    return create
