"""Somebody's local_runner.py, as TFX's template has it."""

from tfx import v1 as tfx

from pipeline import pipeline

if __name__ == "__main__":
    tfx.orchestration.LocalDagRunner().run(pipeline.create_pipeline())
