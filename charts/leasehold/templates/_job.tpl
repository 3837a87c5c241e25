{{/* "true" if the workload is a Job or a CronJob, otherwise empty. */}}
{{- define "app.isJob" -}}
{{- if has .Values.workload.kind (list "Job" "CronJob") -}}
true
{{- end -}}
{{- end -}}

{{/* "true" if the workload has replicas that are counted and spread, otherwise empty. A DaemonSet has one pod on each node. */}}
{{- define "app.isReplicated" -}}
{{- if has .Values.workload.kind (list "Deployment" "StatefulSet") -}}
true
{{- end -}}
{{- end -}}

{{/*
"true" if leasehold runs the workload under a lock, otherwise empty. A job uses a lock, because a job ends and a candidate never stops
contending. The lock is acquired, held while the job runs, and released.
*/}}
{{- define "app.locks" -}}
{{- if and .Values.deployment.enabled (include "app.isJob" .) (hasPrefix "supervisor" .Values.mode) -}}
true
{{- end -}}
{{- end -}}

{{/* The spec of a Job. */}}
{{- define "app.jobSpec" -}}
{{- $job := .Values.job -}}
backoffLimit: {{ $job.backoffLimit }}
completions: {{ $job.completions }}
parallelism: {{ $job.parallelism }}
completionMode: {{ $job.completionMode }}
{{- if eq .Values.workload.kind "Job" }}
suspend: {{ $job.suspend }}
{{- end }}
{{- with $job.activeDeadlineSeconds }}
activeDeadlineSeconds: {{ . }}
{{- end }}
{{- if ge (int $job.ttlSecondsAfterFinished) 0 }}
ttlSecondsAfterFinished: {{ $job.ttlSecondsAfterFinished }}
{{- end }}
{{- with $job.podFailurePolicy }}
podFailurePolicy:
  {{- toYaml . | nindent 2 }}
{{- end }}
template:
  {{- include "app.podTemplate" . | nindent 2 }}
{{- end -}}

{{/*
Items of the `args` of the container that runs a job under a lock. A Job waits for the lock. A CronJob skips a run if the lock is held, because
the next run follows on schedule.
*/}}
{{- define "app.lockArgs" -}}
{{- $lock := .Values.job.lock -}}
{{- $held := $lock.ifHeld | default (ternary "skip" "wait" (eq .Values.workload.kind "CronJob")) -}}
- lock
- {{ include "leasehold.lease" . | quote }}
{{- if $lock.wait }}
- --wait={{ $lock.wait }}
{{- else if ne $held "wait" }}
- --no-wait
{{- end }}
{{- if eq $held "skip" }}
- --conflict-exit-code=0
{{- end }}
{{- with $lock.slots }}
- --slots={{ . }}
{{- end }}
{{- with $lock.atLeast }}
- --at-least={{ . }}
{{- end }}
{{- with $lock.oncePer }}
- --once-per={{ . }}
- --skipped-exit-code=0
{{- end }}
{{- with $lock.key }}
- {{ printf "--key=%s" . | quote }}
{{- end }}
{{ include "leasehold.lockFlags" . }}
- "--"
{{- end -}}
