"""Google Cloud Dataflow."""

from __future__ import annotations

from stagecraft.common.errors import SettingError
from stagecraft.pipeline.beam.runner import PACKAGES, Given, Runner

_NEEDED = {"project": "PROJECT", "region": "REGION", "temp_location": "gs://BUCKET/FOLDER"}


class Dataflow(Runner):
    """Google Cloud Dataflow."""

    name = "dataflow"
    description = "on Google Cloud Dataflow"
    beam_name = "stagecraft.contrib.beam_engines.dataflow.DataflowRunner"

    def check(self, given: Given) -> None:
        """See the base class."""
        missing = [f"--{name}={value}" for name, value in _NEEDED.items() if not given.get(name)]
        if not any(given.get(name) for name in PACKAGES):
            missing.append("--sdk_container_image=IMAGE")
        if missing:
            raise SettingError(
                "beam.runner", self.name, "needs more in beam.args", ", ".join(missing)
            )
        if not given["temp_location"].startswith("gs://"):
            use = f"--temp_location={_NEEDED['temp_location']}"
            raise SettingError("beam.args", "--temp_location", "is in no bucket", use)


DATAFLOW = Dataflow()
