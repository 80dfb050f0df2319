"""Pipeline specs and platform documents as protocol buffers: their fields, as tables, and a reader.

The fields are those of api/v2alpha1/pipeline_spec.proto and kubernetes_executor_config.proto. The
backend refuses a document with an unknown field. The tables do not come from the installed
``kfp.pipeline_spec``, which is years older on the classic stack: findings must not depend on the
machine. ``[T]`` is a list of T, ``{T}`` a map from string to T.

The reader refuses what Go's protojson refuses: unknown fields, wrong types and two of a oneof. It
returns the message with keys in lower camel case (protojson also accepts snake case) and without
nulls, which mean "not set". It collects all errors with their locations;
``google.protobuf.json_format`` stops at the first error and gives no location.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_DURATION = re.compile(r"-?\d+(\.\d{1,9})?s")


_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")

_OF_PIPELINE = {
    "PipelineSpec": "pipelineInfo:PipelineInfo deploymentSpec:Struct sdkVersion:string "
    "schemaVersion:string components:{ComponentSpec} root:ComponentSpec defaultPipelineRoot:string",
    "PipelineInfo": "name:string displayName:string description:string",
    "ComponentSpec": "inputDefinitions:ComponentInputsSpec outputDefinitions:ComponentOutputsSpec "
    "dag:DagSpec executorLabel:string singlePlatformSpecs:[SinglePlatformSpec] "
    "taskConfigPassthroughs:[TaskConfigPassthrough]",
    "DagSpec": "tasks:{PipelineTaskSpec} outputs:DagOutputsSpec",
    "DagOutputsSpec": "artifacts:{DagOutputArtifactSpec} parameters:{DagOutputParameterSpec}",
    "DagOutputArtifactSpec": "artifactSelectors:[ArtifactSelectorSpec]",
    "ArtifactSelectorSpec": "producerSubtask:string outputArtifactKey:string",
    "DagOutputParameterSpec": "valueFromParameter:ParameterSelectorSpec "
    "valueFromOneof:ParameterSelectorsSpec",
    "ParameterSelectorSpec": "producerSubtask:string outputParameterKey:string",
    "ParameterSelectorsSpec": "parameterSelectors:[ParameterSelectorSpec]",
    "ComponentInputsSpec": "artifacts:{InputArtifact} parameters:{InputParameter}",
    "InputArtifact": "artifactType:ArtifactTypeSchema isArtifactList:bool isOptional:bool "
    "description:string",
    "InputParameter": "type:PrimitiveType parameterType:ParameterType defaultValue:Value "
    "isOptional:bool description:string literals:[Value]",
    "ComponentOutputsSpec": "artifacts:{OutputArtifact} parameters:{OutputParameter}",
    "OutputArtifact": "artifactType:ArtifactTypeSchema properties:{ValueOrRuntimeParameter} "
    "customProperties:{ValueOrRuntimeParameter} metadata:Struct isArtifactList:bool "
    "description:string",
    "OutputParameter": "type:PrimitiveType parameterType:ParameterType description:string",
    "PipelineTaskSpec": "taskInfo:PipelineTaskInfo inputs:TaskInputsSpec dependentTasks:[string] "
    "cachingOptions:CachingOptions componentRef:ComponentRef triggerPolicy:TriggerPolicy "
    "artifactIterator:ArtifactIteratorSpec parameterIterator:ParameterIteratorSpec "
    "retryPolicy:RetryPolicy iteratorPolicy:IteratorPolicy",
    "PipelineTaskInfo": "name:string",
    "CachingOptions": "enableCache:bool cacheKey:string",
    "ComponentRef": "name:string",
    "TriggerPolicy": "condition:string strategy:TriggerStrategy",
    "RetryPolicy": "maxRetryCount:int backoffDuration:Duration backoffFactor:double "
    "backoffMaxDuration:Duration",
    "IteratorPolicy": "parallelismLimit:int",
    "ArtifactIteratorSpec": "items:ArtifactItems itemInput:string",
    "ArtifactItems": "inputArtifact:string",
    "ParameterIteratorSpec": "items:ParameterItems itemInput:string",
    "ParameterItems": "raw:string inputParameter:string",
    "TaskInputsSpec": "parameters:{InputParameterSpec} artifacts:{InputArtifactSpec}",
    "InputArtifactSpec": "taskOutputArtifact:TaskOutputArtifactSpec componentInputArtifact:string",
    "TaskOutputArtifactSpec": "producerTask:string outputArtifactKey:string",
    "InputParameterSpec": "taskOutputParameter:TaskOutputParameterSpec "
    "runtimeValue:ValueOrRuntimeParameter componentInputParameter:string "
    "taskFinalStatus:TaskFinalStatus parameterExpressionSelector:string",
    "TaskOutputParameterSpec": "producerTask:string outputParameterKey:string",
    "TaskFinalStatus": "producerTask:string",
    "ValueOrRuntimeParameter": "constantValue:LegacyValue runtimeParameter:string constant:Value",
    "LegacyValue": "intValue:int doubleValue:double stringValue:string",
    "ArtifactTypeSchema": "schemaTitle:string schemaUri:string instanceSchema:string "
    "schemaVersion:string",
    "TaskConfigPassthrough": "field:TaskConfigPassthroughType applyToTask:bool",
    "PipelineDeploymentConfig": "executors:{ExecutorSpec}",
    "ExecutorSpec": "container:PipelineContainerSpec importer:ImporterSpec resolver:ResolverSpec "
    "customJob:AIPlatformCustomJobSpec",
    "PipelineContainerSpec": "image:string command:[string] args:[string] lifecycle:Lifecycle "
    "resources:ResourceSpec env:[EnvVar]",
    "Lifecycle": "preCacheCheck:Exec",
    "Exec": "command:[string] args:[string]",
    "EnvVar": "name:string value:string",
    "ResourceSpec": "cpuLimit:double memoryLimit:double cpuRequest:double memoryRequest:double "
    "accelerator:AcceleratorConfig resourceCpuLimit:string resourceMemoryLimit:string "
    "resourceCpuRequest:string resourceMemoryRequest:string",
    "AcceleratorConfig": "type:string count:int resourceType:string resourceCount:string",
    "ImporterSpec": "artifactUri:ValueOrRuntimeParameter typeSchema:ArtifactTypeSchema "
    "properties:{ValueOrRuntimeParameter} customProperties:{ValueOrRuntimeParameter} "
    "reimport:bool metadata:Struct downloadToWorkspace:bool",
    "ResolverSpec": "outputArtifactQueries:{ArtifactQuerySpec}",
    "ArtifactQuerySpec": "filter:string limit:int",
    "AIPlatformCustomJobSpec": "customJob:Struct",
    "PlatformSpec": "platforms:{SinglePlatformSpec}",
    "SinglePlatformSpec": "deploymentSpec:PlatformDeploymentConfig platform:string config:Struct "
    "pipelineConfig:PipelineConfig",
    "PlatformDeploymentConfig": "executors:{Struct}",
    "PipelineConfig": "resourceTtlOnCompletion:int workspace:WorkspaceConfig "
    "resourceTtlOnSuccess:int resourceTtlOnFailure:int activeDeadlineSeconds:int",
    "WorkspaceConfig": "size:string kubernetes:KubernetesWorkspaceConfig",
    "KubernetesWorkspaceConfig": "pvcSpecPatch:Struct",
}

_OF_EXECUTOR = {
    "KubernetesExecutorConfig": "secretAsVolume:[SecretAsVolume] secretAsEnv:[SecretAsEnv] "
    "pvcMount:[PvcMount] nodeSelector:NodeSelector podMetadata:PodMetadata "
    "imagePullSecret:[ImagePullSecret] imagePullPolicy:string "
    "configMapAsVolume:[ConfigMapAsVolume] configMapAsEnv:[ConfigMapAsEnv] "
    "activeDeadlineSeconds:int fieldPathAsEnv:[FieldPathAsEnv] tolerations:[Toleration] "
    "genericEphemeralVolume:[GenericEphemeralVolume] nodeAffinity:[NodeAffinityTerm] "
    "podAffinity:[PodAffinityTerm] enabledSharedMemory:EnabledSharedMemory "
    "emptyDirMounts:[EmptyDirMount] securityContext:SecurityContext "
    "initContainers:[InitContainer]",
    "EnabledSharedMemory": "volumeName:string size:string",
    "SecretAsVolume": "secretName:string mountPath:string optional:bool "
    "secretNameParameter:InputParameterSpec",
    "SecretAsEnv": "secretName:string keyToEnv:[SecretKeyToEnvMap] optional:bool "
    "secretNameParameter:InputParameterSpec",
    "SecretKeyToEnvMap": "secretKey:string envVar:string",
    "PvcMount": "taskOutputParameter:TaskOutputParameterSpec constant:string "
    "componentInputParameter:string mountPath:string pvcNameParameter:InputParameterSpec "
    "subPath:string",
    "NodeSelector": "labels:{string} nodeSelectorJson:InputParameterSpec",
    "PodMetadata": "labels:{string} annotations:{string}",
    "ConfigMapAsVolume": "configMapName:string mountPath:string optional:bool "
    "configMapNameParameter:InputParameterSpec",
    "ConfigMapAsEnv": "configMapName:string keyToEnv:[ConfigMapKeyToEnvMap] "
    "configMapNameParameter:InputParameterSpec optional:bool",
    "ConfigMapKeyToEnvMap": "configMapKey:string envVar:string",
    "GenericEphemeralVolume": "volumeName:string mountPath:string accessModes:[string] "
    "size:string defaultStorageClass:bool storageClassName:string metadata:PodMetadata",
    "ImagePullSecret": "secretName:string secretNameParameter:InputParameterSpec",
    "FieldPathAsEnv": "name:string fieldPath:string",
    "Toleration": "key:string operator:string value:string effect:string tolerationSeconds:int "
    "tolerationJson:InputParameterSpec",
    "SelectorRequirement": "key:string operator:string values:[string]",
    "NodeAffinityTerm": "matchExpressions:[SelectorRequirement] "
    "matchFields:[SelectorRequirement] weight:int nodeAffinityJson:InputParameterSpec",
    "PodAffinityTerm": "matchPodExpressions:[SelectorRequirement] matchPodLabels:{string} "
    "topologyKey:string namespaces:[string] matchNamespaceExpressions:[SelectorRequirement] "
    "matchNamespaceLabels:{string} weight:int anti:bool",
    "SecurityContext": "runAsUser:int runAsGroup:int runAsNonRoot:bool",
    "EmptyDirMount": "volumeName:string mountPath:string medium:string sizeLimit:string",
    "InitContainer": "name:string image:string command:[string] args:[string] env:[EnvVar] "
    "volumeMounts:[VolumeMount] restartPolicy:string resources:ResourceRequirements",
    "VolumeMount": "volumeName:string mountPath:string",
    "ResourceRequirements": "requests:{string} limits:{string}",
}

_ONE_OF = {
    "ComponentSpec": ("dag", "executorLabel"),
    "DagOutputParameterSpec": ("valueFromParameter", "valueFromOneof"),
    "PipelineTaskSpec": ("artifactIterator", "parameterIterator"),
    "ParameterItems": ("raw", "inputParameter"),
    "InputArtifactSpec": ("taskOutputArtifact", "componentInputArtifact"),
    "InputParameterSpec": (
        "taskOutputParameter",
        "runtimeValue",
        "componentInputParameter",
        "taskFinalStatus",
    ),
    "ValueOrRuntimeParameter": ("constantValue", "runtimeParameter", "constant"),
    "LegacyValue": ("intValue", "doubleValue", "stringValue"),
    "ArtifactTypeSchema": ("schemaTitle", "schemaUri", "instanceSchema"),
    "ExecutorSpec": ("container", "importer", "resolver", "customJob"),
    "PvcMount": ("taskOutputParameter", "constant", "componentInputParameter"),
}
"""Fields of which a message may have only one."""

ENUMS = {
    "PrimitiveType": "PRIMITIVE_TYPE_UNSPECIFIED INT DOUBLE STRING",
    "ParameterType": "PARAMETER_TYPE_ENUM_UNSPECIFIED NUMBER_DOUBLE NUMBER_INTEGER STRING BOOLEAN "
    "LIST STRUCT TASK_FINAL_STATUS TASK_CONFIG",
    "TriggerStrategy": "TRIGGER_STRATEGY_UNSPECIFIED ALL_UPSTREAM_TASKS_SUCCEEDED "
    "ALL_UPSTREAM_TASKS_COMPLETED",
    "TaskConfigPassthroughType": "NONE RESOURCES ENV KUBERNETES_AFFINITY KUBERNETES_TOLERATIONS "
    "KUBERNETES_NODE_SELECTOR KUBERNETES_VOLUMES",
}
"""Names of the values of each enum, in their order."""


class Wrong(NamedTuple):
    """A part of a message that does not match the proto."""

    location: str
    problem: str
    unknown: bool
    """Whether the field does not exist: some readers ignore it. No reader ignores other errors."""


class Reader:
    """Reads messages of one table; collects what is wrong."""

    def __init__(self, table: dict[str, dict[str, str]]):
        self._table = table
        self.wrong: list[Wrong] = []

    def read(self, kind: str, value: Any, location: str = "") -> Any:
        """The value as one of ``kind``, without wrong parts, which are recorded."""
        if kind in self._table:
            return self._message(kind, value, location)
        if kind[0] == "[":
            return self._list(kind[1:-1], value, location)
        if kind[0] == "{":
            return self._map(kind[1:-1], value, location)
        if kind == "Value":
            return value
        if kind == "Struct":
            return self._map("Value", value, location)
        if kind in ENUMS:
            return self._enum(kind, value, location)
        return self._scalar(kind, value, location)

    def _refuse(self, location: str, what: str, *, unknown: bool = False) -> None:
        self.wrong.append(Wrong(location, what, unknown))

    def _message(self, kind: str, value: Any, location: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._refuse(location, f"expected fields of {kind}, not {_shown(value)}")
            return {}
        fields = self._table[kind]
        result: dict[str, Any] = {}
        for key, item in value.items():
            # protojson accepts a field's JSON name and its proto name.
            name = key if key in fields else _camel(str(key)) if _SNAKE.fullmatch(str(key)) else key
            if name not in fields:
                self._refuse(_join(location, key), f"{kind} has no field {key!r}", unknown=True)
            elif name in result:
                self._refuse(_join(location, key), f"{name} is a duplicate")
            elif item is not None or fields[name] == "Value":
                result[name] = self.read(fields[name], item, _join(location, key))
        given = [name for name in _ONE_OF.get(kind, ()) if name in result]
        if len(given) > 1:
            self._refuse(location, f"{kind} has one of {' and '.join(given)}, not both")
        return result

    def _list(self, kind: str, value: Any, location: str) -> list[Any]:
        if not isinstance(value, list):
            self._refuse(location, f"expected a list, not {_shown(value)}")
            return []
        return [self.read(kind, item, f"{location}[{index}]") for index, item in enumerate(value)]

    def _map(self, kind: str, value: Any, location: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._refuse(location, f"expected a mapping, not {_shown(value)}")
            return {}
        result = {}
        for key, item in value.items():
            if isinstance(key, str):
                result[key] = self.read(kind, item, _join(location, key))
            else:
                self._refuse(location, f"the key {key!r} is not text")
        return result

    def _enum(self, kind: str, value: Any, location: str) -> str:
        names = ENUMS[kind].split()
        if isinstance(value, str) and value in names:
            return value
        if type(value) is int and 0 <= value < len(names):
            return names[value]
        self._refuse(location, f"{value!r} is none of {', '.join(names)}")
        return names[0]

    def _scalar(self, kind: str, value: Any, location: str) -> Any:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kind == "string" and isinstance(value, str):
            return value
        if kind == "bool" and isinstance(value, bool):
            return value
        if kind == "int" and (number or isinstance(value, str)):
            try:
                if float(value).is_integer():
                    return int(value)
            except (ValueError, OverflowError):
                pass
        if kind == "double" and (number or isinstance(value, str)):
            try:
                return float(value)
            except (ValueError, OverflowError):
                pass
        if kind == "Duration" and isinstance(value, str) and _DURATION.fullmatch(value):
            return value
        expected = {
            "string": "text",
            "bool": "true or false",
            "int": "a whole number",
            "double": "a number",
            "Duration": 'a duration such as "30s"',
        }[kind]
        self._refuse(location, f"expected {expected}, not {_shown(value)}")
        return {"string": "", "bool": False, "int": 0, "double": 0.0, "Duration": "0s"}[kind]


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _join(location: str, key: object) -> str:
    return f"{location}.{key}" if location else str(key)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else repr(value)


def _table(fields: dict[str, str]) -> dict[str, dict[str, str]]:
    """``{"M": "a:string b:[T]"}`` -> ``{"M": {"a": "string", "b": "[T]"}}``."""
    return {
        message: dict(entry.split(":", 1) for entry in text.split())
        for message, text in fields.items()
    }


PIPELINE = _table(_OF_PIPELINE)
KUBERNETES = PIPELINE | _table(_OF_EXECUTOR)
"""Type of each field, by message; ``KUBERNETES`` includes those of pipelines."""
