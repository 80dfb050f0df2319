"""The fields of a pipeline spec and of an executor in a platform document, as tables.

They are those of api/v2alpha1/pipeline_spec.proto and kubernetes_executor_config.proto. The backend
refuses a document with an unknown field. The tables do not come from the installed
``kfp.pipeline_spec``, which is years older on the classic stack: findings must not depend on the
machine.

``[T]`` is a list of T, ``{T}`` a map from string to T.
"""

from __future__ import annotations

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

ONE_OF = {
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

_ENUMS = {
    "PrimitiveType": "PRIMITIVE_TYPE_UNSPECIFIED INT DOUBLE STRING",
    "ParameterType": "PARAMETER_TYPE_ENUM_UNSPECIFIED NUMBER_DOUBLE NUMBER_INTEGER STRING BOOLEAN "
    "LIST STRUCT TASK_FINAL_STATUS TASK_CONFIG",
    "TriggerStrategy": "TRIGGER_STRATEGY_UNSPECIFIED ALL_UPSTREAM_TASKS_SUCCEEDED "
    "ALL_UPSTREAM_TASKS_COMPLETED",
    "TaskConfigPassthroughType": "NONE RESOURCES ENV KUBERNETES_AFFINITY KUBERNETES_TOLERATIONS "
    "KUBERNETES_NODE_SELECTOR KUBERNETES_VOLUMES",
}

ENUMS = {kind: tuple(names.split()) for kind, names in _ENUMS.items()}


def _table(fields: dict[str, str]) -> dict[str, dict[str, str]]:
    """``{"M": "a:string b:[T]"}`` -> ``{"M": {"a": "string", "b": "[T]"}}``."""
    return {
        message: dict(entry.split(":", 1) for entry in text.split())
        for message, text in fields.items()
    }


PIPELINE = _table(_OF_PIPELINE)
KUBERNETES = PIPELINE | _table(_OF_EXECUTOR)
"""Type of each field, by message; ``KUBERNETES`` includes those of pipelines."""
