"""The fields of an executor in a platform document: kubernetes_executor_config.proto."""

from __future__ import annotations

from stagecraft.pipeline.kubeflow.linter.proto.messages import PIPELINE, table

_FIELDS = {
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

KUBERNETES = PIPELINE | table(_FIELDS)
"""Type of each field, by message; includes those of pipelines."""
