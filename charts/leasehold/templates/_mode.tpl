{{/* The form of the pod: `sidecar`, `guard` (supervisor mode in two containers), `supervisor` (in one container) or `lock`. */}}
{{- define "app.form" -}}
{{- if include "app.locks" . -}}
lock
{{- else -}}
{{- get (dict "sidecar" "sidecar" "supervisor" "guard" "supervisor-same-container" "supervisor") .Values.mode -}}
{{- end -}}
{{- end -}}

{{/*
"true" if leasehold runs the workload, otherwise empty. Refuses values that would have another effect in this mode.
*/}}
{{- define "app.supervised" -}}
{{- if hasPrefix "supervisor" .Values.mode -}}
{{- $mode := .Values.mode -}}
{{- if not .Values.workload.command -}}
{{- fail (printf "leasehold: mode %s: set workload.command to the command of the workload; a chart cannot read the ENTRYPOINT of an image, and workload.args is not the whole command" $mode) -}}
{{- end -}}
{{- $locks := include "app.locks" . -}}
{{- range list "startupProbe" "livenessProbe" "readinessProbe" "lifecycle" -}}
{{- if and $locks (get $.Values.workload .) -}}
{{- fail (printf "leasehold: a Job in mode %s: leave out workload.%s: a job that waits for its lock does not run yet, and could not answer; set job.activeDeadlineSeconds to end a job that hangs" $mode .) -}}
{{- end -}}
{{- end -}}
{{- range list "startupProbe" "livenessProbe" "readinessProbe" -}}
{{- if get $.Values.workload . -}}
{{- fail (printf "leasehold: mode %s: leave out workload.%s: a replica that does not lead does not run the workload, and the kubelet would restart it or count it as not ready; set leasehold.config.workload.health.url (http://127.0.0.1:PORT/PATH) or leasehold.config.workload.health.command, which leasehold asks" $mode .) -}}
{{- end -}}
{{- end -}}
{{- if .Values.workload.lifecycle -}}
{{- fail (printf "leasehold: mode %s: leave out workload.lifecycle: Kubernetes would run it in every replica, and the workload runs in the leader only; set leasehold.config.hooks.on_lead and leasehold.config.hooks.on_step_down" $mode) -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* The name of the template that renders leasehold's items in a list of the pod. The items depend on the form of the pod. */}}
{{- define "app.part" -}}
{{- $parts := dict
  "initContainers" (dict "sidecar" "leasehold.sidecar" "guard" "leasehold.guardContainers" "supervisor" "leasehold.installer" "lock" "leasehold.installer")
  "args" (dict "guard" "leasehold.guardArgs" "supervisor" "leasehold.supervisorArgs" "lock" "app.lockArgs")
  "env" (dict "sidecar" "leasehold.statusFile" "guard" "leasehold.statusFile" "supervisor" "leasehold.supervisorEnv" "lock" "leasehold.lockEnv")
  "volumeMounts" (dict "sidecar" "leasehold.statusMount" "guard" "leasehold.guardMounts" "supervisor" "leasehold.supervisorMounts" "lock" "leasehold.lockMounts")
  "volumes" (dict "sidecar" "leasehold.volumes" "guard" "leasehold.supervisorVolumes" "supervisor" "leasehold.supervisorVolumes" "lock" "leasehold.lockVolumes")
-}}
{{- get (get $parts .part) (include "app.form" .root) -}}
{{- end -}}
