"""Apache Flink."""

from __future__ import annotations

from types import MappingProxyType

from stagecraft.pipeline.beam.runner import PORTABLE_OPTIONS, JobRunner

_INTEGERS = (
    *("parallelism", "max_parallelism", "max_bundle_size", "max_bundle_time_mills"),
    *("number_of_execution_retries", "execution_retry_delay", "job_check_interval_in_secs"),
    *("checkpointing_interval", "checkpoint_timeout_millis", "min_pause_between_checkpoints"),
    *("num_concurrent_checkpoints", "shutdown_sources_after_idle_ms", "latency_tracking_interval"),
    *("auto_watermark_interval", "file_input_split_max_size_m_b"),
)
_FLAGS = (
    *("fail_on_checkpointing_errors", "finish_bundle_before_checkpointing"),
    *("unaligned_checkpoint_enabled", "force_unaligned_checkpoint_enabled", "attached_mode"),
    *("object_reuse", "operator_chaining", "disable_metrics", "externalized_checkpoints_enabled"),
    *("retain_externalized_checkpoints_on_cancellation", "allow_non_restored_state"),
    *("auto_balance_write_files_sharding_enabled", "re_iterable_group_by_key_result"),
    *("faster_copy", "enable_stable_input_drain", "use_data_stream_for_batch"),
    "force_slot_sharing_group",
)
_TEXTS = (
    *("checkpointing_mode", "state_backend", "state_backend_factory", "state_backend_storage_path"),
    *("execution_mode_for_batch", "savepoint_path", "report_checkpoint_duration", "flink_conf_dir"),
)


class Flink(JobRunner):
    """A cluster of Apache Flink."""

    name = "flink"
    description = "on a cluster of Apache Flink"
    beam_name = "stagecraft.contrib.beam_engines.job_server_runners.FlinkRunner"
    option_classes = (*JobRunner.option_classes, "FlinkRunnerOptions")
    options = MappingProxyType(
        {
            **PORTABLE_OPTIONS,
            **dict.fromkeys(_INTEGERS, int),
            **dict.fromkeys(_FLAGS, bool),
            **dict.fromkeys(_TEXTS, str),
        }
    )
    """``FlinkPipelineOptions`` of Beam's runner in Java (runners/flink), in Python's spelling."""

    master, jar = "flink_master", "flink_job_server_jar"
    local_master = r"\[(local|auto)\]"
    example = "--flink_master=HOST:8081"


FLINK = Flink()
