{{/*
Supervisor mode in two containers: leasehold is a native sidecar, and a guard runs the workload in the workload's container and image. The sidecar
sends its orders through a socket in the status directory. The workload's container has no connection string and no token. An init container
copies the guard's program into a volume that the workload's container mounts. The guard is process 1 of its container, so the pod must not set
`shareProcessNamespace` or `hostPID`.
*/}}

{{/* Items of `initContainers`: the installer, and the sidecar that runs the workload through the guard. */}}
{{- define "leasehold.guardContainers" -}}
{{- include "leasehold.checkSupervisor" . -}}
{{- include "leasehold.installer" . }}
{{ include "leasehold.container" (dict "root" . "lease" (include "leasehold.lease" .) "labelled" (include "leasehold.labelled" .) "name" "" "guards" true) }}
{{- end -}}

{{/* Items of the workload's `args`, before the workload's own command and arguments. The `command` is `leasehold.supervisorCommand`. */}}
{{- define "leasehold.guardArgs" -}}
- guard
- --socket={{ trimSuffix "/" .Values.leasehold.statusDirectory }}/guard.sock
- "--"
{{- end -}}

{{/* Items of the workload's `volumeMounts`. A process can connect to a socket on a read-only mount. */}}
{{- define "leasehold.guardMounts" -}}
{{ include "leasehold.programMount" . }}
{{ include "leasehold.statusMount" . }}
{{- end -}}
