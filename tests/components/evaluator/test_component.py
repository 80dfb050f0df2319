"""The Evaluator's executor, before TFX's executor begins."""

import pytest
from damages import WAYS, files, fill
from tfx.types import standard_artifacts

from stagecraft.components.evaluator.component import Executor
from stagecraft.components.metadata import manifest
from stagecraft.components.metadata.manifest import DamagedArtifactError

INPUTS = {"examples": "Examples", "model": "Model", "baseline_model": "Model"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", INPUTS)
def test_a_damaged_input_is_refused(tmp_path, key, way):
    """Also on a runner that compares no files."""
    inputs = {}
    for each, kind in INPUTS.items():
        artifact = getattr(standard_artifacts, kind)()
        fill(artifact, tmp_path / each)
        manifest.add(artifact.mlmd_artifact, kind)
        inputs[each] = [artifact]
    path = files(inputs[key][0].uri)[0]
    WAYS[way](path)
    with pytest.raises(DamagedArtifactError) as caught:
        Executor().Do(inputs, {}, {})
    assert (caught.value.file, caught.value.kind) == (str(path), INPUTS[key])
