{{/*
"true" where leasehold runs the workload itself; else nothing. Refuses values that would have another effect in this mode.
*/}}
{{- define "app.supervised" -}}
{{- if eq .Values.mode "supervisor" -}}
{{- if not .Values.workload.command -}}
{{- fail "leasehold: mode supervisor: set workload.command to the command of the workload; a chart cannot read the ENTRYPOINT of an image, and workload.args is not the whole command" -}}
{{- end -}}
{{- $locks := include "app.locks" . -}}
{{- range list "startupProbe" "livenessProbe" "readinessProbe" "lifecycle" -}}
{{- if and $locks (get $.Values.workload .) -}}
{{- fail (printf "leasehold: a Job in mode supervisor: leave out workload.%s: a job that waits for its lock does not run yet, and could not answer; set job.activeDeadlineSeconds to end a job that hangs" .) -}}
{{- end -}}
{{- end -}}
{{- range list "startupProbe" "livenessProbe" "readinessProbe" -}}
{{- if get $.Values.workload . -}}
{{- fail (printf "leasehold: mode supervisor: leave out workload.%s: a replica that does not lead does not run the workload, and the kubelet would restart it or count it as not ready; set leasehold.config.workload.health.url (http://127.0.0.1:PORT/PATH) or leasehold.config.workload.health.command, which leasehold asks" .) -}}
{{- end -}}
{{- end -}}
{{- if .Values.workload.lifecycle -}}
{{- fail "leasehold: mode supervisor: leave out workload.lifecycle: Kubernetes would run it in every replica, and the workload runs in the leader only; set leasehold.config.hooks.on_lead and leasehold.config.hooks.on_step_down" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}
